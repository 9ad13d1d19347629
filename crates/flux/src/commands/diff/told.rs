//! What a comparison has to say, and the exit code it means.

use crate::error::{CliError, fail};
use crate::output;

/// Lines, whether there is a difference, and what could not be compared.
#[derive(Default)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) changed: bool,
    pub(super) errors: Vec<String>,
}

impl Told {
    pub(super) fn line(&mut self, mark: &str, object: &dyn std::fmt::Display, what: &str) {
        self.text.push_str(&format!("{mark} {object} {what}\n"));
    }

    /// Prints it and ends with the right exit code: 0 no difference, 1 one or more, 2 there is no telling.
    pub(super) fn end(self) -> Result<(), CliError> {
        output::data(&self.text)?;
        if !self.errors.is_empty() {
            return Err(aggregate(&self.errors).with_code(2));
        }
        if self.changed {
            let text = "identified at least one change, exiting with non-zero exit code";
            return Err(CliError::new(text).into_warning());
        }
        Ok(())
    }
}

/// One error is itself; several stand in brackets.
fn aggregate(errors: &[String]) -> CliError {
    match errors {
        [only] => CliError::new(only.clone()),
        several => fail!("[{}]", several.join(", ")),
    }
}
