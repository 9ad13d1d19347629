//! Feature gates: which exist, what they are by default, and what `--feature-gates` made of them.

use std::collections::{BTreeMap, BTreeSet};

use flux_api::kinds::Controller;

/// One of upstream's switches.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    pub name: &'static str,
    pub default: bool,
}

const fn off(name: &'static str) -> Gate {
    Gate { name, default: false }
}

const fn on(name: &'static str) -> Gate {
    Gate { name, default: true }
}

/// The gates of a controller, under upstream's names.
pub const fn of(controller: Controller) -> &'static [Gate] {
    match controller {
        Controller::Source => {
            const { &[off("CacheSecretsAndConfigMaps"), off("ObjectLevelWorkloadIdentity")] }
        }
        Controller::Kustomize => {
            const {
                &[
                    off("CacheSecretsAndConfigMaps"),
                    on("DisableStatusPollerCache"),
                    off("DisableFailFastBehavior"),
                    on("StrictPostBuildSubstitutions"),
                    off("GroupChangeLog"),
                    off("AdditiveCELDependencyCheck"),
                    off("ExternalArtifact"),
                    off("CancelHealthCheckOnNewRevision"),
                    off("DisableConfigWatchers"),
                    off("DirectSourceFetch"),
                    off("MigrateAPIVersion"),
                    off("ObjectLevelWorkloadIdentity"),
                ]
            }
        }
        Controller::Helm => {
            const {
                &[
                    off("CacheSecretsAndConfigMaps"),
                    off("DetectDrift"),
                    off("CorrectDrift"),
                    off("AllowDNSLookups"),
                    off("OOMWatch"),
                    off("AdoptLegacyReleases"),
                    off("DisableChartDigestTracking"),
                    off("AdditiveCELDependencyCheck"),
                    off("ExternalArtifact"),
                    off("DisableConfigWatchers"),
                    off("DirectSourceFetch"),
                    off("UseHelm3Defaults"),
                    off("CancelHealthCheckOnNewRevision"),
                    off("DefaultToRetryOnFailure"),
                    off("ObjectLevelWorkloadIdentity"),
                ]
            }
        }
        Controller::Notification => {
            const {
                &[
                    off("CacheSecretsAndConfigMaps"),
                    off("DisableConfigWatchers"),
                    off("ObjectLevelWorkloadIdentity"),
                ]
            }
        }
        Controller::ImageReflector => {
            const { &[off("CacheSecretsAndConfigMaps"), off("FluxStorage"), off("ObjectLevelWorkloadIdentity")] }
        }
        Controller::ImageAutomation => {
            const {
                &[
                    on("GitForcePushBranch"),
                    on("GitShallowClone"),
                    on("GitAllBranchReferences"),
                    off("GitSparseCheckout"),
                    off("CacheSecretsAndConfigMaps"),
                    off("ObjectLevelWorkloadIdentity"),
                ]
            }
        }
        Controller::SourceWatcher => const { &[off("DirectSourceFetch")] },
    }
}

/// What the gates of one controller are set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    enabled: BTreeMap<&'static str, bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("feature-gate '{name}' not supported; known: {known}")]
    Unknown { name: String, known: String },
    #[error("feature-gate '{0}' is not written as Name=true or Name=false")]
    Malformed(String),
}

impl FeatureGates {
    /// As upstream ships them.
    pub fn defaults(controller: Controller) -> Self {
        Self { enabled: of(controller).iter().map(|gate| (gate.name, gate.default)).collect() }
    }

    /// Applies `Name=bool` settings; those of other controllers pass by, see [`check`].
    pub fn with(controller: Controller, settings: &[String]) -> Result<Self, Error> {
        let mut gates = Self::defaults(controller);
        for setting in settings {
            let (name, value) = read(setting)?;
            if let Some(gate) = gates.enabled.get_mut(name) {
                *gate = value;
            }
        }
        Ok(gates)
    }

    /// Whether the gate is on; one that the controller does not have is off.
    pub fn is(&self, name: &str) -> bool {
        self.enabled.get(name).copied().unwrap_or(false)
    }
}

/// Refuses a setting that none of the controllers that run knows.
pub fn check(controllers: &BTreeSet<Controller>, settings: &[String]) -> Result<(), Error> {
    let known: BTreeSet<&str> =
        controllers.iter().flat_map(|controller| of(*controller)).map(|gate| gate.name).collect();
    for setting in settings {
        let (name, _) = read(setting)?;
        if !known.contains(name) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Error::Unknown { name: name.to_owned(), known });
        }
    }
    Ok(())
}

fn read(setting: &str) -> Result<(&str, bool), Error> {
    let malformed = || Error::Malformed(setting.to_owned());
    let (name, value) = setting.split_once('=').ok_or_else(malformed)?;
    let value = match value.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
        _ => return Err(malformed()),
    };
    Ok((name.trim(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn a_setting_reaches_the_controllers_that_know_it() {
        let text = settings("GroupChangeLog=true,StrictPostBuildSubstitutions=false,OOMWatch=true");
        let kustomize = FeatureGates::with(Controller::Kustomize, &text).unwrap();
        assert!(kustomize.is("GroupChangeLog") && kustomize.is("DisableStatusPollerCache"));
        assert!(!kustomize.is("StrictPostBuildSubstitutions") && !kustomize.is("OOMWatch"));
        assert!(FeatureGates::with(Controller::Helm, &text).unwrap().is("OOMWatch"));
    }

    #[test]
    fn the_union_of_what_runs_decides_what_is_known() {
        let text = settings("OOMWatch=true");
        let both = BTreeSet::from([Controller::Source, Controller::Helm]);
        assert_eq!(check(&both, &text), Ok(()));
        let problem = check(&BTreeSet::from([Controller::Source]), &text).unwrap_err().to_string();
        assert!(problem.starts_with("feature-gate 'OOMWatch' not supported"), "{problem}");
        assert!(check(&both, &settings("OOMWatch=maybe")).is_err());
    }
}
