//! Whatever the text, there is an answer and no panic. Seeds are fixed, so a failure repeats.

#![allow(clippy::disallowed_methods)]

mod support;

use std::sync::Arc;

use gotemplate::{Functions, Limits, Numbers, Session, Set, Value};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use support::TestHost;

/// Parses and executes within a small budget; the result does not matter.
fn run(text: &str) {
    let limits =
        Limits { steps: 20_000, depth: 50, value_bytes: 1 << 20, live_bytes: 8 << 20, small_bytes: 4 << 20 };
    let mut set = Set::new(
        Functions::sprig().without(&["genPrivateKey", "bcrypt", "htpasswd", "derivePassword"]).shared(),
    );
    let Ok(template) = set.parse("t", text) else { return };
    let host = TestHost::default();
    let session = Session::new(&host, limits);
    let data =
        serde_json::json!({ "S": "text é", "I": 3, "F": 1.5, "L": [1, "a", null], "M": { "k": { "x": 1 } } });
    let data = Value::from_json(&data, Numbers::Float);
    let _ = Arc::new(set).execute_template(&session, &template, &data);
}

fn runner(cases: u32, seed: u8) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

#[test]
fn any_text_has_an_answer() {
    runner(2_000, 1)
        .run(&".{0,60}", |text| {
            run(&text);
            run(&format!("{{{{{text}}}}}"));
            Ok(())
        })
        .expect("no text panics");
}

#[test]
fn any_sequence_of_tokens_has_an_answer() {
    const TOKENS: &[&str] = &[
        "{{",
        "}}",
        "{{- ",
        " -}}",
        "if ",
        "else ",
        "end",
        "range ",
        "with ",
        "define \"a\"",
        "template \"a\" .",
        "block \"a\" .",
        "break",
        "continue",
        ".",
        ".S",
        ".L",
        ".M.k",
        "$",
        "$x",
        " := ",
        " = ",
        ", ",
        " | ",
        "(",
        ")",
        "\"s\"",
        "`r`",
        "'c'",
        "1",
        "1.5",
        "-1",
        "nil",
        "true",
        " ",
        "\n",
        "text",
        "{{/* c */}}",
        "{{end}}",
    ];
    let tokens = proptest::collection::vec(proptest::sample::select(TOKENS), 0..25);
    runner(4_000, 2)
        .run(&tokens, |tokens| {
            run(&tokens.concat());
            Ok(())
        })
        .expect("no sequence panics");
}

#[test]
fn any_function_takes_any_arguments() {
    const ARGUMENTS: &[&str] = &[
        ".S",
        ".I",
        ".F",
        ".L",
        ".M",
        ".Nope",
        "nil",
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "1e300",
        "\"\"",
        "\"a,b\"",
        "\"%d%s%v\"",
        "\"[a\"",
        "\"(a)|b\"",
        "\"2006-01-02\"",
        "\"1h\"",
        "\"1.2.3\"",
        "\"a\\x80b\"",
        "true",
        "(list)",
        "(list 1 2 nil)",
        "(dict \"a\" (dict \"b\" 1))",
        "(now)",
        "(semver \"1.2.3\")",
        "(until 3)",
        "(splitList \",\" \"a,b\")",
        "(int64 5)",
        "(float64 2.5)",
        "(index \"abc\" 0)",
        "\"http://a/b?c#d\"",
    ];
    let mut names: Vec<&str> = Functions::sprig().names().collect();
    names.retain(|name| !name.starts_with("gen") && !["bcrypt", "htpasswd", "derivePassword"].contains(name));
    names.extend([
        "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice", "call", "print",
    ]);
    names.extend(["printf", "println", "html", "js", "urlquery"]);
    names.sort_unstable();
    let call = (
        proptest::sample::select(names),
        proptest::collection::vec(proptest::sample::select(ARGUMENTS), 0..5),
    );
    runner(20_000, 3)
        .run(&call, |(name, arguments)| {
            run(&format!("{{{{ {name} {} }}}}", arguments.join(" ")));
            Ok(())
        })
        .expect("no call panics");
}

#[test]
fn any_format_has_an_answer() {
    let format = "%[-+# 0]{0,3}(\\[[0-9]{1,2}\\])?([0-9]{0,3}|\\*)(\\.([0-9]{0,3}|\\*))?[a-zA-Z%]{0,2}";
    runner(5_000, 4)
        .run(&(format, format), |(a, b)| {
            run(&format!("{{{{ printf `{a} {b}` .I .S .L .M nil 5 }}}}"));
            Ok(())
        })
        .expect("no format panics");
}
