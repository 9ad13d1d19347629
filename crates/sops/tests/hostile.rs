//! Damaged and hostile files: typed errors, no panics, and never a value in a message.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test owns its files and its environment"
)]

use std::path::{Path, PathBuf};

use sops::{AgeIdentities, Encrypted, Error, Format, IdentityError, KeyPart, Mac, PgpKeys, Recipient};

fn cases() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"))
}

fn identities() -> AgeIdentities {
    let mut identities = AgeIdentities::new();
    identities.add_key_file(&std::fs::read_to_string(cases().join("keys/a.agekey")).unwrap()).unwrap();
    identities
}

fn encrypted(case: &str, extension: &str) -> Vec<u8> {
    std::fs::read(cases().join(case).join(format!("encrypted.{extension}"))).unwrap()
}

/// As far as it goes.
fn decrypt(bytes: &[u8], format: Format, identities: &AgeIdentities) -> Result<Vec<u8>, Error> {
    let file = Encrypted::parse(bytes, format)?;
    let mut unwrapping = file.unwrapping();
    unwrapping.unwrap_age(identities);
    unwrapping.unwrap_pgp(&PgpKeys::new());
    file.open(&unwrapping.data_key()?)?.to_bytes(format)
}

/// A generator with a fixed seed, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const PIECES: [&[u8]; 14] = [
        b"\n", b"ENC[", b"]", b"sops:", b"- ", b"\"", b"{", b"__list_", b"__map_", b"\x00", b"\xff", b"&a ",
        b"*a", b": ",
    ];
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len().max(1)).min(bytes.len());
        match dice.roll(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + dice.roll(64)).min(bytes.len()))),
            2 if at < bytes.len() => bytes[at] = u8::try_from(dice.roll(256)).unwrap(),
            3 => drop(bytes.splice(at..at, PIECES[dice.roll(PIECES.len())].iter().copied())),
            _ => {
                let end = (at + dice.roll(200)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = dice.roll(bytes.len().max(1)).min(bytes.len());
                drop(bytes.splice(to..to, copy));
            }
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let identities = identities();
    let mut dice = Dice(0x50_50_5e_ed);
    let (mut opened, mut refused) = (0, 0);
    for (case, extension, format) in [
        ("yaml-comments", "yaml", Format::Yaml),
        ("yaml-scalars", "yaml", Format::Yaml),
        ("shamir-too-few", "yaml", Format::Yaml),
        ("json-everything", "json", Format::Json),
        ("dotenv-everything", "env", Format::Dotenv),
        ("ini-everything", "ini", Format::Ini),
        ("binary-bytes", "bin", Format::Binary),
    ] {
        let original = encrypted(case, extension);
        for _ in 0..150 {
            let mut bytes = original.clone();
            mutate(&mut bytes, &mut dice);
            match decrypt(&bytes, format, &identities) {
                Ok(_) => opened += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("mutations: {opened} opened, {refused} refused");
    assert!(opened > 0 && refused > 0);
}

#[test]
fn truncated_files_are_refused() {
    let identities = identities();
    let original = encrypted("json-everything", "json");
    for length in (0..original.len() - 2).step_by(37) {
        assert!(decrypt(&original[..length], Format::Json, &identities).is_err(), "{length}");
    }
}

#[test]
fn deep_and_large_files_are_refused() {
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(Encrypted::parse(deep.as_bytes(), Format::Json), Err(Error::Syntax { .. })));
    assert!(matches!(Encrypted::parse(deep.as_bytes(), Format::Yaml), Err(Error::Syntax { .. })));
    let large = vec![b' '; sops::MAX_BYTES + 1];
    assert!(matches!(Encrypted::parse(&large, Format::Json), Err(Error::TooLarge { .. })));
    let laughs: String =
        (1..40).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(9))).collect();
    let bomb = format!("a0: &a0 [x]\n{laughs}");
    assert!(matches!(Encrypted::parse(bomb.as_bytes(), Format::Yaml), Err(Error::Syntax { .. })));
    assert!(matches!(Encrypted::parse(b"a: &a [*a]\nsops: {}\n", Format::Yaml), Err(Error::Syntax { .. })));
}

