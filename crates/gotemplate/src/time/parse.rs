//! Times from text.

use jiff::civil::{Date, DateTime, Time as ClockTime};
use jiff::tz::{Offset, TimeZone};

use super::layout::{self, DAYS, Element, MONTHS, OffsetStyle};
use super::{Time, Zone};

/// Why a text is no time, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// What has been read so far.
#[derive(Default)]
struct Fields {
    year: i32,
    month: Option<i32>,
    day: Option<i32>,
    year_day: Option<i32>,
    hour: i32,
    minute: i32,
    second: i32,
    nanosecond: i32,
    is_pm: bool,
    is_am: bool,
    utc: bool,
    offset: Option<i32>,
    zone_name: Vec<u8>,
}

enum Problem {
    Bad,
    OutOfRange(&'static str),
}

type Step<'v, T> = Result<(T, &'v [u8]), Problem>;

impl Time {
    /// Go's `time.ParseInLocation`: `local` is where times without a zone are.
    pub fn parse(layout: &[u8], value: &[u8], local: &Zone) -> Result<Time, ParseError> {
        let (whole_layout, whole_value) = (layout, value);
        let (mut layout, mut value) = (layout, value);
        let mut fields = Fields::default();
        loop {
            let (prefix, element, rest) = layout::next(layout);
            value = match skip(value, prefix) {
                Ok(value) => value,
                Err(value) => return Err(cannot_parse(whole_layout, whole_value, prefix, value)),
            };
            let Some((element, text)) = element else {
                if !value.is_empty() {
                    return Err(complaint(whole_value, &format!(": extra text: {}", quote(value))));
                }
                break;
            };
            layout = rest;
            match fields.read(element, value, layout) {
                Ok(((), after)) => value = after,
                Err(Problem::Bad) => return Err(cannot_parse(whole_layout, whole_value, text, value)),
                Err(Problem::OutOfRange(what)) => {
                    return Err(complaint(whole_value, &format!(": {what} out of range")));
                }
            }
        }
        fields.finish(whole_value, local)
    }
}

fn cannot_parse(layout: &[u8], value: &[u8], element: &[u8], at: &[u8]) -> ParseError {
    ParseError(format!(
        "parsing time {} as {}: cannot parse {} as {}",
        quote(value),
        quote(layout),
        quote(at),
        quote(element)
    ))
}

fn complaint(value: &[u8], message: &str) -> ParseError {
    ParseError(format!("parsing time {}{message}", quote(value)))
}

/// The time package quotes for itself: everything beyond ASCII as bytes.
fn quote(text: &[u8]) -> String {
    let mut out = String::from('"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            b' '..=0x7f => out.push(byte as char),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push('"');
    out
}

/// Skips a literal prefix, in which a run of spaces matches any number of spaces.
fn skip<'v>(mut value: &'v [u8], mut prefix: &[u8]) -> Result<&'v [u8], &'v [u8]> {
    while let Some(&first) = prefix.first() {
        if first == b' ' {
            if value.first().is_some_and(|&byte| byte != b' ') {
                return Err(value);
            }
            prefix = cut_space(prefix);
            value = cut_space(value);
            continue;
        }
        if value.first() != Some(&first) {
            return Err(value);
        }
        prefix = &prefix[1..];
        value = &value[1..];
    }
    Ok(value)
}

fn cut_space(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&byte| byte == b' ').count()..]
}

fn digit(text: &[u8], at: usize) -> Option<i32> {
    text.get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| i32::from(byte - b'0'))
}

/// One or two digits; two if `fixed`.
fn number(text: &[u8], fixed: bool) -> Step<'_, i32> {
    let first = digit(text, 0).ok_or(Problem::Bad)?;
    match digit(text, 1) {
        Some(second) => Ok((first * 10 + second, &text[2..])),
        None if fixed => Err(Problem::Bad),
        None => Ok((first, &text[1..])),
    }
}

fn in_range(value: i32, range: std::ops::Range<i32>, what: &'static str) -> Result<i32, Problem> {
    if range.contains(&value) { Ok(value) } else { Err(Problem::OutOfRange(what)) }
}

