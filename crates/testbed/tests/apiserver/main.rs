//! The embedded API server beside the real one: recordings that must not rot, ownership, and clients written by others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
mod kubernetes_e2e;
mod ownership;
mod recordings;

#[path = "../../../apiserver/tests/transcript/mod.rs"]
mod transcript;
