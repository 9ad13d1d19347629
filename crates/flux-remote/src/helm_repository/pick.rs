//! Which version of a chart a HelmChart means.

use semver_range::{Constraint, Version};
use serde::Deserialize;

/// One version of a chart, as far as it matters for fetching it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ChartVersion {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub urls: Vec<String>,
    /// When it was published: RFC 3339.
    #[serde(default)]
    pub created: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    #[error("no chart name found")]
    NoChart,
    #[error("no chart version found")]
    NoVersions,
    #[error("{0}")]
    Range(String),
    #[error("no '{name}' chart with version matching '{range}' found")]
    NoMatch { name: String, range: String },
}

/// The version that is spelled like `wanted`, or else the highest in that range; of equals the newest.
pub fn pick<'a>(
    versions: &'a [ChartVersion],
    name: &str,
    wanted: &str,
) -> Result<&'a ChartVersion, PickError> {
    if versions.is_empty() {
        return Err(PickError::NoVersions);
    }
    if let Some(exact) = versions.iter().find(|version| !wanted.is_empty() && version.version == wanted) {
        return Ok(exact);
    }
    let range = if wanted.is_empty() { "*" } else { wanted };
    let range = Constraint::parse(range).map_err(|error| PickError::Range(error.to_string()))?;
    let mut best: Option<(Version, &ChartVersion)> = None;
    for candidate in versions {
        let Some(version) = parse_version(&candidate.version) else { continue };
        if !range.check(&version) {
            continue;
        }
        let better = best.as_ref().is_none_or(|(known, other)| {
            version > *known || (version == *known && created(candidate) > created(other))
        });
        if better {
            best = Some((version, candidate));
        }
    }
    best.map(|(_, found)| found)
        .ok_or_else(|| PickError::NoMatch { name: name.to_owned(), range: wanted.to_owned() })
}

/// A whole semantic version, perhaps with a `v` before it; Flux accepts nothing shorter.
pub fn parse_version(text: &str) -> Option<Version> {
    Version::strict(text.strip_prefix('v').unwrap_or(text)).ok()
}

/// The highest of `candidates` in the range `wanted`, or the one spelled like it.
pub fn pick_tag<'a>(
    candidates: impl IntoIterator<Item = &'a str>,
    wanted: &str,
) -> Result<Option<&'a str>, String> {
    let range =
        Constraint::parse(if wanted.is_empty() { "*" } else { wanted }).map_err(|error| error.to_string())?;
    let mut best: Option<(Version, &str)> = None;
    for candidate in candidates {
        if candidate == wanted {
            return Ok(Some(candidate));
        }
        let Some(version) = parse_version(candidate).filter(|version| range.check(version)) else { continue };
        if best.as_ref().is_none_or(|(known, _)| version > *known) {
            best = Some((version, candidate));
        }
    }
    Ok(best.map(|(_, candidate)| candidate))
}

fn created(version: &ChartVersion) -> Option<jiff::Timestamp> {
    version.created.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(list: &[(&str, &str)]) -> Vec<ChartVersion> {
        let one = |(version, created): &(&str, &str)| ChartVersion {
            name: "a".to_owned(),
            version: (*version).to_owned(),
            urls: Vec::new(),
            created: (!created.is_empty()).then(|| (*created).to_owned()),
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn the_spelling_wins_then_the_range_then_the_date() {
        let list = versions(&[
            ("2.0.0-rc.1", ""),
            ("1.1.0+a", "2026-01-01T00:00:00Z"),
            ("1.1.0+b", "2026-02-01T00:00:00Z"),
            ("1.0.0", ""),
            ("odd", ""),
        ]);
        let pick = |wanted| pick(&list, "a", wanted).map(|found| found.version.as_str());
        assert_eq!(pick(""), Ok("1.1.0+b"));
        assert_eq!(pick("*"), Ok("1.1.0+b"));
        assert_eq!(pick("1.0.x"), Ok("1.0.0"));
        assert_eq!(pick("odd"), Ok("odd"));
        assert_eq!(pick(">=2.0.0-0"), Ok("2.0.0-rc.1"));
        assert_eq!(pick("3.x"), Err(PickError::NoMatch { name: "a".into(), range: "3.x".into() }));
        assert!(matches!(pick("not a range"), Err(PickError::Range(_))));
        assert_eq!(super::pick(&[], "a", "*"), Err(PickError::NoVersions));
    }
}
