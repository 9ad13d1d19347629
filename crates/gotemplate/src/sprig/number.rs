//! Numbers: whole ones as int64 that wrap around, others in decimals.

use super::convert::{to_float64, to_int64};
use super::decimal::Decimal;
use super::{Answer, int_arg, string, text_arg};
use crate::context::{Context, Failure};
use crate::fmt;
use crate::function::Function;
use crate::strconv;
use crate::value::{List, Type, Value};

const ANY: &[Type] = &[Type::Any];
const TWO: &[Type] = &[Type::Any, Type::Any];
const I: Type = Type::Int;

pub const FUNCTIONS: &[Function] = &[
    Function::new("int", ANY, |_, args| Ok(Value::Int(to_int64(&args[0])))),
    Function::new("int64", ANY, |_, args| Ok(Value::Int64(to_int64(&args[0])))),
    Function::new("float64", ANY, |_, args| Ok(Value::Float64(to_float64(&args[0])))),
    Function::new("atoi", &[Type::String], |_, args| Ok(Value::Int(atoi(text_arg(args, 0))))),
    Function::new("toDecimal", ANY, to_decimal),
    Function::new("add1", ANY, |_, args| Ok(Value::Int64(to_int64(&args[0]).wrapping_add(1)))),
    Function::variadic("add", &[], Type::Any, |_, args| {
        Ok(Value::Int64(args.iter().map(to_int64).fold(0, i64::wrapping_add)))
    }),
    Function::new("sub", TWO, |_, args| {
        Ok(Value::Int64(to_int64(&args[0]).wrapping_sub(to_int64(&args[1]))))
    }),
    Function::new("div", TWO, |_, args| divided(args, i64::wrapping_div)),
    Function::new("mod", TWO, |_, args| divided(args, i64::wrapping_rem)),
    Function::variadic("mul", ANY, Type::Any, |_, args| {
        Ok(Value::Int64(args.iter().map(to_int64).fold(1, i64::wrapping_mul)))
    }),
    Function::variadic("max", ANY, Type::Any, |_, args| largest(args)),
    Function::variadic("biggest", ANY, Type::Any, |_, args| largest(args)),
    Function::variadic("min", ANY, Type::Any, |_, args| {
        Ok(Value::Int64(args.iter().map(to_int64).min().unwrap_or(0)))
    }),
    Function::variadic("maxf", ANY, Type::Any, |_, args| Ok(extreme(args, f64::max))),
    Function::variadic("minf", ANY, Type::Any, |_, args| Ok(extreme(args, f64::min))),
    Function::new("add1f", ANY, |_, args| decimals(&args[0], &[Value::Int(1)], Decimal::add)),
    Function::variadic("addf", &[], Type::Any, |_, args| decimals(&Value::Float64(0.0), args, Decimal::add)),
    Function::variadic("subf", ANY, Type::Any, |_, args| decimals(&args[0], &args[1..], Decimal::sub)),
    Function::variadic("mulf", ANY, Type::Any, |_, args| decimals(&args[0], &args[1..], Decimal::mul)),
    Function::variadic("divf", ANY, Type::Any, |_, args| decimals(&args[0], &args[1..], Decimal::div)),
    Function::new("ceil", ANY, |_, args| Ok(Value::Float64(to_float64(&args[0]).ceil()))),
    Function::new("floor", ANY, |_, args| Ok(Value::Float64(to_float64(&args[0]).floor()))),
    Function::variadic("round", &[Type::Any, I], Type::Float64, round),
    Function::new("until", &[I], |ctx, args| {
        let stop = int_arg(args, 0);
        ints(ctx, 0, stop, if stop < 0 { -1 } else { 1 })
    }),
    Function::new("untilStep", &[I, I, I], |ctx, args| {
        ints(ctx, int_arg(args, 0), int_arg(args, 1), int_arg(args, 2))
    }),
    Function::variadic("seq", &[], I, seq),
];

