//! Replays what a real kube-apiserver 1.36 answered: sequences of requests by several managers on one object.
//!
//! Each file in `tests/cases/apply` holds a CRD and sequences; each step has the request and the answer. Creates, updates and
//! merge patches take the answered object as given and check who owns what; applies also check the object, except in
//! sequences marked `only: managedFields`, whose kinds have more defaults than this test knows.

#![allow(clippy::disallowed_methods, reason = "a test reads its cases")]

use kube_schema::{Schema, Schemas};
use serde_json::{Value, json};

use super::*;
use crate::structural::{Structural, builtin};

struct Kind {
    schema: Schema<'static>,
    api_version: &'static str,
    kind: &'static str,
    group: &'static str,
    builtin: bool,
    has_status: bool,
    /// Of a custom resource: for its defaults.
    structural: Option<Structural>,
}

fn kind(sequence: &Value, crd: Option<Schema<'static>>, definition: &Value) -> Kind {
    let plural = sequence["kind"].as_str().unwrap();
    let builtin = |group, api_version, kind, has_status| Kind {
        schema: Schemas::kubernetes().kind_of(api_version, kind).unwrap().schema().unwrap(),
        api_version,
        kind,
        group,
        builtin: true,
        has_status,
        structural: None,
    };
    match plural {
        "deployments" => builtin("apps", "apps/v1", "Deployment", true),
        "services" => builtin("", "v1", "Service", true),
        "configmaps" => builtin("", "v1", "ConfigMap", false),
        _ if sequence.get("apiVersion").is_some() => {
            let text = |name: &str| -> &'static str { sequence[name].as_str().unwrap().to_owned().leak() };
            let (api_version, kind) = (text("apiVersion"), text("Kind"));
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            let found = Schemas::kubernetes().kind_of(api_version, kind).unwrap();
            let has_status = found.resource().unwrap().subresource("status").is_some();
            builtin(group, api_version, kind, has_status)
        }
        _ => Kind {
            schema: crd.unwrap(),
            api_version: format!("{}/v1", definition["spec"]["group"].as_str().unwrap()).leak(),
            kind: definition["spec"]["names"]["kind"].as_str().unwrap().to_owned().leak(),
            group: definition["spec"]["group"].as_str().unwrap().to_owned().leak(),
            builtin: false,
            has_status: definition["spec"]["versions"][0].get("subresources").is_some(),
            structural: Structural::parse(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
                .ok(),
        },
    }
}

#[test]
fn answers_are_those_of_a_real_server() {
    let folder = std::env::var("APPLY_CASES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/apply").to_owned());
    let (mut steps, mut wrong) = (0, Vec::new());
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let cases: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let crd = &cases["crd"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let crd: Option<&'static Schemas> =
            crd.is_object().then(|| &*Box::leak(Box::new(Schemas::from_schema(crd).unwrap())));
        for (index, sequence) in cases["sequences"].as_array().unwrap().iter().enumerate() {
            let kind = kind(sequence, crd.map(Schemas::root), &cases["crd"]);
            let mut live: Option<Value> = None;
            for (number, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
                let code = step["code"].as_u64().unwrap();
                // Invalid objects are another part's business.
                if code == 422 {
                    continue;
                }
                // What the server sets after it has recorded who owns what is not to be seen in the answer.
                if step["given"] == true {
                    live = Some(step["answer"].clone());
                    continue;
                }
                steps += 1;
                if let Err(error) = replay(&kind, live.as_ref(), step, code, sequence["only"].is_string()) {
                    wrong.push(format!(
                        "{} {index}.{number} {} {}: {error}",
                        path.display(),
                        sequence["kind"],
                        step["op"]
                    ));
                }
                if code < 300 {
                    live = Some(step["answer"].clone());
                }
            }
        }
    }
    println!("{} of {steps} steps agree", steps - wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(steps > 0, "no cases");
}

fn replay(
    kind: &Kind,
    live: Option<&Value>,
    step: &Value,
    code: u64,
    only_ownership: bool,
) -> Result<(), String> {
    let op = step["op"].as_str().unwrap();
    let manager = step["manager"].as_str().unwrap();
    let subresource = if op.ends_with("-status") { "status" } else { "" };
    let reset = reset_fields(kind.group, kind.kind, subresource, kind.has_status);
    let empty = if kind.builtin {
        builtin::empty(kind.api_version, kind.kind, kind.schema)
    } else {
        json!({"apiVersion": kind.api_version, "kind": kind.kind})
    };
    let answer = &step["answer"];
    let operation = if op.starts_with("apply") { "Apply" } else { "Update" };
    let entries = answer["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let own = entries.iter().find(|entry| {
        entry["manager"] == manager
            && entry["operation"] == operation
            && entry["subresource"].as_str().unwrap_or("") == subresource
    });
    // A co-owner who changes nothing has no time; then only `before-first-apply` could be new.
    let newest = entries.iter().filter_map(|entry| entry["time"].as_str()).max();
    let now = own.and_then(|entry| entry["time"].as_str()).or(newest).unwrap_or("2099-01-01T00:00:00Z");
    let fields = FieldManager {
        type_: if kind.builtin { Type::builtin(kind.schema) } else { Type::CustomResource(kind.schema) },
        api_version: kind.api_version,
        kind: kind.kind,
        subresource,
        reset: &reset,
        empty: &empty,
        served: &|version| version == kind.api_version,
        now,
    };
    // Stored builtin objects are structures with fields that are never written; the answer leaves them out.
    let live =
        live.map(|live| if kind.builtin { builtin::round_trip(live, kind.schema) } else { live.clone() });
    if op.starts_with("apply") {
        let result = fields.apply(live.as_ref(), &step["body"], manager, step["force"] == true);
        return match (result, code) {
            (Err(Error::Conflict(conflicts)), 409) => same_conflicts(&conflicts, answer),
            (Err(Error::BadRequest(message)), 400) | (Err(Error::Internal(message)), 500) => {
                same("message", &sorted_lines(answer["message"].as_str().unwrap()), &sorted_lines(&message))
            }
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), 300..) => Err(format!("no error, but should be {}", answer["message"])),
            (Ok(object), _) => {
                same(
                    "managedFields",
                    &answer["metadata"]["managedFields"],
                    &object["metadata"]["managedFields"],
                )?;
                if !subresource.is_empty() || only_ownership {
                    return Ok(());
                }
                let object = if kind.builtin {
                    builtin::round_trip(&object, kind.schema)
                } else {
                    let mut object = builtin::with_metadata(&object);
                    kind.structural.as_ref().unwrap().prune(&mut object);
                    kind.structural.as_ref().unwrap().default(&mut object);
                    object
                };
                contained("", &user_part(&object), &user_part(answer))
            }
        };
    }
    if code >= 300 {
        return Ok(());
    }
    let mut after = if kind.builtin { builtin::round_trip(answer, kind.schema) } else { answer.clone() };
    let sent = match op {
        "update" | "create" => step["body"].pointer("/metadata/managedFields").cloned(),
        _ => live.as_ref().and_then(|live| live.pointer("/metadata/managedFields")).cloned(),
    };
    set_managed_fields(&mut after, sent);
    if !kind.builtin {
        after = builtin::with_metadata(&after);
    }
    if kind.kind == "Service" && (op == "create" || op == "update") {
        // Allocated after ownership is recorded.
        for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if step["body"]["spec"].get(field).is_none() {
                after["spec"].as_object_mut().unwrap().remove(field);
            }
        }
    }
    let after = fields.track_update(live.as_ref(), after, manager);
    same("managedFields", &answer["metadata"]["managedFields"], &after["metadata"]["managedFields"])
}

