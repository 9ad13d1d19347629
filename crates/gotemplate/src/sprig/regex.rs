//! Regular expressions: RE2's language on the regex crate, which matches in linear time too.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use regex::{Captures, Match, Regex, RegexBuilder};

use super::regex_syntax::translate;
use super::{Answer, int_arg, string, text_arg};
use crate::context::{Context, Failure};
use crate::function::Function;
use crate::unicode::{decode_rune, is_digit, is_letter, runes};
use crate::value::{List, Type, Value};

const S: Type = Type::String;
const TWO: &[Type] = &[S, S];
const THREE: &[Type] = &[S, S, S];
const COUNTED: &[Type] = &[S, S, Type::Int];

pub const FUNCTIONS: &[Function] = &[
    Function::new("regexMatch", TWO, |ctx, args| {
        let hay = Haystack::new(text_arg(args, 1));
        Ok(Value::Bool(compile(ctx, args, Panic::No).is_ok_and(|regex| regex.is_match(&hay.searched))))
    }),
    Function::new("mustRegexMatch", TWO, |ctx, args| {
        let hay = Haystack::new(text_arg(args, 1));
        Ok(Value::Bool(compile(ctx, args, Panic::No)?.is_match(&hay.searched)))
    }),
    Function::new("regexFindAll", COUNTED, |ctx, args| find_all(ctx, args, Panic::Yes)),
    Function::new("mustRegexFindAll", COUNTED, |ctx, args| find_all(ctx, args, Panic::No)),
    Function::new("regexFind", TWO, |ctx, args| find(ctx, args, Panic::Yes)),
    Function::new("mustRegexFind", TWO, |ctx, args| find(ctx, args, Panic::No)),
    Function::new("regexReplaceAll", THREE, |ctx, args| replace(ctx, args, Panic::Yes, false)),
    Function::new("mustRegexReplaceAll", THREE, |ctx, args| replace(ctx, args, Panic::No, false)),
    Function::new("regexReplaceAllLiteral", THREE, |ctx, args| replace(ctx, args, Panic::Yes, true)),
    Function::new("mustRegexReplaceAllLiteral", THREE, |ctx, args| replace(ctx, args, Panic::No, true)),
    Function::new("regexSplit", COUNTED, |ctx, args| split(ctx, args, Panic::Yes)),
    Function::new("mustRegexSplit", COUNTED, |ctx, args| split(ctx, args, Panic::No)),
    Function::new("regexQuoteMeta", &[S], |_, args| string(quote_meta(text_arg(args, 0)))),
];

/// Whether sprig compiles with `MustCompile`, which says more in its panic than the error does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Panic {
    Yes,
    No,
}

/// What a compiled expression may take.
const SIZE_LIMIT: usize = 2 << 20;
/// Longer ones take long to compile before they turn out to be too large.
const MAX_PATTERN: usize = 32 << 10;
/// How many compiled expressions a thread keeps.
const KEPT: usize = 256;

type Compiled = HashMap<Vec<u8>, Result<Rc<Regex>, String>>;

thread_local! {
    /// Charts use the same few expressions over and over; compiling them is what takes time.
    static COMPILED: RefCell<Compiled> = RefCell::new(Compiled::new());
}

fn compile(ctx: &Context<'_>, args: &[Value], panic: Panic) -> Result<Rc<Regex>, Failure> {
    let pattern = text_arg(args, 0);
    // Matching is linear, but it is work that no step counts.
    ctx.work(1 + text_arg(args, 1).len() as u64 / 64)?;
    let compiled = COMPILED.with_borrow_mut(|compiled| {
        if let Some(known) = compiled.get(pattern) {
            return known.clone();
        }
        if compiled.len() >= KEPT {
            compiled.clear();
        }
        let fresh = compile_fresh(pattern);
        compiled.insert(pattern.to_vec(), fresh.clone());
        fresh
    });
    compiled.map_err(|error| match panic {
        Panic::No => Failure::new(error),
        Panic::Yes => {
            let shown = match crate::strconv::can_backquote(pattern) {
                true => format!("`{}`", String::from_utf8_lossy(pattern)),
                false => crate::strconv::quote(pattern),
            };
            Failure::new(format!("regexp: Compile({shown}): {error}"))
        }
    })
}

