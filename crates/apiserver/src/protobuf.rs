//! Protobuf bodies.

use serde_json::Value;

use crate::media::BODY_TYPES;
use crate::status::Status;

pub fn to_json(_bytes: &[u8]) -> Result<Value, Status> {
    Err(Status::unsupported_media_type(&BODY_TYPES[..2]))
}
