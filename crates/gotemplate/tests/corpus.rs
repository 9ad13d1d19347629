//! The corpora beside the repository: templates with the answers of the real Go and the real Helm.
//!
//! Cases that need Helm's own functions and objects are counted and left to the crate `helm`.

#![allow(clippy::disallowed_methods)]

mod support;

use std::any::Any;
use std::path::PathBuf;

use gotemplate::{
    Context, Failure, Function, Functions, Limits, Map, MissingKey, Named, Numbers, Object, Session, Set,
    Signature, Type, Value,
};
use serde_json::Value as Json;
use support::TestHost;

fn corpus(file: &str) -> Option<Json> {
    let shared = std::env::var_os("FLUX_SHARED").map(PathBuf::from);
    let shared =
        shared.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")));
    let path = shared.join("corpus").join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: no corpus at {}", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).expect("the corpus is JSON"))
}

/// What Helm adds; templates that name one of these are not for this crate.
const HELMS: &[&str] = &[
    "include",
    "tpl",
    "required",
    "lookup",
    "toYaml",
    "toYamlPretty",
    "mustToYaml",
    "fromYaml",
    "fromYamlArray",
    "fromJsonArray",
    "toToml",
    "mustToToml",
    "fromToml",
    "mustToDuration",
    "durationSeconds",
    "durationMilliseconds",
    "durationMicroseconds",
    "durationNanoseconds",
    "durationMinutes",
    "durationHours",
    "durationDays",
    "durationWeeks",
    "durationRoundTo",
    "durationTruncateTo",
    ".Files",
    ".Capabilities",
    ".Subcharts",
    // Helm's own reports errors as a map.
    "fromJson",
    // Of the helper templates, which call `include`.
    "greet",
];

