//! When a fleet has settled: every object has said how it is, and nothing moves any more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::fleet::{Seen, Verdict, seen};

const LOOK: Duration = Duration::from_millis(50);
/// Nothing has changed for this long, and everybody has a verdict. A dependency that becomes ready wakes its dependents
/// at once, so a longer silence brings no news.
const QUIET: Duration = Duration::from_millis(400);
/// Nothing has changed for this long although somebody still waits: for something that failed, and will not come.
const STUCK: Duration = Duration::from_secs(1);

/// As above, where nothing that failed explains the waiting: a chart is rendered, or the machine has other work to do.
const BUSY: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Yes,
    /// Somebody still waited when the time was up.
    No,
}

/// The objects of Flux as they are when they have settled, or when `limit` is over.
pub(super) async fn wait(client: &Client, limit: Duration) -> Result<(Vec<Seen>, Settled)> {
    let started = Instant::now();
    let mut verdicts = Verdicts::default();
    let mut changed = Instant::now();
    let mut revision = None;
    let mut moved = Instant::now();
    loop {
        let objects = seen::flux_objects(client).await?;
        if verdicts.hear(&objects) {
            changed = Instant::now();
        }
        let latest = store_revision(client).await?;
        if latest != revision {
            revision = latest;
            moved = Instant::now();
        }
        let waiting = objects.iter().any(|object| object.verdict == Verdict::Waiting);
        let silence = changed.elapsed();
        if started.elapsed() >= limit {
            return Ok((objects, if waiting { Settled::No } else { Settled::Yes }));
        }
        match waiting {
            false if silence >= QUIET && !objects.is_empty() => return Ok((objects, Settled::Yes)),
            true if is_busy(&objects) && (silence < BUSY || moved.elapsed() < BUSY) => {
                tokio::time::sleep(LOOK).await;
            }
            true if silence >= STUCK => return Ok((objects, Settled::No)),
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// What each object last said of itself.
///
/// Something that failed is tried again and again, and each time it says that it is at it before it says the same as before. That
/// is no news, and no reason to go on waiting.
#[derive(Default)]
struct Verdicts(BTreeMap<String, Said>);

#[derive(Clone, PartialEq, Eq)]
struct Said {
    generation: i64,
    verdict: Verdict,
    message: String,
    revision: Option<String>,
}

impl Verdicts {
    /// Whether anybody says something new, is new, or has gone.
    fn hear(&mut self, objects: &[Seen]) -> bool {
        let now: BTreeMap<String, Said> =
            objects.iter().map(|object| (object.id(), self.said(object))).collect();
        let is_news = now != self.0;
        self.0 = now;
        is_news
    }

    fn said(&self, object: &Seen) -> Said {
        let generation = object.object.pointer("/metadata/generation").and_then(serde_json::Value::as_i64);
        let said = Said {
            generation: generation.unwrap_or_default(),
            verdict: object.verdict,
            message: object.message.clone(),
            revision: object.revision().map(str::to_owned),
        };
        match self.0.get(&object.id()) {
            Some(before) if said.verdict == Verdict::Waiting && before.generation == said.generation => {
                before.clone()
            }
            _ => said,
        }
    }
}

/// Whether somebody waits and nothing that failed explains it: then it is at work, on a machine that may be slow.
fn is_busy(objects: &[Seen]) -> bool {
    let failed_below = |waiting: &Seen| {
        let id = waiting.id();
        objects
            .iter()
            .any(|one| one.verdict == Verdict::Failed && one.owner().as_deref() == Some(id.as_str()))
    };
    objects.iter().any(|one| one.verdict == Verdict::Waiting && !failed_below(one))
}

/// Changes with every write to the cluster, whatever is written.
async fn store_revision(client: &Client) -> Result<Option<String>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let list = namespaces.list_metadata(&ListParams::default().limit(1)).await?;
    Ok(list.metadata.resource_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(name: &str, verdict: Verdict, owner: &str) -> Seen {
        let labels = json!({
            "kustomize.toolkit.fluxcd.io/name": owner, "kustomize.toolkit.fluxcd.io/namespace": "n",
        });
        Seen {
            kind: "Kustomization".to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            verdict,
            reason: String::new(),
            message: String::new(),
            object: json!({ "metadata": { "labels": labels } }),
        }
    }

    #[test]
    fn trying_again_is_no_news_and_another_outcome_is() {
        let failed =
            |message: &str| Seen { message: message.to_owned(), ..seen("web", Verdict::Failed, "apps") };
        let trying = seen("web", Verdict::Waiting, "apps");
        let mut verdicts = Verdicts::default();
        assert!(verdicts.hear(&[failed("no chart")]));
        assert!(!verdicts.hear(std::slice::from_ref(&trying)));
        assert!(!verdicts.hear(&[failed("no chart")]));
        assert!(verdicts.hear(&[failed("no registry")]));
        assert!(verdicts.hear(&[seen("web", Verdict::Ready, "apps")]));
        let mut changed = trying;
        changed.object["metadata"]["generation"] = 2.into();
        assert!(verdicts.hear(&[changed]));
        assert!(verdicts.hear(&[]));
    }

    #[test]
    fn only_a_failure_below_explains_why_somebody_waits() {
        let apps = seen("apps", Verdict::Waiting, "flux-system");
        assert!(is_busy(&[apps.clone(), seen("web", Verdict::Ready, "apps")]));
        assert!(is_busy(&[apps.clone(), seen("web", Verdict::Failed, "other")]));
        assert!(!is_busy(&[apps, seen("web", Verdict::Failed, "apps")]));
    }
}
