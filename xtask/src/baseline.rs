//! `cargo xtask baseline <tool>`: asks the real tool what is right and writes the answers beside the cases.
//!
//! kustomize, flux and sops cases are folders, and the real binary answers them here; those of helm are recorded by
//! the test that runs them. Libraries without a command line (yaml, gotemplate, …) have a small Go program in
//! `crates/<crate>/baseline` that records its own cases.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, testbed};

pub fn run(tool: &str) -> Result<()> {
    let program = cargo::root().join("crates").join(tool).join("baseline");
    if program.is_dir() {
        return record_with_go(tool, &program);
    }
    match tool {
        "kustomize" => record_folders(tool, "kustomize", &kustomize),
        "flux" => record_folders(tool, "flux-build", &flux),
        "sops" => record_sops(),
        "helm" => record_in_test(tool, "HELM"),
        _ => bail!(
            "nothing to ask for {tool}: choose kustomize, helm, flux, sops or a crate with a folder `baseline`"
        ),
    }
}

/// A test that knows the real tool from its environment records the answers itself, and then compares with them.
fn record_in_test(package: &str, variable: &str) -> Result<()> {
    let binary = testbed::tool(package)?;
    let arguments = ["test", "--package", package, "--test", "cases", "--", "--nocapture"];
    cargo::run(cargo::cargo(&arguments).env(variable, binary))
}

fn record_with_go(tool: &str, program: &Path) -> Result<()> {
    let argument = match tool {
        "yaml" => "../tests/cases",
        _ => "record",
    };
    let mut command = Command::new(testbed::go()?);
    command.args(["run", ".", argument]).current_dir(program).env("GOWORK", "off");
    cargo::run(&mut command)
}

/// What a tool answered: the manifests, or why there are none.
struct Answer {
    success: bool,
    text: String,
}

/// Answers every case (a folder with `input/`) of a crate.
fn record_folders(tool: &str, package: &str, ask: &dyn Fn(&Path, &Path) -> Result<Answer>) -> Result<()> {
    let binary = testbed::tool(tool)?;
    let cases = cases(&cargo::root().join("crates").join(package).join("tests/cases"))?;
    let mut changed = 0;
    for case in &cases {
        let answer = ask(&binary, case).with_context(|| format!("ask about {}", case.display()))?;
        let (file, other) = if answer.success {
            ("expected.yaml", "expected.err")
        } else {
            ("expected.err", "expected.yaml")
        };
        let before = std::fs::read_to_string(case.join(file)).ok();
        if before.as_deref() != Some(&answer.text) {
            changed += 1;
            println!("{}", case.display());
        }
        std::fs::write(case.join(file), answer.text)?;
        // A case that used to succeed and now fails, or the other way round, has one answer only.
        if case.join(other).exists() {
            std::fs::remove_file(case.join(other))?;
        }
    }
    println!("{} cases, {changed} answers changed", cases.len());
    Ok(())
}

fn kustomize(binary: &Path, case: &Path) -> Result<Answer> {
    // Further arguments for this case, such as `--load-restrictor LoadRestrictionsNone`, and the folder to build.
    let arguments = std::fs::read_to_string(case.join("arguments")).unwrap_or_else(|_| ".".to_owned());
    let input = case.join("input");
    let output = Command::new(binary)
        .arg("build")
        .args(arguments.split_whitespace())
        .current_dir(&input)
        .env_clear()
        .output()?;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    let folder = input.display().to_string();
    Ok(Answer {
        success: output.status.success(),
        // Where the repository lies is nobody's business.
        text: String::from_utf8(text)?.replace(&folder, "{{ROOT}}"),
    })
}

/// `input/kustomization.yaml` is the Flux object, `input/files` the artifact; nothing of a cluster is asked.
fn flux(binary: &Path, case: &Path) -> Result<Answer> {
    let arguments = std::fs::read_to_string(case.join("arguments")).unwrap_or_default();
    let input = case.join("input");
    let object = std::fs::read_to_string(input.join("kustomization.yaml"))?;
    let path = object
        .lines()
        .find_map(|line| line.strip_prefix("  path:"))
        .map_or("", |path| path.trim().trim_start_matches("./"));
    let output = Command::new(binary)
        .args(["build", "kustomization", "app", "--dry-run", "--kustomization-file", "kustomization.yaml"])
        .args(["--path", &format!("./files/{path}")])
        .args(arguments.split_whitespace())
        .current_dir(&input)
        .env_clear()
        // It insists on a home to look for a kubeconfig in.
        .env("HOME", "/nonexistent")
        .output()?;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    let folder = input.display().to_string();
    Ok(Answer {
        success: output.status.success(),
        text: String::from_utf8(text)?.replace(&folder, "{{ROOT}}"),
    })
}

