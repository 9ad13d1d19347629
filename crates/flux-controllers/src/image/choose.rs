//! The newest tag by a policy, and for those who ask, what became of each of the others. Pure.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use flux_api::image::{ImagePolicyChoice, PolicyOrder, TagFilter};
use regex::Regex;
use semver_range::{Constraint, Version};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No tag could help.
    #[error("{0}")]
    Invalid(String),
    #[error("version list argument cannot be empty")]
    Nothing,
    #[error("unable to determine latest version from provided list")]
    NoMatch,
    #[error("failed to parse invalid numeric value '{0}'")]
    NotANumber(String),
}

/// A policy that is ready to be applied.
pub struct Policy {
    rule: Rule,
    filter: Option<Filter>,
}

enum Rule {
    Semver { range: String, constraint: Constraint },
    Alphabetical(PolicyOrder),
    Numerical(PolicyOrder),
}

struct Filter {
    pattern: Regex,
    /// As its author wrote it; compiling makes another text of it.
    written: String,
    extract: Option<String>,
}

/// What became of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Place in the order, from 1; the first one is chosen.
    Ranked(usize),
    /// Left out, and why.
    Dropped(String),
}

/// A tag and what the policy makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub tag: String,
    /// What it is ordered by, where that is not the tag itself.
    pub extracted: Option<String>,
    pub fate: Fate,
}

impl Policy {
    pub fn new(choice: &ImagePolicyChoice, filter: Option<&TagFilter>) -> Result<Self, Error> {
        let rule = rule(choice).map_err(|error| Error::Invalid(format!("invalid policy: {error}")))?;
        let filter = filter.map(Filter::new).transpose();
        let filter = filter.map_err(|error| Error::Invalid(format!("failed to filter tags: {error}")))?;
        Ok(Self { rule, filter })
    }

    /// The chosen one of `tags`, which are in the order of the store.
    pub fn latest(&self, tags: &[String]) -> Result<String, Error> {
        let values = self.values(tags);
        if values.is_empty() {
            return Err(Error::Nothing);
        }
        let best = match &self.rule {
            Rule::Semver { constraint, .. } => {
                let mut best = None;
                for value in &values {
                    let Some(version) = version(&value.value).filter(|it| constraint.check(it)) else {
                        continue;
                    };
                    // Of equal versions the first counts.
                    if best.as_ref().is_none_or(|(known, _)| version > *known) {
                        best = Some((version, value));
                    }
                }
                best.map(|(_, value)| value).ok_or(Error::NoMatch)?
            }
            Rule::Alphabetical(order) => {
                let by_text = |a: &&Candidate<'_>, b: &&Candidate<'_>| a.value.cmp(&b.value);
                let best = match order {
                    PolicyOrder::Ascending => values.iter().max_by(by_text),
                    PolicyOrder::Descending => values.iter().min_by(by_text),
                };
                best.ok_or(Error::Nothing)?
            }
            Rule::Numerical(order) => highest_number(&values, *order)?,
        };
        Ok(best.tag.to_owned())
    }

