//! Records what a real kube-apiserver serves: its builtin kinds, the columns of their tables, and the objects every
//! cluster starts with.
//!
//! ```text
//! cargo run -p apiserver --example record-kinds -- KUBECONFIG
//! ```
//!
//! Writes `src/kinds/builtin.tsv`, `src/table/columns.tsv` and `src/cluster/bootstrap.jsonl`. The server must be fresh and
//! run without a controller manager, which would already have filled in aggregated roles.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

type Failure = Box<dyn std::error::Error>;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Collections whose objects every cluster starts with.
const BOOTSTRAP: [&str; 7] = [
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).ok_or("first argument: the kubeconfig of the real server")?;
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let (kinds, columns) = kinds(&client).await?;
    std::fs::write(source.join("kinds/builtin.tsv"), kinds)?;
    std::fs::write(source.join("table/columns.tsv"), columns)?;
    std::fs::write(source.join("cluster/bootstrap.jsonl"), bootstrap(&client).await?)?;
    Ok(())
}

async fn get(client: &Client, path: &str, accept: &str) -> Result<Value, Failure> {
    let request = http::Request::get(path).header("accept", accept).body(Vec::new())?;
    Ok(client.request(request).await?)
}

async fn kinds(client: &Client) -> Result<(String, String), Failure> {
    let mut versions = vec![("v1".to_owned(), "/api/v1".to_owned())];
    let groups = get(client, "/apis", "application/json").await?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let name = version["groupVersion"].as_str().unwrap_or_default();
            versions.push((name.to_owned(), format!("/apis/{name}")));
        }
    }
    let mut table = String::new();
    let mut columns = BTreeMap::new();
    for (version, path) in versions {
        let list = get(client, &path, "application/json").await?;
        for resource in list["resources"].as_array().into_iter().flatten() {
            writeln!(table, "{}", row(&version, resource))?;
            let name = resource["name"].as_str().unwrap_or_default();
            let lists =
                resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            if lists && !name.contains('/') {
                let shown = get(client, &format!("{path}/{name}"), TABLE).await?;
                columns.insert(place(&version, name), column_texts(&shown));
            }
        }
    }
    let mut text = String::from(
        "# Columns of `kubectl get` for builtin kinds, recorded from kube-apiserver 1.36 (examples/record-kinds.rs):\n\
         # place, then name:type:format:priority for each column; type defaults to string, the rest to nothing.\n",
    );
    for (place, columns) in columns {
        writeln!(text, "{place}\t{}", columns.join("\t"))?;
    }
    Ok((table, text))
}

fn place(version: &str, name: &str) -> String {
    match version.split_once('/') {
        Some((group, _)) if name != "events" => format!("{name}.{group}"),
        _ => name.to_owned(),
    }
}

fn row(version: &str, resource: &Value) -> String {
    let text = |key: &str| resource[key].as_str().unwrap_or_default().to_owned();
    let list = |key: &str| {
        let items = resource[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        items.collect::<Vec<_>>().join(",")
    };
    let answer = [text("group"), text("version")]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    let scope = if resource["namespaced"] == true { "N" } else { "C" };
    [
        version.to_owned(),
        text("name"),
        text("singularName"),
        answer,
        text("kind"),
        scope.to_owned(),
        list("verbs"),
        list("shortNames"),
        list("categories"),
        text("storageVersionHash"),
    ]
    .join("\t")
}

fn column_texts(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    let shown = columns.map(|column| {
        let text = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
        let kind = if text("type") == "string" { String::new() } else { text("type") };
        let priority = column["priority"].as_i64().filter(|priority| *priority != 0).map(|p| p.to_string());
        let all = [text("name"), kind, text("format"), priority.unwrap_or_default()].join(":");
        all.trim_end_matches(':').to_owned()
    });
    shown.collect()
}

async fn bootstrap(client: &Client) -> Result<String, Failure> {
    let mut text = String::new();
    for path in BOOTSTRAP {
        let list = get(client, path, "application/json").await?;
        let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
        for item in list["items"].as_array().into_iter().flatten() {
            let mut object = item.clone();
            object["kind"] = kind.as_str().into();
            object["apiVersion"] = list["apiVersion"].clone();
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "labels" | "annotations"));
            }
            writeln!(text, "{object}")?;
        }
    }
    Ok(text)
}