/// A name of the table, in any case; its position.
fn name<'v>(table: &[&str], length: Option<usize>, text: &'v [u8]) -> Step<'v, i32> {
    for (at, name) in table.iter().enumerate() {
        let name = &name.as_bytes()[..length.unwrap_or(name.len())];
        if text.len() >= name.len() && text[..name.len()].eq_ignore_ascii_case(name) {
            return Ok((at as i32, &text[name.len()..]));
        }
    }
    Err(Problem::Bad)
}

/// A point and digits.
fn nanoseconds(text: &[u8], length: usize) -> Result<i32, Problem> {
    let text = text.get(..length).ok_or(Problem::Bad)?;
    if !matches!(text.first(), Some(b'.' | b',')) {
        return Err(Problem::Bad);
    }
    let digits = &text[1..text.len().min(10)];
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Problem::Bad);
    }
    let value = digits.iter().fold(0i32, |value, byte| value * 10 + i32::from(byte - b'0'));
    Ok(value * 10i32.pow(9 - digits.len() as u32))
}

impl Fields {
    fn read<'v>(&mut self, element: Element, value: &'v [u8], layout: &[u8]) -> Step<'v, ()> {
        let mut rest = value;
        let keep = |(found, after): (i32, &'v [u8]), rest: &mut &'v [u8]| {
            *rest = after;
            found
        };
        match element {
            Element::Year => {
                let text = value.get(..2).ok_or(Problem::Bad)?;
                let (Some(tens), Some(ones)) = (digit(text, 0), digit(text, 1)) else {
                    return Err(Problem::Bad);
                };
                let year = tens * 10 + ones;
                self.year = if year >= 69 { year + 1900 } else { year + 2000 };
                rest = &value[2..];
            }
            Element::LongYear => {
                let text = value.get(..4).ok_or(Problem::Bad)?;
                if !text.iter().all(u8::is_ascii_digit) {
                    return Err(Problem::Bad);
                }
                self.year = text.iter().fold(0, |year, byte| year * 10 + i32::from(byte - b'0'));
                rest = &value[4..];
            }
            Element::Month => self.month = Some(keep(name(&MONTHS, Some(3), value)?, &mut rest) + 1),
            Element::LongMonth => self.month = Some(keep(name(&MONTHS, None, value)?, &mut rest) + 1),
            Element::NumMonth | Element::ZeroMonth => {
                let month = keep(number(value, element == Element::ZeroMonth)?, &mut rest);
                self.month = Some(in_range(month, 1..13, "month")?);
            }
            Element::WeekDay => {
                keep(name(&DAYS, Some(3), value)?, &mut rest);
            }
            Element::LongWeekDay => {
                keep(name(&DAYS, None, value)?, &mut rest);
            }
            Element::Day | Element::UnderDay | Element::ZeroDay => {
                let value = match value.strip_prefix(b" ") {
                    Some(value) if element == Element::UnderDay => value,
                    _ => value,
                };
                self.day = Some(keep(number(value, element == Element::ZeroDay)?, &mut rest));
            }
            Element::UnderYearDay | Element::ZeroYearDay => {
                let mut value = value;
                for _ in 0..2 {
                    if element == Element::UnderYearDay {
                        value = value.strip_prefix(b" ").unwrap_or(value);
                    }
                }
                let count = (0..3).take_while(|&at| digit(value, at).is_some()).count();
                if count == 0 || element == Element::ZeroYearDay && count != 3 {
                    return Err(Problem::Bad);
                }
                self.year_day =
                    Some((0..count).filter_map(|at| digit(value, at)).fold(0, |day, d| day * 10 + d));
                rest = &value[count..];
            }
            Element::Hour => self.hour = in_range(keep(number(value, false)?, &mut rest), 0..24, "hour")?,
            Element::Hour12 | Element::ZeroHour12 => {
                let hour = keep(number(value, element == Element::ZeroHour12)?, &mut rest);
                self.hour = in_range(hour, 0..13, "hour")?;
            }
            Element::Minute | Element::ZeroMinute => {
                let minute = keep(number(value, element == Element::ZeroMinute)?, &mut rest);
                self.minute = in_range(minute, 0..60, "minute")?;
            }
            Element::Second | Element::ZeroSecond => {
                let second = keep(number(value, element == Element::ZeroSecond)?, &mut rest);
                self.second = in_range(second, 0..60, "second")?;
                rest = self.loose_fraction(rest, layout)?;
            }
            Element::UpperPm | Element::LowerPm => {
                let text = value.get(..2).ok_or(Problem::Bad)?;
                let upper = element == Element::UpperPm;
                match (text, upper) {
                    (b"PM", true) | (b"pm", false) => self.is_pm = true,
                    (b"AM", true) | (b"am", false) => self.is_am = true,
                    _ => return Err(Problem::Bad),
                }
                rest = &value[2..];
            }
            Element::Offset(style) => rest = self.offset(style, value)?,
            Element::ZoneName => {
                if let Some(after) = value.strip_prefix(b"UTC") {
                    self.utc = true;
                    return Ok(((), after));
                }
                let length = zone_name(value).ok_or(Problem::Bad)?;
                self.zone_name = value[..length].to_vec();
                rest = &value[length..];
            }
            Element::Fraction { digits, trims: false, .. } => {
                self.nanosecond = nanoseconds(value, 1 + digits)?;
                rest = &value[1 + digits..];
            }
            Element::Fraction { trims: true, .. } => {
                if value.len() >= 2 && matches!(value[0], b'.' | b',') && value[1].is_ascii_digit() {
                    let digits = value[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    self.nanosecond = nanoseconds(value, 1 + digits)?;
                    rest = &value[1 + digits..];
                }
            }
        }
        Ok(((), rest))
    }

    /// A fraction after the seconds is accepted even if the layout has none.
    fn loose_fraction<'v>(&mut self, value: &'v [u8], layout: &[u8]) -> Result<&'v [u8], Problem> {
        let has_fraction = value.len() >= 2 && matches!(value[0], b'.' | b',') && value[1].is_ascii_digit();
        if !has_fraction || matches!(layout::next(layout).1, Some((Element::Fraction { .. }, _))) {
            return Ok(value);
        }
        let length = 1 + value[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.nanosecond = nanoseconds(value, length)?;
        Ok(&value[length..])
    }

    fn offset<'v>(&mut self, style: OffsetStyle, value: &'v [u8]) -> Result<&'v [u8], Problem> {
        if style.zulu && value.first() == Some(&b'Z') {
            self.utc = true;
            return Ok(&value[1..]);
        }
        let parts = 1 + usize::from(style.minutes) + usize::from(style.seconds);
        let stride = if style.colon { 3 } else { 2 };
        let length = 1 + 2 + (parts - 1) * stride;
        let text = value.get(..length).ok_or(Problem::Bad)?;
        let mut numbers = [0; 3];
        for (at, number) in numbers.iter_mut().enumerate().take(parts) {
            let start = 1 + at * stride;
            if at > 0 && style.colon && text[start - 1] != b':' {
                return Err(Problem::Bad);
            }
            let (Some(tens), Some(ones)) = (digit(text, start), digit(text, start + 1)) else {
                return Err(Problem::Bad);
            };
            *number = tens * 10 + ones;
        }
        let [hours, minutes, seconds] = numbers;
        in_range(hours, 0..25, "time zone offset hour")?;
        in_range(minutes, 0..61, "time zone offset minute")?;
        in_range(seconds, 0..61, "time zone offset second")?;
        let offset = (hours * 60 + minutes) * 60 + seconds;
        self.offset = Some(match text[0] {
            b'+' => offset,
            b'-' => -offset,
            _ => return Err(Problem::Bad),
        });
        Ok(&value[length..])
    }

    fn finish(mut self, value: &[u8], local: &Zone) -> Result<Time, ParseError> {
        if self.is_pm && self.hour < 12 {
            self.hour += 12;
        } else if self.is_am && self.hour == 12 {
            self.hour = 0;
        }
        let date = self.date(value)?;
        let clock = ClockTime::new(self.hour as i8, self.minute as i8, self.second as i8, self.nanosecond)
            .map_err(|_| complaint(value, ": hour out of range"))?;
        let civil = date.to_datetime(clock);
        let out_of_range = || complaint(value, ": year out of range");
        if self.utc {
            return Ok(Time::utc(in_offset(civil, 0).ok_or_else(out_of_range)?));
        }
        if let Some(offset) = self.offset {
            let at = in_offset(civil, offset).ok_or_else(out_of_range)?;
            let (name, local_offset) = local.at(at);
            let zone_name = String::from_utf8_lossy(&self.zone_name).into_owned();
            if local_offset == offset && (zone_name.is_empty() || name == zone_name) {
                return Ok(Time { at, zone: local.clone() });
            }
            return Ok(Time { at, zone: Zone::Fixed(zone_name, offset) });
        }
        if !self.zone_name.is_empty() {
            return self.in_named(civil, local).ok_or_else(out_of_range);
        }
        let at = match local {
            Zone::Utc => in_offset(civil, 0),
            Zone::Fixed(_, offset) => in_offset(civil, *offset),
            Zone::Local(zone) | Zone::Named(_, zone) => in_zone(civil, zone),
        };
        Ok(Time { at: at.ok_or_else(out_of_range)?, zone: local.clone() })
    }

    /// A zone abbreviation means what it means in the local zone, and otherwise nothing but a name.
    fn in_named(&self, civil: DateTime, local: &Zone) -> Option<Time> {
        let name = String::from_utf8_lossy(&self.zone_name).into_owned();
        if let Zone::Local(zone) | Zone::Named(_, zone) = local {
            let at = in_zone(civil, zone)?;
            if local.at(at).0 == name {
                return Some(Time { at, zone: local.clone() });
            }
        }
        let hours: i32 = match name.strip_prefix("GMT") {
            Some(hours) if !hours.is_empty() => hours.parse().unwrap_or(0),
            _ => 0,
        };
        Some(Time { at: in_offset(civil, 0)?, zone: Zone::Fixed(name, hours * 3600) })
    }

    fn date(&self, value: &[u8]) -> Result<Date, ParseError> {
        let year = self.year as i16;
        if let Some(year_day) = self.year_day {
            let first = Date::new(year, 1, 1).map_err(|_| complaint(value, ": year out of range"))?;
            let date = first
                .with()
                .day_of_year(year_day as i16)
                .build()
                .ok()
                .filter(|_| year_day >= 1)
                .ok_or_else(|| complaint(value, ": day-of-year out of range"))?;
            if self.month.is_some_and(|month| month != i32::from(date.month())) {
                return Err(complaint(value, ": day-of-year does not match month"));
            }
            if self.day.is_some_and(|day| day != i32::from(date.day())) {
                return Err(complaint(value, ": day-of-year does not match day"));
            }
            return Ok(date);
        }
        Date::new(year, self.month.unwrap_or(1) as i8, self.day.unwrap_or(1) as i8)
            .map_err(|_| complaint(value, ": day out of range"))
    }
}

