//! The checksums in a HelmRelease's status, byte for byte as helm-controller computes them: a swap of controllers must
//! not look like a change. Pure.
//!
//! Go writes structs in the order of their fields and maps by key, so the order here is part of the format.

use flux_api::digest::Algorithm;
use flux_api::helm::PostRenderer;
use flux_api::meta::CommonMetadata;
use helm::release::Release;
use helm::{Hook, HookEvent};
use serde_json::{Map, Value, json};

use crate::artifact;

/// Of bytes, as `sha256:…`.
pub fn of(algorithm: Algorithm, bytes: &[u8]) -> String {
    artifact::digest::of(algorithm, bytes).expect("bytes in memory can be read").to_string()
}

/// The algorithm of a digest that is compared with: `--snapshot-digest-algo` may have changed since it was written.
pub fn algorithm_of(digest: &str) -> Algorithm {
    digest.split_once(':').and_then(|(name, _)| name.parse().ok()).unwrap_or(Algorithm::Sha256)
}

/// Of values: their YAML with sorted keys; of no values, that of nothing.
pub fn of_values(algorithm: Algorithm, values: &Map<String, Value>) -> String {
    if values.is_empty() {
        return of(algorithm, b"");
    }
    // A tree of JSON can always be written.
    let text = yaml::to_yaml_sigs(&Value::Object(values.clone())).unwrap_or_default();
    of(algorithm, text.as_bytes())
}

/// Of `spec.postRenderers`; `None` when there are none.
pub fn of_post_renderers(algorithm: Algorithm, renderers: &[PostRenderer]) -> Option<String> {
    if renderers.is_empty() {
        return None;
    }
    let list: Vec<String> = renderers.iter().map(post_renderer).collect();
    Some(of(algorithm, format!("[{}]\n", list.join(",")).as_bytes()))
}

fn post_renderer(renderer: &PostRenderer) -> String {
    let mut outer = Fields::default();
    if let Some(kustomize) = &renderer.kustomize {
        let mut inner = Fields::default();
        let patches = kustomize.patches.iter().map(|patch| {
            let mut fields = Fields::default();
            fields.json("patch", &json!(patch.patch));
            if let Some(target) = &patch.target {
                let mut selector = Fields::default();
                for (name, value) in [
                    ("group", &target.group),
                    ("version", &target.version),
                    ("kind", &target.kind),
                    ("namespace", &target.namespace),
                    ("name", &target.name),
                    ("annotationSelector", &target.annotation_selector),
                    ("labelSelector", &target.label_selector),
                ] {
                    selector.text(name, value.as_deref().unwrap_or_default());
                }
                fields.raw("target", selector.end());
            }
            fields.end()
        });
        inner.list("patches", patches.collect());
        let images = kustomize.images.iter().map(|image| {
            let mut fields = Fields::default();
            fields.json("name", &json!(image.name));
            fields.text("newName", image.new_name.as_deref().unwrap_or_default());
            fields.text("newTag", image.new_tag.as_deref().unwrap_or_default());
            fields.text("digest", image.digest.as_deref().unwrap_or_default());
            fields.end()
        });
        inner.list("images", images.collect());
        outer.raw("kustomize", inner.end());
    }
    outer.end()
}

/// Of `spec.commonMetadata`; `None` when there is none.
pub fn of_common_metadata(algorithm: Algorithm, metadata: Option<&CommonMetadata>) -> Option<String> {
    let metadata = metadata?;
    let mut fields = Fields::default();
    if !metadata.annotations.is_empty() {
        fields.json("annotations", &json!(metadata.annotations));
    }
    if !metadata.labels.is_empty() {
        fields.json("labels", &json!(metadata.labels));
    }
    Some(of(algorithm, format!("{}\n", fields.end()).as_bytes()))
}

/// Of a release as it is stored. Test hooks do not count: running them says nothing new about what was released.
pub fn of_release(algorithm: Algorithm, release: &Release, oci_digest: Option<&str>) -> String {
    let mut fields = Fields::default();
    fields.json("name", &json!(release.name));
    fields.json("version", &json!(release.version));
    fields.raw("info", info(release));
    fields.raw("chartMetadata", chart_metadata(release.chart.get("metadata").unwrap_or(&Value::Null)));
    let config = release.config.as_ref().filter(|config| !config.is_empty());
    fields.json("config", &config.map_or(Value::Null, |config| Value::Object(config.clone())));
    fields.json("manifest", &json!(release.manifest));
    let hooks: Vec<String> =
        release.hooks.iter().filter(|hook| !hook.events.contains(&HookEvent::Test)).map(hook).collect();
    fields.raw("hooks", if hooks.is_empty() { "null".to_owned() } else { format!("[{}]", hooks.join(",")) });
    fields.json("namespace", &json!(release.namespace));
    fields.text("ociDigest", oci_digest.unwrap_or_default());
    of(algorithm, format!("{}\n", fields.end()).as_bytes())
}

