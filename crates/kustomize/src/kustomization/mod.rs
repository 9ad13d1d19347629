//! The kustomization file: its fields, its deprecated spellings, and what makes one invalid.
//!
//! Deliberately absent: what the fields do. `accumulate` reads them, `transform` and `generate` act on them.

pub(crate) mod decode;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Error;
use crate::id::{Gvk, ResId};
use decode::{Decoder, Int, go_struct};

pub(crate) const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

go_struct! {
    "Kustomization" struct Kustomization {
        kind: String = "kind" in "TypeMeta.kind",
        api_version: String = "apiVersion" in "TypeMeta.apiVersion",
        metadata: Option<ObjectMeta> = "metadata",
        openapi: BTreeMap<String, String> = "openapi",
        name_prefix: String = "namePrefix",
        name_suffix: String = "nameSuffix",
        namespace: String = "namespace",
        common_labels: BTreeMap<String, String> = "commonLabels",
        labels: Vec<Label> = "labels",
        common_annotations: BTreeMap<String, String> = "commonAnnotations",
        patches_strategic_merge: Vec<String> = "patchesStrategicMerge",
        patches_json6902: Vec<Patch> = "patchesJson6902",
        patches: Vec<Patch> = "patches",
        images: Vec<Image> = "images",
        image_tags: Vec<Image> = "imageTags",
        replacements: Vec<ReplacementField> = "replacements",
        replicas: Vec<Replica> = "replicas",
        vars: Vec<Var> = "vars",
        sort_options: Option<SortOptions> = "sortOptions",
        resources: Vec<String> = "resources",
        components: Vec<String> = "components",
        crds: Vec<String> = "crds",
        bases: Vec<String> = "bases",
        config_map_generator: Vec<ConfigMapArgs> = "configMapGenerator",
        secret_generator: Vec<SecretArgs> = "secretGenerator",
        helm_globals: Option<HelmGlobals> = "helmGlobals",
        helm_charts: Vec<HelmChart> = "helmCharts",
        helm_chart_inflation_generator: Vec<HelmChart> = "helmChartInflationGenerator",
        generator_options: Option<GeneratorOptions> = "generatorOptions",
        configurations: Vec<String> = "configurations",
        generators: Vec<String> = "generators",
        transformers: Vec<String> = "transformers",
        validators: Vec<String> = "validators",
        build_metadata: Vec<String> = "buildMetadata",
    }
}

go_struct! {
    "ObjectMeta" struct ObjectMeta {
        name: String = "name",
        namespace: String = "namespace",
        labels: BTreeMap<String, String> = "labels",
        annotations: BTreeMap<String, String> = "annotations",
    }
}

go_struct! {
    "Label" struct Label {
        pairs: BTreeMap<String, String> = "pairs",
        include_selectors: bool = "includeSelectors",
        include_templates: bool = "includeTemplates",
        field_specs: Vec<FieldSpec> = "fields",
    }
}

go_struct! {
    /// Where in which kinds a transformer finds its field.
    "FieldSpec" struct FieldSpec {
        group: String = "group" in "Gvk.group",
        version: String = "version" in "Gvk.version",
        kind: String = "kind" in "Gvk.kind",
        path: String = "path",
        create: bool = "create",
    }
}

impl FieldSpec {
    pub(crate) fn gvk(&self) -> Gvk {
        Gvk::plain(&self.group, &self.version, &self.kind)
    }
}

go_struct! {
    "Patch" struct Patch {
        path: String = "path",
        patch: String = "patch",
        target: Option<Selector> = "target",
        options: Option<PatchArgs> = "options",
    }
}

go_struct! {
    "PatchArgs" struct PatchArgs {
        allow_name_change: bool = "allowNameChange",
        allow_kind_change: bool = "allowKindChange",
    }
}

go_struct! {
    "Selector" struct Selector {
        group: String = "group" in "ResId.Gvk.group",
        version: String = "version" in "ResId.Gvk.version",
        kind: String = "kind" in "ResId.Gvk.kind",
        name: String = "name" in "ResId.name",
        namespace: String = "namespace" in "ResId.namespace",
        annotation_selector: String = "annotationSelector",
        label_selector: String = "labelSelector",
    }
}

impl Selector {
    pub(crate) fn id(&self) -> ResId {
        ResId::plain(Gvk::plain(&self.group, &self.version, &self.kind), &self.name, &self.namespace)
    }
}

go_struct! {
    "Image" struct Image {
        name: String = "name",
        new_name: String = "newName",
        tag_suffix: String = "tagSuffix",
        new_tag: String = "newTag",
        digest: String = "digest",
    }
}

go_struct! {
    "Replica" struct Replica { name: String = "name", count: i64 = "count" }
}

go_struct! {
    /// A replacement, or the path of a file that holds some.
    "ReplacementField" struct ReplacementField {
        source: Option<SourceSelector> = "source" in "Replacement.source",
        targets: Option<Vec<TargetSelector>> = "targets" in "Replacement.targets",
        source_value: Option<String> = "sourceValue" in "Replacement.sourceValue",
        path: String = "path",
    }
}

