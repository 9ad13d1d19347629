//! `targetNamespace` renames Namespaces, too, as kustomize's `namespace` does. Where that makes two of them one, or one of
//! the cluster's own, deleting the Kustomization would delete what nobody meant.

use serde_json::Value;

use super::brake;
use super::failure::Failure;
use super::run::Run;
use crate::reconcile::Severity;

/// The names of the Namespaces among `objects`.
pub(super) fn names(objects: &[Value]) -> Vec<String> {
    let is_namespace = |object: &&Value| {
        object.get("kind").and_then(Value::as_str) == Some("Namespace")
            && object.get("apiVersion").and_then(Value::as_str) == Some("v1")
    };
    let name = |object: &Value| object.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    objects.iter().filter(is_namespace).filter_map(name).collect()
}

/// Refuses what cannot be meant, and tells once of what may not be. `before` are the names without `targetNamespace`.
pub(super) fn check(run: &Run<'_>, before: &[String]) -> Result<(), Failure> {
    let target = run.object.spec.target_namespace.as_deref().unwrap_or_default();
    match judge(target, before, run.namespace()) {
        Verdict::Fine => Ok(()),
        Verdict::Refused(why) => Err(Failure::Build(why)),
        Verdict::Renamed(why) => {
            if run.advise(&why) {
                run.tell(Severity::Info, "NamespaceRenamed", why, None);
            }
            Ok(())
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Renamed(String),
    Refused(String),
}

fn judge(target: &str, before: &[String], own: &str) -> Verdict {
    let renamed: Vec<&str> = before.iter().map(String::as_str).filter(|name| *name != target).collect();
    if renamed.is_empty() {
        return Verdict::Fine;
    }
    let all = || before.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" and ");
    if before.len() > 1 {
        return Verdict::Refused(format!(
            "spec.targetNamespace '{target}' makes the Namespaces {} one; leave all but one out of the manifests, or give \
             targetNamespace up",
            all()
        ));
    }
    if brake::is_protected_namespace(target) || target == own {
        return Verdict::Refused(format!(
            "spec.targetNamespace renames the Namespace {} to '{target}', which must not belong to this Kustomization; \
             leave the Namespace out of the manifests",
            all()
        ));
    }
    Verdict::Renamed(format!("spec.targetNamespace renames the Namespace {} to '{target}'", all()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_into_one_and_protected_names_are_refused_and_a_rename_is_told() {
        let before = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let refused = |verdict: Verdict| matches!(verdict, Verdict::Refused(_));
        assert_eq!(judge("apps", &before(&[]), "flux-system"), Verdict::Fine);
        assert_eq!(judge("apps", &before(&["apps"]), "flux-system"), Verdict::Fine);
        assert!(matches!(judge("apps", &before(&["web"]), "flux-system"), Verdict::Renamed(_)));
        assert!(refused(judge("apps", &before(&["web", "db"]), "flux-system")));
        assert!(refused(judge("apps", &before(&["web", "apps"]), "flux-system")));
        assert!(refused(judge("kube-system", &before(&["web"]), "flux-system")));
        assert!(refused(judge("flux-system", &before(&["web"]), "flux-system")));
    }
}
