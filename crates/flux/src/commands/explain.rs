//! `flux explain values hr/NAME [--key a.b]`: which layer set a value of a release: a ConfigMap, a Secret, or the
//! HelmRelease itself. What comes from a Secret is not shown.

use flux_api::Object as _;
use flux_api::helm::HelmRelease;
use flux_api::meta::ConfigKind;
use flux_controllers::helm::values::{Composed, Data, Layer, Referenced, compose};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::kinds;
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

/// Values that one release may be explained with.
const MOST: usize = 100_000;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let usage = || fail!("name a release: `flux explain values hr/<name> [--key <path>]`");
    let name = match &run.args[..] {
        [one] => match one.split_once('/') {
            Some((kind, name)) => {
                let is_release = kinds::by_word(kind).is_some_and(|kind| kind.words == "helmrelease");
                if is_release {
                    name
                } else {
                    return Err(fail!("'{kind}' has no values: name a HelmRelease"));
                }
            }
            None => one,
        },
        _ => return Err(usage()),
    };
    let session = Session::open(run).await?;
    let object = session.get(&flux_api::kinds::HELM_RELEASE, name).await?;
    let composed = of_release(&session, &object).await?;
    match run.some("key") {
        Some(key) => output::data(&one(&composed, key)?),
        None => output::data(&all(&composed)),
    }
}

/// The values of a release as the controller composes them, read with the rights of whoever asks.
pub(super) async fn of_release(session: &Session, object: &Value) -> Result<Composed, CliError> {
    let release: HelmRelease = serde_json::from_value(object.clone())
        .map_err(|error| fail!("the HelmRelease cannot be read: {error}"))?;
    let mut referenced = Referenced::default();
    for reference in &release.spec.values_from {
        if !referenced.contains(reference.kind, &reference.name) {
            let data = data(session, reference.kind, &reference.name).await?;
            referenced.insert(reference.kind, &reference.name, data);
        }
    }
    let inline = object.pointer("/spec/values");
    compose(release.namespace(), inline, &release.spec.values_from, &referenced)
        .map_err(|error| fail!("{error}"))
}

async fn data(session: &Session, kind: ConfigKind, name: &str) -> Result<Option<Data>, CliError> {
    let failed = |error| session.failed(error, None);
    let client = session.client.clone();
    Ok(match kind {
        ConfigKind::ConfigMap => {
            let api: Api<ConfigMap> = Api::namespaced(client, &session.namespace);
            api.get_opt(name).await.map_err(failed)?.map(|map| {
                let binary =
                    map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
                let text =
                    map.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
                text.chain(binary).collect()
            })
        }
        ConfigKind::Secret => {
            let api: Api<Secret> = Api::namespaced(client, &session.namespace);
            api.get_opt(name).await.map_err(failed)?.map(|secret| {
                secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
            })
        }
    })
}

/// One value: what it is, who set it, and who else tried to.
fn one(composed: &Composed, key: &str) -> Result<String, CliError> {
    let parts = path(key);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let Some(value) = at(composed, &parts) else {
        return Err(fail!("nothing of the HelmRelease sets '{key}': the chart's own default counts"));
    };
    let layers = composed.layers(&parts);
    let mut out = match (composed.origin(&parts), value) {
        (Some(layer), value) => format!("{key}: {}\nset by {layer}\n", shown(value, Some(layer))),
        // A map that several layers have a part in.
        (None, value) => {
            let secret = layers.iter().any(|layer| is_secret(layer));
            let value = if secret { "*** (partly from a Secret)".to_owned() } else { value.to_string() };
            format!("{key}: {value}\nmade of several layers\n")
        }
    };
    for layer in layers.iter().filter(|layer| composed.origin(&parts) != Some(**layer)) {
        out.push_str(&format!("also in {layer}\n"));
    }
    Ok(out)
}

/// Every value with the layer that set it.
fn all(composed: &Composed) -> String {
    let mut rows = Vec::new();
    let mut waiting: Vec<(Vec<String>, &Value)> =
        composed.values.as_map().iter().rev().map(|(key, value)| (vec![key.clone()], value)).collect();
    while let Some((path, value)) = waiting.pop() {
        if let Some(map) = value.as_object().filter(|map| !map.is_empty()) {
            waiting.extend(
                map.iter().rev().map(|(key, value)| ([&path[..], std::slice::from_ref(key)].concat(), value)),
            );
            continue;
        }
        if rows.len() == MOST {
            break;
        }
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        let layer = composed.origin(&parts);
        let name: Vec<String> = path.iter().map(|part| part.replace('.', "\\.")).collect();
        rows.push(vec![
            name.join("."),
            shown(value, layer),
            layer.map(ToString::to_string).unwrap_or_default(),
        ]);
    }
    output::table(&["key", "value", "set by"].map(str::to_owned), &rows)
}

fn is_secret(layer: &Layer) -> bool {
    matches!(layer, Layer::Reference { kind: ConfigKind::Secret, .. })
}

fn shown(value: &Value, layer: Option<&Layer>) -> String {
    match layer {
        Some(layer) if is_secret(layer) => "***".to_owned(),
        Some(_) => value.to_string(),
        // Nobody knows whose it is, so it may be a Secret's.
        None => "***".to_owned(),
    }
}

fn at<'a>(composed: &'a Composed, parts: &[&str]) -> Option<&'a Value> {
    let (first, rest) = parts.split_first()?;
    rest.iter().try_fold(composed.values.as_map().get(*first)?, |value, key| value.get(*key))
}

/// The parts of `a.b\.c`.
fn path(key: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = key.chars();
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut()) {
            ('.', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.extend(letters.next()),
            (other, Some(part)) => part.push(other),
            (_, None) => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_api::meta::ValuesReference;
    use serde_json::json;

    fn composed() -> Composed {
        let reference = |kind: &str, name: &str| -> ValuesReference {
            serde_json::from_value(json!({ "kind": kind, "name": name })).unwrap()
        };
        let data = |text: &str| Some(Data::from([("values.yaml".to_owned(), text.as_bytes().to_vec())]));
        let mut referenced = Referenced::default();
        referenced.insert(ConfigKind::ConfigMap, "base", data("a: {x: one, z: two}\n"));
        referenced.insert(ConfigKind::Secret, "login", data("password: canary\n"));
        let references = [reference("ConfigMap", "base"), reference("Secret", "login")];
        compose("n", Some(&json!({ "a": { "x": "three" }, "b.c": true })), &references, &referenced).unwrap()
    }

    #[test]
    fn a_value_is_explained_by_who_set_it_and_who_did_not() {
        let composed = composed();
        assert_eq!(
            one(&composed, "a.x").unwrap(),
            "a.x: \"three\"\nset by spec.values\nalso in spec.valuesFrom[0] (ConfigMap 'base', key 'values.yaml')\n"
        );
        assert_eq!(one(&composed, "b\\.c").unwrap(), "b\\.c: true\nset by spec.values\n");
        assert!(one(&composed, "a").unwrap().contains("made of several layers"));
        assert!(one(&composed, "z").unwrap_err().to_string().contains("the chart's own default counts"));
    }

    #[test]
    fn what_a_secret_holds_is_not_shown() {
        let composed = composed();
        let text = one(&composed, "password").unwrap();
        assert!(text.starts_with("password: ***\nset by spec.valuesFrom[1] (Secret 'login'"), "{text}");
        let table = all(&composed);
        assert!(!table.contains("canary") && table.contains("a.z") && table.contains("b\\.c"), "{table}");
    }
}
