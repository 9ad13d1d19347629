//! Fetching from a real Git server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use file_tree::Files;
use flux_remote::git::{self, Checkout, Http, Limits, ObjectStore, Reference};
use testbed::git_server::{Accounts, GitServer, Security};
use url::Url;

fn remote(url: &str, authorization: Option<&str>) -> Http {
    Http::new(reqwest::Client::builder(), &Url::parse(url).unwrap(), authorization.map(str::to_owned))
        .unwrap()
}

fn branch(name: &str) -> Reference {
    Reference { branch: Some(name.to_owned()), ..Reference::default() }
}

/// Fetches what `reference` means and returns its revision and files.
async fn fetch(
    url: &str,
    store: &mut ObjectStore,
    reference: &Reference,
) -> Result<(String, BTreeMap<String, String>), git::Error> {
    let mut remote = remote(url, None);
    let prefixes = reference.prefixes();
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    let refs = git::list_refs(&mut remote, &prefixes, Limits::DEFAULT).await?;
    let pick = git::pick(reference, &refs)?;
    let depth = if pick.deep { None } else { Some(1) };
    git::fetch(&mut remote, store, &[pick.want], depth, Limits::DEFAULT).await?;
    let checkout = Checkout::new(store, pick.commit)?;
    let files = checkout
        .files()
        .map(|(path, _)| {
            let text = String::from_utf8(checkout.read(path).unwrap().into_owned()).unwrap();
            (path.to_string(), text)
        })
        .collect();
    Ok((pick.revision(), files))
}

fn files(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// Text that does not compress to nothing: no pack hides a copy of it.
fn noise(bytes: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut text = String::new();
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}\n"));
    }
    text
}

/// The sizes of the packs in a store, smallest first.
fn packs(folder: &std::path::Path) -> Vec<u64> {
    let mut packs: Vec<u64> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack"))
        .map(|entry| entry.metadata().unwrap().len())
        .collect();
    packs.sort_unstable();
    packs
}

