//! What names, labels and annotations may look like, in Kubernetes' words.
//!
//! Each function answers `None` when the text is fine, and otherwise what is wrong with it.

use std::sync::LazyLock;

use regex::Regex;

const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("a constant pattern")
}

macro_rules! matcher {
    ($name:ident, $pattern:expr) => {
        fn $name(text: &str) -> bool {
            static PATTERN: LazyLock<Regex> = LazyLock::new(|| whole($pattern));
            PATTERN.is_match(text)
        }
    };
}
matcher!(is_qualified, QUALIFIED);
matcher!(is_value, VALUE);
matcher!(is_label, LABEL);
matcher!(is_subdomain, SUBDOMAIN);
matcher!(is_dns1035, DNS1035);

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

/// DNS-1123 label: most names that become host names.
pub fn dns_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some(too_long(63));
    }
    (!is_label(text)).then(|| {
        format!(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
        )
    })
}

/// DNS-1123 subdomain: the names of most objects.
pub fn dns_subdomain(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some(too_long(253));
    }
    (!is_subdomain(text)).then(|| {
        format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN}')"
        )
    })
}

/// DNS-1035 label: Services.
pub fn dns1035_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some(too_long(63));
    }
    (!is_dns1035(text)).then(|| {
        format!(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '{DNS1035}')"
        )
    })
}

/// A path segment: RBAC names may hold almost anything.
pub fn path_segment(text: &str) -> Option<String> {
    if text == "." || text == ".." {
        return Some(format!("may not be '{text}'"));
    }
    ['/', '%'].into_iter().find(|c| text.contains(*c)).map(|c| format!("may not contain '{c}'"))
}

/// A label's or annotation's key: `prefix/name`.
pub fn qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return Some(format!(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                 validation is '{QUALIFIED}') with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ));
        }
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".into());
        }
        if let Some(problem) = dns_subdomain(prefix) {
            return Some(format!("prefix part {problem}"));
        }
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some(format!("name part {}", too_long(63)));
    }
    (!is_qualified(name)).then(|| {
        format!(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '{QUALIFIED}')"
        )
    })
}

pub fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some(too_long(63));
    }
    (!is_value(text)).then(|| {
        format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '{VALUE}')"
        )
    })
}

/// A key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some(too_long(253));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Some(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .into(),
        );
    }
    match text {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        text if text.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass_and_bad_ones_are_told_why() {
        assert_eq!(dns_subdomain("a.b-c"), None);
        assert!(dns_subdomain("A").unwrap().starts_with("a lowercase RFC 1123 subdomain"));
        assert!(dns_subdomain("").is_some());
        assert_eq!(dns_label(&"a".repeat(64)).unwrap(), "must be no more than 63 bytes");
        assert_eq!(qualified_name("app.kubernetes.io/name"), None);
        assert!(qualified_name("a/b/c").is_some());
        assert_eq!(label_value(""), None);
        assert_eq!(config_key("..").unwrap(), "must not be '..'");
    }
}
