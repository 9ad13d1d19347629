//! Templates that want too much end in a typed error, soon and without filling memory.

#![allow(clippy::disallowed_methods)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use gotemplate::{Error, Functions, Limit, Limits, Numbers, Session, Set, Value};
use support::TestHost;

/// A debug build on a busy machine is many times slower than what is shipped.
const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 2 });

/// What this thread has computed so far: other work of the machine does not count.
fn spent() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("the thread has a clock")
        .into()
}

const MEMORY_KB: u64 = 200 * 1024;

fn render(text: &str) -> Result<usize, Error> {
    let started = spent();
    let mut set = Set::new(Functions::sprig().shared());
    let result = set.parse("t", text).and_then(|template| {
        let host = TestHost::default();
        let session = Session::new(&host, Limits::default());
        let data = Value::from_json(&serde_json::json!({ "L": [1, 2, 3], "S": "s" }), Numbers::Float);
        Arc::new(set).execute_template(&session, &template, &data).map(|output| output.len())
    });
    let took = spent() - started;
    assert!(took < PATIENCE, "took {took:?}");
    result
}

fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

fn limit(text: &str) -> Limit {
    let error = render(text).expect_err("this template wants too much");
    error.limit().unwrap_or_else(|| panic!("no limit: {error:.300}"))
}

/// One test, so that the peak of memory is each template's own.
#[test]
fn hostile_templates_reach_a_limit() {
    let mut failures = Vec::new();
    for (name, template) in CASES {
        let started = spent();
        let result = std::panic::catch_unwind(|| limit(template));
        match result {
            Ok(limit) => println!("{name}: {limit} ({:?}, {} kB)", spent() - started, peak_kb()),
            Err(_) => failures.push(*name),
        }
        assert!(peak_kb() < MEMORY_KB, "{name} took {} kB", peak_kb());
    }
    assert!(failures.is_empty(), "not stopped: {failures:?}");
}

