//! What went wrong, in the words that end up behind `✗`, and the exit code it means.

use std::fmt;

/// An error as the user reads it: one text, one exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    text: String,
    code: u8,
    mark: &'static str,
    no_such_kind: bool,
    not_found: bool,
    timeout: bool,
}

impl CliError {
    pub(crate) fn new(text: impl Into<String>) -> CliError {
        CliError {
            text: text.into(),
            code: 1,
            mark: "✗",
            no_such_kind: false,
            not_found: false,
            timeout: false,
        }
    }

    /// The API server has no such object.
    pub(crate) fn not_found(text: impl Into<String>) -> CliError {
        CliError { not_found: true, ..CliError::new(text) }
    }

    /// Time was up. The words are Go's, which scripts look for.
    pub(crate) fn timed_out() -> CliError {
        CliError { timeout: true, ..CliError::new("context deadline exceeded") }
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.timeout
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.not_found
    }

    pub(crate) fn with_code(self, code: u8) -> CliError {
        CliError { code, ..self }
    }

    /// Not a failure but news, such as a difference: told with another mark.
    pub(crate) fn into_warning(self) -> CliError {
        CliError { mark: "⚠️", ..self }
    }

    /// A report has said it all: only the exit code is left.
    pub(crate) fn quiet(code: u8) -> CliError {
        CliError { code, ..CliError::new("") }
    }

    /// There is no verdict, which is neither good nor bad.
    pub(crate) fn unjudged(text: impl Into<String>) -> CliError {
        CliError { code: 2, ..CliError::new(text) }
    }

    /// The API server does not know the kind: its CRD is not installed.
    pub(crate) fn no_such_kind(kind: &str, api_version: &str) -> CliError {
        let text = format!("no matches for kind \"{kind}\" in version \"{api_version}\"");
        CliError { no_such_kind: true, ..CliError::new(text) }
    }

    pub(crate) fn is_no_such_kind(&self) -> bool {
        self.no_such_kind
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn mark(&self) -> &'static str {
        self.mark
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CliError {}

/// An error with this text, as `format!` makes it.
macro_rules! fail {
    ($($text:tt)*) => { $crate::error::CliError::new(format!($($text)*)) };
}
pub(crate) use fail;

/// An error of the file system as Go words it: `open x: no such file or directory`.
pub(crate) fn go_io(path: &std::path::Path, error: &std::io::Error) -> String {
    format!("open {}: {}", path.display(), go_cause(error))
}

/// The cause alone: without Rust's `(os error 2)` and in lower case.
pub(crate) fn go_cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
