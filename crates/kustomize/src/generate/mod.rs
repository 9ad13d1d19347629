//! The builtin generators: ConfigMaps, Secrets, and a service account for GKE.

mod key_values;

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;

use crate::error::{Class, Error};
use crate::kustomization::{ConfigMapArgs, GeneratorOptions, SecretArgs};
use crate::load::Loader;
use crate::resource::{Behavior, Resource};
use crate::tree::{Kind, NodeId, ScalarStyle, Tag, Text, Tree};
use key_values::KeyValue;

pub(crate) use key_values::Sources;

/// A ConfigMap with the given content.
pub(crate) fn config_map(
    tree: &mut Tree,
    loader: &Loader<'_>,
    args: &ConfigMapArgs,
) -> Result<Resource, Error> {
    let root = base(tree, "ConfigMap", &args.name, &args.namespace)?;
    let sources = Sources { literals: &args.literals, files: &args.files, envs: &args.envs, secret: false };
    for entry in validated(loader, &args.name, &sources)? {
        let (field, text) = match String::from_utf8(entry.value) {
            Ok(text) => ("data", text),
            Err(bytes) => ("binaryData", base64_lines(bytes.as_bytes())),
        };
        add_entry(tree, root, field, &entry.key, &text)?;
    }
    finish(tree, root, args.options.as_ref(), &args.behavior)
}

/// A Secret with the given content.
pub(crate) fn secret(tree: &mut Tree, loader: &Loader<'_>, args: &SecretArgs) -> Result<Resource, Error> {
    let root = base(tree, "Secret", &args.name, &args.namespace)?;
    let kind = tree.string(if args.kind.is_empty() { "Opaque" } else { &args.kind });
    set(tree, root, "type", kind)?;
    let sources = Sources { literals: &args.literals, files: &args.files, envs: &args.envs, secret: true };
    let entries = validated(loader, &args.name, &sources)?;
    let data = tree.empty(Kind::Map);
    set(tree, root, "data", data)?;
    for entry in entries {
        add_entry(tree, root, "data", &entry.key, &base64_lines(&entry.value))?;
    }
    finish(tree, root, args.options.as_ref(), &args.behavior)
}

/// A service account that stands for one of Google's cloud.
pub(crate) fn gke_service_account(tree: &mut Tree, args: &ServiceAccountArgs<'_>) -> Result<Resource, Error> {
    if args.cloud != "gke" {
        let text = format!("cloud provider {} not supported yet", args.cloud);
        return Err(Error::new(Class::Generator, text));
    }
    let mut text = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  annotations:\n    iam.gke.io/gcp-service-account: {}@{}.iam.gserviceaccount.com\n  name: {}\n",
        args.account, args.project, args.name
    );
    if !args.namespace.is_empty() {
        text.push_str(&format!("\n  namespace: {}", args.namespace));
    }
    let failed = |error: String| Error::new(Class::Generator, error);
    let node = crate::tree::parse(text.as_bytes()).map_err(|error| failed(error.to_string()))?;
    let root = tree.take(node.unwrap_or_default()).map_err(failed)?;
    Resource::new(tree, root)
}

/// What [`gke_service_account`] needs.
pub(crate) struct ServiceAccountArgs<'a> {
    pub cloud: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
    pub account: &'a str,
    pub project: &'a str,
}

