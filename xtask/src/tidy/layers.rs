//! The map: a crate uses the rows below it, and only `flux` crates know of Flux.

use serde_json::Value;

use super::{Kind, packages};

/// From top to bottom. Whoever adds a crate decides its row here.
const ROWS: [&[&str]; 7] = [
    &["flux"],
    &["flux-controllers", "flux-ui", "apiserver"],
    &["flux-remote", "flux-apply"],
    &["flux-build"],
    &["kustomize", "helm", "sops"],
    &["gotemplate", "kube-schema", "kube-cel"],
    &["yaml", "semver-range", "flux-api", "file-tree"],
];

/// From this row on: no files, sockets, clock, environment.
const FIRST_PURE_ROW: usize = 4;

/// Beside the map: they may use everything.
const BESIDE: [&str; 2] = ["testbed", "xtask"];

/// The names of the crates that must stay pure.
pub(super) fn pure_crates() -> impl Iterator<Item = &'static str> {
    ROWS[FIRST_PURE_ROW - 1..].iter().flat_map(|row| row.iter().copied())
}

pub(super) fn problems(metadata: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, dependencies) in packages(metadata) {
        if BESIDE.contains(&name.as_str()) {
            continue;
        }
        let Some(own) = row(&name) else {
            problems.push(format!(
                "{name} has no row: add it to the map in ARCHITECTURE.md and in xtask/src/tidy/layers.rs"
            ));
            continue;
        };
        for dependency in dependencies {
            let problem = judge(&name, own, &dependency.package, dependency.kind);
            problems.extend(problem);
        }
    }
    problems
}

fn judge(name: &str, own: usize, used: &str, kind: Kind) -> Option<String> {
    if used == "testbed" {
        return (kind != Kind::Development).then(|| format!("{name} uses testbed outside of its tests"));
    }
    // Whatever is not in the map comes from the registry.
    let below = row(used)?;
    if below <= own {
        return Some(format!("{name} (row {own}) uses {used} (row {below}): only rows below are allowed"));
    }
    let knows_flux = name.starts_with("flux");
    if !knows_flux && used.starts_with("flux") && kind == Kind::Normal {
        return Some(format!("{name} uses {used}, but its name says it knows nothing of Flux"));
    }
    None
}

fn row(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&name)).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downwards_is_allowed_sideways_and_upwards_are_not() {
        let judge = |name: &str, used: &str| judge(name, row(name).unwrap(), used, Kind::Normal);
        assert_eq!(judge("helm", "gotemplate"), None);
        assert_eq!(judge("helm", "serde"), None);
        assert!(judge("helm", "kustomize").is_some());
        assert!(judge("yaml", "helm").is_some());
        assert!(judge("kustomize", "flux-api").is_some());
        assert!(judge("helm", "testbed").is_some());
    }

    #[test]
    fn tests_may_use_the_testbed() {
        assert_eq!(judge("helm", 5, "testbed", Kind::Development), None);
    }

    #[test]
    fn the_pure_crates_begin_with_flux_build() {
        let pure: Vec<&str> = pure_crates().collect();
        assert!(pure.contains(&"flux-build") && pure.contains(&"file-tree"));
        assert!(!pure.contains(&"flux-apply"));
    }
}
