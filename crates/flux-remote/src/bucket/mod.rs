//! Object stores that speak S3: what is in a bucket, and the objects.
//!
//! Requests are signed here (Signature Version 4); there is no upload, no versioning and no other store's own protocol.

mod index;
mod s3;
mod signature;
mod xml;

pub use index::Index;
pub use s3::{Object, Store};
pub use signature::Keys;
pub(crate) use signature::{sign_body, signature};
pub(crate) use xml::text_of as xml_text;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Endpoint(String),
    #[error("{url}: {cause}")]
    Unreachable { url: String, cause: String },
    /// The store says no, in its own words where it has some.
    #[error("{problem}")]
    Refused { status: u16, code: String, problem: String },
    #[error("{0}")]
    Answer(String),
    #[error("object '{key}' has more than {limit} bytes")]
    TooLarge { key: String, limit: u64 },
    #[error("the bucket has more than {0} objects")]
    TooMany(usize),
    #[error("{0}")]
    Transport(#[from] crate::transport::Error),
}