fn same(what: &str, expected: &Value, is: &Value) -> Result<(), String> {
    if expected == is { Ok(()) } else { Err(format!("{what}\n  want {expected}\n  got  {is}")) }
}

/// Go reports several mismatches in random order.
fn sorted_lines(text: &str) -> Value {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    json!(lines)
}

fn same_conflicts(conflicts: &Conflicts, answer: &Value) -> Result<(), String> {
    let message = conflicts.to_string();
    if answer["message"] != message.as_str() {
        return Err(format!("message\n  want {}\n  got  {message:?}", answer["message"]));
    }
    let causes = |list: &mut Vec<(String, String)>| list.sort();
    let mut want: Vec<(String, String)> = answer["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| {
            (cause["message"].as_str().unwrap().to_owned(), cause["field"].as_str().unwrap().to_owned())
        })
        .collect();
    let mut is: Vec<(String, String)> =
        conflicts.iter().map(|conflict| (conflict.message(), conflict.field())).collect();
    causes(&mut want);
    causes(&mut is);
    if want == is { Ok(()) } else { Err(format!("causes\n  want {want:?}\n  got  {is:?}")) }
}

/// Without what the server sets.
fn user_part(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in
            ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "namespace"]
        {
            metadata.remove(field);
        }
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

/// Everything in `is` is in the answer; what the answer has beyond that are defaults.
fn contained(path: &str, is: &Value, answer: &Value) -> Result<(), String> {
    const DEFAULTS: [&str; 22] = [
        "progressDeadlineSeconds",
        "replicas",
        "revisionHistoryLimit",
        "strategy",
        "type",
        "rollingUpdate",
        "maxSurge",
        "maxUnavailable",
        "dnsPolicy",
        "restartPolicy",
        "schedulerName",
        "securityContext",
        "terminationGracePeriodSeconds",
        "imagePullPolicy",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "protocol",
        "defaultMode",
        "internalTrafficPolicy",
        "targetPort",
        "sessionAffinity",
        "clusterIPs",
    ];
    match (is, answer) {
        (Value::Object(is), Value::Object(answer)) => {
            for (key, value) in is {
                match answer.get(key) {
                    Some(other) => contained(&format!("{path}.{key}"), value, other)?,
                    // The server drops nulls when it decodes.
                    None if value.is_null() || *value == json!({}) => {}
                    None => return Err(format!("{path}.{key} is not in the answer")),
                }
            }
            let extra = answer.keys().find(|key| {
                !is.contains_key(*key) && !DEFAULTS.contains(&key.as_str()) && !key.starts_with("ipFamil")
            });
            extra.map_or(Ok(()), |key| Err(format!("{path}.{key} is only in the answer: {}", answer[key])))
        }
        (Value::Array(is), Value::Array(answer)) if is.len() == answer.len() => {
            for (index, (value, other)) in is.iter().zip(answer).enumerate() {
                contained(&format!("{path}[{index}]"), value, other)?;
            }
            Ok(())
        }
        _ if path == ".spec.template.spec.containers" && is.is_null() => Ok(()),
        // Zero means "default" to the server.
        _ if path.ends_with(".targetPort") && *is == json!(0) => Ok(()),
        _ => same(path, answer, is),
    }
}

