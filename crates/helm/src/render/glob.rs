//! The patterns of `.Files.Glob`: `*` and `?` stop at slashes, `**` does not, `[a-z]`, `[!a-z]`, `{a,b}`, `\` escapes.

use regex::Regex;

/// A pattern as an expression that takes linear time; a malformed one matches every file, as in Helm.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    let mut out = String::from("(?s)^(?:");
    let mut chars = pattern.chars().peekable();
    let mut braces = 0_usize;
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.next_if_eq(&'*').is_some() => {
                while chars.next_if_eq(&'*').is_some() {}
                out.push_str(".*");
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '\\' => out.push_str(&regex::escape(&chars.next()?.to_string())),
            '[' => out.push_str(&class(&mut chars)?),
            '{' => {
                braces += 1;
                out.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                out.push(')');
            }
            ',' if braces > 0 => out.push('|'),
            c => out.push_str(&regex::escape(&c.to_string())),
        }
    }
    if braces > 0 {
        return None;
    }
    out.push_str(")$");
    regex::RegexBuilder::new(&out).size_limit(1 << 20).build().ok()
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut out = String::from("[");
    if chars.next_if_eq(&'!').is_some() {
        out.push('^');
    }
    let mut empty = true;
    loop {
        match chars.next()? {
            ']' if !empty => break,
            '-' => out.push('-'),
            '\\' => out.push_str(&regex::escape(&chars.next()?.to_string())),
            c => out.push_str(&regex::escape(&c.to_string())),
        }
        empty = false;
    }
    out.push(']');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn stars_and_slashes() {
        let matches = |pattern: &str, name: &str| compile(pattern).unwrap().is_match(name);
        assert!(matches("conf/*", "conf/a.txt") && !matches("conf/*", "conf/x/a.txt"));
        assert!(matches("conf/**", "conf/x/a.txt") && matches("**.yaml", "a/b.yaml"));
        assert!(matches("{a,b}/[x-z]?.txt", "b/y1.txt") && !matches("[!a]", "a"));
        assert!(compile("{a").is_none() && compile("[a").is_none());
    }
}
