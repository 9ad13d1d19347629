//! Whether an image is to be scanned now, and what of a list of tags is kept. Pure.

use std::time::Duration;

use flux_api::image::{ImageRepositorySpec, ImageRepositoryStatus};
use flux_remote::oci::Repository;
use k8s_openapi::jiff::Timestamp;

/// How many tags the status shows.
const SHOWN: usize = 10;
const LONGEST_TAG: usize = 128;
/// What is left of the interval counts as over below this.
const AS_GOOD_AS_DUE: Duration = Duration::from_secs(1);

/// Why a scan is made, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    First,
    Requested,
    NewImageName,
    NewExclusionList,
    NoTags,
    /// Ours: upstream takes a failed scan that was asked for as done, and says that all is well.
    LastFailed,
    Interval,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::First => "first scan",
            Reason::Requested => "reconcile requested",
            Reason::NewImageName => "new image name",
            Reason::NewExclusionList => "updated exclusion list",
            Reason::NoTags => "no tags in database",
            Reason::LastFailed => "last scan failed",
            Reason::Interval => "triggered by interval",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Now(Reason),
    In(Duration),
}

/// What the decision is made of besides the object.
pub struct Seen<'a> {
    /// The image's full name.
    pub canonical: &'a str,
    /// The value of the annotation that asks for a reconcile.
    pub request: Option<&'a str>,
    pub has_tags: bool,
    /// Whether the last scan came to nothing.
    pub failed: bool,
    pub now: Timestamp,
}

pub fn due(spec: &ImageRepositorySpec, status: &ImageRepositoryStatus, seen: &Seen<'_>) -> Due {
    let Some(last) = &status.last_scan_result else { return Due::Now(Reason::First) };
    if seen.request.is_some_and(|request| status.last_handled_reconcile_at.as_deref() != Some(request)) {
        return Due::Now(Reason::Requested);
    }
    if status.canonical_image_name.as_deref() != Some(seen.canonical) {
        return Due::Now(Reason::NewImageName);
    }
    let (wanted, observed) = (spec.exclusion_list(), &status.observed_exclusion_list);
    if wanted.len() != observed.len() || !wanted.iter().all(|pattern| observed.contains(pattern)) {
        return Due::Now(Reason::NewExclusionList);
    }
    if !seen.has_tags {
        return Due::Now(Reason::NoTags);
    }
    if seen.failed {
        return Due::Now(Reason::LastFailed);
    }
    let since = last.scan_time.map(|time| seen.now.duration_since(time.timestamp()));
    // A clock that went back is no reason to wait longer than the interval.
    let since = since.map_or(Duration::MAX, |since| Duration::try_from(since).unwrap_or_default());
    match spec.interval.to_std().checked_sub(since) {
        Some(left) if left >= AS_GOOD_AS_DUE => Due::In(left),
        _ => Due::Now(Reason::Interval),
    }
}

/// The repository of an image that is named without scheme and tag.
pub fn image(image: &str, insecure: bool) -> Result<Repository, String> {
    if let Some((scheme, _)) = image.split_once("://") {
        return Err(format!("image '{image}' should not include URL scheme; remove '{scheme}://'"));
    }
    let name = match image.split_once('/') {
        Some((registry, name)) if registry.contains(['.', ':']) || registry == "localhost" => name,
        _ => image,
    };
    if let Some(tag) = name.split(':').nth(1) {
        return Err(format!("image '{image}' should not include a tag; remove ':{tag}'"));
    }
    Repository::parse(image, insecure).map_err(|_| format!("could not parse reference: {image}"))
}

/// What is left of a registry's list.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// Highest first, in the order of text.
    pub tags: Vec<String>,
    /// How many were no tags at all by the registry's own specification.
    pub malformed: usize,
}

impl Kept {
    pub fn latest(&self) -> Vec<String> {
        self.tags.iter().take(SHOWN).cloned().collect()
    }
}

/// Leaves out what the patterns exclude. Upstream keeps malformed names and fails later, at the first commit.
pub fn keep(tags: Vec<String>, exclusions: &[String]) -> Result<Kept, String> {
    let mut patterns = Vec::new();
    for pattern in exclusions {
        let compiled = gotemplate::compile_regex(pattern)
            .map_err(|error| format!("failed to compile regex {pattern}: {error}"))?;
        patterns.push(compiled);
    }
    let count = tags.len();
    let mut kept: Vec<String> = tags.into_iter().filter(|tag| is_tag(tag)).collect();
    let malformed = count - kept.len();
    kept.retain(|tag| !patterns.iter().any(|pattern| pattern.is_match(tag)));
    kept.sort_unstable_by(|a, b| b.cmp(a));
    kept.shrink_to_fit();
    Ok(Kept { tags: kept, malformed })
}