mod any_input {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec![
            "apiVersion",
            "kind",
            "metadata",
            "spec",
            "ports",
            "port",
            "protocol",
            "selector",
            "managedFields",
            "fieldsV1",
            "manager",
            "operation",
            "fieldsType",
            "time",
            "labels",
            "finalizers",
            "f:spec",
            "f:ports",
            "k:{\"port\":1}",
            "v:1",
            ".",
            "x",
        ]);
        let leaf = prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(1),
            json!(1.5),
            json!("v1"),
            json!("Service"),
            json!("Apply"),
            json!("FieldsV1"),
            json!({}),
        ]);
        leaf.prop_recursive(7, 60, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..6).prop_map(|pairs| pairs
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(11),
            failure_persistence: None,
            ..ProptestConfig::with_cases(800)
        })]

        #[test]
        fn nothing_panics(live in any_json(), mut applied in any_json(), force in any::<bool>()) {
            let schema = Schemas::kubernetes().kind("", "v1", "Service").unwrap().schema().unwrap();
            let fields = FieldManager {
                type_: Type::builtin(schema),
                api_version: "v1",
                kind: "Service",
                subresource: "",
                reset: &reset_fields("", "Service", "", true),
                empty: &builtin::empty("v1", "Service", schema),
                served: &|_| true,
                now: "2026-01-01T00:00:00Z",
            };
            if let Some(object) = applied.as_object_mut() {
                object.insert("apiVersion".into(), "v1".into());
                object.insert("kind".into(), "Service".into());
            }
            let _ = fields.apply(Some(&live), &applied, "a", force);
            let _ = fields.track_update(Some(&live), applied.clone(), "a");
            let _ = builtin::round_trip(&applied, schema);
        }
    }
}

#[test]
fn fields_are_written_in_gos_order() {
    let object = json!({"metadata": {"managedFields": [{"fieldsV1": {
        "f:spec": {"f:ports": {".": {}, "k:{\"port\":443}": {}, "k:{\"port\":80}": {".": {}, "f:port": {}}}},
        "v:10": {}, "v:9": {}, "f:a": {}
    }}]}});
    assert_eq!(
        serde_json::to_string(&InOrder(&object)).unwrap(),
        "{\"metadata\":{\"managedFields\":[{\"fieldsV1\":{\"f:a\":{},\"f:spec\":{\"f:ports\":{\".\":{},\
         \"k:{\\\"port\\\":80}\":{\".\":{},\"f:port\":{}},\"k:{\\\"port\\\":443}\":{}}},\"v:9\":{},\"v:10\":{}}}]}}"
    );
}

#[test]
fn a_list_that_became_atomic_is_owned_whole() {
    let schemas = Schemas::from_schema(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}}}}}),
    )
    .unwrap();
    let set = Set::from_fields(&json!({"f:spec": {"f:set": {".": {}, "v:\"a\"": {}}}})).unwrap();
    let now = reconcile::reconcile(&set, Type::CustomResource(schemas.root())).unwrap();
    assert_eq!(now.to_fields(), json!({"f:spec": {"f:set": {}}}));
}
