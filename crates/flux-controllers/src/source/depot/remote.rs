//! A fetch that goes through the depot: from the cache where that is allowed, and into it what came from afar.

use std::path::Path;

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::Kind;
use flux_api::revision::Revision;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{About, Depot, Entry, Network};
use crate::source::SOURCE_VERIFIED;
use crate::source::skeleton::{Failure, Fetched, Job, Source, Status};

/// Fields of a spec that change when and as whom something is fetched, but not what.
const NOT_CONTENT: &[&str] = &[
    "url",
    "sourceRef",
    "interval",
    "timeout",
    "suspend",
    "secretRef",
    "certSecretRef",
    "proxySecretRef",
    "serviceAccountName",
    "provider",
    "insecure",
    "passCredentials",
    "accessFrom",
];
/// Fields of a status that do not follow from what was fetched.
const NOT_FETCHED: &[&str] =
    &["conditions", "observedGeneration", "lastHandledReconcileAt", "url", "artifact"];

/// Something far away, named by all that decides what it contains.
pub struct Remote {
    wanted: Map<String, Value>,
    url: String,
    /// For people.
    what: String,
}

impl Remote {
    pub fn new(kind: &Kind, url: &str, spec: &impl Serialize, what: String) -> Self {
        let url = match url::Url::parse(url) {
            Ok(parsed) => flux_remote::transport::shown(&parsed).trim_end_matches('/').to_owned(),
            Err(_) => url.to_owned(),
        };
        let mut spec = serde_json::to_value(spec).unwrap_or_default();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|name, _| !NOT_CONTENT.contains(&name.as_str()));
        }
        let wanted = json!({ "kind": kind.kind, "url": url, "spec": spec });
        let wanted = wanted.as_object().cloned().unwrap_or_default();
        Self { wanted, url, what }
    }

    /// Something else that decides what it contains.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.wanted.insert(name.to_owned(), value.into());
        self
    }
}

/// Fetches what `remote` names, from the cache or from where it is.
pub async fn fetch<S: Source>(
    source: &S,
    job: &mut Job<'_, S>,
    depot: &Depot,
    remote: Remote,
) -> Result<Fetched, Failure> {
    let wanted = Value::Object(remote.wanted);
    if depot.network != Network::First {
        match depot.cache.as_ref().and_then(|cache| cache.find(&wanted)) {
            Some(entry) => return restore(job, entry),
            None if depot.network == Network::Never => {
                return Err(Failure::fetch("Offline", depot.missing(&remote.what, &remote.url)));
            }
            None => {}
        }
    }
    let fetched = source.fetch(job).await?;
    if let Some(cache) = &depot.cache {
        // A cache that cannot be written costs the next run a fetch, and this one nothing.
        let kept = about(job, wanted, &fetched).map(|(about, path)| {
            let content = std::fs::read(job.ctx.storage.root().join(path))?;
            cache.keep(about, &content)
        });
        if let Some(Err(error)) = kept {
            tracing::warn!(%error, "the cache cannot be written");
        }
    }
    Ok(fetched)
}

/// What is to be remembered of a fetch, and where its bytes are.
fn about<S: Source>(job: &mut Job<'_, S>, wanted: Value, fetched: &Fetched) -> Option<(About, String)> {
    let artifact = job.status.artifact().clone()?;
    let mut status = serde_json::to_value(&job.status).ok()?;
    status.as_object_mut()?.retain(|name, _| !NOT_FETCHED.contains(&name.as_str()));
    status["artifact"] = json!({ "revision": artifact.revision.as_str(), "metadata": artifact.metadata });
    let verified = condition::find(job.status.conditions(), SOURCE_VERIFIED)
        .filter(|verified| verified.status == ConditionStatus::True)
        .map(|verified| verified.message.clone());
    let file = Path::new(&artifact.path).file_name()?.to_string_lossy().into_owned();
    let (reason, message, news) = (fetched.reason.to_owned(), fetched.message.clone(), fetched.news.clone());
    Some((About { wanted, file, status, reason, message, news, verified, ..About::default() }, artifact.path))
}

/// Brings the status to where a fetch left it before.
fn restore<S: Source>(job: &mut Job<'_, S>, entry: Entry) -> Result<Fetched, Failure> {
    let Entry { about, content } = entry;
    let unreadable =
        |problem: String| Failure::storage(format!("an entry of the cache cannot be used: {problem}"));
    let revision = about.status.pointer("/artifact/revision").and_then(Value::as_str).unwrap_or_default();
    let is_here =
        job.status.artifact().as_ref().is_some_and(|artifact| artifact.revision.as_str() == revision);
    if !is_here {
        let stored = job.ctx.storage.store_bytes(
            S::Object::KIND,
            &job.key(),
            &about.file,
            Revision::from(revision),
            &content,
        );
        let artifact = stored.map_err(|error| Failure::storage(error.to_string()))?;
        let metadata = about.status.pointer("/artifact/metadata").cloned().unwrap_or(json!({}));
        let metadata = serde_json::from_value(metadata).map_err(|error| unreadable(error.to_string()))?;
        let mut status = serde_json::to_value(&job.status).map_err(|error| unreadable(error.to_string()))?;
        for (name, value) in
            about.status.as_object().into_iter().flatten().filter(|(name, _)| *name != "artifact")
        {
            status[name.as_str()] = value.clone();
        }
        job.status = serde_json::from_value(status).map_err(|error| unreadable(error.to_string()))?;
        *job.status.artifact() = Some(Artifact { metadata, ..artifact });
        if job.status.url().is_some() {
            let link = if about.file.ends_with(".yaml") { "index.yaml" } else { "latest.tar.gz" };
            job.link(link);
        }
    }
    match about.verified {
        Some(message) => job.conditions().set(SOURCE_VERIFIED, ConditionStatus::True, "Succeeded", message),
        None => job.conditions().delete(SOURCE_VERIFIED),
    }
    let known = ["ChartPullSucceeded", "ChartPackageSucceeded"];
    let reason = known.into_iter().find(|known| *known == about.reason).unwrap_or("Succeeded");
    let new_artifact = if reason == "Succeeded" { "NewArtifact" } else { reason };
    Ok(Fetched { reason, message: about.message, news: about.news, new_artifact, recovered: reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_the_content_decides_the_name_and_nothing_else() {
        let kind = &flux_api::kinds::OCI_REPOSITORY;
        let wanted = |url: &str, spec: Value| Remote::new(kind, url, &spec, String::new()).wanted;
        let one =
            wanted("https://h/a", json!({ "interval": "1m", "url": "https://h/a", "ref": { "tag": "1" } }));
        let same = json!({ "interval": "2m", "secretRef": { "name": "x" }, "ref": { "tag": "1" } });
        assert_eq!(one, wanted("https://user:canary@h/a/", same));
        assert_ne!(one, wanted("https://h/a", json!({ "ref": { "tag": "2" } })));
        assert_ne!(one, wanted("https://h/b", json!({ "ref": { "tag": "1" } })));
    }
}
