//! Fields that an endpoint resets, so that sending them gives no ownership.

use super::set::Set;

/// What the endpoint of a kind resets; `subresource` is empty for the main resource. For custom resources
/// `group` and `kind` do not matter: `has_status` says whether the CRD has the status subresource.
pub fn reset_fields(group: &str, kind: &str, subresource: &str, has_status: bool) -> Set {
    match (group, kind, subresource) {
        ("certificates.k8s.io", "CertificateSigningRequest", "") => Set::of(&[&["spec"], &["status"]]),
        ("certificates.k8s.io", "CertificateSigningRequest", "status") => {
            Set::of(&[&["spec"], &["status", "conditions"]])
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
            Set::of(&[&["spec"], &["status", "certificate"]])
        }
        ("apps", "Deployment", "status") => Set::of(&[&["spec"], &["metadata", "labels"]]),
        ("", "Pod", "status") => {
            Set::of(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
        }
        ("", "Namespace", "finalize") => Set::of(&[&["status"]]),
        (_, _, "status") if keeps_metadata(group, kind) => Set::of(&[&["spec"]]),
        (_, _, "status") => Set::of(&[&["metadata"], &["spec"]]),
        (_, _, "") if has_status => Set::of(&[&["status"]]),
        _ => Set::default(),
    }
}

/// Whether the status endpoint lets metadata through. Older builtin kinds do, newer ones and custom resources do not.
fn keeps_metadata(group: &str, kind: &str) -> bool {
    match group {
        "" | "apps" | "batch" | "autoscaling" | "policy" => true,
        "networking.k8s.io" => kind == "Ingress",
        _ => false,
    }
}
