//! The functions Helm adds to sprig.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use gotemplate::{
    Context, Duration, Failure, Function, Functions, JsonStyle, List, Map, Numbers, Set, Str, Template, Type,
    Value, encode_json,
};
use serde_json::Value as Json;

use super::errors::{WARN_END, WARN_START};
use super::to_toml;
use crate::Dialect;
use crate::chart::{PREFIX, json_kind};

/// Answers `lookup`. Without a name the answer is a list object.
pub trait Lookup: Send + Sync {
    /// The object, an empty object when there is none, or why the cluster could not be asked.
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Json, String>;
}

/// No cluster: every look-up finds nothing, as with `helm template`.
pub struct NoCluster;

impl Lookup for NoCluster {
    fn lookup(&self, _: &str, _: &str, _: &str, _: &str) -> Result<Json, String> {
        Ok(Json::Object(serde_json::Map::new()))
    }
}

/// Helm's functions with sprig's and Go's, for a set of templates of one's own. They need an extension only for `lookup`.
pub fn functions(dialect: Dialect, enable_dns: bool) -> Arc<Functions> {
    table(dialect, enable_dns)
}

pub(super) fn table(dialect: Dialect, enable_dns: bool) -> Arc<Functions> {
    static TABLES: LazyLock<[Arc<Functions>; 4]> = LazyLock::new(|| {
        [
            build(Dialect::Helm4, false),
            build(Dialect::Helm4, true),
            build(Dialect::Helm3, false),
            build(Dialect::Helm3, true),
        ]
    });
    let at = usize::from(dialect == Dialect::Helm3) * 2 + usize::from(enable_dns);
    TABLES[at].clone()
}

fn build(dialect: Dialect, enable_dns: bool) -> Arc<Functions> {
    let mut functions = Functions::sprig().without(&["env", "expandenv"]).with(BOTH);
    if dialect == Dialect::Helm4 {
        functions = functions.with(HELM_4);
    }
    if !enable_dns {
        functions =
            functions.with([Function::new("getHostByName", &[Type::String], |_, _| Ok(Value::from("")))]);
    }
    functions.shared()
}

const BOTH: [Function; 15] = [
    Function::new("include", &[Type::String, Type::Any], include),
    Function::new("tpl", &[Type::String, Type::Any], tpl),
    Function::new("required", &[Type::String, Type::Any], required),
    Function::new("fail", &[Type::String], fail),
    Function::new("lookup", &[Type::String, Type::String, Type::String, Type::String], lookup),
    Function::new("toYaml", &[Type::Any], to_yaml),
    Function::new("toYamlPretty", &[Type::Any], to_yaml_pretty),
    Function::new("fromYaml", &[Type::String], from_yaml),
    Function::new("fromYamlArray", &[Type::String], from_yaml_array),
    Function::new("toJson", &[Type::Any], to_json),
    Function::new("fromJson", &[Type::String], from_json),
    Function::new("fromJsonArray", &[Type::String], from_json_array),
    Function::new("toToml", &[Type::Any], to_toml_text),
    Function::new("fromToml", &[Type::String], from_toml),
    Function::new("getHostByName", &[Type::String], get_host_by_name),
];

const HELM_4: [Function; 14] = [
    Function::new("mustToYaml", &[Type::Any], must_to_yaml),
    Function::new("mustToJson", &[Type::Any], must_to_json),
    Function::new("mustToToml", &[Type::Any], must_to_toml),
    Function::new("mustToDuration", &[Type::Any], |_, args| {
        as_duration(&args[0]).map(Value::Duration).map_err(Failure::new)
    }),
    Function::new("durationSeconds", &[Type::Any], |_, args| Ok(Value::Float64(seconds(&args[0])))),
    Function::new("durationMilliseconds", &[Type::Any], |_, args| {
        Ok(Value::Int64(nanoseconds(&args[0]) / 1_000_000))
    }),
    Function::new("durationMicroseconds", &[Type::Any], |_, args| {
        Ok(Value::Int64(nanoseconds(&args[0]) / 1_000))
    }),
    Function::new("durationNanoseconds", &[Type::Any], |_, args| Ok(Value::Int64(nanoseconds(&args[0])))),
    Function::new("durationMinutes", &[Type::Any], |_, args| {
        Ok(Value::Float64(parts(&args[0], 60_000_000_000)))
    }),
    Function::new("durationHours", &[Type::Any], |_, args| Ok(Value::Float64(hours(&args[0])))),
    Function::new("durationDays", &[Type::Any], |_, args| Ok(Value::Float64(hours(&args[0]) / 24.0))),
    Function::new("durationWeeks", &[Type::Any], |_, args| Ok(Value::Float64(hours(&args[0]) / 24.0 / 7.0))),
    Function::new("durationRoundTo", &[Type::Any, Type::Any], |_, args| Ok(to_multiple(args, round))),
    Function::new("durationTruncateTo", &[Type::Any, Type::Any], |_, args| {
        Ok(to_multiple(args, |d, m| d - d % m))
    }),
];

