//! The difference of two objects as people of Flux know it: a path, what was added, removed or changed below it.
//!
//! The form is dyff's. Certificates are compared as text, which dyff summarises; everything else is meant to be the same.
//! No colours. Pure.

mod compare;
mod lines;
mod neat;
mod report;

pub(in crate::commands) use report::report;
