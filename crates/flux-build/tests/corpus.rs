//! Flux's own answers to post-build substitutions, where the corpus is at hand.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test reads files and fails by panicking"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

fn corpus(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    Some(shared.join("corpus").join(name)).filter(|path| path.exists())
}

fn variables(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn substitutions_agree_with_flux() {
    let Some(path) = corpus("substitute/cases.json") else {
        println!("corpus substitute: skipped: no corpus");
        return;
    };
    let corpus: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let shared = variables(&corpus["vars"]);
    let mut failures = Vec::new();
    let cases = corpus["cases"].as_array().unwrap();
    for case in cases {
        let variables = case.get("vars").map_or_else(|| shared.clone(), variables);
        let template = case["template"].as_str().unwrap();
        let strict = case["strict"] == true;
        let got = if case["resource"] == true {
            flux_build::substitute::resource(template, &variables, strict).map_err(|error| error.to_string())
        } else {
            flux_build::substitute::substitute(template, &variables, strict)
                .map_err(|error| error.to_string())
        };
        let agrees = match (&got, case.get("output"), case.get("error")) {
            (Ok(text), Some(output), _) => text == output.as_str().unwrap(),
            (Err(text), _, Some(error)) => text == error.as_str().unwrap(),
            // Where upstream panics an error is right.
            (Err(_), None, None) => true,
            _ => false,
        };
        if !agrees {
            failures
                .push(format!("{}: {got:?}, expected {} {}", case["name"], case["output"], case["error"]));
        }
    }
    println!(
        "corpus substitute: {} passed, {} failed, 0 skipped",
        cases.len() - failures.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
