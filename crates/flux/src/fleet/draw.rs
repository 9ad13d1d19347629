//! The fleet as a tree: what each Kustomization and HelmRelease has brought about, and how it is.

use std::collections::{BTreeMap, BTreeSet};

use super::seen::{Seen, Verdict};

/// Lines of the tree: below a source what begins with it, below that what it applied.
/// `timing` is said after each, where there is something to say.
pub(crate) fn tree(objects: &[Seen], colour: bool, timing: &dyn Fn(&Seen) -> String) -> Vec<String> {
    let ids: BTreeSet<String> = objects.iter().map(Seen::id).collect();
    // A repository that bootstrap wrote to holds its own source: that stands above, not below.
    let begins_with: BTreeMap<String, String> =
        objects.iter().filter_map(|object| Some((object.id(), object.source()?))).collect();
    let is_source_of = |object: &Seen, owner: &String| begins_with.get(owner) == Some(&object.id());
    let mut below: BTreeMap<String, Vec<&Seen>> = BTreeMap::new();
    let mut roots = Vec::new();
    for object in objects {
        let owner = object.owner().filter(|owner| !is_source_of(object, owner));
        match owner.or_else(|| object.source()).filter(|above| ids.contains(above)) {
            Some(owner) => below.entry(owner).or_default().push(object),
            None => roots.push(object),
        }
    }
    // A Kustomization that applies itself would be drawn for ever; nobody is drawn twice.
    let mut drawn = BTreeSet::new();
    let mut lines = Vec::new();
    let write = |object: &Seen| format!("{} {}", line(object, colour), timing(object)).trim_end().to_owned();
    // Those that apply each other have no root among them; nobody is left out.
    for root in roots.into_iter().chain(objects) {
        branch(root, "", "", &below, &mut drawn, &write, &mut lines);
    }
    lines
}

fn branch(
    object: &Seen,
    before: &str,
    indent: &str,
    below: &BTreeMap<String, Vec<&Seen>>,
    drawn: &mut BTreeSet<String>,
    write: &dyn Fn(&Seen) -> String,
    lines: &mut Vec<String>,
) {
    if !drawn.insert(object.id()) {
        return;
    }
    lines.push(format!("{before}{}", write(object)));
    let children = below.get(&object.id()).map(Vec::as_slice).unwrap_or_default();
    for (index, child) in children.iter().enumerate() {
        let last = index + 1 == children.len();
        let (mark, space) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        branch(child, &format!("{indent}{mark}"), &format!("{indent}{space}"), below, drawn, write, lines);
    }
}

fn line(object: &Seen, colour: bool) -> String {
    let mark = object.mark();
    let mark = match (colour, object.verdict) {
        (true, Verdict::Failed) if object.is_held() => format!("\x1b[33m{mark}\x1b[0m"),
        (true, Verdict::Ready) => format!("\x1b[32m{mark}\x1b[0m"),
        (true, Verdict::Failed) => format!("\x1b[31m{mark}\x1b[0m"),
        (true, Verdict::Waiting | Verdict::Suspended) => format!("\x1b[33m{mark}\x1b[0m"),
        (false, _) => mark.to_string(),
    };
    let detail = match object.verdict {
        Verdict::Ready => object.revision().map(crate::output::short_digests).unwrap_or_default(),
        Verdict::Failed => format!("{}: {}", object.reason, first_line(&object.message)),
        Verdict::Waiting => first_line(&object.message).to_owned(),
        Verdict::Suspended => "suspended".to_owned(),
    };
    format!("{mark} {} {detail}", object.id()).trim_end().to_owned()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(kind: &str, name: &str, owner: Option<&str>) -> Seen {
        let labels = owner.map_or(json!({}), |owner| {
            json!({ "kustomize.toolkit.fluxcd.io/name": owner, "kustomize.toolkit.fluxcd.io/namespace": "n" })
        });
        Seen {
            kind: kind.to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            verdict: Verdict::Ready,
            reason: String::new(),
            message: String::new(),
            object: json!({ "metadata": { "labels": labels } }),
        }
    }

    #[test]
    fn what_was_applied_stands_below_who_applied_it() {
        let mut sync = seen("Kustomization", "flux-system", Some("flux-system"));
        sync.object["spec"] = json!({ "sourceRef": { "kind": "GitRepository", "name": "flux-system" } });
        let objects = [
            seen("GitRepository", "flux-system", Some("flux-system")),
            sync,
            seen("Kustomization", "apps", Some("flux-system")),
            seen("Deployment", "web", Some("apps")),
            seen("GitRepository", "other", Some("flux-system")),
        ];
        let expected = [
            "✔ GitRepository/n/flux-system",
            "└─ ✔ Kustomization/n/flux-system",
            "   ├─ ✔ Kustomization/n/apps",
            "   │  └─ ✔ Deployment/n/web",
            "   └─ ✔ GitRepository/n/other",
        ];
        assert_eq!(tree(&objects, false, &|_| String::new()), expected);
    }

    #[test]
    fn who_waits_for_another_is_no_failure() {
        let mut held = seen("Kustomization", "apps", None);
        (held.verdict, held.reason) = (Verdict::Failed, "DependencyNotReady".to_owned());
        held.message = "dependency 'n/infra' is not ready".to_owned();
        let broken = Seen { reason: "BuildFailed".to_owned(), ..held.clone() };
        let line = |object: &Seen| tree(std::slice::from_ref(object), false, &|_| String::new());
        assert_eq!(
            line(&held),
            ["◎ Kustomization/n/apps DependencyNotReady: dependency 'n/infra' is not ready"]
        );
        assert!(line(&broken)[0].starts_with("✗ Kustomization/n/apps BuildFailed"));
        assert!(tree(&[held], true, &|_| String::new())[0].starts_with("\x1b[33m◎"));
    }

    #[test]
    fn those_that_apply_each_other_are_shown_all_the_same() {
        let objects = [seen("Kustomization", "a", Some("b")), seen("Kustomization", "b", Some("a"))];
        let lines = tree(&objects, false, &|object| format!("({})", object.name));
        assert_eq!(lines, ["✔ Kustomization/n/a (a)", "└─ ✔ Kustomization/n/b (b)"]);
    }
}
