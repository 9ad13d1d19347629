//! Splitting a stream of YAML at its `---` lines, with the leniency of the Helm version asked for.

use crate::Dialect;

/// The documents of a text, blank ones left out. Helm 4 keeps a document's trailing blank lines, Helm 3 trims both ends.
pub fn split_manifests(text: &str, dialect: Dialect) -> Vec<&str> {
    match dialect {
        Dialect::Helm4 => split_at_line_starts(text),
        Dialect::Helm3 => split_trimming(text),
    }
}

/// `(?m)^---[ \t]*`: what follows on the line belongs to the next document, so that `---apiVersion: v1` works.
fn split_at_line_starts(text: &str) -> Vec<&str> {
    let text = text.trim_start();
    let mut found = Vec::new();
    let mut start = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        if bytes[at..].starts_with(b"---") {
            push(&mut found, &text[start..at]);
            start = at + 3;
            while matches!(bytes.get(start), Some(b' ' | b'\t')) {
                start += 1;
            }
            at = start;
        }
        at = match next_line(bytes, at) {
            Some(next) => next,
            None => break,
        };
    }
    push(&mut found, &text[start..]);
    found
}

/// `(?:^|\s*\n)---\s*`: at the start of the text, or after a line end and any blank before it.
fn split_trimming(text: &str) -> Vec<&str> {
    let text = text.trim();
    let mut found = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < text.len() {
        // A separator needs its own line end before it: the blanks after one cannot serve as the blanks before the next.
        if text[at..].starts_with("---") && (at == 0 || at > start) {
            found.push(&text[start..at]);
            start = at + 3 + (text[at + 3..].len() - trim_start_ascii(&text[at + 3..]).len());
            at = start;
            continue;
        }
        match next_line(text.as_bytes(), at) {
            Some(next) => at = next,
            None => break,
        }
    }
    found.push(&text[start..]);
    found.into_iter().filter(|d| !d.is_empty()).map(str::trim).collect()
}

fn trim_start_ascii(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r', '\x0c'])
}

fn next_line(bytes: &[u8], at: usize) -> Option<usize> {
    memchr(bytes, at).map(|end| end + 1)
}

fn memchr(bytes: &[u8], at: usize) -> Option<usize> {
    bytes[at..].iter().position(|b| *b == b'\n').map(|n| at + n)
}

fn push<'t>(found: &mut Vec<&'t str>, document: &'t str) {
    let document = document.trim_start();
    if !document.is_empty() {
        found.push(document);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helm_4_keeps_trailing_blank_lines() {
        assert_eq!(split_manifests("\n---\na: 1\n\n---   \nb: 2\n", Dialect::Helm4), ["a: 1\n\n", "b: 2\n"]);
    }

    #[test]
    fn helm_3_trims_both_ends() {
        assert_eq!(split_manifests("\n---\na: 1\n\n---   \nb: 2\n", Dialect::Helm3), ["a: 1", "b: 2"]);
    }

    #[test]
    fn a_separator_may_be_glued_to_what_follows() {
        assert_eq!(split_manifests("a: 1\n---b: 2\n", Dialect::Helm4), ["a: 1\n", "b: 2\n"]);
        assert_eq!(split_manifests("a: |\n  ---\n  x\n", Dialect::Helm4), ["a: |\n  ---\n  x\n"]);
        assert_eq!(split_manifests("---\n---\n---", Dialect::Helm4), Vec::<&str>::new());
    }
}