fn info(release: &Release) -> String {
    let info = &release.info;
    let mut fields = Fields::default();
    fields.time("first_deployed", &info.first_deployed);
    fields.time("last_deployed", &info.last_deployed);
    fields.time("deleted", &info.deleted);
    fields.text("description", &info.description);
    fields.text("status", info.status.name());
    fields.text("notes", &info.notes);
    fields.end()
}

fn hook(hook: &Hook) -> String {
    let mut fields = Fields::default();
    fields.text("name", &hook.name);
    fields.text("kind", &hook.kind);
    fields.text("path", &hook.path);
    fields.text("manifest", &hook.manifest);
    fields.texts("events", hook.events.iter().map(|event| event.name().to_owned()));
    let mut run = Fields::default();
    run.time("started_at", &hook.last_run.started_at);
    run.time("completed_at", &hook.last_run.completed_at);
    run.json("phase", &json!(hook.last_run.phase));
    fields.raw("last_run", run.end());
    if hook.weight != 0 {
        fields.json("weight", &json!(hook.weight));
    }
    fields.texts("delete_policies", hook.delete_policies.iter().cloned().map(String::from));
    fields.texts("output_log_policies", hook.output_log_policies.iter().cloned().map(String::from));
    fields.end()
}

fn chart_metadata(metadata: &Value) -> String {
    let mut fields = Fields::default();
    fields.of(metadata, &["name", "home", "sources", "version", "description", "keywords"]);
    let maintainers = list(metadata, "maintainers").map(|maintainer| {
        let mut fields = Fields::default();
        fields.of(maintainer, &["name", "email", "url"]);
        fields.end()
    });
    fields.list("maintainers", maintainers.collect());
    fields.of(
        metadata,
        &[
            "icon",
            "apiVersion",
            "condition",
            "tags",
            "appVersion",
            "deprecated",
            "annotations",
            "kubeVersion",
        ],
    );
    let dependencies = list(metadata, "dependencies").map(|dependency| {
        let text = |key: &str| dependency.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut fields = Fields::default();
        fields.json("name", &json!(text("name")));
        fields.of(dependency, &["version"]);
        fields.json("repository", &json!(text("repository")));
        fields.of(dependency, &["condition", "tags", "enabled", "import-values", "alias"]);
        fields.end()
    });
    fields.list("dependencies", dependencies.collect());
    fields.of(metadata, &["type"]);
    fields.end()
}

