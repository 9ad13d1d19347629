//! Durations in Go's syntax: `1m30s`, `500ms`, `1.5h`.
//!
//! Reads everything Go's `time.ParseDuration` reads. The CRDs accept less (no sign, no `us` or `ns`): that is their
//! pattern's business, since status fields such as `lastReconciledDuration` carry what Go prints.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the API accepts for an interval.
pub const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";
/// What the API accepts for the timeout of a source or a provider: as [`PATTERN`], without hours.
pub const PATTERN_WITHOUT_HOURS: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$";

/// A span of time with Go's syntax and Go's range: whole nanoseconds in 64 bits, about 292 years either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration {
    nanoseconds: i64,
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a sequence of number and unit.
    #[error("invalid duration {0:?}: write a number and a unit (h, m, s, ms), such as 1m30s")]
    Invalid(String),
    /// A number without a unit.
    #[error("missing unit in duration {0:?}: write h, m, s or ms after the number, such as 10m")]
    MissingUnit(String),
    /// A unit that does not exist.
    #[error("unknown unit {unit:?} in duration {text:?}: use h, m, s or ms")]
    UnknownUnit {
        /// The text.
        text: String,
        /// What stands where a unit should.
        unit: String,
    },
    /// Over 292 years.
    #[error("duration {0:?} is too long")]
    TooLong(String),
}

impl GoDuration {
    /// No time at all.
    pub const ZERO: GoDuration = GoDuration { nanoseconds: 0 };

    /// So many nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        GoDuration { nanoseconds }
    }

    /// So many seconds; stays at the end of the range when there are too many.
    pub const fn from_secs(seconds: i64) -> Self {
        GoDuration { nanoseconds: seconds.saturating_mul(NANOS_PER_SEC as i64) }
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanoseconds
    }

    /// As the standard library's duration; a negative one is no time at all.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanoseconds).unwrap_or(0))
    }

    /// Whether it is exactly nothing.
    pub const fn is_zero(self) -> bool {
        self.nanoseconds == 0
    }

    /// Rounded to a multiple of `unit`, halves away from zero, as Go's `Round`.
    pub fn round(self, unit: GoDuration) -> GoDuration {
        let (value, unit) = (i128::from(self.nanoseconds), i128::from(unit.nanoseconds));
        if unit <= 0 {
            return self;
        }
        let half = if value < 0 { -unit / 2 } else { unit / 2 };
        let rounded = (value + half) / unit * unit;
        GoDuration { nanoseconds: i64::try_from(rounded).unwrap_or(self.nanoseconds) }
    }
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        GoDuration { nanoseconds: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX) }
    }
}

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.to_std()
    }
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

fn nanos_in(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 and U+03BC look the same, and Go takes both.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS_PER_SEC,
        "m" => 60 * NANOS_PER_SEC,
        "h" => 3_600 * NANOS_PER_SEC,
        _ => return None,
    })
}

impl FromStr for GoDuration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(GoDuration::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (nanoseconds, after) = one_component(text, rest)?;
            total = total.checked_add(nanoseconds).ok_or_else(|| Error::TooLong(text.to_owned()))?;
            rest = after;
        }
        let too_long = || Error::TooLong(text.to_owned());
        let nanoseconds = if negative {
            0i64.checked_sub_unsigned(total).ok_or_else(too_long)?
        } else {
            i64::try_from(total).map_err(|_| too_long())?
        };
        Ok(GoDuration { nanoseconds })
    }
}

/// One number with its unit from the front of `rest`; what follows it comes back.
fn one_component<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), Error> {
    let (whole, after_whole) = split_digits(rest);
    let (fraction, after_number) = match after_whole.strip_prefix('.') {
        Some(after_point) => split_digits(after_point),
        None => ("", after_whole),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(Error::Invalid(text.to_owned()));
    }
    let unit_end = after_number.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after_number.len());
    let (unit, after) = after_number.split_at(unit_end);
    if unit.is_empty() {
        return Err(Error::MissingUnit(text.to_owned()));
    }
    let scale =
        nanos_in(unit).ok_or_else(|| Error::UnknownUnit { text: text.to_owned(), unit: unit.to_owned() })?;
    let too_long = || Error::TooLong(text.to_owned());
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
    let whole = whole.checked_mul(scale).ok_or_else(too_long)?;
    let nanoseconds = whole.checked_add(fraction_of(fraction, scale)).ok_or_else(too_long)?;
    Ok((nanoseconds, after))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The digits after a decimal point, times `scale`, cut to whole nanoseconds.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    let mut value: u128 = 0;
    let mut divisor: u128 = 1;
    // Eighteen digits decide every nanosecond of an hour; Go stops at about as many.
    for digit in digits.bytes().take(18) {
        value = value * 10 + u128::from(digit - b'0');
        divisor *= 10;
    }
    u64::try_from(value * u128::from(scale) / divisor).unwrap_or(u64::MAX)
}

impl fmt::Display for GoDuration {
    /// As Go prints it: `1h0m0s`, `1.5s`, `20ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.nanoseconds.unsigned_abs();
        let sign = if self.nanoseconds < 0 { "-" } else { "" };
        f.pad(&format!("{sign}{}", magnitude(total)))
    }
}

fn magnitude(total: u64) -> String {
    match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{total}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(total, 1_000)),
        1_000_000..NANOS_PER_SEC => format!("{}ms", decimal(total, 1_000_000)),
        _ => {
            let minutes = total / (60 * NANOS_PER_SEC);
            let seconds = decimal(total % (60 * NANOS_PER_SEC), NANOS_PER_SEC);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// `value / unit` with as many decimals as it needs; `unit` is a power of ten.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{fraction:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

impl fmt::Debug for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        match text.parse::<GoDuration>() {
            Ok(duration) => duration.to_string(),
            Err(error) => format!("{error}"),
        }
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        for (text, printed) in [
            ("60s", "1m0s"),
            ("1h", "1h0m0s"),
            ("1.5h", "1h30m0s"),
            ("90m", "1h30m0s"),
            ("1500ms", "1.5s"),
            ("20ms", "20ms"),
            ("1.5ms", "1.5ms"),
            ("1us", "1\u{b5}s"),
            ("1\u{3bc}s", "1\u{b5}s"),
            ("15ns", "15ns"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("-1m", "-1m0s"),
            ("+5s", "5s"),
            ("0", "0s"),
            ("1h2m3.004005006s", "1h2m3.004005006s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(parsed(text), printed, "{text}");
        }
    }

    #[test]
    fn a_bad_duration_says_what_is_wrong() {
        for text in ["", "-", "+", "s", ".s", "x1s", "1 s", "\u{1f980}"] {
            assert!(
                matches!(text.parse::<GoDuration>(), Err(Error::Invalid(_) | Error::UnknownUnit { .. })),
                "{text}"
            );
        }
        assert!(parsed("10").starts_with("missing unit"));
        assert!(parsed("1d").starts_with("unknown unit \"d\""));
        assert!(parsed("2562047h47m16.854775808s").ends_with("is too long"));
        assert!(parsed("99999999999999999999h").ends_with("is too long"));
        assert!(parsed("9223372036854775807h").ends_with("is too long"));
    }

    #[test]
    fn rounding_goes_away_from_zero_at_the_half() {
        let second = GoDuration::from_secs(1);
        let round = |text: &str| text.parse::<GoDuration>().unwrap().round(second).to_string();
        assert_eq!(round("1.5s"), "2s");
        assert_eq!(round("-1.5s"), "-2s");
        assert_eq!(round("1.49s"), "1s");
    }
}
