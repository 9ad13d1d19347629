//! Custom resources and CRDs against answers of a real kube-apiserver 1.36, recorded in `tests/cases/structural.json`.

#![allow(clippy::disallowed_methods, reason = "a test reads its cases")]

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::*;

fn cases() -> Value {
    let path = std::env::var("STRUCTURAL_CASES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/structural.json").to_owned());
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Every kind a real server stores something of: what it answers is what a round trip leaves.
#[test]
fn real_objects_survive_a_round_trip() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/objects.json");
    let path = std::env::var("OBJECT_CASES").unwrap_or_else(|_| path.to_owned());
    let objects: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for object in &objects {
        let text = |name: &str| object[name].as_str().unwrap();
        let kind = kube_schema::Schemas::kubernetes().kind_of(text("apiVersion"), text("kind")).unwrap();
        assert_eq!(builtin::round_trip(object, kind.schema().unwrap()), *object);
    }
    assert!(objects.len() > 20);
}

fn rules(cases: &Value) -> (Arc<Structural>, Rules) {
    let schema = &cases["crd"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let schema = Arc::new(Structural::parse(schema).unwrap());
    (schema.clone(), Rules::new(schema))
}

fn causes(errors: &[FieldError]) -> BTreeSet<(String, String, String)> {
    let cause = |error: &FieldError| (error.kind.reason().to_owned(), error.field.clone(), error.message());
    errors.iter().map(cause).collect()
}

fn wanted(case: &Value) -> BTreeSet<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let causes = case["causes"].as_array().into_iter().flatten();
    causes.map(|cause| (text(&cause[0]), text(&cause[1]), text(&cause[2]))).collect()
}

/// The object as it would be stored, and what is wrong with it.
fn read(
    schema: &Structural,
    rules: &Rules,
    object: &Value,
    old: Option<&Value>,
) -> (Value, Vec<String>, Vec<FieldError>) {
    let mut object = builtin::with_metadata(object);
    let unknown = schema.prune(&mut object);
    schema.default(&mut object);
    let errors = rules.validate(&object, old);
    (object, unknown, errors)
}

#[test]
fn objects_are_judged_as_by_a_real_server() {
    let cases = cases();
    let (schema, rules) = rules(&cases);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases["objects"].as_array().unwrap() {
        count += 1;
        let (stored, unknown, errors) = read(&schema, &rules, &case["object"], None);
        let spec = &case["object"]["spec"];
        if case["code"] == 201 {
            if !errors.is_empty() {
                wrong.push(format!("{spec}: is valid, but {:?}", causes(&errors)));
            } else if stored != case["stored"] {
                wrong.push(format!("{spec}: stored\n  want {}\n  got  {stored}", case["stored"]));
            }
        } else if causes(&errors) != wanted(case) {
            wrong.push(format!("{spec}:\n  want {:?}\n  got  {:?}", wanted(case), causes(&errors)));
        }
        if let Some(strict) = case["strict"].as_str() {
            let said: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
            let is = format!("strict decoding error: {}", said.join(", "));
            if !strict.ends_with(&is) {
                wrong.push(format!("{spec}: strict\n  want {strict}\n  got  {is}"));
            }
        } else if !unknown.is_empty() && case["code"] == 201 {
            wrong.push(format!("{spec}: unknown {unknown:?}"));
        }
    }
    println!("{} of {count} objects agree", count - wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn updates_are_judged_as_by_a_real_server() {
    let cases = cases();
    let (schema, rules) = rules(&cases);
    for case in cases["updates"].as_array().unwrap() {
        let (_, _, errors) = read(&schema, &rules, &case["new"], Some(&case["old"]));
        assert_eq!(causes(&errors), wanted(case), "{}", case["new"]["spec"]);
    }
}

#[test]
fn schemas_are_judged_as_by_a_real_server() {
    let cases = cases();
    let mut wrong = Vec::new();
    let all = cases["crds"].as_array().unwrap();
    for case in all {
        let path = "spec.validation.openAPIV3Schema";
        let schema = Arc::new(Structural::parse(&case["schema"]).unwrap());
        let mut errors = schema.check(path);
        if errors.is_empty() {
            errors.extend(Rules::new(schema.clone()).check(path));
        }
        if causes(&errors) != wanted(case) {
            wrong.push(format!(
                "{}:\n  want {:?}\n  got  {:?}",
                case["schema"],
                wanted(case),
                causes(&errors)
            ));
        }
    }
    println!("{} of {} schemas agree", all.len() - wrong.len(), all.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_was_wrong_before_may_stay_wrong() {
    let schema = serde_json::json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "old": {"type": "string", "maxLength": 2, "x-kubernetes-validations": [{"rule": "self.startsWith('x')"}]},
        "other": {"type": "string"}}}}});
    let rules = Rules::new(Arc::new(Structural::parse(&schema).unwrap()));
    let before = serde_json::json!({"spec": {"old": "abc", "other": "a"}});
    let after = serde_json::json!({"spec": {"old": "abc", "other": "b"}});
    assert_eq!(rules.validate(&after, Some(&before)), []);
    assert!(!rules.validate(&after, None).is_empty());
}

