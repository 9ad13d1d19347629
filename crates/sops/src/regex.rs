//! Regular expressions of Go on the `regex` crate: the same language but for a few spellings.
//!
//! Go's `\d`, `\w`, `\s` and `\b` know ASCII only; a `[` within brackets is just a bracket; `\Q…\E` quotes. What
//! Go refuses matches nothing, since sops ignores the error.

use ::regex::bytes::{Regex, RegexBuilder};

/// A pattern of a file; `None` for one that does not compile, which matches nothing.
pub(crate) struct Pattern(Option<Regex>);

impl Pattern {
    pub(crate) fn new(pattern: &str) -> Self {
        let size_limit = 1 << 20;
        Self(
            translate(pattern)
                .and_then(|pattern| RegexBuilder::new(&pattern).size_limit(size_limit).build().ok()),
        )
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

fn translate(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        if let Some(escaped) = rest.strip_prefix('\\') {
            if let Some(quoted) = escaped.strip_prefix('Q').filter(|_| !in_class) {
                let (literal, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
                out.push_str(&::regex::escape(literal));
                rest = after;
                continue;
            }
            let next = escaped.chars().next()?;
            push_escape(&mut out, next, in_class)?;
            rest = &escaped[next.len_utf8()..];
            continue;
        }
        if !in_class {
            if let Some(class) = rest.strip_prefix('[') {
                in_class = true;
                out.push('[');
                rest = class;
                if let Some(negated) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = negated;
                }
                // A bracket that closes in the first place is one of the characters.
                if let Some(after) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = after;
                }
                continue;
            }
            if rest.starts_with("(?") && !allowed_group(rest) {
                return None;
            }
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        if rest.starts_with("[:")
            && let Some(end) = rest.find(":]")
        {
            out.push_str(&rest[..end + 2]);
            rest = &rest[end + 2..];
            continue;
        }
        match c {
            ']' => {
                in_class = false;
                out.push(c);
            }
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

fn push_escape(out: &mut String, c: char, in_class: bool) -> Option<()> {
    match c {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        's' => out.push_str("[\\t\\n\\x0c\\r ]"),
        'S' => out.push_str("[^\\t\\n\\x0c\\r ]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'b' if !in_class => out.push_str("(?-u:\\b)"),
        // In Go the empty place between the bytes of a character is none.
        'B' if !in_class => out.push_str("\\B"),
        // Both have these: classes of Unicode, code points, controls, anchors, octal aside.
        'p' | 'P' | 'x' | 'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'A' | 'z' => {
            out.push('\\');
            out.push(c);
        }
        _ if c.is_ascii_punctuation() => {
            out.push('\\');
            out.push(c);
        }
        _ => return None,
    }
    Some(())
}

/// `(?:`, `(?P<`, `(?<` and the flags of Go: `i`, `m`, `s`, `U`.
fn allowed_group(rest: &str) -> bool {
    let inner = &rest[2..];
    if inner.starts_with("P<") {
        return true;
    }
    if let Some(name) = inner.strip_prefix('<') {
        return !name.starts_with(['=', '!']);
    }
    let flags = inner.find([':', ')']).map_or(inner, |end| &inner[..end]);
    flags.chars().all(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).is_match(text.as_bytes())
    }

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        assert!(matches("^(data|stringData)$", "data"));
        assert!(!matches("^(data|stringData)$", "metadata"));
        assert!(matches("(?i)SECRET", "my-secret"));
        assert!(matches(r"\d", "a1"));
        assert!(!matches(r"\d", "٣"), "digits are ASCII");
        assert!(!matches(r"^\w+$", "é"), "words are ASCII");
        assert!(matches(r"[[]", "["));
        assert!(matches(r"[]a]", "]"));
        assert!(matches(r"[&&]", "&"));
        assert!(matches(r"[[:alpha:]]+", "x"));
        assert!(matches(r"[^\d]", "x"));
        assert!(matches(r"\Qa.b\E$", "a.b"));
        assert!(!matches(r"\Qa.b\E$", "axb"));
        assert!(matches(r"x\by|x\b", "x y"));
        assert!(matches("p.ss", "päss"));
    }

    #[test]
    fn what_go_refuses_matches_nothing() {
        for pattern in ["(", "a{2,1}", r"\y", "(?x) a", "(?=a)", "(?<=a)", "[a", "a**(", "\\"] {
            assert!(!matches(pattern, "a"), "{pattern}");
        }
    }
}