    /// What became of every tag: those in the order first, then the others in the order of the store.
    pub fn explain(&self, tags: &[String]) -> Vec<Explained> {
        let values = self.values(tags);
        let extracts = self.filter.as_ref().is_some_and(|filter| filter.extract.is_some());
        let mut ranked: Vec<(&Candidate<'_>, Key)> = Vec::new();
        let mut dropped: BTreeMap<&str, (Option<String>, String)> = BTreeMap::new();
        for value in &values {
            let extracted = extracts.then(|| value.value.clone());
            match self.key(&value.value) {
                Ok(key) => ranked.push((value, key)),
                Err(why) => drop(dropped.insert(value.tag, (extracted, why))),
            }
        }
        let latest = self.latest(tags).ok();
        ranked.sort_by(|(a, a_key), (b, b_key)| {
            let is_latest = |one: &Candidate<'_>| latest.as_deref() == Some(one.tag);
            is_latest(b).cmp(&is_latest(a)).then_with(|| self.newest_first(a_key, b_key))
        });
        let mut explained: Vec<Explained> = ranked
            .iter()
            .enumerate()
            .map(|(index, (value, _))| Explained {
                tag: value.tag.to_owned(),
                extracted: extracts.then(|| value.value.clone()),
                fate: Fate::Ranked(index + 1),
            })
            .collect();
        let in_order: BTreeSet<&str> = ranked.iter().map(|(value, _)| value.tag).collect();
        for tag in tags {
            if in_order.contains(tag.as_str()) {
                continue;
            }
            let (extracted, why) = match dropped.get(tag.as_str()) {
                Some((extracted, why)) => (extracted.clone(), why.clone()),
                None => (None, self.why_not_a_candidate(tag, &values)),
            };
            explained.push(Explained { tag: tag.clone(), extracted, fate: Fate::Dropped(why) });
        }
        explained
    }

    /// Something that the author of the policy probably did not mean.
    pub fn doubt(&self, tags: &[String]) -> Option<String> {
        let Rule::Alphabetical(_) = self.rule else { return None };
        let values = self.values(tags);
        let numbers = |value: &Candidate<'_>| value.value.bytes().all(|byte| byte.is_ascii_digit());
        let lengths: Vec<usize> = values.iter().map(|value| value.value.len()).collect();
        let uneven = lengths.iter().min() != lengths.iter().max();
        (uneven && !values.is_empty() && values.iter().all(numbers)).then(|| {
            "the tags are numbers of different lengths, which alphabetical orders as text (10 before 9); use numerical"
                .to_owned()
        })
    }

    fn values<'a>(&self, tags: &'a [String]) -> Vec<Candidate<'a>> {
        let Some(filter) = &self.filter else {
            return tags.iter().map(|tag| Candidate { tag, value: tag.clone() }).collect();
        };
        let mut values: Vec<Candidate<'a>> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for tag in tags {
            let Some(value) = filter.apply(tag) else { continue };
            // Of tags that are ordered by the same text, the last one stands for all, as upstream has it.
            match places.get(&value) {
                Some(place) => values[*place].tag = tag,
                None => {
                    places.insert(value.clone(), values.len());
                    values.push(Candidate { tag, value });
                }
            }
        }
        values
    }

    fn why_not_a_candidate(&self, tag: &str, values: &[Candidate<'_>]) -> String {
        let Some(filter) = &self.filter else { return "left out".to_owned() };
        match filter.apply(tag) {
            None => format!("does not match filterTags.pattern '{}'", filter.written),
            Some(value) => {
                let other = values.iter().find(|one| one.value == value).map_or("another tag", |one| one.tag);
                format!("'{other}' is ordered by the same text '{value}' and stands for it")
            }
        }
    }

    fn key(&self, value: &str) -> Result<Key, String> {
        match &self.rule {
            Rule::Semver { range, constraint } => {
                let version = version(value).ok_or("is no semantic version with three parts")?;
                match constraint.validate(&version) {
                    Ok(()) => Ok(Key::Version(Box::new(version))),
                    Err(why) => {
                        let why = why.first().cloned().unwrap_or_default();
                        Err(format!("is not in the range '{range}': {why}"))
                    }
                }
            }
            Rule::Alphabetical(_) => Ok(Key::Text(value.to_owned())),
            Rule::Numerical(_) => number(value)
                .map(Key::Number)
                .ok_or_else(|| format!("'{value}' is no number, which fails the whole policy")),
        }
    }

    fn newest_first(&self, a: &Key, b: &Key) -> Ordering {
        let ascending = match (a, b) {
            (Key::Version(a), Key::Version(b)) => a.cmp(b),
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
            (Key::Number(a), Key::Number(b)) => a.total_cmp(b),
            _ => Ordering::Equal,
        };
        match &self.rule {
            Rule::Alphabetical(PolicyOrder::Descending) | Rule::Numerical(PolicyOrder::Descending) => {
                ascending
            }
            Rule::Semver { .. } | Rule::Alphabetical(_) | Rule::Numerical(_) => ascending.reverse(),
        }
    }
}

/// A tag and what it is ordered by.
struct Candidate<'a> {
    tag: &'a str,
    value: String,
}

enum Key {
    Version(Box<Version>),
    Text(String),
    Number(f64),
}

fn rule(choice: &ImagePolicyChoice) -> Result<Rule, String> {
    // Where several are set the first of this order counts.
    match choice {
        ImagePolicyChoice { semver: Some(semver), .. } => {
            let constraint = Constraint::parse(&semver.range).map_err(|error| error.to_string())?;
            Ok(Rule::Semver { range: semver.range.clone(), constraint })
        }
        ImagePolicyChoice { alphabetical: Some(alphabetical), .. } => {
            Ok(Rule::Alphabetical(alphabetical.order.unwrap_or_default()))
        }
        ImagePolicyChoice { numerical: Some(numerical), .. } => {
            Ok(Rule::Numerical(numerical.order.unwrap_or_default()))
        }
        _ => Err("given ImagePolicyChoice object is invalid".to_owned()),
    }
}

/// Three parts, a `v` if one likes, and zeros before a number, as versions that are dates have them.
fn version(text: &str) -> Option<Version> {
    (text.splitn(3, '.').count() == 3).then(|| Version::parse(text).ok()).flatten()
}

fn number(text: &str) -> Option<f64> {
    gotemplate::parse_float(text.as_bytes()).ok()
}