/// A parsed text of `tpl`: the set it is part of, and itself.
type Source = (Arc<Set>, Arc<Template>);

/// What Helm's functions remember during a render.
pub(super) struct Extension {
    lookup: Arc<dyn Lookup>,
    /// How deep each template is included right now.
    included: RefCell<HashMap<String, u32>>,
    /// Texts that `tpl` has parsed, by the set they were parsed into.
    parsed: RefCell<HashMap<(usize, Str), Source>>,
    /// Sets behind the keys of `parsed`: alive, so that no other set gets their address.
    sets: RefCell<Vec<Arc<Set>>>,
}

impl Extension {
    pub(super) fn new(lookup: Arc<dyn Lookup>) -> Extension {
        Extension {
            lookup,
            included: RefCell::default(),
            parsed: RefCell::default(),
            sets: RefCell::default(),
        }
    }
}

const MAX_INCLUDES: u32 = 1000;
/// A chart that renders thousands of different texts would otherwise keep them all.
const MAX_PARSED: usize = 4096;

fn include(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    let name = text(&args[0]);
    let Some(template) = ctx.set().lookup(&name) else {
        return Err(Failure::new(format!(
            "template: no template {} associated with template \"gotpl\"",
            crate::quote::go_quote(&name)
        )));
    };
    let extension = ctx.extension::<Extension>();
    if let Some(extension) = extension {
        let mut included = extension.included.borrow_mut();
        let depth = included.entry(name.clone()).or_insert(0);
        if *depth > MAX_INCLUDES {
            return Err(Failure::new(format!(
                "rendering template has a nested reference name: {name}: unable to execute template"
            )));
        }
        *depth += 1;
    }
    let result = ctx.execute(ctx.set(), &template, data(&args[1]));
    if let Some(depth) =
        extension.map(|e| e.included.borrow_mut()).as_mut().and_then(|included| included.get_mut(&name))
    {
        *depth -= 1;
    }
    Ok(Value::String(Str::from_bytes(result?)))
}

/// What a template is executed with. Go has no value to begin with where it is handed nil: every field of it is missing, not an error.
fn data(value: &Value) -> &Value {
    if value.is_nil() { &Value::NoValue } else { value }
}

fn tpl(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    let Value::String(source) = &args[0] else { return Err(Failure::new("tpl needs a string")) };
    let source_text = source.to_lossy();
    if !source_text.contains("{{") {
        return Ok(without_no_value(source.as_bytes().to_vec()));
    }
    let quoted = || crate::quote::go_quote(&source_text);
    let (set, template) = parsed(ctx, source, &source_text)
        .map_err(|error| Failure::new(format!("cannot parse template {}: {error}", quoted())))?;
    match ctx.execute(&set, &template, data(&args[1])) {
        Ok(output) => Ok(without_no_value(output)),
        Err(error) => {
            let limit = error.limit();
            let wrapped = format!("error during tpl function execution for {}: {error}", quoted());
            match limit {
                // Keeps what kind of failure it was; the limit's own words are in the text already.
                Some(_) => Err(Failure::from(error)),
                None => Err(Failure::new(wrapped)),
            }
        }
    }
}

fn parsed(ctx: &Context<'_>, source: &Str, text: &str) -> Result<Source, gotemplate::Error> {
    let parent = ctx.set();
    let key = (Arc::as_ptr(parent).cast::<()>() as usize, source.clone());
    let extension = ctx.extension::<Extension>();
    if let Some(found) = extension.and_then(|e| e.parsed.borrow().get(&key).cloned()) {
        return Ok(found);
    }
    let mut set = parent.extend();
    let template = set.parse("gotpl", text)?;
    let found = (Arc::new(set), template);
    if let Some(extension) = extension.filter(|e| e.parsed.borrow().len() < MAX_PARSED) {
        extension.sets.borrow_mut().push(parent.clone());
        extension.parsed.borrow_mut().insert(key, found.clone());
    }
    Ok(found)
}

fn without_no_value(output: Vec<u8>) -> Value {
    const WORDS: &[u8] = b"<no value>";
    if !output.windows(WORDS.len()).any(|w| w == WORDS) {
        return Value::String(Str::from_bytes(output));
    }
    let mut out = Vec::with_capacity(output.len());
    let mut at = 0;
    while at < output.len() {
        if output[at..].starts_with(WORDS) {
            at += WORDS.len();
        } else {
            out.push(output[at]);
            at += 1;
        }
    }
    Value::String(Str::from_bytes(out))
}

