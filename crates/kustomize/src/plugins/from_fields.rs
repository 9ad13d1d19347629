//! The generators and transformers that the fields of a kustomization ask for, in kustomize's order.

use serde_json::{Map, Value, json};

use super::patch_config::{self, PatchConfig};
use super::{Configured, Generator, Transformer};
use crate::error::{Class, Error};
use crate::field_specs::{FieldSpecs, merge_spec, merge_specs};
use crate::generate::with_global_options;
use crate::kustomization::{FieldSpec, Kustomization, Label, Patch, Selector};
use crate::load::Loader;
use crate::origin::Origin;
use crate::transform::names::Affix;
use crate::transform::namespace::Subjects;
use crate::tree::Tree;

/// Where the fields stand, for `buildMetadata`.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub origin: Option<&'a Origin>,
    pub file_name: &'a str,
    /// The kustomization file as JSON.
    pub json: &'a Value,
}

impl Place<'_> {
    fn of(&self, plugin: &str) -> Option<Origin> {
        self.origin.map(|origin| origin.builtin(plugin, self.file_name))
    }

    /// A field as it was written, without what is empty.
    fn written(&self, name: &str) -> Value {
        let field = self.json.as_object().and_then(|fields| {
            fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        });
        without_empty(field.unwrap_or_default())
    }
}

/// `configMapGenerator` and `secretGenerator`; `helmCharts` are refused.
pub(crate) fn generators_of_fields(
    kustomization: &Kustomization,
    place: Place<'_>,
) -> Result<Vec<Configured<Generator>>, Error> {
    let global = kustomization.generator_options.as_ref();
    let mut all = Vec::new();
    for args in &kustomization.config_map_generator {
        let mut args = args.clone();
        args.options = with_global_options(args.options.take(), global);
        all.push(Configured { plugin: Generator::ConfigMap(args), origin: place.of("ConfigMapGenerator") });
    }
    for args in &kustomization.secret_generator {
        let mut args = args.clone();
        args.options = with_global_options(args.options.take(), global);
        all.push(Configured { plugin: Generator::Secret(args), origin: place.of("SecretGenerator") });
    }
    if !kustomization.helm_charts.is_empty() {
        let mut written = place.written("helmCharts");
        if written.is_null() {
            written = place.written("helmChartInflationGenerator");
        }
        let shown = crate::yaml_text::from_json(written.get(0).unwrap_or(&Value::Null));
        return Err(Error::new(Class::Refused, "must specify --enable-helm")
            .context(trouble("HelmChartInflationGenerator", &shown)));
    }
    Ok(all)
}

fn trouble(plugin: &str, shown: &str) -> String {
    format!("trouble configuring builtin {plugin} with config: `\n{shown}`")
}

/// All transformers that fields ask for. Mistakes in several of them are reported together.
pub(crate) fn transformers_of_fields(
    tree: &mut Tree,
    loader: &Loader<'_>,
    kustomization: &Kustomization,
    specs: &FieldSpecs,
    place: Place<'_>,
) -> Result<Vec<Configured<Transformer>>, Error> {
    let mut collected = Collected { all: Vec::new(), errors: Vec::new(), place };
    patches_first(tree, loader, kustomization, &mut collected);
    names_and_labels(kustomization, specs, &mut collected);
    for patch in &kustomization.patches_json6902 {
        let made = patch_config::json6902(loader, &patch.path, &patch.patch, patch.target.as_ref());
        collected.add("PatchJson6902Transformer", made, || {
            object([
                ("target", patch.target.as_ref().map(selector_json)),
                ("path", text(&patch.path)),
                ("jsonOp", text(&patch.patch)),
            ])
        });
    }
    for replica in &kustomization.replicas {
        let made = Transformer::Replica { replica: replica.clone(), specs: specs.replicas.clone() };
        collected.add_ok("ReplicaCountTransformer", made);
    }
    for image in &kustomization.images {
        let made = Transformer::Image { image: image.clone(), specs: specs.images.clone() };
        collected.add_ok("ImageTagTransformer", made);
    }
    if !kustomization.replacements.is_empty() {
        let made = patch_config::replacements(loader, &kustomization.replacements);
        let written = || json!({"Replacements": place.written("replacements")});
        collected.add("ReplacementTransformer", made, written);
    }
    Error::join(collected.errors)?;
    Ok(collected.all)
}

struct Collected<'a> {
    all: Vec<Configured<Transformer>>,
    errors: Vec<Error>,
    place: Place<'a>,
}

impl Collected<'_> {
    fn add_ok(&mut self, plugin: &str, transformer: Transformer) {
        self.all.push(Configured { plugin: transformer, origin: self.place.of(plugin) });
    }

    fn add(&mut self, plugin: &str, made: Result<Transformer, Error>, config: impl FnOnce() -> Value) {
        match made {
            Ok(transformer) => self.add_ok(plugin, transformer),
            Err(error) => {
                self.errors.push(error.context(trouble(plugin, &crate::yaml_text::from_json(&config()))));
            }
        }
    }
}

