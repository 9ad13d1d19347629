//! `flux diff artifact`: whether local files are what an artifact in a registry holds.
//!
//! Upstream compares the bytes of the tarballs, so an artifact packed by another tool always differs. Here the files are compared.

use std::collections::BTreeMap;
use std::io::Read as _;

use crate::commands::artifact::{Reference, Registry};
use crate::commands::build::{Contents, pack};
use crate::error::{CliError, fail};
use crate::output;
use crate::tree::Invocation;

/// An artifact may unpack to this much.
const MOST_BYTES: u64 = 4 << 30;

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let address = run.name().ok_or_else(|| fail!("artifact URL is required"))?;
    let path = run.some("path").ok_or_else(|| fail!("invalid path \"\""))?;
    let reference = Reference::parse(address)?;
    let contents = Contents::open(path, false)?;
    let registry = Registry::open(run, &reference)?;
    let local = pack(&contents, &run.list("ignore-paths"))
        .map_err(|error| fail!("building artifact failed: {error}"))?;
    let (_, manifest) = registry.manifest(&reference).await?;
    let remote = registry.first_layer(&manifest).await?;
    if files(&local)? != files(&remote)? {
        return Err(fail!("the remote artifact contents differs from the local one"));
    }
    output::success("no changes detected");
    Ok(())
}

fn files(tarball: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, CliError> {
    let bad = |error: std::io::Error| fail!("the artifact is no gzipped tarball: {error}");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tarball).take(MOST_BYTES));
    let mut files = BTreeMap::new();
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        if entry.header().entry_type().is_file() {
            let name = entry.path().map_err(bad)?.to_string_lossy().trim_start_matches("./").to_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(bad)?;
            files.insert(name, bytes);
        }
    }
    Ok(files)
}
