//! The corpus as files: cases, and the folder every case starts from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::values::Values;

/// The corpus, with what is kept packed unpacked.
pub struct Corpus {
    folders: Vec<PathBuf>,
    unpacked: TempDir,
}

impl Corpus {
    pub fn unpack(corpus: &Path) -> Corpus {
        let unpacked = tempfile::tempdir().unwrap();
        copy(&corpus.join("testdata"), &unpacked.path().join("testdata"));
        let archive = corpus.join("fixtures.tar.gz");
        if archive.exists() {
            let mut tar = Command::new("tar");
            tar.arg("xzf").arg(archive).arg("-C").arg(unpacked.path()).stderr(Stdio::null());
            assert!(tar.status().is_ok_and(|status| status.success()), "fixtures.tar.gz cannot be unpacked");
        }
        let folders = vec![corpus.join("cases"), unpacked.path().join("cases")];
        Corpus { folders, unpacked }
    }

    /// Every case, file by file.
    pub fn cases(&self) -> Vec<Value> {
        let entries = self.folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
            .iter()
            .flat_map(|file| serde_json::from_slice::<Vec<Value>>(&fs::read(file).unwrap()).unwrap())
            .collect()
    }

    pub fn testdata(&self) -> PathBuf {
        self.unpacked.path().join("testdata")
    }
}

/// Files that a case wants to find.
pub fn write_files(case: &Value, values: &Values) {
    for (path, content) in case["files"].as_object().into_iter().flatten() {
        let path = values.fill(path);
        if path.ends_with('/') || content.is_null() {
            fs::create_dir_all(&path).unwrap();
            continue;
        }
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        match (content["symlink"].as_str(), content["text"].as_str(), content.as_str()) {
            (Some(target), _, _) => std::os::unix::fs::symlink(values.fill(target), &path).unwrap(),
            (None, Some(text), _) => {
                use std::os::unix::fs::PermissionsExt as _;
                fs::write(&path, values.fill(text)).unwrap();
                let mode = u32::from_str_radix(content["mode"].as_str().unwrap_or("644"), 8).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            (None, None, text) => fs::write(&path, values.fill(text.unwrap_or_default())).unwrap(),
        }
    }
}

/// Copies a folder; the corpus is read-only, the copy must not be.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source).unwrap(), &target).unwrap();
        } else if kind.is_dir() {
            copy(&source, &target);
        } else {
            let bytes = fs::read(&source).unwrap();
            match lost_link(&source, &bytes) {
                Some(name) => std::os::unix::fs::symlink(name, &target).unwrap(),
                None => fs::write(&target, bytes).unwrap(),
            }
        }
    }
}

/// Where the corpus was kept without symbolic links, they are files that hold the name of a file beside them.
fn lost_link(source: &Path, bytes: &[u8]) -> Option<String> {
    let is_link = source.file_stem()?.to_str()?.ends_with("-link");
    let name = String::from_utf8(bytes.to_vec()).ok().filter(|_| is_link)?;
    let name = name.trim_end().to_owned();
    (!name.is_empty() && source.parent()?.join(&name).exists()).then_some(name)
}
