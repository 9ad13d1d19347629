//! Kubernetes quantities: `500m`, `1.5Gi`, `1e3`.
//!
//! Exact to nano units, as upstream. Numbers too large for that (beyond about 10²⁹) saturate; Kubernetes itself
//! says that no quantity may exceed 2⁶³-1.

use std::cmp::Ordering;
use std::fmt;

const NANO: i128 = 1_000_000_000;

/// A parsed quantity.
#[derive(Clone, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// Whether it was written without anything behind the point: what was not, Kubernetes does not call an integer, not even `1000m`.
    whole: bool,
    /// The text as written, where Kubernetes keeps it when it encodes the quantity again.
    kept: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    DecimalExponent,
    BinarySi,
    DecimalSi,
}

/// Why a text is no quantity, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
}

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let (base, exponent, format) = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
        let nanos = parts.nanos(base, exponent)?;
        let magnitude = nanos.abs();
        let mut format = format;
        if format == Format::BinarySi && magnitude < NANO && magnitude > 0 {
            format = Format::DecimalSi;
        }
        let kept = parts.is_kept(exponent, format).then(|| text.to_owned());
        let whole = parts.is_whole(exponent, format);
        Ok(Quantity { nanos, format, whole, kept })
    }

    /// The text Kubernetes writes after decoding `text`: `1000m` is `1`, `1.5Gi` is `1536Mi`.
    pub fn canonical(text: &str) -> Result<String, QuantityError> {
        Quantity::parse(text).map(|quantity| quantity.to_string())
    }

    pub fn sign(&self) -> i64 {
        self.nanos.signum() as i64
    }

    /// The value, if it is whole and fits.
    pub fn as_integer(&self) -> Option<i64> {
        if !self.whole || self.nanos % NANO != 0 {
            return None;
        }
        i64::try_from(self.nanos / NANO).ok()
    }

    pub fn as_float(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    pub fn add(&self, other: &Quantity) -> Quantity {
        self.with(self.nanos.saturating_add(other.nanos), other)
    }

    pub fn subtract(&self, other: &Quantity) -> Quantity {
        self.with(self.nanos.saturating_sub(other.nanos), other)
    }

    pub fn from_integer(value: i64) -> Quantity {
        Quantity { nanos: i128::from(value) * NANO, format: Format::DecimalSi, whole: true, kept: None }
    }

    fn with(&self, nanos: i128, other: &Quantity) -> Quantity {
        Quantity { nanos, format: self.format, whole: self.whole && other.whole, kept: None }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.kept {
            return out.write_str(text);
        }
        if self.nanos == 0 {
            return out.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANO;
        if self.format == Format::BinarySi && !small && self.nanos % NANO == 0 {
            let (mut amount, mut power) = (self.nanos / NANO, 0);
            while amount % 1024 == 0 && power < 6 {
                amount /= 1024;
                power += 1;
            }
            return write!(out, "{amount}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut amount, mut exponent) = (self.nanos, -9);
        while amount % 1000 == 0 && (exponent < 18 || self.format == Format::DecimalExponent) {
            amount /= 1000;
            exponent += 3;
        }
        match self.format {
            Format::DecimalExponent if exponent == 0 => write!(out, "{amount}"),
            Format::DecimalExponent => write!(out, "{amount}e{exponent}"),
            Format::BinarySi | Format::DecimalSi => {
                let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                write!(out, "{amount}{}", suffixes[((exponent + 9) / 3) as usize])
            }
        }
    }
}

struct Parts<'a> {
    negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        let number_end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, rest) = rest.split_at(number_end);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => {
                let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
                rest.split_at(end)
            }
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|character| "eEinumkKMGTP".contains(character));
        let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Parts { negative, whole: whole.trim_start_matches('0'), fraction, suffix })
    }

    /// The value in nano units, rounded away from zero.
    fn nanos(&self, base: i128, exponent: i32) -> Result<i128, QuantityError> {
        if self.whole.is_empty() && self.fraction.is_empty() && self.suffix.starts_with(['+', '-']) {
            return Err(QuantityError::Numeric);
        }
        let digits = format!("{}{}", self.whole, self.fraction);
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(0);
        }
        let (digits, dropped) = digits.split_at(digits.len().min(36));
        let mantissa: i128 = digits.parse().map_err(|_| QuantityError::Numeric)?;
        let mut scale = dropped.len() as i64 - self.fraction.len() as i64 + 9;
        let mut value = mantissa;
        if base == 2 {
            value = value.saturating_mul(1i128 << exponent);
        } else {
            scale += i64::from(exponent);
        }
        let value = scaled(value, scale);
        // Binary quantities are capped at what an int64 holds.
        let value = if base == 2 { value.min(i128::from(i64::MAX) * NANO) } else { value };
        Ok(if self.negative { -value } else { value })
    }

    fn is_whole(&self, exponent: i32, format: Format) -> bool {
        match format {
            Format::BinarySi => self.fraction.is_empty(),
            Format::DecimalExponent | Format::DecimalSi => i64::from(exponent) >= self.fraction.len() as i64,
        }
    }

    /// Whether Kubernetes keeps the text as it is: what it takes for canonical at first sight, even if it is not.
    fn is_kept(&self, exponent: i32, format: Format) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let digits = format!("{whole}{}", self.fraction);
        match format {
            Format::BinarySi => {
                let precise = 15 - whole.len() as i32 - exponent * 3 / 10 > 0;
                let odd = digits.parse::<i64>().is_ok_and(|value| value & 7 != 0);
                self.fraction.is_empty() && precise && odd
            }
            Format::DecimalExponent | Format::DecimalSi => {
                let scale = i64::from(exponent) - self.fraction.len() as i64;
                digits.len() <= 18
                    && scale >= -9
                    && scale % 3 == 0
                    && !digits.ends_with("000")
                    && !digits.starts_with('0')
            }
        }
    }
}

