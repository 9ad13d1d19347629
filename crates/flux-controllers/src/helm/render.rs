//! From chart and values to a release: rendering with look-ups under the release's own identity, and post-rendering.

use std::sync::Arc;

use file_tree::{MemoryTree, TreePath};
use flux_api::Object;
use flux_api::helm::{HelmRelease, KustomizePostRenderer, PostRenderStrategy};
use flux_api::meta::CommonMetadata;
use flux_api::names::{HELM_RELEASE_NAME_LABEL, HELM_RELEASE_NAMESPACE_LABEL};
use flux_apply::{Cluster, KnownKinds, ObjectId};
use helm::release::{ApplyMethod, Release};
use helm::{
    Capabilities, Chart, Dialect, HelmVersion, KubeVersion, Operation, ReleaseOptions, Rendered, Values,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use super::fault::Fault;
use super::names;

/// What a chart is rendered with.
pub struct Rendering {
    pub chart: Arc<Chart>,
    pub values: Values,
    pub revision: i64,
    pub operation: Operation,
    pub capabilities: Capabilities,
    /// Where `lookup` looks; without a cluster it finds nothing.
    pub cluster: Option<Cluster>,
    pub dialect: Dialect,
    pub skip_schema_validation: bool,
    pub enable_dns: bool,
}

impl Rendering {
    /// Renders on a thread of its own: templates compute, and look-ups block.
    pub async fn run(self, object: &HelmRelease) -> Result<(Rendered, Release), Fault> {
        let post_render = PostRenderers::of(object);
        let (name, namespace) = (names::release_name(object), names::release_namespace(object).to_owned());
        let strategy = object.spec.post_render_strategy.unwrap_or(match self.dialect {
            Dialect::Helm4 => PostRenderStrategy::Combined,
            Dialect::Helm3 => PostRenderStrategy::Nohooks,
        });
        let handle = Handle::current();
        let rendering = move || {
            let release = ReleaseOptions {
                name: name.clone(),
                namespace: namespace.clone(),
                revision: self.revision,
                operation: self.operation,
            };
            let options = helm::Options {
                dialect: Dialect::Helm4,
                skip_schema_validation: self.skip_schema_validation,
                enable_dns: self.enable_dns,
                post_render: Some(&post_render),
                post_render_strategy: match strategy {
                    PostRenderStrategy::Combined => helm::PostRenderStrategy::Combined,
                    PostRenderStrategy::Nohooks => helm::PostRenderStrategy::NoHooks,
                    PostRenderStrategy::Separate => helm::PostRenderStrategy::Separate,
                },
                lookup: match self.cluster {
                    Some(cluster) => Arc::new(ClusterLookup { handle, cluster }),
                    None => Arc::new(helm::NoCluster),
                },
                ..helm::Options::default()
            };
            let rendered =
                helm::render(&self.chart, &self.values, &release, &self.capabilities, &Machine, &options)?;
            let release = Release::new(
                &name,
                &namespace,
                &self.chart,
                &rendered,
                &self.values,
                ApplyMethod::ServerSide,
                Timestamp::now(),
            );
            Ok::<_, helm::RenderError>((rendered, release))
        };
        let rendered = crate::reconcile::heavy(rendering).await;
        rendered
            .map_err(|error| Fault::new(format!("rendering ended unexpectedly: {error}")))?
            .map_err(|error| Fault::new(error.to_string()))
    }
}

/// What the cluster can do, for `.Capabilities`.
pub fn capabilities(kinds: &KnownKinds, version: &KubeVersion) -> Capabilities {
    Capabilities {
        kube_version: version.clone(),
        api_versions: kinds.api_versions(),
        helm_version: HelmVersion::of(Dialect::Helm4),
    }
}

/// The clock and chance of this machine.
struct Machine;

impl gotemplate::Host for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn random(&self, buffer: &mut [u8]) {
        rand::fill(buffer);
    }

    fn resolve(&self, name: &str) -> Vec<String> {
        use std::net::ToSocketAddrs;
        (name, 0)
            .to_socket_addrs()
            .map(|found| found.map(|at| at.ip().to_string()).collect())
            .unwrap_or_default()
    }
}

