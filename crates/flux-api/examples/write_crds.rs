//! Writes the CustomResourceDefinitions into a folder: `cargo run -p flux-api --example write_crds manifests/crds`.
#![allow(clippy::disallowed_methods, reason = "an example may write files")]

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "manifests/crds".to_owned());
    std::fs::create_dir_all(&folder)?;
    for (file, text) in flux_api::crds::yaml() {
        std::fs::write(std::path::Path::new(&folder).join(file), text)?;
    }
    Ok(())
}