mod any_input {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec![
            "type",
            "properties",
            "items",
            "additionalProperties",
            "a",
            "b",
            "spec",
            "metadata",
            "enum",
            "required",
            "minimum",
            "pattern",
            "anyOf",
            "allOf",
            "not",
            "default",
            "format",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-validations",
            "rule",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-int-or-string",
            "nullable",
        ]);
        let leaf = prop::sample::select(vec![
            serde_json::json!(null),
            serde_json::json!(true),
            serde_json::json!(1),
            serde_json::json!(-1.5),
            serde_json::json!("object"),
            serde_json::json!("array"),
            serde_json::json!("string"),
            serde_json::json!("map"),
            serde_json::json!("("),
            serde_json::json!("self.a > 1"),
            serde_json::json!("date-time"),
            serde_json::json!(["a"]),
        ]);
        leaf.prop_recursive(6, 60, 5, move |inner| {
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
            rng_seed: proptest::test_runner::RngSeed::Fixed(5),
            failure_persistence: None,
            ..ProptestConfig::with_cases(1500)
        })]

        #[test]
        fn nothing_panics(schema in any_json(), mut object in any_json(), old in any_json()) {
            let schema = Arc::new(Structural::parse(&schema).unwrap());
            let rules = Rules::new(schema.clone());
            let _ = (schema.check("schema"), rules.check("schema"));
            schema.prune(&mut object);
            schema.default(&mut object);
            let _ = rules.validate(&object, Some(&old));
        }
    }
}

#[test]
fn sets_and_maps_are_equal_in_any_order() {
    let schema = serde_json::json!({"type": "object", "properties": {
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items":
            {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}}},
        "x-kubernetes-validations": [{"rule": "self.set == oldSelf.set"}, {"rule": "self.map == oldSelf.map"},
            {"rule": "(self.set + oldSelf.set).size() == 2"}, {"rule": "(self.map + oldSelf.map).size() == 2"}]});
    let rules = Rules::new(Arc::new(Structural::parse(&schema).unwrap()));
    assert_eq!(rules.check(""), []);
    let old = serde_json::json!({"set": ["a", "b"], "map": [{"k": "a", "v": 1}, {"k": "b"}]});
    let new = serde_json::json!({"set": ["b", "a"], "map": [{"k": "b"}, {"k": "a", "v": 1}]});
    assert_eq!(rules.validate(&new, Some(&old)), []);
    let other = serde_json::json!({"set": ["b", "a"], "map": [{"k": "b"}, {"k": "a", "v": 2}]});
    assert_eq!(rules.validate(&other, Some(&old)).len(), 1);
}

#[test]
fn embedded_resources_say_what_they_are() {
    let cases = cases();
    let (schema, rules) = rules(&cases);
    let object = |embedded: Value| {
        serde_json::json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "ge"},
            "spec": {"name": "abc", "embedded": embedded}})
    };
    let judged = |embedded: Value| read(&schema, &rules, &object(embedded), None);
    let fields = |errors: &[FieldError]| errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>();
    assert_eq!(
        fields(&judged(serde_json::json!({})).2),
        ["spec.embedded.apiVersion", "spec.embedded.kind", "<nil>"]
    );
    let (stored, unknown, errors) = judged(serde_json::json!({"apiVersion": "v1", "kind": "X",
        "metadata": {"name": "a", "bogus": 1, "labels": {"a": "b"}, "creationTimestamp": null}}));
    assert_eq!(errors, []);
    assert_eq!(unknown, ["spec.embedded.metadata.bogus"]);
    assert_eq!(
        stored["spec"]["embedded"]["metadata"],
        serde_json::json!({"name": "a", "labels": {"a": "b"}})
    );
    let wrong = judged(serde_json::json!({"apiVersion": "a/b/c", "kind": "x y"})).2;
    assert_eq!(fields(&wrong), ["spec.embedded.apiVersion", "spec.embedded.kind"]);
    assert_eq!(wrong[0].message(), "Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c");
}
