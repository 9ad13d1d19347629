//! The two pattern languages of copy operations: Go's `path.Match` for what is copied, doublestar for what is extracted
//! or left out.

/// A pattern that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub struct BadPattern;

/// Whether `path` matches `pattern` part by part, as Go's `fs.Glob` finds it: `**` is no more than `*`.
pub fn matches_parts(pattern: &str, path: &str) -> Result<bool, BadPattern> {
    let mut parts = pattern.split('/').filter(|part| *part != ".");
    let mut names = path.split('/');
    loop {
        match (parts.next(), names.next()) {
            (None, None) => return Ok(true),
            (Some(part), Some(name)) if part_matches(part, name, Class::Go)? => {}
            // The rest is read all the same: a bad pattern is an error whatever the files are.
            (part, _) => {
                for rest in part.into_iter().chain(parts) {
                    part_matches(rest, "", Class::Go)?;
                }
                return Ok(false);
            }
        }
    }
}

/// Whether `path` matches with `**` for any number of folders and `{a,b}` for either.
pub fn matches_doublestar(pattern: &str, path: &str) -> Result<bool, BadPattern> {
    for alternative in alternatives(pattern)? {
        let parts: Vec<&str> = alternative.split('/').collect();
        let names: Vec<&str> = path.split('/').collect();
        if doublestar(&parts, &names)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn doublestar(parts: &[&str], names: &[&str]) -> Result<bool, BadPattern> {
    let Some((part, rest)) = parts.split_first() else {
        return Ok(names.is_empty());
    };
    if *part == "**" {
        // Several in a row say no more than one, and would be tried many times over.
        let rest = &rest[rest.iter().take_while(|part| **part == "**").count()..];
        for skipped in 0..=names.len() {
            if doublestar(rest, &names[skipped..])? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    match names.split_first() {
        Some((name, others)) => Ok(part_matches(part, name, Class::Doublestar)? && doublestar(rest, others)?),
        None => {
            part_matches(part, "", Class::Doublestar)?;
            Ok(false)
        }
    }
}

/// At most this many patterns come out of one with braces.
const MOST_ALTERNATIVES: usize = 256;

fn alternatives(pattern: &str) -> Result<Vec<String>, BadPattern> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        if done.len() + open.len() > MOST_ALTERNATIVES {
            return Err(BadPattern);
        }
        let Some(start) = brace(&pattern) else {
            done.push(pattern);
            continue;
        };
        let (mut depth, mut commas, mut end) = (0, Vec::new(), None);
        for (at, letter) in pattern[start..].char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => commas.push(start + at),
                _ => {}
            }
            if depth == 0 {
                end = Some(start + at);
                break;
            }
        }
        let end = end.ok_or(BadPattern)?;
        let mut from = start + 1;
        for to in commas.into_iter().chain([end]) {
            open.push(format!("{}{}{}", &pattern[..start], &pattern[from..to], &pattern[end + 1..]));
            from = to + 1;
        }
    }
    Ok(done)
}

/// The first brace that is not escaped.
fn brace(pattern: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in pattern.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => return Some(at),
            _ => {}
        }
    }
    None
}

/// How a class is negated: `[^…]` in Go, `[!…]` too in doublestar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Go,
    Doublestar,
}

enum Token {
    Any,
    One,
    Is(char),
    In { negated: bool, ranges: Vec<(char, char)> },
}

fn part_matches(pattern: &str, name: &str, class: Class) -> Result<bool, BadPattern> {
    let tokens = tokens(pattern, class)?;
    let letters: Vec<char> = name.chars().collect();
    // Greedy with one point to return to: linear in the product of the two, whatever the pattern.
    let (mut token, mut letter) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while letter < letters.len() {
        match tokens.get(token) {
            Some(Token::Any) => {
                star = Some((token, letter));
                token += 1;
            }
            Some(one) if one.takes(letters[letter]) => {
                token += 1;
                letter += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    token = at + 1;
                    letter = from + 1;
                }
                None => return Ok(false),
            },
        }
    }
    Ok(tokens[token..].iter().all(|token| matches!(token, Token::Any)))
}

impl Token {
    fn takes(&self, letter: char) -> bool {
        match self {
            Token::Any => false,
            Token::One => true,
            Token::Is(own) => *own == letter,
            Token::In { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&letter)) != *negated
            }
        }
    }
}

fn tokens(pattern: &str, class: Class) -> Result<Vec<Token>, BadPattern> {
    let mut letters = pattern.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(letter) = letters.next() {
        tokens.push(match letter {
            '*' => Token::Any,
            '?' => Token::One,
            '\\' => Token::Is(letters.next().ok_or(BadPattern)?),
            '[' => {
                let negation = |next: &char| *next == '^' || (class == Class::Doublestar && *next == '!');
                let negated = letters.next_if(negation).is_some();
                let mut ranges = Vec::new();
                loop {
                    let low = match letters.next().ok_or(BadPattern)? {
                        ']' if !ranges.is_empty() => break,
                        ']' | '-' => return Err(BadPattern),
                        '\\' => letters.next().ok_or(BadPattern)?,
                        other => other,
                    };
                    let high = match letters.next_if_eq(&'-') {
                        None => low,
                        Some(_) => match letters.next().ok_or(BadPattern)? {
                            ']' | '-' => return Err(BadPattern),
                            '\\' => letters.next().ok_or(BadPattern)?,
                            other => other,
                        },
                    };
                    ranges.push((low, high));
                }
                Token::In { negated, ranges }
            }
            other => Token::Is(other),
        });
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_patterns_match_one_part_each() {
        for (pattern, path) in [
            ("apps/*", "apps/a.yaml"),
            ("apps/**", "apps/base"),
            ("./*.yaml", "a.yaml"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[^a]x", "bx"),
            ("\\*", "*"),
            ("*a*b*", "xxaxxbxx"),
        ] {
            assert_eq!(matches_parts(pattern, path), Ok(true), "{pattern} {path}");
        }
        for (pattern, path) in [("apps/**", "apps/base/x"), ("*", "a/b"), ("[a-c]x", "dx"), ("a", "b")] {
            assert_eq!(matches_parts(pattern, path), Ok(false), "{pattern} {path}");
        }
        for pattern in ["[", "a/[", "[]", "[-x]", "\\", "[a-"] {
            assert_eq!(matches_parts(pattern, "nothing"), Err(BadPattern), "{pattern}");
        }
    }

    #[test]
    fn doublestar_spans_folders_and_braces_choose() {
        for (pattern, path) in [
            ("**/*.md", "README.md"),
            ("**/*.md", "docs/a/b.md"),
            ("docs/**", "docs/a/b"),
            ("docs/**", "docs"),
            ("*.{yaml,yml}", "a.yml"),
            ("{a,b/{c,d}}/x", "b/d/x"),
            ("[!a]", "b"),
        ] {
            assert_eq!(matches_doublestar(pattern, path), Ok(true), "{pattern} {path}");
        }
        for (pattern, path) in [("*.md", "docs/a.md"), ("docs/**/x", "docs/y"), ("{a,b}", "c")] {
            assert_eq!(matches_doublestar(pattern, path), Ok(false), "{pattern} {path}");
        }
        assert_eq!(matches_doublestar("{a", "a"), Err(BadPattern));
        assert_eq!(matches_doublestar(&"{a,b}".repeat(20), "a"), Err(BadPattern));
    }
}