fn patches_first(
    tree: &mut Tree,
    loader: &Loader<'_>,
    kustomization: &Kustomization,
    collected: &mut Collected<'_>,
) {
    if !kustomization.patches_strategic_merge.is_empty() {
        let paths = &kustomization.patches_strategic_merge;
        let made = patch_config::strategic(tree, loader, paths, "");
        collected.add("PatchStrategicMergeTransformer", made, || json!({"paths": paths}));
    }
    for patch in &kustomization.patches {
        let config = PatchConfig {
            path: &patch.path,
            patch: &patch.patch,
            target: patch.target.as_ref(),
            options: patch.options.as_ref(),
        };
        let shown = || crate::yaml_text::from_json(&patch_json(patch));
        let made = config.load(tree, loader, &shown);
        collected.add("PatchTransformer", made, || patch_json(patch));
    }
}

fn names_and_labels(kustomization: &Kustomization, specs: &FieldSpecs, collected: &mut Collected<'_>) {
    if !kustomization.namespace.is_empty() {
        collected.add_ok(
            "NamespaceTransformer",
            Transformer::Namespace {
                namespace: kustomization.namespace.clone(),
                specs: specs.namespace.clone(),
                unset_only: false,
                subjects: Subjects::default(),
            },
        );
    }
    for (plugin, affix, text, specs) in [
        ("PrefixTransformer", Affix::Prefix, &kustomization.name_prefix, &specs.name_prefix),
        ("SuffixTransformer", Affix::Suffix, &kustomization.name_suffix, &specs.name_suffix),
    ] {
        if !text.is_empty() {
            collected.add_ok(plugin, Transformer::Affix { affix, text: text.clone(), specs: specs.clone() });
        }
    }
    if !kustomization.labels.is_empty() || !kustomization.common_labels.is_empty() {
        for label in &kustomization.labels {
            match label_specs(label, specs) {
                Ok(specs) => collected
                    .add_ok("LabelTransformer", Transformer::Entries { entries: label.pairs.clone(), specs }),
                Err(error) => collected.errors.push(error),
            }
        }
        collected.add_ok(
            "LabelTransformer",
            Transformer::Entries {
                entries: kustomization.common_labels.clone(),
                specs: specs.common_labels.clone(),
            },
        );
    }
    if !kustomization.common_annotations.is_empty() {
        collected.add_ok(
            "AnnotationsTransformer",
            Transformer::Entries {
                entries: kustomization.common_annotations.clone(),
                specs: specs.common_annotations.clone(),
            },
        );
    }
}

/// Where the labels of one entry go.
fn label_specs(label: &Label, specs: &FieldSpecs) -> Result<Vec<FieldSpec>, Error> {
    let failed = |error: Error| error.context("failed to merge labels");
    let mut all = merge_specs(&label.field_specs, &specs.labels).map_err(failed)?;
    if label.include_selectors {
        return merge_specs(&all, &specs.common_labels).map_err(failed);
    }
    if label.include_templates {
        all = merge_specs(&all, &specs.template_labels)
            .map_err(|error| error.context("failed to merge template fieldSpec"))?;
    }
    let own = FieldSpec { path: "metadata/labels".to_owned(), create: true, ..FieldSpec::default() };
    merge_spec(&mut all, &own).map_err(failed)?;
    Ok(all)
}

fn patch_json(patch: &Patch) -> Value {
    let options = patch.options.as_ref().map(|options| {
        object([
            ("allowNameChange", options.allow_name_change.then_some(Value::Bool(true))),
            ("allowKindChange", options.allow_kind_change.then_some(Value::Bool(true))),
        ])
    });
    object([
        ("path", text(&patch.path)),
        ("patch", text(if patch_config::is_about_secret(&patch.patch) { "***" } else { &patch.patch })),
        ("target", patch.target.as_ref().map(selector_json)),
        ("options", options),
    ])
}

fn selector_json(selector: &Selector) -> Value {
    object([
        ("group", text(&selector.group)),
        ("version", text(&selector.version)),
        ("kind", text(&selector.kind)),
        ("name", text(&selector.name)),
        ("namespace", text(&selector.namespace)),
        ("annotationSelector", text(&selector.annotation_selector)),
        ("labelSelector", text(&selector.label_selector)),
    ])
}

fn text(value: &str) -> Option<Value> {
    (!value.is_empty()).then(|| Value::String(value.to_owned()))
}

/// What is left of a value when nulls and empty texts, lists and maps are not written.
fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    };
    match value {
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !is_empty(value))
                .map(|(name, value)| (name, without_empty(value)))
                .collect(),
        ),
        other => other,
    }
}

/// Fields that are set, as Go's `omitempty` leaves them.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields: Map<String, Value> =
        fields.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value))).collect();
    Value::Object(fields)
}
