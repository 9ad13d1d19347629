//! Label selectors as `--watch-label-selector` takes them: `shard=a`, `shard!=a`, `tier in (a,b)`, `!shard`.
//!
//! The API server applies selectors by itself; this one is for objects that are watched anyway, since others
//! need them unfiltered.

use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    /// Also holds where the label is missing.
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
    Greater(String, i64),
    Less(String, i64),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("label selector '{selector}': {problem}")]
pub struct Error {
    selector: String,
    problem: String,
}

impl Selector {
    /// Reads a selector; the empty one selects everything.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let failed = |problem: String| Error { selector: text.to_owned(), problem };
        let mut requirements = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                return match text.trim().is_empty() {
                    true => Ok(Self { requirements }),
                    false => Err(failed("a requirement is missing beside a comma".to_owned())),
                };
            }
            requirements.push(requirement(part).map_err(failed)?);
        }
        Ok(Self { requirements })
    }

    /// Selects no object at all.
    pub fn nothing() -> Self {
        Self { requirements: vec![Requirement::In(String::new(), Vec::new())] }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let number = |key: &String| labels.get(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Missing(key) => !labels.contains_key(key),
            Requirement::Greater(key, than) => number(key).is_some_and(|value| value > *than),
            Requirement::Less(key, than) => number(key).is_some_and(|value| value < *than),
        }
    }
}

/// At commas, except those within parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(text: &str) -> Result<Requirement, String> {
    if let Some(name) = text.strip_prefix('!') {
        return Ok(Requirement::Missing(key(name)?));
    }
    if let Some(inner) = text.strip_suffix(')') {
        let (head, list) = inner.split_once('(').ok_or_else(|| format!("'{text}' lacks a '('"))?;
        let values = list.split(',').map(value).collect::<Result<Vec<_>, _>>()?;
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(name), Some("in"), None) => Ok(Requirement::In(key(name)?, values)),
            (Some(name), Some("notin"), None) => Ok(Requirement::NotIn(key(name)?, values)),
            _ => Err(format!("'{text}' is neither 'key in (…)' nor 'key notin (…)'")),
        };
    }
    if let Some((name, wanted)) = text.split_once("!=") {
        return Ok(Requirement::NotIn(key(name)?, vec![value(wanted)?]));
    }
    if let Some((name, wanted)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Requirement::In(key(name)?, vec![value(wanted)?]));
    }
    let number = |wanted: &str| wanted.trim().parse().map_err(|_| format!("'{wanted}' is not a number"));
    if let Some((name, wanted)) = text.split_once('>') {
        return Ok(Requirement::Greater(key(name)?, number(wanted)?));
    }
    if let Some((name, wanted)) = text.split_once('<') {
        return Ok(Requirement::Less(key(name)?, number(wanted)?));
    }
    Ok(Requirement::Exists(key(text)?))
}

fn key(text: &str) -> Result<String, String> {
    let text = text.trim();
    let name = text.rsplit('/').next().unwrap_or_default();
    match !name.is_empty()
        && text.len() <= 317
        && text.chars().all(|letter| is_plain(letter) || letter == '/')
    {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is not the name of a label")),
    }
}

fn value(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.len() <= 63 && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is not the value of a label")),
    }
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Selector::parse(selector).unwrap().matches(&labels)
    }

    #[test]
    fn every_operator() {
        let shard = [("sharding.fluxcd.io/shard", "a"), ("weight", "7")];
        for holds in [
            "",
            "sharding.fluxcd.io/shard=a",
            "sharding.fluxcd.io/shard == a, weight",
            "sharding.fluxcd.io/shard in (a, b),weight>6,weight<8",
            "other!=x",
            "other notin (x)",
            "!other",
        ] {
            assert!(matches(holds, &shard), "{holds}");
        }
        for fails in [
            "sharding.fluxcd.io/shard=b",
            "!sharding.fluxcd.io/shard",
            "sharding.fluxcd.io/shard notin (a,b)",
            "sharding.fluxcd.io/shard!=a",
            "other",
            "weight>7",
        ] {
            assert!(!matches(fails, &shard), "{fails}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["a=b,", "=b", "a in b)", "a within (b)", "a=b c", "a>x"] {
            let problem = Selector::parse(text).unwrap_err().to_string();
            assert!(problem.contains(&format!("'{text}'")), "{problem}");
        }
    }
}
