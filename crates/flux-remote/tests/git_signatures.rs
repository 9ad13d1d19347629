//! Signatures as `gpg` and `ssh-keygen` make them, recorded in `tests/signatures`: each `.commit` and `.tag` is a raw
//! object. The keys there sign nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use flux_api::secret::SecretString;
use flux_remote::git::{
    self, Http, Limits, NewCommit, ObjectStore, Oid, Person, PushOptions, Signer, TrustedKeys, Working,
};
use testbed::git_server::{GitServer, Repository};
use url::Url;

fn recorded(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/signatures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn keys(files: &[(&str, &str)]) -> TrustedKeys {
    let mut keys = TrustedKeys::default();
    for (name, file) in files {
        keys.add(name, &recorded(file));
    }
    keys
}

/// Puts raw objects on a server, as Git stores them, and fetches them back.
struct Server {
    server: GitServer,
    repository: Repository,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let server = GitServer::start().unwrap();
        let repository = server.create("fleet").unwrap();
        let blob = repository.git(&["hash-object", "-w", "--stdin"], b"signed: true\n").unwrap();
        let listing = format!("100644 blob {blob}\tapp.yaml\n");
        repository.git(&["mktree"], listing.as_bytes()).unwrap();
        Self { server, repository, folder: tempfile::tempdir().unwrap() }
    }

    fn put(&self, kind: &str, raw: &[u8], reference: &str) -> Oid {
        let id = self.repository.git(&["hash-object", "-t", kind, "-w", "--stdin"], raw).unwrap();
        self.repository.git(&["update-ref", reference, &id], b"").unwrap();
        Oid::parse(&id).unwrap()
    }

    fn remote(&self) -> Http {
        let url = Url::parse(&self.server.http_url("fleet")).unwrap();
        Http::new(reqwest::Client::builder(), &url, None).unwrap()
    }

    async fn fetched(&self, id: Oid) -> ObjectStore {
        let mut store = ObjectStore::open(self.folder.path()).unwrap();
        git::fetch(&mut self.remote(), &mut store, &[id], Some(1), Limits::DEFAULT).await.unwrap();
        store
    }

    async fn verify(&self, raw: &[u8], keys: &TrustedKeys) -> Result<String, String> {
        let id = self.put("commit", raw, "refs/heads/main");
        let commit = self.fetched(id).await.commit(id).unwrap();
        keys.verify(commit.signature().as_ref(), "commit", SystemTime::now())
            .map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn good_signatures_are_recognised_and_the_key_is_named() {
    let server = Server::start();
    let all = keys(&[
        ("ann.asc", "ann.asc"),
        ("rsa.asc", "rsa.asc"),
        ("sub.asc", "sub.asc"),
        ("a.sshpub", "ssh-ed25519.pub"),
        ("b.sshpub", "ssh-ecdsa.pub"),
        ("c.sshpub", "ssh-rsa.pub"),
    ]);
    let cases = [
        ("ann.commit", "6AA5E2C4491A7DFC"),
        ("rsa.commit", "ED8034A8CD5C5036"),
        // Made by a subkey; the primary key is named.
        ("sub.commit", "93790A495C41647E"),
        ("ssh-ed25519.commit", "SHA256:"),
        ("ssh-ecdsa.commit", "SHA256:"),
        ("ssh-rsa.commit", "SHA256:"),
    ];
    for (file, key) in cases {
        let found = server.verify(&recorded(file), &all).await;
        assert!(found.as_ref().is_ok_and(|found| found.starts_with(key)), "{file}: {found:?}");
    }
}

#[tokio::test]
async fn bad_signatures_are_not() {
    let server = Server::start();
    let everything = [
        ("ann.asc", "ann.asc"),
        ("expired.asc", "expired.asc"),
        ("revoked.asc", "revoked.asc"),
        ("a.sshpub", "ssh-ed25519.pub"),
    ];
    for file in ["expired.commit", "revoked.commit", "rsa.commit", "ssh-rsa.commit"] {
        let found = server.verify(&recorded(file), &keys(&everything)).await;
        assert!(found.as_ref().is_err_and(|error| error.contains("no matching key")), "{file}: {found:?}");
    }
    // One byte of what was signed is another.
    for file in ["ann.commit", "ssh-ed25519.commit"] {
        let text = String::from_utf8(recorded(file)).unwrap().replace("signed by", "Signed by");
        let found = server.verify(text.as_bytes(), &keys(&everything)).await;
        assert!(found.as_ref().is_err_and(|error| error.contains("no matching key")), "{file}: {found:?}");
    }
    // Another header is signed too.
    let more =
        String::from_utf8(recorded("ann.commit")).unwrap().replacen("\n\n", "\nencoding latin-1\n\n", 1);
    assert!(server.verify(more.as_bytes(), &keys(&everything)).await.is_err());
}

#[tokio::test]
async fn the_kind_of_key_that_is_missing_is_named() {
    let server = Server::start();
    let only_ssh = keys(&[("a.sshpub", "ssh-ed25519.pub")]);
    let only_pgp = keys(&[("key", "ann.asc")]);
    let nonsense = keys(&[("a.asc", "ann.commit"), ("b.sshpub", "ann.commit")]);
    let text = |found: Result<String, String>| found.unwrap_err();
    assert!(
        text(server.verify(&recorded("ann.commit"), &only_ssh).await).contains("no PGP public keys found")
    );
    assert!(
        text(server.verify(&recorded("ssh-rsa.commit"), &only_pgp).await)
            .contains("no SSH public keys found")
    );
    assert!(
        text(server.verify(&recorded("ann.commit"), &nonsense).await)
            .contains("unable to read armored key ring")
    );
    assert!(
        text(server.verify(&recorded("ssh-rsa.commit"), &nonsense).await)
            .contains("unable to parse authorized keys")
    );
    // A malformed ring does not hide a good one, and a key under any other name counts as OpenPGP.
    let mixed = keys(&[("a.asc", "ann.commit"), ("z", "ann.asc")]);
    assert_eq!(server.verify(&recorded("ann.commit"), &mixed).await.unwrap(), "6AA5E2C4491A7DFC");
}

#[tokio::test]
async fn a_tag_carries_its_own_signature() {
    let server = Server::start();
    server.put("commit", &recorded("ann.commit"), "refs/heads/main");
    let id = server.put("tag", &recorded("ann.tag"), "refs/tags/v1.0.0");
    let tag = server.fetched(id).await.tag(id).unwrap().unwrap();
    let verify =
        |ring: &str| keys(&[("a.asc", ring)]).verify(tag.signature().as_ref(), "tag", SystemTime::now());
    assert_eq!(verify("ann.asc").unwrap(), "6AA5E2C4491A7DFC");
    assert!(verify("rsa.asc").is_err());
}

fn bot() -> Result<Signer, git::Error> {
    signer_with("open sesame", None)
}

fn signer_with(passphrase: &str, key_id: Option<&str>) -> Result<Signer, git::Error> {
    let passphrase = SecretString::new(passphrase.to_owned());
    Signer::open_pgp(&recorded("bot.secret.asc"), Some(&passphrase), key_id)
}

#[test]
fn a_wrong_passphrase_and_an_unknown_key_are_told_at_once() {
    assert!(signer_with("open sesame", Some("58A660E37841B209")).is_ok());
    assert!(signer_with("open sesame", Some("0x58a660e37841b209")).is_ok());
    let wrong = signer_with("hunter2", None).err().unwrap().to_string();
    assert!(!wrong.contains("hunter2") && wrong.contains("signing failed"), "{wrong}");
    let unknown = signer_with("open sesame", Some("1234567812345678")).err().unwrap().to_string();
    assert!(unknown.contains("1234567812345678"), "{unknown}");
}

#[tokio::test]
async fn gpg_accepts_what_we_sign() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let mut working = Working::clone(&mut server.remote(), folder.path(), "main").await.unwrap();
    working.write("a", b"1".to_vec()).unwrap();
    let commit = NewCommit {
        message: "signed".to_owned(),
        author: Person::new("bot", "bot@example.com"),
        time: SystemTime::now(),
    };
    let id = working.commit(&commit, Some(&bot().unwrap())).unwrap().unwrap();
    working.push(&mut server.remote(), &PushOptions::default()).await.unwrap();

    let stored = server.fetched(id).await.commit(id).unwrap();
    let by_us = keys(&[("bot", "bot.asc")]).verify(stored.signature().as_ref(), "commit", SystemTime::now());
    assert_eq!(by_us.unwrap(), "58A660E37841B209");

    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("bot.asc"), recorded("bot.asc")).unwrap();
    let gpg = |arguments: &[&str]| {
        let mut command = Command::new("gpg");
        command
            .arg("--homedir")
            .arg(home.path())
            .args(["--batch", "--quiet", "--no-autostart"])
            .args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("gpg is installed")
    };
    assert!(gpg(&["--import", home.path().join("bot.asc").to_str().unwrap()]).status.success());
    let raw = String::from_utf8(stored.raw.clone()).unwrap();
    let (before, rest) = raw.split_once("gpgsig ").unwrap();
    let (signature, after) =
        rest.split_once("\n\n").map(|(a, b)| (a.replace("\n ", "\n"), format!("\n{b}"))).unwrap();
    std::fs::write(home.path().join("payload"), format!("{before}{after}")).unwrap();
    std::fs::write(home.path().join("signature"), signature + "\n").unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let verified = gpg(&["--verify", &path("signature"), &path("payload")]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}
