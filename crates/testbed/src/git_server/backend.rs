//! Starts `git` in an environment that no one's configuration reaches.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// A `git` command that ignores the configuration of the person who runs the tests.
pub(super) fn git() -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "testbed")
        .env("GIT_AUTHOR_EMAIL", "testbed@example.com")
        .env("GIT_COMMITTER_NAME", "testbed")
        .env("GIT_COMMITTER_EMAIL", "testbed@example.com");
    command
}

/// The repository below `root` that a client means, if the path stays below `root`.
pub(super) fn repository(root: &Path, path: &str) -> Option<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    let plain = relative.components().all(|component| matches!(component, Component::Normal(_)));
    let folder = root.join(relative);
    (plain && folder.join("HEAD").is_file()).then_some(folder)
}
