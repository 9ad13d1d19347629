//! GitRepository: secrets that must not be seen, and objects that mean harm beside healthy ones.

use std::sync::{Arc, Mutex, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use flux_api::kinds::{Controller, GIT_REPOSITORY};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::fault::{Fault, Times};
use testbed::git_server::{Accounts, GitServer, Security, SshKey};

use crate::flux::{Flux, ready};

crate::stories!(no_secret_is_shown_whatever_fails, hostile_objects_stop_nobody_else);

const CANARIES: &[&str] =
    &["c4nary-pa55/w+rd", "c4nary-t0ken=x", "c4nary-phra5e", "c4nary-url-pw", "c4nary-proxy-pw"];

/// A canary in every shape it could leak in.
fn shapes(canary: &str) -> Vec<String> {
    let encoded: String = canary
        .bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() || byte == b'-' {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect();
    let mut all = vec![canary.to_owned(), encoded.clone(), encoded.to_lowercase()];
    // Base64 of it at each of three offsets shares its middle with this.
    for offset in 0..3 {
        let padded = [vec![b'x'; offset], canary.as_bytes().to_vec()].concat();
        for text in
            [STANDARD.encode(&padded), STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)]
        {
            let middle = &text[4..text.len().saturating_sub(4)];
            all.push(middle.to_owned());
        }
    }
    all
}

/// Everything this process logs from now on, at a level that nobody runs with.
fn listen_to_logs() -> Arc<Mutex<Vec<u8>>> {
    static LOGS: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    let logs = LOGS.get_or_init(|| {
        let logs: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = logs.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
            .with_writer(move || Sink(sink.clone()))
            .init();
        logs
    });
    logs.clone()
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn no_secret_is_shown_whatever_fails(cluster: &Cluster) {
    let logs = listen_to_logs();
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("a", "1")]).unwrap();
    let accounts =
        Accounts { passwords: vec![("ann".to_owned(), "other".to_owned())], ..Accounts::default() };
    let guarded = GitServer::start_with(accounts, Security::Plain).unwrap();
    guarded.create("fleet").unwrap();
    let (url, ssh) = (guarded.http_url("fleet"), guarded.ssh_url("fleet"));
    let known = guarded.known_hosts().unwrap();
    let key = SshKey::generate().unwrap();
    flux.secret("basic", &[("username", "ann"), ("password", CANARIES[0])]).await;
    flux.secret("bearer", &[("bearerToken", CANARIES[1])]).await;
    flux.secret("broken-bearer", &[("bearerToken", &format!("{}\nX-Header: y", CANARIES[1]))]).await;
    flux.secret("broken-tls", &[("tls.crt", CANARIES[0]), ("tls.key", CANARIES[1]), ("ca.crt", CANARIES[2])])
        .await;
    flux.secret(
        "broken-key",
        &[("identity", CANARIES[0]), ("known_hosts", &known), ("password", CANARIES[2])],
    )
    .await;
    flux.secret("broken-hosts", &[("identity", &key.private().unwrap()), ("known_hosts", CANARIES[0])]).await;
    flux.secret(
        "broken-app",
        &[("githubAppID", "1"), ("githubAppInstallationID", "2"), ("githubAppPrivateKey", CANARIES[0])],
    )
    .await;
    flux.secret("proxy", &[("address", "http://127.0.0.1:9"), ("username", "u"), ("password", CANARIES[4])])
        .await;
    flux.secret("broken-proxy", &[("address", &format!("{}://x", CANARIES[4]))]).await;
    flux.secret("keys", &[("a.asc", CANARIES[0]), ("b.sshpub", CANARIES[1])]).await;
    let spec = |url: &str, more: Value| {
        let mut spec = json!({ "url": url, "interval": "1h", "timeout": "5s", "ref": { "branch": "main" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let login = |name: &str| json!({ "secretRef": { "name": name } });
    let in_url = |scheme: &str, url: &str| {
        url.replace(&format!("{scheme}://"), &format!("{scheme}://ann:{}@", CANARIES[3])).replace("git@", "")
    };
    let objects = [
        ("basic", spec(&url, login("basic"))),
        ("bearer", spec(&url, login("bearer"))),
        ("broken-bearer", spec(&url, login("broken-bearer"))),
        ("broken-tls", spec(&url, login("broken-tls"))),
        ("broken-key", spec(&ssh, login("broken-key"))),
        ("broken-hosts", spec(&ssh, login("broken-hosts"))),
        ("in-url", spec(&in_url("http", &url), json!({}))),
        ("in-url-down", spec(&in_url("http", "http://127.0.0.1:9/fleet.git"), json!({}))),
        ("in-ssh-url", spec(&in_url("ssh", &ssh), login("broken-key"))),
        ("in-bad-url", spec(&format!("https://ann:{}@[bad/x", CANARIES[3]), json!({}))),
        ("app", spec(&url, json!({ "secretRef": { "name": "broken-app" }, "provider": "github" }))),
        ("proxy", spec(&url, json!({ "proxySecretRef": { "name": "proxy" } }))),
        ("broken-proxy", spec(&url, json!({ "proxySecretRef": { "name": "broken-proxy" } }))),
        (
            "keys",
            spec(&flux.server.http_url("fleet"), json!({ "verify": { "secretRef": { "name": "keys" } } })),
        ),
    ];
    for (name, spec) in &objects {
        flux.apply(&GIT_REPOSITORY, name, spec.clone()).await;
    }
    let mut shown = String::new();
    for (name, _) in &objects {
        let object = flux.until(&GIT_REPOSITORY, name, "failed", |object| ready(object).0 == "False").await;
        shown.push_str(&object["status"].to_string());
        flux.event(name, ready(&object).1, "").await;
        shown.push_str(&format!("{:?}", flux.events(name).await));
    }
    assert!(shown.contains("FetchFailed"), "something was shown");
    let logged = String::from_utf8_lossy(&logs.lock().unwrap()).into_owned();
    assert!(!logged.is_empty(), "something was logged");
    shown.push_str(&logged);
    for shape in CANARIES.iter().flat_map(|canary| shapes(canary)) {
        let near = shown.find(&shape).map(|at| &shown[at.saturating_sub(200)..(at + 100).min(shown.len())]);
        assert_eq!(near, None, "{shape} is shown");
    }
}

async fn hostile_objects_stop_nobody_else(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("a", "1")]).unwrap();
    let evil = flux.server.create("evil").unwrap();
    let blob = evil.git(&["hash-object", "-w", "--stdin"], b"x").unwrap();
    let id: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&blob[at * 2..at * 2 + 2], 16).unwrap()).collect();
    let tree = [b"100644 ..\0".as_slice(), &id].concat();
    let tree = evil.git(&["hash-object", "-t", "tree", "-w", "--literally", "--stdin"], &tree).unwrap();
    let commit = evil.git(&["commit-tree", "-m", "x", &tree], b"").unwrap();
    evil.git(&["update-ref", "refs/heads/main", &commit], b"").unwrap();
    let links = flux.server.create("links").unwrap();
    let changes = [
        testbed::git_server::repository::Change::Link("passwd", "/etc/passwd"),
        testbed::git_server::repository::Change::Link("up", "../../.."),
        testbed::git_server::repository::Change::Write("fine.yaml", "x"),
    ];
    links.commit_to("main", "links", &changes).unwrap();
    let modules = flux.server.create("modules").unwrap();
    modules
        .commit("m", &[(".gitmodules", "[submodule \"x\"]\n\tpath = ../x\n\turl = ext::sh -c x\n")])
        .unwrap();
    let spec = |url: &str, more: Value| {
        let mut spec = json!({ "url": url, "interval": "1h", "ref": { "branch": "main" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let here = |name: &str| flux.server.http_url(name);
    let bad = [
        ("climbing-tree", spec(&here("evil"), json!({}))),
        ("bad-modules", spec(&here("modules"), json!({ "recurseSubmodules": true }))),
        ("option-host", spec("ssh://-oProxyCommand=x/repo", json!({}))),
        ("option-ref", spec(&here("fleet"), json!({ "ref": { "branch": "--upload-pack=x" } }))),
        ("climbing-ref", spec(&here("fleet"), json!({ "ref": { "name": "refs/heads/../../config" } }))),
        ("line-break", spec(&here("fleet"), json!({ "ref": { "tag": "v1\n0000" } }))),
        ("climbing-sparse", spec(&here("fleet"), json!({ "sparseCheckout": ["../../etc"] }))),
    ];
    for (name, spec) in &bad {
        flux.apply(&GIT_REPOSITORY, name, spec.clone()).await;
    }
    flux.apply(&GIT_REPOSITORY, "links", spec(&here("links"), json!({}))).await;
    flux.git_repository("healthy").await;
    flux.ready(&GIT_REPOSITORY, "healthy").await;
    let object = flux.ready(&GIT_REPOSITORY, "links").await;
    let files = crate::git_repository::download(&object).await;
    assert_eq!(files, [("fine.yaml".to_owned(), b"x".to_vec())], "links are left out");
    for (name, _) in &bad {
        let object = flux.until(&GIT_REPOSITORY, name, "failed", |object| ready(object).0 == "False").await;
        assert!(object.pointer("/status/artifact").is_none(), "{name}");
    }
    // A host that stalls holds up only what is on it.
    let stalled = GitServer::start().unwrap();
    stalled.create("fleet").unwrap();
    stalled.http().faults().inject("", Times::Always, Fault::Stall);
    for index in 0..8 {
        flux.apply(&GIT_REPOSITORY, &format!("stalled-{index}"), spec(&stalled.http_url("fleet"), json!({})))
            .await;
    }
    flux.git_repository("late").await;
    flux.ready(&GIT_REPOSITORY, "late").await;
    stalled.http().faults().clear();
}
