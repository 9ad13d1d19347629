//! Server-side apply, property-tested: random applies by several managers end in the same object and the same
//! ownership on the embedded server and on the real one.

use anyhow::{Context, Result};
use kube::Client;
use kube::client::Body;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};
use testbed::Cluster;

const SEEDS: u64 = 12;
const STEPS: usize = 14;
const MANAGERS: [&str; 3] = ["alpha", "beta", "gamma"];

/// A custom kind with every list and map type.
const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.ownership.example.com}
spec:
  group: ownership.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              text: {type: string}
              atomic: {type: array, x-kubernetes-list-type: atomic, items: {type: string}}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              items:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name, port]
                items:
                  type: object
                  required: [name, port]
                  properties: {name: {type: string}, port: {type: integer}, value: {type: string}, tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}}
              granular: {type: object, additionalProperties: {type: string}}
              whole: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Deployment,
    Service,
    Gadget,
}

impl Kind {
    fn path(self, namespace: &str, name: &str) -> String {
        match self {
            Kind::Deployment => format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}"),
            Kind::Service => format!("/api/v1/namespaces/{namespace}/services/{name}"),
            Kind::Gadget => format!("/apis/ownership.example.com/v1/namespaces/{namespace}/gadgets/{name}"),
        }
    }

    fn configuration(self, random: &mut StdRng, name: &str) -> Value {
        let mut object = match self {
            Kind::Deployment => {
                json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": deployment(random) })
            }
            Kind::Service => json!({ "apiVersion": "v1", "kind": "Service", "spec": service(random) }),
            Kind::Gadget => {
                json!({ "apiVersion": "ownership.example.com/v1", "kind": "Gadget", "spec": gadget(random) })
            }
        };
        object["metadata"] = json!({ "name": name });
        for field in ["labels", "annotations"] {
            if random.random_bool(0.5) {
                object["metadata"][field] = texts(random, &["a", "b", "c"]);
            }
        }
        object
    }
}

/// Some of these keys with short values.
fn texts(random: &mut StdRng, keys: &[&str]) -> Value {
    let value = |random: &mut StdRng| ["1", "2"].choose(random).copied().unwrap_or_default();
    some(random, keys)
        .into_iter()
        .map(|key| (key.to_owned(), value(random).into()))
        .collect::<Map<_, _>>()
        .into()
}

/// Some of them, at least one: what is left of an empty map or list after a removal is an oddity of its own, which
/// COMPATIBILITY.md names.
fn some<'a>(random: &mut StdRng, of: &[&'a str]) -> Vec<&'a str> {
    let chosen: Vec<&str> = of.iter().copied().filter(|_| random.random_bool(0.5)).collect();
    if chosen.is_empty() { of[..1].to_vec() } else { chosen }
}

fn deployment(random: &mut StdRng) -> Value {
    let image = ["web:1", "web:2"].choose(random).copied().unwrap_or_default();
    let mut container = json!({ "name": "main", "image": image });
    if random.random_bool(0.5) {
        container["env"] =
            some(random, &["A", "B", "C"]).iter().map(|name| json!({ "name": name, "value": "x" })).collect();
    }
    if random.random_bool(0.4) {
        container["ports"] = some(random, &["80", "81"])
            .iter()
            .map(|port| json!({ "containerPort": port.parse::<u16>().unwrap_or(1), "protocol": "TCP" }))
            .collect();
    }
    let mut containers = vec![container];
    if random.random_bool(0.4) {
        containers.push(json!({ "name": "side", "image": "side:1" }));
    }
    let mut spec = json!({
        "selector": { "matchLabels": { "app": "x" } },
        "template": { "metadata": { "labels": { "app": "x" } }, "spec": { "containers": containers } },
    });
    if random.random_bool(0.5) {
        spec["replicas"] = random.random_range(1..4).into();
    }
    if random.random_bool(0.3) {
        spec["template"]["spec"]["nodeSelector"] = texts(random, &["disk", "zone"]);
    }
    spec
}

