//! Schemas at work: what an object must look like, and what is done to it before it is stored.

pub mod builtin;
