//! Transcripts: requests, and the answers a real kube-apiserver gave.
//!
//! A case file holds blocks that begin with `### title`. Then come the request line, headers, an empty line and the body;
//! after `--- CODE` the recorded answer. In requests `{uid}` and `{rv}` stand for those of the last object answered;
//! a block `@wait METHOD PATH CODE` repeats a request until it is answered so.

use serde_json::{Map, Value, json};

#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    pub title: String,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub answer: Option<Answer>,
    /// Set for `@wait`: the code to wait for.
    pub wait: Option<u16>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    /// Masked.
    pub body: Value,
}

pub fn parse(text: &str) -> Vec<Exchange> {
    let mut blocks: Vec<(String, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("### "), blocks.last_mut()) {
            (Some(title), _) => blocks.push((title.to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    blocks.into_iter().map(|(title, lines)| exchange(title, &lines)).collect()
}

fn exchange(title: String, lines: &[&str]) -> Exchange {
    let split = lines.iter().position(|line| line.starts_with("--- "));
    let (request, answer) = lines.split_at(split.unwrap_or(lines.len()));
    let first = request.first().copied().unwrap_or_default();
    let mut words = first.split(' ');
    let mut wait = None;
    let mut method = words.next().unwrap_or_default().to_owned();
    if method == "@wait" {
        method = words.next().unwrap_or_default().to_owned();
        wait = first.rsplit(' ').next().and_then(|code| code.parse().ok());
    }
    let path = words.next().unwrap_or_default().to_owned();
    let blank = request.iter().position(|line| line.is_empty()).unwrap_or(request.len());
    let headers = request[1.min(request.len())..blank].iter().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let body = request.get(blank + 1..).unwrap_or_default().join("\n").trim().to_owned();
    Exchange { title, method, path, headers, body, answer: self::answer(answer), wait }
}

fn answer(lines: &[&str]) -> Option<Answer> {
    let code = lines.first()?.strip_prefix("--- ")?.trim().parse().ok()?;
    let blank = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
    let warnings =
        lines[1..blank].iter().filter_map(|line| line.strip_prefix("warning: ")).map(str::to_owned).collect();
    let text = lines.get(blank + 1..).unwrap_or_default().join("\n");
    let body = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.trim().to_owned()));
    Some(Answer { code, warnings, body })
}

#[allow(dead_code, reason = "the recorder writes, the test only reads")]
pub fn write(exchanges: &[Exchange]) -> String {
    let mut out = String::new();
    for exchange in exchanges {
        out += &format!("### {}\n", exchange.title);
        match exchange.wait {
            Some(code) => out += &format!("@wait {} {} {code}\n", exchange.method, exchange.path),
            None => out += &format!("{} {}\n", exchange.method, exchange.path),
        }
        for (key, value) in &exchange.headers {
            out += &format!("{key}: {value}\n");
        }
        if !exchange.body.is_empty() {
            out += &format!("\n{}\n", exchange.body);
        }
        if let Some(answer) = &exchange.answer {
            out += &format!("--- {}\n", answer.code);
            for warning in &answer.warnings {
                out += &format!("warning: {warning}\n");
            }
            let body = match &answer.body {
                Value::String(text) => text.clone(),
                other => serde_json::to_string_pretty(other).unwrap_or_default(),
            };
            out += &format!("\n{body}\n");
        }
        out.push('\n');
    }
    out
}

/// What the requests of one file remember of earlier answers.
#[derive(Debug, Default)]
pub struct Memory {
    uid: String,
    revision: String,
}

impl Memory {
    pub fn fill(&self, text: &str) -> String {
        text.replace("{uid}", &self.uid).replace("{rv}", &self.revision)
    }

    pub fn remember(&mut self, body: &Value) {
        let take = |key: &str, slot: &mut String| {
            if let Some(text) = body["metadata"][key].as_str() {
                *slot = text.to_owned();
            }
        };
        take("uid", &mut self.uid);
        take("resourceVersion", &mut self.revision);
    }
}

/// The body of an answer as it is compared: a watch becomes a list of its events.
pub fn read_body(watch: bool, bytes: &[u8]) -> Value {
    let text = String::from_utf8_lossy(bytes);
    if watch {
        return text.lines().map(|line| serde_json::from_str(line).unwrap_or(json!(line))).collect();
    }
    serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.trim().to_owned()))
}

