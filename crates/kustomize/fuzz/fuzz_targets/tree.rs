//! Any tree of files: a build ends in a result. `cargo +nightly fuzz run tree`.
#![no_main]

use file_tree::{MemoryTree, TreePath};
use kustomize::Options;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut files = MemoryTree::new();
    for part in text.split("@ ") {
        let (name, content) = part.split_once('\n').unwrap_or((part, ""));
        if let Ok(path) = TreePath::parse(name) {
            files.insert(path, content);
        }
    }
    for options in [Options::FLUX, Options::COMMAND] {
        if let Ok(manifests) = kustomize::build(&files, &TreePath::root(), &options) {
            let _ = manifests.to_yaml();
        }
    }
});
