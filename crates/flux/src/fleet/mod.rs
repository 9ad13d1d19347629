//! A fleet on this machine, for `flux up` and `flux test`: where its files come from, a cluster in this process to run
//! it on, and what became of its objects.

pub(crate) mod cluster;
pub(crate) mod depot;
pub(crate) mod draw;
mod example;
pub(crate) mod files;
mod log_book;
mod overheard;
pub(crate) mod seen;

pub(crate) use cluster::{Cluster, Settings};
pub(crate) use files::{EntryPoint, Fleet};
pub(crate) use log_book::{IntoBook, LogBook};
pub(crate) use overheard::Said;
pub(crate) use seen::{Seen, Verdict};
