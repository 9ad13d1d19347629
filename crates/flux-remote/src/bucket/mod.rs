//! Object stores: what is in a bucket, and the objects. S3 and what speaks it, Google Cloud Storage, Azure Blob Storage.
//!
//! Requests are signed here (Signature Version 4, Azure's shared keys); tokens come from `cloud`. There is no upload and no
//! versioning.

mod azure;
mod google;
mod http;
mod index;
mod s3;
mod shared_key;
mod signature;
mod xml;

pub use azure::{Azure, AzureAccess, azure_account};
pub use google::Google;
pub use index::Index;
pub use s3::S3;
pub use shared_key::SharedKey;
pub use signature::Keys;
pub(crate) use signature::{sign_body, signature};
pub(crate) use xml::text_of as xml_text;

/// A place that holds buckets.
pub enum Store {
    S3(S3),
    Google(Google),
    Azure(Azure),
}

/// An object as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub etag: String,
    pub bytes: Vec<u8>,
}

impl Store {
    pub async fn bucket_exists(&self, bucket: &str) -> Result<bool, Error> {
        match self {
            Store::S3(store) => store.bucket_exists(bucket).await,
            Store::Google(store) => store.bucket_exists(bucket).await,
            Store::Azure(store) => store.bucket_exists(bucket).await,
        }
    }

    /// Calls `each` with key and ETag of every object whose key begins with `prefix`.
    pub async fn list(
        &self,
        bucket: &str,
        prefix: &str,
        each: impl FnMut(String, String),
    ) -> Result<(), Error> {
        match self {
            Store::S3(store) => store.list(bucket, prefix, each).await,
            Store::Google(store) => store.list(bucket, prefix, each).await,
            Store::Azure(store) => store.list(bucket, prefix, each).await,
        }
    }

    /// An object; `None` when there is none.
    pub async fn get(&self, bucket: &str, key: &str, largest: u64) -> Result<Option<Object>, Error> {
        match self {
            Store::S3(store) => store.get(bucket, key, largest).await,
            Store::Google(store) => store.get(bucket, key, largest).await,
            Store::Azure(store) => store.get(bucket, key, largest).await,
        }
    }
}

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
