//! Strings.

use super::convert::strval;
use super::{Answer, base32, base64, case, int_arg, list, string, text_arg, wrap};
use crate::context::{Context, Failure};
use crate::fmt;
use crate::function::Function;
use crate::strconv;
use crate::unicode::{self, is_letter, is_space, map_runes, push_rune, runes, to_lower, to_title, to_upper};
use crate::value::{Map, MapEntries, Str, Type, Value};

const S: Type = Type::String;
const I: Type = Type::Int;

pub const FUNCTIONS: &[Function] = &[
    Function::new("hello", &[], |_, _| string("Hello!")),
    Function::new("trim", &[S], |_, args| string(trim_space(text_arg(args, 0)))),
    Function::new("upper", &[S], |_, args| string(upper(text_arg(args, 0)))),
    Function::new("lower", &[S], |_, args| string(lower(text_arg(args, 0)))),
    Function::new("title", &[S], |_, args| string(title(text_arg(args, 0)))),
    Function::new("untitle", &[S], |_, args| string(case::untitle(text_arg(args, 0)))),
    Function::new("swapcase", &[S], |_, args| string(case::swap(text_arg(args, 0)))),
    Function::new("snakecase", &[S], |_, args| string(case::separated(text_arg(args, 0), '_'))),
    Function::new("kebabcase", &[S], |_, args| string(case::separated(text_arg(args, 0), '-'))),
    Function::new("camelcase", &[S], |_, args| string(case::pascal(text_arg(args, 0)))),
    Function::new("initials", &[S], |_, args| string(case::initials(text_arg(args, 0)))),
    Function::new("nospace", &[S], |_, args| string(no_space(text_arg(args, 0)))),
    Function::new("substr", &[I, I, S], substr),
    Function::new("trunc", &[I, S], trunc),
    Function::new("abbrev", &[I, S], wrap::abbrev),
    Function::new("abbrevboth", &[I, I, S], wrap::abbrevboth),
    Function::new("wrap", &[I, S], wrap::wrap),
    Function::new("wrapWith", &[I, S, S], wrap::wrap_with),
    Function::new("repeat", &[I, S], repeat),
    Function::new("trimall", &[S, S], trim_all),
    Function::new("trimAll", &[S, S], trim_all),
    Function::new("trimSuffix", &[S, S], |_, args| {
        let text = text_arg(args, 1);
        string(text.strip_suffix(text_arg(args, 0)).unwrap_or(text))
    }),
    Function::new("trimPrefix", &[S, S], |_, args| {
        let text = text_arg(args, 1);
        string(text.strip_prefix(text_arg(args, 0)).unwrap_or(text))
    }),
    Function::new("contains", &[S, S], |_, args| {
        Ok(Value::Bool(find(text_arg(args, 1), text_arg(args, 0)).is_some()))
    }),
    Function::new("hasPrefix", &[S, S], |_, args| {
        Ok(Value::Bool(text_arg(args, 1).starts_with(text_arg(args, 0))))
    }),
    Function::new("hasSuffix", &[S, S], |_, args| {
        Ok(Value::Bool(text_arg(args, 1).ends_with(text_arg(args, 0))))
    }),
    Function::variadic("quote", &[], Type::Any, quote),
    Function::variadic("squote", &[], Type::Any, squote),
    Function::variadic("cat", &[], Type::Any, cat),
    Function::new("indent", &[I, S], |ctx, args| indent(ctx, args, false)),
    Function::new("nindent", &[I, S], |ctx, args| indent(ctx, args, true)),
    Function::new("replace", &[S, S, S], replace),
    Function::new("plural", &[S, S, I], |_, args| {
        string(text_arg(args, if int_arg(args, 2) == 1 { 0 } else { 1 }))
    }),
    Function::new("toString", &[Type::Any], |_, args| string(&*strval(&args[0]))),
    Function::new("toStrings", &[Type::Any], |_, args| Ok(Value::strings(list::texts(&args[0])))),
    Function::new("join", &[S, Type::Any], join),
    Function::new("split", &[S, S], |ctx, args| split_map(ctx, text_arg(args, 1), text_arg(args, 0), -1)),
    Function::new("splitn", &[S, I, S], |ctx, args| {
        split_map(ctx, text_arg(args, 2), text_arg(args, 0), int_arg(args, 1))
    }),
    Function::new("splitList", &[S, S], |ctx, args| {
        let parts = counted_split(ctx, text_arg(args, 1), text_arg(args, 0), -1, 80)?;
        Ok(Value::strings(parts))
    }),
    Function::new("b64enc", &[S], |ctx, args| {
        ctx.charge(text_arg(args, 0).len() * 2)?;
        string(base64::encode(text_arg(args, 0)))
    }),
    Function::new("b64dec", &[S], |_, args| match base64::decode(text_arg(args, 0)) {
        Ok(bytes) => string(bytes),
        Err(error) => string(error.to_string()),
    }),
    Function::new("b32enc", &[S], |ctx, args| {
        ctx.charge(text_arg(args, 0).len() * 2)?;
        string(base32::encode(text_arg(args, 0)))
    }),
    Function::new("b32dec", &[S], |_, args| match base32::decode(text_arg(args, 0)) {
        Ok(bytes) => string(bytes),
        Err(error) => string(error),
    }),
    Function::new("fail", &[S], |_, args| {
        Err(Failure::new(String::from_utf8_lossy(text_arg(args, 0)).into_owned()))
    }),
];

