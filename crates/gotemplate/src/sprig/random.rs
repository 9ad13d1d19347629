//! Chance, all of it from the host.

use super::{Answer, base64, int_arg, string, text_arg};
use crate::context::{Context, Failure};
use crate::function::Function;
use crate::unicode::{push_rune, runes};
use crate::value::{Type, Value};

const I: &[Type] = &[Type::Int];

pub const FUNCTIONS: &[Function] = &[
    Function::new("randAlphaNum", I, |ctx, args| {
        characters(ctx, int_arg(args, 0), |c| c.is_ascii_alphanumeric())
    }),
    Function::new("randAlpha", I, |ctx, args| characters(ctx, int_arg(args, 0), |c| c.is_ascii_alphabetic())),
    Function::new("randNumeric", I, |ctx, args| characters(ctx, int_arg(args, 0), |c| c.is_ascii_digit())),
    Function::new("randAscii", I, |ctx, args| {
        characters(ctx, int_arg(args, 0), |c| (b' '..=b'~').contains(c))
    }),
    Function::new("randBytes", I, rand_bytes),
    Function::new("randInt", &[Type::Int, Type::Int], rand_int),
    Function::new("shuffle", &[Type::String], shuffle),
    Function::new("uuidv4", &[], uuid),
    Function::new("getHostByName", &[Type::String], get_host_by_name),
];

/// A number below `bound`, each equally likely.
pub fn below(ctx: &Context<'_>, bound: u64) -> u64 {
    // Numbers beyond the last whole multiple would favour the small ones.
    let limit = u64::MAX - u64::MAX % bound;
    loop {
        let mut bytes = [0; 8];
        ctx.host().random(&mut bytes);
        let number = u64::from_le_bytes(bytes);
        if number < limit {
            return number % bound;
        }
    }
}

/// A count from a template, charged for before it is used.
fn counted(ctx: &Context<'_>, count: i64) -> Result<usize, Failure> {
    let count = usize::try_from(count).unwrap_or(0);
    ctx.charge(count)?;
    ctx.work(count as u64 / 8)?;
    Ok(count)
}

/// sprig drops the error of a negative count, so that gives nothing.
fn characters(ctx: &Context<'_>, count: i64, fits: fn(&u8) -> bool) -> Answer {
    let count = counted(ctx, count)?;
    let alphabet: Vec<u8> = (0..=127u8).filter(fits).collect();
    string((0..count).map(|_| alphabet[below(ctx, alphabet.len() as u64) as usize]).collect::<Vec<u8>>())
}

fn rand_bytes(ctx: &Context<'_>, args: &[Value]) -> Answer {
    if int_arg(args, 0) < 0 {
        return Err(Failure::new("runtime error: makeslice: len out of range"));
    }
    let mut bytes = vec![0; counted(ctx, int_arg(args, 0))?];
    ctx.host().random(&mut bytes);
    string(base64::encode(&bytes))
}

fn rand_int(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let (least, bound) = (int_arg(args, 0), int_arg(args, 1));
    match bound.wrapping_sub(least) {
        span if span > 0 => Ok(Value::Int(least.wrapping_add(below(ctx, span as u64) as i64))),
        _ => Err(Failure::new("invalid argument to Intn")),
    }
}

fn shuffle(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let mut mixed: Vec<char> = runes(text_arg(args, 0)).map(|(_, rune, _)| rune).collect();
    for at in (1..mixed.len()).rev() {
        mixed.swap(at, below(ctx, at as u64 + 1) as usize);
    }
    let mut out = Vec::with_capacity(mixed.len());
    mixed.into_iter().for_each(|rune| push_rune(&mut out, rune as u32));
    string(out)
}

fn uuid(ctx: &Context<'_>, _: &[Value]) -> Answer {
    let mut bytes = [0; 16];
    ctx.host().random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = super::hash::hex(&bytes);
    string([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

/// One of the addresses. Without any, sprig asks for a number below none.
fn get_host_by_name(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let addresses = ctx.host().resolve(&String::from_utf8_lossy(text_arg(args, 0)));
    match addresses.len() {
        0 => Err(Failure::new("invalid argument to Intn")),
        count => string(addresses[below(ctx, count as u64) as usize].as_str()),
    }
}
