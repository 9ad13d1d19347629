//! Go's `time.Duration`: nanoseconds, written `1h2m3.5s`.

use std::fmt;

/// Go's `time.Duration`: nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Duration(pub i64);

const NANOSECOND: u64 = 1;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

impl Duration {
    /// Go's `time.ParseDuration`; the error is Go's text.
    pub fn parse(text: &str) -> Result<Duration, String> {
        parse(text).ok_or(()).map_err(|()| complaint(text))
    }

    /// Go's `Duration.Truncate`: towards zero, to a multiple of `unit`.
    pub fn truncate(self, unit: Duration) -> Duration {
        if unit.0 <= 0 { self } else { Duration(self.0 - self.0 % unit.0) }
    }

    /// Go's `Duration.Round`: to the nearest multiple of `unit`, halves away from zero.
    pub fn round(self, unit: Duration) -> Duration {
        if unit.0 <= 0 {
            return self;
        }
        let rest = self.0 % unit.0;
        let less_than_half = rest.unsigned_abs().saturating_mul(2) < unit.0.unsigned_abs();
        let down = self.0 - rest;
        match (less_than_half, self.0 < 0) {
            (true, _) => Duration(down),
            (false, true) => Duration(down.checked_sub(unit.0).unwrap_or(i64::MIN)),
            (false, false) => Duration(down.checked_add(unit.0).unwrap_or(i64::MAX)),
        }
    }

    pub fn hours(self) -> f64 {
        self.in_units(HOUR)
    }

    pub fn minutes(self) -> f64 {
        self.in_units(MINUTE)
    }

    pub fn seconds(self) -> f64 {
        self.in_units(SECOND)
    }

    /// Whole and fraction apart, which is how Go keeps them exact.
    fn in_units(self, unit: u64) -> f64 {
        let unit = unit as i64;
        (self.0 / unit) as f64 + (self.0 % unit) as f64 / unit as f64
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        if magnitude == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if magnitude < SECOND {
            let (unit, name) = match magnitude {
                m if m < MICROSECOND => (NANOSECOND, "ns"),
                m if m < MILLISECOND => (MICROSECOND, "µs"),
                _ => (MILLISECOND, "ms"),
            };
            return write!(f, "{}{name}", fraction(magnitude, unit));
        }
        if magnitude >= HOUR {
            write!(f, "{}h", magnitude / HOUR)?;
        }
        if magnitude >= MINUTE {
            write!(f, "{}m", magnitude % HOUR / MINUTE)?;
        }
        write!(f, "{}s", fraction(magnitude % MINUTE, SECOND))
    }
}

/// A number of units, with as many decimals as are needed.
fn fraction(value: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let rest = value % unit;
    if rest == 0 {
        return (value / unit).to_string();
    }
    let decimals = format!("{rest:0digits$}");
    format!("{}.{}", value / unit, decimals.trim_end_matches('0'))
}

fn parse(text: &str) -> Option<Duration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(Duration(0));
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (value, after) = one_part(rest)?;
        total = total.checked_add(value).filter(|&total| total <= 1 << 63)?;
        rest = after;
    }
    if negative {
        return Some(Duration((total as i64).wrapping_neg()));
    }
    i64::try_from(total).ok().map(Duration)
}

/// A number with its unit, in nanoseconds.
fn one_part(text: &str) -> Option<(u64, &str)> {
    let whole_length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole_text, mut rest) = text.split_at(whole_length);
    let whole: u64 = if whole_text.is_empty() { 0 } else { whole_text.parse().ok()? };
    let mut decimals = "";
    if let Some(after) = rest.strip_prefix('.') {
        let length = after.bytes().take_while(u8::is_ascii_digit).count();
        (decimals, rest) = after.split_at(length);
    }
    if whole_text.is_empty() && decimals.is_empty() {
        return None;
    }
    let unit_length = rest.bytes().take_while(|&byte| byte != b'.' && !byte.is_ascii_digit()).count();
    let (unit, rest) = rest.split_at(unit_length);
    let unit = match unit {
        "ns" => NANOSECOND,
        "us" | "µs" | "μs" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    };
    let mut value = whole.checked_mul(unit).filter(|&value| value <= 1 << 63)?;
    if !decimals.is_empty() {
        value = value.checked_add(decimal_part(decimals, unit))?;
        if value > 1 << 63 {
            return None;
        }
    }
    Some((value, rest))
}

/// Decimals of a unit, in floating point as Go does it; digits beyond what fits are dropped.
fn decimal_part(decimals: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1f64;
    for digit in decimals.bytes() {
        let digit = u64::from(digit - b'0');
        match value.checked_mul(10).and_then(|value| value.checked_add(digit)).filter(|&v| v < 1 << 63) {
            Some(next) => value = next,
            None => break,
        }
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Which of Go's complaints fits.
fn complaint(text: &str) -> String {
    let quoted = crate::strconv::quote(text.as_bytes());
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let mut after = &rest[digits..];
        let mut has_digits = digits > 0;
        if let Some(decimals) = after.strip_prefix('.') {
            let length = decimals.bytes().take_while(u8::is_ascii_digit).count();
            has_digits |= length > 0;
            after = &decimals[length..];
        }
        if !has_digits || rest[..digits].parse::<u64>().is_err() && digits > 0 {
            break;
        }
        let length = after.bytes().take_while(|&byte| byte != b'.' && !byte.is_ascii_digit()).count();
        let unit = &after[..length];
        if unit.is_empty() {
            return format!("time: missing unit in duration {quoted}");
        }
        if !matches!(unit, "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h") {
            let unit = crate::strconv::quote(unit.as_bytes());
            return format!("time: unknown unit {unit} in duration {quoted}");
        }
        rest = &after[length..];
    }
    format!("time: invalid duration {quoted}")
}
