//! `flux push|pull|list|tag artifact`: artifacts in registries.

mod reference;
mod registry;

pub(super) use reference::Reference;
pub(super) use registry::Registry;

use std::collections::BTreeMap;

use regex::Regex;
use semver_range::{Constraint, Version};
use serde_json::{Value, json};

use crate::error::{CliError, fail, go_cause};
use crate::kinds::text;
use crate::output;
use crate::tree::Invocation;

use super::build::{Contents, pack, unpack};

const SOURCE: &str = "org.opencontainers.image.source";
const REVISION: &str = "org.opencontainers.image.revision";
const CREATED: &str = "org.opencontainers.image.created";

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    match run.row.path {
        "push artifact" => push(run).await,
        "pull artifact" => pull(run).await,
        "tag artifact" => tag(run).await,
        _ => list(run).await,
    }
}

async fn push(run: &Invocation) -> Result<(), CliError> {
    let address = run.name().ok_or_else(|| fail!("artifact URL is required"))?;
    let source = run.some("source").ok_or_else(|| fail!("--source is required"))?;
    let revision = run.some("revision").ok_or_else(|| fail!("--revision is required"))?;
    let path = run.some("path").ok_or_else(|| fail!("invalid path \"\""))?;
    let reference = Reference::parse(address)?;
    let contents = Contents::open(path, run.is("resolve-symlinks")).map_err(|error| {
        let missing = std::fs::metadata(path).err();
        missing.map_or(error, |cause| {
            fail!(
                "invalid path '{path}', must point to an existing directory or file: stat {path}: {}",
                go_cause(&cause)
            )
        })
    })?;
    let created = if run.is("reproducible") {
        "1970-01-01T00:00:00Z".to_owned()
    } else {
        jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    let mut annotations = BTreeMap::from([
        (CREATED.to_owned(), created),
        (SOURCE.to_owned(), source.to_owned()),
        (REVISION.to_owned(), revision.to_owned()),
    ]);
    annotations.extend(given_annotations(&run.list("annotations"))?);
    let registry = Registry::open(run, &reference)?;
    let form = run.text("output");
    if form.is_empty() {
        output::action(&format!("pushing artifact to {}", reference.given()));
    }
    let layer = pack(&contents, &run.list("ignore-paths"))
        .map_err(|error| fail!("pushing artifact failed: error creating layer: {error}"))?;
    let digest = registry.push(&reference, layer, &annotations).await;
    let digest = digest.map_err(|error| fail!("pushing artifact failed: {error}"))?;
    let url = format!("{}@{digest}", reference.name());
    let tag = reference.tag().unwrap_or("latest");
    match form {
        "json" => output::data(&format!(
            "{{\n  \"url\": {},\n  \"repository\": {},\n  \"tag\": {},\n  \"digest\": {}\n}}\n",
            json!(format!("oci://{url}")),
            json!(reference.name()),
            json!(tag),
            json!(digest)
        )),
        "yaml" => output::data(&output::yaml_text(&json!({
            "url": format!("oci://{url}"), "repository": reference.name(), "tag": tag, "digest": digest}))?),
        _ => {
            output::success(&format!("artifact successfully pushed to {url}"));
            Ok(())
        }
    }
}

fn given_annotations(list: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut annotations = BTreeMap::new();
    for text in list {
        match text.split('=').collect::<Vec<_>>()[..] {
            [key, value] => annotations.insert(key.to_owned(), value.to_owned()),
            _ => return Err(fail!("invalid annotation {text}, must be in the format key=value")),
        };
    }
    Ok(annotations)
}

async fn pull(run: &Invocation) -> Result<(), CliError> {
    let address = run.name().ok_or_else(|| fail!("artifact URL is required"))?;
    let folder = run.some("output").ok_or_else(|| fail!("output path cannot be empty"))?;
    match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(fail!("invalid output path {folder:?}: {folder} is no folder")),
        Err(error) => {
            return Err(fail!("invalid output path {folder:?}: stat {folder}: {}", go_cause(&error)));
        }
    }
    let reference = Reference::parse(address)?;
    let registry = Registry::open(run, &reference)?;
    output::action(&format!("pulling artifact from {}", reference.given()));
    let (digest, manifest) = registry.manifest(&reference).await?;
    let layer = registry.first_layer(&manifest).await?;
    unpack(&layer, std::path::Path::new(folder))?;
    for (what, annotation) in [("source", SOURCE), ("revision", REVISION)] {
        if let Some(value) = annotation_of(&manifest, annotation) {
            output::success(&format!("{what} {value}"));
        }
    }
    output::success(&format!("digest {}@{digest}", reference.name()));
    output::success(&format!("artifact content extracted to {folder}"));
    Ok(())
}