/// `value * 10^scale`, rounded away from zero, saturating.
fn scaled(mut value: i128, scale: i64) -> i128 {
    if scale >= 0 {
        for _ in 0..scale.min(60) {
            value = value.saturating_mul(10);
        }
        return value;
    }
    let steps = (-scale).min(60);
    let mut inexact = false;
    for _ in 0..steps {
        inexact |= value % 10 != 0;
        value /= 10;
    }
    value + i128::from(inexact)
}

fn interpret(suffix: &str) -> Option<(i128, i32, Format)> {
    let decimal = |exponent| Some((10, exponent, Format::DecimalSi));
    let binary = |exponent| Some((2, exponent, Format::BinarySi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i64 = exponent.parse().ok()?;
            Some((10, exponent.clamp(-1000, 1000) as i32, Format::DecimalExponent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_is_kubernetes() {
        for (text, canonical) in [
            ("0", "0"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("1e3", "1e3"),
            ("100000", "100k"),
            ("0.1m", "100u"),
            ("-1000m", "-1"),
            ("1.234", "1.234"),
            ("500Ki", "500Ki"),
            ("2048Ki", "2Mi"),
            ("0Mi", "0"),
            ("1Ei", "1Ei"),
            ("0.0000000001", "1n"),
            ("1000e-3", "1"),
            ("0.5Mi", "512Ki"),
            ("512Mi", "512Mi"),
            ("100m", "100m"),
            ("2", "2"),
            ("1.0", "1"),
            ("1.50", "1500m"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(canonical), "{text}");
        }
    }

    #[test]
    fn errors_are_kubernetes() {
        assert_eq!(Quantity::parse(""), Err(QuantityError::Format));
        assert_eq!(Quantity::parse("1Gx"), Err(QuantityError::Format));
        assert_eq!(Quantity::parse("1GG"), Err(QuantityError::Suffix));
        assert_eq!(Quantity::parse("abc"), Err(QuantityError::Format));
    }

    #[test]
    fn values_compare_whatever_their_suffix() {
        let quantity = |text| Quantity::parse(text).unwrap();
        assert!(quantity("1Gi") > quantity("1G"));
        assert_eq!(quantity("1000m"), quantity("1"));
        assert_eq!(quantity("50k").add(&quantity("20")).to_string(), "50020");
        assert_eq!(quantity("1500m").as_integer(), None);
    }
}