/// `lookup` of templates, with the rights of whoever the release acts as.
struct ClusterLookup {
    handle: Handle,
    cluster: Cluster,
}

impl helm::Lookup for ClusterLookup {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Value, String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let id = ObjectId {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.handle.block_on(self.find(&id))
    }
}

impl ClusterLookup {
    async fn find(&self, id: &ObjectId) -> Result<Value, String> {
        let (resource, namespaced) =
            self.cluster.mapper.resource(id).await.map_err(|error| error.to_string())?;
        let client = self.cluster.client.clone();
        let api: kube::Api<kube::api::DynamicObject> = if namespaced && !id.namespace.is_empty() {
            kube::Api::namespaced_with(client, &id.namespace, &resource)
        } else {
            kube::Api::all_with(client, &resource)
        };
        let nothing = || Value::Object(Map::new());
        if !id.name.is_empty() {
            return match api.get(&id.name).await {
                Ok(object) => serde_json::to_value(object).map_err(|error| error.to_string()),
                Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(nothing()),
                Err(error) => Err(error.to_string()),
            };
        }
        match api.list(&kube::api::ListParams::default()).await {
            Ok(list) => Ok(json!({
                "apiVersion": id.api_version(), "kind": format!("{}List", id.kind),
                "metadata": list.metadata, "items": list.items,
            })),
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(nothing()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// kustomize as often as asked for, then common metadata, then the labels that say whose objects these are.
pub struct PostRenderers {
    kustomize: Vec<KustomizePostRenderer>,
    common: Option<CommonMetadata>,
    origin: [(String, String); 2],
}

impl PostRenderers {
    pub fn of(object: &HelmRelease) -> Self {
        Self {
            kustomize: object.spec.post_renderers.iter().filter_map(|one| one.kustomize.clone()).collect(),
            common: object.spec.common_metadata.clone(),
            origin: origin_labels(object),
        }
    }

    fn mark(&self, object: &mut Value) {
        if let Some(common) = &self.common {
            common.labels.iter().for_each(|(key, value)| put(object, "labels", key, value));
            common.annotations.iter().for_each(|(key, value)| put(object, "annotations", key, value));
        }
        for (key, value) in &self.origin {
            put(object, "labels", key, value);
        }
    }
}

/// `helm.toolkit.fluxcd.io/name` and `…/namespace`.
pub fn origin_labels(object: &HelmRelease) -> [(String, String); 2] {
    [
        (HELM_RELEASE_NAME_LABEL.to_owned(), object.name().to_owned()),
        (HELM_RELEASE_NAMESPACE_LABEL.to_owned(), Object::namespace(object).to_owned()),
    ]
}

impl helm::PostRender for PostRenderers {
    fn run(&self, documents: String) -> Result<String, String> {
        let mut text = documents;
        for renderer in &self.kustomize {
            text = kustomized(&text, renderer)?;
        }
        let options = yaml::Options::new(yaml::Schema::V3);
        let parsed = yaml::parse_stream(text.as_bytes(), &options).map_err(|error| error.to_string())?;
        let mut out = String::new();
        for document in parsed.iter().filter(|document| !document.root.is_null()) {
            let object = yaml::kustomize_json(&document.root).map_err(|error| error.to_string())?;
            for mut object in opened(object) {
                self.mark(&mut object);
                if !out.is_empty() {
                    out.push_str("---\n");
                }
                out.push_str(&yaml::to_yaml_sigs(&object).map_err(|error| error.to_string())?);
            }
        }
        Ok(out)
    }
}

fn kustomized(documents: &str, renderer: &KustomizePostRenderer) -> Result<String, String> {
    const INPUT: &str = "helm-output.yaml";
    let files = MemoryTree::from_texts([(INPUT, documents)]).map_err(|error| error.to_string())?;
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [INPUT], "patches": renderer.patches, "images": renderer.images,
    });
    let built = kustomize::build_with(
        &files,
        &TreePath::root(),
        kustomization.to_string().as_bytes(),
        &kustomize::Options::FLUX,
    );
    built.and_then(|manifests| manifests.to_yaml()).map_err(|error| error.to_string())
}

/// Lists are opened up, as kustomize does when it reads resources.
fn opened(mut object: Value) -> Vec<Value> {
    let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match object.get_mut("items").filter(|_| is_list) {
        Some(Value::Array(items)) => std::mem::take(items),
        _ => vec![object],
    }
}

pub(super) fn put(object: &mut Value, place: &str, key: &str, value: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let Some(metadata) = metadata.as_object_mut() else { return };
    let entries = metadata.entry(place).or_insert_with(|| json!({}));
    if !entries.is_object() {
        *entries = json!({});
    }
    if let Some(entries) = entries.as_object_mut() {
        entries.insert(key.to_owned(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use helm::PostRender;

    use super::super::state::tests::object;
    use super::*;

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  # a comment\ndata:\n  k: v\n";

    #[test]
    fn every_object_says_whose_it_is() {
        let rendered = PostRenderers::of(&object(json!({}))).run(format!("{MAP}---\n{MAP}")).unwrap();
        let one = "apiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\nmetadata:\n  labels:\n    helm.toolkit.fluxcd.io/name: web\n    helm.toolkit.fluxcd.io/namespace: apps\n  name: a\n";
        assert_eq!(rendered, format!("{one}---\n{one}"));
    }

    #[test]
    fn patches_and_common_metadata_come_first() {
        let object = object(json!({
            "postRenderers": [{"kustomize": {"patches": [{"patch": "[{\"op\": \"add\", \"path\": \"/data/x\", \"value\": \"y\"}]", "target": {"kind": "ConfigMap"}}]}}],
            "commonMetadata": {"labels": {"team": "a", "helm.toolkit.fluxcd.io/name": "no"}, "annotations": {"n": "1"}},
        }));
        let rendered = PostRenderers::of(&object).run(MAP.to_owned()).unwrap();
        let json = yaml::to_json(rendered.as_bytes()).unwrap();
        assert_eq!(json["data"], json!({"k": "v", "x": "y"}));
        assert_eq!(json["metadata"]["annotations"], json!({"n": "1"}));
        assert_eq!(
            json["metadata"]["labels"],
            json!({"team": "a", "helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "apps"})
        );
    }

    #[test]
    fn images_are_replaced_and_renderers_follow_each_other() {
        let object = object(json!({"postRenderers": [
            {"kustomize": {"images": [{"name": "app", "newName": "mirror/app", "newTag": "2"}]}},
            {"kustomize": {"images": [{"name": "mirror/app", "digest": "sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3"}]}},
        ]}));
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: 'app:1'}]}\n";
        let rendered = PostRenderers::of(&object).run(pod.to_owned()).unwrap();
        let json = yaml::to_json(rendered.as_bytes()).unwrap();
        let image = "mirror/app@sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3";
        assert_eq!(json["spec"]["containers"][0]["image"], image);
    }

    #[tokio::test]
    async fn names_are_looked_up_only_where_the_gate_allows_it() {
        let file = |name: &str, text: &str| helm::File {
            name: name.to_owned(),
            data: text.to_owned().into(),
            modified: None,
        };
        let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  found: \"{{ getHostByName \"localhost\" }}\"\n";
        let rendered = async |enable_dns: bool| {
            let files = vec![
                file("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0-rc.1\n"),
                file("templates/a.yaml", template),
            ];
            let chart = Chart::from_files(files, helm::Limits::default(), Dialect::Helm4).unwrap();
            let rendering = Rendering {
                chart: Arc::new(chart),
                values: Values::new(),
                revision: 1,
                operation: Operation::Install,
                capabilities: Capabilities::offline(Dialect::Helm4),
                cluster: None,
                dialect: Dialect::Helm4,
                skip_schema_validation: false,
                enable_dns,
            };
            rendering.run(&object(json!({}))).await.unwrap().1.manifest
        };
        let nothing = "found: \"\"";
        assert!(rendered(false).await.contains(nothing));
        let found = rendered(true).await;
        assert!(found.contains("found: ") && !found.contains(nothing), "{found}");
    }

    #[test]
    fn lists_are_opened() {
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        let rendered = PostRenderers::of(&object(json!({}))).run(list.to_owned()).unwrap();
        assert_eq!(rendered.matches("kind: Secret").count(), 2);
        assert_eq!(rendered.matches("helm.toolkit.fluxcd.io/name: web").count(), 2);
    }
}
