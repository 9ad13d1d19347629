//! Reading one object or a list of them: selectors, paging, and which revision is asked for.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use super::Call;
use crate::request::Query;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{Cause, Status};
use crate::storage::{RevisionError, Stored};
use crate::strategy;

/// How long a read waits for a revision that is not there yet.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// What a list or watch asks for.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub limit: usize,
    pub continues: Option<Continue>,
    /// "" when absent.
    pub revision: String,
    pub matching: Matching,
    pub send_initial_events: Option<bool>,
    pub bookmarks: bool,
    pub timeout: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Matching {
    #[default]
    Unset,
    Exact,
    NotOlderThan,
}

/// Where a paged list goes on, and the revision it shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Continue {
    pub revision: i64,
    pub start: String,
}

impl ListOptions {
    pub fn read(call: &Call, query: &Query, watching: bool) -> Result<ListOptions, Status> {
        let continues = match query.get("continue").filter(|token| !token.is_empty()) {
            Some(token) => Some(Continue::decode(token)?),
            None => None,
        };
        let mut options = ListOptions {
            labels: LabelSelector::parse(query.get("labelSelector").unwrap_or_default())?,
            fields: FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())?,
            limit: usize::try_from(query.integer("limit")?.unwrap_or(0)).unwrap_or(0),
            continues,
            revision: query.get("resourceVersion").unwrap_or_default().to_owned(),
            matching: Matching::Unset,
            send_initial_events: query.get("sendInitialEvents").map(|value| !matches!(value, "false" | "0")),
            bookmarks: query.is_true("allowWatchBookmarks"),
            timeout: query.integer("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()),
        };
        options.check(call, query.get("resourceVersionMatch").unwrap_or_default(), watching)?;
        Ok(options)
    }

