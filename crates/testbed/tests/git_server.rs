//! The Git server as the real `git` sees it.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::Result;
use testbed::fault::{Fault, Times};
use testbed::git_server::{Accounts, GitServer, Security, SshKey};
use testbed::tls::Authority;

/// Runs git as a user with no configuration of their own.
fn git(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new("git")
        .args(["-c", "user.name=me", "-c", "user.email=me@example.com"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .envs(variables.iter().copied())
        .output()
        .expect("git is installed")
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn accounts() -> Accounts {
    Accounts {
        passwords: vec![("ada".to_owned(), "engine".to_owned())],
        tokens: vec!["t0ken".to_owned()],
        ..Accounts::default()
    }
}

#[test]
fn a_clone_over_http_sees_what_was_committed_and_can_push_back() -> Result<()> {
    let server = GitServer::start()?;
    let repository = server.create("team/app")?;
    repository.commit("first", &[("README.md", "hello\n")])?;
    let work = tempfile::tempdir()?;
    let url = server.http_url("team/app");
    succeeds(&git(work.path(), &[], &["clone", "-q", &url, "app"]));
    let app = work.path().join("app");
    assert_eq!(std::fs::read_to_string(app.join("README.md"))?, "hello\n");

    std::fs::write(app.join("new.txt"), "x".repeat(200_000))?;
    succeeds(&git(&app, &[], &["add", "."]));
    succeeds(&git(&app, &[], &["commit", "-qm", "second"]));
    succeeds(&git(&app, &[], &["push", "-q", "origin", "main"]));
    assert_eq!(repository.read("main", "new.txt")?.len(), 200_000);
    Ok(())
}

#[test]
fn a_second_commit_keeps_the_files_of_the_first() -> Result<()> {
    let server = GitServer::start()?;
    let repository = server.create("app")?;
    let first = repository.commit("first", &[("a", "1"), ("b", "1")])?;
    let second = repository.commit("second", &[("b", "2")])?;
    assert_ne!(first, second);
    assert_eq!(repository.read(&second, "a")?, "1");
    assert_eq!(repository.read(&second, "b")?, "2");
    assert_eq!(repository.resolve(&format!("{second}^"))?, first);
    Ok(())
}

#[test]
fn only_the_right_password_or_token_comes_in_over_http() -> Result<()> {
    let server = GitServer::start_with(accounts(), Security::Plain)?;
    server.create("app")?.commit("first", &[("a", "1")])?;
    let work = tempfile::tempdir()?;
    let list = |user: &str, password: &str| {
        let url = server.http().url_with_credentials(user, password) + "/app.git";
        git(work.path(), &[], &["ls-remote", &url, "main"])
    };
    succeeds(&list("ada", "engine"));
    succeeds(&list("x-access-token", "t0ken"));
    assert!(!list("ada", "wrong").status.success());
    let anonymous = git(work.path(), &[], &["ls-remote", &server.http_url("app")]);
    assert!(!anonymous.status.success());
    let header = "http.extraHeader=Authorization: Bearer t0ken";
    let url = server.http_url("app");
    succeeds(&git(work.path(), &[], &["-c", header, "ls-remote", &url]));
    Ok(())
}

#[test]
fn tls_needs_the_right_authority() -> Result<()> {
    let authority = Authority::new("git")?;
    let server = GitServer::start_with(accounts(), Security::Tls(&authority))?;
    server.create("app")?.commit("first", &[("a", "1")])?;
    let work = tempfile::tempdir()?;
    let trusted = work.path().join("ca.crt");
    std::fs::write(&trusted, authority.certificate())?;
    let url = server.http().url_with_credentials("ada", "engine") + "/app.git";
    let variable = [("GIT_SSL_CAINFO", trusted.to_str().unwrap())];
    succeeds(&git(work.path(), &variable, &["ls-remote", &url]));
    let stranger = git(work.path(), &[], &["ls-remote", &url]);
    assert!(stderr(&stranger).contains("certificate"), "{}", stderr(&stranger));
    Ok(())
}

/// The variable that makes git use this key and trust this host only.
fn ssh_command(folder: &Path, key: &SshKey, server: &GitServer) -> Result<String> {
    use std::os::unix::fs::PermissionsExt;
    let (identity, hosts) = (folder.join("identity"), folder.join("known_hosts"));
    std::fs::write(&identity, key.private()?)?;
    std::fs::set_permissions(&identity, std::fs::Permissions::from_mode(0o600))?;
    std::fs::write(&hosts, server.known_hosts()?)?;
    Ok(format!(
        "ssh -F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o BatchMode=yes -i {} -o UserKnownHostsFile={}",
        identity.display(),
        hosts.display()
    ))
}

#[test]
fn a_known_key_clones_and_pushes_over_ssh_and_an_unknown_one_does_not() -> Result<()> {
    let (key, stranger) = (SshKey::generate()?, SshKey::generate()?);
    let accounts = Accounts { keys: vec![key.public()?], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain)?;
    let repository = server.create("app")?;
    repository.commit("first", &[("a", &"many words ".repeat(50_000))])?;
    let work = tempfile::tempdir()?;
    let command = ssh_command(work.path(), &key, &server)?;
    let ssh = [("GIT_SSH_COMMAND", command.as_str())];
    let url = server.ssh_url("app");
    succeeds(&git(work.path(), &ssh, &["clone", "-q", &url, "app"]));
    let app = work.path().join("app");
    std::fs::write(app.join("b"), "2")?;
    succeeds(&git(&app, &ssh, &["add", "."]));
    succeeds(&git(&app, &ssh, &["commit", "-qm", "second"]));
    succeeds(&git(&app, &ssh, &["push", "-q", "origin", "main"]));
    assert_eq!(repository.read("main", "b")?, "2");
    assert_eq!(server.ssh_commands()[0], "git-upload-pack '/app.git'");

    let missing = git(work.path(), &ssh, &["ls-remote", &server.ssh_url("../etc")]);
    assert!(stderr(&missing).contains("not found"), "{}", stderr(&missing));

    let command = ssh_command(work.path(), &stranger, &server)?;
    let ssh = [("GIT_SSH_COMMAND", command.as_str())];
    let refused = git(work.path(), &ssh, &["ls-remote", &url]);
    assert!(stderr(&refused).contains("Permission denied"), "{}", stderr(&refused));
    Ok(())
}

#[test]
fn it_fails_when_told_to_and_recovers() -> Result<()> {
    let server = GitServer::start()?;
    server.create("app")?.commit("first", &[("a", &"word ".repeat(20_000))])?;
    let work = tempfile::tempdir()?;
    let url = server.http_url("app");
    let faults = server.http().faults();

    faults.inject("/info/refs", Times::Next(1), Fault::Status(503));
    let failed = git(work.path(), &[], &["ls-remote", &url]);
    assert!(stderr(&failed).contains("503"), "{}", stderr(&failed));

    faults.inject("git-upload-pack", Times::Next(1), Fault::CutAfter(100));
    let failed = git(work.path(), &[], &["-c", "protocol.version=0", "clone", &url, "cut"]);
    assert!(!failed.status.success());

    succeeds(&git(work.path(), &[], &["clone", "-q", &url, "whole"]));
    let statuses: Vec<_> = server.http().requests().iter().map(|r| r.status).collect();
    assert_eq!(statuses[0], Some(503));
    Ok(())
}

#[test]
fn ssh_fails_when_told_to() -> Result<()> {
    let server = GitServer::start()?;
    server.create("app")?.commit("first", &[("a", &"word ".repeat(20_000))])?;
    let work = tempfile::tempdir()?;
    let command = ssh_command(work.path(), &SshKey::generate()?, &server)?;
    let ssh = [("GIT_SSH_COMMAND", command.as_str())];
    let url = server.ssh_url("app");

    server.ssh_faults().inject("upload-pack", Times::Next(1), Fault::Status(1));
    let failed = git(work.path(), &ssh, &["ls-remote", &url]);
    assert!(stderr(&failed).contains("told to fail"), "{}", stderr(&failed));

    server.ssh_faults().inject("upload-pack", Times::Next(1), Fault::CutAfter(20));
    assert!(!git(work.path(), &ssh, &["ls-remote", &url]).status.success());

    succeeds(&git(work.path(), &ssh, &["ls-remote", &url]));
    Ok(())
}

#[test]
fn a_stalled_request_is_answered_once_the_fault_is_cleared() -> Result<()> {
    let server = GitServer::start()?;
    server.create("app")?.commit("first", &[("a", "1")])?;
    let work = tempfile::tempdir()?;
    let url = server.http_url("app");
    server.http().faults().inject("", Times::Always, Fault::Stall);
    let mut stalled = Command::new("git")
        .args(["ls-remote", &url])
        .current_dir(work.path())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .spawn()?;
    let started = std::time::Instant::now();
    while server.http().requests().is_empty() {
        assert!(started.elapsed().as_secs() < 30, "no request came");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(stalled.try_wait()?.is_none(), "it was answered");
    server.http().faults().clear();
    assert!(stalled.wait()?.success());
    Ok(())
}
