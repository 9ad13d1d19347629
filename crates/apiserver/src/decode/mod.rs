//! From a request's body to an object of the kind it was sent to.
//!
//! Builtin kinds are read by their schema, as the real server's Go types do: unknown fields fall away (and are
//! reported), wrong types are an error that names the field. Custom kinds are read by their CRD's schema.

mod fields;
mod strict;

use serde_json::Value;

use crate::media::BodyType;
use crate::object;
use crate::rest::{Call, FieldValidation};
use crate::status::{About, Cause, Status};

/// Bodies nested deeper than this are refused; `serde_json` itself stops at 128.
const MAX_DEPTH: usize = 120;

/// The object in a create's or update's body.
pub fn body(call: &Call, body_type: BodyType, bytes: &[u8]) -> Result<Value, Status> {
    let kind = &call.resource.kind;
    let json = match body_type {
        BodyType::Json => std::borrow::Cow::Borrowed(bytes),
        BodyType::Yaml => std::borrow::Cow::Owned(yaml_to_json(bytes).map_err(|problem| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
                 error: {problem}"
            ))
        })?),
        BodyType::Protobuf => std::borrow::Cow::Owned(crate::protobuf::to_json(bytes)?.to_string().into_bytes()),
    };
    let value = parse(kind, &json)?;
    accept(call, value, &expected_kind(call), Some(&json))
}

/// The object a server-side apply sends: YAML or JSON, naming its kind.
pub fn applied(call: &Call, bytes: &[u8]) -> Result<Value, Status> {
    let problem = |text: String| Status::bad_request(format!("error decoding YAML: {text}"));
    let json = yaml_to_json(bytes).map_err(problem)?;
    let value: Value = serde_json::from_slice(&json).map_err(|error| problem(error.to_string()))?;
    let (api_version, kind) = (object::text(&value, "/apiVersion"), object::text(&value, "/kind"));
    if api_version.is_empty() || kind.is_empty() {
        let (group, version) = crate::kinds::split_api_version(api_version);
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if *kind != *call.resource.kind || api_version != call.resource.api_version() {
        let expected = call.resource.api_version();
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): expected {expected}, got {api_version} {kind}",
            call.resource.kind
        )));
    }
    // A field that the schema does not know stops an apply, whatever `fieldValidation` says.
    crate::ownership::check_declared(call, &value)?;
    report_duplicate_keys(call, bytes)?;
    Ok(value)
}

/// What an apply made of an object, read like a body. What was applied counts as it was written (an empty map is owned,
/// too); only the result is read by the kind's fields.
pub fn merged(call: &Call, value: Value) -> Result<Value, Status> {
    Ok(read_fields(call, value, &expected_kind(call))?.0)
}

/// Keys that stand twice in an applied text, in the words of the YAML library.
fn report_duplicate_keys(call: &Call, bytes: &[u8]) -> Result<(), Status> {
    let Err(error) = yaml::to_json_strict(bytes) else { return Ok(()) };
    let error = error.to_string();
    match call.options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => {
            let lines = error.lines().map(str::trim).filter(|line| line.starts_with("line "));
            lines.for_each(|line| call.warn(line));
        }
        FieldValidation::Strict => {
            let why = format!("error strict decoding YAML: error converting YAML to JSON: {error}");
            return Err(Status::bad_request(why));
        }
    }
    Ok(())
}

/// What a patch made, read like a body: it may have put anything anywhere.
pub fn check_object(call: &Call, value: Value) -> Result<Value, Status> {
    accept(call, value, &expected_kind(call), None)
}

/// Reads an object's metadata, which every kind has alike; answers with the paths of unknown fields.
pub fn metadata(value: &mut Value) -> Result<Vec<String>, String> {
    fields::read_metadata(value)
}

/// YAML (or JSON, which is YAML) as JSON text.
pub fn yaml_to_json(bytes: &[u8]) -> Result<Vec<u8>, String> {
    if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() {
        return Ok(bytes.to_vec());
    }
    crate::yaml_text::to_json(bytes)
}

/// API version and kind this address takes.
fn expected_kind(call: &Call) -> (String, String) {
    match call.resource.subresource(&call.subresource) {
        Some(sub) if !sub.api_version.is_empty() => (sub.api_version.clone(), sub.kind.clone()),
        Some(sub) => (call.resource.api_version(), sub.kind.clone()),
        None => (call.resource.api_version(), call.resource.kind.to_string()),
    }
}

fn parse(kind: &str, bytes: &[u8]) -> Result<Value, Status> {
    let unrecognized = |problem: String| {
        let text = String::from_utf8_lossy(bytes);
        let shown = if text.is_empty() { "<empty>".into() } else { text };
        let shown: String = shown.chars().take(256).collect();
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
             {problem} ({shown})"
        ))
    };
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| unrecognized(go_error(bytes, &error)))?;
    if object::deeper_than(&value, MAX_DEPTH) {
        return Err(unrecognized("exceeded max depth".into()));
    }
    if !value.is_object() {
        return Err(unrecognized(format!(
            "json: cannot unmarshal {} into Go value of type struct",
            fields::go_kind(&value)
        )));
    }
    Ok(value)
}

