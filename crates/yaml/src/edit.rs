//! Changing one scalar of a text: every other byte, comments and line ends included, stays as it is.

use std::ops::Range;

use crate::emit::quoted_scalar;
use crate::node::{Node, ScalarStyle, Value};
use crate::{Error, ErrorKind, Options, Schema, parse_stream};

/// The bytes of a scalar in its source, quotes included.
pub fn scalar_source<'a>(source: &'a [u8], node: &Node) -> Option<&'a [u8]> {
    node.as_scalar().and_then(|_| source.get(node.position().span()))
}

/// `source` with the scalar `node` (parsed from it) replaced by `text`.
///
/// The quotes of the old value are kept where the new one allows it. A plain string that would become something
/// else (a version that looks like a number) gets double quotes. Several lines are refused, old or new.
pub fn replace_scalar(source: &[u8], node: &Node, text: &str) -> Result<Vec<u8>, Error> {
    let scalar = node.as_scalar().ok_or_else(|| refused("only a scalar can be replaced in place"))?;
    let span = node.position().span();
    if node.position().line == 0 || span.end > source.len() {
        return Err(refused("the scalar does not come from this text"));
    }
    if matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded) || text.contains(['\n', '\r']) {
        return Err(refused("a scalar of several lines cannot be replaced in place"));
    }
    let is_string = node.short_tag() == "!!str";
    let splice = |written: &str| {
        let (before, after) = (&source[..span.start], &source[span.end..]);
        // Where there was no value there may be no space before it either.
        let joined = before.last().is_some_and(|byte| !byte.is_ascii_whitespace());
        let space = if span.is_empty() && joined { " " } else { "" };
        [before, space.as_bytes(), written.as_bytes(), after].concat()
    };
    let written = quoted_scalar(text, scalar.style, is_string, false);
    let changed = splice(&written);
    // Brackets and commas are fine in a plain scalar, but not inside a flow collection.
    let ends_flow = written == text && text.contains([',', '?', '[', ']', '{', '}']);
    if ends_flow && !reads_as(&changed, span.start, text) {
        return Ok(splice(&quoted_scalar(text, scalar.style, is_string, true)));
    }
    Ok(changed)
}

/// Where and what to write so that the scalar `node` (parsed from `source`) becomes the string `text`, of one line.
///
/// Unlike [`replace_scalar`] it does not ask what the old value was: what looks like a number or a null is quoted. A
/// literal or folded scalar keeps its style and its comment, its lines become the one.
pub fn string_edit(source: &[u8], node: &Node, text: &str) -> Result<(Range<usize>, Vec<u8>), Error> {
    let scalar = node.as_scalar().ok_or_else(|| refused("only a scalar can be replaced in place"))?;
    let span = node.position().span();
    if node.position().line == 0 || span.end > source.len() {
        return Err(refused("the scalar does not come from this text"));
    }
    if text.contains(['\n', '\r']) {
        return Err(refused("a text of several lines cannot be written in place"));
    }
    if matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded) {
        let written = block_of_one_line(&source[span.clone()], text);
        return written.map(|written| (span, written)).ok_or_else(|| refused("a block scalar without lines"));
    }
    let joined = source[..span.start].last().is_some_and(|byte| !byte.is_ascii_whitespace());
    let space = if span.is_empty() && joined { " " } else { "" };
    // Only these end a plain scalar inside of brackets; elsewhere quotes do no harm.
    let in_flow = text.contains([',', '?', '[', ']', '{', '}']);
    let written = quoted_scalar(text, scalar.style, true, in_flow);
    Ok((span, [space, &written].concat().into_bytes()))
}

/// The header with its comment stays, except that nothing is kept of the line end; so does the indentation.
fn block_of_one_line(old: &[u8], text: &str) -> Option<Vec<u8>> {
    let header_end = old.iter().position(|byte| *byte == b'\n')? + 1;
    let (header, lines) = old.split_at(header_end);
    let indicators = header.iter().take_while(|byte| b"|>+-0123456789".contains(byte)).count();
    let style = header.first().copied()?;
    let first = lines.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty())?;
    let indentation = first.iter().take_while(|byte| **byte == b' ').count();
    let line_end: &[u8] = match (lines.ends_with(b"\r\n"), lines.ends_with(b"\n")) {
        (true, _) => b"\r\n",
        (false, true) => b"\n",
        (false, false) => b"",
    };
    let written = [&[style, b'-'], &header[indicators..], &first[..indentation], text.as_bytes(), line_end];
    Some(written.concat())
}

/// Whether the text has, at that byte, a scalar that means `expected`.
fn reads_as(source: &[u8], at: usize, expected: &str) -> bool {
    let documents = parse_stream(source, &Options::new(Schema::V3)).unwrap_or_default();
    documents.iter().find_map(|document| scalar_at(&document.root, at)).is_some_and(|found| found == expected)
}

