//! `--label key=value`, and the rules of Kubernetes for both.

use serde_json::{Map, Value};

use crate::error::{CliError, fail};
use crate::tree::Invocation;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                          start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                          for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PREFIX_RULE: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                           and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                           '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The labels of an object. Commands also ask for them where upstream first looks at them, for what is wrong with them.
pub(super) fn of(run: &Invocation) -> Result<Map<String, Value>, CliError> {
    let mut labels = Map::new();
    for pair in run.list("label") {
        let mut parts = pair.split('=');
        let (Some(key), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(fail!("invalid label format '{pair}', must be key=value"));
        };
        let problems = name_problems(key);
        if !problems.is_empty() {
            return Err(fail!("invalid label '{key}': [{}]", problems.join(" ")));
        }
        let problems = value_problems(value);
        if !problems.is_empty() {
            return Err(fail!("invalid label value '{value}': [{}]", problems.join(" ")));
        }
        labels.insert(key.to_owned(), value.into());
    }
    Ok(labels)
}

/// What is wrong with a qualified name: `[prefix/]name`.
pub(super) fn name_problems(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('/').collect();
    let (prefix, name) = match parts[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a qualified name {NAME_RULE} with an optional DNS subdomain prefix and '/name' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > 253 {
                problems.push("prefix part must be no more than 253 bytes".to_owned());
            }
            if !is_subdomain(prefix) {
                problems.push(PREFIX_RULE.to_owned());
            }
        }
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(name) {
        problems.push(format!("name part {NAME_RULE}"));
    }
    problems
}

/// Each part may be longer than a label of DNS may.
fn is_subdomain(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.split('.').all(|part| {
        ends(part.bytes().next())
            && ends(part.bytes().last())
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    })
}

fn value_problems(value: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_word(value) {
        problems.push(VALUE_RULE);
    }
    problems
}

fn is_word(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
