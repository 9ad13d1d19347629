//! The methods of `time.Time` and `time.Duration` that a template can call.

use std::any::Any;
use std::rc::Rc;

use super::layout::{DAYS, MONTHS};
use super::{Duration, Time, Zone};
use crate::context::{Context, Failure};
use crate::function::Signature;
use crate::value::{Object, Type, Value};

/// A month or a day of the week: a number that prints as a name.
pub struct Named {
    type_name: &'static str,
    name: &'static str,
    pub number: i64,
}

impl Object for Named {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn text(&self) -> Option<String> {
        Some(self.name.to_owned())
    }

    fn method(&self, name: &str) -> Option<Signature> {
        (name == "String").then(|| Signature::new(&[]))
    }

    fn call(&self, _: &Context<'_>, _: &str, _: &[Value]) -> Result<Value, Failure> {
        Ok(Value::from(self.name))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub fn time_method(name: &str) -> Option<Signature> {
    const NONE: &[Type] = &[];
    let params: &'static [Type] = match name {
        "Unix" | "UnixMilli" | "UnixMicro" | "UnixNano" | "Year" | "Month" | "Day" | "Hour" | "Minute"
        | "Second" | "Nanosecond" | "Weekday" | "YearDay" | "UTC" | "Local" | "String" | "GoString"
        | "IsZero" => NONE,
        "Format" => &[Type::String],
        "Add" | "Round" | "Truncate" => &[Type::Duration],
        "AddDate" => &[Type::Int, Type::Int, Type::Int],
        "Sub" | "Before" | "After" | "Equal" | "Compare" => &[Type::Time],
        _ => return None,
    };
    Some(Signature::new(params))
}

pub fn call_time(ctx: &Context<'_>, time: &Time, name: &str, args: &[Value]) -> Result<Value, Failure> {
    let civil = time.civil();
    let other = |value: &Value| match value {
        Value::Time(other) => (**other).clone(),
        _ => Time::zero(),
    };
    let int = |value: i64| Ok(Value::Int(value));
    match (name, args) {
        ("Unix", _) => Ok(Value::Int64(time.at.as_nanosecond().div_euclid(1_000_000_000) as i64)),
        ("UnixMilli", _) => Ok(Value::Int64(time.at.as_nanosecond().div_euclid(1_000_000) as i64)),
        ("UnixMicro", _) => Ok(Value::Int64(time.at.as_nanosecond().div_euclid(1_000) as i64)),
        ("UnixNano", _) => Ok(Value::Int64(time.at.as_nanosecond() as i64)),
        ("Year", _) => int(i64::from(civil.year())),
        ("Month", _) => {
            let number = i64::from(civil.month());
            let name = MONTHS[number as usize - 1];
            Ok(Value::object(Named { type_name: "time.Month", name, number }))
        }
        ("Weekday", _) => {
            let number = i64::from(civil.weekday().to_sunday_zero_offset());
            let name = DAYS[number as usize];
            Ok(Value::object(Named { type_name: "time.Weekday", name, number }))
        }
        ("Day", _) => int(i64::from(civil.day())),
        ("Hour", _) => int(i64::from(civil.hour())),
        ("Minute", _) => int(i64::from(civil.minute())),
        ("Second", _) => int(i64::from(civil.second())),
        ("Nanosecond", _) => int(i64::from(civil.subsec_nanosecond())),
        ("YearDay", _) => int(i64::from(civil.date().day_of_year())),
        ("UTC", _) => Ok(shown(time.in_zone(Zone::Utc))),
        ("Local", _) => Ok(shown(time.in_zone(Zone::Local(ctx.host().local_zone())))),
        ("String", _) => Ok(Value::from(time.string())),
        ("GoString", _) => Ok(Value::from(time.go_string())),
        ("IsZero", _) => Ok(Value::Bool(time.at == Time::zero().at)),
        ("Format", [Value::String(layout)]) => Ok(Value::String(time.format_bytes(layout.as_bytes()).into())),
        ("Add", [Value::Duration(duration)]) => Ok(shown(time.add(*duration))),
        ("Round", [Value::Duration(unit)]) => Ok(shown(to_multiple(time, *unit, true))),
        ("Truncate", [Value::Duration(unit)]) => Ok(shown(to_multiple(time, *unit, false))),
        ("AddDate", [Value::Int(years), Value::Int(months), Value::Int(days)]) => {
            add_date(time, *years, *months, *days)
        }
        ("Sub", [earlier]) => Ok(Value::Duration(time.since(&other(earlier)))),
        ("Before", [value]) => Ok(Value::Bool(time.at < other(value).at)),
        ("After", [value]) => Ok(Value::Bool(time.at > other(value).at)),
        ("Equal", [value]) => Ok(Value::Bool(time.at == other(value).at)),
        ("Compare", [value]) => int(time.at.cmp(&other(value).at) as i64),
        _ => Err(Failure::new(format!("no method {name}"))),
    }
}

fn shown(time: Time) -> Value {
    Value::Time(Rc::new(time))
}

/// Multiples are counted from the zero time.
fn to_multiple(time: &Time, unit: Duration, round: bool) -> Time {
    if unit.0 <= 0 {
        return time.clone();
    }
    let since = time.at.as_nanosecond() - Time::zero().at.as_nanosecond();
    let rest = since.rem_euclid(i128::from(unit.0)) as i64;
    match round && rest.saturating_mul(2) >= unit.0 {
        true => time.add(Duration(unit.0 - rest)),
        false => time.add(Duration(-rest)),
    }
}

/// Go adds the numbers and lets what is too large carry over: January 31 plus a month is March 3.
fn add_date(time: &Time, years: i64, months: i64, days: i64) -> Result<Value, Failure> {
    let out_of_range = || Failure::new("time out of range");
    let civil = time.civil();
    let months = i64::from(civil.year())
        .checked_add(years)
        .and_then(|years| years.checked_mul(12))
        .and_then(|total| total.checked_add(i64::from(civil.month()) - 1))
        .and_then(|total| total.checked_add(months))
        .ok_or_else(out_of_range)?;
    let year = i16::try_from(months.div_euclid(12)).map_err(|_| out_of_range())?;
    let first = jiff::civil::date(1, 1, 1)
        .with()
        .year(year)
        .month(months.rem_euclid(12) as i8 + 1)
        .build()
        .map_err(|_| out_of_range())?;
    let days = i64::from(civil.day()) - 1 + days;
    let span = jiff::Span::new().try_days(days).map_err(|_| out_of_range())?;
    let moved = first.checked_add(span).map_err(|_| out_of_range())?.to_datetime(civil.time());
    let at = match &time.zone {
        Zone::Local(zone) | Zone::Named(_, zone) => zone.to_ambiguous_timestamp(moved).compatible().ok(),
        fixed => {
            let offset = fixed.at(time.at).1;
            jiff::tz::Offset::from_seconds(offset).ok().and_then(|offset| offset.to_timestamp(moved).ok())
        }
    };
    Ok(shown(Time { at: at.ok_or_else(out_of_range)?, zone: time.zone.clone() }))
}

pub fn duration_method(name: &str) -> Option<Signature> {
    let params: &'static [Type] = match name {
        "Hours" | "Minutes" | "Seconds" | "Milliseconds" | "Microseconds" | "Nanoseconds" | "String"
        | "Abs" => &[],
        "Round" | "Truncate" => &[Type::Duration],
        _ => return None,
    };
    Some(Signature::new(params))
}

pub fn call_duration(duration: Duration, name: &str, args: &[Value]) -> Result<Value, Failure> {
    Ok(match (name, args) {
        ("Hours", _) => Value::Float64(duration.hours()),
        ("Minutes", _) => Value::Float64(duration.minutes()),
        ("Seconds", _) => Value::Float64(duration.seconds()),
        ("Milliseconds", _) => Value::Int64(duration.0 / 1_000_000),
        ("Microseconds", _) => Value::Int64(duration.0 / 1_000),
        ("Nanoseconds", _) => Value::Int64(duration.0),
        ("String", _) => Value::from(duration.to_string()),
        ("Abs", _) => Value::Duration(Duration(duration.0.saturating_abs())),
        ("Round", [Value::Duration(unit)]) => Value::Duration(duration.round(*unit)),
        ("Truncate", [Value::Duration(unit)]) => Value::Duration(duration.truncate(*unit)),
        _ => return Err(Failure::new(format!("no method {name}"))),
    })
}