fn scalar_at(node: &Node, at: usize) -> Option<&str> {
    match &node.value {
        Value::Scalar(scalar) => (node.position().span().start == at).then_some(scalar.text.as_str()),
        Value::Alias(_) => None,
        Value::Sequence(sequence) => sequence.items.iter().find_map(|item| scalar_at(item, at)),
        Value::Mapping(mapping) => {
            mapping.iter().find_map(|(key, value)| scalar_at(key, at).or_else(|| scalar_at(value, at)))
        }
    }
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::Value, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(source: &str, path: &[&str], text: &str) -> String {
        let documents = parse_stream(source.as_bytes(), &Options::new(Schema::V3)).unwrap();
        let node = documents[0].root.get_path(path).unwrap();
        String::from_utf8(replace_scalar(source.as_bytes(), node, text).unwrap()).unwrap()
    }

    #[test]
    fn an_image_stays_plain_and_the_comment_stays() {
        let source = "spec:\n  image: app:1.0.0 # {\"$imagepolicy\": \"flux:app\"}\n";
        assert_eq!(
            replaced(source, &["spec", "image"], "app:1.2.3"),
            "spec:\n  image: app:1.2.3 # {\"$imagepolicy\": \"flux:app\"}\n"
        );
    }

    #[test]
    fn quotes_are_kept() {
        assert_eq!(replaced("a: 'x'\n", &["a"], "it's"), "a: 'it''s'\n");
        assert_eq!(replaced("a: \"x\"\n", &["a"], "y"), "a: \"y\"\n");
        assert_eq!(replaced("a: 'x'\n", &["a"], "tab\t"), "a: \"tab\\t\"\n");
    }

    #[test]
    fn a_string_stays_a_string_and_a_number_a_number() {
        assert_eq!(replaced("tag: v1\n", &["tag"], "1.10"), "tag: \"1.10\"\n");
        assert_eq!(replaced("port: 80\n", &["port"], "8080"), "port: 8080\n");
    }

    #[test]
    fn line_ends_marks_and_a_missing_last_line_end_stay() {
        assert_eq!(replaced("\u{feff}a: x\r\nb: y", &["b"], "z"), "\u{feff}a: x\r\nb: z");
        assert_eq!(replaced("\u{feff}a: x\r\nb: y", &["a"], "zz"), "\u{feff}a: zz\r\nb: y");
    }

    #[test]
    fn flow_collections_are_not_broken() {
        assert_eq!(replaced("a: {b: x, c: d}\n", &["a", "b"], "1,2"), "a: {b: '1,2', c: d}\n");
        assert_eq!(replaced("a: {b: x, c: d}\n", &["a", "b"], "y:1"), "a: {b: y:1, c: d}\n");
        assert_eq!(replaced("a: x\n", &["a"], "y, z"), "a: y, z\n");
    }

    #[test]
    fn a_missing_value_is_put_behind_its_key() {
        assert_eq!(replaced("a:\nb: 1\n", &["a"], "x"), "a: x\nb: 1\n");
        assert_eq!(replaced("a: !!str # c\n", &["a"], "x"), "a: !!str x # c\n");
    }

    #[test]
    fn a_string_is_written_whatever_was_there() {
        let written = |source: &str, path: &[&str], text: &str| {
            let documents = parse_stream(source.as_bytes(), &Options::new(Schema::V3)).unwrap();
            let node = documents[0].root.get_path(path).unwrap();
            let (span, bytes) = string_edit(source.as_bytes(), node, text).unwrap();
            let (before, after) = (&source.as_bytes()[..span.start], &source.as_bytes()[span.end..]);
            String::from_utf8([before, &bytes, after].concat()).unwrap()
        };
        assert_eq!(written("tag: 1.0 # c\n", &["tag"], "1.10"), "tag: \"1.10\" # c\n");
        assert_eq!(written("tag: 1\n", &["tag"], "v2"), "tag: v2\n");
        assert_eq!(written("tag: v1\n", &["tag"], ""), "tag: \"\"\n");
        assert_eq!(written("tag:\n", &["tag"], "v1"), "tag: v1\n");
        assert_eq!(written("tag: ~\n", &["tag"], "v1"), "tag: v1\n");
        assert_eq!(written("a: {b: x, c: d}\n", &["a", "b"], "r.io/y:1"), "a: {b: r.io/y:1, c: d}\n");
        assert_eq!(written("a: {b: x, c: d}\n", &["a", "b"], "1,2"), "a: {b: '1,2', c: d}\n");
        assert_eq!(written("a: {b: 'x', c: d}\n", &["a", "b"], "r:5/y:1@s"), "a: {b: 'r:5/y:1@s', c: d}\n");
        assert_eq!(written("a: | # c\n  x\n\nb: 1\n", &["a"], "y"), "a: |- # c\n  y\nb: 1\n");
        assert_eq!(written("a: >2-\r\n   x\r\n", &["a"], "y"), "a: >-\r\n   y\r\n");
    }

    #[test]
    fn several_lines_are_refused() {
        let source = b"a: |\n  x\n";
        let root = parse_stream(source, &Options::new(Schema::V3)).unwrap().remove(0).root;
        assert!(replace_scalar(source, root.get("a").unwrap(), "y").is_err());
        assert!(replace_scalar(source, &Node::string("made"), "y").is_err());
    }
}
