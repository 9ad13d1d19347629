//! Inputs made to harm: each ends in an error of a known kind, soon.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use yaml::{Aliases, ErrorKind, Limits, Options, Schema};

/// Well within the second that is allowed once the code is optimised.
const SOON: Duration = Duration::from_secs(3);

/// The time this thread has been running, which a busy machine does not change.
fn cpu_time() -> Duration {
    let spent =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts the time of a thread");
    let nanoseconds = spent.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first field is a number"))
}

fn error_of(bytes: &[u8], options: &Options) -> yaml::Error {
    let start = cpu_time();
    let error = yaml::parse_stream(bytes, options).expect_err("the input is refused");
    assert!((cpu_time() - start) < SOON, "took {:?}", (cpu_time() - start));
    error
}

fn both() -> [Options; 2] {
    [Options::new(Schema::V2), Options::new(Schema::V3).with_comments()]
}

#[test]
fn a_megabyte_of_brackets_is_too_deep() {
    for options in both() {
        for bracket in ["[", "{", "[{", "- ", "? "] {
            let text = bracket.repeat((1 << 20) / bracket.len());
            assert_eq!(error_of(text.as_bytes(), &options).kind, ErrorKind::Limit, "{bracket}");
        }
    }
}

#[test]
fn deep_indentation_is_too_deep() {
    let text: String = (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    for options in both() {
        let error = error_of(text.as_bytes(), &options);
        assert_eq!(error.kind, ErrorKind::Limit);
        assert_eq!(error.message(), "exceeded max depth of 256");
    }
}

#[test]
fn what_is_as_deep_as_allowed_is_read_written_and_dropped() {
    let depth = Limits::default().depth;
    let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let documents = yaml::parse_stream(text.as_bytes(), &Options::new(Schema::V3)).unwrap();
    assert!(yaml::kustomize_yaml(&documents[0].root).unwrap().len() > depth);
    assert!(yaml::format_node(&documents[0].root).unwrap().len() > depth);
    assert!(yaml::to_json(text.as_bytes()).is_ok());
}

fn bomb() -> String {
    let mut text = String::from("a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for (name, before) in ('b'..='z').zip('a'..) {
        let alias = format!("*{before}, ").repeat(9);
        text.push_str(&format!("{name}: &{name} [{}]\n", alias.trim_end_matches(", ")));
    }
    text
}

#[test]
fn an_alias_bomb_does_not_go_off() {
    let expand = Options { aliases: Aliases::Expand, ..Options::new(Schema::V3) };
    assert_eq!(error_of(bomb().as_bytes(), &expand).kind, ErrorKind::Limit);
    let start = cpu_time();
    let error = yaml::to_json(bomb().as_bytes()).expect_err("the bomb is refused");
    assert_eq!(error.to_string(), "yaml: document contains excessive aliasing");
    let kept = yaml::parse_one(bomb().as_bytes(), &Options::new(Schema::V3)).unwrap().unwrap();
    assert!(yaml::kustomize_yaml(&kept.root).is_err());
    assert!((cpu_time() - start) < SOON, "took {:?}", (cpu_time() - start));
}

/// Each value holds the one before: not many nodes, but as deep as there are anchors.
#[test]
fn a_chain_of_aliases_is_too_deep() {
    for (open, close) in [("[", "]"), ("{k: ", "}"), ("{<<: ", "}")] {
        let mut text = String::from("a0: &a0 {k: 1}\n");
        for number in 1..20_000 {
            text.push_str(&format!("a{number}: &a{number} {open}*a{}{close}\n", number - 1));
        }
        let expand = Options { aliases: Aliases::Expand, ..Options::new(Schema::V3) };
        assert_eq!(error_of(text.as_bytes(), &expand).kind, ErrorKind::Limit, "{open}");
        let error = yaml::to_json(text.as_bytes()).expect_err("the chain is refused");
        assert_eq!(error.kind, ErrorKind::Limit, "{open}");
    }
}

#[test]
fn dashes_at_the_column_of_their_key_are_levels() {
    let text: String = (0..200).map(|depth| format!("{0}a:\n{0}- b:\n", "  ".repeat(depth))).collect();
    for options in both() {
        assert_eq!(error_of(text.as_bytes(), &options).kind, ErrorKind::Limit);
    }
}

#[test]
fn merge_keys_do_not_multiply_for_ever() {
    let mut text = String::from("a: &a {k: 1}\n");
    for (name, before) in ('b'..='z').zip('a'..) {
        text.push_str(&format!("{name}: &{name} {{<<: [*{before}, *{before}, *{before}, *{before}]}}\n"));
    }
    let start = cpu_time();
    assert!(yaml::to_json(text.as_bytes()).is_err());
    assert!((cpu_time() - start) < SOON, "took {:?}", (cpu_time() - start));
}

#[test]
fn bytes_that_are_no_text_are_named() {
    for options in both() {
        let kind = |bytes: &[u8]| error_of(bytes, &options).kind;
        assert_eq!(kind(b"a: \xff\xfe"), ErrorKind::Encoding);
        assert_eq!(kind(b"a: \0b"), ErrorKind::Encoding);
        assert_eq!(kind(&[b"a: ".as_slice(), &[0x80; 4096]].concat()), ErrorKind::Encoding);
        assert_eq!(kind(b"\xff\xfea"), ErrorKind::Encoding);
    }
}

#[test]
fn many_equal_keys_are_refused_quickly() {
    let text = "a: 1\n".repeat(100_000);
    let start = cpu_time();
    assert_eq!(yaml::to_json_strict(text.as_bytes()).unwrap_err().kind, ErrorKind::DuplicateKey);
    let root = yaml::parse_one(text.as_bytes(), &Options::new(Schema::V3)).unwrap().unwrap().root;
    assert_eq!(yaml::node_to_json(&root, Schema::V3).unwrap_err().kind, ErrorKind::DuplicateKey);
    assert!((cpu_time() - start) < SOON, "took {:?}", (cpu_time() - start));
}

#[test]
fn long_runs_of_one_character_take_linear_time() {
    for options in both() {
        for piece in [
            "a ", "\"", "'", "&a ", "*a ", "!t ", "#\n", "\n", "|", ">\n", "%", "a: ", ",", "?\n", ":\n",
            "-\n", "\\", "a,", "[],", "{},", "a:\n ", "\r", "\u{85}", "é",
        ] {
            let text = piece.repeat(200_000 / piece.len());
            let start = cpu_time();
            let _ = yaml::parse_stream(text.as_bytes(), &options);
            assert!((cpu_time() - start) < SOON, "{piece:?} took {:?}", (cpu_time() - start));
        }
    }
}

#[test]
fn limits_are_those_of_the_caller() {
    let options = |limits| Options { limits, ..Options::new(Schema::V3) };
    let few = Limits { nodes: 10, ..Limits::default() };
    assert_eq!(error_of(b"[1,2,3,4,5,6,7,8,9,10,11]", &options(few)).kind, ErrorKind::Limit);
    let short = Limits { bytes: 4, ..Limits::default() };
    assert_eq!(error_of(b"a: 12", &options(short)).kind, ErrorKind::Limit);
    let flat = Limits { depth: 1, ..Limits::default() };
    assert_eq!(error_of(b"a: [[1]]", &options(flat)).kind, ErrorKind::Limit);
}
