//! Text the way Go prints it: quoted strings, `%v` of lists and maps, regular expressions.

use std::collections::BTreeMap;

use regex::Regex;

pub(crate) use yaml::go_quote as quote;

/// `[a b c]`
pub(crate) fn list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    format!("[{}]", items.join(" "))
}

/// `map[a:1 b:2]`
pub(crate) fn map(entries: &BTreeMap<String, String>) -> String {
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!("map[{}]", entries.join(" "))
}

/// A regular expression, or Go's complaint about it.
pub(crate) fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| {
        let cause = match &error {
            regex::Error::Syntax(text) => {
                text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
            other => other.to_string(),
        };
        format!("error parsing regexp: {cause}: `{pattern}`")
    })
}

/// A regular expression that must match the whole text.
pub(crate) fn whole_regex(pattern: &str) -> Result<Regex, String> {
    regex(&format!("^(?:{pattern})$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        assert_eq!(quote("a\"b\\\n\u{1}é\u{feff}"), "\"a\\\"b\\\\\\n\\x01é\\ufeff\"");
    }
}
