//! Semantic versions: strict and coerced parsing, order, increments.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::quote::go_quote;
use crate::scan::{Parts, version_prefix};

/// Longer strings are refused, as Masterminds does.
const MAX_LEN: usize = 256;

/// A semantic version. Equality and order follow precedence: build metadata and the original spelling do not count.
#[derive(Clone, Debug)]
pub struct Version {
    major: u64,
    minor: u64,
    patch: u64,
    pre: String,
    metadata: String,
    original: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("invalid semantic version")]
    Invalid,
    #[error("version string empty")]
    Empty,
    #[error("invalid characters in version")]
    Characters,
    #[error("version segment starts with 0")]
    LeadingZero,
    #[error("invalid metadata string")]
    Metadata,
    #[error("invalid prerelease string")]
    Prerelease,
    #[error("version string is too long (max {MAX_LEN} bytes)")]
    TooLong,
    #[error("strconv.ParseUint: parsing {}: {reason}", go_quote(.segment))]
    Number { segment: String, reason: &'static str },
    #[error("error parsing version segment: strconv.ParseUint: parsing {}: {reason}", go_quote(.segment))]
    Segment { segment: String, reason: &'static str },
}

impl Version {
    /// Parses what people write: a leading `v`, missing segments and leading zeros are accepted (Go: `semver.NewVersion`).
    pub fn parse(text: &str) -> Result<Version, VersionError> {
        if text.len() > MAX_LEN {
            return Err(VersionError::TooLong);
        }
        let parts = version_prefix(text, |b| b.is_ascii_digit())
            .filter(|p| p.len == text.len())
            .ok_or(VersionError::Invalid)?;
        Version::from_parts(text, parts)
    }

    /// Parses only what semver.org allows (Go: `semver.StrictNewVersion`).
    pub fn strict(text: &str) -> Result<Version, VersionError> {
        if text.is_empty() {
            return Err(VersionError::Empty);
        }
        if text.len() > MAX_LEN {
            return Err(VersionError::TooLong);
        }
        let mut segments = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (segments.next(), segments.next(), segments.next())
        else {
            return Err(VersionError::Invalid);
        };
        let (rest, metadata) = rest.split_once('+').map_or((rest, None), |(r, m)| (r, Some(m)));
        metadata.map_or(Ok(()), check_metadata)?;
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(r, p)| (r, Some(p)));
        pre.map_or(Ok(()), check_prerelease)?;
        for segment in [major, minor, patch] {
            check_segment(segment)?;
        }
        let number = |segment: &str| {
            number(segment).map_err(|(segment, reason)| VersionError::Number { segment, reason })
        };
        Ok(Version {
            major: number(major)?,
            minor: number(minor)?,
            patch: number(patch)?,
            pre: pre.unwrap_or_default().to_owned(),
            metadata: metadata.unwrap_or_default().to_owned(),
            original: text.to_owned(),
        })
    }

    pub fn new(major: u64, minor: u64, patch: u64) -> Version {
        Version {
            major,
            minor,
            patch,
            pre: String::new(),
            metadata: String::new(),
            original: format!("{major}.{minor}.{patch}"),
        }
    }

    pub fn major(&self) -> u64 {
        self.major
    }

    pub fn minor(&self) -> u64 {
        self.minor
    }

    pub fn patch(&self) -> u64 {
        self.patch
    }

    /// The pre-release without its dash; empty for a release.
    pub fn prerelease(&self) -> &str {
        &self.pre
    }

    /// The build metadata without its plus sign; empty when there is none.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// The string this version was parsed from, such as the tag `v1.2`.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// The next patch; a pre-release becomes its release. `None` when the number would overflow.
    pub fn next_patch(&self) -> Option<Version> {
        let patch = if self.pre.is_empty() { self.patch.checked_add(1)? } else { self.patch };
        Some(self.successor(self.major, self.minor, patch))
    }

    pub fn next_minor(&self) -> Option<Version> {
        Some(self.successor(self.major, self.minor.checked_add(1)?, 0))
    }

    pub fn next_major(&self) -> Option<Version> {
        Some(self.successor(self.major.checked_add(1)?, 0, 0))
    }

    /// The same version with another pre-release (empty removes it).
    pub fn with_prerelease(&self, pre: &str) -> Result<Version, VersionError> {
        if !pre.is_empty() {
            check_prerelease(pre)?;
        }
        let mut next = self.clone();
        next.pre = pre.to_owned();
        next.original = format!("{}{next}", self.v_prefix());
        Ok(next)
    }

    /// The same version with other build metadata (empty removes it).
    pub fn with_metadata(&self, metadata: &str) -> Result<Version, VersionError> {
        if !metadata.is_empty() {
            check_metadata(metadata)?;
        }
        let mut next = self.clone();
        next.metadata = metadata.to_owned();
        next.original = format!("{}{next}", self.v_prefix());
        Ok(next)
    }

    fn from_parts(text: &str, parts: Parts<'_>) -> Result<Version, VersionError> {
        let segment = |segment: &str| match segment {
            "" => Ok(0),
            segment => number(segment).map_err(|(segment, reason)| VersionError::Segment { segment, reason }),
        };
        let version = Version {
            major: segment(parts.major)?,
            minor: segment(parts.minor)?,
            patch: segment(parts.patch)?,
            pre: parts.pre.to_owned(),
            metadata: parts.metadata.to_owned(),
            original: text.to_owned(),
        };
        if !parts.pre.is_empty() {
            check_prerelease(parts.pre)?;
        }
        Ok(version)
    }

    fn successor(&self, major: u64, minor: u64, patch: u64) -> Version {
        let mut next = Version::new(major, minor, patch);
        next.original.insert_str(0, self.v_prefix());
        next
    }

    fn v_prefix(&self) -> &'static str {
        if self.original.starts_with('v') { "v" } else { "" }
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Version, VersionError> {
        Version::parse(text)
    }
}

