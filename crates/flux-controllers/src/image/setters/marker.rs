//! `# {"$imagepolicy": "namespace:policy[:tag|:name|:digest]"}`: the grammar, as upstream reads it.
//!
//! A marker is a comment that is one JSON object of texts with the key `$imagepolicy`, and stands at the end of a
//! scalar's line or, for an entry of a list, on the line above. Anything else is not acted on, and what looks like an
//! attempt is explained.

use std::collections::BTreeMap;

const KEY: &str = "$imagepolicy";

/// What a comment is.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// Has nothing to do with images.
    Comment,
    /// `namespace:policy`, perhaps with a part.
    Marker(String),
    /// Was meant to be a marker.
    Malformed(String),
}

/// Reads the comments of a scalar: the one at the end of its line, else the one above.
pub fn read(line: &str, head: &str) -> Read {
    // Of two comments only the first counts, even if it is none of ours.
    let comment = if line.is_empty() { head } else { line };
    if !comment.contains(KEY) {
        return Read::Comment;
    }
    let text = comment.trim_start_matches('#').trim();
    if comment == head && line.is_empty() && !text.starts_with('{') {
        return Read::Comment;
    }
    let object: BTreeMap<String, String> = match serde_json::from_str(text) {
        Ok(object) => object,
        Err(_) => {
            return Read::Malformed(format!(
                "write exactly {{\"{KEY}\": \"<namespace>:<policy>\"}}: the comment is not one JSON object of texts"
            ));
        }
    };
    match object.get(KEY).map(String::as_str) {
        None | Some("") => Read::Malformed(format!("it names no policy: \"{KEY}\" is missing or empty")),
        Some(name) => match problem(name) {
            None => Read::Marker(name.to_owned()),
            Some(problem) => Read::Malformed(format!("'{name}' {problem}")),
        },
    }
}

/// Whether a comment that is not on a scalar was meant to be a marker.
pub fn is_misplaced(comment: &str) -> bool {
    comment.lines().any(|line| {
        let text = line.trim_start_matches(['#', ' ', '\t']);
        text.starts_with('{') && text.contains(KEY)
    })
}

fn problem(name: &str) -> Option<&'static str> {
    let mut parts = name.split(':');
    let (namespace, policy, part, more) = (parts.next(), parts.next(), parts.next(), parts.next());
    let empty = |part: Option<&str>| part.is_none_or(str::is_empty);
    if policy.is_none() {
        return Some("lacks the namespace: write <namespace>:<policy>");
    }
    if empty(namespace) || empty(policy) || more.is_some() || name.contains(char::is_whitespace) {
        return Some("is not <namespace>:<policy>, perhaps with :tag, :name or :digest");
    }
    match part {
        None | Some("tag" | "name" | "digest") => None,
        Some(_) => Some("ends in something other than :tag, :name or :digest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(text: &str) -> Read {
        Read::Marker(text.to_owned())
    }

    #[test]
    fn the_grammar() {
        for (comment, expected) in [
            (r##"# {"$imagepolicy": "ns:app"}"##, "ns:app"),
            (r##"#{"$imagepolicy":"ns:app:tag"}"##, "ns:app:tag"),
            (r##"## { "$imagepolicy" : "ns:app:name" }"##, "ns:app:name"),
            (r##"# {"$imagepolicy": "ns:app:digest", "note": "x"}"##, "ns:app:digest"),
            ("#\t{\"$imagepolicy\": \"ns:app\"}\r", "ns:app"),
        ] {
            assert_eq!(read(comment, ""), marker(expected), "{comment}");
        }
        // Above an entry of a list.
        assert_eq!(read("", r##"# {"$imagepolicy": "ns:app"}"##), marker("ns:app"));
        // Of two comments the one on the line counts.
        assert_eq!(read("# mine", r##"# {"$imagepolicy": "ns:app"}"##), Read::Comment);
    }

    #[test]
    fn what_was_meant_to_be_a_marker_is_explained() {
        for (comment, problem) in [
            (r##"# {"$imagepolicy": "ns:app""##, "not one JSON object"),
            (r##"# {'$imagepolicy': 'ns:app'}"##, "not one JSON object"),
            (r##"# {"$imagepolicy": "ns:app"} please"##, "not one JSON object"),
            (r##"# see {"$imagepolicy": "ns:app"}"##, "not one JSON object"),
            (r##"# {"$imagepolicy": 1}"##, "not one JSON object"),
            (r##"# {"$imagepolicy": "ns:app", "n": 1}"##, "not one JSON object"),
            (r##"# {"$imagepolicy": ""}"##, "names no policy"),
            (r##"# {"$imagepolicy": "app"}"##, "lacks the namespace"),
            (r##"# {"$imagepolicy": "ns:app:version"}"##, "ends in something other than"),
            (r##"# {"$imagepolicy": "ns:app:tag:tag"}"##, "is not <namespace>:<policy>"),
            (r##"# {"$imagepolicy": ":app"}"##, "is not <namespace>:<policy>"),
            (r##"# {"$imagepolicy": "ns: app"}"##, "is not <namespace>:<policy>"),
        ] {
            match read(comment, "") {
                Read::Malformed(found) => assert!(found.contains(problem), "{comment}: {found}"),
                other => panic!("{comment}: {other:?}"),
            }
        }
        assert_eq!(read("# an ordinary comment", ""), Read::Comment);
        assert_eq!(read("", "# image: x # {\"$imagepolicy\": \"ns:app\"}"), Read::Comment);
        assert!(is_misplaced("# {\"$imagepolicy\": \"ns:app\"}"));
        assert!(!is_misplaced("# image: x # {\"$imagepolicy\": \"ns:app\"}"));
    }
}
