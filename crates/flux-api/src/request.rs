//! When an annotation counts as a new request: `reconcile.fluxcd.io/requestedAt`, `forceAt`, `resetAt`.

use std::collections::BTreeMap;

use crate::names::{FORCE_REQUEST, RECONCILE_REQUEST, RESET_REQUEST};

/// The request an object carries, whether handled or not.
pub fn reconcile_request(annotations: Option<&BTreeMap<String, String>>) -> Option<&str> {
    annotations?.get(RECONCILE_REQUEST).map(String::as_str)
}

/// Whether somebody asks to reconcile now: the annotation is there and differs from what was handled last. Removing it asks for nothing.
pub fn reconcile_requested(
    annotations: Option<&BTreeMap<String, String>>,
    last_handled: Option<&str>,
) -> bool {
    reconcile_request(annotations).is_some_and(|token| token != last_handled.unwrap_or_default())
}

/// What a `forceAt` or `resetAt` annotation comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extra<'a> {
    /// The value to record as handled, whether or not it is honoured; `None` leaves the record as it is.
    pub record: Option<&'a str>,
    /// Whether to do it.
    pub honour: bool,
}

/// Whether to force: once, and only together with a new request of the same value.
pub fn force_requested<'a>(
    annotations: Option<&'a BTreeMap<String, String>>,
    last_handled_reconcile: Option<&str>,
    last_handled_force: Option<&str>,
) -> Extra<'a> {
    extra(annotations, FORCE_REQUEST, last_handled_reconcile, last_handled_force)
}

/// Whether to forget failures: once, and only together with a new request of the same value.
pub fn reset_requested<'a>(
    annotations: Option<&'a BTreeMap<String, String>>,
    last_handled_reconcile: Option<&str>,
    last_handled_reset: Option<&str>,
) -> Extra<'a> {
    extra(annotations, RESET_REQUEST, last_handled_reconcile, last_handled_reset)
}

fn extra<'a>(
    annotations: Option<&'a BTreeMap<String, String>>,
    annotation: &str,
    last_handled_reconcile: Option<&str>,
    last_handled: Option<&str>,
) -> Extra<'a> {
    let token = annotations.and_then(|all| all.get(annotation)).map(String::as_str);
    let honour = token.is_some()
        && token == reconcile_request(annotations)
        && reconcile_requested(annotations, last_handled_reconcile)
        && token != last_handled;
    Extra { record: token, honour }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_request_counts_once_and_its_removal_never() {
        let asked = annotations(&[(RECONCILE_REQUEST, "now")]);
        assert!(reconcile_requested(Some(&asked), None));
        assert!(reconcile_requested(Some(&asked), Some("before")));
        assert!(!reconcile_requested(Some(&asked), Some("now")));
        assert!(!reconcile_requested(Some(&annotations(&[])), Some("now")));
        assert!(!reconcile_requested(None, Some("now")));
    }

    #[test]
    fn forcing_needs_the_same_new_request() {
        let both = annotations(&[(RECONCILE_REQUEST, "2"), (FORCE_REQUEST, "2")]);
        assert!(force_requested(Some(&both), Some("1"), None).honour);
        assert!(!force_requested(Some(&both), Some("2"), None).honour, "the request was handled");
        assert!(!force_requested(Some(&both), Some("1"), Some("2")).honour, "it was forced already");
        let apart = annotations(&[(RECONCILE_REQUEST, "3"), (FORCE_REQUEST, "2")]);
        assert_eq!(
            force_requested(Some(&apart), Some("1"), None),
            Extra { record: Some("2"), honour: false }
        );
        assert_eq!(reset_requested(Some(&both), None, None), Extra { record: None, honour: false });
    }
}
