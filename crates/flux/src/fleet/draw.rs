//! The fleet as a tree: what each Kustomization and HelmRelease has brought about, and how it is.

use std::collections::{BTreeMap, BTreeSet};

use super::seen::{Seen, Verdict};

/// Lines of the tree, roots being what nobody of the fleet applied.
pub(crate) fn tree(objects: &[Seen], colour: bool) -> Vec<String> {
    let ids: BTreeSet<String> = objects.iter().map(Seen::id).collect();
    let mut below: BTreeMap<String, Vec<&Seen>> = BTreeMap::new();
    let mut roots = Vec::new();
    for object in objects {
        match object.owner().filter(|owner| ids.contains(owner)) {
            Some(owner) => below.entry(owner).or_default().push(object),
            None => roots.push(object),
        }
    }
    // A Kustomization that applies itself would be drawn for ever; nobody is drawn twice.
    let mut drawn = BTreeSet::new();
    let mut lines = Vec::new();
    for root in roots {
        branch(root, "", "", &below, &mut drawn, colour, &mut lines);
    }
    lines
}

fn branch(
    object: &Seen,
    before: &str,
    indent: &str,
    below: &BTreeMap<String, Vec<&Seen>>,
    drawn: &mut BTreeSet<String>,
    colour: bool,
    lines: &mut Vec<String>,
) {
    if !drawn.insert(object.id()) {
        return;
    }
    lines.push(format!("{before}{}", line(object, colour)));
    let children = below.get(&object.id()).map(Vec::as_slice).unwrap_or_default();
    for (index, child) in children.iter().enumerate() {
        let last = index + 1 == children.len();
        let (mark, space) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        branch(child, &format!("{indent}{mark}"), &format!("{indent}{space}"), below, drawn, colour, lines);
    }
}

fn line(object: &Seen, colour: bool) -> String {
    let mark = object.verdict.mark();
    let mark = match (colour, object.verdict) {
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
        let objects = [
            seen("Kustomization", "flux-system", Some("flux-system")),
            seen("Kustomization", "apps", Some("flux-system")),
            seen("Deployment", "web", Some("apps")),
            seen("GitRepository", "other", Some("flux-system")),
        ];
        let expected = [
            "✔ Kustomization/n/flux-system",
            "├─ ✔ Kustomization/n/apps",
            "│  └─ ✔ Deployment/n/web",
            "└─ ✔ GitRepository/n/other",
        ];
        assert_eq!(tree(&objects, false), expected);
    }
}