go_struct! {
    "Replacement" struct Replacement {
        source: Option<SourceSelector> = "source",
        targets: Option<Vec<TargetSelector>> = "targets",
        source_value: Option<String> = "sourceValue",
    }
}

go_struct! {
    "SourceSelector" struct SourceSelector {
        group: String = "group" in "ResId.Gvk.group",
        version: String = "version" in "ResId.Gvk.version",
        kind: String = "kind" in "ResId.Gvk.kind",
        name: String = "name" in "ResId.name",
        namespace: String = "namespace" in "ResId.namespace",
        field_path: String = "fieldPath",
        options: Option<FieldOptions> = "options",
    }
}

impl SourceSelector {
    pub(crate) fn id(&self) -> ResId {
        ResId::plain(Gvk::plain(&self.group, &self.version, &self.kind), &self.name, &self.namespace)
    }
}

go_struct! {
    "TargetSelector" struct TargetSelector {
        select: Option<Selector> = "select",
        reject: Vec<Selector> = "reject",
        field_paths: Vec<String> = "fieldPaths",
        options: Option<FieldOptions> = "options",
    }
}

go_struct! {
    "FieldOptions" struct FieldOptions {
        delimiter: String = "delimiter",
        index: Int = "index",
        encoding: String = "encoding",
        create: bool = "create",
    }
}

go_struct! {
    "Var" struct Var {
        name: String = "name",
        obj_ref: VarTarget = "objref",
        field_ref: VarField = "fieldref",
    }
}

go_struct! {
    "Target" struct VarTarget {
        api_version: String = "apiVersion",
        group: String = "group" in "Gvk.group",
        version: String = "version" in "Gvk.version",
        kind: String = "kind" in "Gvk.kind",
        name: String = "name",
        namespace: String = "namespace",
    }
}

go_struct! {
    "FieldSelector" struct VarField { field_path: String = "fieldPath" }
}

go_struct! {
    "SortOptions" struct SortOptions {
        order: String = "order",
        legacy: Option<LegacySortOptions> = "legacySortOptions",
    }
}

go_struct! {
    "LegacySortOptions" struct LegacySortOptions {
        order_first: Vec<String> = "orderFirst",
        order_last: Vec<String> = "orderLast",
    }
}

go_struct! {
    "ConfigMapArgs" struct ConfigMapArgs {
        namespace: String = "namespace" in "GeneratorArgs.namespace",
        name: String = "name" in "GeneratorArgs.name",
        behavior: String = "behavior" in "GeneratorArgs.behavior",
        literals: Vec<String> = "literals" in "GeneratorArgs.KvPairSources.literals",
        files: Vec<String> = "files" in "GeneratorArgs.KvPairSources.files",
        envs: Vec<String> = "envs" in "GeneratorArgs.KvPairSources.envs",
        env: String = "env" in "GeneratorArgs.KvPairSources.env",
        options: Option<GeneratorOptions> = "options" in "GeneratorArgs.options",
    }
}

go_struct! {
    "SecretArgs" struct SecretArgs {
        namespace: String = "namespace" in "GeneratorArgs.namespace",
        name: String = "name" in "GeneratorArgs.name",
        behavior: String = "behavior" in "GeneratorArgs.behavior",
        literals: Vec<String> = "literals" in "GeneratorArgs.KvPairSources.literals",
        files: Vec<String> = "files" in "GeneratorArgs.KvPairSources.files",
        envs: Vec<String> = "envs" in "GeneratorArgs.KvPairSources.envs",
        env: String = "env" in "GeneratorArgs.KvPairSources.env",
        options: Option<GeneratorOptions> = "options" in "GeneratorArgs.options",
        kind: String = "type",
    }
}

go_struct! {
    "GeneratorOptions" struct GeneratorOptions {
        labels: BTreeMap<String, String> = "labels",
        annotations: BTreeMap<String, String> = "annotations",
        disable_name_suffix_hash: bool = "disableNameSuffixHash",
        immutable: bool = "immutable",
    }
}

go_struct! {
    "HelmGlobals" struct HelmGlobals {
        chart_home: String = "chartHome",
        config_home: String = "configHome",
    }
}

go_struct! {
    /// Kept only far enough to refuse it: charts are inflated elsewhere.
    "HelmChart" struct HelmChart {
        name: String = "name",
        version: String = "version",
        repo: String = "repo",
        release_name: String = "releaseName",
        namespace: String = "namespace",
        values_file: String = "valuesFile",
        additional_values_files: Vec<String> = "additionalValuesFiles",
        values_inline: Value = "valuesInline",
        values_merge: String = "valuesMerge",
        include_crds: bool = "includeCRDs",
        skip_hooks: bool = "skipHooks",
        api_versions: Vec<String> = "apiVersions",
        kube_version: String = "kubeVersion",
        name_template: String = "nameTemplate",
        skip_tests: bool = "skipTests",
        debug: bool = "debug",
        devel: bool = "devel",
        chart_name: String = "chartName",
        chart_version: String = "chartVersion",
        chart_repo_url: String = "chartRepoUrl",
        chart_home: String = "chartHome",
        chart_repo_name: String = "chartRepoName",
        helm_bin: String = "helmBin",
        helm_home: String = "helmHome",
        values: String = "values",
        release_namespace: String = "releaseNamespace",
        extra_args: Vec<String> = "extraArgs",
    }
}