/// Ports are keyed by number and protocol.
fn service(random: &mut StdRng) -> Value {
    let mut ports = vec![json!({ "name": "first", "port": 80, "protocol": "TCP" })];
    for (name, port, protocol) in [("second", 81, "TCP"), ("udp", 80, "UDP"), ("third", 82, "TCP")] {
        if random.random_bool(0.4) {
            ports.push(json!({ "name": name, "port": port, "protocol": protocol, "targetPort": random.random_range(8000..8003) }));
        }
    }
    let mut spec = json!({ "ports": ports });
    if random.random_bool(0.5) {
        spec["selector"] = texts(random, &["app", "tier"]);
    }
    spec
}

fn gadget(random: &mut StdRng) -> Value {
    let mut spec = Map::new();
    if random.random_bool(0.5) {
        spec.insert("text".into(), ["x", "y"].choose(random).copied().into());
    }
    for list in ["atomic", "set"] {
        if random.random_bool(0.5) {
            spec.insert(list.into(), json!(some(random, &["a", "b", "c"])));
        }
    }
    for map in ["granular", "whole", "free"] {
        if random.random_bool(0.5) {
            spec.insert(map.into(), texts(random, &["k", "l"]));
        }
    }
    if random.random_bool(0.6) {
        let mut items = vec![json!({ "name": "z", "port": 9 })];
        for (name, port) in [("a", 1), ("a", 2), ("b", 1)] {
            if random.random_bool(0.5) {
                let mut item = json!({ "name": name, "port": port });
                if random.random_bool(0.5) {
                    item["value"] = ["1", "2"].choose(random).copied().into();
                }
                if random.random_bool(0.3) {
                    item["tags"] = json!(some(random, &["p", "q"]));
                }
                items.push(item);
            }
        }
        spec.insert("items".into(), items.into());
    }
    Value::Object(spec)
}

/// The answer's code and body, without what differs from run to run.
async fn apply(
    client: &Client,
    path: &str,
    manager: &str,
    force: bool,
    body: &Value,
) -> Result<(u16, Value)> {
    let request = http::Request::patch(format!("{path}?fieldManager={manager}&force={force}"))
        .header("content-type", "application/apply-patch+yaml")
        .body(Body::from(body.to_string().into_bytes()))?;
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await?.to_bytes();
    let value =
        serde_json::from_slice(&bytes).with_context(|| String::from_utf8_lossy(&bytes).into_owned())?;
    Ok((code, crate::transcript::mask(&value)))
}

async fn agree(kind: Kind) -> Result<()> {
    // Without a controller manager nobody else writes to what is compared.
    let options = testbed::control_plane::Options { controller_manager: false, ..Default::default() };
    let (real, ours) = (Cluster::start(options).await?, Cluster::start_embedded_without_workloads().await?);
    for cluster in [&real, &ours] {
        cluster.apply_crds(DEFINITION).await?;
    }
    let namespace = "default";
    let mut conflicts = 0;
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let path = kind.path(namespace, &format!("object-{seed}"));
        for step in 0..STEPS {
            let manager = MANAGERS.choose(&mut random).context("there are managers")?;
            let force = random.random_bool(0.4);
            let body = kind.configuration(&mut random, &format!("object-{seed}"));
            let on_real = apply(&real.client(), &path, manager, force, &body).await?;
            let on_ours = apply(&ours.client(), &path, manager, force, &body).await?;
            conflicts += usize::from(on_real.0 == 409);
            assert_eq!(
                (on_ours.0, without_order(&on_ours.1)),
                (on_real.0, without_order(&on_real.1)),
                "{kind:?}, seed {seed}, step {step}: {manager} applied (force {force}) {body}"
            );
        }
    }
    println!("{kind:?}: {} applies agree, {conflicts} of them conflicts", SEEDS as usize * STEPS);
    assert!(conflicts > 0, "managers must get into each other's way");
    Ok(())
}

/// Conflicts are listed in the order of Go's maps.
fn without_order(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(causes) = answer.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        causes.sort_by_key(Value::to_string);
        answer["message"] = Value::Null;
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn applies_to_a_deployment_agree() -> Result<()> {
    agree(Kind::Deployment).await
}

#[tokio::test(flavor = "multi_thread")]
async fn applies_to_a_service_agree() -> Result<()> {
    agree(Kind::Service).await
}

#[tokio::test(flavor = "multi_thread")]
async fn applies_to_a_custom_object_agree() -> Result<()> {
    agree(Kind::Gadget).await
}
