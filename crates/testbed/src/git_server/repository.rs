//! A bare repository on the server, and commits made without a work tree.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::backend;

/// A repository as the server holds it. Its default branch is `main`.
pub struct Repository {
    folder: PathBuf,
    // The folder must not go away while a test still commits into it.
    _root: Arc<TempDir>,
}

/// One change of a commit.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Write(&'a str, &'a str),
    /// Like `Write`, with the executable bit.
    WriteExecutable(&'a str, &'a str),
    Link(&'a str, &'a str),
    Remove(&'a str),
}

impl Repository {
    pub(super) fn create(root: Arc<TempDir>, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let repository = Self { folder: folder.to_owned(), _root: root };
        repository.git(&["init", "--bare", "--quiet", "--initial-branch=main"], b"")?;
        // Anyone the server lets in may push, and may ask for any commit, as Git hosts allow.
        repository.git(&["config", "http.receivepack", "true"], b"")?;
        repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"], b"")?;
        repository.git(&["config", "uploadpack.allowFilter", "true"], b"")?;
        Ok(repository)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes `files` (path and content) on top of `main` and returns the commit's id.
    pub fn commit(&self, message: &str, files: &[(&str, &str)]) -> Result<String> {
        let changes: Vec<Change<'_>> =
            files.iter().map(|(path, content)| Change::Write(path, content)).collect();
        self.commit_to("main", message, &changes)
    }

    /// Makes a commit on top of `branch`, which is made if it is not there.
    pub fn commit_to(&self, branch: &str, message: &str, changes: &[Change<'_>]) -> Result<String> {
        let reference = format!("refs/heads/{branch}");
        let stream = import(&reference, message, changes, self.resolve(&reference).is_ok());
        self.git(&["fast-import", "--quiet", "--force", "--date-format=now"], &stream)?;
        self.resolve(&reference)
    }

    /// The id that a branch, tag or expression stands for.
    pub fn resolve(&self, revision: &str) -> Result<String> {
        self.git(&["rev-parse", "--verify", "--quiet", revision], b"")
    }

    /// An annotated tag if there is a message, else a plain one.
    pub fn tag(&self, name: &str, revision: &str, message: Option<&str>) -> Result<()> {
        match message {
            Some(message) => self.git(&["tag", "-a", "-m", message, name, revision], b"")?,
            None => self.git(&["tag", name, revision], b"")?,
        };
        Ok(())
    }

    /// A file's content at a revision.
    pub fn read(&self, revision: &str, path: &str) -> Result<String> {
        self.git(&["show", &format!("{revision}:{path}")], b"")
    }

    /// Any other git command in the repository; returns what it printed, trimmed.
    pub fn git(&self, arguments: &[&str], input: &[u8]) -> Result<String> {
        let mut child = backend::git()
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start git: is it installed?")?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output()
        })?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("git {}: {}", arguments.join(" "), error.trim());
        }
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }
}

/// The input of `git fast-import`, which needs no work tree and no index.
fn import(reference: &str, message: &str, changes: &[Change<'_>], exists: bool) -> Vec<u8> {
    let mut stream = format!("commit {reference}\ncommitter testbed <testbed@example.com> now\n");
    let data = |stream: &mut String, text: &str| {
        stream.push_str(&format!("data {}\n{text}\n", text.len()));
    };
    data(&mut stream, message);
    if exists {
        stream.push_str(&format!("from {reference}^0\n"));
    }
    for change in changes {
        let (mode, path, content) = match change {
            Change::Write(path, content) => ("100644", path, content),
            Change::WriteExecutable(path, content) => ("100755", path, content),
            Change::Link(path, target) => ("120000", path, target),
            Change::Remove(path) => {
                stream.push_str(&format!("D {path}\n"));
                continue;
            }
        };
        stream.push_str(&format!("M {mode} inline {path}\n"));
        data(&mut stream, content);
    }
    stream.push_str("\ndone\n");
    stream.into_bytes()
}