/// A kustomization after its old spellings were moved to the new ones, with the warnings that earned.
#[derive(Debug)]
pub(crate) struct Read {
    pub kustomization: Kustomization,
    pub warnings: Vec<&'static str>,
    /// The file as JSON, for errors that repeat a part of it.
    pub json: Value,
}

impl Kustomization {
    /// Reads the content of a kustomization file found in `folder`.
    pub(crate) fn read(content: &[u8], folder: &str) -> Result<Read, Error> {
        let invalid = |cause: String| Error::InvalidKustomization { folder: folder.to_owned(), cause };
        let json = crate::yaml_text::to_json(content).map_err(invalid)?;
        let mut kustomization: Self = Decoder::strict(&json).map_err(invalid)?;
        let warnings = deprecations(&json);
        kustomization.use_new_spellings();
        if is_empty(&json) {
            return Err(Error::EmptyKustomization);
        }
        kustomization.check_header(folder)?;
        Ok(Read { kustomization, warnings, json })
    }

    pub(crate) fn is_component(&self) -> bool {
        self.kind == "Component"
    }

    fn use_new_spellings(&mut self) {
        if self.kind.is_empty() {
            "Kustomization".clone_into(&mut self.kind);
        }
        if self.api_version.is_empty() {
            self.api_version = expected_version(&self.kind).to_owned();
        }
        self.resources.append(&mut self.bases);
        self.images.append(&mut self.image_tags);
        for args in &mut self.config_map_generator {
            if !args.env.is_empty() {
                args.envs.push(std::mem::take(&mut args.env));
            }
        }
        for args in &mut self.secret_generator {
            if !args.env.is_empty() {
                args.envs.push(std::mem::take(&mut args.env));
            }
        }
        self.helm_charts.append(&mut self.helm_chart_inflation_generator);
    }

    fn check_header(&self, folder: &str) -> Result<(), Error> {
        let mut problems = Vec::new();
        if self.kind != "Kustomization" && self.kind != "Component" {
            problems.push("kind should be Kustomization or Component".to_owned());
        }
        let expected = expected_version(&self.kind);
        if self.api_version != expected {
            problems.push(format!("apiVersion for {} should be {expected}", self.kind));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::WrongHeader { folder: folder.to_owned(), problems })
    }
}

fn expected_version(kind: &str) -> &'static str {
    if kind == "Component" { "kustomize.config.k8s.io/v1alpha1" } else { "kustomize.config.k8s.io/v1beta1" }
}

const FIX: &str = " Run 'kustomize edit fix' to update your Kustomization automatically.";

fn deprecations(json: &Value) -> Vec<&'static str> {
    const DEPRECATED: [(&str, &str); 6] = [
        (
            "bases",
            "# Warning: 'bases' is deprecated. Please use 'resources' instead. Run 'kustomize edit fix' to update your Kustomization automatically.",
        ),
        (
            "commonLabels",
            "# Warning: 'commonLabels' is deprecated. Please use 'labels' instead. Run 'kustomize edit fix' to update your Kustomization automatically.",
        ),
        (
            "imageTags",
            "# Warning: 'imageTags' is deprecated. Please use 'images' instead. Run 'kustomize edit fix' to update your Kustomization automatically.",
        ),
        (
            "patchesJson6902",
            "# Warning: 'patchesJson6902' is deprecated. Please use 'patches' instead. Run 'kustomize edit fix' to update your Kustomization automatically.",
        ),
        (
            "patchesStrategicMerge",
            "# Warning: 'patchesStrategicMerge' is deprecated. Please use 'patches' instead. Run 'kustomize edit fix' to update your Kustomization automatically.",
        ),
        (
            "vars",
            "# Warning: 'vars' is deprecated. Please use 'replacements' instead. [EXPERIMENTAL] Run 'kustomize edit fix' to update your Kustomization automatically.",
        ),
    ];
    debug_assert!(DEPRECATED.iter().all(|(_, text)| text.ends_with(FIX.trim_start())));
    DEPRECATED
        .iter()
        .filter(|(name, _)| {
            let Value::Object(entries) = json else { return false };
            entries.iter().any(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_null())
        })
        .map(|(_, text)| *text)
        .collect()
}

/// Whether nothing but the header is set. kustomize compares with a zero struct, so that an empty list counts
/// as something, except where the list is moved into another field.
fn is_empty(json: &Value) -> bool {
    let Value::Object(entries) = json else { return true };
    entries.iter().all(|(key, value)| {
        let moved = ["bases", "imageTags", "helmChartInflationGenerator"];
        key.eq_ignore_ascii_case("kind")
            || key.eq_ignore_ascii_case("apiVersion")
            || match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => {
                    items.is_empty() && moved.iter().any(|name| key.eq_ignore_ascii_case(name))
                }
                Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
            }
    })
}
