//! Templates of our own, answered by the real Go: `cargo xtask baseline` or `go run . record` in `baseline/` records
//! them, this test compares.

#![allow(clippy::disallowed_methods)]

mod support;

use std::path::Path;
use std::sync::Arc;

use gotemplate::{Functions, Limits, MissingKey, Numbers, Session, Set, Value};
use serde_json::Value as Json;
use support::TestHost;

#[test]
fn recorded_answers_of_go_are_ours_too() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut failures = Vec::new();
    let mut passed = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of cases") {
        let path = entry.expect("a file of cases").path();
        let text = std::fs::read_to_string(&path).expect("cases are text");
        let file: Json = serde_json::from_str(&text).expect("cases are JSON");
        for case in file["cases"].as_array().expect("a list of cases") {
            let text = |key: &str| case[key].as_str().unwrap_or_default();
            let wanted = match text("error") {
                "" => Ok(text("expected").to_owned()),
                error => Err(error.to_owned()),
            };
            let got = answer(&file["data"], case);
            if got == wanted {
                passed += 1;
            } else {
                let name = path.file_name().unwrap_or_default().display();
                failures.push(format!("{name}: {}\n  wanted {wanted:?}\n  got    {got:?}", text("tmpl")));
            }
        }
    }
    println!("{passed} passed, {} failed", failures.len());
    assert!(passed > 1000, "only {passed} cases were found");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn answer(data: &Json, case: &Json) -> Result<String, String> {
    let text = |key: &str| case[key].as_str().unwrap_or_default();
    let missing = match text("missingkey") {
        "zero" => MissingKey::Zero,
        "error" => MissingKey::Error,
        _ => MissingKey::Invalid,
    };
    let numbers = if text("mode") == "float" { Numbers::Float } else { Numbers::Int };
    let mut set = Set::new(Functions::sprig().shared()).missing_key(missing);
    let template = set.parse("root", text("tmpl")).map_err(|error| error.to_string())?;
    let host = TestHost::default();
    let session = Session::new(&host, Limits::default());
    let output = Arc::new(set)
        .execute_template(&session, &template, &Value::from_json(data, numbers))
        .map_err(|error| error.to_string())?;
    Ok(support::as_go_json(&output))
}
