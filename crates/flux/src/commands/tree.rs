//! `flux tree`: what a Kustomization applied, as a tree that goes on into Kustomizations and Helm releases.

use std::collections::BTreeSet;
use std::io::Read as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flux_api::kinds as api;
use flux_apply::{Cluster, ObjectId};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::{self, text};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

const TOOLKIT: &str = "toolkit.fluxcd.io";
/// A release record may unpack to this much.
const MOST_RELEASE: u64 = 64 << 20;

struct Node {
    object: ObjectId,
    below: Vec<Node>,
}

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let generator = run.row.path == "tree artifact generator";
    let name = run.name().ok_or_else(|| fail!("kustomization name is required"))?;
    let session = Session::open(run).await?;
    let tree = if generator {
        generated(&session.get(&api::ARTIFACT_GENERATOR, name).await?)
    } else {
        let kustomization = session.get(&api::KUSTOMIZATION, name).await?;
        let mut walk = Walk {
            session: &session,
            cluster: Cluster::new(session.client.clone()),
            compact: run.is("compact"),
            above: BTreeSet::new(),
        };
        let below = walk.kustomization(&kustomization).await?;
        Node { object: ObjectId::of_kind(&api::KUSTOMIZATION, kinds::namespace(&kustomization), name), below }
    };
    output::data(&match run.text("output") {
        "json" => format!("{}\n", go_json(&tree, 0)),
        "yaml" => format!("{}\n", output::yaml_text(&value(&tree))?),
        _ => format!("{}\n", shown(&tree)),
    })
}

fn generated(generator: &Value) -> Node {
    let entries = generator.pointer("/status/inventory").and_then(Value::as_array);
    let below = entries.into_iter().flatten().map(|entry| Node {
        object: ObjectId::of_kind(&api::EXTERNAL_ARTIFACT, text(entry, "/namespace"), text(entry, "/name")),
        below: Vec::new(),
    });
    let object =
        ObjectId::of_kind(&api::ARTIFACT_GENERATOR, kinds::namespace(generator), kinds::name(generator));
    Node { object, below: below.collect() }
}

struct Walk<'a> {
    session: &'a Session,
    cluster: Cluster,
    compact: bool,
    /// Kustomizations we are inside of: two that hold each other would never end.
    above: BTreeSet<ObjectId>,
}

