//! Times as Kubernetes writes them in objects: RFC 3339, UTC, whole seconds. Reads no clock: the time is always an argument.

use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment, to the second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// The moment, cut to its second as Kubernetes does.
    pub fn new(moment: Timestamp) -> Self {
        Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
    }

    /// As a timestamp.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl From<Timestamp> for Time {
    fn from(moment: Timestamp) -> Self {
        Time::new(moment)
    }
}

impl From<Time> for k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    fn from(time: Time) -> Self {
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let moment: Timestamp = text
            .parse()
            .map_err(|error| serde::de::Error::custom(format!("invalid time {text:?}: {error}")))?;
        Ok(Time::new(moment))
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_to_the_second() {
        let time: Time = serde_json::from_str("\"2026-01-02T03:04:05.678+01:00\"").unwrap();
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-01-02T02:04:05Z\"");
        assert!(serde_json::from_str::<Time>("\"yesterday\"").is_err());
    }
}
