//! An event as controllers send it: what it says, which of its metadata counts, and when it is one that was told before.

use std::collections::BTreeMap;

use flux_api::names::{COMMIT_STATUS_UPDATE, EVENT_ANNOTATION_PREFIX, EventMetadata};
use flux_api::time::Time;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

/// Decoded as Go decodes it: what is missing or null is empty, what is unknown is ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    #[serde(deserialize_with = "null_is_empty")]
    pub involved_object: Involved,
    #[serde(deserialize_with = "null_is_empty")]
    pub severity: String,
    pub timestamp: Option<Time>,
    #[serde(deserialize_with = "null_is_empty")]
    pub message: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub reason: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub reporting_controller: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub reporting_instance: String,
}

/// The object it happened to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Involved {
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl Event {
    pub fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        // Go reads null as nothing, and a list, which serde would take for the fields in order, not at all.
        match body.trim_ascii_start().first() {
            Some(b'{') => serde_json::from_slice(body),
            _ => serde_json::from_slice(body).map(|(): ()| Self::default()),
        }
    }

    /// The body that forwards it.
    pub fn to_json(&self) -> Vec<u8> {
        // Strings and a map of strings: nothing in it can fail to be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn is_error(&self) -> bool {
        self.severity == "error"
    }

    /// The API group of the object; empty for Kubernetes' own.
    pub fn group(&self) -> &str {
        self.involved_object.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// What the controller said under `<group>/<key>`.
    pub fn said(&self, key: EventMetadata) -> Option<&str> {
        self.metadata.get(&key.key(self.group())).map(String::as_str)
    }

    /// What the object's annotations said under `event.toolkit.fluxcd.io/<key>`.
    pub fn annotated(&self, key: EventMetadata) -> Option<&str> {
        let found = self.metadata.get(&format!("{EVENT_ANNOTATION_PREFIX}{key}"));
        found.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A commit status is to be written although nothing changed.
    pub fn is_commit_status_update(&self) -> bool {
        self.said(EventMetadata::CommitStatus) == Some(COMMIT_STATUS_UPDATE)
    }

    /// Keeps the metadata of the event group and of the object's group; checksums are nobody's news.
    pub fn clean(&mut self) {
        let own = format!("{}/", self.group());
        let excluded = [EventMetadata::Checksum, EventMetadata::Digest].map(|key| key.key(self.group()));
        self.metadata.retain(|key, _| {
            let known = key.starts_with(EVENT_ANNOTATION_PREFIX) || key.starts_with(&own);
            known && !excluded.iter().any(|excluded| excluded.eq_ignore_ascii_case(key))
        });
    }

    /// What makes two events the same one. Reason and severity are not part of it, as upstream.
    pub fn identity(&self) -> [u8; 32] {
        let object = &self.involved_object;
        let mut text = format!(
            "event/name={}/namespace={}/kind={}/message={}",
            object.name, object.namespace, object.kind, self.message
        );
        for key in [EventMetadata::OriginRevision, EventMetadata::Revision, EventMetadata::Token] {
            if let Some(value) = self.said(key) {
                text.push_str(&format!("/{key}={value}"));
            }
        }
        Sha256::digest(text.as_bytes()).into()
    }

    /// The token only tells equal events apart; it is never sent on.
    pub fn forget_token(&mut self) {
        let key = EventMetadata::Token.key(self.group());
        self.metadata.remove(&key);
    }

    /// `kind/name.namespace`, as chats show it.
    pub fn title(&self) -> String {
        let object = &self.involved_object;
        format!("{}/{}.{}", object.kind.to_lowercase(), object.name, object.namespace)
    }

    /// `Kind/namespace/name`, as our own events name it.
    pub fn object(&self) -> String {
        let object = &self.involved_object;
        format!("{}/{}/{}", object.kind, object.namespace, object.name)
    }

    /// RFC 3339, or the zero time that Go writes for none.
    pub fn time(&self) -> String {
        self.timestamp.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |time| time.to_string())
    }

    pub fn unix_time(&self) -> i64 {
        self.timestamp.map_or(-62_135_596_800, |time| time.timestamp().as_second())
    }

    /// `kustomization/apps` and `reconciliation succeeded`.
    pub fn name_and_description(&self) -> (String, String) {
        let name = format!("{}/{}", self.involved_object.kind, self.involved_object.name);
        (name.to_lowercase(), camel_case_words(&self.reason).join(" ").to_lowercase())
    }
}

