//! Chart repositories over HTTP: an index, which may be huge, and the archives it names.
//!
//! An index is never held in memory. [`scan`] finds where each entry begins and ends, [`convert`] turns the entries
//! one by one into the JSON that is stored, and [`StoredIndex`] reads from that only the chart that is asked for.

mod address;
mod convert;
mod download;
mod json;
mod pick;
mod scan;
mod stored;
mod yaml;

pub use address::{normalize, resolve};
pub use convert::{Converted, convert};
pub use download::{Downloaded, Login, Repository};
pub use pick::{ChartVersion, PickError, parse_version, pick, pick_tag};
pub use scan::{Format, Layout, Span, scan};
pub use stored::{LookupError, StoredIndex};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Address(String),
    #[error("failed to fetch {url} : {status}")]
    Status { url: String, status: String },
    #[error("failed to fetch {url}: {cause}")]
    Unreachable { url: String, cause: String },
    #[error("index exceeds the maximum index file size of {0} bytes")]
    IndexTooLarge(u64),
    #[error("size of chart '{name}' exceeds '{limit}' bytes limit")]
    ChartTooLarge { name: String, limit: u64 },
    #[error("empty index.yaml file")]
    Empty,
    #[error("no API version specified")]
    NoApiVersion,
    #[error("{0}")]
    Malformed(String),
    /// The text is YAML of a form that cannot be cut into entries.
    #[error("the index uses YAML features that need all of it in memory, and it has more than {0} bytes")]
    Irregular(u64),
    #[error("{0}")]
    Transport(#[from] crate::transport::Error),
}
