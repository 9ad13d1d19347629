//! Go's `filepath.Match`: `*` and `?` stop at slashes, classes are `[a-z]` and `[^a-z]`, `\` escapes.

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub(crate) struct BadPattern;

/// Whether a name matches a pattern; one that is malformed matches nothing. What `--show-only` compares with.
pub fn path_matches(pattern: &str, name: &str) -> bool {
    path_match(pattern, name).unwrap_or(false)
}

/// Whether the whole of `name` matches. A malformed pattern is an error even when its malformed part is never reached.
pub(crate) fn path_match(pattern: &str, name: &str) -> Result<bool, BadPattern> {
    let tokens = parse(pattern)?;
    let name: Vec<char> = name.chars().collect();
    Ok(matches(&tokens, &name))
}

enum Token {
    Star,
    Any,
    Literal(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

fn parse(pattern: &str) -> Result<Vec<Token>, BadPattern> {
    let mut tokens = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Token::Star,
            '?' => Token::Any,
            '\\' => Token::Literal(chars.next().ok_or(BadPattern)?),
            '[' => class(&mut chars)?,
            c => Token::Literal(c),
        });
    }
    Ok(tokens)
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token, BadPattern> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && chars.next_if_eq(&']').is_some() {
            return Ok(Token::Class { negated, ranges });
        }
        let low = class_char(chars)?;
        let high = if chars.next_if_eq(&'-').is_some() { class_char(chars)? } else { low };
        ranges.push((low, high));
    }
}

fn class_char(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<char, BadPattern> {
    match chars.next() {
        None | Some('-' | ']') => Err(BadPattern),
        Some('\\') => chars.next().ok_or(BadPattern),
        Some(c) => Ok(c),
    }
}

/// Greedy with one point to return to: the last star. Linear in practice, quadratic at worst.
fn matches(tokens: &[Token], name: &[char]) -> bool {
    let (mut t, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match tokens.get(t) {
            Some(Token::Star) => {
                retry = Some((t, n));
                t += 1;
                continue;
            }
            Some(token) if n < name.len() && token.accepts(name[n]) => {
                t += 1;
                n += 1;
                continue;
            }
            None if n == name.len() => return true,
            _ => {}
        }
        match retry {
            Some((star, from)) if from < name.len() && name[from] != '/' => {
                retry = Some((star, from + 1));
                t = star + 1;
                n = from + 1;
            }
            _ => return false,
        }
    }
}

impl Token {
    fn accepts(&self, c: char) -> bool {
        match self {
            Token::Star => false,
            Token::Any => c != '/',
            Token::Literal(literal) => *literal == c,
            Token::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::path_match;

    #[test]
    fn follows_the_table_of_gos_own_tests() {
        for (pattern, name, expected) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("[a-ζ]*", "α", true),
            ("*[a-ζ]", "A", false),
            ("a?b", "a/b", false),
            ("*x", "xxx", true),
        ] {
            assert_eq!(path_match(pattern, name), Ok(expected), "{pattern} {name}");
        }
        for pattern in ["[]a]", "[-]", "[x-]", "[a-b-c]", "[", "[^", "a[", "[^bc"] {
            assert!(path_match(pattern, "ab").is_err(), "{pattern}");
        }
    }
}
