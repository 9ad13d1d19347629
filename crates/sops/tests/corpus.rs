//! Files that the real sops encrypted, opened byte by byte as it opens them: the shared corpus and our own cases.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test owns its files and its environment"
)]

use std::path::{Path, PathBuf};

use sops::{AgeIdentities, Encrypted, Format, PgpKeys};

#[derive(serde::Deserialize)]
struct Case {
    format: String,
    keys: Vec<String>,
    outcome: String,
}

/// Keys by name: `k1.agekey`, `ssh_ed25519`, `ssh_rsa`, `pgp.asc`.
fn open(case: &Path, keys: &Path) -> Result<(), String> {
    let about: Case = serde_json::from_slice(&std::fs::read(case.join("case.json")).unwrap()).unwrap();
    let (encrypted, extension) = named(case, "encrypted.").expect("an encrypted file");
    let format = about.format.parse::<Format>().unwrap();
    let result = decrypt(&std::fs::read(encrypted).unwrap(), format, &about.keys, keys);
    match (about.outcome.as_str(), result) {
        ("ok", Ok(found)) => {
            let expected = std::fs::read(case.join(format!("plain.{extension}"))).unwrap();
            if found == expected { Ok(()) } else { Err("other bytes than sops".to_owned()) }
        }
        ("ok", Err(error)) => Err(error),
        (_, Ok(_)) => Err("opened what sops refuses".to_owned()),
        (_, Err(_)) => Ok(()),
    }
}

fn decrypt(bytes: &[u8], format: Format, names: &[String], keys: &Path) -> Result<Vec<u8>, String> {
    let (mut age, mut pgp) = (AgeIdentities::new(), PgpKeys::new());
    for name in names {
        let read = |file: &str| std::fs::read_to_string(keys.join(file)).map_err(|error| error.to_string());
        match name.as_str() {
            "pgp" => pgp.add_keys(read("pgp.asc")?.as_bytes()).map_err(|error| error.to_string())?,
            "ssh" => age.add_ssh_key(&read("ssh_ed25519")?).map_err(|error| error.to_string())?,
            "ssh_rsa" => age.add_ssh_key(&read("ssh_rsa")?).map_err(|error| error.to_string())?,
            name => age.add_key_file(&read(&format!("{name}.agekey"))?).map_err(|error| error.to_string())?,
        }
    }
    let file = Encrypted::parse(bytes, format).map_err(|error| error.to_string())?;
    let mut unwrapping = file.unwrapping();
    unwrapping.unwrap_age(&age);
    unwrapping.unwrap_pgp(&pgp);
    let key = unwrapping.data_key().map_err(|error| error.to_string())?;
    let opened = file.open(&key).and_then(sops::Decrypted::verified).map_err(|error| error.to_string())?;
    opened.to_bytes(format).map_err(|error| error.to_string())
}

fn named(folder: &Path, prefix: &str) -> Option<(PathBuf, String)> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let extension = name.strip_prefix(prefix)?.to_owned();
        Some((entry.path(), extension))
    })
}

/// Runs all cases of a folder and says how many agree.
fn run(label: &str, cases: &Path, keys: &Path) {
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(cases).unwrap().flatten().map(|entry| entry.path()).collect();
    folders.retain(|folder| folder.is_dir() && folder != keys);
    folders.sort();
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    for folder in folders {
        if !folder.join("case.json").exists() {
            skipped += 1;
            continue;
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match open(&folder, keys) {
            Ok(()) => passed += 1,
            Err(problem) => failed.push(format!("{name}: {problem}")),
        }
    }
    println!("{label}: {passed} passed, {} failed, {skipped} skipped", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(passed > 0, "no case was found");
}

#[test]
fn the_shared_corpus() {
    let shared = std::env::var("FLUX_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").to_owned());
    let corpus = PathBuf::from(shared).join("corpus/sops");
    if !corpus.is_dir() {
        println!("corpus sops: skipped: no corpus");
        return;
    }
    let unpacked = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("tar")
        .arg("xzf")
        .arg(corpus.join("keys.tar.gz"))
        .arg("-C")
        .arg(unpacked.path())
        .status()
        .unwrap();
    assert!(status.success(), "the keys of the corpus cannot be unpacked");
    run("corpus sops", &corpus.join("cases"), &unpacked.path().join("keys"));
}

#[test]
fn our_own_cases() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"));
    run("own cases", &root, &root.join("keys"));
}
