//! What this crate says to the questions `baseline/main.go` asks the Go libraries, in the same form.

use yaml::{Comments, Document, Flow, Node, Options, ScalarStyle, Schema, Value};

/// The questions, in the order of the answers.
#[allow(dead_code, reason = "not every user of this module asks all of them")]
pub const QUESTIONS: [&str; 9] =
    ["v2", "v3", "toJson", "toJsonStrict", "toYaml", "format", "indented", "kustomize", "nodes"];

pub fn answer(question: &str, text: &[u8]) -> String {
    ask(question, text).unwrap_or_else(|error| format!("error: {error}"))
}

fn ask(question: &str, text: &[u8]) -> Result<String, Box<dyn std::error::Error>> {
    Ok(match question {
        "v2" => yaml::go_syntax(text, Schema::V2)?,
        "v3" => yaml::go_syntax(text, Schema::V3)?,
        "toJson" => yaml::json_text(&yaml::to_json(text)?),
        "toJsonStrict" => yaml::json_text(&yaml::to_json_strict(text)?),
        "toYaml" => yaml::to_yaml_sigs(&yaml::to_json(text)?)?,
        "format" => yaml::format_document(&document(text)?)?,
        "indented" => yaml::format_document_with(&document(text)?, yaml::Layout::GO_YAML)?,
        "kustomize" => yaml::kustomize_yaml(&document(text)?.root)?,
        "nodes" => match yaml::parse_one(text, &Options::new(Schema::V3).with_comments())? {
            Some(document) => dump_document(&document),
            None => " !!null style=0 at=0:0\n".to_owned(),
        },
        _ => return Err(format!("unknown question {question}").into()),
    })
}

fn document(text: &[u8]) -> Result<Document, Box<dyn std::error::Error>> {
    let options = Options::new(Schema::V3).with_comments();
    yaml::parse_one(text, &options)?.ok_or_else(|| "EOF".into())
}

fn dump_document(document: &Document) -> String {
    let mut out = String::from("document style=0");
    dump_comments(&mut out, &document.comments);
    out.push('\n');
    dump(&mut out, &document.root, 1);
    out
}

fn dump(out: &mut String, node: &Node, depth: usize) {
    out.push_str(&" ".repeat(depth));
    let tagged = if node.tag_shown { 1 } else { 0 };
    let style = match &node.value {
        Value::Scalar(scalar) => {
            out.push_str(&format!("scalar {} {}", node.short_tag(), quote(&scalar.text)));
            match scalar.style {
                ScalarStyle::Plain => 0,
                ScalarStyle::DoubleQuoted => 2,
                ScalarStyle::SingleQuoted => 4,
                ScalarStyle::Literal => 8,
                ScalarStyle::Folded => 16,
            }
        }
        Value::Alias(name) => {
            out.push_str(&format!("alias {}", quote(name)));
            0
        }
        Value::Mapping(mapping) => {
            out.push_str(&format!("mapping {}", node.short_tag()));
            if mapping.flow == Flow::Flow { 32 } else { 0 }
        }
        Value::Sequence(sequence) => {
            out.push_str(&format!("sequence {}", node.short_tag()));
            if sequence.flow == Flow::Flow { 32 } else { 0 }
        }
    };
    let position = node.position();
    out.push_str(&format!(" style={} at={}:{}", style + tagged, position.line, position.column));
    if let Some(anchor) = node.anchor() {
        out.push_str(&format!(" anchor={anchor}"));
    }
    if let Some(comments) = node.comments() {
        dump_comments(out, comments);
    }
    out.push('\n');
    for (key, value) in node.entries() {
        dump(out, key, depth + 1);
        dump(out, value, depth + 1);
    }
    for item in node.items() {
        dump(out, item, depth + 1);
    }
}

fn dump_comments(out: &mut String, comments: &Comments) {
    for (name, text) in [("head", &comments.head), ("line", &comments.line), ("foot", &comments.foot)] {
        if !text.is_empty() {
            out.push_str(&format!(" {name}={}", quote(text)));
        }
    }
}

fn quote(text: &str) -> String {
    yaml::json_text(&serde_json::Value::String(text.to_owned()))
}
