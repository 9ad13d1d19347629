//! Versions and named formats.

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, LazyLock};

use regex::Regex;
use semver_range::Version;

use crate::EvalError;
use crate::eval::Answer;
use crate::value::Value;

/// A semantic version.
#[derive(Clone, Debug)]
pub struct Semver(Version);

impl Semver {
    pub(crate) fn compare(&self, other: &Semver) -> Ordering {
        self.0.cmp(&other.0)
    }

    /// Strict, or tolerant of a leading `v`, missing parts and leading zeros.
    fn parse(text: &str, normalize: bool) -> Option<Self> {
        if !normalize {
            return Version::strict(text).ok().map(Semver);
        }
        let text = text.trim().strip_prefix('v').unwrap_or(text.trim());
        let (numbers, rest) = match text.find(['-', '+']) {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let mut parts: Vec<&str> = numbers.split('.').collect();
        let without_zeros = |part: &str| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0".to_owned(),
            trimmed => trimmed.to_owned(),
        };
        // A suffix after fewer than three numbers is no version.
        if parts.len() < 3 && !rest.is_empty() {
            return None;
        }
        parts.resize(parts.len().max(3), "0");
        let numbers: Vec<String> = parts.into_iter().map(without_zeros).collect();
        Version::strict(&format!("{}{rest}", numbers.join("."))).ok().map(Semver)
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A format that text can be checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFormat {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    QualifiedName,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    Datetime,
}

impl NamedFormat {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "dns1123Label" => NamedFormat::Dns1123Label,
            "dns1123Subdomain" => NamedFormat::Dns1123Subdomain,
            "dns1035Label" => NamedFormat::Dns1035Label,
            "dns1123LabelPrefix" => NamedFormat::Dns1123LabelPrefix,
            "dns1123SubdomainPrefix" => NamedFormat::Dns1123SubdomainPrefix,
            "dns1035LabelPrefix" => NamedFormat::Dns1035LabelPrefix,
            "qualifiedName" => NamedFormat::QualifiedName,
            "labelValue" => NamedFormat::LabelValue,
            "uri" => NamedFormat::Uri,
            "uuid" => NamedFormat::Uuid,
            "byte" => NamedFormat::Byte,
            "date" => NamedFormat::Date,
            "datetime" => NamedFormat::Datetime,
            _ => return None,
        })
    }

    /// What is wrong with the text; empty if nothing is.
    fn validate(self, text: &str) -> Vec<String> {
        // A prefix may end in a dash, since something random follows it.
        let prefix =
            |text: &str| text.strip_suffix('-').map_or_else(|| text.to_owned(), |text| format!("{text}a"));
        match self {
            NamedFormat::Dns1123Label => dns_label(text),
            NamedFormat::Dns1123LabelPrefix => dns_label(&prefix(text)),
            NamedFormat::Dns1123Subdomain => dns_subdomain(text),
            NamedFormat::Dns1123SubdomainPrefix => dns_subdomain(&prefix(text)),
            NamedFormat::Dns1035Label => dns_1035_label(text),
            NamedFormat::Dns1035LabelPrefix => dns_1035_label(&prefix(text)),
            NamedFormat::QualifiedName => qualified_name(text),
            NamedFormat::LabelValue => label_value(text),
            NamedFormat::Uri => fails(super::net::is_url(text), "invalid URI for request"),
            NamedFormat::Uuid => fails(UUID.is_match(text), "does not match the UUID format"),
            NamedFormat::Byte => fails(is_base64(text), "invalid base64"),
            NamedFormat::Date => {
                fails(text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10, "invalid date")
            }
            NamedFormat::Datetime => fails(super::time::parse_timestamp(text).is_ok(), "invalid datetime"),
        }
    }
}

pub(super) fn call<'a>(name: &str, is_method: bool, values: &[Value<'a>]) -> Option<Answer<'a>> {
    let version = |text: &str, normalize| {
        Semver::parse(text, normalize)
            .map(|version| Value::Semver(Arc::new(version)))
            .ok_or_else(|| EvalError::message("No Major.Minor.Patch elements found"))
    };
    match (name, is_method, values) {
        ("semver", false, [Value::String(text)]) => Some(version(text.as_str(), false)),
        ("semver", false, [Value::String(text), Value::Bool(normalize)]) => {
            Some(version(text.as_str(), *normalize))
        }
        ("isSemver", false, [Value::String(text)]) => {
            Some(Ok(Value::Bool(Semver::parse(text.as_str(), false).is_some())))
        }
        ("isSemver", false, [Value::String(text), Value::Bool(normalize)]) => {
            Some(Ok(Value::Bool(Semver::parse(text.as_str(), *normalize).is_some())))
        }
        (_, true, [Value::Semver(version), args @ ..]) => semver_method(name, version, args).map(Ok),
        ("format.named", false, [Value::String(name)]) => Some(Ok(Value::Optional(
            NamedFormat::named(name.as_str()).map(|format| Box::new(Value::NamedFormat(format))),
        ))),
        ("validate", true, [Value::NamedFormat(format), Value::String(text)]) => {
            let wrong = format.validate(text.as_str());
            let wrong =
                (!wrong.is_empty()).then(|| Value::list(wrong.into_iter().map(Value::text).collect()));
            Some(Ok(Value::Optional(wrong.map(Box::new))))
        }
        (name, false, []) => {
            let format = NamedFormat::named(name.strip_prefix("format.")?)?;
            Some(Ok(Value::NamedFormat(format)))
        }
        _ => None,
    }
}

fn semver_method<'a>(name: &str, version: &Semver, args: &[Value<'a>]) -> Option<Value<'a>> {
    Some(match (name, args) {
        ("major", []) => Value::Int(version.0.major() as i64),
        ("minor", []) => Value::Int(version.0.minor() as i64),
        ("patch", []) => Value::Int(version.0.patch() as i64),
        ("isGreaterThan", [Value::Semver(other)]) => Value::Bool(version.compare(other).is_gt()),
        ("isLessThan", [Value::Semver(other)]) => Value::Bool(version.compare(other).is_lt()),
        ("compareTo", [Value::Semver(other)]) => Value::Int(version.compare(other) as i64),
        _ => return None,
    })
}

fn fails(fine: bool, message: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![message.to_owned()] }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant and compiles")
}

static LABEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static LABEL_1035: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-z]([-a-z0-9]*[a-z0-9])?$"));
static SUBDOMAIN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static NAME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"));
static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));

fn checked(text: &str, max: usize, regex: &Regex, message: &str) -> Vec<String> {
    let mut out = Vec::new();
    if text.len() > max {
        out.push(format!("must be no more than {max} bytes"));
    }
    if !regex.is_match(text) {
        out.push(message.to_owned());
    }
    out
}

fn dns_label(text: &str) -> Vec<String> {
    checked(
        text,
        63,
        &LABEL,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
         alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    )
}

fn dns_1035_label(text: &str) -> Vec<String> {
    checked(
        text,
        63,
        &LABEL_1035,
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with \
         an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    )
}

fn dns_subdomain(text: &str) -> Vec<String> {
    checked(
        text,
        253,
        &SUBDOMAIN,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
         alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )
}

fn qualified_name(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let mut out = Vec::new();
    match prefix {
        Some("") => out.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            out.extend(dns_subdomain(prefix).into_iter().map(|message| format!("prefix part {message}")))
        }
        None => {}
    }
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    }
    let wrong = checked(
        name,
        63,
        &NAME,
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
         'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
    out.extend(wrong.into_iter().map(|message| format!("name part {message}")));
    out
}

fn label_value(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    checked(
        text,
        63,
        &NAME,
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}
