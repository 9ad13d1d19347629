//! dotenv files: `KEY=value` lines and comments. No quoting: sops takes and gives the text as it stands, with `\n`
//! for a line break.

use super::{Format, output, replace, shown, syntax};
use crate::Error;
use crate::tree::{Branch, Comment, Item, Value, flat_text};

pub(super) fn read(bytes: &[u8]) -> Result<Branch, Error> {
    let mut branch = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix(b"#") {
            branch.push(Item::Comment(Comment { text: comment.to_vec(), inline: false }));
            continue;
        }
        let Some(at) = line.iter().position(|byte| *byte == b'=') else {
            return Err(syntax(Format::Dotenv, format!("line {}: no `=`", index + 1)));
        };
        branch.push(Item::Entry(line[..at].to_vec(), Value::Str(replace(&line[at + 1..], b"\\n", b"\n"))));
    }
    Ok(branch)
}

pub(super) fn write(branches: &[Branch]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    for item in branches.first().into_iter().flatten() {
        match item {
            Item::Comment(comment) => {
                out.push(b'#');
                out.extend_from_slice(&comment.text);
            }
            Item::Entry(key, value) => {
                let text = match value {
                    Value::Str(text) => replace(text, b"\n", b"\\n"),
                    _ => flat_text(value).ok_or_else(|| {
                        output(Format::Dotenv, format!("{} is {}", shown(key), value.kind()))
                    })?,
                };
                out.extend_from_slice(key);
                out.push(b'=');
                out.extend_from_slice(&text);
            }
        }
        out.push(b'\n');
    }
    Ok(out)
}
