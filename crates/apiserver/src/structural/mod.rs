//! Schemas at work: what an object must look like, and what is done to it before it is stored.
//!
//! * [`builtin`]: builtin kinds in the form that Go's structures give them.
//! * [`Structural`]: a CRD's schema. [`Structural::parse`] and [`Structural::check`] when the CRD is written, then for each
//!   object [`Structural::prune`], [`Structural::default`] and [`Structural::validate`], in that order.
//! * [`Rules`]: the CEL rules of a CRD, compiled once ([`Structural::rules`]), run after a successful validation.
//!
//! Messages are Kubernetes' own. Deliberately absent: estimates of what a rule may cost (running has a budget instead).

pub mod builtin;

mod check;
mod declared;
mod embedded;
mod field_error;
mod formats;
mod lists;
mod prune;
mod rules;
mod schema;
mod validate;

#[cfg(test)]
mod tests;

pub use field_error::{ErrorKind, FieldError, Shown};
pub use rules::Rules;
pub use schema::{Structural, Unreadable};
