//! Times as text.

use super::Time;
use super::layout::{self, DAYS, Element, MONTHS, OffsetStyle};

impl Time {
    /// Go's `Time.Format`.
    pub fn format(&self, layout: &str) -> String {
        String::from_utf8_lossy(&self.format_bytes(layout.as_bytes())).into_owned()
    }

    pub(crate) fn format_bytes(&self, mut layout: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let (name, offset) = self.zone.at(self.at);
        let civil = self.civil();
        let hour12 = match civil.hour() % 12 {
            0 => 12,
            hour => hour,
        };
        let month = MONTHS[civil.month() as usize - 1];
        let weekday = DAYS[civil.weekday().to_sunday_zero_offset() as usize];
        let mut out = Vec::with_capacity(layout.len() + 10);
        loop {
            let (prefix, element, rest) = layout::next(layout);
            out.extend_from_slice(prefix);
            let Some((element, _)) = element else { return out };
            layout = rest;
            let written = match element {
                Element::LongMonth => write!(out, "{month}"),
                Element::Month => write!(out, "{}", &month[..3]),
                Element::NumMonth => write!(out, "{}", civil.month()),
                Element::ZeroMonth => write!(out, "{:02}", civil.month()),
                Element::LongWeekDay => write!(out, "{weekday}"),
                Element::WeekDay => write!(out, "{}", &weekday[..3]),
                Element::Day => write!(out, "{}", civil.day()),
                Element::UnderDay => write!(out, "{:2}", civil.day()),
                Element::ZeroDay => write!(out, "{:02}", civil.day()),
                Element::UnderYearDay => write!(out, "{:3}", civil.date().day_of_year()),
                Element::ZeroYearDay => write!(out, "{:03}", civil.date().day_of_year()),
                Element::Hour => write!(out, "{:02}", civil.hour()),
                Element::Hour12 => write!(out, "{hour12}"),
                Element::ZeroHour12 => write!(out, "{hour12:02}"),
                Element::Minute => write!(out, "{}", civil.minute()),
                Element::ZeroMinute => write!(out, "{:02}", civil.minute()),
                Element::Second => write!(out, "{}", civil.second()),
                Element::ZeroSecond => write!(out, "{:02}", civil.second()),
                Element::LongYear if civil.year() < 0 => write!(out, "-{:04}", -civil.year()),
                Element::LongYear => write!(out, "{:04}", civil.year()),
                Element::Year => write!(out, "{:02}", civil.year().unsigned_abs() % 100),
                Element::UpperPm => write!(out, "{}", if civil.hour() >= 12 { "PM" } else { "AM" }),
                Element::LowerPm => write!(out, "{}", if civil.hour() >= 12 { "pm" } else { "am" }),
                Element::ZoneName if !name.is_empty() => write!(out, "{name}"),
                Element::ZoneName => {
                    let style = OffsetStyle { zulu: false, colon: false, minutes: true, seconds: false };
                    write!(out, "{}", offset_text(offset, style))
                }
                Element::Offset(style) => write!(out, "{}", offset_text(offset, style)),
                Element::Fraction { digits, point, trims } => {
                    push_fraction(&mut out, civil.subsec_nanosecond(), digits, point, trims);
                    Ok(())
                }
            };
            written.expect("writing to memory");
        }
    }
}

fn offset_text(offset: i32, style: OffsetStyle) -> String {
    if style.zulu && offset == 0 {
        return "Z".to_owned();
    }
    let minutes = offset / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    let colon = if style.colon { ":" } else { "" };
    let minutes = minutes.abs();
    let mut text = format!("{sign}{:02}", minutes / 60);
    if style.minutes {
        text.push_str(&format!("{colon}{:02}", minutes % 60));
    }
    if style.seconds {
        text.push_str(&format!("{colon}{:02}", offset.abs() % 60));
    }
    text
}

fn push_fraction(out: &mut Vec<u8>, nanoseconds: i32, digits: usize, point: u8, trims: bool) {
    if trims && nanoseconds == 0 {
        return;
    }
    let text = format!("{nanoseconds:09}");
    let mut text = &text[..digits.min(9)];
    if trims {
        text = text.trim_end_matches('0');
        if text.is_empty() {
            return;
        }
    }
    out.push(point);
    out.extend_from_slice(text.as_bytes());
}