/// `HTTPServerFailed2` → `HTTP`, `Server`, `Failed`, `2`.
fn camel_case_words(text: &str) -> Vec<String> {
    #[derive(Clone, Copy, PartialEq)]
    enum Class {
        Lower,
        Upper,
        Digit,
        Other,
    }
    let class = |letter: char| match letter {
        _ if letter.is_lowercase() => Class::Lower,
        _ if letter.is_uppercase() => Class::Upper,
        _ if letter.is_numeric() => Class::Digit,
        _ => Class::Other,
    };
    let mut words: Vec<(Class, String)> = Vec::new();
    for letter in text.chars() {
        match words.last_mut() {
            Some((last, word)) if *last == class(letter) => word.push(letter),
            _ => words.push((class(letter), letter.to_string())),
        }
    }
    for index in 1..words.len() {
        if words[index - 1].0 == Class::Upper && words[index].0 == Class::Lower {
            let capital = words[index - 1].1.pop();
            words[index].1.insert_str(0, &capital.map(String::from).unwrap_or_default());
        }
    }
    words.into_iter().map(|(_, word)| word).filter(|word| !word.is_empty()).collect()
}

fn null_is_empty<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
pub(super) fn example() -> Event {
    Event::parse(
        br#"{
            "involvedObject": { "kind": "GitRepository", "namespace": "gitops-system", "name": "webapp", "uid": "1a2b-3c4d",
                "apiVersion": "source.toolkit.fluxcd.io/v1", "resourceVersion": "7" },
            "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "message": "message", "reason": "ArtifactFailed",
            "metadata": { "test": "metadata", "summary": "A & B" },
            "reportingController": "source-controller", "reportingInstance": "source-controller-xyz"
        }"#,
    )
    .unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_null_is_empty_and_what_is_no_event_is_an_error() {
        let event =
            Event::parse(br#"{"involvedObject":null,"message":null,"metadata":null,"more":[1]}"#).unwrap();
        assert_eq!(event, Event::default());
        assert_eq!(event.time(), "0001-01-01T00:00:00Z");
        for bad in [&b""[..], b"[]", b"{\"severity\": 1}", b"{\"timestamp\": \"noon\"}", b"\xff", b"{"] {
            assert!(Event::parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn it_is_forwarded_with_upstreams_fields() {
        let text = String::from_utf8(example().to_json()).unwrap();
        assert!(text.starts_with(r#"{"involvedObject":{"kind":"GitRepository","namespace":"gitops-system""#));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["timestamp"], "2026-01-02T03:04:05Z");
        assert_eq!(value["reportingController"], "source-controller");
        let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys.len(), 8, "{keys:?}");
    }

    fn with(metadata: &[(&str, &str)]) -> Event {
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Event { metadata, ..example() }
    }

    #[test]
    fn only_metadata_of_the_two_groups_counts() {
        let mut event = with(&[
            ("source.toolkit.fluxcd.io/revision", "r"),
            ("source.toolkit.fluxcd.io/checksum", "c"),
            ("source.toolkit.fluxcd.io/Digest", "d"),
            ("event.toolkit.fluxcd.io/digest", "kept"),
            ("kustomize.toolkit.fluxcd.io/revision", "foreign"),
            ("plain", "x"),
        ]);
        event.clean();
        let keys: Vec<_> = event.metadata.keys().map(String::as_str).collect();
        assert_eq!(keys, ["event.toolkit.fluxcd.io/digest", "source.toolkit.fluxcd.io/revision"]);
    }

    #[test]
    fn the_same_event_is_known_again_whatever_its_reason() {
        let one = example();
        let other = Event { reason: "Other".to_owned(), severity: "error".to_owned(), ..example() };
        assert_eq!(one.identity(), other.identity());
        assert_ne!(one.identity(), Event { message: "m2".to_owned(), ..example() }.identity());
        let revision = with(&[("source.toolkit.fluxcd.io/revision", "main@sha1:1")]);
        let token = with(&[
            ("source.toolkit.fluxcd.io/revision", "main@sha1:1"),
            ("source.toolkit.fluxcd.io/token", "t"),
        ]);
        assert_ne!(one.identity(), revision.identity());
        assert_ne!(revision.identity(), token.identity());
        let mut token = token;
        token.forget_token();
        assert_eq!(token, revision);
        let expected =
            Sha256::digest(b"event/name=webapp/namespace=gitops-system/kind=GitRepository/message=message");
        assert_eq!(one.identity()[..], expected[..]);
    }

    #[test]
    fn a_reason_reads_as_words() {
        for (reason, words) in [
            ("ReconciliationSucceeded", "reconciliation succeeded"),
            ("HTTPServerFailed", "http server failed"),
            ("Helm3Failed", "helm 3 failed"),
            ("", ""),
            ("ÄußerstFalsch", "äußerst falsch"),
        ] {
            assert_eq!(camel_case_words(reason).join(" ").to_lowercase(), words);
        }
    }
}
