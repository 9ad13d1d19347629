//! From the objects of the old release and those of the new to steps that create, change and delete.

use serde_json::Value as Json;

use super::object::{Live, Object};
use super::patch::{Patch, create_patch};
use super::{PlanError, Propagation, Step};

/// One object to create or change.
#[derive(Clone, Debug, PartialEq)]
pub struct Applying {
    pub object: Object,
    pub how: How,
}

#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// POST; an object that exists is an error.
    Create,
    /// Server-side apply. `adopt_client_side`: first hand over the fields this manager holds from client-side applies.
    ServerSide {
        force_conflicts: bool,
        adopt_client_side: bool,
    },
    Patch(Patch),
    /// PUT, whatever is there.
    Replace,
    /// Nothing to send; read it so that its state is known.
    Unchanged,
}

/// How an update treats objects that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Method {
    pub(super) server_side: bool,
    pub(super) force_conflicts: bool,
    pub(super) force_replace: bool,
    pub(super) adopt_client_side: bool,
    pub(super) three_way_for_others: bool,
}

impl Method {
    pub(super) fn create(self) -> How {
        if self.server_side {
            How::ServerSide { force_conflicts: self.force_conflicts, adopt_client_side: false }
        } else {
            How::Create
        }
    }

    fn change(self, old: &Json, new: &Object, live: &Json) -> Result<How, PlanError> {
        if self.force_replace {
            return Ok(How::Replace);
        }
        if self.server_side {
            return Ok(How::ServerSide {
                force_conflicts: self.force_conflicts,
                adopt_client_side: self.adopt_client_side,
            });
        }
        let patch = create_patch(old, new, live, self.three_way_for_others).map_err(PlanError::Patch)?;
        Ok(patch.map_or(How::Unchanged, How::Patch))
    }
}

/// Creates what is not there, changes what is, and then deletes what only the old release had, except what asks to be kept.
pub(super) fn update(
    old: &[Object],
    new: &[Object],
    live: &Live,
    method: Method,
) -> Result<Vec<Step>, PlanError> {
    let mut steps = Vec::new();
    for target in new {
        let how = match live.get(&target.key).filter(|_| !target.key.name.is_empty()) {
            None => method.create(),
            Some(existing) => {
                // What the old release did not have is compared with what is live.
                let original = old.iter().find(|o| o.key == target.key).map_or(existing, |o| &o.json);
                method.change(original, target, existing)?
            }
        };
        steps.push(Step::Apply(Applying { object: target.clone(), how }));
    }
    for gone in old.iter().filter(|o| !new.iter().any(|n| n.key == o.key)) {
        let Some(existing) = live.get(&gone.key) else { continue };
        let policy =
            existing.pointer("/metadata/annotations").and_then(|a| a.get(crate::manifest::RESOURCE_POLICY));
        if policy.and_then(Json::as_str) == Some("keep") {
            continue;
        }
        steps.push(Step::Delete { object: gone.key.clone(), propagation: Propagation::Background });
    }
    Ok(steps)
}
