//! What was fetched before, by what was asked for: a folder for each, with the bytes and what a status says of them.
//!
//! An entry is written beside its place and renamed into it. One whose bytes are not what they were counts as missing.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

const ABOUT: &str = "about.json";
const CONTENT: &str = "content";

#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// What is known of something that was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// What was asked for, for people who look into the folder.
    pub wanted: Value,
    /// The name of the file as an artifact.
    pub file: String,
    /// The fields of the status that follow from the content.
    pub status: Value,
    pub reason: String,
    pub message: String,
    pub news: String,
    /// What SourceVerified said when it was fetched.
    pub verified: Option<String>,
    /// Of the content; [`Cache::keep`] fills it in.
    pub sha256: String,
}

/// Something that was fetched.
#[derive(Clone, Debug)]
pub struct Entry {
    pub about: About,
    pub content: Vec<u8>,
}

impl Cache {
    /// Makes the folder, readable by nobody else, when there is none.
    pub fn open(folder: &Path) -> io::Result<Self> {
        if !folder.is_dir() {
            fs::create_dir_all(folder)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self { folder: folder.to_owned() })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was fetched for the same wish, if it is still whole.
    pub fn find(&self, wanted: &Value) -> Option<Entry> {
        let folder = self.folder.join(name(wanted));
        let about: About = serde_json::from_slice(&fs::read(folder.join(ABOUT)).ok()?).ok()?;
        let content = fs::read(folder.join(CONTENT)).ok()?;
        (about.wanted == *wanted && about.sha256 == sha256(&content)).then_some(Entry { about, content })
    }

    /// Keeps what came, in place of what there was.
    pub fn keep(&self, about: About, content: &[u8]) -> io::Result<()> {
        let about = About { sha256: sha256(content), ..about };
        let target = self.folder.join(name(&about.wanted));
        let fresh = tempfile::tempdir_in(&self.folder)?;
        fs::write(fresh.path().join(CONTENT), content)?;
        fs::write(fresh.path().join(ABOUT), serde_json::to_vec_pretty(&about)?)?;
        match fs::remove_dir_all(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::rename(fresh.path(), &target) {
            // Somebody else was faster, with the same.
            Err(_) if target.is_dir() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                let _moved = fresh.keep();
                Ok(())
            }
        }
    }
}

fn name(wanted: &Value) -> String {
    sha256(wanted.to_string().as_bytes()).chars().take(32).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_kept_is_found_until_it_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("new")).unwrap();
        let wanted = json!({ "url": "https://charts.example.com" });
        assert!(cache.find(&wanted).is_none());
        for content in ["one", "two"] {
            let about = About { wanted: wanted.clone(), file: "a.tgz".to_owned(), ..About::default() };
            cache.keep(about, content.as_bytes()).unwrap();
            assert_eq!(cache.find(&wanted).unwrap().content, content.as_bytes());
        }
        assert!(cache.find(&json!({ "url": "https://other.example.com" })).is_none());
        fs::write(cache.folder().join(name(&wanted)).join(CONTENT), "else").unwrap();
        assert!(cache.find(&wanted).is_none());
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 1, "nothing is left behind");
    }
}
