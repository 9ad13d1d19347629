//! `flux build helmrelease`: the objects that the next revision of a release would have, post-renderers included.
//!
//! The HelmRelease, its values and its chart come from the cluster, or from files where the flags say so. What is rendered is what
//! the controller renders. Values of Secrets are masked unless somebody asks for them.

use std::io::Read as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flux_api::Object as _;
use flux_api::helm::HelmRelease;
use flux_api::kinds as api;
use flux_api::meta::ConfigKind;
use flux_apply::Cluster;
use flux_controllers::helm::identity::Target;
use flux_controllers::helm::preview::{Preview, preview};
use flux_controllers::helm::storage::{Records, Storage};
use flux_controllers::helm::values::{Data, Referenced, compose};
use flux_controllers::helm::{Loaded, names, prerequisites};
use flux_controllers::identity;
use helm::Values;
use helm::plan::{Builtin, objects_of};
use serde_json::Value;

use super::chart::Places;
use crate::error::{CliError, fail};
use crate::kinds;
use crate::output;
use crate::session::{self, Session};
use crate::tree::Invocation;

/// Nobody's manifests are larger.
const LARGEST: u64 = 64 << 20;
const HIDDEN: &str = "***";

/// What the command line asks for.
pub(in crate::commands) struct Asked {
    name: Option<String>,
    namespace: String,
    /// Objects of `--file`.
    given: Vec<Value>,
    file: Option<String>,
    places: Places,
}

/// A release that could be made.
pub(in crate::commands) struct Made {
    pub(in crate::commands) object: HelmRelease,
    pub(in crate::commands) preview: Preview,
    pub(in crate::commands) records: Records,
    /// The cluster that the release goes to; `None` without one.
    pub(in crate::commands) cluster: Option<Cluster>,
}

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let asked = Asked::of(run)?;
    let session = if run.is("dry-run") {
        if asked.file.is_none() {
            return Err(fail!("dry-run mode requires a file with the HelmRelease: --file PATH"));
        }
        None
    } else {
        Some(Session::open(run).await?)
    };
    let made = asked.make(session.as_ref()).await?;
    let mut text = String::new();
    for mut object in objects(&made)? {
        if !run.is("show-secrets") {
            hide(&mut object);
        }
        text.push_str(&format!("{}---\n", output::yaml_text(&object)?));
    }
    output::data(&text)
}

/// CRDs, then the manifest, then hooks, as they were rendered.
fn objects(made: &Made) -> Result<Vec<Value>, CliError> {
    let mut all = made.preview.crds.clone();
    let release = &made.preview.release;
    let hooks = release.hooks.iter().map(|hook| hook.manifest.as_str());
    for text in std::iter::once(release.manifest.as_str()).chain(hooks) {
        let found = objects_of(text, &release.namespace, &Builtin)
            .map_err(|error| fail!("what was rendered cannot be read: {error}"))?;
        all.extend(found.into_iter().map(|object| object.json));
    }
    Ok(all)
}

/// Keys stay, values go.
fn hide(object: &mut Value) {
    if object.get("kind").and_then(Value::as_str) != Some("Secret")
        || object.get("apiVersion").and_then(Value::as_str) != Some("v1")
    {
        return;
    }
    for (place, mask) in [("data", BASE64_STANDARD.encode(HIDDEN)), ("stringData", HIDDEN.to_owned())] {
        for (_, value) in object.get_mut(place).and_then(Value::as_object_mut).into_iter().flatten() {
            *value = mask.clone().into();
        }
    }
}

impl Asked {
    pub(in crate::commands) fn of(run: &Invocation) -> Result<Asked, CliError> {
        let file = run.some("file").map(str::to_owned);
        if run.name().is_none() && file.is_none() {
            return Err(fail!("helmrelease name is required"));
        }
        let sources = run.list("local-sources");
        let pairs = sources.iter().filter_map(|pair| pair.split_once('='));
        Ok(Asked {
            name: run.name().map(str::to_owned),
            namespace: session::namespace(run)?,
            given: file.as_deref().map(read).transpose()?.unwrap_or_default(),
            file,
            places: Places {
                chart: run.some("chart").map(Into::into),
                sources: pairs.map(|(name, path)| (name.to_owned(), path.to_owned())).collect(),
            },
        })
    }

    /// Gathers what the controller would, with the rights of whoever asks, and renders.
    pub(in crate::commands) async fn make(&self, session: Option<&Session>) -> Result<Made, CliError> {
        let object = self.object(session).await?;
        let loaded = self.places.find(&object, session).await?;
        let values = self.values(&object, session).await?;
        let target = match session {
            Some(session) => Some(target(&object, session).await?),
            None => None,
        };
        let records = match &target {
            Some(target) => records(&object, target).await?,
            None => Records::default(),
        };
        let preview = rendered(&object, &loaded, &values, &records, target.as_ref()).await?;
        Ok(Made { object, preview, records, cluster: target.map(|target| target.cluster) })
    }

