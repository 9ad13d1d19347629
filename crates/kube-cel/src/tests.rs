//! The shared corpus: answers of Kubernetes' own CEL.

#![allow(clippy::disallowed_methods, reason = "a test reads its cases")]

use super::*;
use serde_json::Value as Json;

fn environment() -> Environment {
    Environment::new().with("metadata", Type::Dyn).with("spec", Type::Dyn).with("status", Type::Dyn)
}

/// The answer as the corpus writes it.
fn answer(text: &str, object: &Json) -> String {
    let program = match Program::compile(text, &environment()) {
        Ok(program) => program,
        Err(error) => return format!("CERR {}", error.to_string().lines().next().unwrap_or("")),
    };
    let bindings = Bindings::new().with_fields_of(object.as_object().unwrap());
    match program.eval(&bindings) {
        Ok(value) => value.to_json().map_or_else(|| format!("{value:?}"), |json| json.to_string()),
        Err(error) => format!("EERR {error}"),
    }
}

#[test]
fn the_corpus_agrees() {
    let shared = std::env::var("FLUX_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let Ok(text) = std::fs::read_to_string(format!("{shared}/corpus/cel/expressions.json")) else {
        println!("skipped: no corpus");
        return;
    };
    let corpus: Json = serde_json::from_str(&text).unwrap();
    let results = corpus["results"].as_object().unwrap();
    let mut wrong = Vec::new();
    for (text, expected) in results {
        let is = answer(text, &corpus["object"]);
        if is != expected.as_str().unwrap() {
            wrong.push(format!("{text}\n  want {expected}\n  got  {is}"));
        }
    }
    println!("{} of {} expressions agree", results.len() - wrong.len(), results.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Our own expressions with the answers of Kubernetes' environment (cel-go as k8s.io/apiserver 0.36 configures it). Left out are
/// those where only ANTLR's wording of a syntax error or Go's way to print a value differs.
#[test]
fn recorded_answers_agree() {
    let text = include_str!("../tests/cases/expressions.json");
    let cases: Json = serde_json::from_str(text).unwrap();
    let object = &cases["variables"];
    let environment = environment()
        .with("i", Type::Int)
        .with("s", Type::String)
        .with("l", Type::list(Type::Int))
        .with("m", Type::map(Type::String, Type::String));
    let mut wrong = Vec::new();
    let answers = cases["answers"].as_object().unwrap();
    for (text, expected) in answers {
        let is = match Program::compile(text, &environment) {
            Ok(program) => match program.eval(&Bindings::new().with_fields_of(object.as_object().unwrap())) {
                Ok(value) => value.to_json().map_or_else(|| format!("{value:?}"), |json| json.to_string()),
                Err(error) => format!("EERR {error}"),
            },
            Err(error) => format!("CERR {error}"),
        };
        if is != expected.as_str().unwrap() {
            wrong.push(format!("{text}\n  want {expected}\n  got  {is:?}"));
        }
    }
    println!("{} of {} expressions agree", answers.len() - wrong.len(), answers.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_run_ends_when_its_budget_or_its_time_does() {
    let environment = Environment::new();
    let long = "lists.range(1000).map(x, lists.range(1000).map(y, x * y)).size()";
    let program = Program::compile(long, &environment).unwrap();
    assert_eq!(program.eval(&Bindings::new()).unwrap_err(), EvalError::CostLimit);
    let text = "lists.range(20).map(x, ['aaaaaaaaaa'].map(y, y + y + y + y).join(''))";
    let (answer, spent) = Program::compile(text, &environment).unwrap().eval_within(&Bindings::new(), 10_000);
    assert!(answer.is_ok() && spent > 100, "{spent}");
    let cancelled = || true;
    let bindings = Bindings::new().cancelled_by(&cancelled);
    assert_eq!(program.eval(&bindings).unwrap_err(), EvalError::Cancelled);
}

#[test]
fn the_result_has_the_type_asked_for() {
    let environment = Environment::new().with("x", Type::Dyn).returning(Type::Bool);
    let error = Program::compile("1 + 1", &environment).unwrap_err();
    assert_eq!(error.to_string(), "must evaluate to bool, not int");
    let program = Program::compile("x", &environment).unwrap();
    let value = serde_json::json!("text");
    let error = program.eval(&Bindings::new().with_json("x", &value)).unwrap_err();
    assert_eq!(error.to_string(), "expression must evaluate to bool, not string");
}

#[test]
fn extended_libraries_add_to_kubernetes() {
    let extended = Environment::new()
        .with("self", Type::map(Type::String, Type::Dyn))
        .with_libraries(Libraries::Extended);
    let object = serde_json::json!({"data": {"k": "aGk="}});
    for (text, expected) in [
        ("string(base64.decode(self.data.k))", "hi"),
        ("base64.encode(b'hi')", "aGk="),
        ("'abc'.reverse()", "cba"),
        ("'%e'.format([100.0])", "1.000000e+02"),
    ] {
        let program = Program::compile(text, &extended).unwrap();
        let value = program.eval(&Bindings::new().with_json("self", &object)).unwrap();
        assert_eq!(value.as_str(), Some(expected), "{text}");
    }
    let program = Program::compile("self.ready", &extended).unwrap();
    assert_eq!(program.result_type(), &Type::Dyn);
}

#[test]
fn an_unchecked_expression_fails_when_it_runs() {
    let program = Program::unchecked("status.phase == 'Done'", Libraries::Extended).unwrap();
    let object = serde_json::json!({"status": {"phase": "Done"}});
    let bindings = Bindings::new().with_fields_of(object.as_object().unwrap());
    assert_eq!(program.eval(&bindings).unwrap().as_bool(), Some(true));
    let error = program.eval(&Bindings::new()).unwrap_err();
    assert_eq!(error.to_string(), "no such attribute(s): status");
    assert!(Program::unchecked("status.phase ==", Libraries::Extended).is_err());
}

#[test]
fn declared_objects_know_their_fields() {
    let fields = [("replicas".to_owned(), Type::Int)].into_iter().collect();
    let object = Type::Object(std::sync::Arc::new(ObjectType { name: "object".to_owned(), fields }));
    let environment = Environment::new().with("self", object).returning(Type::Bool);
    assert!(Program::compile("self.replicas > 1", &environment).is_ok());
    let error = Program::compile("self.replica > 1", &environment).unwrap_err().to_string();
    assert!(error.starts_with("ERROR: <input>:1:5: undefined field 'replica'"), "{error}");
}

mod any_input {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(3),
            failure_persistence: None,
            ..ProptestConfig::with_cases(2000)
        })]

        #[test]
        fn nothing_panics(parts in prop::collection::vec(prop::sample::select(vec![
            "self", "x", ".", "?", "[", "]", "(", ")", "{", "}", ":", ",", "+", "-", "*", "/", "%", "!", "&&", "||", "==", "<", " in ",
            "1", "2u", "1.5", "-9223372036854775808", "'a'", "b'a'", "r'\\'", "'\\x41'", "\"é\"", "null", "true", "has", "size", "map", "all",
            "filter", "format", "substring", "indexOf", "split", "quantity", "duration", "timestamp", "matches", "0", "99", "x,", "[?", ".?", "`",
        ]), 0..14)) {
            let text: String = parts.concat();
            let environment = Environment::new().with("self", Type::Dyn).with("x", Type::Int);
            let object = serde_json::json!({"self": {"a": [1, "é", null]}, "x": 5});
            if let Ok(program) = Program::compile(&text, &environment) {
                let _ = program.eval(&Bindings::new().with_fields_of(object.as_object().unwrap()));
            }
        }

        #[test]
        fn text_functions_take_any_place(text in ".{0,6}", part in ".{0,2}", from in -2i64..9, to in -2i64..9) {
            let environment = Environment::new().with("t", Type::String).with("p", Type::String).with("f", Type::Int).with("e", Type::Int);
            let object = serde_json::json!({"t": text, "p": part, "f": from, "e": to});
            for call in ["t.substring(f, e)", "t.indexOf(p, f)", "t.lastIndexOf(p, f)", "t.charAt(f)", "t.split(p, f)", "t.replace(p, t, e)",
                "t.format([p])", "t.matches(p)", "quantity(t)", "duration(t)", "timestamp(t)", "url(t)", "semver(t, true)", "cidr(t)"] {
                let program = Program::compile(call, &environment).unwrap();
                let _ = program.eval(&Bindings::new().with_fields_of(object.as_object().unwrap()));
            }
        }
    }

    #[test]
    fn deep_and_long_expressions_are_refused() {
        let environment = Environment::new();
        for text in [
            "(".repeat(10_000),
            "[".repeat(10_000),
            "-(".repeat(5_000),
            "1+".repeat(5_000) + "1",
            "x".repeat(200_000),
            "true?".repeat(3_000),
            "a".to_owned() + &".b".repeat(5_000),
            "!".repeat(50_000),
        ] {
            assert!(Program::compile(&text, &environment).is_err());
        }
        let many = vec!["true"; 2_000].join(" && ");
        assert!(Program::compile(&many, &environment).is_ok());
    }
}

#[test]
fn structures_of_mutating_policies_are_maps() {
    let text = "Object{metadata: Object.metadata{labels: {'a': object.kind}, ?annotations: optional.none()}}";
    let program = Program::unchecked(text, Libraries::Mutation).unwrap();
    let object = serde_json::json!({"kind": "Pod"});
    let made = program.eval(&Bindings::new().with_json("object", &object)).unwrap().to_json();
    assert_eq!(made, Some(serde_json::json!({"metadata": {"labels": {"a": "Pod"}}})));
    let text = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~'), value: 'x'}]";
    let made =
        Program::unchecked(text, Libraries::Mutation).unwrap().eval(&Bindings::new()).unwrap().to_json();
    let operation = serde_json::json!({"op": "add", "path": "/metadata/labels/a~1b~0", "value": "x"});
    assert_eq!(made, Some(serde_json::json!([operation])));
    assert!(
        Program::unchecked("Object{a: 1}", Libraries::Kubernetes).is_err(),
        "only where they are offered"
    );
    assert!(Program::unchecked("Other{a: 1}", Libraries::Mutation).is_err());
}