/// What the real sops prints for each `encrypted.*`, beside it as `plain.*`; none where it refuses.
fn record_sops() -> Result<()> {
    let binary = testbed::tool("sops")?;
    let root = cargo::root().join("crates/sops/tests/cases");
    let (mut count, mut changed) = (0, 0);
    for entry in std::fs::read_dir(&root)? {
        let case = entry?.path();
        let Ok(about) = std::fs::read(case.join("case.json")) else { continue };
        let about: serde_json::Value = serde_json::from_slice(&about)?;
        let encrypted = std::fs::read_dir(&case)?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.file_stem().is_some_and(|stem| stem == "encrypted"))
            .with_context(|| format!("{} has no encrypted file", case.display()))?;
        count += 1;
        let output = sops_command(&binary, &root.join("keys"), &about)?.arg(&encrypted).output()?;
        let plain = case.join("plain").with_extension(encrypted.extension().unwrap_or_default());
        let before = std::fs::read(&plain).ok();
        let now = output.status.success().then_some(output.stdout);
        let expected = if about["outcome"] == "ok" { before.is_some() } else { before.is_none() };
        if before != now || !expected {
            changed += 1;
            println!("{}: {}", case.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
        match now {
            Some(text) => std::fs::write(&plain, text)?,
            None if plain.exists() => std::fs::remove_file(&plain)?,
            None => {}
        }
    }
    let _ = Command::new("gpgconf").args(["--kill", "all"]).env("GNUPGHOME", keyring_folder()).output();
    let _ = std::fs::remove_dir_all(keyring_folder());
    println!("{count} cases, {changed} answers changed");
    Ok(())
}

/// `sops decrypt` with the keys that the case has at hand, and no others.
fn sops_command(binary: &Path, keys: &Path, about: &serde_json::Value) -> Result<Command> {
    let format = about["format"].as_str().context("case.json names no format")?;
    let mut command = Command::new(binary);
    command.args(["decrypt", "--input-type", format, "--output-type", format]).env_clear();
    // OpenPGP keys are handed over by gpg, from a keyring that holds them alone.
    command.env("HOME", "/nonexistent").env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let names = about["keys"].as_array().context("case.json names no keys")?;
    let mut age = String::new();
    for name in names.iter().filter_map(serde_json::Value::as_str) {
        match name {
            "pgp" => {
                command.env("GNUPGHOME", keyring(&keys.join("pgp.asc"))?);
            }
            "ssh" => {
                command.env("SOPS_AGE_SSH_PRIVATE_KEY_FILE", keys.join("ssh_ed25519"));
            }
            "ssh_rsa" => {
                command.env("SOPS_AGE_SSH_PRIVATE_KEY_FILE", keys.join("ssh_rsa"));
            }
            name => age.push_str(&std::fs::read_to_string(keys.join(format!("{name}.agekey")))?),
        }
    }
    if !age.is_empty() {
        command.env("SOPS_AGE_KEY", age);
    }
    Ok(command)
}

fn keyring_folder() -> PathBuf {
    std::env::temp_dir().join(format!("flux-baseline-gpg-{}", std::process::id()))
}

fn keyring(key: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let home = keyring_folder();
    std::fs::create_dir_all(&home)?;
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700))?;
    let mut command = Command::new("gpg");
    command.args(["--batch", "--quiet", "--import"]).arg(key).env("GNUPGHOME", &home);
    let output = command.output().context("gpg is missing; sops needs it for OpenPGP: install gnupg")?;
    if !output.status.success() {
        bail!("gpg: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(home)
}

/// All folders below `folder` that hold an `input`.
fn cases(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.join("input").is_dir() {
            found.push(path);
        } else if path.is_dir() {
            found.extend(cases(&path)?);
        }
    }
    found.sort();
    Ok(found)
}
