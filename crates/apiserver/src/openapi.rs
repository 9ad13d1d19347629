//! OpenAPI documents: what `kubectl explain` and client-side validation read.

use std::sync::Arc;

use crate::respond::Answer;
use crate::server::Inner;
use crate::service::{Incoming, not_found_text};
use crate::status::Status;

pub fn answer(_server: &Arc<Inner>, _incoming: &Incoming, _parts: &[&str]) -> Result<Answer, Status> {
    Ok(not_found_text())
}