impl Walk<'_> {
    async fn kustomization(&mut self, object: &Value) -> Result<Vec<Node>, CliError> {
        let own = ObjectId::of_kind(&api::KUSTOMIZATION, kinds::namespace(object), kinds::name(object));
        if !self.above.insert(own.clone()) {
            return Ok(Vec::new());
        }
        let mut nodes = Vec::new();
        let entries = object.pointer("/status/inventory/entries").and_then(Value::as_array);
        for entry in entries.into_iter().flatten() {
            let text_id = text(entry, "/id");
            let found = ObjectId::from_inventory(text_id, text(entry, "/v"))
                .ok_or_else(|| fail!("unable to parse stored object metadata: {text_id}"))?;
            let itself = found.group == own.group
                && found.kind == own.kind
                && found.namespace == own.namespace
                && found.name == own.name;
            if itself || (self.compact && !found.group.contains(TOOLKIT)) {
                continue;
            }
            let remote = object.pointer("/spec/kubeConfig").is_some();
            let below = self.below(&found, remote).await?;
            nodes.push(Node { object: found, below });
        }
        self.above.remove(&own);
        Ok(nodes)
    }

    async fn below(&mut self, object: &ObjectId, remote: bool) -> Result<Vec<Node>, CliError> {
        let is = |kind: &api::Kind| object.group == kind.group && object.kind == kind.kind;
        let session = self.session.in_namespace(&object.namespace);
        if is(&api::HELM_RELEASE) {
            let mut objects = self.release(&session, &object.name).await?;
            objects.retain(|object| !self.compact || object.group.contains(TOOLKIT));
            return Ok(objects.into_iter().map(|object| Node { object, below: Vec::new() }).collect());
        }
        if is(&api::KUSTOMIZATION) && !remote {
            let inner = session.get(&api::KUSTOMIZATION, &object.name).await;
            let inner = inner.map_err(|error| fail!("failed to find object: {error}"))?;
            return Box::pin(self.kustomization(&inner)).await;
        }
        Ok(Vec::new())
    }

    /// What Helm's own record of the newest release lists.
    async fn release(&self, session: &Session, name: &str) -> Result<Vec<ObjectId>, CliError> {
        let release = session.get(&api::HELM_RELEASE, name).await?;
        let storage = text(&release, "/status/storageNamespace");
        let Some(latest) = release.pointer("/status/history/0").filter(|_| !storage.is_empty()) else {
            return Ok(Vec::new());
        };
        if release.pointer("/spec/kubeConfig").is_some() {
            return Ok(Vec::new());
        }
        let version = latest.get("version").and_then(Value::as_i64).unwrap_or_default();
        let record = format!("sh.helm.release.v1.{}.v{version}", text(latest, "/name"));
        let secrets: Api<Secret> = Api::namespaced(session.client.clone(), storage);
        let shown = format!("HelmRelease '{}/{name}'", session.namespace);
        let found = secrets.get_opt(&record).await.map_err(|error| {
            fail!("failed to find the Helm storage object for {shown}: {}", session.failed(error, None))
        })?;
        let Some(secret) = found else { return Ok(Vec::new()) };
        let bad = || fail!("failed to decode the Helm storage object for {shown}");
        let data = secret.data.unwrap_or_default().remove("release").ok_or_else(bad)?;
        let manifest = manifest(&data.0).ok_or_else(bad)?;
        let documents = yaml::parse_stream(manifest.as_bytes(), &yaml::Options::new(yaml::Schema::V2))
            .map_err(|error| fail!("failed to read the Helm storage object for {shown}: {error}"))?;
        let mut objects = Vec::new();
        for document in &documents {
            let object = yaml::node_to_json(&document.root, yaml::Schema::V2).unwrap_or_default();
            let Some(mut found) = ObjectId::of(&object) else { continue };
            if found.namespace.is_empty() && self.is_namespaced(&found).await {
                text(latest, "/namespace").clone_into(&mut found.namespace);
            }
            objects.push(found);
        }
        self.add_crds(session, &release, &mut objects).await;
        Ok(objects)
    }

    async fn is_namespaced(&self, object: &ObjectId) -> bool {
        self.cluster.mapper.resource(object).await.is_ok_and(|(_, namespaced)| namespaced)
    }

    /// CRDs of a chart are no part of its manifest; their labels say whose they are.
    async fn add_crds(&self, session: &Session, release: &Value, objects: &mut Vec<ObjectId>) {
        let managed = ["install", "upgrade"]
            .iter()
            .any(|action| !matches!(text(release, &format!("/spec/{action}/crds")), "" | "Skip"));
        if !managed {
            return;
        }
        let (name, namespace) = (kinds::name(release), kinds::namespace(release));
        let labels =
            format!("helm.toolkit.fluxcd.io/name={name},helm.toolkit.fluxcd.io/namespace={namespace}");
        let api: Api<CustomResourceDefinition> = Api::all(session.client.clone());
        let Ok(found) = api.list(&ListParams::default().labels(&labels)).await else { return };
        for name in found.items.into_iter().filter_map(|crd| crd.metadata.name) {
            if !objects.iter().any(|object| object.name == name && object.kind == "CustomResourceDefinition")
            {
                objects.push(ObjectId {
                    group: "apiextensions.k8s.io".to_owned(),
                    version: "v1".to_owned(),
                    kind: "CustomResourceDefinition".to_owned(),
                    namespace: String::new(),
                    name,
                });
            }
        }
    }
}

/// The manifest inside of a release record: base64 of maybe gzipped JSON.
fn manifest(data: &[u8]) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(data).ok()?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b, 0x08]) {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).take(MOST_RELEASE).read_to_end(&mut plain).ok()?;
        plain
    } else {
        bytes
    };
    let release: Value = serde_json::from_slice(&bytes).ok()?;
    Some(release.get("manifest").and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn shown(tree: &Node) -> String {
    let mut out = format!("{}\n", tree.object);
    branches(&mut out, "", &tree.below);
    out
}

fn branches(out: &mut String, before: &str, nodes: &[Node]) {
    for (at, node) in nodes.iter().enumerate() {
        let last = at + 1 == nodes.len();
        out.push_str(&format!("{before}{}{}\n", if last { "└── " } else { "├── " }, node.object));
        branches(out, &format!("{before}{}", if last { "    " } else { "│   " }), &node.below);
    }
}

fn value(tree: &Node) -> Value {
    let object = &tree.object;
    let mut value = json!({"resource": {
        "Namespace": object.namespace, "Name": object.name,
        "GroupKind": {"Group": object.group, "Kind": object.kind},
    }});
    if !tree.below.is_empty() {
        value["resources"] = tree.below.iter().map(self::value).collect();
    }
    value
}

/// In the order of upstream's structures, which is not the alphabet's.
fn go_json(tree: &Node, depth: usize) -> String {
    let object = &tree.object;
    let space = "  ".repeat(depth);
    let mut out = format!(
        "{{\n{space}  \"resource\": {{\n{space}    \"Namespace\": {},\n{space}    \"Name\": {},\n{space}    \"GroupKind\": \
         {{\n{space}      \"Group\": {},\n{space}      \"Kind\": {}\n{space}    }}\n{space}  }}",
        json!(object.namespace),
        json!(object.name),
        json!(object.group),
        json!(object.kind)
    );
    if !tree.below.is_empty() {
        let items: Vec<String> =
            tree.below.iter().map(|node| format!("{space}    {}", go_json(node, depth + 2))).collect();
        out.push_str(&format!(",\n{space}  \"resources\": [\n{}\n{space}  ]", items.join(",\n")));
    }
    out.push_str(&format!("\n{space}}}"));
    out
}
