//! Timestamps as go-yaml recognises them: four layouts of Go's `time.Parse`, with its leniency.

use std::fmt;

/// A moment as it was written, with its offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    pub year: u16,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub nanosecond: u32,
    pub offset_minutes: i16,
}

impl Timestamp {
    /// Reads `2001-12-14t21:59:43.10-05:00`, `2001-12-14 21:59:43.1` or `2001-12-14`; single digits are fine.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < 5 || !bytes[..4].iter().all(u8::is_ascii_digit) || bytes[4] != b'-' {
            return None;
        }
        let year = text[..4].parse().ok()?;
        let mut rest = Rest(&bytes[5..]);
        let month = rest.number()?;
        rest.literal(b'-')?;
        let day = rest.number()?;
        if !(1..=12).contains(&month) || day < 1 || day > days_in(month, year) {
            return None;
        }
        let date = Self { year, month, day, hour: 0, minute: 0, second: 0, nanosecond: 0, offset_minutes: 0 };
        match rest.0.first() {
            None => Some(date),
            Some(b'T' | b't') => {
                rest.0 = &rest.0[1..];
                date.with_time(rest, true)
            }
            Some(b' ') => {
                // One space of the layout stands for any number of them.
                let spaces = rest.0.iter().take_while(|byte| **byte == b' ').count();
                rest.0 = &rest.0[spaces..];
                date.with_time(rest, false)
            }
            Some(_) => None,
        }
    }

    fn with_time(mut self, mut rest: Rest<'_>, zoned: bool) -> Option<Self> {
        self.hour = rest.number()?;
        rest.literal(b':')?;
        self.minute = rest.number()?;
        rest.literal(b':')?;
        self.second = rest.number()?;
        if self.hour > 23 || self.minute > 59 || self.second > 59 {
            return None;
        }
        self.nanosecond = rest.fraction();
        if zoned {
            self.offset_minutes = rest.offset()?;
        }
        rest.0.is_empty().then_some(self)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 with as many digits of the fraction as are needed (Go's `RFC3339Nano`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second, .. } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.nanosecond > 0 {
            let digits = format!("{:09}", self.nanosecond);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset_minutes == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset_minutes < 0 { '-' } else { '+' };
        let minutes = self.offset_minutes.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// One or two digits.
    fn number(&mut self) -> Option<u8> {
        let digits = self.0.iter().take(2).take_while(|byte| byte.is_ascii_digit()).count();
        let value = self.0[..digits].iter().fold(0, |value, byte| value * 10 + (byte - b'0'));
        self.0 = &self.0[digits..];
        (digits > 0).then_some(value)
    }

    fn literal(&mut self, expected: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        (*first == expected).then_some(())
    }

    /// The digits after `.` or `,` if there are any; those beyond the ninth do not count.
    fn fraction(&mut self) -> u32 {
        let [b'.' | b',', digits @ ..] = self.0 else { return 0 };
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return 0;
        }
        self.0 = &digits[count..];
        let value = digits[..count.min(9)].iter().fold(0, |value, byte| value * 10 + u32::from(byte - b'0'));
        value * 10u32.pow(9 - u32::try_from(count.min(9)).unwrap_or(9))
    }

    /// `Z`, or hours and minutes of exactly two digits.
    fn offset(&mut self) -> Option<i16> {
        match self.0 {
            [b'Z', rest @ ..] => {
                self.0 = rest;
                Some(0)
            }
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, rest @ ..]
                if [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()) =>
            {
                let two = |a: &u8, b: &u8| i16::from(a - b'0') * 10 + i16::from(b - b'0');
                let (hours, minutes) = (two(h1, h2), two(m1, m2));
                self.0 = rest;
                // Go lets 24 hours and 60 minutes pass, "as some people do write" them.
                (hours <= 24 && minutes <= 60)
                    .then_some((hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 })
            }
            _ => None,
        }
    }
}

fn days_in(month: u8, year: u16) -> u8 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_of_go_yaml_are_timestamps() {
        let shown = |text: &str| Timestamp::parse(text).map(|time| time.to_string());
        assert_eq!(shown("2001-1-2").as_deref(), Some("2001-01-02T00:00:00Z"));
        assert_eq!(shown("2001-12-14t21:59:43.10-05:00").as_deref(), Some("2001-12-14T21:59:43.1-05:00"));
        assert_eq!(shown("2001-12-14   1:2:3").as_deref(), Some("2001-12-14T01:02:03Z"));
        assert_eq!(shown("2001-12-14 21:59:43.10 -5"), None);
        assert_eq!(shown("2001-02-29"), None);
        assert_eq!(shown("2001-13-01"), None);
        assert_eq!(shown("01-01-2001"), None);
    }
}