/// `strconv.Atoi`, whose error sprig drops; out of range it keeps the nearest int.
fn atoi(text: &[u8]) -> i64 {
    match strconv::parse_int(text, 10) {
        Ok(value) => value,
        Err(strconv::NumberError::Range) if text.starts_with(b"-") => i64::MIN,
        Err(strconv::NumberError::Range) => i64::MAX,
        Err(strconv::NumberError::Syntax) => 0,
    }
}

/// The text of a value, read as octal.
fn to_decimal(_: &Context<'_>, args: &[Value]) -> Answer {
    let text = fmt::show(&args[0]);
    Ok(Value::Int64(strconv::parse_int(text.as_bytes(), 8).unwrap_or(0)))
}

fn divided(args: &[Value], divide: fn(i64, i64) -> i64) -> Answer {
    match to_int64(&args[1]) {
        0 => Err(Failure::new("runtime error: integer divide by zero")),
        divisor => Ok(Value::Int64(divide(to_int64(&args[0]), divisor))),
    }
}

fn largest(args: &[Value]) -> Answer {
    Ok(Value::Int64(args.iter().map(to_int64).max().unwrap_or(0)))
}

/// Go's `math.Max` and `math.Min`: NaN wins.
fn extreme(args: &[Value], choose: fn(f64, f64) -> f64) -> Value {
    let mut numbers = args.iter().map(to_float64);
    let first = numbers.next().unwrap_or(0.0);
    Value::Float64(numbers.fold(first, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { choose(a, b) }))
}

fn decimals(
    first: &Value,
    rest: &[Value],
    combine: fn(&Decimal, &Decimal) -> Result<Decimal, Failure>,
) -> Answer {
    let mut total = Decimal::from_float(to_float64(first))?;
    for value in rest {
        total = combine(&total, &Decimal::from_float(to_float64(value))?)?;
    }
    Ok(Value::Float64(total.to_float()))
}

fn round(_: &Context<'_>, args: &[Value]) -> Answer {
    let threshold = match args.get(2) {
        Some(Value::Float64(threshold)) => *threshold,
        _ => 0.5,
    };
    let power = 10f64.powf(int_arg(args, 1) as f64);
    let scaled = power * to_float64(&args[0]);
    let rounded = if scaled.fract() >= threshold { scaled.ceil() } else { scaled.floor() };
    Ok(Value::Float64(rounded / power))
}

/// How many numbers there are from `start` in steps up to `stop`.
fn count(start: i64, stop: i64, step: i64) -> u64 {
    let distance = start.abs_diff(stop);
    let fits = if stop < start { step < 0 } else { step > 0 };
    if fits { distance.div_ceil(step.unsigned_abs()) } else { 0 }
}

fn numbers(ctx: &Context<'_>, start: i64, stop: i64, step: i64) -> Result<Vec<i64>, Failure> {
    let count = count(start, stop, step);
    let bytes = count.saturating_mul(std::mem::size_of::<Value>() as u64);
    ctx.charge(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    Ok((0..count).map(|at| start.wrapping_add(step.wrapping_mul(at as i64))).collect())
}

fn ints(ctx: &Context<'_>, start: i64, stop: i64, step: i64) -> Answer {
    let items = numbers(ctx, start, stop, step)?.into_iter().map(Value::Int).collect();
    Ok(Value::List(List::typed(Type::INTS, items)))
}

fn seq(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let at = |index: usize| int_arg(args, index);
    let away = |start: i64, end: i64| if end < start { -1 } else { 1 };
    let (start, end, step) = match args.len() {
        1 => (1, at(0), away(1, at(0))),
        2 => (at(0), at(1), away(at(0), at(1))),
        3 if at(2) < at(0) && at(1) > 0 => return string(""),
        3 => (at(0), at(2), at(1)),
        _ => return string(""),
    };
    let stop = end.wrapping_add(away(start, end));
    let texts: Vec<String> = numbers(ctx, start, stop, step)?.iter().map(i64::to_string).collect();
    string(texts.join(" "))
}
