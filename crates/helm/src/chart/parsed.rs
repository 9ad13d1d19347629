//! Templates of a chart, parsed once and shared by all its renders.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gotemplate::Set;

/// Sets of parsed templates by what is in them: different values may switch different subcharts on. A clone shares the sets.
#[derive(Clone, Default)]
pub(crate) struct Parsed(Arc<Mutex<HashMap<Key, Kept>>>);

/// Name, address and length of each template, and which table of functions they were parsed against.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Key {
    templates: Vec<(String, usize, usize)>,
    functions: usize,
}

struct Kept {
    set: Arc<Set>,
    /// What the addresses of the key point to, alive so that nothing else gets them.
    _texts: Vec<Bytes>,
}

/// Values that switch subcharts on and off in ever new ways would otherwise keep a set for each.
const MAX_SETS: usize = 16;

impl Key {
    pub(crate) fn new<'t>(templates: impl Iterator<Item = (&'t String, &'t Bytes)>, functions: usize) -> Key {
        let templates =
            templates.map(|(name, text)| (name.clone(), text.as_ptr() as usize, text.len())).collect();
        Key { templates, functions }
    }
}

impl Parsed {
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Set>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(|kept| kept.set.clone())
    }

    pub(crate) fn keep(&self, key: Key, set: &Arc<Set>, texts: Vec<Bytes>) {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sets.len() >= MAX_SETS {
            sets.clear();
        }
        sets.insert(key, Kept { set: set.clone(), _texts: texts });
    }
}

impl std::fmt::Debug for Parsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parsed")
    }
}