fn list<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// A JSON object as Go writes a struct: fields in a given order, most of them left out when empty.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn raw(&mut self, name: &str, json: String) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&yaml::json_text(&json!(name)));
        self.0.push(':');
        self.0.push_str(&json);
    }

    fn json(&mut self, name: &str, value: &Value) {
        self.raw(name, yaml::json_text(value));
    }

    fn text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.json(name, &json!(text));
        }
    }

    fn texts(&mut self, name: &str, texts: impl Iterator<Item = String>) {
        let texts: Vec<String> = texts.collect();
        if !texts.is_empty() {
            self.json(name, &json!(texts));
        }
    }

    fn list(&mut self, name: &str, items: Vec<String>) {
        if !items.is_empty() {
            self.raw(name, format!("[{}]", items.join(",")));
        }
    }

    /// Fields of `object` that are not empty.
    fn of(&mut self, object: &Value, names: &[&str]) {
        for name in names {
            let Some(value) = object.get(*name) else { continue };
            let empty = match value {
                Value::Null => true,
                Value::Bool(flag) => !flag,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Object(entries) => entries.is_empty(),
                Value::Number(_) => false,
            };
            if !empty {
                self.json(name, value);
            }
        }
    }

    /// Go's zero time counts as unset, and fractions lose their trailing zeros.
    fn time(&mut self, name: &str, time: &str) {
        if time.starts_with("0001-01-01T00:00:00") {
            return;
        }
        let Some((seconds, rest)) = time.split_once('.') else {
            return self.text(name, time);
        };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (fraction, zone) = rest.split_at(digits);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        self.text(name, &format!("{seconds}{dot}{fraction}{zone}"));
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(json: Value) -> Release {
        serde_json::from_value(json).unwrap()
    }

    fn map(json: Value) -> Map<String, Value> {
        json.as_object().unwrap().clone()
    }

    #[test]
    fn no_values_have_the_digest_of_nothing() {
        let nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of_values(Algorithm::Sha256, &Map::new()), nothing);
    }

    #[test]
    fn values_are_hashed_as_yaml_with_sorted_keys() {
        let values = map(json!({"b": {"y": 1.0, "x": "<"}, "a": [true, {"d": 1, "c": null}]}));
        let text = "a:\n- true\n- c: null\n  d: 1\nb:\n  x: <\n  \"y\": 1\n";
        assert_eq!(of_values(Algorithm::Sha256, &values), of(Algorithm::Sha256, text.as_bytes()));
    }

    #[test]
    fn an_empty_observation_has_the_digest_upstream_has() {
        // Upstream's own test: a release that has a name and nothing else, not even a status.
        let mut fields = Fields::default();
        fields.json("name", &json!("foo"));
        fields.json("version", &json!(0));
        fields.raw("info", "{}".to_owned());
        fields.raw("chartMetadata", "{}".to_owned());
        for name in ["config", "manifest", "hooks", "namespace"] {
            let empty = if name == "config" || name == "hooks" { json!(null) } else { json!("") };
            fields.json(name, &empty);
        }
        assert_eq!(
            of(Algorithm::Sha256, format!("{}\n", fields.end()).as_bytes()),
            "sha256:f1498f27a16a09cd7e1ee610d924df065c03d30035638babc95dd9a8d412ce4d"
        );
    }

    #[test]
    fn test_hooks_and_what_real_helm_adds_do_not_count() {
        let base = json!({"name": "a", "version": 1, "info": {"status": "deployed", "last_deployed": "2026-01-02T03:04:05.120Z"}});
        let plain = of_release(Algorithm::Sha256, &release(base.clone()), None);
        let mut tested = base.clone();
        tested["hooks"] = json!([{"name": "t", "events": ["test"], "last_run": {"phase": "Succeeded"}}]);
        tested["info"]["rollback_revision"] = json!(3);
        tested["info"]["last_deployed"] = json!("2026-01-02T03:04:05.12Z");
        assert_eq!(of_release(Algorithm::Sha256, &release(tested), None), plain);
        let mut hooked = base;
        hooked["hooks"] = json!([{"name": "h", "events": ["pre-install"]}]);
        assert_ne!(of_release(Algorithm::Sha256, &release(hooked), None), plain);
    }

    #[test]
    fn parts_of_the_spec_are_hashed_in_the_order_of_the_api() {
        let renderers: Vec<PostRenderer> = serde_json::from_value(json!([{"kustomize": {
            "images": [{"name": "a", "newTag": "1"}],
            "patches": [{"patch": "x: <1>\n", "target": {"name": "n", "kind": "K", "namespace": "ns"}}],
        }}]))
        .unwrap();
        let expected = "[{\"kustomize\":{\"patches\":[{\"patch\":\"x: \\u003c1\\u003e\\n\",\"target\":{\"kind\":\"K\",\"namespace\":\"ns\",\"name\":\"n\"}}],\"images\":[{\"name\":\"a\",\"newTag\":\"1\"}]}}]\n";
        assert_eq!(
            of_post_renderers(Algorithm::Sha256, &renderers),
            Some(of(Algorithm::Sha256, expected.as_bytes()))
        );
        assert_eq!(of_post_renderers(Algorithm::Sha256, &[]), None);
        let metadata: CommonMetadata =
            serde_json::from_value(json!({"labels": {"b": "2", "a": "1"}, "annotations": {"x": "y"}}))
                .unwrap();
        let expected = "{\"annotations\":{\"x\":\"y\"},\"labels\":{\"a\":\"1\",\"b\":\"2\"}}\n";
        assert_eq!(
            of_common_metadata(Algorithm::Sha256, Some(&metadata)),
            Some(of(Algorithm::Sha256, expected.as_bytes()))
        );
    }
}
