//! Dates.

use std::rc::Rc;

use super::{Answer, string, text_arg};
use crate::context::{Context, Failure};
use crate::function::Function;
use crate::strconv;
use crate::time::{Duration, Time, Zone};
use crate::value::{Type, Value};

const ANY: &[Type] = &[Type::Any];
const S: Type = Type::String;

pub const FUNCTIONS: &[Function] = &[
    Function::new("now", &[], |ctx, _| Ok(shown(now(ctx)))),
    Function::new("ago", ANY, ago),
    Function::new("date", &[S, Type::Any], |ctx, args| formatted(ctx, text_arg(args, 0), &args[1], b"Local")),
    Function::new("dateInZone", &[S, Type::Any, S], |ctx, args| {
        formatted(ctx, text_arg(args, 0), &args[1], text_arg(args, 2))
    }),
    Function::new("date_in_zone", &[S, Type::Any, S], |ctx, args| {
        formatted(ctx, text_arg(args, 0), &args[1], text_arg(args, 2))
    }),
    Function::new("htmlDate", ANY, |ctx, args| formatted(ctx, b"2006-01-02", &args[0], b"Local")),
    Function::new("htmlDateInZone", &[Type::Any, S], |ctx, args| {
        formatted(ctx, b"2006-01-02", &args[0], text_arg(args, 1))
    }),
    Function::new("dateModify", &[S, Type::Time], modify),
    Function::new("date_modify", &[S, Type::Time], modify),
    Function::new("mustDateModify", &[S, Type::Time], must_modify),
    Function::new("must_date_modify", &[S, Type::Time], must_modify),
    Function::new("toDate", &[S, S], |ctx, args| {
        Ok(shown(parse(ctx, args).unwrap_or_else(|_| Time::zero())))
    }),
    Function::new("mustToDate", &[S, S], |ctx, args| {
        parse(ctx, args).map(shown).map_err(|error| Failure::new(error.to_string()))
    }),
    Function::new("unixEpoch", &[Type::Time], |_, args| match &args[0] {
        Value::Time(time) => string(time.at.as_nanosecond().div_euclid(1_000_000_000).to_string()),
        _ => string("0"),
    }),
    Function::new("duration", ANY, |_, args| {
        let seconds = match &args[0] {
            Value::String(text) => seconds(text.as_bytes()),
            Value::Int64(seconds) => *seconds,
            _ => 0,
        };
        string(Duration(seconds.wrapping_mul(1_000_000_000)).to_string())
    }),
    Function::new("durationRound", ANY, duration_round),
];

fn shown(time: Time) -> Value {
    Value::Time(Rc::new(time))
}

fn local(ctx: &Context<'_>) -> Zone {
    Zone::Local(ctx.host().local_zone())
}

fn now(ctx: &Context<'_>) -> Time {
    Time { at: ctx.host().now(), zone: local(ctx) }
}

/// `strconv.ParseInt`, whose error sprig drops; out of range it keeps the nearest number.
fn seconds(text: &[u8]) -> i64 {
    match strconv::parse_int(text, 10) {
        Ok(seconds) => seconds,
        Err(strconv::NumberError::Range) if text.starts_with(b"-") => i64::MIN,
        Err(strconv::NumberError::Range) => i64::MAX,
        Err(strconv::NumberError::Syntax) => 0,
    }
}

/// A time, or a number of seconds since 1970; anything else is now.
fn instant(ctx: &Context<'_>, value: &Value) -> Time {
    match value {
        Value::Time(time) => (**time).clone(),
        Value::Int(seconds) | Value::Int64(seconds) => Time::from_unix(*seconds, local(ctx)),
        Value::Int32(seconds) => Time::from_unix(i64::from(*seconds), local(ctx)),
        _ => now(ctx),
    }
}

fn formatted(ctx: &Context<'_>, layout: &[u8], value: &Value, zone: &[u8]) -> Answer {
    let zone = match zone {
        b"Local" => local(ctx),
        b"" | b"UTC" => Zone::Utc,
        name => match std::str::from_utf8(name).ok().and_then(|name| Some((name, ctx.host().zone(name)?))) {
            Some((name, zone)) => Zone::Named(name.to_owned(), zone),
            None => Zone::Utc,
        },
    };
    ctx.charge(layout.len().saturating_mul(8))?;
    string(instant(ctx, value).in_zone(zone).format_bytes(layout))
}

fn ago(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let time = match &args[0] {
        Value::Int32(_) => now(ctx),
        value => instant(ctx, value),
    };
    string(now(ctx).since(&time).round(Duration(1_000_000_000)).to_string())
}

fn moved(args: &[Value]) -> Result<Time, Failure> {
    let Value::Time(time) = &args[1] else { return Ok(Time::zero()) };
    let text = String::from_utf8_lossy(text_arg(args, 0)).into_owned();
    Ok(time.add(Duration::parse(&text)?))
}

fn modify(_: &Context<'_>, args: &[Value]) -> Answer {
    Ok(moved(args).map(shown).unwrap_or_else(|_| args[1].clone()))
}

fn must_modify(_: &Context<'_>, args: &[Value]) -> Answer {
    moved(args).map(shown)
}

fn parse(ctx: &Context<'_>, args: &[Value]) -> Result<Time, crate::time::ParseError> {
    Time::parse(text_arg(args, 0), text_arg(args, 1), &local(ctx))
}

fn duration_round(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let duration = match &args[0] {
        Value::String(text) => Duration::parse(&text.to_lossy()).unwrap_or(Duration(0)),
        Value::Int64(nanoseconds) => Duration(*nanoseconds),
        Value::Time(time) => now(ctx).since(time),
        _ => Duration(0),
    };
    const SECOND: u64 = 1_000_000_000;
    const HOUR: u64 = 3600 * SECOND;
    const UNITS: [(u64, &str); 6] = [
        (HOUR * 24 * 365, "y"),
        (HOUR * 24 * 30, "mo"),
        (HOUR * 24, "d"),
        (HOUR, "h"),
        (60 * SECOND, "m"),
        (SECOND, "s"),
    ];
    let magnitude = duration.0.unsigned_abs();
    match UNITS.iter().find(|(unit, _)| magnitude > *unit) {
        Some((unit, name)) => string(format!("{}{name}", magnitude / unit)),
        None => string("0s"),
    }
}
