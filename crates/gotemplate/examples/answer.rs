//! Answers cases as `baseline serve` does, one JSON a line: the two are compared in differential runs.

#![allow(clippy::disallowed_methods)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{BufRead, Write};
use std::sync::Arc;

use gotemplate::{Functions, Limits, MissingKey, Numbers, Session, Set, Value};
use serde_json::{Value as Json, json};

fn main() -> std::io::Result<()> {
    let functions = Functions::sprig().shared();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let case: Json = serde_json::from_str(&line?).map_err(std::io::Error::other)?;
        let text = |key: &str| case[key].as_str().unwrap_or_default();
        let mut answer = json!({ "tmpl": text("tmpl") });
        let missing = match text("missingkey") {
            "zero" => MissingKey::Zero,
            "error" => MissingKey::Error,
            _ => MissingKey::Invalid,
        };
        let numbers = if text("mode") == "float" { Numbers::Float } else { Numbers::Int };
        let mut set = Set::new(functions.clone()).missing_key(missing);
        let result = set.parse("root", text("tmpl")).and_then(|template| {
            let host = support::TestHost::default();
            let session = Session::new(&host, Limits::default());
            let data = Value::from_json(&case["data"], numbers);
            Arc::new(set).execute_template(&session, &template, &data)
        });
        match result {
            Ok(output) if output.is_empty() => {}
            Ok(output) => answer["expected"] = support::as_go_json(&output).into(),
            Err(error) => answer["error"] = error.to_string().into(),
        }
        writeln!(out, "{answer}")?;
    }
    out.flush()
}