fn required(_: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    let missing = match &args[1] {
        Value::Nil | Value::NoValue => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if missing { warn(&args[0]) } else { Ok(args[1].clone()) }
}

fn fail(_: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    warn(&args[0])
}

fn warn(message: &Value) -> Result<Value, Failure> {
    Err(Failure::new(format!("{WARN_START}{}{WARN_END}", text(message))))
}

fn lookup(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    let Some(extension) = ctx.extension::<Extension>() else { return Ok(Value::Map(Map::new())) };
    let [api_version, kind, namespace, name] = [0, 1, 2, 3].map(|i| text(&args[i]));
    match extension.lookup.lookup(&api_version, &kind, &namespace, &name) {
        Ok(Json::Null) => Ok(Value::Map(Map::new())),
        Ok(found) => Ok(Value::from_json(&found, Numbers::Int64)),
        Err(error) => Err(Failure::new(error)),
    }
}

fn get_host_by_name(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    Ok(Value::from(ctx.host().resolve(&text(&args[0])).into_iter().next().unwrap_or_default()))
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_lossy().into_owned(),
        _ => String::new(),
    }
}

/// Never fails: what has no YAML form is the empty string.
pub(super) fn to_yaml(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    written(ctx, yaml_text(&args[0]).unwrap_or_default())
}

/// A text that took as long to write as it is long.
fn written(ctx: &Context<'_>, text: String) -> Result<Value, Failure> {
    ctx.charge(text.len())?;
    ctx.work(text.len() as u64)?;
    Ok(Value::from(text))
}

/// The text of an argument, which is about to be read.
fn read<'a>(ctx: &Context<'_>, value: &'a Value) -> Result<Cow<'a, str>, Failure> {
    let Value::String(text) = value else { return Ok(Cow::Borrowed("")) };
    ctx.work(2 * text.len() as u64)?;
    Ok(text.to_lossy())
}

fn must_to_yaml(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    written(ctx, yaml_text(&args[0]).map_err(Failure::new)?)
}

fn yaml_text(value: &Value) -> Result<String, String> {
    let json = value.to_json().map_err(|error| format!("error marshaling into JSON: {error}"))?;
    let mut text = yaml::to_yaml_sigs(&json).map_err(|error| error.to_string())?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

fn to_yaml_pretty(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    written(ctx, super::to_yaml_pretty::write(&args[0]).unwrap_or_default())
}

fn from_yaml(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    Ok(expect_object(yaml_tree(ctx, &args[0])?, PREFIX))
}

fn from_yaml_array(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    Ok(expect_array(yaml_tree(ctx, &args[0])?, PREFIX))
}

/// What the text says, or why it says nothing; the outer error ends the rendering.
fn yaml_tree(ctx: &Context<'_>, value: &Value) -> Result<Result<Json, String>, Failure> {
    let Value::String(source) = value else { return Ok(Ok(Json::Null)) };
    ctx.work(2 * source.len() as u64)?;
    Ok(crate::document::parse(source.as_bytes()))
}

fn to_json(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    json_text(ctx, encode_json(&args[0], JsonStyle::Compact).unwrap_or_default())
}

fn json_text(ctx: &Context<'_>, text: Vec<u8>) -> Result<Value, Failure> {
    ctx.charge(text.len())?;
    ctx.work(text.len() as u64 / 4)?;
    Ok(Value::String(text.into()))
}

fn must_to_json(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    let text = encode_json(&args[0], JsonStyle::Compact).map_err(|error| Failure::new(error.to_string()))?;
    json_text(ctx, text)
}

fn from_json(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    Ok(expect_object(crate::go_json::parse(&read(ctx, &args[0])?), ""))
}

fn from_json_array(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    Ok(expect_array(crate::go_json::parse(&read(ctx, &args[0])?), ""))
}

/// A map, or one that says what is wrong.
fn expect_object(tree: Result<Json, String>, prefix: &str) -> Value {
    let error = match tree {
        // What YAML calls null never reaches the map; encoding/json sets it to nil.
        Ok(Json::Null) if prefix.is_empty() => return Value::Map(Map::nil(Type::MAP)),
        Ok(Json::Null) => return Value::Map(Map::new()),
        Ok(tree @ Json::Object(_)) => return Value::from_json(&tree, Numbers::Float),
        Ok(other) => format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(&other)
        ),
        Err(error) => error,
    };
    Value::map([("Error", Value::from(error))])
}

