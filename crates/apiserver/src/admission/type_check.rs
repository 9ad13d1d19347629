//! Type checking of ValidatingAdmissionPolicies: what their expressions get wrong about the kinds they watch over.
//!
//! Only warnings come of it, in the policy's status. Expressions that use the authorizer are not looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::{Environment, ObjectType, Program, Type};
use kube_schema::{Schema, Schemas};
use serde_json::{Value, json};

use crate::kinds::{Registry, Resource};
use crate::object::text;

/// As many kinds as the real server looks at for one policy.
const MAX_KINDS: usize = 10;
/// Types nested deeper than this count as unknown; some schemas contain themselves.
const MAX_DEPTH: usize = 12;

/// `status.typeChecking.expressionWarnings`.
pub fn warnings(registry: &Registry, policy: &Value) -> Vec<Value> {
    let kinds: Vec<(String, Environment)> = kinds(registry, policy)
        .into_iter()
        .map(|resource| {
            let name = format!("{}/{}, Kind={}", resource.group, resource.version, resource.kind);
            (name, environment(&resource, policy))
        })
        .collect();
    let mut warnings = Vec::new();
    let validations = policy["spec"]["validations"].as_array().into_iter().flatten();
    for (at, validation) in validations.enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = validation[field].as_str().unwrap_or_default();
            if expression.is_empty() || expression.contains("authorizer") {
                continue;
            }
            let problems: Vec<String> = kinds
                .iter()
                .filter_map(|(kind, environment)| {
                    let error = Program::compile(expression, environment).err()?;
                    Some(format!("{kind}: {error}\n"))
                })
                .collect();
            if !problems.is_empty() {
                let place = format!("spec.validations[{at}].{field}");
                warnings.push(json!({ "fieldRef": place, "warning": problems.join("\n") }));
            }
        }
    }
    warnings
}

/// The kinds that the policy's rules name outright; a rule with a wildcard names none.
fn kinds(registry: &Registry, policy: &Value) -> Vec<Arc<Resource>> {
    let mut found: Vec<Arc<Resource>> = Vec::new();
    let rules = policy.pointer("/spec/matchConstraints/resourceRules").and_then(Value::as_array);
    for rule in rules.into_iter().flatten() {
        let list = |key: &str| -> Vec<&str> {
            rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let (groups, versions, resources) = (list("apiGroups"), list("apiVersions"), list("resources"));
        if [&groups, &versions, &resources].iter().any(|names| names.iter().any(|name| name.contains('*'))) {
            continue;
        }
        for group in &groups {
            for version in &versions {
                let named = resources.iter().filter_map(|name| registry.find(group, version, name));
                found.extend(
                    named
                        .filter(|resource| !found.iter().any(|known| Arc::ptr_eq(known, resource)))
                        .cloned()
                        .collect::<Vec<_>>(),
                );
            }
        }
    }
    found.truncate(MAX_KINDS);
    found
}

fn environment(resource: &Resource, policy: &Value) -> Environment {
    let object = match &resource.custom {
        Some(custom) => custom.schemas.as_ref().map_or(Type::Dyn, |schemas| with_metadata(schemas.root())),
        None => Schemas::kubernetes()
            .kind(&resource.group, &resource.version, &resource.kind)
            .and_then(|kind| kind.schema())
            .map_or(Type::Dyn, |schema| type_of(schema, MAX_DEPTH)),
    };
    let mut environment = Environment::new()
        .with("object", object.clone())
        .with("oldObject", object)
        .with("request", Type::Dyn)
        .with("namespaceObject", Type::Dyn)
        .with("params", Type::Dyn);
    // A variable has the type of its expression, and may use those before it.
    let mut variables = BTreeMap::new();
    for variable in policy["spec"]["variables"].as_array().into_iter().flatten() {
        let known = ObjectType { name: "kubernetes.variables".into(), fields: variables.clone() };
        let known = environment.clone().with("variables", Type::Object(Arc::new(known)));
        let type_ = Program::compile(text(variable, "/expression"), &known)
            .map_or(Type::Dyn, |program| program.result_type().clone());
        variables.insert(text(variable, "/name").to_owned(), type_);
    }
    let variables = ObjectType { name: "kubernetes.variables".into(), fields: variables };
    environment = environment.with("variables", Type::Object(Arc::new(variables)));
    environment
}

/// A custom kind's own schema says nothing of what every object has.
fn with_metadata(schema: Schema<'_>) -> Type {
    let Type::Object(object) = type_of(schema, MAX_DEPTH) else { return Type::Dyn };
    let mut fields = object.fields.clone();
    let meta = Schemas::kubernetes().definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    fields.insert("metadata".into(), meta.map_or(Type::Dyn, |meta| type_of(meta, MAX_DEPTH)));
    fields.insert("apiVersion".into(), Type::String);
    fields.insert("kind".into(), Type::String);
    Type::Object(Arc::new(ObjectType { name: object.name.clone(), fields }))
}

fn type_of(schema: Schema<'_>, depth: usize) -> Type {
    use kube_schema::Type as Declared;
    let Some(depth) = depth.checked_sub(1) else { return Type::Dyn };
    if schema.is_int_or_string() || schema.is_quantity() || schema.preserves_unknown_fields() {
        return Type::Dyn;
    }
    match schema.type_() {
        Declared::Any => Type::Dyn,
        Declared::Array => Type::list(schema.items().map_or(Type::Dyn, |items| type_of(items, depth))),
        Declared::Object => match schema.map_values() {
            Some(values) => Type::map(Type::String, type_of(values, depth)),
            None if schema.fields().len() == 0 => Type::Dyn,
            None => {
                let fields = schema.fields().map(|(name, field)| (name.to_owned(), type_of(field, depth)));
                let name = schema.definition_name().unwrap_or("object").to_owned();
                Type::Object(Arc::new(ObjectType { name, fields: fields.collect() }))
            }
        },
        Declared::String => match schema.format() {
            Some("byte") => Type::Bytes,
            Some("date-time") => Type::Timestamp,
            _ => Type::String,
        },
        Declared::Integer => Type::Int,
        Declared::Number => Type::Double,
        Declared::Boolean => Type::Bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(expression: &str, message: &str) -> Value {
        json!({ "spec": {
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"] }] },
            "variables": [{ "name": "count", "expression": "object.spec.replicas" }],
            "validations": [{ "expression": expression, "messageExpression": message }],
        } })
    }

    #[test]
    fn confused_types_are_named_with_their_field() {
        let registry = Registry::new(&[]);
        assert!(warnings(&registry, &policy("object.spec.replicas > 1", "")).is_empty());
        assert!(warnings(&registry, &policy("variables.count % 2 == 0", "'x'")).is_empty());
        let found = warnings(&registry, &policy("object.spec.replicas > '1'", "'got ' + variables.count"));
        assert_eq!(found[0]["fieldRef"], "spec.validations[0].expression");
        let text = found[0]["warning"].as_str().unwrap();
        assert!(text.starts_with("apps/v1, Kind=Deployment: "), "{text}");
        assert!(text.contains("found no matching overload for '_>_' applied to '(int, string)'"), "{text}");
        assert_eq!(found[1]["fieldRef"], "spec.validations[0].messageExpression");
    }
}
