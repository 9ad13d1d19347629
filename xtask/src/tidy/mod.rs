//! `cargo xtask tidy`: the rules that nobody should have to remember.

mod dependencies;
mod layers;
mod sources;

use anyhow::{Result, bail};

pub fn run() -> Result<()> {
    let metadata = crate::cargo::metadata()?;
    let mut problems = Vec::new();
    problems.extend(layers::problems(&metadata));
    problems.extend(dependencies::problems(&metadata)?);
    problems.extend(sources::problems()?);
    problems.extend(crate::docs::broken_links()?);
    if !problems.is_empty() {
        bail!("{} problems:\n  {}", problems.len(), problems.join("\n  "));
    }
    Ok(())
}

/// A dependency as a Cargo.toml states it.
struct Dependency {
    /// The name of the package.
    package: String,
    /// The name it has in source code.
    crate_name: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Normal,
    Development,
    Build,
}

/// The packages of the workspace: name and stated dependencies.
fn packages(metadata: &serde_json::Value) -> Vec<(String, Vec<Dependency>)> {
    let list = metadata["packages"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    list.iter()
        .map(|package| {
            let stated = package["dependencies"].as_array().cloned();
            let dependencies = stated
                .unwrap_or_default()
                .iter()
                .map(|dependency| {
                    let name = text(&dependency["name"]);
                    let renamed = dependency["rename"].as_str().unwrap_or(&name);
                    Dependency {
                        crate_name: renamed.replace('-', "_"),
                        package: name.clone(),
                        kind: match dependency["kind"].as_str() {
                            Some("dev") => Kind::Development,
                            Some("build") => Kind::Build,
                            _ => Kind::Normal,
                        },
                    }
                })
                .collect();
            (text(&package["name"]), dependencies)
        })
        .collect()
}
