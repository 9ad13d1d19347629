//! Every command and flag of the real `flux`, against our own tree: names, aliases, defaults, shorthands.
//! The recorded tree lies outside the repository.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use serde_json::Value;

use super::{Flag, GLOBAL, by_path, flags_of};

#[test]
fn every_command_and_flag_is_there_with_its_default() {
    let shared = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let Ok(text) = std::fs::read(shared.join("cli/surface.json")) else {
        println!("skipped: no corpus at {}", shared.display());
        return;
    };
    let want: Value = serde_json::from_slice(&text).unwrap();
    let (mut commands, mut flags, mut problems) = (0, 0, Vec::new());
    for command in want["commands"].as_array().unwrap() {
        let path = command["path"].as_str().unwrap();
        let path = path.strip_prefix("flux").unwrap_or(path).trim();
        if path.is_empty() {
            continue;
        }
        let Some(own) = by_path(path) else {
            problems.push(format!("flux {path}: missing"));
            continue;
        };
        commands += 1;
        for alias in command["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !own.aliases.contains(&alias) {
                problems.push(format!("flux {path}: alias {alias} is missing"));
            }
        }
        for flag in command["flags"].as_array().into_iter().flatten() {
            flags += 1;
            problems.extend(compare(path, flag, &flags_of(Some(own))));
        }
    }
    let global: Vec<&Flag> = GLOBAL.iter().collect();
    for flag in want["global_flags"].as_array().into_iter().flatten() {
        flags += 1;
        problems.extend(compare("", flag, &global));
    }
    println!("{commands} commands, {flags} flags");
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(commands > 150 && flags > 300, "{commands} commands and {flags} flags are too few to be all");
}

fn compare(path: &str, flag: &Value, ours: &[&Flag]) -> Vec<String> {
    let name = flag["name"].as_str().unwrap_or_default();
    if name == "help" {
        return Vec::new();
    }
    let Some(own) = ours.iter().find(|own| own.name == name) else {
        return vec![format!("flux {path} --{name}: missing")];
    };
    let mut problems = Vec::new();
    let short = flag["short"].as_str().unwrap_or_default();
    if own.short.map(String::from).unwrap_or_default() != short {
        problems.push(format!("flux {path} --{name}: shorthand {:?} instead of {short:?}", own.short));
    }
    let (want, got) = (normal(&flag["default"]), normal(&Value::from(own.default)));
    if want != got {
        problems.push(format!("flux {path} --{name}: default {got:?} instead of {want:?}"));
    }
    problems
}

/// `[]` and nothing, `[a,b]` and `a,b` mean the same.
fn normal(default: &Value) -> String {
    let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
    let text = text.trim_start_matches('[').trim_end_matches(']').replace(' ', ",");
    if matches!(text.as_str(), "false" | "null") { String::new() } else { text }
}
