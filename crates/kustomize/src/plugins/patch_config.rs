//! Reads the patches and replacements that plugins are configured with.

use crate::error::{Class, Error};
use crate::kustomization::decode::Decoder;
use crate::kustomization::{PatchArgs, Replacement, ReplacementField, Selector};
use crate::load::Loader;
use crate::plugins::Transformer;
use crate::read;
use crate::resource::Resource;
use crate::transform::json_patch;
use crate::transform::patches::{Patch, PatchContent};
use crate::tree::Tree;

fn config(text: impl Into<String>) -> Error {
    Error::new(Class::Patch, text)
}

/// An entry of `patches`, or a `PatchTransformer`.
pub(super) struct PatchConfig<'a> {
    pub path: &'a str,
    pub patch: &'a str,
    pub target: Option<&'a Selector>,
    pub options: Option<&'a PatchArgs>,
}

impl PatchConfig<'_> {
    /// `shown` is the whole configuration as YAML, which some errors repeat.
    pub(super) fn load(
        &self,
        tree: &mut Tree,
        loader: &Loader<'_>,
        shown: &dyn Fn() -> String,
    ) -> Result<Transformer, Error> {
        let inline = self.patch.trim();
        let (text, source) = match (inline.is_empty(), self.path.is_empty()) {
            (true, true) => {
                return Err(config(format!("must specify one of patch and path in\n{}", shown())));
            }
            (false, false) => {
                return Err(config(format!("patch and path can't be set at the same time\n{}", shown())));
            }
            (false, true) => (inline.as_bytes().into(), shown_inline(inline)),
            (true, false) => {
                let content = loader.load(self.path).map_err(|error| {
                    error.context(format!("failed to get the patch file from path({})", self.path))
                })?;
                (content, format!("[path: {}]", crate::go_text::quote(self.path)))
            }
        };
        // No text is both: an object is no list, and a list is no object.
        let content = match read::resources(tree, &text) {
            Ok(mut patches) => {
                for patch in &mut patches {
                    patch.memory.allow_name_change |=
                        self.options.is_some_and(|options| options.allow_name_change);
                    patch.memory.allow_kind_change |=
                        self.options.is_some_and(|options| options.allow_kind_change);
                    if patch.memory.allow_name_change || patch.memory.allow_kind_change {
                        patch.make_room_for_memory(tree);
                    }
                }
                PatchContent::Strategic(patches)
            }
            Err(error) if error.class() == Class::Limit => return Err(error),
            Err(_) => match json_patch::parse(&String::from_utf8_lossy(&text)) {
                Ok(operations) => PatchContent::Json(operations),
                Err(_) => return Err(config(format!("unable to parse SM or JSON patch from {source}"))),
            },
        };
        Ok(Transformer::Patch(Patch { content, target: self.target.cloned(), source }))
    }
}

/// Whether a patch may hold what must not be shown.
pub(super) fn is_about_secret(text: &str) -> bool {
    text.contains("Secret") || text.contains("stringData")
}

/// The text of a patch, unless it is about a Secret.
fn shown_inline(text: &str) -> String {
    if is_about_secret(text) {
        return "[patch: not shown, since it is about a Secret]".to_owned();
    }
    format!("[patch: {}]", crate::go_text::quote(text))
}

/// `patchesStrategicMerge`, or a `PatchStrategicMergeTransformer`: each path may be the patch itself.
pub(super) fn strategic(
    tree: &mut Tree,
    loader: &Loader<'_>,
    paths: &[String],
    inline: &str,
) -> Result<Transformer, Error> {
    if paths.is_empty() && inline.is_empty() {
        return Err(config("empty file path and empty patch content"));
    }
    let mut patches: Vec<Resource> = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        let loaded = match read::resources(tree, path.as_bytes()) {
            Ok(loaded) => Ok(loaded),
            Err(_) => loader.load(path).and_then(|content| {
                read::resources(tree, &content).map_err(|error| read::in_file(error, path))
            }),
        };
        match loaded {
            Ok(loaded) => patches.extend(loaded),
            Err(error) => errors.push(error),
        }
    }
    Error::join(errors)?;
    if !inline.is_empty() {
        patches.extend(read::resources(tree, inline.as_bytes())?);
    }
    if patches.is_empty() {
        let text =
            format!("patch appears to be empty; files={}, Patch={inline}", crate::go_text::list(paths));
        return Err(config(text));
    }
    Ok(Transformer::StrategicPatches(patches))
}

/// `patchesJson6902`, or a `PatchJson6902Transformer`.
pub(super) fn json6902(
    loader: &Loader<'_>,
    path: &str,
    inline: &str,
    target: Option<&Selector>,
) -> Result<Transformer, Error> {
    let Some(target) = target.filter(|target| !target.name.is_empty()) else {
        return Err(config("must specify the target name"));
    };
    let text = match (path.is_empty(), inline.is_empty()) {
        (true, true) => return Err(config("empty file path and empty jsonOp")),
        (false, false) => return Err(config("must specify a file path or jsonOp, not both")),
        (true, false) => inline.to_owned(),
        (false, true) => {
            let content = loader.load(path)?;
            if content.is_empty() {
                return Err(config(format!("patch file '{path}' empty seems to be empty")));
            }
            String::from_utf8_lossy(&content).into_owned()
        }
    };
    let json = if text.starts_with('[') {
        text
    } else {
        let value = crate::yaml_text::to_json(text.as_bytes()).map_err(config)?;
        yaml::json_text(&value)
    };
    let operations =
        json_patch::parse_json(&json).map_err(|error| config(format!("decoding {json}: {error}")))?;
    if operations.is_empty() {
        return Err(config(format!("patch appears to be empty; file={path}, JsonOp={json}")));
    }
    Ok(Transformer::JsonPatch { operations, target: target.clone() })
}

/// `replacements`, or a `ReplacementTransformer`.
pub(super) fn replacements(loader: &Loader<'_>, fields: &[ReplacementField]) -> Result<Transformer, Error> {
    let failed = |text: String| Error::new(Class::Replacement, text);
    let mut all = Vec::new();
    for field in fields {
        if field.path.is_empty() {
            all.push(Replacement {
                source: field.source.clone(),
                targets: field.targets.clone(),
                source_value: field.source_value.clone(),
            });
            continue;
        }
        if field.source.is_some() || field.targets.as_ref().is_some_and(|targets| !targets.is_empty()) {
            return Err(failed("cannot specify both path and inline replacement".to_owned()));
        }
        let content = loader.load(&field.path)?;
        let json = crate::yaml_text::to_json(&content)
            .map_err(|error| failed(format!("error converting YAML to JSON: {error}")))?;
        let undecodable =
            |error: String| failed(format!("error unmarshaling JSON: while decoding JSON: {error}"));
        match &json {
            serde_json::Value::Array(_) => {
                all.extend(Decoder::lenient::<Vec<Replacement>>(&json).map_err(undecodable)?);
            }
            serde_json::Value::Object(_) => all.push(Decoder::lenient(&json).map_err(undecodable)?),
            other => {
                let kind = match other {
                    serde_json::Value::Null => "invalid",
                    serde_json::Value::Bool(_) => "bool",
                    serde_json::Value::String(_) => "string",
                    _ => "float64",
                };
                let text =
                    format!("unsupported replacement type encountered within replacement path: {kind}");
                return Err(failed(text));
            }
        }
    }
    Ok(Transformer::Replacements(all))
}
