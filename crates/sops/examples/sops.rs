//! `sops decrypt` for comparison with the real one.
//!
//! `cargo run -p sops --example sops -- decrypt [--input-type T] [--output-type T] [--ignore-mac] FILE`
//!
//! Keys are named by `SOPS_AGE_KEY_FILE`, `SOPS_AGE_SSH_PRIVATE_KEY_FILE` and `SOPS_PGP_KEY_FILE`.

#![allow(clippy::disallowed_methods, reason = "an example owns its files and its environment")]

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use sops::{AgeIdentities, Encrypted, Format, PgpKeys};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut input, mut output, mut file, mut ignore_mac) = (None, None, None, false);
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some("decrypt") {
        return Err("usage: sops decrypt [--input-type T] [--output-type T] [--ignore-mac] FILE".into());
    }
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--input-type" => input = Some(arguments.next().unwrap_or_default().parse::<Format>()?),
            "--output-type" => output = Some(arguments.next().unwrap_or_default().parse::<Format>()?),
            "--ignore-mac" => ignore_mac = true,
            _ => file = Some(argument),
        }
    }
    let file = file.ok_or("a FILE is missing")?;
    let input = input.unwrap_or_else(|| Format::of_path(&file));
    let output = output.unwrap_or_else(|| Format::of_path(&file));
    let encrypted = Encrypted::parse(&std::fs::read(&file)?, input)?;
    let mut unwrapping = encrypted.unwrapping();
    unwrapping.unwrap_age(&age_identities()?);
    unwrapping.unwrap_pgp(&pgp_keys()?);
    let decrypted = encrypted.open(&unwrapping.data_key()?)?;
    let decrypted = if ignore_mac { decrypted } else { decrypted.verified()? };
    std::io::stdout().write_all(&decrypted.to_bytes(output)?)?;
    Ok(())
}

fn age_identities() -> Result<AgeIdentities, Box<dyn Error>> {
    let mut identities = AgeIdentities::new();
    if let Ok(path) = std::env::var("SOPS_AGE_KEY_FILE") {
        identities.add_key_file(&std::fs::read_to_string(path)?)?;
    }
    if let Ok(path) = std::env::var("SOPS_AGE_SSH_PRIVATE_KEY_FILE") {
        identities.add_ssh_key(&std::fs::read_to_string(path)?)?;
    }
    Ok(identities)
}

fn pgp_keys() -> Result<PgpKeys, Box<dyn Error>> {
    let mut keys = PgpKeys::new();
    if let Ok(path) = std::env::var("SOPS_PGP_KEY_FILE") {
        keys.add_keys(&std::fs::read(path)?)?;
    }
    Ok(keys)
}
