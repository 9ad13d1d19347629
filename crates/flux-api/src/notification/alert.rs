//! Alert: which events are sent to a Provider.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::kinds;
use crate::meta::LocalReference;
use crate::notification::FluxKind;
use crate::object::stateless_object;

stateless_object!(Alert, kinds::ALERT, AlertSpec);

/// Which events to send where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertSpec {
    /// The Provider to send to.
    pub provider_ref: LocalReference,
    /// info sends everything, error only failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "info"))]
    pub event_severity: Option<EventSeverity>,
    /// The objects whose events are sent.
    pub event_sources: Vec<EventSource>,
    /// Regular expressions; only events whose message matches one of them are sent. All if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inclusion_list: Vec<String>,
    /// More to say in each notification, such as the name of the cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub event_metadata: BTreeMap<String, String>,
    /// Regular expressions; events whose message matches one of them are not sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusion_list: Vec<String>,
    /// A sentence to add to each notification. Deprecated: use a summary key in eventMetadata.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 255))]
    pub summary: Option<String>,
    /// Stops sending.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
}

/// Objects by kind, name and labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventSource {
    /// apiVersion of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub api_version: Option<String>,
    /// Kind of the objects.
    pub kind: FluxKind,
    /// Name of the object, or * for all.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the objects; the one of the referring object if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// Labels the objects must have. Only with the name *.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

impl AlertSpec {
    /// What is sent.
    pub fn event_severity(&self) -> EventSeverity {
        self.event_severity.unwrap_or(EventSeverity::Info)
    }
}

closed_set! {
    /// How bad an event is.
    pub enum EventSeverity {
        /// Something happened.
        Info = "info",
        /// Something failed.
        Error = "error",
    }
}
