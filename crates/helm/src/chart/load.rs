//! Files to chart: what each name means, and which subfolders and archives are subcharts.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::metadata::Metadata;
use super::{Chart, File, Limits, LoadError, Parsed, archive};
use crate::Dialect;
use crate::values::load_values;

/// What is left to unpack, shared by a chart and every archive within it.
pub(super) struct Budget {
    limits: Limits,
    remaining: u64,
    depth: usize,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Budget {
        Budget { limits, remaining: limits.unpacked, depth: 0 }
    }

    pub(super) fn remaining(&self) -> u64 {
        self.remaining
    }

    pub(super) fn limit(&self) -> u64 {
        self.limits.unpacked
    }

    /// Whether `bytes` more still fit.
    pub(super) fn spend(&mut self, bytes: u64) -> bool {
        let fits = bytes < self.remaining || (bytes == 0 && self.remaining > 0);
        self.remaining = self.remaining.saturating_sub(bytes);
        fits
    }
}

/// The outermost chart. Helm 4 looks at its `apiVersion` before anything else.
pub(super) fn root(files: Vec<File>, budget: &mut Budget, dialect: Dialect) -> Result<Chart, LoadError> {
    if dialect == Dialect::Helm4 {
        let chart_yaml = files.iter().find(|f| f.name == "Chart.yaml").ok_or(LoadError::MissingChartYaml)?;
        let base = Metadata::api_version(&chart_yaml.data)
            .map_err(|cause| LoadError::Unreadable { file: "Chart.yaml", cause })?;
        match base.as_str() {
            "" | "v1" | "v2" => {}
            "v3" => return Err(LoadError::ApiVersionV3),
            _ => return Err(LoadError::UnsupportedApiVersion),
        }
    }
    chart(files, budget, dialect)
}

fn chart(files: Vec<File>, budget: &mut Budget, dialect: Dialect) -> Result<Chart, LoadError> {
    let mut metadata = None;
    let mut modified = None;
    for file in files.iter().filter(|f| f.name == "Chart.yaml") {
        let target: &mut Metadata = metadata.get_or_insert_default();
        target
            .read(&file.data, dialect)
            .map_err(|cause| LoadError::Unreadable { file: "Chart.yaml", cause })?;
        if target.api_version.is_empty() {
            target.api_version = "v1".to_owned();
        }
        modified = file.modified;
    }
    let mut loading = Loading::new(metadata);
    for file in files {
        loading.file(file, dialect)?;
    }
    let mut metadata = loading.metadata.ok_or(LoadError::MissingChartYaml)?;
    metadata.validate().map_err(LoadError::Invalid)?;
    let subcharts = subcharts(loading.subcharts, &metadata.name, budget, dialect)?;
    Ok(Chart {
        metadata,
        lock: loading.lock,
        values: loading.values,
        values_file: loading.values_file,
        schema: loading.schema.as_ref().map(|f| f.data.clone()),
        templates: loading.templates,
        files: loading.files,
        subcharts,
        modified,
        schema_modified: loading.schema.and_then(|f| f.modified),
        parsed: Parsed::default(),
    })
}

#[derive(Default)]
struct Loading {
    metadata: Option<Metadata>,
    lock: Option<Json>,
    values: Option<serde_json::Map<String, Json>>,
    values_file: Option<File>,
    schema: Option<File>,
    templates: Vec<File>,
    files: Vec<File>,
    subcharts: BTreeMap<String, Vec<File>>,
}

impl Loading {
    fn new(metadata: Option<Metadata>) -> Loading {
        Loading { metadata, ..Loading::default() }
    }

    fn file(&mut self, file: File, dialect: Dialect) -> Result<(), LoadError> {
        match file.name.as_str() {
            "Chart.yaml" => {}
            "Chart.lock" => self.lock = Some(lock("Chart.lock", &file)?),
            "values.yaml" => {
                let values = load_values(&file.data, dialect)
                    .map_err(|cause| LoadError::Unreadable { file: "values.yaml", cause })?;
                self.values = Some(values);
                self.values_file = Some(file);
            }
            "values.schema.json" => self.schema = Some(file),
            "requirements.yaml" => {
                let metadata = self.metadata.get_or_insert_default();
                metadata
                    .read(&file.data, dialect)
                    .map_err(|cause| LoadError::Unreadable { file: "requirements.yaml", cause })?;
                self.keep_if_v1(file);
            }
            "requirements.lock" => {
                self.lock = Some(lock("requirements.lock", &file)?);
                self.keep_if_v1(file);
            }
            name if name.starts_with("templates/") => self.templates.push(file),
            name if name.starts_with("charts/") && !name.ends_with(".prov") => {
                let name = name["charts/".len()..].to_owned();
                let first = name.split('/').next().unwrap_or_default().to_owned();
                self.subcharts.entry(first).or_default().push(File { name, ..file });
            }
            _ => self.files.push(file),
        }
        Ok(())
    }

    /// A chart of the old format still sees its requirements through `.Files`.
    fn keep_if_v1(&mut self, file: File) {
        if self.metadata.as_ref().is_some_and(|m| m.api_version == "v1") {
            self.files.push(file);
        }
    }
}

fn lock(name: &'static str, file: &File) -> Result<Json, LoadError> {
    crate::document::parse(&file.data).map_err(|cause| LoadError::Unreadable { file: name, cause })
}

fn subcharts(
    found: BTreeMap<String, Vec<File>>,
    chart: &str,
    budget: &mut Budget,
    dialect: Dialect,
) -> Result<Vec<Chart>, LoadError> {
    if !found.is_empty() && budget.depth >= budget.limits.depth {
        return Err(LoadError::TooDeep(budget.limits.depth));
    }
    budget.depth += 1;
    let mut charts = Vec::new();
    for (name, files) in found {
        if name.starts_with(['_', '.']) {
            continue;
        }
        let loaded = subchart(&name, files, chart, budget, dialect).map_err(|cause| match cause {
            cause @ (LoadError::SubchartArchive { .. } | LoadError::TooDeep(_)) => cause,
            cause => {
                LoadError::Subchart { name: name.clone(), chart: chart.to_owned(), cause: Box::new(cause) }
            }
        })?;
        charts.push(loaded);
    }
    budget.depth -= 1;
    Ok(charts)
}

fn subchart(
    name: &str,
    files: Vec<File>,
    chart: &str,
    budget: &mut Budget,
    dialect: Dialect,
) -> Result<Chart, LoadError> {
    if name.ends_with(".tgz") {
        let first = &files[0];
        if first.name != name {
            return Err(LoadError::SubchartArchive {
                chart: chart.to_owned(),
                expected: name.to_owned(),
                got: first.name.clone(),
            });
        }
        let files = archive::unpack(&first.data, budget)?;
        return self::chart(files, budget, dialect);
    }
    // Files that lie directly in charts/ are no chart; the chart then fails for want of a Chart.yaml, as in Helm.
    let files = files
        .into_iter()
        .filter_map(|file| {
            let name = file.name.split_once('/')?.1.to_owned();
            Some(File { name, ..file })
        })
        .collect();
    self::chart(files, budget, dialect)
}