    /// A file wins over the cluster.
    async fn object(&self, session: Option<&Session>) -> Result<HelmRelease, CliError> {
        let mut object = match (&self.file, session, &self.name) {
            (Some(file), ..) => self.in_file(file)?,
            (None, Some(session), Some(name)) => session.get(&api::HELM_RELEASE, name).await?,
            (None, ..) => return Err(fail!("helmrelease name is required")),
        };
        if kinds::namespace(&object).is_empty() {
            object["metadata"]["namespace"] = self.namespace.clone().into();
        }
        // A file may leave out what the server would insist on.
        if object.pointer("/spec/interval").is_none() && object.get("spec").is_some_and(Value::is_object) {
            object["spec"]["interval"] = "1h".into();
        }
        let name = kinds::name(&object).to_owned();
        let object: HelmRelease = serde_json::from_value(object)
            .map_err(|error| fail!("HelmRelease {name} cannot be read: {error}"))?;
        if object.spec.chart.is_some() == object.spec.chart_ref.is_some() {
            return Err(fail!("HelmRelease {name}: give either spec.chart or spec.chartRef"));
        }
        Ok(object)
    }

    fn in_file(&self, file: &str) -> Result<Value, CliError> {
        let is_release = |object: &&Value| {
            object.get("kind").and_then(Value::as_str) == Some(api::HELM_RELEASE.kind)
                && text(object, "/apiVersion").starts_with(api::HELM_RELEASE.group)
        };
        let releases: Vec<&Value> = self.given.iter().filter(is_release).collect();
        let here = |object: &&Value| {
            let namespace = kinds::namespace(object);
            namespace.is_empty() || namespace == self.namespace
        };
        let Some(name) = &self.name else {
            return match &releases[..] {
                [only] => Ok((*only).clone()),
                several => Err(fail!("{file} holds {} HelmReleases: name the one you mean", several.len())),
            };
        };
        let mut named = releases.into_iter().filter(|object| kinds::name(object) == name).filter(here);
        named
            .next()
            .cloned()
            .ok_or_else(|| fail!("{file} holds no HelmRelease {name} of namespace {}", self.namespace))
    }

    async fn values(&self, object: &HelmRelease, session: Option<&Session>) -> Result<Values, CliError> {
        let references = &object.spec.values_from;
        let mut referenced = match session {
            Some(session) => {
                let read = prerequisites::read_references(&session.client, object.namespace(), references);
                read.await.map_err(|error| session.failed(error, None))?
            }
            None => Referenced::default(),
        };
        for reference in references {
            if let Some(data) = self.given_data(reference.kind, &reference.name, object.namespace())? {
                referenced.insert(reference.kind, &reference.name, Some(data));
            }
        }
        let composed = compose(object.namespace(), object.spec.values.as_ref(), references, &referenced);
        let composed = composed.map_err(|error| match session {
            Some(_) => fail!("{error}"),
            None => fail!("{error}; without a cluster, values come from objects in --file"),
        })?;
        Ok(composed.values)
    }

