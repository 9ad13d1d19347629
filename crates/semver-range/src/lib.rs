//! Version constraints with the semantics of Masterminds/semver v3.5, which is what Flux and Helm accept.
//!
//! `Version` is a semantic version, strict or coerced (`1.2`, `v1`); `Constraint` is an expression such as `>=1.2 <2 || ~3.1`.
//! Nothing here fetches or sorts tags: callers hand in strings and keep the versions that `Constraint::check` accepts.
//! Error texts are Masterminds' own, since users meet them in conditions and in template errors.

mod constraint;
mod quote;
mod scan;
mod version;

pub use constraint::{Constraint, ConstraintError};
pub use version::{Version, VersionError};
