//! Abbreviating and wrapping, by bytes: goutils does not look at runes here.

use super::{Answer, int_arg, string, text_arg};
use crate::context::Context;
use crate::value::Value;

const MARK: &[u8] = b"...";

pub fn abbrev(_: &Context<'_>, args: &[Value]) -> Answer {
    let (width, text) = (int_arg(args, 0), text_arg(args, 1));
    if width < 4 {
        return string(text);
    }
    string(abbreviate(text, 0, width).unwrap_or_default())
}

pub fn abbrevboth(_: &Context<'_>, args: &[Value]) -> Answer {
    let (left, right, text) = (int_arg(args, 0), int_arg(args, 1), text_arg(args, 2));
    if right < 4 || left > 0 && right < 7 {
        return string(text);
    }
    string(abbreviate(text, left, right).unwrap_or_default())
}

/// goutils' `AbbreviateFull`; nothing if the width is too small.
fn abbreviate(text: &[u8], offset: i64, width: i64) -> Option<Vec<u8>> {
    let length = text.len() as i64;
    if length == 0 {
        return Some(Vec::new());
    }
    if width < 4 {
        return None;
    }
    if length <= width {
        return Some(text.to_vec());
    }
    let mut offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    if offset <= 4 {
        return Some([&text[..(width - 3) as usize], MARK].concat());
    }
    if width < 7 {
        return None;
    }
    if offset + width - 3 < length {
        let rest = abbreviate(&text[offset as usize..], 0, width - 3).unwrap_or_default();
        return Some([MARK, &rest].concat());
    }
    Some([MARK, &text[(length - (width - 3)) as usize..]].concat())
}

pub fn wrap(ctx: &Context<'_>, args: &[Value]) -> Answer {
    wrapped(ctx, text_arg(args, 1), int_arg(args, 0), b"", false)
}

pub fn wrap_with(ctx: &Context<'_>, args: &[Value]) -> Answer {
    wrapped(ctx, text_arg(args, 2), int_arg(args, 0), text_arg(args, 1), true)
}

fn wrapped(ctx: &Context<'_>, text: &[u8], width: i64, newline: &[u8], breaks_words: bool) -> Answer {
    let newline = if newline.is_empty() { b"\n" } else { newline };
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX);
    // Every line takes at least a byte of the text.
    ctx.charge(text.len().saturating_add(text.len().div_ceil(width).saturating_mul(newline.len())))?;
    let mut out = Vec::with_capacity(text.len());
    let mut offset = 0;
    while text.len() - offset > width {
        if text[offset] == b' ' {
            offset += 1;
            continue;
        }
        let space = text[offset..=offset + width].iter().rposition(|&byte| byte == b' ');
        let (end, next) = match space {
            Some(space) => (offset + space, offset + space + 1),
            None if breaks_words => (offset + width, offset + width),
            // A long word goes on beyond the limit.
            None => match text[offset + width..].iter().position(|&byte| byte == b' ') {
                Some(space) => (offset + width + space, offset + width + space + 1),
                None => break,
            },
        };
        out.extend_from_slice(&text[offset..end]);
        out.extend_from_slice(newline);
        offset = next;
        if out.len() > ctx.session().limits().value_bytes {
            ctx.charge(out.len())?;
        }
    }
    out.extend_from_slice(&text[offset..]);
    string(out)
}
