//! kyaml's own cases of merging, where the shared corpus is at hand.

use serde_json::Value as Json;

use super::*;

fn merged(case: &Json) -> Result<String, String> {
    let text = |name: &str| case[name].as_str().unwrap_or_default();
    let mut tree = Tree::default();
    let mut read = |text: &str| {
        let node = crate::tree::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        tree.take(node.unwrap_or_default())
    };
    let (dest, patch) = (read(text("dest"))?, read(text("patch"))?);
    let options = MergeOptions {
        direction: if text("list_direction") == "prepend" { Direction::Prepend } else { Direction::Append },
        infer_keys: case["infer"].as_bool().unwrap_or_default(),
    };
    let result = merge(&mut tree, &KnownSchemas::default(), dest, patch, options)
        .map_err(|error| error.to_string())?;
    Ok(result.map(|node| tree.kyaml_text(node)).unwrap_or_default())
}

/// Comments are not kept here, and no result of a build has any.
fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.map(|line| line.split(" #").next().unwrap_or(line).trim_end()).collect::<Vec<_>>().join("\n")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the corpus is read in place")]
fn kyamls_cases_come_out_the_same() {
    let shared = std::env::var("FLUX_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let Ok(text) = std::fs::read_to_string(format!("{shared}/corpus/kustomize/merge2.json")) else {
        println!("skipped: no corpus");
        return;
    };
    let cases: Vec<Json> = serde_json::from_str(&text).unwrap();
    let mut failures = Vec::new();
    for case in &cases {
        let result = merged(case);
        let expected = case["actual"].as_str().map(str::to_owned);
        let same = match (&result, &expected) {
            (Ok(result), Some(expected)) => without_comments(result) == without_comments(expected),
            (Err(_), None) => true,
            (Ok(_), None) | (Err(_), Some(_)) => false,
        };
        if !same {
            failures.push(format!("{}: {}\n{result:?}\n{expected:?}", case["name"], case["description"]));
        }
    }
    println!("merge2: {} passed, {} failed", cases.len() - failures.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