const CASES: &[(&str, &str)] = &[
    ("template within itself", r#"{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}"#),
    (
        "two templates in turn",
        r#"{{define "a"}}{{template "b" .}}{{end}}{{define "b"}}{{template "a" .}}{{end}}{{template "a" .}}"#,
    ),
    ("range over a number", "{{range 1000000000}}{{end}}"),
    ("range over a huge number", "{{range 9223372036854775807}}{{end}}"),
    ("range over ranges", "{{range 10000}}{{range 10000}}{{end}}{{end}}"),
    ("until", "{{until 1000000000}}"),
    ("untilStep", "{{untilStep 0 9223372036854775807 1}}"),
    ("seq", "{{seq 1 1000000000}}"),
    ("repeat", r#"{{repeat 1000000000 "x"}}"#),
    ("repeat of repeats", r#"{{repeat 100000 (repeat 100000 "x")}}"#),
    ("indent", r#"{{indent 1000000000 "x"}}"#),
    ("indent of many lines", r#"{{indent 100000 (repeat 100000 "\n")}}"#),
    ("replace", r#"{{replace "x" (repeat 100000 "y") (repeat 100000 "x")}}"#),
    ("replace of nothing", r#"{{replace "" (repeat 100000 "y") (repeat 100000 "x")}}"#),
    ("regex replace", r#"{{regexReplaceAll "x" (repeat 100000 "x") (repeat 100000 "y")}}"#),
    ("join", r#"{{join (repeat 100000 "y") (until 100000)}}"#),
    ("wrapWith", r#"{{wrapWith 1 (repeat 100000 "y") (repeat 100000 "x")}}"#),
    ("printf widths", r#"{{range 1000}}{{printf "%1000000d%1000000d%1000000d" 1 2 3}}{{end}}"#),
    ("printf precision", r#"{{range 1000}}{{printf "%.1000000f" 1.5}}{{end}}"#),
    ("random", "{{randAlphaNum 1000000000}}"),
    ("random bytes", "{{randBytes 1000000000}}"),
    ("doubling a string", r#"{{$x := "x"}}{{range 100}}{{$x = printf "%s%s" $x $x}}{{end}}"#),
    ("doubling a list", r#"{{$x := list 1}}{{range 100}}{{$x = concat $x $x}}{{end}}"#),
    ("doubling a map", r#"{{$x := dict}}{{range 100}}{{$x = dict "a" $x "b" $x}}{{end}}{{toJson $x}}"#),
    ("printing a map of maps", r#"{{$x := dict}}{{range 100}}{{$x = dict "a" $x "b" $x}}{{end}}{{$x}}"#),
    ("a map within itself", r#"{{$x := dict}}{{$_ := set $x "x" $x}}{{$x}}"#),
    (
        "a map within itself, merged",
        r#"{{$x := dict}}{{$_ := set $x "x" $x}}{{$y := dict "x" (dict)}}{{$_ := set $y.x "x" $y}}{{merge $x $y}}{{merge $y $x}}{{$y}}"#,
    ),
    ("a map within itself, copied", r#"{{$x := dict}}{{$_ := set $x "x" $x}}{{deepCopy $x}}"#),
    (
        "many strings in a list",
        r#"{{$l := list}}{{range 1000000}}{{$l = append $l (repeat 1000 "x")}}{{end}}"#,
    ),
    (
        "many strings in a map",
        r#"{{$d := dict}}{{range $i := 10000000}}{{$_ := set $d (toString $i) (repeat 200 "x")}}{{end}}"#,
    ),
    (
        "many large strings in a map",
        r#"{{$d := dict}}{{range $i := 10000000}}{{$_ := set $d (toString $i) (repeat 100000 "x")}}{{end}}"#,
    ),
    (
        "many large strings",
        r#"{{$a := repeat 30000000 "a"}}{{$b := repeat 30000000 "b"}}{{$c := repeat 30000000 "c"}}{{$d := repeat 30000000 "d"}}"#,
    ),
    ("output", r#"{{$a := repeat 1000000 "a"}}{{range 1000}}{{$a}}{{end}}"#),
    (
        "output at every level",
        r#"{{define "a"}}{{$.x}}{{template "a" .}}{{end}}{{template "a" (dict "x" (repeat 1000000 "a"))}}"#,
    ),
    ("uniq", "{{uniq (until 1000000)}}"),
    ("bcrypt in a loop", r#"{{range 1000}}{{bcrypt "x"}}{{end}}"#),
    ("keys in a loop", r#"{{range 1000}}{{genPrivateKey "ed25519"}}{{end}}"#),
    ("regex work", r#"{{$x := repeat 10000000 "x"}}{{range 10000}}{{regexMatch "y" $x}}{{end}}"#),
    ("split", r#"{{range 1000}}{{splitList "" (repeat 10000000 "x")}}{{end}}"#),
    ("sortAlpha", r#"{{range 100}}{{sortAlpha (until 1000000)}}{{end}}"#),
    ("nested format", r#"{{$x := list}}{{range 10000}}{{$x = list $x}}{{end}}{{$x}}"#),
];

#[test]
fn parsing_deeply_nested_text_ends() {
    for text in [
        "(".repeat(1_000_000),
        format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(900), ")".repeat(900)),
        "{{if 1}}".repeat(100_000),
        format!("{}{}", "{{if 1}}".repeat(900), "{{end}}".repeat(900)),
        format!("{{{{if 0}}}}{}{{{{end}}}}", "{{else if 0}}".repeat(100_000)),
        format!("{{{{ .{} }}}}", "a.".repeat(100_000) + "a"),
        format!("{{{{ 1 {} }}}}", "| print ".repeat(100_000)),
        r#"{{define "a"}}"#.repeat(100_000),
        r#"{{block "a" .}}"#.repeat(100_000),
        "{{".repeat(1_000_000),
        "{{/*".repeat(1_000_000),
        format!("{{{{ \"{}", "\\".repeat(1_000_000)),
    ] {
        // Whether it is a template is not the point; that there is an answer is.
        let _ = render(&text);
    }
}

#[test]
fn expensive_expressions_are_refused_or_linear() {
    for template in [
        r#"{{regexMatch "(a+)+$" (printf "%s!" (repeat 100000 "a"))}}"#,
        r#"{{regexMatch "(a|a)*b" (repeat 100000 "a")}}"#,
        r#"{{regexMatch "(((a{10}){10}){10}){10}" "a"}}"#,
        r#"{{regexMatch "(x+x+)+y" (repeat 100000 "x")}}"#,
        r#"{{regexMatch "\\pL{1000}" "a"}}"#,
        r#"{{regexMatch "((((\\pL{5}){5}){5}){5})" "a"}}"#,
        r#"{{regexMatch (repeat 100000 "(") "a"}}"#,
        r#"{{regexMatch (repeat 1000000 "a?") "a"}}"#,
        r#"{{regexMatch (printf "%s%s" (repeat 1000 "a?") (repeat 1000 "a")) (repeat 1000 "a")}}"#,
        r#"{{semverCompare (repeat 1000000 ">1 ") "1.2.3"}}"#,
        r#"{{mulf (repeat 100 "9") (repeat 100 "9")}}"#,
        r#"{{divf 1e308 1e-308}}{{addf 1e308 1e-308}}"#,
        r#"{{fromJson (repeat 1000000 "[")}}"#,
        r#"{{mustFromJson (printf "%s%s" (repeat 9000 "[") (repeat 9000 "]")) | toJson | len}}"#,
        r#"{{toDate (repeat 100000 "2006") (repeat 100000 "2006")}}"#,
        r#"{{dateModify "9999999999999h" now}}"#,
        r#"{{urlParse (repeat 1000000 "%41")}}"#,
        r#"{{trimAll (repeat 1000 "abc") (repeat 100000 "a")}}"#,
        r#"{{snakecase (repeat 1000000 "Ab1")}}"#,
        r#"{{b32dec (repeat 1000000 "A")}}{{b64dec (repeat 1000000 "A")}}"#,
        r#"{{round 1.5 2147483647}}{{round 1.5 -2147483648}}"#,
        r#"{{chunk -9223372036854775808 .L}}"#,
        r#"{{substr -9223372036854775808 9223372036854775807 "abc"}}{{trunc -9223372036854775808 "abc"}}"#,
        r#"{{slice .L 9223372036854775807}}{{abbrev 9223372036854775807 "x"}}{{abbrevboth 9223372036854775807 9223372036854775807 "x"}}"#,
        r#"{{div -9223372036854775808 -1}}{{mod -9223372036854775808 -1}}{{mul 9223372036854775807 2}}"#,
        r#"{{printf "%[9223372036854775807]d %1000000000d %.1000000000f %*d" 1}}"#,
        r#"{{wrap 9223372036854775807 "a b"}}{{wrapWith -9223372036854775808 "" "a b"}}"#,
        r#"{{randInt -9223372036854775808 9223372036854775807}}"#,
        r#"{{(now).AddDate 9223372036854775807 9223372036854775807 9223372036854775807}}"#,
        r#"{{(now).AddDate 0 0 -9223372036854775808}}"#,
        r#"{{splitn "" 9223372036854775807 "abc"}}{{regexSplit "" "abc" 9223372036854775807}}"#,
        r#"{{decryptAES "k" "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}"#,
        r#"{{date (repeat 1000000 "Monday") now | len}}"#,
    ] {
        let started = spent();
        let _ = render(template);
        println!("{:?} {template:.80}", spent() - started);
    }
}

#[test]
fn a_session_frees_maps_that_hold_themselves() {
    let held = Value::map([("inner", Value::map([("k", Value::from("v"))]))]);
    let map = held.as_map().expect("a map").clone();
    {
        let mut set = Set::new(Functions::sprig().shared());
        let template = set.parse("t", r#"{{$_ := set . "self" .}}"#).expect("a template");
        let host = TestHost::default();
        let session = Session::new(&host, Limits::default());
        Arc::new(set).execute_template(&session, &template, &held).expect("it renders");
        assert!(map.contains("self"));
    }
    assert!(map.is_empty(), "the cycle was not taken apart");
}