#[tokio::test]
async fn a_branch_is_fetched_and_a_new_commit_costs_only_its_delta() {
    for old_server in [false, true] {
        let server = GitServer::start().unwrap();
        if old_server {
            server.grow_old();
        }
        let repository = server.create("fleet").unwrap();
        let large = noise(200_000);
        let first = repository.commit("first", &[("apps/a.yaml", "a: 1\n"), ("large.txt", &large)]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut store = ObjectStore::open(folder.path()).unwrap();

        let url = server.http_url("fleet");
        let (revision, found) = fetch(&url, &mut store, &branch("main")).await.unwrap();
        assert_eq!(revision, format!("main@sha1:{first}"));
        assert_eq!(found, files(&[("apps/a.yaml", "a: 1\n"), ("large.txt", &large)]));

        let second = repository.commit("second", &[("apps/a.yaml", "a: 2\n")]).unwrap();
        let mut store = ObjectStore::open(folder.path()).unwrap();
        let (revision, found) = fetch(&url, &mut store, &branch("main")).await.unwrap();
        assert_eq!(revision, format!("main@sha1:{second}"));
        assert_eq!(found, files(&[("apps/a.yaml", "a: 2\n"), ("large.txt", &large)]));
        let sizes = packs(folder.path());
        assert_eq!(sizes.len(), 2);
        assert!(sizes[0] < 1000, "the second pack has {} bytes", sizes[0]);
    }
}

#[tokio::test]
async fn a_pack_that_builds_on_what_is_here_is_completed() {
    for old_server in [false, true] {
        let server = GitServer::start().unwrap();
        if old_server {
            server.grow_old();
        }
        let repository = server.create("fleet").unwrap();
        let (mut one, mut two) = (noise(100_000), noise(50_000));
        repository.commit("first", &[("one.txt", &one), ("folder/two.txt", &two)]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let url = server.http_url("fleet");
        for round in 0..4 {
            let mut store = ObjectStore::open(folder.path()).unwrap();
            let (_, found) = fetch(&url, &mut store, &branch("main")).await.unwrap();
            assert_eq!(found, files(&[("one.txt", &one), ("folder/two.txt", &two)]), "{round}");
            one.insert_str(500 * round, "one line more\n");
            two.push_str("and one here\n");
            repository.commit("next", &[("one.txt", &one), ("folder/two.txt", &two)]).unwrap();
        }
        let mut store = ObjectStore::open(folder.path()).unwrap();
        let (_, found) = fetch(&url, &mut store, &branch("main")).await.unwrap();
        assert_eq!(found["one.txt"], one);
    }
}

#[tokio::test]
async fn tags_ranges_names_and_commits_are_found() {
    let server = GitServer::start().unwrap();
    let repository = server.create("fleet").unwrap();
    let first = repository.commit("first", &[("a", "1")]).unwrap();
    repository.tag("v1.0.0", &first, Some("annotated")).unwrap();
    let second = repository.commit("second", &[("a", "2")]).unwrap();
    repository.tag("v1.1.0", &second, None).unwrap();
    let third = repository.commit("third", &[("a", "3")]).unwrap();
    let url = server.http_url("fleet");

    let cases = [
        (Reference { tag: Some("v1.0.0".into()), ..Default::default() }, format!("v1.0.0@sha1:{first}"), "1"),
        (
            Reference { semver: Some(">=1.0.0".into()), ..Default::default() },
            format!("v1.1.0@sha1:{second}"),
            "2",
        ),
        (
            Reference { name: Some("refs/heads/main".into()), ..Default::default() },
            format!("refs/heads/main@sha1:{third}"),
            "3",
        ),
        (
            Reference { commit: Some(second.clone()), branch: Some("main".into()), ..Default::default() },
            format!("main@sha1:{second}"),
            "2",
        ),
    ];
    for (reference, revision, text) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut store = ObjectStore::open(folder.path()).unwrap();
        let (found, tree) = fetch(&url, &mut store, &reference).await.unwrap();
        assert_eq!((found, tree["a"].as_str()), (revision, text), "{reference:?}");
    }
}

#[tokio::test]
async fn a_shallow_store_can_be_deepened_later() {
    let server = GitServer::start().unwrap();
    let repository = server.create("fleet").unwrap();
    let first = repository.commit("first", &[("a", "1")]).unwrap();
    repository.commit("second", &[("a", "2")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut store = ObjectStore::open(folder.path()).unwrap();
    let url = server.http_url("fleet");
    fetch(&url, &mut store, &branch("main")).await.unwrap();
    let old = Reference { commit: Some(first.clone()), ..branch("main") };
    let (revision, tree) = fetch(&url, &mut store, &old).await.unwrap();
    assert_eq!((revision, tree["a"].as_str()), (format!("main@sha1:{first}"), "1"));

    // The same with a server that knows only the first version of the protocol.
    server.grow_old();
    let folder = tempfile::tempdir().unwrap();
    let mut store = ObjectStore::open(folder.path()).unwrap();
    fetch(&url, &mut store, &branch("main")).await.unwrap();
    let (revision, tree) = fetch(&url, &mut store, &old).await.unwrap();
    assert_eq!((revision, tree["a"].as_str()), (format!("main@sha1:{first}"), "1"));
}

#[tokio::test]
async fn credentials_are_needed_where_the_server_asks_for_them() {
    let accounts = Accounts { tokens: vec!["sesame".to_owned()], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let url = server.http_url("fleet");
    let without = git::list_refs(&mut remote(&url, None), &[], Limits::DEFAULT).await;
    assert!(matches!(without, Err(git::Error::AuthenticationRequired)), "{without:?}");
    let refs = git::list_refs(&mut remote(&url, Some("Bearer sesame")), &[], Limits::DEFAULT).await.unwrap();
    assert!(refs.iter().any(|one| one.name == "refs/heads/main"));
}

#[tokio::test]
async fn an_absent_repository_and_an_absent_ref_are_told_apart() {
    let server = GitServer::start().unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut store = ObjectStore::open(folder.path()).unwrap();
    let missing = fetch(&server.http_url("nothing"), &mut store, &branch("main")).await;
    assert!(matches!(missing, Err(git::Error::RepositoryNotFound)), "{missing:?}");
    let no_branch = fetch(&server.http_url("fleet"), &mut store, &branch("gone")).await;
    assert!(matches!(no_branch, Err(git::Error::NoSuchRef(_))), "{no_branch:?}");
}

#[tokio::test]
async fn a_damaged_cache_is_made_again() {
    let server = GitServer::start().unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = server.http_url("fleet");
    fetch(&url, &mut ObjectStore::open(folder.path()).unwrap(), &branch("main")).await.unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "idx") {
            let mut permissions = std::fs::metadata(&path).unwrap().permissions();
            #[expect(clippy::permissions_set_readonly_false, reason = "a file of this test")]
            permissions.set_readonly(false);
            std::fs::set_permissions(&path, permissions).unwrap();
            std::fs::write(&path, b"nonsense").unwrap();
        }
    }
    let mut store = ObjectStore::open(folder.path()).unwrap();
    let (_, tree) = fetch(&url, &mut store, &branch("main")).await.unwrap();
    assert_eq!(tree["a"], "1");
    let head = git::Oid::parse(&server_head(&url).await).unwrap();
    assert_eq!(store.commit(head).unwrap().message.trim(), "first");
}

async fn server_head(url: &str) -> String {
    let refs = git::list_refs(&mut remote(url, None), &["refs/heads/main"], Limits::DEFAULT).await.unwrap();
    refs[0].commit().to_string()
}

#[tokio::test]
async fn a_repository_with_names_of_sha_256_is_refused_with_a_word() {
    let server = GitServer::start().unwrap();
    let folder = server.root().join("new.git");
    let git = |arguments: &[&str], input: &str| {
        let mut child = std::process::Command::new("git")
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    let path = folder.to_str().unwrap();
    git(&["init", "--quiet", "--bare", "--object-format=sha256", path], "");
    // An empty repository has nothing to say in the first protocol, not even this.
    let commit = "commit refs/heads/main\ncommitter a <a@b> 1700000000 +0000\ndata 0\n";
    git(&["-C", path, "fast-import", "--quiet"], commit);
    for old in [false, true] {
        if old {
            server.grow_old();
        }
        let error = git::list_refs(&mut remote(&server.http_url("new"), None), &[], Limits::DEFAULT)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("SHA-256"), "{error}");
    }
}