    fn check(&mut self, call: &Call, matching: &str, watching: bool) -> Result<(), Status> {
        let invalid = |cause: Cause| Err(Status::invalid_options("ListOptions", &[cause]));
        let forbidden = |field: &str, why: &str| invalid(Cause::forbidden(field, why));
        self.matching = match matching {
            "" => Matching::Unset,
            "Exact" => Matching::Exact,
            "NotOlderThan" => Matching::NotOlderThan,
            other => {
                let supported = ["Exact", "NotOlderThan", ""];
                return invalid(Cause::not_supported(
                    "resourceVersionMatch",
                    &Value::from(other),
                    &supported,
                ));
            }
        };
        if watching {
            match (self.send_initial_events, self.matching) {
                (Some(_), Matching::NotOlderThan) | (None, Matching::Unset) => {}
                (Some(_), _) => {
                    let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                    return forbidden("resourceVersionMatch", why);
                }
                (None, _) => {
                    let why =
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                    return forbidden("resourceVersionMatch", why);
                }
            }
        } else if self.send_initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        } else if self.matching != Matching::Unset {
            if self.revision.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                return forbidden("resourceVersionMatch", why);
            }
            if self.continues.is_some() {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            if self.matching == Matching::Exact && self.revision == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                return forbidden("resourceVersionMatch", why);
            }
        }
        self.revision_number()?;
        self.check_fields(call)
    }

    pub fn revision_number(&self) -> Result<u64, Status> {
        if self.revision.is_empty() {
            return Ok(0);
        }
        self.revision.parse().map_err(|_| {
            let quoted = Value::from(self.revision.as_str());
            Status::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing \
                 {quoted}: invalid syntax"
            ))
        })
    }

    fn check_fields(&self, call: &Call) -> Result<(), Status> {
        let known = strategy::selectable(&call.resource);
        for test in &self.fields.0 {
            let field = test.field.as_str();
            let standard = matches!(field, "metadata.name" | "metadata.namespace");
            if standard || known.iter().any(|known| known == field) {
                continue;
            }
            let quoted = Value::from(field);
            return Err(Status::bad_request(match (&call.resource.custom, known.is_empty()) {
                (None, true) => {
                    format!(
                        "{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                }
                _ => format!("field label not supported: {field}"),
            }));
        }
        Ok(())
    }

    pub fn matches(&self, stored: &Stored) -> bool {
        self.labels.matches(|key| stored.label(key)) && self.fields.matches(|key| stored.field(key))
    }

    pub fn selects_all(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

impl Continue {
    fn encode(&self) -> String {
        let token = json!({ "v": "meta.k8s.io/v1", "rv": self.revision, "start": self.start });
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> Result<Continue, Status> {
        let bad = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|_| bad("illegal base64 data"))?;
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|error| bad(&crate::decode::go_error(&bytes, &error)))?;
        if value["v"] != "meta.k8s.io/v1" {
            return Err(bad(&format!("server does not recognize this encoded version {}", value["v"])));
        }
        let start = value["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        Ok(Continue { revision: value["rv"].as_i64().unwrap_or(0), start: start.to_owned() })
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    pub items: Vec<Arc<Stored>>,
    pub revision: u64,
    pub next: Option<String>,
    pub remaining: Option<usize>,
}

impl Page {
    /// Lists of custom kinds show an empty `continue`, those of builtin kinds none.
    pub fn list_meta(&self, custom: bool) -> Value {
        let mut meta = json!({ "resourceVersion": self.revision.to_string() });
        if custom {
            meta["continue"] = "".into();
        }
        if let Some(next) = &self.next {
            meta["continue"] = next.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        meta
    }
}

pub async fn list(call: &Call, options: &ListOptions) -> Result<Page, Status> {
    let asked = options.revision_number()?;
    wait_for(call, asked).await?;
    let (revision, mut objects) = snapshot(call, options, asked)?;
    if let Some(from) = &options.continues {
        objects.retain(|stored| *stored.key >= *from.start);
    }
    objects.retain(|stored| options.matches(stored));
    let mut page = Page { items: objects, revision, next: None, remaining: None };
    if options.limit > 0 && page.items.len() > options.limit {
        let rest = page.items.split_off(options.limit);
        let start = format!("{}\0", page.items[options.limit - 1].key);
        page.next = Some(Continue { revision: revision as i64, start }.encode());
        // With selectors the real server does not know the count either.
        page.remaining = options.selects_all().then_some(rest.len());
    }
    Ok(page)
}

fn snapshot(call: &Call, options: &ListOptions, asked: u64) -> Result<(u64, Vec<Arc<Stored>>), Status> {
    let store = &call.server.store;
    let (place, prefix) = (&call.resource.storage, call.prefix());
    let at = match (&options.continues, options.matching) {
        (Some(from), _) if from.revision > 0 => from.revision as u64,
        (Some(_), _) => return Ok(store.list(place, &prefix)),
        (None, Matching::Exact) => asked,
        // A limited list at a revision shows exactly that revision.
        (None, Matching::Unset) if options.limit > 0 && asked > 0 => asked,
        (None, Matching::Unset | Matching::NotOlderThan) => return Ok(store.list(place, &prefix)),
    };
    match store.list_at(place, &prefix, at) {
        Ok(objects) => Ok((at, objects)),
        Err(RevisionError::Compacted { .. }) if options.continues.is_some() => Err(Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
             results. Continuing with the provided token results in an inconsistent list - objects that were created, \
             modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        )),
        Err(RevisionError::Compacted { .. }) => {
            Err(Status::expired("The resourceVersion for the provided list is too old."))
        }
        Err(RevisionError::Future { current }) => Err(Status::revision_too_large(at, current)),
    }
}

/// Waits a moment for a revision someone has seen elsewhere; then it is an error.
pub async fn wait_for(call: &Call, asked: u64) -> Result<(), Status> {
    let give_up = tokio::time::Instant::now() + FUTURE_WAIT;
    loop {
        let current = call.server.store.revision();
        if asked <= current {
            return Ok(());
        }
        if tokio::time::Instant::now() >= give_up {
            return Err(Status::revision_too_large(asked, current));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
