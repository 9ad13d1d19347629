//! Go's time layouts: which part of `Mon Jan 2 15:04:05 MST 2006` stands where.

pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// One element of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    LongMonth,
    Month,
    NumMonth,
    ZeroMonth,
    LongWeekDay,
    WeekDay,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    LongYear,
    Year,
    UpperPm,
    LowerPm,
    ZoneName,
    Offset(OffsetStyle),
    /// Digits after the point, the point, and whether trailing zeros are left out.
    Fraction {
        digits: usize,
        point: u8,
        trims: bool,
    },
}

/// How an offset from UTC is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetStyle {
    /// `Z` stands for no offset.
    pub zulu: bool,
    pub colon: bool,
    pub minutes: bool,
    pub seconds: bool,
}

/// The text before the first element, the element and its text, and what follows.
type Split<'l> = (&'l [u8], Option<(Element, &'l [u8])>, &'l [u8]);

/// Splits a layout at its first element.
pub fn next(layout: &[u8]) -> Split<'_> {
    for at in 0..layout.len() {
        let rest = &layout[at..];
        if let Some((element, skip, length)) = element(rest) {
            let start = at + skip;
            let end = at + length;
            return (&layout[..start], Some((element, &layout[start..end])), &layout[end..]);
        }
    }
    (layout, None, b"")
}

/// The element at the start of the text: how many bytes still belong to the prefix, and where it ends.
fn element(text: &[u8]) -> Option<(Element, usize, usize)> {
    use Element::*;
    let lower_at = |at: usize| text.get(at).is_some_and(u8::is_ascii_lowercase);
    let found = match text[0] {
        b'J' if text.starts_with(b"January") => (LongMonth, 0, 7),
        b'J' if text.starts_with(b"Jan") && !lower_at(3) => (Month, 0, 3),
        b'M' if text.starts_with(b"Monday") => (LongWeekDay, 0, 6),
        b'M' if text.starts_with(b"Mon") && !lower_at(3) => (WeekDay, 0, 3),
        b'M' if text.starts_with(b"MST") => (ZoneName, 0, 3),
        b'0' => match text.get(1)? {
            b'1' => (ZeroMonth, 0, 2),
            b'2' => (ZeroDay, 0, 2),
            b'3' => (ZeroHour12, 0, 2),
            b'4' => (ZeroMinute, 0, 2),
            b'5' => (ZeroSecond, 0, 2),
            b'6' => (Year, 0, 2),
            b'0' if text.get(2) == Some(&b'2') => (ZeroYearDay, 0, 3),
            _ => return None,
        },
        b'1' if text.get(1) == Some(&b'5') => (Hour, 0, 2),
        b'1' => (NumMonth, 0, 1),
        b'2' if text.starts_with(b"2006") => (LongYear, 0, 4),
        b'2' => (Day, 0, 1),
        b'_' if text.starts_with(b"_2006") => (LongYear, 1, 5),
        b'_' if text.starts_with(b"_2") => (UnderDay, 0, 2),
        b'_' if text.starts_with(b"__2") => (UnderYearDay, 0, 3),
        b'3' => (Hour12, 0, 1),
        b'4' => (Minute, 0, 1),
        b'5' => (Second, 0, 1),
        b'P' if text.starts_with(b"PM") => (UpperPm, 0, 2),
        b'p' if text.starts_with(b"pm") => (LowerPm, 0, 2),
        b'-' | b'Z' => {
            let (style, length) = offset(text)?;
            (Offset(style), 0, length)
        }
        b'.' | b',' => {
            let digit = *text.get(1).filter(|digit| matches!(digit, b'0' | b'9'))?;
            let digits = text[1..].iter().take_while(|&&byte| byte == digit).count();
            if text.get(1 + digits).is_some_and(u8::is_ascii_digit) {
                return None;
            }
            (Fraction { digits, point: text[0], trims: digit == b'9' }, 0, 1 + digits)
        }
        _ => return None,
    };
    Some(found)
}

fn offset(text: &[u8]) -> Option<(OffsetStyle, usize)> {
    let zulu = text[0] == b'Z';
    let style = |colon, minutes, seconds| OffsetStyle { zulu, colon, minutes, seconds };
    let rest = &text[1..];
    Some(if rest.starts_with(b"070000") {
        (style(false, true, true), 7)
    } else if rest.starts_with(b"07:00:00") {
        (style(true, true, true), 9)
    } else if rest.starts_with(b"0700") {
        (style(false, true, false), 5)
    } else if rest.starts_with(b"07:00") {
        (style(true, true, false), 6)
    } else if rest.starts_with(b"07") {
        (style(false, false, false), 3)
    } else {
        return None;
    })
}
