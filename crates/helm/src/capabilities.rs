//! What templates may know of a cluster: its version and the APIs it serves.

use crate::Dialect;
use crate::quote::go_quote;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub kube_version: KubeVersion,
    /// `apps/v1` and `apps/v1/Deployment`, in the order discovery gives them.
    pub api_versions: Vec<String>,
    pub helm_version: HelmVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeVersion {
    /// In full: `v1.33.4-gke.1245000`.
    pub version: String,
    pub major: String,
    pub minor: String,
    /// Without suffixes, for constraints: `v1.33.4`. Helm 3 does not make the difference.
    normalized: String,
}

/// `.Capabilities.HelmVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelmVersion {
    pub version: String,
    pub git_commit: String,
    pub git_tree_state: String,
    pub go_version: String,
    /// Helm 4 only.
    pub kube_client_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeVersionError {
    #[error("could not parse {} as version", go_quote(.0))]
    NotAVersion(String),
    #[error("illegal version string {}", go_quote(.0))]
    TooShort(String),
    #[error("illegal zero-prefixed version component {} in {}", go_quote(.component), go_quote(.text))]
    LeadingZero { component: String, text: String },
    #[error("illegal non-numeric version component {component} in {text}", component = go_quote(.component), text = go_quote(.text))]
    NotANumber { component: String, text: String },
}

impl Capabilities {
    /// What `helm template` assumes without a cluster.
    pub fn offline(dialect: Dialect) -> Capabilities {
        let minor = match dialect {
            Dialect::Helm4 => "37",
            // A helm 3 that is built without its release flags, as Go's module proxy has it.
            Dialect::Helm3 => "20",
        };
        let version = format!("v1.{minor}.0");
        Capabilities {
            kube_version: KubeVersion {
                version: version.clone(),
                major: "1".to_owned(),
                minor: minor.to_owned(),
                normalized: version,
            },
            api_versions: API_VERSIONS.iter().map(|v| (*v).to_owned()).collect(),
            helm_version: HelmVersion::of(dialect),
        }
    }
}

impl HelmVersion {
    /// The helm whose rules a dialect follows.
    pub fn of(dialect: Dialect) -> HelmVersion {
        let (version, kube_client) = match dialect {
            Dialect::Helm4 => ("v4.3", "v1.37"),
            Dialect::Helm3 => ("v3.22", ""),
        };
        HelmVersion {
            version: version.to_owned(),
            git_commit: String::new(),
            git_tree_state: String::new(),
            go_version: "go1.26.8".to_owned(),
            kube_client_version: kube_client.to_owned(),
        }
    }
}

impl KubeVersion {
    /// Reads what a server reports or a user writes: at least `1.33`, with or without `v`, whatever may follow.
    pub fn parse(text: &str, dialect: Dialect) -> Result<KubeVersion, KubeVersionError> {
        let numbers = leading_numbers(text).ok_or_else(|| KubeVersionError::NotAVersion(text.to_owned()))?;
        let components: Vec<&str> = numbers.split('.').collect();
        if components.len() < 2 {
            return Err(KubeVersionError::TooShort(text.to_owned()));
        }
        if components[0].starts_with('0') && components[0] != "0" {
            return Err(KubeVersionError::LeadingZero {
                component: components[0].to_owned(),
                text: text.to_owned(),
            });
        }
        let parsed =
            components.iter().map(|c| c.parse::<u64>().map_err(|_| c)).collect::<Result<Vec<u64>, _>>();
        let parsed = parsed.map_err(|component| KubeVersionError::NotANumber {
            component: (*component).to_string(),
            text: text.to_owned(),
        })?;
        let normalized = format!("v{}", parsed.iter().map(u64::to_string).collect::<Vec<_>>().join("."));
        let version = match dialect {
            Dialect::Helm4 if text.starts_with('v') => text.to_owned(),
            Dialect::Helm4 => format!("v{text}"),
            Dialect::Helm3 => normalized.clone(),
        };
        Ok(KubeVersion { version, major: parsed[0].to_string(), minor: parsed[1].to_string(), normalized })
    }

    /// What a server's `/version` says; nothing in it is refused.
    pub fn reported(git_version: &str, major: &str, minor: &str, dialect: Dialect) -> KubeVersion {
        let normalized = match (dialect, KubeVersion::parse(git_version, dialect)) {
            (Dialect::Helm4, Ok(parsed)) => parsed.normalized,
            _ => git_version.to_owned(),
        };
        KubeVersion {
            version: git_version.to_owned(),
            major: major.to_owned(),
            minor: minor.to_owned(),
            normalized,
        }
    }

    /// What a chart's `kubeVersion` is compared with, and what the version prints as.
    pub fn normalized(&self) -> &str {
        &self.normalized
    }
}

/// `1.2.3` at the start, after spaces and a `v`.
fn leading_numbers(text: &str) -> Option<&str> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut end = text.bytes().take_while(u8::is_ascii_digit).count();
    if end == 0 || text.contains('\n') {
        return None;
    }
    loop {
        let Some(rest) = text[end..].strip_prefix('.') else { return Some(&text[..end]) };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Some(&text[..end]);
        }
        end += 1 + digits;
    }
}

/// The group versions that are compiled into helm 4.3 and 3.22.
const API_VERSIONS: [&str; 57] = [
    "v1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "lifecycle.k8s.io/v1alpha1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1alpha1",
    "node.k8s.io/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1alpha1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1",
    "storagemigration.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helm_4_keeps_the_suffix_and_compares_without_it() {
        let version = KubeVersion::parse("1.33.4-gke.1", Dialect::Helm4).unwrap();
        assert_eq!((version.version.as_str(), version.normalized()), ("v1.33.4-gke.1", "v1.33.4"));
        let version = KubeVersion::parse("v1.34", Dialect::Helm4).unwrap();
        assert_eq!(
            (version.version.as_str(), version.major.as_str(), version.minor.as_str()),
            ("v1.34", "1", "34")
        );
        assert_eq!(KubeVersion::parse("1.33.4-gke.1", Dialect::Helm3).unwrap().version, "v1.33.4");
    }

    #[test]
    fn what_is_no_version_is_refused() {
        assert_eq!(
            KubeVersion::parse("x", Dialect::Helm4).unwrap_err().to_string(),
            "could not parse \"x\" as version"
        );
        assert_eq!(
            KubeVersion::parse("1", Dialect::Helm4).unwrap_err().to_string(),
            "illegal version string \"1\""
        );
    }
}