    /// What a ConfigMap or Secret of the file holds.
    fn given_data(&self, kind: ConfigKind, name: &str, namespace: &str) -> Result<Option<Data>, CliError> {
        let found = self.given.iter().find(|object| {
            let own = kinds::namespace(object);
            text(object, "/apiVersion") == "v1"
                && text(object, "/kind") == kind.as_str()
                && kinds::name(object) == name
                && (own.is_empty() || own == namespace)
        });
        let Some(found) = found else { return Ok(None) };
        let encoded = if kind == ConfigKind::Secret { "data" } else { "binaryData" };
        let plain = if kind == ConfigKind::Secret { "stringData" } else { "data" };
        let mut data = Data::new();
        for (key, value) in found.get(encoded).and_then(Value::as_object).into_iter().flatten() {
            let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default().replace(['\r', '\n'], ""));
            let bytes = bytes.map_err(|_| fail!("{} {name}: {encoded}.{key} is no base64", kind.as_str()))?;
            data.insert(key.clone(), bytes);
        }
        for (key, value) in found.get(plain).and_then(Value::as_object).into_iter().flatten() {
            data.insert(key.clone(), value.as_str().unwrap_or_default().as_bytes().to_vec());
        }
        Ok(Some(data))
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// All objects of a file, or of stdin.
fn read(file: &str) -> Result<Vec<Value>, CliError> {
    let mut bytes = Vec::new();
    let path = std::path::Path::new(file);
    let failed = |error: &std::io::Error| fail!("{}", crate::error::go_io(path, error));
    if file == "-" {
        std::io::stdin().lock().take(LARGEST).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    } else {
        let opened = std::fs::File::open(path).map_err(|error| failed(&error))?;
        opened.take(LARGEST).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    }
    let bad = |error: yaml::Error| fail!("{file}: {error}");
    let documents = yaml::parse_stream(&bytes, &yaml::Options::new(yaml::Schema::V2)).map_err(bad)?;
    let mut objects = Vec::new();
    for document in documents.iter().filter(|document| !document.root.is_null()) {
        objects.push(yaml::node_to_json(&document.root, yaml::Schema::V2).map_err(bad)?);
    }
    Ok(flux_controllers::kustomize::manifests::flatten(objects))
}

/// The cluster that the release goes to, as whoever asks sees it: nobody is impersonated.
async fn target(object: &HelmRelease, session: &Session) -> Result<Target, CliError> {
    let local = Target::new(session.client.clone());
    if object.spec.kube_config.is_none() {
        return Ok(local);
    }
    let asking = identity::Asking {
        client: &session.client,
        own: &local.cluster,
        known: &identity::Clusters::default(),
        options: &identity::Options::default(),
        namespace: object.namespace(),
        account: None,
        kube_config: object.spec.kube_config.as_ref(),
        on_login: None,
    };
    let cluster = asking.cluster().await;
    let cluster =
        cluster.map_err(|error| fail!("spec.kubeConfig of {}: {}", object.name(), error.message()))?;
    Ok(Target::new(cluster.client))
}

async fn records(object: &HelmRelease, target: &Target) -> Result<Records, CliError> {
    let storage =
        Storage::new(target.cluster.client.clone(), names::storage_namespace(object), helm::Dialect::Helm4);
    let name = names::release_name(object);
    storage.read(&name).await.map_err(|error| fail!("the records of release {name} cannot be read: {error}"))
}

async fn rendered(
    object: &HelmRelease,
    loaded: &Loaded,
    values: &Values,
    records: &Records,
    target: Option<&Target>,
) -> Result<Preview, CliError> {
    let chart = format!("{} {}", loaded.chart.name(), loaded.version());
    preview(object, loaded, values, &records.history, target)
        .await
        .map_err(|fault| fail!("chart {chart} for HelmRelease {}: {}", object.name(), fault.message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(given: Vec<Value>) -> Asked {
        Asked {
            name: None,
            namespace: "apps".to_owned(),
            given,
            file: Some("all.yaml".to_owned()),
            places: Places::default(),
        }
    }

    fn release(name: &str, namespace: &str) -> Value {
        json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"chartRef": {"kind": "OCIRepository", "name": "web"},
                "values": {"a": 1}, "valuesFrom": [{"kind": "Secret", "name": "login"}]}})
    }

    #[tokio::test]
    async fn the_only_release_of_a_file_needs_no_name_and_brings_its_values() {
        let login = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
            "stringData": {"values.yaml": "password: canary\n"}});
        let asked = asked(vec![release("web", "apps"), login]);
        let object = asked.object(None).await.unwrap();
        let values = asked.values(&object, None).await.unwrap();
        assert_eq!(values.as_map()["password"], "canary");
        assert_eq!(values.as_map()["a"].as_f64(), Some(1.0));
    }

    #[tokio::test]
    async fn several_releases_need_a_name_and_values_that_are_nowhere_are_named() {
        let both = asked(vec![release("web", "apps"), release("api", "apps")]);
        let error = both.object(None).await.unwrap_err().to_string();
        assert_eq!(error, "all.yaml holds 2 HelmReleases: name the one you mean");
        let named = Asked { name: Some("api".to_owned()), ..both };
        let object = named.object(None).await.unwrap();
        assert_eq!(object.name(), "api");
        let error = named.values(&object, None).await.unwrap_err().to_string();
        assert!(error.contains("'apps/login'") && error.ends_with("objects in --file"), "{error}");
        let other = Asked { name: Some("db".to_owned()), ..named };
        let error = other.object(None).await.unwrap_err().to_string();
        assert_eq!(error, "all.yaml holds no HelmRelease db of namespace apps");
    }

    #[test]
    fn a_secret_keeps_its_keys_only() {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "Y2FuYXJ5"}, "stringData": {"b": "canary"}});
        hide(&mut secret);
        assert_eq!((&secret["data"]["a"], &secret["stringData"]["b"]), (&json!("Kioq"), &json!("***")));
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}});
        hide(&mut map);
        assert_eq!(map["data"]["a"], "b");
    }
}