/// Where a text first occurs in another.
pub fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    if let (Ok(text), Ok(part)) = (std::str::from_utf8(text), std::str::from_utf8(part)) {
        return text.find(part);
    }
    text.windows(part.len()).position(|window| window == part)
}

pub fn trim_space(text: &[u8]) -> &[u8] {
    let Some(start) = runes(text).find(|(_, rune, _)| !is_space(*rune)).map(|(at, _, _)| at) else {
        return b"";
    };
    let end = runes(text)
        .filter(|(_, rune, _)| !is_space(*rune))
        .last()
        .map_or(start, |(at, _, length)| at + length);
    &text[start..end]
}

pub fn upper(text: &[u8]) -> Vec<u8> {
    if text.is_ascii() { text.to_ascii_uppercase() } else { map_runes(text, to_upper) }
}

pub fn lower(text: &[u8]) -> Vec<u8> {
    if text.is_ascii() { text.to_ascii_lowercase() } else { map_runes(text, to_lower) }
}

/// `strings.Title`: a letter after anything that is neither letter, digit, underscore nor, beyond ASCII, not a space.
fn title(text: &[u8]) -> Vec<u8> {
    let mut before = ' ';
    map_runes(text, |rune| {
        let starts = is_separator(before);
        before = rune;
        if starts { to_title(rune) } else { rune }
    })
}

fn is_separator(rune: char) -> bool {
    if rune.is_ascii() {
        return !(rune.is_ascii_alphanumeric() || rune == '_');
    }
    !(is_letter(rune) || unicode::is_digit(rune)) && is_space(rune)
}

/// goutils looks at bytes, not runes: a byte beyond ASCII becomes the rune of that number, unless nothing is removed.
fn no_space(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut kept = 0;
    for &byte in text {
        if !is_space(char::from(byte)) {
            push_rune(&mut out, u32::from(byte));
            kept += 1;
        }
    }
    if kept == text.len() { text.to_vec() } else { out }
}

/// Go's words for a slice expression that does not fit.
fn bounds(from: i64, to: i64, length: usize) -> Failure {
    let length = length as i64;
    Failure::new(if to < 0 {
        format!("runtime error: slice bounds out of range [:{to}]")
    } else if to > length {
        format!("runtime error: slice bounds out of range [:{to}] with length {length}")
    } else {
        format!("runtime error: slice bounds out of range [{from}:{to}]")
    })
}

fn sliced(text: &[u8], from: i64, to: i64) -> Answer {
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    match range.and_then(|(from, to)| text.get(from..to)) {
        Some(part) => string(part),
        None => Err(bounds(from, to, text.len())),
    }
}

fn substr(_: &Context<'_>, args: &[Value]) -> Answer {
    let (start, end, text) = (int_arg(args, 0), int_arg(args, 1), text_arg(args, 2));
    if start < 0 {
        return sliced(text, 0, end);
    }
    if end < 0 || end > text.len() as i64 {
        if start > text.len() as i64 {
            let length = text.len();
            return Err(Failure::new(format!("runtime error: slice bounds out of range [{start}:{length}]")));
        }
        return sliced(text, start, text.len() as i64);
    }
    sliced(text, start, end)
}

fn trunc(_: &Context<'_>, args: &[Value]) -> Answer {
    let (count, text) = (int_arg(args, 0), text_arg(args, 1));
    let length = text.len() as i64;
    if count < 0 && length + count > 0 {
        return sliced(text, length + count, length);
    }
    if count >= 0 && length > count {
        return sliced(text, 0, count);
    }
    string(text)
}

fn repeat(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let (count, text) = (int_arg(args, 0), text_arg(args, 1));
    let Ok(count) = usize::try_from(count) else {
        return Err(Failure::new("strings: negative Repeat count"));
    };
    let Some(size) = count.checked_mul(text.len()).filter(|&size| i64::try_from(size).is_ok()) else {
        return Err(Failure::new("strings: Repeat output length overflow"));
    };
    ctx.charge(size)?;
    string(text.repeat(if text.is_empty() { 0 } else { count }))
}

/// `strings.Trim`: every rune of the set, from both ends.
fn trim_all(_: &Context<'_>, args: &[Value]) -> Answer {
    let (set, text) = (text_arg(args, 0), text_arg(args, 1));
    let set: Vec<char> = runes(set).map(|(_, rune, _)| rune).collect();
    let kept: Vec<(usize, usize)> =
        runes(text).filter(|(_, rune, _)| !set.contains(rune)).map(|(at, _, length)| (at, length)).collect();
    match (kept.first(), kept.last()) {
        (Some((start, _)), Some((last, length))) => string(&text[*start..last + length]),
        _ => string(""),
    }
}

