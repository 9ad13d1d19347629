//! helm-controller: releases of charts, as HelmReleases ask for them.
//!
//! [`state`] says what is, [`next`] what follows from it; both are pure. [`helm_release`] goes from one to the other,
//! [`actions`] makes plans of actions, [`execute`] carries them out.

pub mod actions;
pub mod chart_object;
pub mod crds;
pub mod dependencies;
pub mod digest;
pub mod drift;
pub mod execute;
pub mod explain;
pub mod fault;
pub mod finalize;
pub mod helm_release;
pub mod hooks;
pub mod identity;
pub mod inventory;
pub mod managers;
pub mod names;
pub mod next;
pub mod outcomes;
pub mod policy;
pub mod prerequisites;
pub mod preview;
pub mod render;
mod replace;
pub mod report;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod storage;
pub mod values;
pub mod wait;
pub mod watches;

use std::sync::Arc;
use std::time::Duration;

use flux_api::digest::Algorithm;
use helm::release::Release;
use helm::{Chart, Dialect};
use kube::Client;

use crate::artifact::Fetcher;
use crate::reconcile::{Cache, Events, FeatureGates};

/// Who writes: objects, records and conditions.
pub const MANAGER: &str = "helm-controller";

/// What the reconciler works with.
pub struct Context {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub fetcher: Fetcher,
    pub events: Events,
    /// The cluster that holds the HelmReleases.
    pub local: identity::Target,
    pub remotes: identity::Remotes,
    pub charts: source::Charts,
    pub jitter_percent: u8,
    pub options: Options,
}

/// The controller's flags and gates.
#[derive(Clone, Debug)]
pub struct Options {
    pub no_cross_namespace_refs: bool,
    pub identity: crate::identity::Options,
    pub requeue_dependency: Duration,
    /// How long a download of a chart may take.
    pub http_timeout: Duration,
    /// Whose fields are taken over before drift is looked for.
    pub override_managers: Vec<String>,
    /// Of the digests in the status.
    pub snapshot_digest_algo: Algorithm,
    /// Nothing is held that upstream does not hold.
    pub upstream_only: bool,
    /// Gate ExternalArtifact.
    pub external_artifact: bool,
    /// Gate DefaultToRetryOnFailure.
    pub retry_on_failure_by_default: bool,
    /// Gate UseHelm3Defaults.
    pub helm_3_defaults: bool,
    /// Gate DisableChartDigestTracking.
    pub disable_chart_digest_tracking: bool,
    /// Gate AllowDNSLookups.
    pub allow_dns_lookups: bool,
    /// Gate AdditiveCELDependencyCheck.
    pub additive_cel_dependency_check: bool,
    /// Gate CancelHealthCheckOnNewRevision.
    pub cancel_health_check: bool,
    /// Gate DisableConfigWatchers.
    pub disable_config_watchers: bool,
}

impl Options {
    pub fn upstream() -> Self {
        Self {
            no_cross_namespace_refs: false,
            identity: crate::identity::Options::default(),
            requeue_dependency: Duration::from_secs(30),
            http_timeout: Duration::from_secs(30),
            override_managers: Vec::new(),
            snapshot_digest_algo: Algorithm::Sha256,
            upstream_only: false,
            external_artifact: false,
            retry_on_failure_by_default: false,
            helm_3_defaults: false,
            disable_chart_digest_tracking: false,
            allow_dns_lookups: false,
            additive_cel_dependency_check: false,
            cancel_health_check: false,
            disable_config_watchers: false,
        }
    }

    /// With what the gates switch on. DetectDrift, CorrectDrift and AdoptLegacyReleases have no effect upstream either;
    /// OOMWatch is the business of the process; sources are always read from one cache.
    #[must_use]
    pub fn gated(mut self, gates: &FeatureGates) -> Self {
        for (gate, option) in [
            ("ExternalArtifact", &mut self.external_artifact),
            ("DefaultToRetryOnFailure", &mut self.retry_on_failure_by_default),
            ("UseHelm3Defaults", &mut self.helm_3_defaults),
            ("DisableChartDigestTracking", &mut self.disable_chart_digest_tracking),
            ("AllowDNSLookups", &mut self.allow_dns_lookups),
            ("AdditiveCELDependencyCheck", &mut self.additive_cel_dependency_check),
            ("CancelHealthCheckOnNewRevision", &mut self.cancel_health_check),
            ("DisableConfigWatchers", &mut self.disable_config_watchers),
            ("ObjectLevelWorkloadIdentity", &mut self.identity.object_level_workload_identity),
        ] {
            *option |= gates.is(gate);
        }
        self
    }

    fn dialect(&self) -> Dialect {
        if self.helm_3_defaults { Dialect::Helm3 } else { Dialect::Helm4 }
    }
}

/// A chart, as it is to be released.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub chart: Arc<Chart>,
    pub oci_digest: Option<String>,
}

impl Loaded {
    pub fn version(&self) -> &str {
        &self.chart.metadata.version
    }

    /// The chart with the default values of a release's chart, which reused values build on.
    fn with_defaults_of(&self, release: &Release) -> Loaded {
        let mut chart = (*self.chart).clone();
        if let Some(values) = release.chart.get("values").and_then(|values| values.as_object()) {
            chart.values = Some(values.clone());
        }
        Loaded { chart: Arc::new(chart), oci_digest: self.oci_digest.clone() }
    }
}

#[cfg(test)]
mod tests {
    use flux_api::kinds::Controller;

    use super::*;

    #[test]
    fn every_gate_switches_its_own_option_on_and_all_are_off_at_first() {
        let with = |gates: &[&str]| {
            let gates: Vec<String> = gates.iter().map(|gate| format!("{gate}=true")).collect();
            Options::upstream().gated(&FeatureGates::with(Controller::Helm, &gates).unwrap())
        };
        let switches = |of: &Options| {
            [
                ("ExternalArtifact", of.external_artifact),
                ("DefaultToRetryOnFailure", of.retry_on_failure_by_default),
                ("UseHelm3Defaults", of.helm_3_defaults),
                ("DisableChartDigestTracking", of.disable_chart_digest_tracking),
                ("AllowDNSLookups", of.allow_dns_lookups),
                ("AdditiveCELDependencyCheck", of.additive_cel_dependency_check),
                ("CancelHealthCheckOnNewRevision", of.cancel_health_check),
                ("DisableConfigWatchers", of.disable_config_watchers),
                ("ObjectLevelWorkloadIdentity", of.identity.object_level_workload_identity),
            ]
        };
        assert!(switches(&with(&[])).iter().all(|(_, on)| !on));
        for (gate, _) in switches(&with(&[])) {
            let on: Vec<&str> =
                switches(&with(&[gate])).into_iter().filter(|(_, on)| *on).map(|(gate, _)| gate).collect();
            assert_eq!(on, [gate]);
        }
        // Known, and without effect: what they did once is always or never done.
        let ignored = ["DetectDrift", "CorrectDrift", "AdoptLegacyReleases", "CacheSecretsAndConfigMaps"];
        assert!(switches(&with(&ignored)).iter().all(|(_, on)| !on));
        assert!(!with(&[]).allow_dns_lookups && with(&["UseHelm3Defaults"]).dialect() == Dialect::Helm3);
    }
}