/// Hides what differs from run to run.
pub fn mask(value: &Value) -> Value {
    match value {
        Value::Object(fields) => mask_object(fields),
        Value::Array(items) => items.iter().map(mask).collect(),
        Value::String(text) => mask_text(text).into(),
        other => other.clone(),
    }
}

fn mask_object(fields: &Map<String, Value>) -> Value {
    let mut masked = Map::new();
    for (key, value) in fields {
        let hidden = match (key.as_str(), value) {
            ("uid" | "resourceVersion" | "continue" | "token", Value::String(text)) if !text.is_empty() => {
                Some(json!(format!("<{key}>")))
            }
            ("nodePort", Value::Number(_)) => Some(json!("<nodePort>")),
            // Their order depends on the second each was written in.
            ("managedFields", Value::Array(entries)) => {
                let mut entries: Vec<Value> = entries.iter().map(mask).collect();
                entries.sort_by_key(|entry| {
                    ["manager", "operation", "subresource"].map(|key| entry[key].to_string())
                });
                Some(entries.into())
            }
            // Conflicts are listed in the order of Go's maps.
            ("causes", Value::Array(causes)) => {
                let mut causes: Vec<Value> = causes.iter().map(mask).collect();
                causes.sort_by_key(Value::to_string);
                Some(causes.into())
            }
            // Prose that belongs to others.
            ("columnDefinitions", Value::Array(columns)) => {
                Some(columns.iter().map(without_description).collect())
            }
            ("cells", Value::Array(cells)) => Some(cells.iter().map(mask_cell).collect()),
            ("name", Value::String(name)) => fields.get("generateName").and_then(Value::as_str).map(|base| {
                json!(if name.starts_with(base) { format!("{base}<random>") } else { name.clone() })
            }),
            _ => None,
        };
        masked.insert(mask_text(key), hidden.unwrap_or_else(|| mask(value)));
    }
    Value::Object(masked)
}

fn without_description(column: &Value) -> Value {
    let mut column = column.clone();
    if let Some(fields) = column.as_object_mut() {
        fields.remove("description");
    }
    column
}

fn mask_cell(cell: &Value) -> Value {
    match cell.as_str() {
        Some(text) if text.ends_with('s') && text[..text.len() - 1].parse::<u32>().is_ok() => json!("<age>"),
        _ => mask(cell),
    }
}

fn mask_text(text: &str) -> String {
    use std::sync::LazyLock;
    static RULES: LazyLock<Vec<(regex::Regex, &str)>> = LazyLock::new(|| {
        [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
            (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z", "<time>"),
            (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
            // The whole object, in the order Go happened to write it.
            (r#"Invalid value: "\{.*\}": strict"#, "Invalid value: <object>: strict"),
            (r"kube-api-access-\w{5}", "kube-api-access-<random>"),
            (r"current: \d+", "current: <rv>"),
            (r"in record \(\d+\)", "in record (<rv>)"),
            (r"too old resource version: \d+ \(\d+\)", "too old resource version: <rv> (<rv>)"),
        ]
        .into_iter()
        .map(|(pattern, shown)| (regex::Regex::new(pattern).expect("a constant pattern"), shown))
        .collect()
    });
    RULES
        .iter()
        .fold(text.to_owned(), |text, (pattern, shown)| pattern.replace_all(&text, *shown).into_owned())
}

/// What differs between the recorded answer and `got`, for a reader.
#[allow(dead_code, reason = "the tests compare, the recorder only writes")]
pub fn difference(case: &str, exchange: &Exchange, got: &Option<Answer>) -> String {
    let lines = |answer: &Option<Answer>| -> Vec<String> {
        let Some(answer) = answer else { return Vec::new() };
        let mut lines = vec![format!("code {}", answer.code)];
        lines.extend(answer.warnings.iter().cloned());
        lines.extend(
            serde_json::to_string_pretty(&answer.body).unwrap_or_default().lines().map(str::to_owned),
        );
        lines
    };
    let (wanted, got) = (lines(&exchange.answer), lines(got));
    let (wanted, got) = (wanted.join("\n"), got.join("\n"));
    let mut shown = format!("{case}\n  {} {}\n", exchange.method, exchange.path);
    for line in wanted.lines().filter(|line| !got.lines().any(|other| other == *line)).take(12) {
        shown += &format!("  - {line}\n");
    }
    for line in got.lines().filter(|line| !wanted.lines().any(|other| other == *line)).take(12) {
        shown += &format!("  + {line}\n");
    }
    shown
}
