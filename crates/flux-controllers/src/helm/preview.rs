//! What a release would become, without making it so: for commands that show or compare it.
//!
//! The choices are those of [`super::actions`]: install or upgrade, whose values are kept, which CRDs are written.

use flux_api::helm::{CRDsPolicy, HelmRelease};
use helm::plan::{ReuseValues, current_release, reuse_values};
use helm::release::{History, Release};
use helm::{Capabilities, Dialect, Operation, Values};
use serde_json::Value;

use super::fault::Fault;
use super::identity::Target;
use super::render::{self, Rendering};
use super::{Loaded, crds, names};

/// The next revision of a release.
pub struct Preview {
    pub release: Release,
    /// Objects below `crds/` that would be written, and whether those that exist already would be replaced.
    pub crds: Vec<Value>,
    pub replaces_crds: bool,
}

/// Renders the next revision. `history` is empty where nothing is known of the past; without a target, `lookup` finds
/// nothing and the cluster is the one that `helm template` assumes.
pub async fn preview(
    object: &HelmRelease,
    loaded: &Loaded,
    values: &Values,
    history: &History,
    target: Option<&Target>,
) -> Result<Preview, Fault> {
    let current = current_release(&names::release_name(object), history).ok();
    let (install, upgrade) =
        (object.spec.install.clone().unwrap_or_default(), object.spec.upgrade.clone().unwrap_or_default());
    let kept = current.filter(|_| upgrade.preserve_values);
    let values = match kept {
        Some(current) => reuse_values(values.clone(), current, ReuseValues::Reuse),
        None => values.clone(),
    };
    let loaded = kept.map_or_else(|| loaded.clone(), |current| loaded.with_defaults_of(current));
    let (operation, policy, skip_schema_validation) = match current {
        Some(_) => (Operation::Upgrade, upgrade.crds, upgrade.disable_schema_validation),
        None => (Operation::Install, install.crds, install.disable_schema_validation),
    };
    let policy = policy.unwrap_or(CRDsPolicy::Create);
    let crds = match policy {
        CRDsPolicy::Skip => Vec::new(),
        CRDsPolicy::Create | CRDsPolicy::CreateReplace => {
            let found = helm::crds(&loaded.chart, &values, Dialect::Helm4);
            crds::objects(&found.map_err(|error| Fault::new(error.to_string()))?)?
        }
    };
    let rendering = Rendering {
        chart: loaded.chart,
        values,
        revision: history.last().map_or(1, |last| last.version + 1),
        operation,
        capabilities: capabilities(target, &crds).await?,
        cluster: target.map(|target| target.cluster.clone()),
        dialect: Dialect::Helm4,
        skip_schema_validation,
        enable_dns: false,
    };
    let (_, release) = rendering.run(object).await?;
    Ok(Preview { release, crds, replaces_crds: policy == CRDsPolicy::CreateReplace })
}

/// What the cluster can do, and what it can do once the chart's CRDs are there.
async fn capabilities(target: Option<&Target>, crds: &[Value]) -> Result<Capabilities, Fault> {
    let mut capabilities = match target {
        None => Capabilities::offline(Dialect::Helm4),
        Some(target) => {
            let kinds = target.cluster.mapper.all(std::time::Duration::from_secs(60)).await;
            let kinds = kinds.map_err(|error| Fault::new(error.to_string()))?;
            let version = target.kube_version().await.map_err(Fault::new)?;
            render::capabilities(&kinds, version)
        }
    };
    for (version, kind) in crds::defined(crds) {
        for known in [version.clone(), format!("{version}/{kind}")] {
            if !capabilities.api_versions.contains(&known) {
                capabilities.api_versions.push(known);
            }
        }
    }
    Ok(capabilities)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::state::tests::object;
    use super::*;

    fn loaded(template: &str) -> Loaded {
        let file = |name: &str, text: &str| helm::File {
            name: name.to_owned(),
            data: text.to_owned().into(),
            modified: None,
        };
        let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.x}\n\
                   spec: {group: x, names: {kind: A}, versions: [{name: v1, served: true}]}\n";
        let files = vec![
            file("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            file("values.yaml", "a: chart\nb: chart\n"),
            file("templates/a.yaml", template),
            file("crds/a.yaml", crd),
        ];
        let chart = helm::Chart::from_files(files, helm::Limits::default(), Dialect::Helm4).unwrap();
        Loaded { chart: Arc::new(chart), oci_digest: None }
    }

    const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  \
        at: \"{{ .Release.Revision }} {{ .Release.IsInstall }} {{ .Values.a }} {{ .Values.b }}\"\n  \
        known: \"{{ .Capabilities.APIVersions.Has \"x/v1/A\" }}\"\n";

    #[tokio::test]
    async fn the_first_revision_is_an_install_and_knows_the_kinds_of_its_own_crds() {
        let release = object(json!({}));
        let values = Values::from_json(json!({"a": "own"})).unwrap();
        let seen = preview(&release, &loaded(TEMPLATE), &values, &History::new(Vec::new()), None).await;
        let seen = seen.map_err(|fault| fault.message).unwrap();
        assert!(seen.release.manifest.contains("1 true own chart"), "{}", seen.release.manifest);
        assert!(seen.release.manifest.contains("known: \"true\""), "{}", seen.release.manifest);
        assert_eq!((seen.crds.len(), seen.replaces_crds), (1, false));
    }

    #[tokio::test]
    async fn an_upgrade_goes_on_from_the_last_revision_and_keeps_values_where_asked() {
        let mut release = object(json!({}));
        release.spec.upgrade =
            Some(serde_json::from_value(json!({"preserveValues": true, "crds": "Skip"})).unwrap());
        let first = serde_json::from_value(json!({
            "name": "web", "version": 4, "info": {"status": "deployed"}, "config": {"b": "kept"},
            "chart": {"values": {"a": "old chart"}},
        }));
        let history = History::new(vec![first.unwrap()]);
        let seen = preview(&release, &loaded(TEMPLATE), &Values::new(), &history, None).await;
        let seen = seen.map_err(|fault| fault.message).unwrap();
        assert!(seen.release.manifest.contains("5 false old chart kept"), "{}", seen.release.manifest);
        assert!(seen.release.manifest.contains("known: \"false\"") && seen.crds.is_empty());
    }
}