/// Go's words for the commonest syntax errors.
pub fn go_error(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    let line = bytes.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    match line.get(error.column().saturating_sub(1)) {
        Some(byte) => {
            let place = if error.to_string().starts_with("key must be a string") {
                "looking for beginning of object key string"
            } else {
                "looking for beginning of value"
            };
            format!("invalid character '{}' {place}", *byte as char)
        }
        None => error.to_string(),
    }
}

/// `text` is the body the value was read from; what a patch made has none.
fn accept(
    call: &Call,
    value: Value,
    expected: &(String, String),
    text: Option<&[u8]>,
) -> Result<Value, Status> {
    let (value, unknown) = read_fields(call, value, expected)?;
    let cannot = |why: &str| cannot_be_handled(expected, why);
    let before = match text {
        Some(_) => Value::Null,
        None => value.clone(),
    };
    report(call, problems(unknown, text), &before, text.is_none(), cannot)?;
    Ok(value)
}

/// Reads an object by its kind's fields; also answers with the paths of those it does not know, which fall away.
fn read_fields(
    call: &Call,
    mut value: Value,
    expected: &(String, String),
) -> Result<(Value, Vec<String>), Status> {
    check_kind(call, &mut value, expected)?;
    let unknown = match &call.resource.custom {
        Some(custom) if call.subresource != "scale" => crate::custom::read(custom, &mut value),
        _ => fields::read(&expected.0, &expected.1, &mut value),
    };
    let unknown = unknown.map_err(|why| cannot_be_handled(expected, &why))?;
    Ok((value, unknown))
}

fn cannot_be_handled((api_version, kind): &(String, String), why: &str) -> Status {
    let version = crate::kinds::split_api_version(api_version).1;
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}

/// What is wrong with fields, in the order of the text.
fn problems(unknown: Vec<String>, text: Option<&[u8]>) -> Vec<String> {
    let text = text.unwrap_or_default();
    let unknown = unknown.into_iter().map(|path| (path.clone(), format!("unknown field \"{path}\"")));
    let duplicates = strict::duplicates(text).into_iter();
    let duplicates = duplicates.map(|path| (path.clone(), format!("duplicate field \"{path}\"")));
    let mut all: Vec<(String, String)> = duplicates.chain(unknown).collect();
    strict::in_order(text, &mut all);
    all.into_iter().map(|(_, problem)| problem).collect()
}

fn report(
    call: &Call,
    problems: Vec<String>,
    object: &Value,
    patched: bool,
    cannot: impl Fn(&str) -> Status,
) -> Result<(), Status> {
    let strict = || format!("strict decoding error: {}", problems.join(", "));
    match call.options.field_validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            problems.into_iter().for_each(|problem| call.warn(problem));
            Ok(())
        }
        FieldValidation::Strict if problems.is_empty() => Ok(()),
        FieldValidation::Strict if patched => {
            let shown = Value::from(object.to_string());
            let cause = Cause::invalid("patch", &shown, &strict());
            Err(Status::invalid(About { group: "", kind: "", name: "" }, &[cause]))
        }
        FieldValidation::Strict => Err(cannot(&strict())),
    }
}

/// Fills in a missing kind (builtin kinds allow it) and refuses a wrong one.
fn check_kind(call: &Call, value: &mut Value, (api_version, kind): &(String, String)) -> Result<(), Status> {
    let (got_version, got_kind) =
        (object::text(value, "/apiVersion").to_owned(), object::text(value, "/kind").to_owned());
    let (_, expected_version) = crate::kinds::split_api_version(api_version);
    if call.resource.custom.is_some() && got_kind.is_empty() {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{value}' ({value})"
        )));
    }
    if !got_version.is_empty() && got_version != *api_version && call.resource.custom.is_some() {
        return Err(Status::bad_request(format!(
            "the API version in the data ({got_version}) does not match the expected API version ({api_version})"
        )));
    }
    if !got_kind.is_empty() && got_kind != *kind {
        let got = if got_version.is_empty() {
            expected_version
        } else {
            crate::kinds::split_api_version(&got_version).1
        };
        let package = package_of(call);
        return Err(Status::bad_request(format!(
            "{got_kind} in version \"{got}\" cannot be handled as a {kind}: converting ({got}.{got_kind}) to \
             ({package}.{kind}): unknown conversion"
        )));
    }
    if !got_version.is_empty() && got_version != *api_version {
        let got = crate::kinds::split_api_version(&got_version).1;
        if call.server.registry().by_kind(&got_version, kind).is_none() {
            return Err(Status::bad_request(format!(
                "{kind} in version \"{got}\" cannot be handled as a {kind}: no kind \"{kind}\" is registered for \
                 version \"{got_version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        let sent = &got_version;
        return Err(Status::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({api_version})"
        )));
    }
    let fields =
        value.as_object_mut().ok_or_else(|| Status::bad_request("the object provided is unrecognized"))?;
    fields.insert("apiVersion".into(), api_version.as_str().into());
    fields.insert("kind".into(), kind.as_str().into());
    Ok(())
}

/// The Go package of a group's internal types, which shows in conversion errors.
fn package_of(call: &Call) -> String {
    match &*call.resource.group {
        "" => "core".into(),
        group => group.split('.').next().unwrap_or_default().to_owned(),
    }
}
