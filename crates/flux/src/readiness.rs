//! Waiting: until an object is ready, or a request was handled, or time is up.

use std::time::Duration;

use flux_apply::health::{self, Status};
use jiff::Timestamp;
use serde_json::Value;

use crate::error::CliError;
use crate::kinds::{Kind, condition, text};
use crate::session::Session;

const POLL: Duration = Duration::from_millis(500);

/// Asks again and again until `is_done` says yes, fails, or the session's timeout is over. Returns the object as it was then.
pub(crate) async fn until(
    session: &Session,
    kind: &Kind,
    name: &str,
    is_done: impl Fn(&Value) -> Result<bool, CliError>,
) -> Result<Value, CliError> {
    let waiting = async {
        loop {
            let object = session.get(kind.api, name).await?;
            if is_done(&object)? {
                return Ok(object);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(session.timeout, waiting).await {
        Ok(done) => done,
        Err(_) => Err(CliError::timed_out()),
    }
}

/// Whether the controller has brought this generation of the object to where it should be.
pub(crate) fn is_ready(object: &Value) -> Result<bool, CliError> {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let (generation, observed) = (number("/metadata/generation"), number("/status/observedGeneration"));
    let Some(ready) = condition(object, "Ready") else { return Ok(false) };
    let condition_generation =
        ready.pointer("/observedGeneration").and_then(Value::as_i64).unwrap_or_default();
    let seen = if condition_generation == 0 { observed } else { condition_generation };
    if observed < 1 || seen != generation {
        return Ok(false);
    }
    is_current(object)
}

/// As kstatus sees it: ready, not yet, or failed for good with a message.
pub(crate) fn is_current(object: &Value) -> Result<bool, CliError> {
    let health = health::judge(object, Timestamp::now().as_second());
    match health.status {
        Status::Current => Ok(true),
        Status::InProgress => Ok(false),
        Status::Failed | Status::Terminating | Status::NotFound | Status::Unknown => {
            Err(CliError::new(health.message))
        }
    }
}

/// Whether a request newer than `before` has been handled, and well.
pub(crate) fn handled_since(object: &Value, before: &str) -> Result<bool, CliError> {
    if text(object, "/status/lastHandledReconcileAt") == before {
        return Ok(false);
    }
    is_current(object)
}
