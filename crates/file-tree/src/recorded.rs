//! Remembers every question asked of a tree, those that found nothing included.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::{Entry, Error, Files, Kind, TreePath};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    Read(TreePath),
    List(TreePath),
    Kind(TreePath),
}

/// A tree that keeps the questions it was asked: the same answers mean the same build.
pub struct Recorded<'a> {
    tree: &'a dyn Files,
    questions: Mutex<BTreeSet<Question>>,
}

impl<'a> Recorded<'a> {
    pub fn new(tree: &'a dyn Files) -> Self {
        Self { tree, questions: Mutex::new(BTreeSet::new()) }
    }

    pub fn into_questions(self) -> BTreeSet<Question> {
        self.questions.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, question: Question) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).insert(question);
    }
}

impl Files for Recorded<'_> {
    fn read(&self, path: &TreePath) -> Result<Cow<'_, [u8]>, Error> {
        self.note(Question::Read(path.clone()));
        self.tree.read(path)
    }

    fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error> {
        self.note(Question::List(path.clone()));
        self.tree.list(path)
    }

    fn kind(&self, path: &TreePath) -> Option<Kind> {
        self.note(Question::Kind(path.clone()));
        self.tree.kind(path)
    }

    fn resolve(&self, path: &TreePath) -> Result<TreePath, Error> {
        self.note(Question::Kind(path.clone()));
        self.tree.resolve(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTree;

    #[test]
    fn look_ups_that_found_nothing_are_remembered() {
        let tree = MemoryTree::from_texts([("a", "1")]).unwrap();
        let recorded = Recorded::new(&tree);
        let missing = TreePath::parse("kustomization.yaml").unwrap();
        assert_eq!(recorded.kind(&missing), None);
        assert_eq!(recorded.into_questions(), BTreeSet::from([Question::Kind(missing)]));
    }
}
