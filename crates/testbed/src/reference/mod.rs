//! The real tools that decide what is right: etcd, the Kubernetes control plane, kustomize, helm, sops, age, flux.
//!
//! Each is built once from the Go module proxy into a cache folder outside the tree, under a lock, and
//! stamped with its checksum; afterwards no network is needed. Nothing here is part of what we ship.
//!
//! ```text
//! ${FLUX_TESTBED_CACHE:-${XDG_CACHE_HOME:-~/.cache}}/flux-testbed/
//!     kustomize-5.8.1/kustomize            the binary
//!     kustomize-5.8.1/kustomize.sha256     its stamp: checksum and the Go version that built it
//!     kustomize-5.8.1.lock                 held while building
//!     build/kustomize-5.8.1/go.mod         the scratch module
//! ```

mod build;
mod go;
mod tools;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

pub use tools::{Controller, Kubernetes, Tool};

/// The path of one of `tool`'s binaries, built first if it is not in the cache.
///
/// Blocks for minutes on a cold cache and says so on stderr; call it from a blocking context.
pub fn binary(tool: Tool, name: &str) -> Result<PathBuf> {
    let recipe = tool.recipe();
    let Some(package) = recipe.package(name) else {
        bail!("{} has no binary called {name}", recipe.folder());
    };
    let cache = cache_folder()?;
    let path = cache.join(recipe.folder()).join(name);
    if stamped(&path)? {
        return Ok(path);
    }
    std::fs::create_dir_all(cache.join(recipe.folder()))?;
    let _lock = lock(&cache.join(format!("{}.lock", recipe.folder())))?;
    // Another process may have built it while this one waited for the lock.
    if stamped(&path)? {
        return Ok(path);
    }
    if !build::answers_to_its_version(&path, &recipe) {
        build::build(&recipe, name, package, &path, &cache)?;
    }
    std::fs::write(stamp_path(&path), format!("{}\n", checksum(&path)?))
        .with_context(|| format!("stamp {}", path.display()))?;
    Ok(path)
}

/// A Go toolchain that is new enough, installed first if the machine has none.
pub fn go() -> Result<PathBuf> {
    go::toolchain(&cache_folder()?)
}

/// Where tools, scratch modules and the Go toolchain are kept.
pub fn cache_folder() -> Result<PathBuf> {
    let base = if let Some(folder) = std::env::var_os("FLUX_TESTBED_CACHE") {
        PathBuf::from(folder)
    } else if let Some(folder) = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        PathBuf::from(folder)
    } else {
        let home = std::env::var_os("HOME")
            .context("no HOME: set FLUX_TESTBED_CACHE to a folder for the reference tools")?;
        PathBuf::from(home).join(".cache")
    };
    Ok(base.join("flux-testbed"))
}

/// Whether the binary is there and is the one that was stamped. A damaged one counts as missing.
fn stamped(path: &Path) -> Result<bool> {
    let Ok(stamp) = std::fs::read_to_string(stamp_path(path)) else {
        return Ok(false);
    };
    if !path.exists() {
        return Ok(false);
    }
    let matches = stamp.trim() == checksum(path)?;
    if !matches {
        eprintln!("testbed: {} does not match its stamp, building it again", path.display());
        std::fs::remove_file(path)?;
    }
    Ok(matches)
}

fn stamp_path(binary: &Path) -> PathBuf {
    binary.with_added_extension("sha256")
}

fn checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
    let bytes = hash.finalize();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Holds an exclusive lock on `path` until the returned file is dropped.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("testbed: waiting for another process that holds {}", path.display());
        file.lock().with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}