/// Without a leading `v`, with all three numbers.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch)).then_with(
            || match (self.pre.as_str(), other.pre.as_str()) {
                ("", "") => Ordering::Equal,
                ("", _) => Ordering::Greater,
                (_, "") => Ordering::Less,
                (a, b) => compare_prereleases(a, b),
            },
        )
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Version) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.major, self.minor, self.patch, &self.pre).hash(state);
    }
}

/// A missing part is lower than any other, numbers are lower than text. A number beyond 64 bits counts as text, as in Go.
pub(crate) fn compare_prereleases(a: &str, b: &str) -> Ordering {
    let mut left = a.split('.');
    let mut right = b.split('.');
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (a, b) => compare_identifiers(a.unwrap_or_default(), b.unwrap_or_default()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn compare_identifiers(a: &str, b: &str) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return a.len().min(1).cmp(&b.len().min(1));
    }
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(x), Ok(y)) => x.cmp(&y),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

fn number(segment: &str) -> Result<u64, (String, &'static str)> {
    segment.parse().map_err(|_| {
        (segment.to_owned(), if segment.is_empty() { "invalid syntax" } else { "value out of range" })
    })
}

fn check_segment(segment: &str) -> Result<(), VersionError> {
    if !segment.bytes().all(|b| b.is_ascii_digit()) {
        return Err(VersionError::Characters);
    }
    if segment.len() > 1 && segment.starts_with('0') {
        return Err(VersionError::LeadingZero);
    }
    Ok(())
}

fn check_prerelease(pre: &str) -> Result<(), VersionError> {
    for identifier in pre.split('.') {
        if !is_identifier(identifier) {
            return Err(VersionError::Prerelease);
        }
        if identifier.len() > 1
            && identifier.starts_with('0')
            && identifier.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(VersionError::LeadingZero);
        }
    }
    Ok(())
}

fn check_metadata(metadata: &str) -> Result<(), VersionError> {
    if metadata.split('.').all(is_identifier) { Ok(()) } else { Err(VersionError::Metadata) }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precedence_follows_the_examples_of_semver_org() {
        let ascending = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
        ];
        for pair in ascending.windows(2) {
            assert!(Version::strict(pair[0]).unwrap() < Version::strict(pair[1]).unwrap(), "{pair:?}");
        }
    }

    #[test]
    fn an_increment_that_would_overflow_is_none() {
        let last = Version::parse("18446744073709551615.18446744073709551615.18446744073709551615").unwrap();
        assert!(last.next_major().is_none() && last.next_minor().is_none() && last.next_patch().is_none());
    }

    #[test]
    fn an_increment_keeps_the_leading_v_in_its_original() {
        let next = Version::parse("v1.2.3-rc.1").unwrap().next_patch().unwrap();
        assert_eq!((next.original(), next.to_string().as_str()), ("v1.2.3", "1.2.3"));
    }

    #[test]
    fn an_empty_segment_is_named_in_the_strict_error() {
        assert_eq!(
            Version::strict("1..3").unwrap_err().to_string(),
            "strconv.ParseUint: parsing \"\": invalid syntax"
        );
    }
}
