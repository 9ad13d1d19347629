//! The stored index, read for one chart at a time. Where charts begin is remembered for the indexes used last.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{ChartVersion, Error, Layout, PickError, pick, scan};

/// How many indexes have their layout in memory: 16 bytes for each chart version.
const REMEMBERED: usize = 16;

/// Looks charts up in indexes that [`super::convert`] wrote.
#[derive(Default)]
pub struct StoredIndex {
    layouts: Mutex<VecDeque<(String, Arc<Layout>)>>,
}

#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("failed to load index: {0}")]
    Unreadable(#[from] Error),
    #[error("{0}")]
    Reference(#[from] PickError),
}

impl StoredIndex {
    /// The version of chart `name` that `wanted` means, from the index in the file at `path`; `digest` names its content.
    pub fn find(
        &self,
        path: &Path,
        digest: &str,
        name: &str,
        wanted: &str,
    ) -> Result<ChartVersion, LookupError> {
        let mut file = File::open(path).map_err(Error::from)?;
        let layout = self.layout(&mut file, digest)?;
        let spans = layout.entries.get(name).ok_or(PickError::NoChart)?;
        let mut versions = Vec::with_capacity(spans.len());
        for span in spans {
            let bytes = span.read(&mut file)?;
            let version: ChartVersion =
                serde_json::from_slice(&bytes).map_err(|error| Error::Malformed(error.to_string()))?;
            versions.push(version);
        }
        Ok(pick(&versions, name, wanted)?.clone())
    }

    fn layout(&self, file: &mut File, digest: &str) -> Result<Arc<Layout>, Error> {
        let known = |layouts: &VecDeque<(String, Arc<Layout>)>| {
            layouts.iter().find(|(known, _)| known == digest).map(|(_, layout)| layout.clone())
        };
        let lock = || self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = known(&lock()) {
            return Ok(layout);
        }
        let layout = scan(file)?.ok_or_else(|| Error::Malformed("the stored index is no JSON".to_owned()))?;
        let layout = Arc::new(layout);
        let mut layouts = lock();
        if layouts.len() >= REMEMBERED {
            layouts.pop_front();
        }
        layouts.push_back((digest.to_owned(), layout.clone()));
        Ok(layout)
    }
}
