//! Where the parts of a version or of a constraint's version begin and end in a string.
//!
//! Only shapes are found here. Whether a number fits and whether a pre-release is well formed is judged by `version`.

/// The slices of `[v]major[.minor][.patch][-pre][+metadata]`; `minor`, `patch` and the rest are empty when absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) major: &'a str,
    pub(crate) minor: &'a str,
    pub(crate) patch: &'a str,
    pub(crate) pre: &'a str,
    pub(crate) metadata: &'a str,
    /// How many bytes all of it takes.
    pub(crate) len: usize,
}

/// The longest version at the start of `text`, with segments made of `is_segment` bytes.
pub(crate) fn version_prefix(text: &str, is_segment: fn(u8) -> bool) -> Option<Parts<'_>> {
    let bytes = text.as_bytes();
    let start = usize::from(bytes.first() == Some(&b'v'));
    let major_end = run(bytes, start, is_segment);
    if major_end == start {
        return None;
    }
    let minor_end = dotted(bytes, major_end, is_segment);
    let patch_end = if minor_end == major_end { minor_end } else { dotted(bytes, minor_end, is_segment) };
    let pre_end = marked(bytes, patch_end, b'-');
    let metadata_end = marked(bytes, pre_end, b'+');
    Some(Parts {
        major: &text[start..major_end],
        minor: skip_first(&text[major_end..minor_end]),
        patch: skip_first(&text[minor_end..patch_end]),
        pre: skip_first(&text[patch_end..pre_end]),
        metadata: skip_first(&text[pre_end..metadata_end]),
        len: metadata_end,
    })
}

/// A segment of a constraint may be a wildcard. Masterminds' character class also lets `|` through, so that `1|2` is not "improper"
/// but fails later as a number.
pub(crate) fn is_constraint_segment(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'x' | b'X' | b'*' | b'|')
}

/// Go's `\s`.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}

pub(crate) fn skip_spaces(bytes: &[u8], from: usize) -> usize {
    run(bytes, from, is_space)
}

fn run(bytes: &[u8], from: usize, accept: fn(u8) -> bool) -> usize {
    from + bytes[from..].iter().take_while(|b| accept(**b)).count()
}

/// `.segment` at `from`, or nothing.
fn dotted(bytes: &[u8], from: usize, is_segment: fn(u8) -> bool) -> usize {
    if bytes.get(from) != Some(&b'.') {
        return from;
    }
    let end = run(bytes, from + 1, is_segment);
    if end == from + 1 { from } else { end }
}

/// `mark` and dot-separated identifiers at `from`, or nothing.
fn marked(bytes: &[u8], from: usize, mark: u8) -> usize {
    if bytes.get(from) != Some(&mark) {
        return from;
    }
    let is_identifier = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let mut end = run(bytes, from + 1, is_identifier);
    if end == from + 1 {
        return from;
    }
    loop {
        let next = dotted(bytes, end, is_identifier);
        if next == end {
            return end;
        }
        end = next;
    }
}

fn skip_first(text: &str) -> &str {
    text.get(1..).unwrap_or_default()
}
