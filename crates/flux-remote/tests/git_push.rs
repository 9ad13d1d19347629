//! Changing a repository on a real Git server, over HTTP and SSH.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::SystemTime;

use flux_api::secret::SecretString;
use flux_remote::git::{
    Address, Error, Http, NewCommit, Person, PushOptions, Refspec, Remote, Signer, Ssh, SshAlgorithms,
    SshLogin, TrustedKeys, Working,
};
use testbed::fault::{Fault, Times};
use testbed::git_server::{Accounts, GitServer, Repository, Security, SshKey};
use url::Url;

fn http(url: &str) -> Http {
    Http::new(reqwest::Client::builder(), &Url::parse(url).unwrap(), None).unwrap()
}

fn ssh(server: &GitServer, name: &str, key: &SshKey) -> Ssh {
    let Address::Ssh(address) = Address::parse(&server.ssh_url(name)).unwrap() else { panic!("not SSH") };
    let login = SshLogin {
        identity: SecretString::new(key.private().unwrap()),
        passphrase: None,
        known_hosts: server.known_hosts().unwrap(),
    };
    Ssh::new(address, &login, &SshAlgorithms::default()).unwrap()
}

fn commit(message: &str) -> NewCommit {
    NewCommit {
        message: message.to_owned(),
        author: Person::new("Flux", "flux@example.com"),
        time: SystemTime::now(),
    }
}

async fn clone(remote: &mut dyn Remote, folder: &Path) -> Working {
    Working::clone(remote, folder, "main").await.unwrap()
}

fn tree(repository: &Repository) -> Vec<String> {
    let listed = repository.git(&["ls-tree", "-r", "main"], b"").unwrap();
    listed.lines().map(str::to_owned).collect()
}

async fn files_change_and_everything_else_stays(remote: &mut dyn Remote, repository: &Repository) {
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(remote, folder.path()).await;
    assert_eq!(&*working.read("apps/a.yaml").unwrap(), b"a: 1\n");
    working.write("apps/a.yaml", b"a: 2\n".to_vec()).unwrap();
    working.write("new/deep/er/file", b"x".to_vec()).unwrap();
    working.write_executable("run.sh", b"#!/bin/sh\n".to_vec()).unwrap();
    working.remove("gone").unwrap();
    let id = working.commit(&commit("edit\n\nbody"), None).unwrap().unwrap();
    assert_eq!(&*working.read("new/deep/er/file").unwrap(), b"x");
    working.push(remote, &PushOptions::default()).await.unwrap();

    assert_eq!(repository.resolve("main").unwrap(), id.to_string());
    repository.git(&["fsck", "--strict"], b"").unwrap();
    assert_eq!(
        repository.git(&["log", "-1", "--format=%an <%ae>|%B", "main"], b"").unwrap(),
        "Flux <flux@example.com>|edit\n\nbody"
    );
    let modes: Vec<String> = tree(repository)
        .iter()
        .map(|line| format!("{} {}", &line[..6], line.rsplit('\t').next().unwrap()))
        .collect();
    assert_eq!(
        modes,
        [
            "100644 apps-b",
            "100644 apps/a.yaml",
            "100755 bin/tool",
            "120000 link",
            "100644 new/deep/er/file",
            "100755 run.sh"
        ]
    );
    assert_eq!(repository.read("main", "apps/a.yaml").unwrap(), "a: 2");

    // The same working copy goes on.
    working.write("apps/a.yaml", b"a: 3\n".to_vec()).unwrap();
    working.commit(&commit("again"), None).unwrap().unwrap();
    working.push(remote, &PushOptions::default()).await.unwrap();
    assert_eq!(repository.read("main", "apps/a.yaml").unwrap(), "a: 3");
    assert_eq!(repository.git(&["rev-list", "--count", "main"], b"").unwrap(), "3");
    // And a fresh one sees it all.
    let fresh = tempfile::tempdir().unwrap();
    assert_eq!(&*clone(remote, fresh.path()).await.read("apps/a.yaml").unwrap(), b"a: 3\n");
}

fn seeded(server: &GitServer) -> Repository {
    use testbed::git_server::repository::Change::{Link, Write, WriteExecutable};
    let repository = server.create("fleet").unwrap();
    let changes = [
        Write("apps/a.yaml", "a: 1\n"),
        Write("apps-b", "b\n"),
        Write("gone/x", "x"),
        Write("gone/y/z", "z"),
        WriteExecutable("bin/tool", "tool"),
        Link("link", "apps/a.yaml"),
    ];
    repository.commit_to("main", "first", &changes).unwrap();
    repository
}

