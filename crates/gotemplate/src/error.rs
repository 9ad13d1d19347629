//! Errors of parsing and executing, in the words of Go's text/template.

/// What stopped a session that cost too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    #[error("template execution exceeds {0} steps")]
    Steps(u64),
    /// In Go's words, with Go's number: whoever looks for the text finds it. A session stops earlier, at the number here.
    #[error("exceeded maximum template depth (100000)")]
    Depth(u32),
    #[error("value is larger than {0} bytes")]
    ValueSize(usize),
    #[error("template execution holds more than {0} bytes")]
    LiveSize(u64),
    #[error("template execution takes more than {0} bytes")]
    TotalSize(u64),
    #[error("value is nested deeper than {0} levels")]
    Nesting(usize),
    #[error("template execution was cancelled")]
    Cancelled,
}

/// Which phase failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The text is no template: `template: NAME:LINE: …`
    Parse,
    /// Executing failed: `template: NAME:LINE:COLUMN: executing "NAME" at <…>: …`
    Execute,
    /// There is no template of that name.
    NoTemplate,
}

/// A failed parse or execution. Its `Display` is Go's error text.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    kind: ErrorKind,
    template: String,
    text: String,
    limit: Option<Limit>,
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The template that failed; of nested ones, the outermost.
    pub fn template(&self) -> &str {
        &self.template
    }

    /// The limit that was reached, if that is why it failed.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    pub(crate) fn parse(template: &str, text: String) -> Self {
        Self { kind: ErrorKind::Parse, template: template.to_owned(), text, limit: None }
    }

    pub(crate) fn execute(template: &str, text: String, limit: Option<Limit>) -> Self {
        Self { kind: ErrorKind::Execute, template: template.to_owned(), text, limit }
    }

    pub(crate) fn no_template(name: &str, associated: &str) -> Self {
        let text = format!(
            "template: no template {} associated with template {}",
            crate::strconv::quote(name.as_bytes()),
            crate::strconv::quote(associated.as_bytes())
        );
        Self { kind: ErrorKind::NoTemplate, template: name.to_owned(), text, limit: None }
    }
}