fn annotation_of<'a>(manifest: &'a Value, name: &str) -> Option<&'a str> {
    let value = manifest.get("annotations").and_then(|annotations| annotations.get(name));
    value.and_then(Value::as_str).filter(|value| !value.is_empty())
}

async fn tag(run: &Invocation) -> Result<(), CliError> {
    let address = run.name().ok_or_else(|| fail!("artifact name is required"))?;
    let tags = run.list("tag");
    if tags.is_empty() {
        return Err(fail!("--tag is required"));
    }
    let reference = Reference::parse(address)?;
    let registry = Registry::open(run, &reference)?;
    output::action("tagging artifact");
    for tag in &tags {
        let tagged = registry.tag(&reference, tag).await;
        tagged.map_err(|error| fail!("tagging artifact failed: {error}"))?;
        output::success(&format!("artifact tagged as {}:{tag}", reference.name()));
    }
    Ok(())
}

async fn list(run: &Invocation) -> Result<(), CliError> {
    let address = run.name().ok_or_else(|| fail!("artifact repository URL is required"))?;
    let reference = Reference::parse(address)?;
    let registry = Registry::open(run, &reference)?;
    let filter = Filter::parse(run);
    let tags = registry.tags().await;
    let mut tags = tags.map_err(|error| fail!("listing tags failed: {error}"))?;
    let filter = filter?;
    tags.sort_by(|one, other| other.cmp(one));
    let mut rows = Vec::new();
    for tag in tags.iter().filter(|tag| filter.takes(tag)) {
        let tagged = reference.with_tag(tag);
        let found = registry.manifest(&tagged).await;
        let (digest, manifest) = found.map_err(|error| fail!("fetching manifest failed: {error}"))?;
        let annotation = |name| text_of(&manifest, name);
        rows.push(vec![
            format!("{}:{tag}", reference.given()),
            digest,
            annotation(SOURCE),
            annotation(REVISION),
        ]);
    }
    let header = ["artifact", "digest", "source", "revision"].map(str::to_owned);
    output::data(&output::table(&header, &rows))
}

fn text_of(manifest: &Value, annotation: &str) -> String {
    annotation_of(manifest, annotation).unwrap_or_default().to_owned()
}

/// Which tags to show. Signatures and the like never are.
struct Filter {
    range: Option<Constraint>,
    pattern: Option<Regex>,
}

impl Filter {
    fn parse(run: &Invocation) -> Result<Filter, CliError> {
        let range = run.some("filter-semver").map(|text| {
            Constraint::parse(text).map_err(|error| fail!("semver '{text}' parse error: {error}"))
        });
        let pattern = run
            .some("filter-regex")
            .map(|text| Regex::new(text).map_err(|error| fail!("regex '{text}' parse error: {error}")));
        Ok(Filter { range: range.transpose()?, pattern: pattern.transpose()? })
    }

    fn takes(&self, tag: &str) -> bool {
        let in_range = |range: &Constraint| Version::parse(tag).is_ok_and(|version| range.check(&version));
        ![".att", ".sbom", ".sig"].iter().any(|end| tag.ends_with(end))
            && self.range.as_ref().is_none_or(in_range)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(tag))
    }
}

/// The digest of the first layer of a manifest.
fn first_layer(manifest: &Value) -> Option<&str> {
    Some(text(manifest, "/layers/0/digest")).filter(|digest| !digest.is_empty())
}
