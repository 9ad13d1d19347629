//! RFC 3339 as sops reads and writes it.

use ::yaml::resolve::Timestamp;

/// `time.Parse(time.RFC3339, …)`. go-yaml's leniency (dates alone, `t`, spaces) is not wanted here.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, expected)| bytes.get(*at) != Some(expected)) {
        return None;
    }
    Timestamp::parse(text)
}

/// `Format(time.RFC3339)`: without the fraction.
pub(crate) fn to_seconds(time: &Timestamp) -> String {
    Timestamp { nanosecond: 0, ..*time }.to_string()
}
