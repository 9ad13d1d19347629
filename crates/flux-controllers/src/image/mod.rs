//! image-reflector-controller: which tags an image has, and which of them is the newest by a rule; and
//! image-automation-controller, which commits the newest.
//!
//! `scan`, `choose` and `setters` decide, without a socket or a clock; `image_repository`, `image_policy` and
//! `automation` look and write; `run` is what they share.

pub mod automation;
pub mod choose;
pub mod hosts;
pub mod image_policy;
pub mod image_repository;
pub mod registry;
pub mod run;
pub mod scan;
pub mod setters;
pub mod tags;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use crate::reconcile::{Cache, Events};
use crate::source::cloud::CloudIdentity;

/// What both reconcilers of image-reflector-controller work with.
pub struct Reflector {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub events: Events,
    pub tags: tags::TagStore,
    pub hosts: hosts::Hosts,
    /// Who we and our objects are at clouds.
    pub identity: CloudIdentity,
    pub options: ReflectorOptions,
}

/// image-reflector-controller's own flags.
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    pub no_cross_namespace_refs: bool,
    pub default_service_account: Option<String>,
    /// How soon a policy looks again for tags that are not there yet.
    pub requeue_dependency: Duration,
    /// Lists of tags are compressed from this many bytes on.
    pub compression_threshold: usize,
    /// How often files of objects that are gone are swept up; never when zero.
    pub gc_interval: Duration,
    pub token_cache_max_size: usize,
    pub token_cache_max_duration: Duration,
}

impl ReflectorOptions {
    /// As upstream ships them.
    pub fn upstream() -> Self {
        Self {
            no_cross_namespace_refs: false,
            default_service_account: None,
            requeue_dependency: Duration::from_secs(30),
            compression_threshold: 64 << 10,
            gc_interval: Duration::from_secs(600),
            token_cache_max_size: 100,
            token_cache_max_duration: Duration::from_secs(3600),
        }
    }
}