fn is_helms(template: &str) -> bool {
    let words: Vec<&str> = template.split(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_')).collect();
    words
        .iter()
        .any(|word| HELMS.iter().any(|helm| word == helm || helm.starts_with('.') && word.starts_with(helm)))
}

struct Capabilities;

impl Object for Capabilities {
    fn type_name(&self) -> &'static str {
        "main.caps"
    }

    fn method(&self, name: &str) -> Option<Signature> {
        (name == "Has").then(|| Signature::new(&[Type::String]))
    }

    fn call(&self, _: &Context<'_>, _: &str, args: &[Value]) -> Result<Value, Failure> {
        Ok(Value::Bool(args[0].as_str() == Some("batch/v1")))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn data(json: &Json, mode: &str) -> Value {
    if json.get("Caps").is_some() {
        return Value::map([("Caps", Value::object(Capabilities))]);
    }
    Value::from_json(json, if mode == "int" { Numbers::Int } else { Numbers::Float })
}

/// Output, or Go's error with the phase before it.
fn run(set: Set, name: &str, text: &str, data: &Value) -> Result<String, String> {
    let mut set = set;
    set.parse(name, text).map_err(|error| format!("PARSE: {error}"))?;
    let host = TestHost::default();
    let session = Session::new(&host, Limits::default());
    let output =
        std::sync::Arc::new(set).execute(&session, name, data).map_err(|error| format!("EXEC: {error}"))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

struct Tally {
    passed: usize,
    failed: Vec<String>,
    left_to_helm: usize,
}

impl Tally {
    fn report(self, corpus: &str) {
        println!(
            "{corpus}: {} passed, {} failed, {} left to helm",
            self.passed,
            self.failed.len(),
            self.left_to_helm
        );
        for failure in &self.failed {
            println!("{failure}");
        }
        assert!(self.failed.is_empty(), "{} of {corpus} failed", self.failed.len());
    }

    fn check(&mut self, name: &str, template: &str, wanted: Result<&str, &str>, got: Result<&str, &str>) {
        if wanted == got {
            self.passed += 1;
        } else {
            self.failed.push(format!("--- {name}: {template}\n  wanted {wanted:?}\n  got    {got:?}"));
        }
    }
}

#[test]
fn core_language_answers_as_go_does() {
    let Some(cases) = corpus("gotemplate/core.json") else { return };
    let mut tally = Tally { passed: 0, failed: Vec::new(), left_to_helm: 0 };
    for case in cases.as_array().expect("a list of cases") {
        let text = |key: &str| case[key].as_str().unwrap_or_default();
        if is_helms(text("tmpl")) {
            tally.left_to_helm += 1;
            continue;
        }
        let set = Set::new(Functions::sprig().shared());
        let got = run(set, "root", text("tmpl"), &data(&case["data"], text("mode")));
        let wanted = if text("error").is_empty() { Ok(text("expected")) } else { Err(text("error")) };
        tally.check(text("name"), text("tmpl"), wanted, got.as_deref().map_err(String::as_str));
    }
    tally.report("gotemplate/core.json");
}

/// The template the recorded one-liners were.
const NAME: &str = "c/templates/t.yaml";

#[test]
fn functions_answer_as_in_helm() {
    let Some(corpus) = corpus("helm/functions.json") else { return };
    let mut tally = Tally { passed: 0, failed: Vec::new(), left_to_helm: 0 };
    for case in corpus["cases"].as_array().expect("a list of cases") {
        let template = case["template"].as_str().unwrap_or_default();
        let name = case["name"].as_str().unwrap_or_default();
        if is_helms(template) {
            tally.left_to_helm += 1;
            continue;
        }
        let set = Set::new(helm_like().shared()).missing_key(MissingKey::Zero);
        let got = run(set, NAME, template, &helm_data(&corpus["values"]));
        let got = got.map(|output| output.replace("<no value>", "")).map_err(helm_error);
        // Helm 4 rewrites errors of execution; Helm 3 shows them as Go has them.
        let wanted_error = case["helm3.22.0"]["error"].as_str().or(case["error"].as_str());
        let wanted = match (case["output"].as_str(), wanted_error) {
            (Some(output), _) => Ok(output),
            (None, Some(error)) => Err(error),
            (None, None) => Err(""),
        };
        tally.check(name, template, wanted, got.as_deref().map_err(String::as_str));
    }
    tally.report("helm/functions.json");
}

/// sprig as Helm has it: without the environment and without a network.
fn helm_like() -> Functions {
    fn no_host(_: &Context<'_>, _: &[Value]) -> Result<Value, Failure> {
        Ok(Value::from(""))
    }
    Functions::sprig().with([Function::new("getHostByName", &[Type::String], no_host)])
}

/// Helm's way with parse errors (place, and what follows the last colon) and with `fail`.
fn helm_error(error: String) -> String {
    if let Some((place, message)) =
        error.strip_prefix("PARSE: template: ").and_then(|error| error.split_once(": "))
    {
        let last = message.rsplit(": ").next().unwrap_or(message);
        return format!("parse error at ({place}): {last}");
    }
    let error = error.strip_prefix("EXEC: ").unwrap_or(&error);
    match (error.split_once(": executing "), error.split_once("error calling fail: ")) {
        (Some((place, _)), Some((_, message))) => {
            format!("execution error at ({}): {message}", place.trim_start_matches("template: "))
        }
        _ => error.to_owned(),
    }
}

fn helm_data(values: &Json) -> Value {
    let text = |text: &str| Value::from(text);
    let chart = Value::map([("Name", text("c")), ("Version", text("1.2.3")), ("AppVersion", text(""))]);
    let release = Value::map([
        ("Name", text("rel")),
        ("Namespace", text("ns")),
        ("Revision", Value::Int(1)),
        ("IsInstall", Value::Bool(true)),
        ("IsUpgrade", Value::Bool(false)),
        ("Service", text("Helm")),
    ]);
    static VALUES: Named = Named { name: "common.Values", underlying: Type::MAP, methods: None };
    let values = Value::from_json(values, Numbers::Float);
    let values = Map::typed(Type::Named(&VALUES), values.as_map().expect("values are a map").take());
    let template = Value::map([("Name", text(NAME)), ("BasePath", text("c/templates"))]);
    Value::map([
        ("Values", Value::Map(values)),
        ("Chart", chart),
        ("Release", release),
        ("Template", template),
    ])
}