/// Whether the OCI distribution specification lets it be a tag: what is not could break a line, a path or a file.
pub fn is_tag(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = text.bytes();
    text.len() <= LONGEST_TAG
        && bytes.next().is_some_and(letter)
        && bytes.all(|byte| letter(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_api::image::ScanResult;
    use flux_api::time::Time;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn spec() -> ImageRepositorySpec {
        serde_json::from_value(serde_json::json!({ "image": "x/y", "interval": "1h" })).unwrap()
    }

    fn scanned() -> ImageRepositoryStatus {
        ImageRepositoryStatus {
            canonical_image_name: Some("index.docker.io/x/y".into()),
            observed_exclusion_list: spec().exclusion_list(),
            last_scan_result: Some(ScanResult {
                revision: None,
                tag_count: 1,
                scan_time: Some(Time::new(at("2026-01-01T00:00:00Z"))),
                latest_tags: Vec::new(),
            }),
            last_handled_reconcile_at: Some("then".into()),
            ..Default::default()
        }
    }

    fn seen(now: &str) -> Seen<'static> {
        Seen {
            canonical: "index.docker.io/x/y",
            request: Some("then"),
            has_tags: true,
            failed: false,
            now: at(now),
        }
    }

    #[test]
    fn a_scan_is_made_for_one_of_seven_reasons_in_this_order() {
        let (early, late) = ("2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z");
        let status = scanned();
        let judge = |status: &ImageRepositoryStatus, seen: Seen<'_>| due(&spec(), status, &seen);
        assert_eq!(judge(&ImageRepositoryStatus::default(), seen(early)), Due::Now(Reason::First));
        let requested = Seen { request: Some("now"), canonical: "other", ..seen(early) };
        assert_eq!(judge(&status, requested), Due::Now(Reason::Requested));
        let other = Seen { canonical: "index.docker.io/x/z", has_tags: false, ..seen(early) };
        assert_eq!(judge(&status, other), Due::Now(Reason::NewImageName));
        let changed = ImageRepositoryStatus { observed_exclusion_list: vec!["x".into()], ..scanned() };
        assert_eq!(judge(&changed, seen(early)), Due::Now(Reason::NewExclusionList));
        assert_eq!(judge(&status, Seen { has_tags: false, ..seen(early) }), Due::Now(Reason::NoTags));
        assert_eq!(judge(&status, Seen { failed: true, ..seen(early) }), Due::Now(Reason::LastFailed));
        assert_eq!(judge(&status, seen(late)), Due::Now(Reason::Interval));
        assert_eq!(judge(&status, seen("2026-01-01T00:59:59.5Z")), Due::Now(Reason::Interval));
        assert_eq!(judge(&status, seen(early)), Due::In(Duration::from_secs(1800)));
        assert_eq!(judge(&status, seen("2025-12-31T00:00:00Z")), Due::In(Duration::from_secs(3600)));
        assert_eq!(judge(&status, Seen { request: None, ..seen(early) }), Due::In(Duration::from_secs(1800)));
    }

    #[test]
    fn an_image_has_neither_scheme_nor_tag() {
        let name = |text: &str| image(text, false).map(|repository| repository.to_string());
        assert_eq!(name("nginx").unwrap(), "index.docker.io/library/nginx");
        assert_eq!(name("localhost:5000/app").unwrap(), "localhost:5000/app");
        for (text, problem) in [
            (
                "https://ghcr.io/a",
                "image 'https://ghcr.io/a' should not include URL scheme; remove 'https://'",
            ),
            ("ghcr.io/a/b:v1", "image 'ghcr.io/a/b:v1' should not include a tag; remove ':v1'"),
            ("nginx:1", "image 'nginx:1' should not include a tag; remove ':1'"),
            ("ghcr.io/Not/Ok", "could not parse reference: ghcr.io/Not/Ok"),
            ("ghcr.io/a/../b", "could not parse reference: ghcr.io/a/../b"),
        ] {
            assert_eq!(name(text).unwrap_err(), problem);
        }
    }

    #[test]
    fn excluded_and_malformed_tags_are_left_out_and_the_rest_is_in_reverse_order() {
        let tags = |list: &[&str]| list.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        let long = "x".repeat(129);
        let list = tags(&["1.0.0", "sha256-abc.sig", "2.0.0", "10.0.0", "a\nb", "", "../x", "-a", &long]);
        let kept = keep(list, &spec().exclusion_list()).unwrap();
        assert_eq!(kept.tags, tags(&["2.0.0", "10.0.0", "1.0.0"]));
        assert_eq!(kept.malformed, 5);
        let many = keep((0..100).map(|n| format!("t{n}")).collect(), &[]).unwrap();
        assert_eq!((many.latest().len(), many.latest()[0].as_str()), (10, "t99"));
        let error = keep(Vec::new(), &tags(&["(["])).unwrap_err();
        assert!(error.starts_with("failed to compile regex ([: error parsing regexp: "), "{error}");
    }

    #[test]
    fn a_regular_expression_that_would_grow_without_end_is_refused() {
        assert!(keep(Vec::new(), &["((a{1,1000}){1,1000}){1,1000}".to_owned()]).is_err());
        let slow = keep(vec!["a".repeat(128)], &["(a*)*(a*)*(a*)*b$".to_owned()]);
        assert_eq!(slow.unwrap().tags.len(), 1);
    }
}
