//! Strategic merge against answers of the real apimachinery (v0.36.3), recorded in `cases/strategic-merge.json`.
//!
//! Each case has up to three questions: the two-way patch, the three-way patch, and what a patch makes of the
//! current object. Where Go's answer hangs on the random order of its maps, no answer was recorded.

#![allow(clippy::disallowed_methods, reason = "a test reads its cases")]

use kube_schema::{Schemas, strategic_merge};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn answers_are_apimachinerys() {
    let path = std::env::var("STRATEGIC_MERGE_CASES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/strategic-merge.json").into());
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (mut asked, mut wrong) = (0, Vec::new());
    for (index, case) in cases.iter().enumerate() {
        let (api_version, kind) = case["kind"].as_str().unwrap().rsplit_once('/').unwrap();
        let schema = Schemas::kubernetes().kind_of(api_version, kind).unwrap().schema().unwrap();
        let (original, modified, current) = (&case["original"], &case["modified"], &case["current"]);
        let patch = case.get("patch").unwrap_or(&case["threeWay"]["value"]);
        let answers = [
            ("twoWay", strategic_merge::two_way(original, modified, schema)),
            ("threeWay", strategic_merge::three_way(original, modified, current, schema)),
            ("merge", strategic_merge::merge(current, patch, schema)),
        ];
        for (question, answer) in answers {
            let Some(expected) = case.get(question) else { continue };
            let is = match answer {
                Ok(value) => json!({"value": value}),
                Err(error) => json!({"error": error.to_string()}),
            };
            asked += 1;
            if is != *expected {
                wrong.push(format!("case {index} {question}:\n  want {expected}\n  got  {is}"));
            }
        }
    }
    println!("{} of {asked} answers agree", asked - wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("spec"),
        Just("template"),
        Just("containers"),
        Just("ports"),
        Just("name"),
        Just("containerPort"),
        Just("metadata"),
        Just("labels"),
        Just("finalizers"),
        Just("strategy"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$setElementOrder/finalizers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("$setElementOrder"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        Just(json!(1.5)),
        Just(json!("a")),
        Just(json!("replace")),
        Just(json!("delete")),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn nothing_panics(original in any_json(), modified in any_json(), current in any_json()) {
        let schema = Schemas::kubernetes().kind("apps", "v1", "Deployment").unwrap().schema().unwrap();
        let _ = strategic_merge::merge(&original, &modified, schema);
        let _ = strategic_merge::three_way(&original, &modified, &current, schema);
    }
}

#[test]
fn a_document_nested_without_end_is_refused() {
    let mut deep = json!({});
    for _ in 0..600 {
        deep = json!({ "a": deep });
    }
    let schema = Schemas::kubernetes().kind("apps", "v1", "Deployment").unwrap().schema().unwrap();
    assert_eq!(strategic_merge::merge(&deep, &json!({}), schema), Err(strategic_merge::Error::TooDeep));
}
