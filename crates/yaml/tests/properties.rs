//! What holds for every text and every value.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use yaml::{Options, Schema};

/// Strings rich in what YAML treats specially. Without `<<`, which Go writes plain and then reads as a merge key.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z0-9]{1,6}",
        3 => prop::sample::select(vec![
            " ", "  ", "\n", "\n\n", "\t", ":", ": ", "#", " #", "-", "- ", "\"", "'", "\\", ",", "[", "]", "{",
            "}", "?", "!", "&", "*", "|", ">", "%", "@", "`", "~", "=",  "\r", "yes", "null", "1e3", "0x1F",
            "2001-01-01", ".5", "é", "日本", "😀", "\u{85}", "\u{2028}", "\u{a0}", "\u{7}", "---", "...",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{30,60}",
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| json!(number)),
        (-1e9f64..1e9).prop_map(|number| json!(number)),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((text(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Something near YAML: indentation, indicators and the texts above.
fn document() -> impl Strategy<Value = String> {
    let line = (
        0usize..6,
        prop::sample::select(vec![
            "", "- ", "a: ", "b:", "? ", ": ", "# ", "&x ", "*x", "!!int ", "|", ">-", "[", "]", "{", "}",
            "'", "\"",
        ]),
        text(),
    )
        .prop_map(|(indent, start, text)| format!("{}{start}{text}\n", " ".repeat(indent)));
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end_in_a_result(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        exercise(&bytes);
    }

    #[test]
    fn anything_near_yaml_ends_in_a_result(text in document()) {
        exercise(text.as_bytes());
    }

    #[test]
    fn a_value_written_as_yaml_is_the_same_value(value in json_value()) {
        // Refused are control characters, which Go's detour through JSON does not let pass.
        if let Ok(written) = yaml::to_yaml_sigs(&value)
            && !written.contains('\u{85}') && !value.to_string().contains('\u{85}')
        {
            let read = yaml::to_json(written.as_bytes()).unwrap();
            prop_assert_eq!(yaml::json_text(&read), yaml::json_text(&value), "{}", written);
        }
    }

    #[test]
    fn what_kustomize_prints_it_prints_again(value in json_value()) {
        let node = yaml::Node::from_json(&json!({"object": value}));
        if let Ok(first) = yaml::kustomize_yaml(&node) {
            let read = yaml::parse_one(first.as_bytes(), &Options::new(Schema::V3)).unwrap().unwrap();
            prop_assert_eq!(yaml::kustomize_yaml(&read.root).unwrap(), first);
        }
    }

    #[test]
    fn formatting_keeps_the_meaning(value in json_value()) {
        let node = yaml::Node::from_json(&json!({"object": value}));
        let text = yaml::format_node(&node).unwrap();
        // go-yaml v3 cannot read back block text that starts with a blank or a break; neither can we.
        if let Ok(Some(read)) = yaml::parse_one(text.as_bytes(), &Options::new(Schema::V3)) {
            let again = yaml::format_node(&read.root).unwrap();
            let read_again = yaml::parse_one(again.as_bytes(), &Options::new(Schema::V3)).unwrap().unwrap();
            prop_assert!(read.root.same_value(&read_again.root), "{}\n---\n{}", text, again);
        }
    }

    #[test]
    fn replacing_a_scalar_changes_only_it(new in "[ -~]{0,20}", style in 0usize..3) {
        let old = ["old", "'old'", "\"old\""][style];
        let source = format!("# head\r\na:   {old}   # keep\r\nb: [x,  y]");
        let root = yaml::parse_one(source.as_bytes(), &Options::new(Schema::V3)).unwrap().unwrap().root;
        let changed = yaml::replace_scalar(source.as_bytes(), root.get("a").unwrap(), &new).unwrap();
        let changed = String::from_utf8(changed).unwrap();
        prop_assert!(changed.starts_with("# head\r\na:   ") && changed.ends_with("   # keep\r\nb: [x,  y]"));
        let read = yaml::parse_one(changed.as_bytes(), &Options::new(Schema::V3)).unwrap().unwrap();
        prop_assert_eq!(read.root.get("a").unwrap().as_str(), Some(new.as_str()), "{}", changed);
    }
}

/// Every way into the crate, for its side effect of not panicking.
fn exercise(bytes: &[u8]) {
    for options in [
        Options::new(Schema::V2),
        Options::new(Schema::V3).with_comments(),
        Options::new(Schema::V3).with_expanded_aliases(),
    ] {
        for document in yaml::parse_stream(bytes, &options).unwrap_or_default() {
            let _ = yaml::kustomize_yaml(&document.root);
            let _ = yaml::format_document(&document);
            let _ = yaml::node_to_json(&document.root, options.schema);
        }
    }
    if let Ok(value) = yaml::to_json(bytes) {
        let _ = yaml::to_yaml_sigs(&value);
    }
    let _ = yaml::to_json_strict(bytes);
    let _ = yaml::go_syntax(bytes, Schema::V3);
}
