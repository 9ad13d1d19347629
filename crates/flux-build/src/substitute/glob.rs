//! Shell patterns as Flux's envsubst matches them: like Go's `path.Match`, except that a slash is nothing special.

#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadPattern;

/// Whether `pattern` matches all of `name`.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> Result<bool, BadPattern> {
    let mut pattern = pattern;
    let mut name = name;
    'chunks: while !pattern.is_empty() {
        let (star, chunk, rest) = next_chunk(pattern);
        pattern = rest;
        if star && chunk.is_empty() {
            return Ok(true);
        }
        // The last piece must also use the name up.
        let fits = |left: &[u8]| left.is_empty() || !rest.is_empty();
        if let Some(left) = match_chunk(chunk, name)?.filter(|left| fits(left)) {
            name = left;
            continue;
        }
        if star {
            for skipped in 1..=name.len() {
                if let Some(left) = match_chunk(chunk, &name[skipped..])?.filter(|left| fits(left)) {
                    name = left;
                    continue 'chunks;
                }
            }
        }
        return Ok(false);
    }
    Ok(name.is_empty())
}

/// A piece without stars, whether stars stood before it, and the rest.
fn next_chunk(mut pattern: &[u8]) -> (bool, &[u8], &[u8]) {
    let mut star = false;
    while let Some(rest) = pattern.strip_prefix(b"*") {
        pattern = rest;
        star = true;
    }
    let (mut at, mut in_class) = (0, false);
    while at < pattern.len() {
        match pattern[at] {
            b'\\' if at + 1 < pattern.len() => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' if !in_class => break,
            _ => {}
        }
        at += 1;
    }
    (star, &pattern[..at], &pattern[at..])
}

/// What is left of `name` after `chunk` matched its start.
fn match_chunk<'a>(mut chunk: &[u8], mut name: &'a [u8]) -> Result<Option<&'a [u8]>, BadPattern> {
    while let Some((&first, rest)) = chunk.split_first() {
        if name.is_empty() {
            return Ok(None);
        }
        match first {
            b'[' => {
                let (candidate, length) = decode(name);
                let (holds, after) = class(rest, candidate)?;
                if !holds {
                    return Ok(None);
                }
                chunk = after;
                name = &name[length..];
            }
            b'?' => {
                chunk = rest;
                name = &name[decode(name).1..];
            }
            b'\\' => {
                let (literal, after) = rest.split_first().ok_or(BadPattern)?;
                if *literal != name[0] {
                    return Ok(None);
                }
                chunk = after;
                name = &name[1..];
            }
            literal => {
                if literal != name[0] {
                    return Ok(None);
                }
                chunk = rest;
                name = &name[1..];
            }
        }
    }
    Ok(Some(name))
}

/// A character class after its `[`: whether it holds `candidate`, and what follows its `]`.
fn class(mut pattern: &[u8], candidate: char) -> Result<(bool, &[u8]), BadPattern> {
    let negated = pattern.first() == Some(&b'^');
    if negated {
        pattern = &pattern[1..];
    }
    let (mut holds, mut ranges) = (false, 0);
    loop {
        if ranges > 0 && pattern.first() == Some(&b']') {
            return Ok((holds != negated, &pattern[1..]));
        }
        let (low, rest) = member(pattern)?;
        let (high, rest) = match rest.strip_prefix(b"-") {
            Some(rest) => member(rest)?,
            None => (low, rest),
        };
        holds |= (low..=high).contains(&candidate);
        pattern = rest;
        ranges += 1;
    }
}

fn member(pattern: &[u8]) -> Result<(char, &[u8]), BadPattern> {
    let pattern = match pattern.first() {
        None | Some(b'-' | b']') => return Err(BadPattern),
        Some(b'\\') => &pattern[1..],
        Some(_) => pattern,
    };
    if pattern.is_empty() {
        return Err(BadPattern);
    }
    let (character, length) = decode(pattern);
    let rest = &pattern[length..];
    // The class must still be closed.
    if rest.is_empty() { Err(BadPattern) } else { Ok((character, rest)) }
}

/// The first character and its length; a stray byte counts as one replacement character.
fn decode(bytes: &[u8]) -> (char, usize) {
    let longest = bytes.len().min(4);
    (1..=longest)
        .find_map(|length| {
            let text = std::str::from_utf8(&bytes[..length]).ok()?;
            text.chars().next().map(|character| (character, length))
        })
        .unwrap_or(('\u{fffd}', 1))
}
