//! Where in the sources a text stands, so that an error can point at it. Only what is plainly in a file of the source
//! is ever shown: a decrypted value never is.

use std::collections::{BTreeMap, BTreeSet};

use file_tree::{Files, Question, TreePath};

use crate::substitute;

/// How much of a line is shown.
const SHOWN: usize = 60;
/// How many places are named for one object.
const MOST: usize = 20;

/// The files that a build read.
pub(crate) struct Places<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) questions: &'a BTreeSet<Question>,
}

impl Places<'_> {
    /// Every substitution in `text` that fails by itself, with its file and line where that is unique.
    pub(crate) fn offending(
        &self,
        text: &str,
        variables: &BTreeMap<String, String>,
        strict: bool,
    ) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for line in text.lines() {
            for (start, _) in line.match_indices("${") {
                if line[..start].ends_with('$') {
                    continue;
                }
                let fragment = &line[start..];
                let whole = fragment.find('}').map_or(fragment, |end| &fragment[..=end]);
                let fails = |text: &str| substitute::substitute(text, variables, strict).is_err();
                if fails(whole) && (whole.len() == fragment.len() || fails(fragment)) {
                    let Some((path, number)) = self.only_place(whole) else { continue };
                    let shown: String = whole.chars().take(SHOWN).collect();
                    let place = format!("{shown} in {path} line {number}");
                    if !found.contains(&place) && found.len() < MOST {
                        found.push(place);
                    }
                }
            }
        }
        found
    }

    fn only_place(&self, needle: &str) -> Option<(TreePath, usize)> {
        let mut only = None;
        for question in self.questions {
            let Question::Read(path) = question else { continue };
            let Ok(bytes) = self.files.read(path) else { continue };
            let Ok(text) = std::str::from_utf8(&bytes) else { continue };
            for (index, line) in text.lines().enumerate() {
                if line.contains(needle) && only.replace((path.clone(), index + 1)).is_some() {
                    return None;
                }
            }
        }
        only
    }
}
