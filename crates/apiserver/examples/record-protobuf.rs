//! Writes `src/protobuf/messages.tsv` from the protobuf descriptions in Kubernetes' published Go modules:
//!
//! ```text
//! cargo run -p apiserver --example record-protobuf -- $(go env GOMODCACHE)/k8s.io 0.36.3 > crates/apiserver/src/protobuf/messages.tsv
//! ```
//!
//! Only numbers, names and types are taken. One line a message: its name, then `number:name:type` for each field; a type
//! ends in `*` when repeated and stands in braces when it is a map's value. It ends in `?` when the value is always on the
//! wire but JSON leaves it out when it is empty; only the Go structures say so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Packages whose kinds the server reads.
const PACKAGES: [&str; 26] = [
    "api/core/v1",
    "api/apps/v1",
    "api/batch/v1",
    "api/authentication/v1",
    "api/authorization/v1",
    "api/autoscaling/v1",
    "api/autoscaling/v2",
    "api/certificates/v1",
    "api/coordination/v1",
    "api/discovery/v1",
    "api/events/v1",
    "api/flowcontrol/v1",
    "api/networking/v1",
    "api/node/v1",
    "api/policy/v1",
    "api/rbac/v1",
    "api/resource/v1",
    "api/scheduling/v1",
    "api/storage/v1",
    "api/admissionregistration/v1",
    "apimachinery/pkg/apis/meta/v1",
    "apimachinery/pkg/runtime",
    "apimachinery/pkg/api/resource",
    "apimachinery/pkg/util/intstr",
    "apiextensions-apiserver/pkg/apis/apiextensions/v1",
    "kube-aggregator/pkg/apis/apiregistration/v1",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().ok_or("first argument: the folder of the k8s.io modules")?);
    let version = arguments.next().ok_or("second argument: their version, such as 0.36.3")?;
    let mut messages = BTreeMap::new();
    for package in PACKAGES {
        let (module, path) = package.split_once('/').ok_or("a package is module/path")?;
        let folder = root.join(format!("{module}@v{version}")).join(path);
        read(&folder.join("generated.proto"), &left_out_when_empty(&folder)?, &mut messages)?;
    }
    for (name, fields) in messages {
        println!("{name}\t{}", fields.join("\t"));
    }
    Ok(())
}

/// Structure and field number of the plain values that JSON leaves out when they are empty.
fn left_out_when_empty(folder: &Path) -> Result<BTreeSet<(String, String)>, Box<dyn std::error::Error>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "go") {
            continue;
        }
        let mut structure = String::new();
        for line in std::fs::read_to_string(&path)?.lines() {
            if let Some(name) = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {")) {
                structure = name.to_owned();
            }
            if let Some(number) = empty_field(line) {
                found.insert((structure.clone(), number));
            }
        }
    }
    Ok(found)
}

/// ``Name string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"` `` → `1`.
fn empty_field(line: &str) -> Option<String> {
    let (declaration, tags) = line.trim().split_once('`')?;
    let kind = declaration.split_whitespace().nth(1)?;
    let (_, json) = tags.split_once("json:\"")?;
    let (_, protobuf) = tags.split_once("protobuf:\"")?;
    let plain = !kind.starts_with(['*', '[']) && !kind.starts_with("map[");
    let omitted = json.split('"').next()?.split(',').skip(1).any(|option| option == "omitempty");
    (plain && omitted).then(|| protobuf.split(',').nth(1).map(str::to_owned))?
}

fn read(
    file: &Path,
    empty: &BTreeSet<(String, String)>,
    messages: &mut BTreeMap<String, Vec<String>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let (mut package, mut message) = (String::new(), None::<String>);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';').to_owned();
        } else if let Some(name) = line.strip_prefix("message ") {
            let name = format!("{package}.{}", name.trim_end_matches(" {"));
            messages.entry(name.clone()).or_default();
            message = Some(name);
        } else if line == "}" {
            message = None;
        } else if let (Some(message), Some(field)) = (&message, field(line, &package)) {
            let number = field.split(':').next().unwrap_or_default().to_owned();
            let short = message.rsplit('.').next().unwrap_or_default().to_owned();
            let scalar = matches!(
                field.rsplit(':').next(),
                Some("string" | "bool" | "int32" | "int64" | "double" | "float")
            );
            let mark = if scalar && empty.contains(&(short, number)) { "?" } else { "" };
            let field = field + mark;
            messages.entry(message.clone()).or_default().push(field);
        }
    }
    Ok(())
}

/// `optional string name = 1;` → `1:name:string`.
fn field(line: &str, package: &str) -> Option<String> {
    let line = line.strip_suffix(';')?;
    let (declaration, number) = line.split_once(" = ")?;
    let (declaration, repeated) = match declaration.strip_prefix("repeated ") {
        Some(rest) => (rest, "*"),
        None => (declaration.strip_prefix("optional ").unwrap_or(declaration), ""),
    };
    let (kind, name) = declaration.rsplit_once(' ')?;
    let full = |kind: &str| match kind {
        "string" | "bytes" | "bool" | "int32" | "int64" | "double" | "float" => kind.to_owned(),
        other => match other.strip_prefix('.') {
            Some(absolute) => absolute.to_owned(),
            None if other.contains('.') => other.to_owned(),
            None => format!("{package}.{other}"),
        },
    };
    let kind = match kind.strip_prefix("map<string, ").and_then(|rest| rest.strip_suffix('>')) {
        Some(value) => format!("{{{}}}", full(value)),
        None => full(kind),
    };
    Some(format!("{}:{name}:{kind}{repeated}", number.trim()))
}