#[test]
fn what_is_not_from_sops_is_told_apart() {
    for (text, format) in [
        ("a: 1\n", Format::Yaml),
        ("", Format::Yaml),
        ("{}", Format::Json),
        ("{\"sops\":{}}", Format::Json),
        ("A=1\n", Format::Dotenv),
        ("[a]\nb = 1\n", Format::Ini),
    ] {
        assert_eq!(Encrypted::parse(text.as_bytes(), format).err(), Some(Error::NotEncrypted), "{text:?}");
    }
    for (text, format) in [
        ("- a\n", Format::Yaml),
        ("text\n", Format::Yaml),
        ("a: 1\na: 2\n", Format::Yaml),
        ("1: x\n", Format::Yaml),
        ("[1]", Format::Json),
        ("{\"a\":1", Format::Json),
        ("no equals sign", Format::Dotenv),
        ("[unclosed\n", Format::Ini),
    ] {
        let found = Encrypted::parse(text.as_bytes(), format).err();
        assert!(matches!(found, Some(Error::Syntax { .. })), "{text:?}: {found:?}");
    }
}

#[test]
fn metadata_problems_name_their_field() {
    let field = |metadata: &str| {
        let text = format!("a: ENC[]\nsops:\n{metadata}");
        match Encrypted::parse(text.as_bytes(), Format::Yaml).err() {
            Some(Error::Metadata { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(field("    version: 3.13.3\n"), "lastmodified");
    assert_eq!(field("    lastmodified: 2024-01-01T00:00:00Z\n"), "lastmodified", "a timestamp, not a text");
    let good = "    lastmodified: \"2024-01-01T00:00:00Z\"\n";
    assert_eq!(field(good), "key_groups");
    assert_eq!(field(&format!("{good}    age: 5\n")), "age");
    assert_eq!(field(&format!("{good}    age: [5]\n")), "age[0]");
    assert_eq!(field(&format!("{good}    pgp: [{{fp: AB}}]\n")), "pgp[0].created_at");
    let age = format!("{good}    age: [{{recipient: r, enc: e}}]\n");
    let two = format!("{age}    encrypted_regex: a\n    encrypted_suffix: b\n");
    assert_eq!(field(&two), "encrypted_regex");
    assert_eq!(field(&format!("{age}    mac_only_encrypted: maybe\n")), "mac_only_encrypted");
    assert_eq!(field(&format!("{age}    shamir_threshold: many\n")), "shamir_threshold");
}

/// All kinds of key services, each with what its client needs.
#[test]
fn key_services_are_named() {
    let text = r#"{"a":"x","sops":{"lastmodified":"2024-01-01T00:00:00Z","version":"3.13.3","mac":"",
      "kms":[{"arn":"arn:aws:kms:eu:1:key/k","role":"arn:r","context":{"App":"web"},"aws_profile":"p","created_at":"2024-01-01T00:00:00Z","enc":"QUJD"}],
      "gcp_kms":[{"resource_id":"projects/p/locations/l/keyRings/r/cryptoKeys/k","created_at":"2024-01-01T00:00:00Z","enc":"R0NQ"}],
      "azure_kv":[{"vault_url":"https://v.vault.azure.net","name":"n","version":"1","created_at":"2024-01-01T00:00:00Z","enc":"QVo"}],
      "hc_vault":[{"vault_address":"https://vault","engine_path":"sops","key_name":"k","created_at":"2024-01-01T00:00:00Z","enc":"vault:v1:x"}],
      "hckms":[{"key_id":"region:id","created_at":"2024-01-01T00:00:00Z","enc":"SEM="}]}}"#;
    let file = Encrypted::parse(text.as_bytes(), Format::Json).ok().unwrap();
    let [group] = file.recipients() else { panic!("one group") };
    assert_eq!(group.recipients.len(), 5);
    let Recipient::AwsKms { arn, role, context, profile, wrapped } = &group.recipients[0] else { panic!() };
    assert_eq!((arn.as_str(), role.as_str(), profile.as_str()), ("arn:aws:kms:eu:1:key/k", "arn:r", "p"));
    assert_eq!((context["App"].as_str(), wrapped.as_str()), ("web", "QUJD"));
    let mut unwrapping = file.unwrapping();
    assert_eq!(unwrapping.wanted().len(), 5);
    unwrapping.refuse(0, 0, "403 AccessDenied");
    unwrapping.note_identity("AWS role flux");
    let message = unwrapping.data_key().err().unwrap().to_string();
    for part in [
        "AWS KMS arn:aws:kms:eu:1:key/k (403 AccessDenied)",
        "GCP KMS projects/p",
        "Azure Key Vault https://v.vault.azure.net/keys/n/1",
        "Vault https://vault/v1/sops/keys/k",
        "at hand: AWS role flux",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let mut unwrapping = file.unwrapping();
    unwrapping.supply(0, KeyPart::new(vec![1; 31]));
    assert!(unwrapping.wanted().is_empty());
    assert_eq!(unwrapping.data_key().err(), Some(Error::DataKeyLength(31)));
}

#[test]
fn errors_name_recipients_and_identities_but_no_value() {
    let file = encrypted("shamir-too-few", "yaml");
    let Err(error) = decrypt(&file, Format::Yaml, &identities()) else { panic!("two groups are missing") };
    let Error::Locked { groups, threshold, identities: at_hand } = &error else { panic!("{error}") };
    assert_eq!((groups.len(), *threshold, at_hand.len()), (3, 2, 1));
    assert_eq!(groups.iter().map(|group| group.unwrapped).collect::<Vec<_>>(), [true, false, false]);
    let message = error.to_string();
    assert!(message.contains("1 of 3 key groups unwrapped, 2 needed"), "{message}");
    assert!(message.contains("PGP FDA1E2A5604B78E61EEBFB3967FB48DC590B2210"), "{message}");
    assert!(!message.contains("AGE-SECRET"), "{message}");
    assert!(!message.contains("BEGIN"), "{message}");
}

#[test]
fn the_mac_is_judged_by_the_caller() {
    let bytes = encrypted("yaml-unencrypted-value-edited", "yaml");
    let file = Encrypted::parse(&bytes, Format::Yaml).ok().unwrap();
    let mut unwrapping = file.unwrapping();
    unwrapping.unwrap_age(&identities());
    let opened = file.open(&unwrapping.data_key().ok().unwrap()).ok().unwrap();
    assert_eq!(opened.mac(), Mac::Mismatch);
    assert!(String::from_utf8(opened.to_bytes(Format::Yaml).unwrap()).unwrap().contains("hunter2"));
    assert_eq!(opened.verified().err(), Some(Error::MacMismatch));
}

/// The real sops 3.13.3 writes `null` for this value: go-yaml cannot read back what it wrote. Ours survives.
#[test]
fn a_value_that_begins_with_a_tab_is_not_lost() {
    let found = decrypt(&encrypted("json-tab", "json"), Format::Json, &identities()).unwrap();
    assert_eq!(found, b"{\n\t\"a\": \"\\tx\\ny\"\n}\n");
    let bytes = encrypted("json-tab", "json");
    let file = Encrypted::parse(&bytes, Format::Json).ok().unwrap();
    let mut unwrapping = file.unwrapping();
    unwrapping.unwrap_age(&identities());
    let opened = file.open(&unwrapping.data_key().ok().unwrap()).ok().unwrap();
    assert_eq!(opened.to_bytes(Format::Yaml).unwrap(), b"a: \"\\tx\\ny\"\n");
}

#[test]
fn unusable_identities_say_why() {
    let mut identities = AgeIdentities::new();
    let error = |result: Result<(), IdentityError>| result.err().map(|error| error.to_string()).unwrap();
    assert_eq!(error(identities.add_key_file("# only a comment\n")), "age identities: no identity found");
    let message = error(identities.add_key_file("# c\n\nAGE-SECRET-KEY-1SECRETSECRET\n"));
    assert_eq!(message, "age identities: line 3: not an identity like AGE-SECRET-KEY-1…");
    let message = error(identities.add_key_file("AGE-SECRET-KEY-PQ-1SECRET\n"));
    assert_eq!(message, "age identities: line 1: not an identity like AGE-SECRET-KEY-PQ-1…");
    assert!(error(identities.add_key_file("AGE-PLUGIN-YUBIKEY-1X\n")).contains("plugins"));
    assert!(error(identities.add_ssh_key("nonsense")).contains("SSH private key"));
    assert!(PgpKeys::new().add_keys(b"nonsense").is_err());
    assert!(PgpKeys::new().add_keys(b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nAAAA\n").is_err());
    assert!(identities.is_empty());
}

#[test]
fn formats_are_told_by_name() {
    let of = |path: &str| Format::of_path(path).to_string();
    assert_eq!(of("a/b.yaml"), "yaml");
    assert_eq!(of("b.yml"), "yaml");
    assert_eq!(of("x.json"), "json");
    assert_eq!(of(".env"), "dotenv");
    assert_eq!(of("x.ini"), "ini");
    assert_eq!(of("x.txt"), "binary");
    assert!("toml".parse::<Format>().is_err());
    assert!(Path::new(&cases()).is_dir());
}
