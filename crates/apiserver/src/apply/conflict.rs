//! Conflicts, as users read them.

use super::managed::Manager;
use super::path::{Path, path_text};

/// A field that the request would change and someone else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub path: Path,
}

/// All conflicts of one request, sorted by manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub(super) Vec<Conflict>);

impl Conflicts {
    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.0.iter()
    }
}

impl Conflict {
    /// The message of a `FieldManagerConflict` cause.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager.describe())
    }

    /// The field of the cause.
    pub fn field(&self) -> String {
        path_text(&self.path)
    }
}

/// The message of the Status.
impl std::fmt::Display for Conflicts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(out, "Apply failed with 1 conflict: {}: {}", only.message(), only.field());
        }
        write!(out, "Apply failed with {} conflicts: ", self.0.len())?;
        for (index, conflict) in self.0.iter().enumerate() {
            let new = index == 0 || self.0[index - 1].manager != conflict.manager;
            if new {
                let break_ = if index == 0 { "" } else { "\n" };
                write!(out, "{break_}conflicts with {}:", conflict.manager.describe())?;
            }
            write!(out, "\n- {}", conflict.field())?;
        }
        Ok(())
    }
}