fn quote(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let quoted: Vec<String> =
        args.iter().filter(|arg| !arg.is_nil()).map(|arg| strconv::quote(&strval(arg))).collect();
    let text = quoted.join(" ");
    ctx.charge(text.len())?;
    string(text)
}

fn squote(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let mut out = Vec::new();
    for arg in args.iter().filter(|arg| !arg.is_nil()) {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.push(b'\'');
        fmt::print_value(&mut out, arg, ctx.session().limits().value_bytes)?;
        out.push(b'\'');
    }
    ctx.charge(out.len())?;
    string(out)
}

fn cat(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let mut out = Vec::new();
    for (at, arg) in args.iter().filter(|arg| !arg.is_nil()).enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        fmt::print_value(&mut out, arg, ctx.session().limits().value_bytes)?;
    }
    ctx.charge(out.len())?;
    string(out)
}

fn indent(ctx: &Context<'_>, args: &[Value], on_new_line: bool) -> Answer {
    let (spaces, text) = (int_arg(args, 0), text_arg(args, 1));
    let Ok(spaces) = usize::try_from(spaces) else {
        return Err(Failure::new("strings: negative Repeat count"));
    };
    let lines = 1 + text.iter().filter(|&&byte| byte == b'\n').count();
    let size = lines.saturating_mul(spaces).saturating_add(text.len() + 1);
    ctx.charge(size)?;
    let mut out = Vec::with_capacity(size);
    if on_new_line {
        out.push(b'\n');
    }
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        if at > 0 {
            out.push(b'\n');
        }
        out.resize(out.len() + spaces, b' ');
        out.extend_from_slice(line);
    }
    string(out)
}

fn replace(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let (old, new, text) = (text_arg(args, 0), text_arg(args, 1), text_arg(args, 2));
    let mut out = Vec::with_capacity(text.len());
    let most = ctx.session().limits().value_bytes;
    if old.is_empty() {
        // Between all runes, and at both ends.
        for (at, _, length) in runes(text) {
            out.extend_from_slice(new);
            out.extend_from_slice(&text[at..at + length]);
            if out.len() > most {
                break;
            }
        }
        out.extend_from_slice(new);
    } else {
        let mut rest = text;
        while let Some(at) = find(rest, old) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(new);
            rest = &rest[at + old.len()..];
            if out.len() > most {
                break;
            }
        }
        out.extend_from_slice(rest);
    }
    ctx.charge(out.len())?;
    string(out)
}

fn join(ctx: &Context<'_>, args: &[Value]) -> Answer {
    let separator = text_arg(args, 0);
    let parts = list::texts(&args[1]);
    let size = parts.iter().map(|part| part.len() + separator.len()).fold(0, usize::saturating_add);
    ctx.charge(size)?;
    let mut out = Vec::with_capacity(size);
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(part.as_bytes());
    }
    string(out)
}

/// `strings.SplitN`; negative means all. An empty separator splits runes.
pub fn split<'t>(text: &'t [u8], separator: &[u8], most: i64) -> Vec<&'t [u8]> {
    let most = match usize::try_from(most) {
        Ok(0) => return Vec::new(),
        Ok(most) => most,
        Err(_) => usize::MAX,
    };
    let mut parts = Vec::new();
    let mut rest = text;
    if separator.is_empty() {
        while !rest.is_empty() {
            let length = if parts.len() + 1 == most { rest.len() } else { unicode::decode_rune(rest).1 };
            parts.push(&rest[..length]);
            rest = &rest[length..];
        }
        return parts;
    }
    while parts.len() + 1 < most {
        let Some(at) = find(rest, separator) else { break };
        parts.push(&rest[..at]);
        rest = &rest[at + separator.len()..];
    }
    parts.push(rest);
    parts
}

/// Splits once it is known that the parts, at so many bytes each, fit.
fn counted_split<'t>(
    ctx: &Context<'_>,
    text: &'t [u8],
    separator: &[u8],
    most: i64,
    each: usize,
) -> Result<Vec<&'t [u8]>, Failure> {
    let mut count = 1;
    match separator {
        [] => count = unicode::rune_count(text),
        separator => {
            let mut rest = text;
            while let Some(at) = find(rest, separator) {
                rest = &rest[at + separator.len()..];
                count += 1;
            }
        }
    }
    let count = usize::try_from(most).map_or(count, |most| count.min(most));
    ctx.charge(count.saturating_mul(each))?;
    ctx.work(count as u64)?;
    Ok(split(text, separator, most))
}

fn split_map(ctx: &Context<'_>, text: &[u8], separator: &[u8], most: i64) -> Answer {
    let parts = counted_split(ctx, text, separator, most, 160)?;
    let entries: MapEntries = parts
        .into_iter()
        .enumerate()
        .map(|(at, part)| (Str::from(format!("_{at}")), Value::String(part.into())))
        .collect();
    Ok(Value::Map(Map::typed(Type::STRING_MAP, entries)))
}
