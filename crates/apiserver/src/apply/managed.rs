//! `metadata.managedFields`: who owns what, read from and written to the object.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::path::{go_json, go_quote};
use super::set::{BadFields, Set};

/// Update managers beyond this many are merged into `ancient-changes`, oldest first.
const MAX_UPDATE_MANAGERS: usize = 10;

/// Owners by identifier, in the order Kubernetes sorts them.
pub(super) type Owners = BTreeMap<Manager, Owned>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

/// Who: an applier is the same one in every version, an updater is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for an applier.
    pub api_version: String,
    pub subresource: String,
}

/// What.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    pub(super) set: Set,
    pub(super) api_version: String,
    pub(super) time: Option<String>,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

impl Manager {
    /// Upstream's map key, which decides the order of conflicts.
    fn identifier(&self) -> String {
        let text = |value: &str| go_json(&value.into());
        let mut parts = Vec::new();
        if !self.name.is_empty() {
            parts.push(format!("\"manager\":{}", text(&self.name)));
        }
        parts.push(format!("\"operation\":\"{}\"", self.operation.name()));
        if !self.api_version.is_empty() {
            parts.push(format!("\"apiVersion\":{}", text(&self.api_version)));
        }
        if !self.subresource.is_empty() {
            parts.push(format!("\"subresource\":{}", text(&self.subresource)));
        }
        format!("{{{}}}", parts.join(","))
    }

    /// As a conflict names it: `"kubectl" with subresource "scale" using apps/v1`.
    pub fn describe(&self) -> String {
        let mut out = go_quote(&self.name);
        if !self.subresource.is_empty() {
            out += &format!(" with subresource {}", go_quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            out += &format!(" using {}", self.api_version);
        }
        out
    }
}

impl Ord for Manager {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.identifier().cmp(&other.identifier())
    }
}

impl PartialOrd for Manager {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Why `managedFields` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadManagedFields {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    #[error("error decoding set: {0}")]
    Fields(#[from] BadFields),
    #[error("managedFields is not a list of objects")]
    NotAList,
}

/// Reads `managedFields`.
pub(super) fn decode(entries: Option<&Value>) -> Result<Owners, BadManagedFields> {
    let entries = match entries {
        None | Some(Value::Null) => return Ok(Owners::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadManagedFields::NotAList),
    };
    let mut owners = Owners::new();
    for (index, entry) in entries.iter().enumerate() {
        let text = |key: &str| entry[key].as_str().unwrap_or("").to_owned();
        let operation = match entry["operation"].as_str() {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err(BadManagedFields::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(BadManagedFields::ApiVersion);
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(BadManagedFields::NoFieldsType(index)),
            other => return Err(BadManagedFields::FieldsType(other.to_owned(), index)),
        }
        let set = match entry.get("fieldsV1") {
            None | Some(Value::Null) => Set::default(),
            Some(fields) => Set::from_fields(fields)?,
        };
        let manager = Manager {
            name: text("manager"),
            operation,
            api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
            subresource: text("subresource"),
        };
        let time = entry["time"].as_str().map(str::to_owned);
        owners.insert(manager, Owned { set, api_version, time });
    }
    Ok(owners)
}

/// Writes `managedFields`, sorted as Kubernetes sorts it; none when nobody owns anything.
pub(super) fn encode(owners: &Owners) -> Option<Value> {
    if owners.is_empty() {
        return None;
    }
    let mut entries: Vec<(&Manager, &Owned)> = owners.iter().collect();
    entries.sort_by_key(|(manager, owned)| {
        (
            manager.operation,
            seconds(owned.time.as_deref()),
            &manager.name,
            &owned.api_version,
            &manager.subresource,
        )
    });
    Some(entries.into_iter().map(|(manager, owned)| encode_entry(manager, owned)).collect())
}

fn encode_entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            entry.insert(key.to_owned(), value.into());
        }
    };
    put("manager", &manager.name);
    put("operation", manager.operation.name());
    put("apiVersion", &owned.api_version);
    put("time", owned.time.as_deref().unwrap_or(""));
    put("fieldsType", "FieldsV1");
    put("subresource", &manager.subresource);
    entry.insert("fieldsV1".to_owned(), owned.set.to_fields());
    Value::Object(entry)
}

fn seconds(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<jiff::Timestamp>().ok()).map_or(0, |time| time.as_second())
}

/// Merges the oldest update managers of each version until there are few enough.
pub(super) fn cap_updaters(owners: &mut Owners) {
    let mut updaters: Vec<Manager> =
        owners.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
    if updaters.len() <= MAX_UPDATE_MANAGERS {
        return;
    }
    updaters.sort_by_cached_key(|manager| (seconds(owners[manager].time.as_deref()), manager.identifier()));
    let mut excess = updaters.len() - MAX_UPDATE_MANAGERS;
    let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
    for manager in updaters {
        if excess == 0 {
            return;
        }
        let Some(owned) = owners.get(&manager).cloned() else { continue };
        let Some(first) = first_of_version.get(&owned.api_version) else {
            first_of_version.insert(owned.api_version.clone(), manager);
            continue;
        };
        let bucket = Manager {
            name: "ancient-changes".to_owned(),
            operation: Operation::Update,
            api_version: owned.api_version.clone(),
            subresource: String::new(),
        };
        if !owners.contains_key(&bucket)
            && let Some(moved) = owners.remove(first)
        {
            owners.insert(bucket.clone(), moved);
        }
        owners.remove(&manager);
        if let Some(into) = owners.get_mut(&bucket) {
            into.set = owned.set.union(&into.set);
            // The newer time of the two.
            into.time = owned.time;
        }
        excess -= 1;
    }
}

/// Whether the request asks to forget all ownership: an empty list, or a list of one empty entry.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    match entries {
        Some(Value::Array(entries)) if entries.is_empty() => true,
        Some(Value::Array(entries)) => *entries == [json!({})],
        _ => false,
    }
}
