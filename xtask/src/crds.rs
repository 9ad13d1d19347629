//! `cargo xtask crds`: writes `manifests/crds` from the types of flux-api.

use anyhow::Result;

use crate::cargo;

/// flux-api is pure, so the writing is done by its example `write_crds`, which takes the folder.
pub fn run() -> Result<()> {
    let folder = cargo::root().join("manifests/crds");
    std::fs::create_dir_all(&folder)?;
    let mut command =
        cargo::cargo(&["run", "--quiet", "--package", "flux-api", "--example", "write_crds", "--"]);
    cargo::run(command.arg(folder))
}
