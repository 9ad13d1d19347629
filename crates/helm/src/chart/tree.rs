//! Reads an unpacked chart out of a tree of files, in the order Helm walks a folder.

use file_tree::{Files, Kind, TreePath};

use super::archive::without_bom;
use super::ignore::Rules;
use super::load::Budget;
use super::{File, LoadError};

const MAX_FOLDER_DEPTH: usize = 64;

pub(super) fn read(files: &dyn Files, at: &TreePath, budget: &mut Budget) -> Result<Vec<File>, LoadError> {
    let rules = match files.read(&join(at, ".helmignore")?) {
        Ok(text) => Rules::parse(&String::from_utf8_lossy(&text))?,
        Err(_) => Rules::parse("")?,
    };
    let mut found = Vec::new();
    Walk { files, at, rules: &rules, budget, found: &mut found }.folder("", 0)?;
    Ok(found)
}

struct Walk<'a> {
    files: &'a dyn Files,
    at: &'a TreePath,
    rules: &'a Rules,
    budget: &'a mut Budget,
    found: &'a mut Vec<File>,
}

impl Walk<'_> {
    fn folder(&mut self, name: &str, depth: usize) -> Result<(), LoadError> {
        if depth > MAX_FOLDER_DEPTH {
            return Err(LoadError::FoldersTooDeep(MAX_FOLDER_DEPTH));
        }
        for entry in self.files.list(&join(self.at, name)?)? {
            let path = if name.is_empty() { entry.name } else { format!("{name}/{}", entry.name) };
            let is_folder = entry.kind == Kind::Folder;
            if self.rules.ignore(&path, is_folder) {
                continue;
            }
            if is_folder {
                self.folder(&path, depth + 1)?;
            } else {
                self.file(path)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: String) -> Result<(), LoadError> {
        let data = self.files.read(&join(self.at, &name)?)?;
        if !self.budget.spend(data.len() as u64) {
            return Err(LoadError::TooLarge(self.budget.limit()));
        }
        self.found.push(File { name, data: without_bom(data.into_owned()), modified: None });
        Ok(())
    }
}

fn join(at: &TreePath, name: &str) -> Result<TreePath, LoadError> {
    if name.is_empty() {
        return Ok(at.clone());
    }
    at.join(name).map_err(|_| LoadError::Tree(file_tree::Error::Escapes(at.clone())))
}
