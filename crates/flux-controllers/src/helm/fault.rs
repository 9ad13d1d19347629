//! Why an action failed: in Helm's words, with what explains it, and whether trying again may help by itself.

use flux_apply::apply::Cause;

use super::storage;

/// A failed action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    pub message: String,
    /// The API server or something it asks was not at its best: this says nothing about the release.
    pub transient: bool,
    /// What else is known: unready objects, reasons of their Pods, Warning events. Never logs, never values.
    pub details: Vec<String>,
    /// Given up for something newer.
    pub canceled: bool,
    /// Why the same would be refused for ever, as a reason of Stalled.
    pub lasting: Option<&'static str>,
}

impl Fault {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    pub fn of(cause: &Cause, message: impl Into<String>) -> Self {
        Self { message: message.into(), transient: is_transient(cause), ..Self::default() }
    }

    pub fn prefixed(mut self, prefix: &str) -> Self {
        self.message = format!("{prefix}{}", self.message);
        self
    }
}

impl From<storage::Error> for Fault {
    fn from(error: storage::Error) -> Self {
        let lasting = matches!(error, storage::Error::TooLarge(_)).then_some("ReleaseTooLarge");
        Self { transient: error.is_transient(), message: error.to_string(), lasting, ..Self::default() }
    }
}

/// Overload, time-outs and unreachable webhooks pass. What the server says about the object itself does not.
pub fn is_transient(cause: &Cause) -> bool {
    match cause {
        Cause::Refused { code, reason, message } => {
            matches!(code, 429 | 502 | 503 | 504)
                || (*code == 500 && is_passing(message))
                || (*code == 409
                    && reason != "AlreadyExists"
                    && message.contains("the object has been modified"))
        }
        Cause::NoSuchKind(_) => false,
        // No answer at all.
        Cause::Unknown(message) => !message.starts_with("no matches for kind"),
    }
}

fn is_passing(message: &str) -> bool {
    [
        "failed calling webhook",
        "failed to call webhook",
        "etcdserver: ",
        "raft proposal dropped",
        "leader changed",
        "context deadline exceeded",
        "connection refused",
        "i/o timeout",
        "EOF",
        "Timeout",
    ]
    .iter()
    .any(|passing| message.contains(passing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, reason: &str, message: &str) -> Cause {
        Cause::Refused { code, reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        for passing in [
            refused(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
            refused(429, "TooManyRequests", "slow down"),
            refused(
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"a.b\": connection refused",
            ),
            refused(500, "", "etcdserver: leader changed"),
            refused(409, "Conflict", "Operation cannot be fulfilled on x: the object has been modified"),
            Cause::Unknown("error sending request".to_owned()),
        ] {
            assert!(is_transient(&passing), "{passing:?}");
        }
        for lasting in [
            refused(422, "Invalid", "spec.selector: field is immutable"),
            refused(403, "Forbidden", "admission webhook \"x\" denied the request: no"),
            refused(400, "BadRequest", "admission webhook \"x\" denied the request: no"),
            refused(409, "AlreadyExists", "already exists"),
            refused(409, "Conflict", "Apply failed with 1 conflict"),
            Cause::Unknown("no matches for kind \"X\" in version \"y/v1\"".to_owned()),
        ] {
            assert!(!is_transient(&lasting), "{lasting:?}");
        }
    }
}
