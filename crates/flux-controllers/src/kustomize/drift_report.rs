//! What others had done to applied objects, told when it was put back: object, field, who, how and when. Never a value:
//! events reach chats. Whoever scales what Git scales, too, is named with the rule that ends the fight, once.

use flux_api::Object;
use flux_apply::{Action, Change, Inventory};

use super::run::Run;
use crate::reconcile::Severity;

/// Lines of one event.
const MOST: usize = 20;

/// Tells of changes that no commit and no other spec brought about.
pub(super) fn report(run: &Run<'_>, old: &Inventory, changes: &[Change]) {
    let revision = run.artifact.as_ref().map(|artifact| artifact.revision.clone());
    let is_settled = run.status.last_applied_revision == revision
        && run.object.observed_generation() == Some(run.object.generation());
    if run.ctx.options.upstream_only || !is_settled {
        return;
    }
    let mut lines: Vec<String> =
        changes.iter().filter(|change| old.contains(&change.id)).filter_map(line).collect();
    if lines.is_empty() {
        return;
    }
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    run.tell(Severity::Info, "DriftCorrected", lines.join("\n"), None);
    for advice in changes.iter().flat_map(advice) {
        if run.advise(&advice) {
            run.tell(Severity::Info, "AutoscalerConflict", advice, None);
        }
    }
}

fn line(change: &Change) -> Option<String> {
    match (change.action, &change.found) {
        (Action::Created, _) => Some(format!("{} was gone and is there again", change.id)),
        (Action::Configured, Some(found)) if !found.fields.is_empty() => {
            let mut fields: Vec<String> = found.fields.iter().map(ToString::to_string).collect();
            if found.more > 0 {
                fields.push(format!("and {} more", found.more));
            }
            Some(format!("{} drifted: {}", change.id, fields.join(", ")))
        }
        _ => None,
    }
}

fn advice(change: &Change) -> Vec<String> {
    let fields = change.found.iter().flat_map(|found| &found.fields);
    fields
        .filter_map(|field| {
            let author = field.author.as_ref().filter(|author| author.is_autoscaler)?;
            let id = &change.id;
            Some(format!(
                "{id}: {} is set by Git and by {}; to leave it to the latter, add to spec.ignore: \
                 {{paths: [{}], target: {{kind: {}, name: {}, namespace: {}}}}}",
                field.path, author.manager, field.path, id.kind, id.name, id.namespace
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use flux_apply::authors::{Author, ForeignField};
    use flux_apply::{Found, ObjectId};

    use super::*;

    #[test]
    fn a_line_names_everything_but_values_and_an_autoscaler_is_advised_on() {
        let id = ObjectId {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: "n".to_owned(),
            name: "web".to_owned(),
        };
        let author = Author {
            manager: "kube-controller-manager".to_owned(),
            operation: "Update".to_owned(),
            time: "2026-01-01T00:00:00Z".to_owned(),
            is_autoscaler: true,
        };
        let field = ForeignField { path: "/spec/replicas".to_owned(), author: Some(author) };
        let mut change = Change::new(id, Action::Configured);
        change.found = Some(Found { owner: None, fields: vec![field], more: 2 });
        assert_eq!(
            line(&change).unwrap(),
            "Deployment/n/web drifted: /spec/replicas set by kube-controller-manager (Update) at 2026-01-01T00:00:00Z, \
             and 2 more"
        );
        assert_eq!(
            advice(&change),
            [
                "Deployment/n/web: /spec/replicas is set by Git and by kube-controller-manager; to leave it to the latter, \
              add to spec.ignore: {paths: [/spec/replicas], target: {kind: Deployment, name: web, namespace: n}}"
            ]
        );
    }
}
