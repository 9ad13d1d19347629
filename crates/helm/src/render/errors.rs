//! Template errors as Helm shows them: Helm takes Go's text apart again and lays it out.

use gotemplate::{Error, ErrorKind};

use super::RenderError;
use crate::Dialect;

pub(super) const WARN_START: &str = "HELM_ERR_START";
pub(super) const WARN_END: &str = "HELM_ERR_END";

/// `template: NAME:LINE: …: CAUSE` becomes `parse error at (NAME:LINE): CAUSE`.
pub(super) fn parsing(error: &Error, file: &str) -> RenderError {
    let text = error.to_string();
    let tokens: Vec<&str> = text.split(": ").collect();
    let shown = match tokens.as_slice() {
        [_] => format!("parse error in ({file}): {text}"),
        [_, location, .., cause] => format!("parse error at ({location}): {cause}"),
        [_, location] => format!("parse error at ({location}): {location}"),
        [] => text,
    };
    RenderError::Template(shown)
}

pub(super) fn execution(error: &Error, file: &str, dialect: Dialect) -> RenderError {
    let text = reformat(error, file, dialect);
    match error.limit() {
        Some(limit) => RenderError::Limit { text, limit },
        None => RenderError::Template(text),
    }
}

fn reformat(error: &Error, file: &str, dialect: Dialect) -> String {
    let text = error.to_string();
    if error.kind() != ErrorKind::Execute {
        return text;
    }
    let mut tokens = text.splitn(3, ": ");
    let (Some(_), Some(location), Some(rest)) = (tokens.next(), tokens.next(), tokens.next()) else {
        return format!("execution error in ({file}): {text}");
    };
    if let Some(message) = between(rest, WARN_START, WARN_END) {
        return format!("execution error at ({location}): {message}");
    }
    match dialect {
        Dialect::Helm3 => text,
        Dialect::Helm4 => traced(&text).unwrap_or(text),
    }
}

/// The first opening and the last closing mark, as a greedy expression finds them.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Option<&'t str> {
    let start = text.find(open)? + open.len();
    let end = text.rfind(close)?;
    text.get(start..end)
}

/// One line of the trace Helm 4 makes of nested template errors.
#[derive(PartialEq, Eq)]
struct Trace<'t> {
    location: &'t str,
    executing: String,
    message: &'t str,
}

/// Follows an error into the errors it wraps. Only `include` wraps a template error as it is; whatever another function wraps is
/// no template error to Helm, and then Helm shows the text unchanged.
fn traced(text: &str) -> Option<String> {
    let mut traces: Vec<Trace<'_>> = Vec::new();
    let mut current = Some(text);
    while let Some(text) = current {
        let (trace, wrapped) = parse(text)?;
        if traces.last() != Some(&trace) {
            traces.push(trace);
        }
        current = match wrapped {
            None => None,
            Some(("include", inner)) if inner.starts_with("template: ") => Some(inner),
            Some(_) => return None,
        };
    }
    let mut out = String::new();
    for trace in traces {
        if !trace.location.is_empty() {
            out.push_str(&format!("{}\n  ", trace.location));
        }
        if !trace.executing.is_empty() {
            out.push_str(&format!("{}\n    ", trace.executing));
        }
        if !trace.message.is_empty() {
            out.push_str(&format!("{}\n", trace.message));
        }
    }
    Some(out.trim().to_owned())
}

/// What an error wraps: the function that failed, and its error's text.
type Wrapped<'t> = Option<(&'t str, &'t str)>;

fn parse(text: &str) -> Option<(Trace<'_>, Wrapped<'_>)> {
    let rest = text.strip_prefix("template: ")?;
    if rest.starts_with("no template ") {
        return Some((Trace { location: "", executing: String::new(), message: text }, None));
    }
    if let Some((location, after)) = rest.split_once(": executing ") {
        let after = after.strip_prefix('"')?;
        let (function, after) = after.split_once('"')?;
        let after = after.strip_prefix(" at <")?;
        let (place, message) = after.split_once(">: ")?;
        let wrapped = message.strip_prefix("error calling ").and_then(|m| m.split_once(": "));
        let message = message.find(" template:").map_or(message, |cut| &message[..cut]);
        return Some((
            Trace { location, executing: format!("executing \"{function}\" at <{place}>:"), message },
            wrapped,
        ));
    }
    let (location, message) = rest.rsplit_once(": ")?;
    let message = message.find(" template:").map_or(message, |cut| &message[..cut]);
    Some((Trace { location, executing: String::new(), message }, None))
}
