//! The kinds of Flux: types, names, condition rules, CRDs.
//!
//! ```text
//! kinds ──── one row per kind: group, version, names, controller
//! source, kustomize, helm, notification, image, extensions ──── spec and status of each kind
//! meta, condition, artifact ──── what they share        revision, digest, duration, time, path, secret ──── values that carry a proof
//! names, reason, inventory, request ──── annotations, labels, ids     crds ──── the same types as CustomResourceDefinitions
//! ```
//!
//! Everything here is a value or a function over values: no files, no sockets, no clock. What a controller does with an object is
//! in `flux-controllers`.

mod absent;
mod closed_set;
mod object;

pub mod kinds;

pub mod extensions;
pub mod helm;
pub mod image;
pub mod kustomize;
pub mod notification;
pub mod source;

pub mod artifact;
pub mod condition;
pub mod inventory;
pub mod meta;
pub mod names;
pub mod reason;
pub mod request;

pub mod digest;
pub mod duration;
pub mod path;
pub mod revision;
pub mod secret;
pub mod time;

pub mod crds;
pub mod parse;

pub use closed_set::NotInSet;
pub use object::Object;