/// Go's `regexp.Compile`, for those who match outside of templates. Its error is Go's.
pub fn compile_regex(pattern: &str) -> Result<Regex, String> {
    compile_fresh(pattern.as_bytes()).map(|regex| (*regex).clone())
}

fn compile_fresh(pattern: &[u8]) -> Result<Rc<Regex>, String> {
    if pattern.len() > MAX_PATTERN {
        return Err("error parsing regexp: expression too large".to_owned());
    }
    let translated = translate(pattern).map_err(|error| format!("error parsing regexp: {error}"))?;
    let regex = RegexBuilder::new(&translated).size_limit(SIZE_LIMIT).nest_limit(250).build();
    regex.map(Rc::new).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "error parsing regexp: expression too large".to_owned(),
        other => {
            let first = other.to_string();
            let last = first.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("error parsing regexp: {last}: `{}`", String::from_utf8_lossy(pattern))
        }
    })
}

/// What is searched. Go takes each byte that is not UTF-8 for a U+FFFD; the regex crate would match nothing there, so
/// it gets a text with those, and positions are led back to the original.
struct Haystack<'t> {
    original: &'t [u8],
    searched: Cow<'t, str>,
    /// For each byte of the searched text and its end, where that is in the original; nothing if both are the same.
    positions: Option<Vec<usize>>,
}

impl<'t> Haystack<'t> {
    fn new(original: &'t [u8]) -> Self {
        if let Ok(text) = std::str::from_utf8(original) {
            return Self { original, searched: Cow::Borrowed(text), positions: None };
        }
        let mut searched = String::with_capacity(original.len());
        let mut positions = Vec::with_capacity(original.len() + 1);
        for (at, rune, _) in runes(original) {
            searched.push(rune);
            // Matches start and end between runes, so it is the first byte's position that counts.
            positions.resize(searched.len(), at);
        }
        positions.push(original.len());
        Self { original, searched: Cow::Owned(searched), positions: Some(positions) }
    }

    fn position(&self, at: usize) -> usize {
        self.positions.as_ref().map_or(at, |positions| positions[at])
    }

    fn part(&self, from: usize, to: usize) -> &'t [u8] {
        &self.original[self.position(from)..self.position(to)]
    }

    fn matched(&self, found: Match<'_>) -> &'t [u8] {
        self.part(found.start(), found.end())
    }
}