/// Options of one generator, with those of the kustomization. A flag set in either is set.
pub(crate) fn with_global_options(
    local: Option<GeneratorOptions>,
    global: Option<&GeneratorOptions>,
) -> Option<GeneratorOptions> {
    let Some(global) = global else { return local };
    let mut merged = local.unwrap_or_default();
    let fill = |own: &mut BTreeMap<String, String>, others: &BTreeMap<String, String>| {
        for (key, value) in others {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    };
    fill(&mut merged.labels, &global.labels);
    fill(&mut merged.annotations, &global.annotations);
    merged.disable_name_suffix_hash |= global.disable_name_suffix_hash;
    merged.immutable |= global.immutable;
    Some(merged)
}

/// Entries of `data` or `binaryData`, as merging of generated objects writes them.
pub(crate) fn load_data(
    tree: &mut Tree,
    root: NodeId,
    entries: &[(Text, Text)],
    is_binary: bool,
) -> Result<(), Error> {
    let mut sorted: Vec<&(Text, Text)> = entries.iter().collect();
    sorted.sort();
    let field = if is_binary { "binaryData" } else { "data" };
    sorted.into_iter().try_for_each(|(key, value)| add_entry(tree, root, field, key, value))
}

fn base(tree: &mut Tree, kind: &str, name: &str, namespace: &str) -> Result<NodeId, Error> {
    if name.is_empty() {
        return Err(Error::new(Class::Generator, "a configmap must have a name"));
    }
    let root = tree.map(Vec::new());
    let metadata = tree.empty(Kind::Map);
    for (map, field, text) in [
        (root, "apiVersion", "v1"),
        (root, "kind", kind),
        (metadata, "name", name),
        (metadata, "namespace", namespace),
    ] {
        if !text.is_empty() {
            let value = tree.string(text);
            set(tree, map, field, value)?;
        }
    }
    set(tree, root, "metadata", metadata)?;
    Ok(root)
}

fn set(tree: &mut Tree, map: NodeId, field: &str, value: NodeId) -> Result<(), Error> {
    tree.set_field(map, field, value)
        .map(|_| ())
        .map_err(|error| Error::new(Class::Generator, error.to_string()))
}

fn add_entry(tree: &mut Tree, root: NodeId, field: &str, key: &str, text: &str) -> Result<(), Error> {
    let failed = |text: String| Error::new(Class::Generator, text);
    let Some(map) = tree.lookup_create(root, &[field], Kind::Map).map_err(failed)? else { return Ok(()) };
    let value = tree.string(text);
    set(tree, map, key, value)
}

fn validated(loader: &Loader<'_>, name: &str, sources: &Sources<'_>) -> Result<Vec<KeyValue>, Error> {
    let mut entries = sources.load(loader).map_err(|error| error.context("loading KV pairs"))?;
    let mut seen = HashSet::new();
    for entry in &entries {
        if !seen.insert(&entry.key) {
            let text = format!("configmap {name} illegally repeats the key `{}`", entry.key);
            return Err(Error::new(Class::Generator, text));
        }
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(entries)
}

fn finish(
    tree: &mut Tree,
    root: NodeId,
    options: Option<&GeneratorOptions>,
    behavior: &str,
) -> Result<Resource, Error> {
    if let Some(options) = options {
        for (field, entries) in [("labels", &options.labels), ("annotations", &options.annotations)] {
            for (key, text) in entries {
                let failed = |text: String| Error::new(Class::Generator, text);
                let Some(map) = tree.lookup_create(root, &["metadata", field], Kind::Map).map_err(failed)?
                else {
                    continue;
                };
                let value = tree.scalar(text.as_str(), Tag::Str, ScalarStyle::SingleQuoted);
                set(tree, map, key, value)?;
            }
        }
        if options.immutable {
            let value = tree.scalar("true", Tag::Bool, ScalarStyle::Plain);
            set(tree, root, "immutable", value)?;
        }
    }
    let mut resource = Resource::new(tree, root)?;
    resource.memory.needs_hash = !options.is_some_and(|options| options.disable_name_suffix_hash);
    resource.memory.behavior = Some(Behavior::parse(behavior));
    resource.make_room_for_memory(tree);
    Ok(resource)
}

/// Base64 in lines of 70 characters; a single short line has no end.
fn base64_lines(bytes: &[u8]) -> String {
    const LINE: usize = 70;
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    if encoded.len() < LINE {
        return encoded;
    }
    let mut lines = String::with_capacity(encoded.len() + encoded.len() / LINE + 1);
    for at in (0..encoded.len()).step_by(LINE) {
        lines.push_str(&encoded[at..encoded.len().min(at + LINE)]);
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_base64_is_broken_into_lines() {
        assert_eq!(base64_lines(b"ab"), "YWI=");
        let lines = base64_lines(&[0; 60]);
        assert_eq!(lines.lines().map(str::len).collect::<Vec<_>>(), [70, 10]);
        assert!(lines.ends_with('\n'));
    }
}