#[tokio::test]
async fn over_http() {
    let server = GitServer::start().unwrap();
    let repository = seeded(&server);
    files_change_and_everything_else_stays(&mut http(&server.http_url("fleet")), &repository).await;
}

#[tokio::test]
async fn over_ssh() {
    let key = SshKey::generate().unwrap();
    let accounts = Accounts { keys: vec![key.public().unwrap()], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    let repository = seeded(&server);
    files_change_and_everything_else_stays(&mut ssh(&server, "fleet", &key), &repository).await;
}

#[tokio::test]
async fn with_a_server_that_knows_only_the_first_protocol() {
    let server = GitServer::start().unwrap();
    server.grow_old();
    let repository = seeded(&server);
    files_change_and_everything_else_stays(&mut http(&server.http_url("fleet")), &repository).await;
    let server = GitServer::start().unwrap();
    server.grow_old();
    let repository = seeded(&server);
    let key = SshKey::generate().unwrap();
    files_change_and_everything_else_stays(&mut ssh(&server, "fleet", &key), &repository).await;
}

#[tokio::test]
async fn an_empty_repository_gets_its_first_commit() {
    let server = GitServer::start().unwrap();
    let repository = server.create("fleet").unwrap();
    let mut remote = http(&server.http_url("fleet"));
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(&mut remote, folder.path()).await;
    assert_eq!(working.head(), None);
    // Only an empty one: a branch that is missing among others is an error.
    let other = server.create("other").unwrap();
    other.commit("first", &[("a", "1")]).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let missing = Working::clone(&mut http(&server.http_url("other")), elsewhere.path(), "gone").await.err();
    assert!(matches!(missing, Some(Error::NoSuchRef(_))), "{missing:?}");
    assert_eq!(working.commit(&commit("nothing"), None).unwrap(), None);
    working.write("README.md", b"hello\n".to_vec()).unwrap();
    working.commit(&commit("first"), None).unwrap().unwrap();
    working.push(&mut remote, &PushOptions::default()).await.unwrap();
    assert_eq!(repository.read("main", "README.md").unwrap(), "hello");
}

#[tokio::test]
async fn nothing_changed_means_no_commit() {
    let server = GitServer::start().unwrap();
    seeded(&server);
    let mut remote = http(&server.http_url("fleet"));
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(&mut remote, folder.path()).await;
    working.write("apps/a.yaml", b"a: 1\n".to_vec()).unwrap();
    assert_eq!(working.commit(&commit("same"), None).unwrap(), None);
    working.write("apps/a.yaml", b"other".to_vec()).unwrap();
    working.write("apps/a.yaml", b"a: 1\n".to_vec()).unwrap();
    assert_eq!(working.commit(&commit("back"), None).unwrap(), None);
    assert!(working.write("apps", b"x".to_vec()).is_err());
    assert!(working.write("apps/a.yaml/b", b"x".to_vec()).is_err());
    assert!(working.write(".git/config", b"x".to_vec()).is_err());
}

#[tokio::test]
async fn a_branch_is_made_and_refspecs_push_elsewhere() {
    let server = GitServer::start().unwrap();
    let repository = seeded(&server);
    let mut remote = http(&server.http_url("fleet"));
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(&mut remote, folder.path()).await;
    working.switch(&mut remote, "updates").await.unwrap();
    working.write("x", b"1".to_vec()).unwrap();
    let id = working.commit(&commit("x"), None).unwrap().unwrap();
    let options = PushOptions {
        refspecs: vec![
            Refspec::parse("refs/heads/updates:refs/heads/updates").unwrap(),
            Refspec::parse("HEAD:refs/heads/review/1").unwrap(),
        ],
        ..PushOptions::default()
    };
    working.push(&mut remote, &options).await.unwrap();
    for branch in ["updates", "review/1"] {
        assert_eq!(repository.resolve(branch).unwrap(), id.to_string(), "{branch}");
    }
    assert_ne!(repository.resolve("main").unwrap(), id.to_string());
    // A branch that is there is gone on with.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = clone(&mut remote, elsewhere.path()).await;
    other.switch(&mut remote, "updates").await.unwrap();
    assert_eq!(other.head(), Some(id));
    // Deleting needs no commit.
    let options =
        PushOptions { refspecs: vec![Refspec::parse(":refs/heads/review/1").unwrap()], ..Default::default() };
    working.push(&mut remote, &options).await.unwrap();
    assert!(repository.resolve("refs/heads/review/1").is_err());
}

#[tokio::test]
async fn a_push_that_would_lose_commits_needs_force() {
    let server = GitServer::start().unwrap();
    let repository = seeded(&server);
    let mut remote = http(&server.http_url("fleet"));
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(&mut remote, folder.path()).await;
    repository.commit("meanwhile", &[("m", "1")]).unwrap();
    working.write("x", b"1".to_vec()).unwrap();
    let id = working.commit(&commit("x"), None).unwrap().unwrap();
    let refused = working.push(&mut remote, &PushOptions::default()).await.unwrap_err();
    assert_eq!(refused.to_string(), "non-fast-forward update: refs/heads/main");
    working.push(&mut remote, &PushOptions { force: true, ..PushOptions::default() }).await.unwrap();
    assert_eq!(repository.resolve("main").unwrap(), id.to_string());
}

#[tokio::test]
async fn push_options_reach_the_server_and_a_hook_may_refuse() {
    let server = GitServer::start().unwrap();
    let repository = seeded(&server);
    let mut remote = http(&server.http_url("fleet"));
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(&mut remote, folder.path()).await;
    working.write("x", b"1".to_vec()).unwrap();
    working.commit(&commit("x"), None).unwrap().unwrap();
    let options = PushOptions {
        options: [("merge_request.create".to_owned(), String::new())].into(),
        ..PushOptions::default()
    };
    let unsupported = working.push(&mut remote, &options).await.unwrap_err();
    assert!(matches!(unsupported, Error::Unsupported(_)), "{unsupported}");

    repository.git(&["config", "receive.advertisePushOptions", "true"], b"").unwrap();
    hook(&repository, "pre-receive", "env | grep ^GIT_PUSH_OPTION > $GIT_DIR/told; exit 1");
    let refused = working.push(&mut remote, &options).await.unwrap_err();
    assert!(
        matches!(&refused, Error::PushRefused { reason, .. } if reason.contains("hook declined")),
        "{refused}"
    );
    let told = std::fs::read_to_string(repository.folder().join("told")).unwrap();
    assert!(told.contains("GIT_PUSH_OPTION_0=merge_request.create"), "{told}");
}

fn hook(repository: &Repository, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = repository.folder().join("hooks").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn read_only_credentials_are_told_from_other_trouble() {
    let server = GitServer::start().unwrap();
    seeded(&server);
    let mut remote = http(&server.http_url("fleet"));
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(&mut remote, folder.path()).await;
    working.write("x", b"1".to_vec()).unwrap();
    working.commit(&commit("x"), None).unwrap().unwrap();
    server.http().faults().inject("info/refs?service=git-receive-pack", Times::Always, Fault::Status(403));
    let refused = working.push(&mut remote, &PushOptions::default()).await.unwrap_err();
    assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
    server.http().faults().clear();
    server.http().faults().inject("git-receive-pack", Times::Always, Fault::Status(500));
    let broken = working.push(&mut remote, &PushOptions::default()).await.unwrap_err();
    assert!(matches!(broken, Error::Http(500)), "{broken}");
    server.http().faults().clear();
    working.push(&mut remote, &PushOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_commit_signed_with_an_ssh_key_is_verified_by_its_public_key() {
    let server = GitServer::start().unwrap();
    seeded(&server);
    let mut remote = http(&server.http_url("fleet"));
    let folder = tempfile::tempdir().unwrap();
    let mut working = clone(&mut remote, folder.path()).await;
    working.write("x", b"1".to_vec()).unwrap();
    let key = SshKey::generate().unwrap();
    let signer = Signer::ssh(&SecretString::new(key.private().unwrap()), None).unwrap();
    let id = working.commit(&commit("signed"), Some(&signer)).unwrap().unwrap();
    working.push(&mut remote, &PushOptions::default()).await.unwrap();

    // What the server has, read back, is what was signed.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut store = flux_remote::git::ObjectStore::open(elsewhere.path()).unwrap();
    flux_remote::git::fetch(&mut remote, &mut store, &[id], Some(1), flux_remote::git::Limits::DEFAULT)
        .await
        .unwrap();
    let commit = store.commit(id).unwrap();
    let verify = |public: &str| {
        let mut keys = TrustedKeys::default();
        keys.add("a.sshpub", public.as_bytes());
        keys.verify(commit.signature().as_ref(), "commit", SystemTime::now())
    };
    assert!(verify(&key.public().unwrap()).unwrap().starts_with("SHA256:"));
    assert!(verify(&SshKey::generate().unwrap().public().unwrap()).is_err());
}
