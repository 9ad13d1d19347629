//! CustomResourceDefinitions: names, versions, and schemas that must be structural.

use std::sync::Arc;

use serde_json::Value;

use super::names;
use crate::custom;
use crate::object::{self, text};
use crate::status::Cause;
use crate::structural::{Rules, Structural};

pub(super) fn definition(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let (group, plural) = (text(new, "/spec/group"), text(new, "/spec/names/plural"));
    if object::name(new) != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &Value::from(object::name(new)), detail));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(Cause::invalid(
            "spec.group",
            &Value::from(group),
            "should be a domain with at least one dot",
        ));
    }
    let scope = text(new, "/spec/scope");
    if !matches!(scope, "Cluster" | "Namespaced") {
        match scope {
            "" => causes.push(Cause::required("spec.scope", "")),
            other => causes.push(Cause::not_supported(
                "spec.scope",
                &Value::from(other),
                &["Cluster", "Namespaced"],
            )),
        }
    }
    naming(new, causes);
    versions(new, causes);
    let Some(old) = old.filter(|old| crate::cluster::crds::condition(old, "Established") == Some("True"))
    else {
        return;
    };
    for (pointer, field) in [
        ("/spec/group", "spec.group"),
        ("/spec/names/plural", "spec.names.plural"),
        ("/spec/scope", "spec.scope"),
        ("/spec/names/kind", "spec.names.kind"),
    ] {
        if old.pointer(pointer) != new.pointer(pointer) {
            causes.push(Cause::invalid(
                field,
                new.pointer(pointer).unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    }
}

fn naming(new: &Value, causes: &mut Vec<Cause>) {
    let parts = [("plural", true), ("singular", true), ("kind", false), ("listKind", false)];
    for (key, exact) in parts {
        let value = text(new, &format!("/spec/names/{key}"));
        let field = format!("spec.names.{key}");
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
            continue;
        }
        let checked = if exact { value.to_owned() } else { value.to_lowercase() };
        if let Some(problem) = names::dns1035_label(&checked) {
            causes.push(Cause::invalid(field, &Value::from(value), &problem));
        }
    }
}

fn versions(new: &Value, causes: &mut Vec<Cause>) {
    let none = Vec::new();
    let versions = new["spec"]["versions"].as_array().unwrap_or(&none);
    let storing = versions.iter().filter(|version| version["storage"] == true).count();
    if storing != 1 {
        let shown = versions.iter().map(|version| version["name"].clone()).collect::<Vec<_>>();
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &Value::from(shown), detail));
    }
    // The real server moves a schema that all versions share to an older place, and names that.
    let shared = versions.iter().all(|version| version["schema"] == versions[0]["schema"]);
    for (at, version) in versions.iter().enumerate() {
        let name = text(version, "/name");
        if let Some(problem) = names::dns1035_label(name) {
            causes.push(Cause::invalid(format!("spec.versions[{at}].name"), &Value::from(name), &problem));
        }
        if shared && at > 0 {
            continue;
        }
        let path = if shared {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("spec.versions[{at}].schema.openAPIV3Schema")
        };
        match version.pointer("/schema/openAPIV3Schema") {
            Some(schema) => self::schema(schema, &path, causes),
            None => causes.push(Cause::required(format!("spec.versions[{at}].schema.openAPIV3Schema"), "")),
        }
    }
}

fn schema(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let parsed = match Structural::parse(schema) {
        Ok(parsed) => parsed,
        Err(problem) => return causes.push(Cause::invalid(path, &Value::from(""), &problem.to_string())),
    };
    let problems = parsed.check(path);
    causes.extend(problems.iter().map(custom::cause));
    if problems.is_empty() {
        causes.extend(Rules::new(Arc::new(parsed)).check(path).iter().map(custom::cause));
    }
}
