//! `flux stats`: how many objects of each kind run, fail or are suspended, and what their artifacts take.

use flux_api::kinds as api;
use kube::api::ListParams;
use serde_json::Value;

use crate::error::CliError;
use crate::kinds::{condition, is_suspended, text};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

const KINDS: &[api::Kind] = &[
    api::GIT_REPOSITORY,
    api::OCI_REPOSITORY,
    api::HELM_REPOSITORY,
    api::HELM_CHART,
    api::BUCKET,
    api::KUSTOMIZATION,
    api::HELM_RELEASE,
    api::ALERT,
    api::PROVIDER,
    api::RECEIVER,
    api::IMAGE_UPDATE_AUTOMATION,
    api::IMAGE_POLICY,
    api::IMAGE_REPOSITORY,
];

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let mut rows = Vec::new();
    for kind in KINDS {
        // What cannot be listed counts as none, so that a cluster without the image kinds still has its table.
        let objects =
            session.list(kind, run.is("all-namespaces"), &ListParams::default()).await.unwrap_or_default();
        rows.push(row(kind, &objects));
    }
    let header = ["Reconcilers", "Running", "Failing", "Suspended", "Storage"].map(str::to_owned);
    output::data(&output::table(&header, &rows))
}

fn row(kind: &api::Kind, objects: &[Value]) -> Vec<String> {
    let suspended = objects.iter().filter(|object| is_suspended(object)).count();
    let failing = objects
        .iter()
        .filter(|object| condition(object, "Ready").is_some_and(|ready| text(ready, "/status") == "False"))
        .count();
    let size: i64 =
        objects.iter().filter_map(|object| object.pointer("/status/artifact/size")?.as_i64()).sum();
    vec![
        kind.kind.to_owned(),
        (objects.len() - suspended).to_string(),
        failing.to_string(),
        suspended.to_string(),
        if size > 0 { human_size(size) } else { "-".to_owned() },
    ]
}

/// In powers of 1024, with one decimal from KiB on.
fn human_size(bytes: i64) -> String {
    const UNITS: &[&str] = &["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::human_size;

    #[test]
    fn sizes_are_in_powers_of_1024() {
        assert_eq!(human_size(512), "512 B");
        assert_eq!(human_size(1536), "1.5 KiB");
        assert_eq!(human_size(1024 * 1024), "1.0 MiB");
    }
}
