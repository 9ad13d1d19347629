//! Builtin plugins configured by objects of their own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::patch_config::{self, PatchConfig};
use super::{Configured, Generator, Transformer};
use crate::error::{Class, Error};
use crate::kustomization::decode::{Decoder, FromGo, Int, go_struct};
use crate::kustomization::{
    ConfigMapArgs, FieldSpec, Image, ObjectMeta, PatchArgs, ReplacementField, Replica, SecretArgs, Selector,
};
use crate::load::Loader;
use crate::origin::{ConfiguredBy, Origin};
use crate::resource::Resource;
use crate::resources::Workspace;
use crate::transform::names::Affix;
use crate::transform::namespace::Subjects;
use crate::transform::value_add;

/// What an object makes of itself.
enum Plugin {
    Generator(Generator),
    Transformer(Transformer),
}

/// The generators that objects configure.
pub(crate) fn generators_of_objects(
    space: &mut Workspace,
    loader: &Loader<'_>,
    objects: &[Resource],
) -> Result<Vec<Configured<Generator>>, Error> {
    let mut all = Vec::new();
    for object in objects {
        let failed = |error: Error| error.context("failed to load generator");
        match configure(space, loader, object).map_err(failed)? {
            Plugin::Generator(plugin) => all.push(Configured { plugin, origin: origin_of(space, object) }),
            Plugin::Transformer(_) => return Err(failed(not_a(space, object, "generator"))),
        }
    }
    Ok(all)
}

/// The transformers that objects configure.
pub(crate) fn transformers_of_objects(
    space: &mut Workspace,
    loader: &Loader<'_>,
    objects: &[Resource],
) -> Result<Vec<Configured<Transformer>>, Error> {
    let mut all = Vec::new();
    for object in objects {
        match configure(space, loader, object)? {
            Plugin::Transformer(plugin) => all.push(Configured { plugin, origin: origin_of(space, object) }),
            Plugin::Generator(_) => return Err(not_a(space, object, "transformer")),
        }
    }
    Ok(all)
}

fn not_a(space: &Workspace, object: &Resource, what: &str) -> Error {
    let id = object.original_id(&space.tree, &space.schemas);
    Error::new(Class::Config, format!("plugin {id} not a {what}"))
}

fn origin_of(space: &Workspace, object: &Resource) -> Option<Origin> {
    object.origin.as_ref().map(|origin| Origin {
        path: String::new(),
        configured_in: origin.path.clone(),
        configured_by: Some(ConfiguredBy {
            api_version: object.api_version(&space.tree),
            kind: object.kind(&space.tree),
            name: object.name(&space.tree),
            namespace: object.namespace(&space.tree),
        }),
    })
}

fn configure(space: &mut Workspace, loader: &Loader<'_>, object: &Resource) -> Result<Plugin, Error> {
    let gvk = object.gvk(&space.tree, &space.schemas);
    let id = object.original_id(&space.tree, &space.schemas);
    if !(gvk.group.is_empty() && gvk.version == "builtin") {
        let text = format!("external plugins disabled; unable to load external plugin '{}'", id.gvk.kind);
        return Err(Error::new(Class::Refused, text));
    }
    let Some(builder) = builder(&gvk.kind) else {
        return Err(Error::new(Class::Config, format!("unable to load builtin {gvk}")));
    };
    let Some(root) = object.root else { return Err(Error::new(Class::Config, "empty plugin configuration")) };
    let config = space.tree.to_json(root).map_err(|error| {
        Error::new(Class::Config, error.to_string()).context(format!("marshalling yaml from res {id}"))
    })?;
    builder(space, loader, &config).map_err(|error| error.context(format!("plugin {id} fails configuration")))
}