/// Of equal numbers the last counts.
fn highest_number<'a, 'b>(
    values: &'b [Candidate<'a>],
    order: PolicyOrder,
) -> Result<&'b Candidate<'a>, Error> {
    let mut best: Option<(f64, &Candidate<'a>)> = None;
    for value in values {
        let found = number(&value.value).ok_or_else(|| Error::NotANumber(value.value.clone()))?;
        let worse = best.as_ref().is_some_and(|(known, _)| match order {
            PolicyOrder::Ascending => found < *known,
            PolicyOrder::Descending => found > *known,
        });
        if !worse {
            best = Some((found, value));
        }
    }
    best.map(|(_, value)| value).ok_or(Error::Nothing)
}

impl Filter {
    fn new(filter: &TagFilter) -> Result<Self, String> {
        let pattern = filter.pattern.clone().unwrap_or_default();
        let compiled = gotemplate::compile_regex(&pattern)
            .map_err(|error| format!("invalid regular expression pattern '{pattern}': {error}"))?;
        let extract = filter.extract.clone().filter(|text| !text.is_empty());
        Ok(Self { pattern: compiled, written: pattern, extract })
    }

    /// What the tag is ordered by, if it matches.
    fn apply(&self, tag: &str) -> Option<String> {
        let Some(template) = &self.extract else {
            return self.pattern.is_match(tag).then(|| tag.to_owned());
        };
        self.pattern.captures(tag).map(|groups| expand(template, &groups))
    }
}

/// Go's `Regexp.Expand`: `$1`, `$name`, `${name}`, `$$`; a group that is not there is empty.
fn expand(template: &str, groups: &regex::Captures<'_>) -> String {
    let mut expanded = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let braced = after.strip_prefix('{');
        let start = braced.unwrap_or(after);
        let end = start.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(start.len());
        let (name, tail) = start.split_at(end);
        let tail = if braced.is_some() { tail.strip_prefix('}') } else { Some(tail) };
        let Some(tail) = tail.filter(|_| !name.is_empty()) else {
            // Malformed: Go takes the sign as it stands.
            expanded.push('$');
            rest = after;
            continue;
        };
        let group = match name.parse::<usize>() {
            Ok(number) => groups.get(number),
            Err(_) => groups.name(name),
        };
        expanded.push_str(group.map_or("", |group| group.as_str()));
        rest = tail;
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(choice: Value, filter: Value) -> Result<Policy, Error> {
        let choice: ImagePolicyChoice = serde_json::from_value(choice).unwrap();
        let filter: Option<TagFilter> = serde_json::from_value(filter).unwrap();
        Policy::new(&choice, filter.as_ref())
    }

    /// Tags as the store has them.
    fn stored(text: &str) -> Vec<String> {
        let mut tags: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        tags.sort_by(|a, b| b.cmp(a));
        tags
    }

    fn latest(choice: Value, filter: Value, tags: &str) -> String {
        match policy(choice, filter).unwrap().latest(&stored(tags)) {
            Ok(tag) => tag,
            Err(error) => format!("error: {error}"),
        }
    }

    fn semver(range: &str) -> Value {
        json!({ "semver": { "range": range } })
    }

    #[test]
    fn semver_takes_the_highest_in_the_range_and_skips_what_is_no_version() {
        let tags = "1.0.0 v1.2.0 1.10.0 2.0.0 2.1.0-rc.1 1.9 latest 1.10.0-alpine";
        assert_eq!(latest(semver("1.x"), Value::Null, tags), "1.10.0");
        assert_eq!(latest(semver(">=1.0.0"), Value::Null, tags), "2.0.0");
        assert_eq!(latest(semver(">=2.0.0-0"), Value::Null, tags), "2.1.0-rc.1");
        assert_eq!(latest(semver("1.2.x"), Value::Null, tags), "v1.2.0");
        let none = "error: unable to determine latest version from provided list";
        assert_eq!(latest(semver("9.x"), Value::Null, tags), none);
        // Equal versions: the first of the store, which has the `v`.
        assert_eq!(latest(semver("*"), Value::Null, "1.0.0 v1.0.0"), "v1.0.0");
        // Masterminds takes a leading zero in a number where versions are dates.
        assert_eq!(latest(semver("*"), Value::Null, "2025.02.03 2025.01.30"), "2025.02.03");
    }

    #[test]
    fn text_and_numbers_are_ordered_either_way() {
        let tags = "9 10 2";
        let by = |rule: &str, order: &str| latest(json!({ rule: { "order": order } }), Value::Null, tags);
        assert_eq!(by("alphabetical", "asc"), "9");
        assert_eq!(by("alphabetical", "desc"), "10");
        assert_eq!(by("numerical", "asc"), "10");
        assert_eq!(by("numerical", "desc"), "2");
        assert_eq!(latest(json!({ "numerical": {} }), Value::Null, "1e3 999 0x10p0"), "1e3");
        let bad = latest(json!({ "numerical": {} }), Value::Null, "1 v2");
        assert_eq!(bad, "error: failed to parse invalid numeric value 'v2'");
        assert_eq!(latest(json!({ "numerical": {} }), Value::Null, "1.0 1"), "1");
    }

    #[test]
    fn a_filter_drops_and_extracts_and_leads_back_to_the_tag() {
        let filter = json!({ "pattern": "^main-[a-f0-9]+-(?P<ts>[0-9]+)$", "extract": "$ts" });
        let numerical = json!({ "numerical": { "order": "asc" } });
        let tags = "main-aaa-100 main-bbb-99 dev-ccc-500 main-ddd-x";
        assert_eq!(latest(numerical.clone(), filter.clone(), tags), "main-aaa-100");
        assert_eq!(latest(numerical, filter, "dev-1"), "error: version list argument cannot be empty");
        let filter = json!({ "pattern": "^(?P<v>.*)-alpine$", "extract": "$v" });
        assert_eq!(latest(semver(">=1.0.0"), filter, "1.0.0 1.2.0-alpine 1.1.0-alpine"), "1.2.0-alpine");
        // Without extract the whole tag is ordered.
        let filter = json!({ "pattern": "^v1" });
        assert_eq!(latest(semver("*"), filter, "v1.2.0 v2.0.0"), "v1.2.0");
        // Equal extractions: the last of the store, which is the first as text.
        let filter = json!({ "pattern": "^([0-9.]+)-", "extract": "${1}" });
        assert_eq!(latest(semver("*"), filter, "1.0.0-b 1.0.0-a"), "1.0.0-a");
    }

    #[test]
    fn templates_are_expanded_as_go_expands_them() {
        let regex = Regex::new("(?P<a>x)(y)?").unwrap();
        let groups = regex.captures("x").unwrap();
        for (template, expected) in [
            ("$a", "x"),
            ("${a}b", "xb"),
            ("$ab", ""),
            ("$1$2$3", "x"),
            ("$$1", "$1"),
            ("$", "$"),
            ("${a", "${a"),
            ("${}-$-", "${}-$-"),
            ("$0!", "x!"),
        ] {
            assert_eq!(expand(template, &groups), expected, "{template}");
        }
    }

    #[test]
    fn a_policy_that_no_tag_can_satisfy_is_invalid() {
        let error = |choice: Value, filter: Value| policy(choice, filter).err().unwrap().to_string();
        assert_eq!(
            error(json!({}), Value::Null),
            "invalid policy: given ImagePolicyChoice object is invalid"
        );
        assert!(error(semver("not a range"), Value::Null).starts_with("invalid policy: improper constraint"));
        let filter = error(semver("*"), json!({ "pattern": "(" }));
        assert!(
            filter.starts_with("failed to filter tags: invalid regular expression pattern '(': "),
            "{filter}"
        );
        // The first of semver, alphabetical, numerical counts.
        let both = json!({ "numerical": {}, "semver": { "range": "1.x" } });
        assert_eq!(latest(both, Value::Null, "1.0.0 x"), "1.0.0");
    }

    #[test]
    fn every_tag_is_explained_in_order() {
        let filter = json!({ "pattern": "^v-?(.*)$", "extract": "$1" });
        let policy = policy(semver("1.x"), filter).unwrap();
        let tags = stored("v1.0.0 v1.1.0 v2.0.0 latest vnext");
        let explained = policy.explain(&tags);
        let line = |one: &Explained| match &one.fate {
            Fate::Ranked(place) => format!("{} {place}", one.tag),
            Fate::Dropped(why) => format!("{}: {why}", one.tag),
        };
        let lines: Vec<String> = explained.iter().map(line).collect();
        assert_eq!(lines[..2], ["v1.1.0 1", "v1.0.0 2"]);
        assert!(
            lines.contains(&"latest: does not match filterTags.pattern '^v-?(.*)$'".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&"vnext: is no semantic version with three parts".to_owned()), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.starts_with("v2.0.0: is not in the range '1.x': ")),
            "{lines:?}"
        );
        assert_eq!(policy.latest(&tags).unwrap(), "v1.1.0");
        assert_eq!(explained.len(), tags.len());
    }

    #[test]
    fn alphabetical_over_numbers_is_doubted() {
        let doubt = |choice: Value, tags: &str| policy(choice, Value::Null).unwrap().doubt(&stored(tags));
        assert!(doubt(json!({ "alphabetical": {} }), "9 10").unwrap().contains("use numerical"));
        assert_eq!(doubt(json!({ "alphabetical": {} }), "20240101 20250101"), None);
        assert_eq!(doubt(json!({ "alphabetical": {} }), "RELEASE.1 RELEASE.10"), None);
        assert_eq!(doubt(json!({ "numerical": {} }), "9 10"), None);
    }
}
