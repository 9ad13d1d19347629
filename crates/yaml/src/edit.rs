//! Changing one scalar of a text: every other byte, comments and line ends included, stays as it is.

use crate::emit::quoted_scalar;
use crate::node::{Node, ScalarStyle};
use crate::{Error, ErrorKind};

/// The bytes of a scalar in its source, quotes included.
pub fn scalar_source<'a>(source: &'a [u8], node: &Node) -> Option<&'a [u8]> {
    node.as_scalar().and_then(|_| source.get(node.position().span()))
}

/// `source` with the scalar `node` (parsed from it) replaced by `text`.
///
/// The quotes of the old value are kept where the new one allows it. A plain value that would change its kind
/// (a string that looks like a number) gets double quotes.
pub fn replace_scalar(source: &[u8], node: &Node, text: &str) -> Result<Vec<u8>, Error> {
    let refuse = |message: &str| Error::new(ErrorKind::Value, message);
    let scalar = node.as_scalar().ok_or_else(|| refuse("only a scalar can be replaced in place"))?;
    let span = node.position().span();
    if node.position().line == 0 || span.end > source.len() {
        return Err(refuse("the scalar does not come from this text"));
    }
    if matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded) || text.contains(['\n', '\r']) {
        return Err(refuse("a scalar of several lines cannot be replaced in place"));
    }
    let is_string = node.short_tag() == "!!str";
    let written = quoted_scalar(text, scalar.style, is_string);
    let mut out = Vec::with_capacity(source.len() + written.len());
    out.extend_from_slice(&source[..span.start]);
    if span.is_empty() && source[..span.start].ends_with(b":") {
        out.push(b' ');
    }
    out.extend_from_slice(written.as_bytes());
    out.extend_from_slice(&source[span.end..]);
    Ok(out)
}
