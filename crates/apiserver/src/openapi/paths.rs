//! The paths of a resource: which operations there are, on which kind, with which parameters.

use serde_json::{Map, Value, json};

use crate::kinds::{Resource, Subresource, Verb, split_api_version};

/// Adds everything that can be done with a resource.
pub fn add(routes: &mut Map<String, Value>, resource: &Resource, definition: &str) {
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let collection = match resource.namespaced() {
        true => format!("{root}/namespaces/{{namespace}}/{}", resource.plural),
        false => format!("{root}/{}", resource.plural),
    };
    let list = format!("{definition}List");
    let kind = kind_of(resource, None);
    let mut operations = Map::new();
    for (method, verb, answer) in [
        ("get", Verb::List, list.as_str()),
        ("post", Verb::Create, definition),
        ("delete", Verb::DeleteCollection, ""),
    ] {
        if resource.allows(verb) {
            operations.insert(method.into(), operation(verb, &kind, definition, answer));
        }
    }
    put(routes, collection.clone(), operations, resource.namespaced(), false);
    if resource.namespaced() && resource.allows(Verb::List) {
        let all = Map::from_iter([("get".to_owned(), operation(Verb::List, &kind, definition, &list))]);
        put(routes, format!("{root}/{}", resource.plural), all, false, false);
    }
    let mut operations = Map::new();
    for (method, verb) in
        [("get", Verb::Get), ("put", Verb::Update), ("patch", Verb::Patch), ("delete", Verb::Delete)]
    {
        if resource.allows(verb) {
            let answer = if verb == Verb::Delete { "" } else { definition };
            operations.insert(method.into(), operation(verb, &kind, definition, answer));
        }
    }
    put(routes, format!("{collection}/{{name}}"), operations, resource.namespaced(), true);
    for sub in &resource.subresources {
        subresource(routes, resource, sub, definition, &collection);
    }
}

fn subresource(
    routes: &mut Map<String, Value>,
    resource: &Resource,
    sub: &Subresource,
    definition: &str,
    collection: &str,
) {
    let schema = match sub.api_version.as_str() {
        "" => Some(definition.to_owned()),
        version => kube_schema::Schemas::kubernetes()
            .kind_of(version, &sub.kind)
            .and_then(|kind| kind.schema())
            .and_then(|schema| schema.definition_name())
            .map(str::to_owned),
    };
    let Some(schema) =
        schema.filter(|_| matches!(sub.name.as_str(), "status" | "scale" | "token" | "finalize"))
    else {
        return;
    };
    let kind = kind_of(resource, Some(sub));
    let mut operations = Map::new();
    for (method, verb) in
        [("get", Verb::Get), ("post", Verb::Create), ("put", Verb::Update), ("patch", Verb::Patch)]
    {
        if sub.verbs.contains(&verb) {
            operations.insert(method.into(), operation(verb, &kind, &schema, &schema));
        }
    }
    put(routes, format!("{collection}/{{name}}/{}", sub.name), operations, resource.namespaced(), true);
}

fn kind_of(resource: &Resource, sub: Option<&Subresource>) -> Value {
    match sub {
        Some(sub) if !sub.api_version.is_empty() => {
            let (group, version) = split_api_version(&sub.api_version);
            json!({ "group": group, "version": version, "kind": sub.kind })
        }
        _ => json!({ "group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind }),
    }
}

fn put(
    routes: &mut Map<String, Value>,
    path: String,
    mut operations: Map<String, Value>,
    namespaced: bool,
    named: bool,
) {
    if operations.is_empty() {
        return;
    }
    let mut parameters = Vec::new();
    let in_path = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "uniqueItems": true } });
    if named {
        parameters.push(in_path("name"));
    }
    if namespaced {
        parameters.push(in_path("namespace"));
    }
    parameters.push(in_query("pretty", "string"));
    operations.insert("parameters".into(), parameters.into());
    routes.insert(path, Value::Object(operations));
}

fn in_query(name: &str, kind: &str) -> Value {
    json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn operation(verb: Verb, kind: &Value, definition: &str, answer: &str) -> Value {
    let status = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
    let answer = if answer.is_empty() { status } else { answer };
    let (action, parameters): (&str, &[(&str, &str)]) = match verb {
        Verb::Get => ("get", &[]),
        Verb::List | Verb::Watch => (
            "list",
            &[
                ("allowWatchBookmarks", "boolean"),
                ("continue", "string"),
                ("fieldSelector", "string"),
                ("labelSelector", "string"),
                ("limit", "integer"),
                ("resourceVersion", "string"),
                ("resourceVersionMatch", "string"),
                ("sendInitialEvents", "boolean"),
                ("timeoutSeconds", "integer"),
                ("watch", "boolean"),
            ],
        ),
        Verb::Create => {
            ("post", &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")])
        }
        Verb::Update => {
            ("put", &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")])
        }
        Verb::Patch => (
            "patch",
            &[
                ("dryRun", "string"),
                ("fieldManager", "string"),
                ("fieldValidation", "string"),
                ("force", "boolean"),
            ],
        ),
        Verb::Delete => (
            "delete",
            &[("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("propagationPolicy", "string")],
        ),
        Verb::DeleteCollection => (
            "deletecollection",
            &[("dryRun", "string"), ("labelSelector", "string"), ("fieldSelector", "string")],
        ),
    };
    let content = |schema: Value| json!({ "application/json": { "schema": schema }, "application/yaml": { "schema": schema } });
    let mut operation = json!({
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
        "responses": { "200": { "description": "OK", "content": content(reference(answer)) }, "401": { "description": "Unauthorized" } },
    });
    // Clients tell an empty list from none.
    if !parameters.is_empty() {
        operation["parameters"] = parameters.iter().map(|(name, kind)| in_query(name, kind)).collect();
    }
    match verb {
        Verb::Create | Verb::Update => {
            operation["requestBody"] =
                json!({ "required": true, "content": { "*/*": { "schema": reference(definition) } } });
        }
        Verb::Patch => {
            let patch = json!({ "schema": reference("io.k8s.apimachinery.pkg.apis.meta.v1.Patch") });
            operation["requestBody"] = json!({ "required": true, "content": {
                "application/json-patch+json": patch, "application/merge-patch+json": patch,
                "application/strategic-merge-patch+json": patch, "application/apply-patch+yaml": patch,
            } });
        }
        _ => {}
    }
    operation
}
