//! Writes the committed tables from documents of the real tools.
//!
//! ```text
//! generate OUT.bin [--prose] [--discovery FILE]... [--go-fields FILE]... OPENAPI...
//! ```
//!
//! `data/kustomize.bin`: the Kubernetes and Kustomization OpenAPI documents inside kustomize's kyaml module, as JSON.
//! `data/kubernetes.bin`: `--prose`, `--discovery` with the aggregated answers of `/api` and `/apis` (`apidiscovery.k8s.io/v2`)
//! and one file for each group and version under `/openapi/v3`, from a kube-apiserver with default flags,
//! and `--go-fields`: what Go's reflection says of the API structures, `{definition: {field: {flags, type}}}` (see
//! `Builder::add_go_fields`). OpenAPI does not tell a pointer from a value, and decoding does.

#![allow(clippy::disallowed_methods, reason = "a tool at the desk, not part of the crate")]

use std::error::Error;

use kube_schema::Schemas;
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let out = args
        .next()
        .ok_or("usage: generate OUT.bin [--prose] [--discovery FILE]... [--go-fields FILE]... OPENAPI...")?;
    let (mut discovery, mut documents, mut go_fields, mut prose) =
        (Vec::new(), Vec::new(), Vec::new(), false);
    while let Some(arg) = args.next() {
        if arg == "--prose" {
            prose = true;
        } else if arg == "--discovery" {
            discovery.push(read(&args.next().ok_or("--discovery needs a file")?)?);
        } else if arg == "--go-fields" {
            go_fields.push(read(&args.next().ok_or("--go-fields needs a file")?)?);
        } else {
            documents.push(read(&arg)?);
        }
    }
    let schemas = Schemas::generate(&discovery, &documents, &go_fields, prose)?;
    let bytes = schemas.pack()?;
    std::fs::write(&out, &bytes)?;
    println!(
        "{out}: {} bytes, {} definitions, {} kinds",
        bytes.len(),
        schemas.definitions().count(),
        schemas.kinds().count()
    );
    for document in documents.iter().filter(|document| prose && document.get("components").is_some()) {
        compare(document, &schemas);
    }
    Ok(())
}

/// Says which definitions of an OpenAPI v3 document do not come back as they were.
fn compare(document: &Value, schemas: &Schemas) {
    let definitions = document["components"]["schemas"].as_object().into_iter().flatten();
    for (name, original) in definitions {
        let mut original = original.clone();
        if let Some(object) = original.as_object_mut() {
            object.remove("x-kubernetes-unions");
        }
        let mut back = schemas.openapi_v3([name.as_str()]).remove(name).unwrap_or_default();
        // Every group's document lists its own kinds under the types that all groups share.
        for side in [&mut original, &mut back] {
            if let Some(object) = side.as_object_mut() {
                object.remove("x-kubernetes-group-version-kind");
            }
        }
        if back != original {
            println!("differs: {name}\n  was {original}\n  is  {back}");
        }
    }
}

fn read(path: &str) -> Result<Value, Box<dyn Error>> {
    Ok(serde_json::from_slice(&std::fs::read(path)?).map_err(|error| format!("{path}: {error}"))?)
}