/// At most `count` matches; all of them if it is negative.
fn most(count: i64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn find_all(ctx: &Context<'_>, args: &[Value], panic: Panic) -> Answer {
    let regex = compile(ctx, args, panic)?;
    let mut found = Vec::new();
    let hay = Haystack::new(text_arg(args, 1));
    for matched in regex.find_iter(&hay.searched).take(most(int_arg(args, 2))) {
        found.push(hay.matched(matched));
        ctx.charge(found.len() * 80)?;
    }
    if found.is_empty() { no_strings() } else { Ok(Value::strings(found)) }
}

/// Go's regexp answers with a nil slice where there is nothing.
fn no_strings() -> Answer {
    Ok(Value::List(List::nil(Type::STRINGS)))
}

fn find(ctx: &Context<'_>, args: &[Value], panic: Panic) -> Answer {
    let regex = compile(ctx, args, panic)?;
    let hay = Haystack::new(text_arg(args, 1));
    string(regex.find(&hay.searched).map(|found| hay.matched(found)).unwrap_or_default())
}

fn replace(ctx: &Context<'_>, args: &[Value], panic: Panic, literal: bool) -> Answer {
    let regex = compile(ctx, args, panic)?;
    let (hay, replacement) = (Haystack::new(text_arg(args, 1)), text_arg(args, 2));
    let limit = ctx.session().limits().value_bytes;
    let mut out = Vec::with_capacity(hay.original.len());
    let mut at = 0;
    for captures in regex.captures_iter(&hay.searched) {
        let whole = captures.get(0).expect("a match has a whole");
        out.extend_from_slice(hay.part(at, whole.start()));
        if literal {
            out.extend_from_slice(replacement);
        } else {
            expand(&mut out, replacement, &regex, &captures, &hay, limit);
        }
        at = whole.end();
        if out.len() > limit {
            break;
        }
    }
    out.extend_from_slice(hay.part(at, hay.searched.len()));
    ctx.charge(out.len())?;
    string(out)
}

/// Go's replacement syntax: `$1`, `${1}`, `$name`, `$$`. A name is as long as it can be, so `$1x` is `${1x}`.
/// Stops once more than `limit` is written: whoever asked refuses that anyway.
fn expand(
    out: &mut Vec<u8>,
    template: &[u8],
    regex: &Regex,
    captures: &Captures<'_>,
    hay: &Haystack<'_>,
    limit: usize,
) {
    let mut rest = template;
    while let Some(dollar) = rest.iter().position(|&byte| byte == b'$') {
        if out.len() > limit {
            return;
        }
        out.extend_from_slice(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if rest.first() == Some(&b'$') {
            out.push(b'$');
            rest = &rest[1..];
            continue;
        }
        let Some((name, after)) = group_name(rest) else {
            out.push(b'$');
            continue;
        };
        if let Some(found) = group(name, regex, captures) {
            out.extend_from_slice(hay.matched(found));
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// The name after a dollar sign, and what follows it.
fn group_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let braced = text.first() == Some(&b'{');
    let body = if braced { &text[1..] } else { text };
    let mut length = 0;
    while length < body.len() {
        let (rune, size) = decode_rune(&body[length..]);
        if !(is_letter(rune) || is_digit(rune) || rune == '_') {
            break;
        }
        length += size;
    }
    if length == 0 {
        return None;
    }
    let (name, rest) = body.split_at(length);
    match braced {
        true => rest.strip_prefix(b"}").map(|rest| (name, rest)),
        false => Some((name, rest)),
    }
}

fn group<'t>(name: &[u8], regex: &Regex, captures: &Captures<'t>) -> Option<Match<'t>> {
    let leading_zero = name[0] == b'0' && name.len() > 1;
    if name.iter().all(u8::is_ascii_digit) && !leading_zero && name.len() <= 8 {
        let number: usize = std::str::from_utf8(name).ok()?.parse().ok()?;
        return captures.get(number);
    }
    let name = std::str::from_utf8(name).ok()?;
    // Of equal names, Go takes the first that took part.
    regex
        .capture_names()
        .enumerate()
        .filter(|(_, known)| *known == Some(name))
        .find_map(|(at, _)| captures.get(at))
}

fn split(ctx: &Context<'_>, args: &[Value], panic: Panic) -> Answer {
    let regex = compile(ctx, args, panic)?;
    let (pattern, text, count) = (text_arg(args, 0), text_arg(args, 1), int_arg(args, 2));
    if count == 0 {
        return no_strings();
    }
    if !pattern.is_empty() && text.is_empty() {
        return Ok(Value::strings([""]));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    let (mut start, mut end) = (0, 0);
    let hay = Haystack::new(text);
    for matched in regex.find_iter(&hay.searched).take(most(count)) {
        if count > 0 && parts.len() as i64 == count - 1 {
            break;
        }
        end = matched.start();
        if matched.end() != 0 {
            parts.push(hay.part(start, end));
            ctx.charge(parts.len() * 80)?;
        }
        start = matched.end();
    }
    if end != hay.searched.len() {
        parts.push(hay.part(start, hay.searched.len()));
    }
    Ok(Value::strings(parts))
}

fn quote_meta(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if b"\\.+*?()|[]{}^$".contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}