fn expect_array(tree: Result<Json, String>, prefix: &str) -> Value {
    let error = match tree {
        Ok(Json::Null) if prefix.is_empty() => return Value::List(List::nil(Type::LIST)),
        Ok(Json::Null) => return Value::List(List::new(Vec::new())),
        Ok(tree @ Json::Array(_)) => return Value::from_json(&tree, Numbers::Float),
        Ok(other) => format!(
            "{prefix}json: cannot unmarshal {} into Go value of type []interface {{}}",
            json_kind(&other)
        ),
        Err(error) => error,
    };
    Value::list(vec![Value::from(error)])
}

fn to_toml_text(_: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    match to_toml::write(&args[0]) {
        Ok(text) | Err(to_toml::Error::Refused(text)) => Ok(Value::from(text)),
        Err(to_toml::Error::Panic(text)) => Err(Failure::new(text)),
    }
}

fn must_to_toml(_: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    to_toml::write(&args[0]).map(Value::from).map_err(|error| match error {
        to_toml::Error::Refused(text) => Failure::new(text),
        to_toml::Error::Panic(text) => Failure::new(text),
    })
}

fn from_toml(ctx: &Context<'_>, args: &[Value]) -> Result<Value, Failure> {
    Ok(super::from_toml::read(&read(ctx, &args[0])?)
        .unwrap_or_else(|error| Value::map([("Error", Value::from(error))])))
}

/// Durations, texts such as `1h2m` or `2.5`, and numbers of seconds.
fn as_duration(value: &Value) -> Result<Duration, String> {
    match value {
        Value::Duration(duration) => Ok(*duration),
        Value::Nil | Value::NoValue => Err("invalid duration".to_owned()),
        Value::String(text) => {
            let text = text.to_lossy();
            let trimmed = text.trim();
            if trimmed.is_empty() {
                return Err("empty duration".to_owned());
            }
            if let Some(duration) = super::duration::parse(trimmed) {
                return Ok(Duration(duration));
            }
            match trimmed.parse::<f64>() {
                Ok(seconds) => from_float(seconds),
                Err(_) => Err(format!("could not parse duration {}", crate::quote::go_quote(&text))),
            }
        }
        Value::Float64(seconds) => from_float(*seconds),
        other => match (other.as_int(), other.as_uint()) {
            (Some(seconds), _) => whole(i128::from(seconds)),
            (None, Some(seconds)) => whole(i128::from(seconds)),
            (None, None) => Err(format!("unsupported duration type {}", other.type_of())),
        },
    }
}

fn whole(seconds: i128) -> Result<Duration, String> {
    i64::try_from(seconds * 1_000_000_000)
        .map(Duration)
        .map_err(|_| format!("duration seconds overflow: {seconds}"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "checked against the range before"
)]
fn from_float(seconds: f64) -> Result<Duration, String> {
    let shown = yaml::format_float_v(seconds);
    if !seconds.is_finite() {
        return Err(format!("invalid duration seconds: {shown}"));
    }
    let nanoseconds = seconds * 1e9;
    if nanoseconds.abs() > i64::MAX as f64 {
        return Err(format!("duration seconds overflow: {shown}"));
    }
    Ok(Duration(nanoseconds as i64))
}

fn nanoseconds(value: &Value) -> i64 {
    as_duration(value).map_or(0, |d| d.0)
}

/// Whole units and the rest, added up as Go does.
#[expect(clippy::cast_precision_loss, reason = "Go's own arithmetic")]
fn parts(value: &Value, unit: i64) -> f64 {
    let nanoseconds = nanoseconds(value);
    (nanoseconds / unit) as f64 + (nanoseconds % unit) as f64 / unit as f64
}

fn seconds(value: &Value) -> f64 {
    parts(value, 1_000_000_000)
}

fn hours(value: &Value) -> f64 {
    parts(value, 3_600_000_000_000)
}

fn to_multiple(args: &[Value], change: fn(i64, i64) -> i64) -> Value {
    let Ok(duration) = as_duration(&args[0]) else { return Value::Duration(Duration(0)) };
    match as_duration(&args[1]) {
        Ok(multiple) if multiple.0 > 0 => Value::Duration(Duration(change(duration.0, multiple.0))),
        _ => Value::Duration(duration),
    }
}

/// Half away from zero, saturating.
fn round(duration: i64, multiple: i64) -> i64 {
    let rest = duration % multiple;
    let down = duration - rest;
    if rest.unsigned_abs() * 2 < multiple.unsigned_abs() {
        return down;
    }
    if duration < 0 { down.saturating_sub(multiple) } else { down.saturating_add(multiple) }
}
