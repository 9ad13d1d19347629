//! The files of a folder on this machine as an artifact.

use std::io;

use file_tree::TreePath;
use flux_remote::ignore::{self, Ignore};
use flux_remote::local::LocalFolder;

use crate::artifact::storage::{Contents, Each};

/// The files of a folder that the rules leave in.
pub struct KeptFiles<'a> {
    files: &'a LocalFolder,
    rules: Ignore,
}

impl<'a> KeptFiles<'a> {
    /// By the rules in the folder itself and in `spec.ignore`.
    pub fn of(files: &'a LocalFolder, spec: Option<&str>) -> Self {
        Self { files, rules: rules(files, spec) }
    }
}

impl Contents for KeptFiles<'_> {
    fn each(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        for file in self.files.files() {
            if !self.rules.excludes(&file.path, false) {
                each(&file.path, file.executable, &self.files.read(&file.path)?)?;
            }
        }
        Ok(())
    }
}

fn rules(files: &LocalFolder, spec: Option<&str>) -> Ignore {
    let mut texts: Vec<(TreePath, String)> = Vec::new();
    for file in files.files().iter().filter(|file| file.path.file_name() == Some(ignore::FILE_NAME)) {
        if let Ok(bytes) = files.read(&file.path) {
            let folder = file.path.parent().unwrap_or_default();
            texts.push((folder, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ignore::for_source(texts.iter().map(|(folder, text)| (folder, text.as_str())), spec)
}
