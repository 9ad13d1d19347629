//! The controller's flags and feature gates.

use std::time::Duration;

use crate::manager::Tuning;
use crate::reconcile::FeatureGates;
use crate::source::Depot;

/// Upstream's defaults are [`Options::default`].
#[derive(Clone, Debug)]
pub struct Options {
    pub jitter_percent: u8,
    pub no_cross_namespace_refs: bool,
    /// Impersonated where a Kustomization names nobody.
    pub default_service_account: Option<String>,
    /// The identity that asks key services where a Kustomization names nobody.
    pub default_decryption_service_account: Option<String>,
    /// The identity that logs in to other clusters where a ConfigMap names nobody.
    pub default_kubeconfig_service_account: Option<String>,
    /// An unknown variable is an error.
    pub strict_substitutions: bool,
    pub requeue_dependency: Duration,
    /// Dry-runs in flight, for one Kustomization.
    pub concurrent_ssa: usize,
    /// Refuse bases that are not in the source.
    pub no_remote_bases: bool,
    /// What a fleet that is tried on a machine has instead of the network.
    pub depot: Option<Depot>,
    /// Prefixes of further field managers whose fields are taken over.
    pub override_managers: Vec<String>,
    /// Kinds that get a stage of their own, as (group, kind).
    pub custom_stage_kinds: Vec<(String, String)>,
    /// The namespace this controller runs in, where the objects that flags name are.
    pub runtime_namespace: Option<String>,
    /// Secret with age keys for Kustomizations that name none.
    pub sops_age_secret: Option<String>,
    /// ConfigMap that maps the addresses of Vaults to where to log in.
    pub sops_vault_config_map: Option<String>,
    /// An encrypted file that was changed without sops is refused, and not only warned about.
    pub require_sops_mac: bool,
    /// Allow kubeconfig files to run programs.
    pub insecure_kubeconfig_exec: bool,
    /// Allow kubeconfig files to switch off certificate checks.
    pub insecure_kubeconfig_tls: bool,
    pub gates: Gates,
    /// Tokens kept in memory; none when zero.
    pub token_cache_max_size: usize,
    pub token_cache_max_duration: Duration,
    /// Watch what was applied, so that what others do to it is noticed at once.
    pub watch_drift: bool,
    /// Hold a prune that would delete more than this share of the inventory, in percent.
    pub prune_brake_percent: Option<u8>,
    /// Do everything as upstream does, also where we think we know better.
    pub upstream_only: bool,
}

/// Feature gates, under upstream's names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gates {
    pub additive_cel_dependency_check: bool,
    pub cancel_health_check_on_new_revision: bool,
    pub disable_fail_fast_behavior: bool,
    pub external_artifact: bool,
    pub group_change_log: bool,
    pub migrate_api_version: bool,
    pub object_level_workload_identity: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            jitter_percent: 5,
            no_cross_namespace_refs: false,
            default_service_account: None,
            default_decryption_service_account: None,
            default_kubeconfig_service_account: None,
            strict_substitutions: true,
            requeue_dependency: Duration::from_secs(30),
            concurrent_ssa: 4,
            no_remote_bases: false,
            depot: None,
            override_managers: Vec::new(),
            custom_stage_kinds: Vec::new(),
            runtime_namespace: None,
            sops_age_secret: None,
            sops_vault_config_map: None,
            require_sops_mac: false,
            insecure_kubeconfig_exec: false,
            insecure_kubeconfig_tls: false,
            gates: Gates::default(),
            token_cache_max_size: 100,
            token_cache_max_duration: Duration::from_secs(3600),
            watch_drift: true,
            prune_brake_percent: None,
            upstream_only: false,
        }
    }
}

/// All but the Secrets that Helm keeps its releases in, of which there are many.
const ALL_CONFIGS: &str = "owner!=helm";

impl Options {
    /// Which ConfigMaps and Secrets wake those who refer to them: all, or as upstream those with a label.
    pub fn watched_configs(&self, tuning: &Tuning) -> Option<String> {
        if tuning.gates.is("DisableConfigWatchers") {
            return None;
        }
        let upstream = tuning.watch_configs_label_selector.clone();
        Some(if self.upstream_only { upstream } else { ALL_CONFIGS.to_owned() })
    }
}

impl Gates {
    pub fn from_features(features: &FeatureGates) -> Self {
        Self {
            additive_cel_dependency_check: features.is("AdditiveCELDependencyCheck"),
            cancel_health_check_on_new_revision: features.is("CancelHealthCheckOnNewRevision"),
            disable_fail_fast_behavior: features.is("DisableFailFastBehavior"),
            external_artifact: features.is("ExternalArtifact"),
            group_change_log: features.is("GroupChangeLog"),
            migrate_api_version: features.is("MigrateAPIVersion"),
            object_level_workload_identity: features.is("ObjectLevelWorkloadIdentity"),
        }
    }
}

/// Reads `--custom-apply-stage-kinds`: `group/Kind`, or `Kind` for the core group.
pub fn stage_kinds(list: &[String]) -> Result<Vec<(String, String)>, String> {
    list.iter()
        .map(|text| {
            let (group, kind) = text.trim().rsplit_once('/').unwrap_or(("", text.trim()));
            if kind.is_empty() || group.contains('/') {
                return Err(format!("'{text}' is not written as group/Kind"));
            }
            Ok((group.to_owned(), kind.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_kinds_are_group_and_kind() {
        let kinds = stage_kinds(&["example.org/Widget".to_owned(), "Secret".to_owned()]).unwrap();
        let pair = |group: &str, kind: &str| (group.to_owned(), kind.to_owned());
        assert_eq!(kinds, [pair("example.org", "Widget"), pair("", "Secret")]);
        assert!(stage_kinds(&["a/b/C".to_owned()]).is_err());
        assert!(stage_kinds(&["example.org/".to_owned()]).is_err());
    }
}
