//! What a notification says beside its message: the event's metadata and the Alert's, joined without prefixes.

use std::collections::BTreeMap;

use flux_api::names::EVENT_ANNOTATION_PREFIX;
use flux_api::notification::AlertSpec;

use super::event::Event;

/// The joined metadata, and the keys that came from more than one place with all of these places.
#[derive(Debug, Default, PartialEq)]
pub struct Combined {
    pub metadata: BTreeMap<String, String>,
    pub conflicts: BTreeMap<String, Vec<&'static str>>,
}

/// From lowest to highest precedence: the object's annotations, the Alert's eventMetadata, its summary, the controller.
pub fn combine(event: &Event, alert: &AlertSpec) -> Combined {
    let mut metadata = BTreeMap::new();
    let mut places: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let mut add = |key: &str, value: &str, place: &'static str| {
        metadata.insert(key.to_owned(), value.to_owned());
        places.entry(key.to_owned()).or_default().push(place);
    };
    let own = format!("{}/", event.group());
    let of = |prefix: &str| {
        let prefix = prefix.to_owned();
        event.metadata.iter().filter_map(move |(key, value)| Some((key.strip_prefix(&prefix)?, value)))
    };
    for (key, value) in of(EVENT_ANNOTATION_PREFIX) {
        add(key, value, "involved object annotations");
    }
    for (key, value) in &alert.event_metadata {
        add(key, value, "Alert object .spec.eventMetadata");
    }
    if let Some(summary) = &alert.summary {
        add("summary", summary, "Alert object .spec.summary");
    }
    for (key, value) in of(&own) {
        add(key, value, "involved object controller metadata");
    }
    places.retain(|_, places| places.len() > 1);
    Combined { metadata, conflicts: places }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;

    #[test]
    fn the_controller_wins_and_conflicts_are_told() {
        let mut event = example();
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        event.metadata = [
            ("event.toolkit.fluxcd.io/summary", "from the object"),
            ("event.toolkit.fluxcd.io/team", "a"),
            ("source.toolkit.fluxcd.io/revision", "main@sha1:1"),
            ("source.toolkit.fluxcd.io/team", "controller"),
        ]
        .map(text)
        .into();
        let alert = AlertSpec {
            event_metadata: [("summary", "from the alert"), ("cluster", "one")].map(text).into(),
            summary: Some("deprecated".to_owned()),
            ..AlertSpec::default()
        };
        let combined = combine(&event, &alert);
        let expected = [
            ("cluster", "one"),
            ("revision", "main@sha1:1"),
            ("summary", "deprecated"),
            ("team", "controller"),
        ];
        assert_eq!(combined.metadata, expected.map(text).into());
        assert_eq!(combined.conflicts.keys().collect::<Vec<_>>(), ["summary", "team"]);
        assert_eq!(
            combined.conflicts["summary"],
            ["involved object annotations", "Alert object .spec.eventMetadata", "Alert object .spec.summary"]
        );
        assert!(combine(&example(), &AlertSpec::default()).conflicts.is_empty());
    }
}