type Builder = fn(&mut Workspace, &Loader<'_>, &Value) -> Result<Plugin, Error>;

fn builder(kind: &str) -> Option<Builder> {
    Some(match kind {
        "AnnotationsTransformer" => |_, _, config| annotations(config),
        "ConfigMapGenerator" => |_, _, config| config_map(config),
        "IAMPolicyGenerator" => |_, _, config| iam_policy(config),
        "HashTransformer" => |_, _, _| Ok(Plugin::Transformer(Transformer::Hash)),
        "HelmChartInflationGenerator" => {
            |_, _, _| Err(Error::new(Class::Refused, "must specify --enable-helm"))
        }
        "ImageTagTransformer" => |_, _, config| image(config),
        "LabelTransformer" => |_, _, config| labels(config),
        "NamespaceTransformer" => |_, _, config| namespace(config),
        "PatchJson6902Transformer" => |_, loader, config| json6902(loader, config),
        "PatchStrategicMergeTransformer" => strategic,
        "PatchTransformer" => patch,
        "PrefixSuffixTransformer" => |_, _, config| {
            let both = Transformer::Both(
                Box::new(affix(config, Affix::Prefix)?),
                Box::new(affix(config, Affix::Suffix)?),
            );
            Ok(Plugin::Transformer(both))
        },
        "PrefixTransformer" => |_, _, config| affix(config, Affix::Prefix).map(Plugin::Transformer),
        "SuffixTransformer" => |_, _, config| affix(config, Affix::Suffix).map(Plugin::Transformer),
        "ReplicaCountTransformer" => |_, _, config| replica(config),
        "ReplacementTransformer" => |_, loader, config| replacements(loader, config),
        "SecretGenerator" => |_, _, config| secret(config),
        "ValueAddTransformer" => |_, loader, config| value_add(loader, config),
        _ => return None,
    })
}

fn decode<T: FromGo>(config: &Value) -> Result<T, Error> {
    Decoder::lenient(config).map_err(|error| {
        Error::new(Class::Config, format!("error unmarshaling JSON: while decoding JSON: {error}"))
    })
}

go_struct! {
    "AnnotationsTransformerPlugin" struct AnnotationsConfig {
        annotations: BTreeMap<String, String> = "annotations",
        specs: Vec<FieldSpec> = "fieldSpecs",
    }
}

fn annotations(config: &Value) -> Result<Plugin, Error> {
    let config: AnnotationsConfig = decode(config)?;
    Ok(Plugin::Transformer(Transformer::Entries { entries: config.annotations, specs: config.specs }))
}

go_struct! {
    "LabelTransformerPlugin" struct LabelsConfig {
        labels: BTreeMap<String, String> = "labels",
        specs: Vec<FieldSpec> = "fieldSpecs",
    }
}

fn labels(config: &Value) -> Result<Plugin, Error> {
    let config: LabelsConfig = decode(config)?;
    Ok(Plugin::Transformer(Transformer::Entries { entries: config.labels, specs: config.specs }))
}

go_struct! {
    "ConfigMapGeneratorPlugin" struct MetadataConfig { metadata: ObjectMeta = "metadata" }
}

fn config_map(config: &Value) -> Result<Plugin, Error> {
    let metadata: MetadataConfig = decode(config)?;
    let mut args: ConfigMapArgs = decode(config)?;
    default_to(&mut args.name, metadata.metadata.name);
    default_to(&mut args.namespace, metadata.metadata.namespace);
    Ok(Plugin::Generator(Generator::ConfigMap(args)))
}

fn secret(config: &Value) -> Result<Plugin, Error> {
    let metadata: MetadataConfig = decode(config)?;
    let mut args: SecretArgs = decode(config)?;
    default_to(&mut args.name, metadata.metadata.name);
    default_to(&mut args.namespace, metadata.metadata.namespace);
    Ok(Plugin::Generator(Generator::Secret(args)))
}

fn default_to(text: &mut String, default: String) {
    if text.is_empty() {
        *text = default;
    }
}

go_struct! {
    "KubernetesService" struct ServiceConfig { name: String = "name", namespace: String = "namespace" }
}
go_struct! {
    "ServiceAccount" struct AccountConfig { name: String = "name", project: String = "projectId" }
}
go_struct! {
    "IAMPolicyGeneratorPlugin" struct IamConfig {
        cloud: String = "cloud",
        service: ServiceConfig = "kubernetesService",
        account: AccountConfig = "serviceAccount",
    }
}

fn iam_policy(config: &Value) -> Result<Plugin, Error> {
    let config: IamConfig = decode(config)?;
    Ok(Plugin::Generator(Generator::GkeServiceAccount {
        cloud: config.cloud,
        name: config.service.name,
        namespace: config.service.namespace,
        account: config.account.name,
        project: config.account.project,
    }))
}

go_struct! {
    "ImageTagTransformerPlugin" struct ImageConfig {
        image: Image = "imageTag",
        specs: Vec<FieldSpec> = "fieldSpecs",
    }
}

fn image(config: &Value) -> Result<Plugin, Error> {
    let config: ImageConfig = decode(config)?;
    Ok(Plugin::Transformer(Transformer::Image { image: config.image, specs: config.specs }))
}

go_struct! {
    "NamespaceTransformerPlugin" struct NamespaceConfig {
        metadata: ObjectMeta = "metadata",
        specs: Vec<FieldSpec> = "fieldSpecs",
        unset_only: bool = "unsetOnly",
        subjects: String = "setRoleBindingSubjects",
    }
}

fn namespace(config: &Value) -> Result<Plugin, Error> {
    let config: NamespaceConfig =
        decode(config).map_err(|error| error.context("unmarshalling NamespaceTransformer config"))?;
    Ok(Plugin::Transformer(Transformer::Namespace {
        namespace: config.metadata.namespace,
        specs: config.specs,
        unset_only: config.unset_only,
        subjects: Subjects::parse(&config.subjects)?,
    }))
}

go_struct! {
    "PrefixTransformerPlugin" struct AffixConfig {
        prefix: String = "prefix",
        suffix: String = "suffix",
        specs: Option<Vec<FieldSpec>> = "fieldSpecs",
    }
}

fn affix(config: &Value, affix: Affix) -> Result<Transformer, Error> {
    let config: AffixConfig = decode(config)?;
    let Some(specs) = config.specs else {
        return Err(Error::new(Class::Config, "fieldSpecs is not expected to be nil"));
    };
    let text = match affix {
        Affix::Prefix => config.prefix,
        Affix::Suffix => config.suffix,
    };
    Ok(Transformer::Affix { affix, text, specs })
}

go_struct! {
    "PatchTransformerPlugin" struct PatchPlugin {
        path: String = "path",
        patch: String = "patch",
        target: Option<Selector> = "target",
        options: Option<PatchArgs> = "options",
    }
}

fn patch(space: &mut Workspace, loader: &Loader<'_>, json: &Value) -> Result<Plugin, Error> {
    let config: PatchPlugin = decode(json)?;
    let settings = PatchConfig {
        path: &config.path,
        patch: &config.patch,
        target: config.target.as_ref(),
        options: config.options.as_ref(),
    };
    let shown = || crate::yaml_text::from_json(json);
    settings.load(&mut space.tree, loader, &shown).map(Plugin::Transformer)
}

go_struct! {
    "PatchStrategicMergeTransformerPlugin" struct StrategicPlugin {
        paths: Vec<String> = "paths",
        patches: String = "patches",
    }
}

fn strategic(space: &mut Workspace, loader: &Loader<'_>, config: &Value) -> Result<Plugin, Error> {
    let config: StrategicPlugin = decode(config)?;
    patch_config::strategic(&mut space.tree, loader, &config.paths, &config.patches).map(Plugin::Transformer)
}

go_struct! {
    "PatchJson6902TransformerPlugin" struct Json6902Plugin {
        target: Option<Selector> = "target",
        path: String = "path",
        json_op: String = "jsonOp",
    }
}

fn json6902(loader: &Loader<'_>, config: &Value) -> Result<Plugin, Error> {
    let config: Json6902Plugin = decode(config)?;
    patch_config::json6902(loader, &config.path, &config.json_op, config.target.as_ref())
        .map(Plugin::Transformer)
}

go_struct! {
    "ReplacementTransformerPlugin" struct ReplacementPlugin {
        replacements: Vec<ReplacementField> = "replacements",
    }
}

fn replacements(loader: &Loader<'_>, config: &Value) -> Result<Plugin, Error> {
    let config: ReplacementPlugin = decode(config)?;
    patch_config::replacements(loader, &config.replacements).map(Plugin::Transformer)
}

go_struct! {
    "ReplicaCountTransformerPlugin" struct ReplicaConfig {
        replica: Replica = "replica",
        specs: Vec<FieldSpec> = "fieldSpecs",
    }
}

fn replica(config: &Value) -> Result<Plugin, Error> {
    let config: ReplicaConfig = decode(config)?;
    Ok(Plugin::Transformer(Transformer::Replica { replica: config.replica, specs: config.specs }))
}

go_struct! {
    "Target" struct ValueAddTarget {
        selector: Option<Selector> = "selector",
        field_path: String = "fieldPath",
        file_path_position: Int = "filePathPosition",
    }
}
go_struct! {
    "ValueAddTransformerPlugin" struct ValueAddConfig {
        value: String = "value",
        targets: Vec<ValueAddTarget> = "targets",
        target_file_path: String = "targetFilePath",
    }
}

fn value_add(loader: &Loader<'_>, config: &Value) -> Result<Plugin, Error> {
    let mut config: ValueAddConfig = decode(config)?;
    let failed = |text: String| Error::new(Class::Config, text);
    let value = match config.value.trim() {
        "" => loader.folder_name().to_owned(),
        value => value.to_owned(),
    };
    if !config.target_file_path.is_empty() {
        let content = loader.load(&config.target_file_path)?;
        let json = crate::yaml_text::to_json(&content)
            .map_err(|error| failed(format!("error converting YAML to JSON: {error}")))?;
        let shared: ValueAddConfig = decode(&json)?;
        config.targets.extend(shared.targets);
    }
    if config.targets.is_empty() {
        return Err(failed("must specify at least one target".to_owned()));
    }
    let mut targets = Vec::new();
    for target in config.targets {
        if target.field_path.is_empty() {
            return Err(failed("fieldPath cannot be empty".to_owned()));
        }
        let position = target.file_path_position.0;
        if position < 0 {
            return Err(failed(format!("value of FilePathPosition ({position}) cannot be negative")));
        }
        targets.push(value_add::Target {
            selector: target.selector,
            field_path: target.field_path,
            file_path_position: position,
        });
    }
    Ok(Plugin::Transformer(Transformer::ValueAdd { value, targets }))
}
