//! A chart as Helm stores it with a release.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::chart::{Chart, Dependency, File, Metadata};
use crate::render::Rendered;

/// What Go writes for a time that is not set and not left out.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

pub(super) fn of(chart: &Chart, rendered: &Rendered) -> Json {
    let mut record = json!({
        "metadata": metadata(&rendered.metadata),
        "lock": chart.lock.as_ref().map_or(Json::Null, lock),
        "templates": files(&chart.templates),
        "values": rendered.chart_values,
        "schema": chart.schema.as_ref().map(|schema| STANDARD.encode(schema)),
        "schemamodtime": chart.schema_modified.map_or_else(|| ZERO_TIME.to_owned(), |t| t.to_string()),
        "files": files(&chart.files),
    });
    if let (Some(modified), Json::Object(fields)) = (chart.modified, &mut record) {
        fields.insert("modtime".to_owned(), Json::String(modified.to_string()));
    }
    record
}

fn files(files: &[File]) -> Json {
    if files.is_empty() {
        return Json::Null;
    }
    let file = |file: &File| {
        let mut record = json!({"name": file.name, "data": STANDARD.encode(&file.data)});
        if let (Some(modified), Json::Object(fields)) = (file.modified, &mut record) {
            fields.insert("modtime".to_owned(), Json::String(modified.to_string()));
        }
        record
    };
    files.iter().map(file).collect()
}

pub(crate) fn metadata(m: &Metadata) -> Json {
    let mut fields = Fields(Map::new());
    fields.text("name", &m.name);
    fields.text("home", &m.home);
    fields.texts("sources", &m.sources);
    fields.text("version", &m.version);
    fields.text("description", &m.description);
    fields.texts("keywords", &m.keywords);
    let maintainers = m.maintainers.iter().map(|maintainer| {
        let mut fields = Fields(Map::new());
        fields.text("name", &maintainer.name);
        fields.text("email", &maintainer.email);
        fields.text("url", &maintainer.url);
        Json::Object(fields.0)
    });
    fields.list("maintainers", maintainers.collect());
    fields.text("icon", &m.icon);
    fields.text("apiVersion", &m.api_version);
    fields.text("condition", &m.condition);
    fields.text("tags", &m.tags);
    fields.text("appVersion", &m.app_version);
    if m.deprecated {
        fields.0.insert("deprecated".to_owned(), Json::Bool(true));
    }
    if let Some(annotations) = m.annotations.as_ref().filter(|a| !a.is_empty()) {
        fields.0.insert("annotations".to_owned(), json!(annotations));
    }
    fields.text("kubeVersion", &m.kube_version);
    fields.list("dependencies", m.dependencies.iter().flatten().map(dependency).collect());
    fields.text("type", &m.chart_type);
    Json::Object(fields.0)
}

fn dependency(d: &Dependency) -> Json {
    let mut fields = Fields(Map::new());
    fields.0.insert("name".to_owned(), Json::String(d.name.clone()));
    fields.text("version", &d.version);
    fields.0.insert("repository".to_owned(), Json::String(d.repository.clone()));
    fields.text("condition", &d.condition);
    fields.texts("tags", &d.tags);
    if d.enabled {
        fields.0.insert("enabled".to_owned(), Json::Bool(true));
    }
    fields.list("import-values", d.import_values.clone().unwrap_or_default());
    fields.text("alias", &d.alias);
    Json::Object(fields.0)
}

/// A lock file may lack a field, or write its time in a way Go's JSON does not read; the real helm could then not read the record.
fn lock(lock: &Json) -> Json {
    let text = |key: &str| lock.get(key).and_then(Json::as_str).unwrap_or_default();
    let generated = text("generated");
    let generated = if generated.parse::<jiff::Timestamp>().is_ok() { generated } else { ZERO_TIME };
    let dependencies = lock.get("dependencies").cloned().unwrap_or(Json::Null);
    json!({"generated": generated, "digest": text("digest"), "dependencies": dependencies})
}

/// Go's `omitempty`.
struct Fields(Map<String, Json>);

impl Fields {
    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.0.insert(name.to_owned(), Json::String(value.to_owned()));
        }
    }

    fn texts(&mut self, name: &str, values: &[String]) {
        self.list(name, values.iter().map(|v| Json::String(v.clone())).collect());
    }

    fn list(&mut self, name: &str, values: Vec<Json>) {
        if !values.is_empty() {
            self.0.insert(name.to_owned(), Json::Array(values));
        }
    }
}
