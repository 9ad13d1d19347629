//! What changes a cluster: staged server-side apply, inventory, prune, health.
//!
//! Ordering, drift, ownership and health are decided by pure functions; `apply` and `prune` carry them out.

pub mod apply;
pub mod authors;
pub mod changes;
pub mod discovery;
pub mod drift;
pub mod fingerprint;
pub mod health;
pub mod health_exprs;
pub mod ignore;
pub mod inventory;
pub mod managers;
pub mod object;
pub mod order;
pub mod prune;

pub use apply::{Action, Change, Cluster, Found, Known, Options, Verified, apply, identities};
pub use discovery::KnownKinds;
pub use fingerprint::Fingerprint;
pub use ignore::IgnoreRules;
pub use inventory::Inventory;
pub use object::ObjectId;
pub use prune::{Owner, prune};
