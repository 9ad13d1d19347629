//! Logging in with every kind of key people keep in Secrets, as `ssh-keygen` and `openssl` write them: `tests/keys`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use flux_api::secret::SecretString;
use flux_remote::git::{self, Address, Error, Limits, Ssh, SshAlgorithms, SshLogin};
use testbed::git_server::{Accounts, GitServer, Security};

const KEYS: &[&str] = &[
    "openssh-ed25519-0",
    "openssh-ecdsa-256",
    "openssh-ecdsa-384",
    "openssh-ecdsa-521",
    "openssh-rsa-2048",
    "encrypted-openssh-ed25519",
    // What `flux create secret git` makes.
    "pkcs8-p384",
    "pkcs8-rsa",
    "pkcs1-rsa",
    "sec1-p384",
    "encrypted-pkcs8-p384",
];

fn recorded(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/keys/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn remote(server: &GitServer, key: &str, passphrase: Option<&str>) -> Result<Ssh, Error> {
    let Address::Ssh(address) = Address::parse(&server.ssh_url("fleet"))? else { panic!("not SSH") };
    let login = SshLogin {
        identity: SecretString::new(recorded(key)),
        passphrase: passphrase.map(|text| SecretString::new(text.to_owned())),
        known_hosts: server.known_hosts().unwrap(),
    };
    Ssh::new(address, &login, &SshAlgorithms::default())
}

#[tokio::test]
async fn every_kind_of_key_logs_in() {
    let keys = KEYS.iter().map(|name| recorded(&format!("{name}.pub"))).collect();
    let server = GitServer::start_with(Accounts { keys, ..Accounts::default() }, Security::Plain).unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    for name in KEYS {
        let passphrase = name.starts_with("encrypted").then_some("open sesame");
        let mut remote = remote(&server, name, passphrase).unwrap_or_else(|error| panic!("{name}: {error}"));
        let refs = git::list_refs(&mut remote, &[], Limits::DEFAULT).await;
        let refs = refs.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(refs.iter().any(|one| one.name == "refs/heads/main"), "{name}");
    }
}

#[tokio::test]
async fn an_encrypted_key_needs_its_passphrase_and_says_so() {
    let server = GitServer::start().unwrap();
    for name in ["encrypted-openssh-ed25519", "encrypted-pkcs8-p384"] {
        assert!(matches!(remote(&server, name, None), Err(Error::PassphraseMissing)), "{name}");
        let wrong = remote(&server, name, Some("hunter2")).err().unwrap().to_string();
        assert!(wrong.contains("cannot be decrypted") && !wrong.contains("hunter2"), "{name}: {wrong}");
    }
    // A passphrase beside a key that has none does no harm.
    assert!(remote(&server, "openssh-ed25519-0", Some("unused")).is_ok());
}

#[tokio::test]
async fn flags_choose_the_algorithms() {
    let server = GitServer::start().unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let with = |kex: &[&str], host_keys: &[&str]| {
        let Address::Ssh(address) = Address::parse(&server.ssh_url("fleet")).unwrap() else {
            panic!("not SSH")
        };
        let login = SshLogin {
            identity: SecretString::new(recorded("openssh-ed25519-0")),
            passphrase: None,
            known_hosts: server.known_hosts().unwrap(),
        };
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Ssh::new(address, &login, &SshAlgorithms { key_exchange: list(kex), host_keys: list(host_keys) })
    };
    let mut good = with(&["curve25519-sha256"], &["ssh-ed25519"]).unwrap();
    assert!(git::list_refs(&mut good, &[], Limits::DEFAULT).await.is_ok());
    // The server has no such host key.
    let mut unlike = with(&[], &["ecdsa-sha2-nistp256"]).unwrap();
    assert!(git::list_refs(&mut unlike, &[], Limits::DEFAULT).await.is_err());
    assert!(with(&["nonsense"], &[]).is_err());
}
