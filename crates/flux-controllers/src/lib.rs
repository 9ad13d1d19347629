//! Every controller of the GitOps toolkit, and the loop they share.
//!
//! `reconcile/` is the loop, `artifact/` what passes from sources to their consumers, `identity/` with whose rights they
//! act, then one folder a controller and one file a kind.

pub mod artifact;
pub mod helm;
pub mod identity;
pub mod image;
pub mod kustomize;
pub mod manager;
pub mod notification;
pub mod reconcile;
pub mod source;
pub mod watcher;