fn in_offset(civil: DateTime, offset: i32) -> Option<jiff::Timestamp> {
    Offset::from_seconds(offset).ok()?.to_timestamp(civil).ok()
}

fn in_zone(civil: DateTime, zone: &TimeZone) -> Option<jiff::Timestamp> {
    zone.to_ambiguous_timestamp(civil).compatible().ok()
}

/// How many bytes of the text are a zone abbreviation.
fn zone_name(text: &[u8]) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with(b"ChST") || text.starts_with(b"MeST") {
        return Some(4);
    }
    if text.starts_with(b"GMT") {
        return Some(3 + signed_offset(&text[3..]));
    }
    if matches!(text[0], b'+' | b'-') {
        return Some(signed_offset(text)).filter(|&length| length > 0);
    }
    let upper = text.iter().take(6).take_while(|byte| byte.is_ascii_uppercase()).count();
    match upper {
        5 if text[4] == b'T' => Some(5),
        4 if text[3] == b'T' || text.starts_with(b"WITA") => Some(4),
        3 => Some(3),
        _ => None,
    }
}

/// The length of a sign and an hour of at most 23.
fn signed_offset(text: &[u8]) -> usize {
    if !matches!(text.first(), Some(b'+' | b'-')) {
        return 0;
    }
    let digits = text[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let hours = std::str::from_utf8(&text[1..1 + digits]).ok().and_then(|digits| digits.parse::<u64>().ok());
    match hours {
        Some(hours) if hours <= 23 => 1 + digits,
        _ => 0,
    }
}
