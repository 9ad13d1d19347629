//! A server that means harm: what it sends ends in an error, and nothing of ours reaches anybody else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use flux_api::secret::SecretString;
use flux_remote::git::{
    self, Address, Checkout, Error, Http, Limits, NewCommit, ObjectStore, Oid, Person, PushOptions, Ssh,
    SshAlgorithms, SshLogin, Working,
};
use sha1::{Digest, Sha1};
use testbed::fault::{Fault, Times};
use testbed::git_server::{Accounts, GitServer, Security, SshKey};
use testbed::http_server::HttpServer;
use url::Url;

const COMMIT: &str = "1111111111111111111111111111111111111111";

fn http(url: &str, authorization: Option<&str>) -> Http {
    Http::new(reqwest::Client::builder(), &Url::parse(url).unwrap(), authorization.map(str::to_owned))
        .unwrap()
}

fn packet(text: &[u8]) -> Vec<u8> {
    [format!("{:04x}", text.len() + 4).as_bytes(), text].concat()
}

/// Answers fetches with a pack of its choice.
async fn evil(State(pack): State<Arc<Vec<u8>>>, request: http::Request<Body>) -> Response {
    let advertisement = request.uri().path().ends_with("info/refs");
    let mut body = Vec::new();
    if advertisement {
        body.extend(packet(b"# service=git-upload-pack\n"));
        body.extend(b"0000");
        body.extend(packet(b"version 2\n"));
        body.extend(packet(b"fetch=shallow\n"));
        body.extend(b"0000");
    } else {
        body.extend(packet(b"packfile\n"));
        for chunk in pack.chunks(60_000) {
            body.extend(packet(&[&[1][..], chunk].concat()));
        }
        body.extend(b"0000");
    }
    Response::new(Body::from(body))
}

fn entry(kind: u8, size: usize, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = (kind << 4) | (size & 15) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        bytes.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    bytes.push(byte);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data).unwrap();
    bytes.extend(encoder.finish().unwrap());
    bytes
}

fn pack(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"PACK\0\0\0\x02".to_vec();
    bytes.extend((entries.len() as u32).to_be_bytes());
    bytes.extend(entries.concat());
    let checksum = Sha1::digest(&bytes);
    bytes.extend(checksum);
    bytes
}

async fn receive(pack: Vec<u8>, limits: Limits) -> Result<(), Error> {
    let server =
        HttpServer::start(Router::new().fallback(evil).with_state(Arc::new(pack)), Security::Plain).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut store = ObjectStore::open(folder.path()).unwrap();
    let want = Oid::parse(COMMIT).unwrap();
    git::fetch(&mut http(&server.url(), None), &mut store, &[want], Some(1), limits).await?;
    store.commit(want).map(|_| ())
}

#[tokio::test]
async fn packs_that_lie_or_burst_end_in_an_error() {
    let small = Limits { pack_bytes: 1 << 20, refs: 100, object_bytes: 1 << 20 };
    let bomb = vec![0; 64 << 20];
    let mut wrong_checksum = pack(&[entry(3, 2, b"hi")]);
    let last = wrong_checksum.len() - 1;
    wrong_checksum[last] ^= 1;
    let mut many = b"PACK\0\0\0\x02\xff\xff\xff\xff".to_vec();
    many.extend(Sha1::digest(&many));
    let cases = [
        ("an object that inflates beyond the limit", pack(&[entry(3, bomb.len(), &bomb)])),
        ("an object larger than it says", pack(&[entry(3, 2, b"much more than two")])),
        ("an object smaller than it says", pack(&[entry(3, 500_000, b"hi")])),
        ("a huge size and nothing behind it", pack(&[entry(3, usize::MAX >> 8, b"")])),
        ("a checksum that does not match", wrong_checksum),
        ("four billion objects that are not there", many),
        ("an object of no kind", pack(&[entry(5, 2, b"hi")])),
        ("a delta without its base", pack(&[entry(7, 2, b"hi")])),
        ("no pack at all", b"nonsense".to_vec()),
        ("nothing", Vec::new()),
        ("a pack cut short", pack(&[entry(3, 2, b"hi")])[..14].to_vec()),
        ("another object than was asked for", pack(&[entry(3, 2, b"hi")])),
    ];
    for (what, bytes) in cases {
        let result = tokio::time::timeout(std::time::Duration::from_secs(30), receive(bytes, small)).await;
        assert!(result.unwrap().is_err(), "{what}");
    }
    let too_long = Limits { pack_bytes: 100, ..small };
    let error = receive(pack(&[entry(3, 1000, &[7; 1000])]), too_long).await.unwrap_err();
    assert!(!error.to_string().is_empty());
}

#[tokio::test]
async fn trees_with_names_that_climb_are_refused() {
    let server = GitServer::start().unwrap();
    let repository = server.create("evil").unwrap();
    let blob = repository.git(&["hash-object", "-w", "--stdin"], b"x").unwrap();
    let id: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&blob[at * 2..at * 2 + 2], 16).unwrap()).collect();
    for name in ["..", ".", ".git", ".GIT", "git~1", ".git ", "a/b", "..\\x", ".git::$INDEX_ALLOCATION"] {
        let tree = [format!("100644 {name}").as_bytes(), b"\0", &id].concat();
        let tree =
            repository.git(&["hash-object", "-t", "tree", "-w", "--literally", "--stdin"], &tree).unwrap();
        let commit = repository.git(&["commit-tree", "-m", "x", &tree], b"").unwrap();
        repository.git(&["update-ref", "refs/heads/main", &commit], b"").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut store = ObjectStore::open(folder.path()).unwrap();
        let want = Oid::parse(&commit).unwrap();
        git::fetch(&mut http(&server.http_url("evil"), None), &mut store, &[want], Some(1), Limits::DEFAULT)
            .await
            .unwrap();
        let refused = Checkout::new(&store, want).err();
        assert!(matches!(refused, Some(Error::UnsafePath(_) | Error::Garbage(_))), "{name:?}: {refused:?}");
    }
}

/// What arrives at a server: the path, and the credentials if any.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

#[derive(Clone)]
struct Redirect {
    to: String,
    status: u16,
    /// Redirect only requests with this in their path.
    only: &'static str,
    seen: Seen,
}

async fn redirecting(State(redirect): State<Redirect>, request: http::Request<Body>) -> Response {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let credentials = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    redirect.seen.lock().unwrap().push((path.clone(), credentials));
    let mut response = Response::new(Body::empty());
    if path.contains(redirect.only) {
        *response.status_mut() = redirect.status.try_into().unwrap();
        response.headers_mut().insert("location", format!("{}{path}", redirect.to).parse().unwrap());
    } else {
        *response.body_mut() = Body::from(
            [
                packet(b"# service=git-upload-pack\n"),
                b"0000".to_vec(),
                packet(b"version 2\n"),
                b"0000".to_vec(),
            ]
            .concat(),
        );
    }
    response
}

fn redirector(to: &str, status: u16, only: &'static str) -> (HttpServer, Seen) {
    let seen = Seen::default();
    let state = Redirect { to: to.to_owned(), status, only, seen: seen.clone() };
    let server =
        HttpServer::start(Router::new().fallback(redirecting).with_state(state), Security::Plain).unwrap();
    (server, seen)
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    for status in [301, 302, 303, 307, 308] {
        // The other server answers itself: nothing there is redirected.
        let (other, seen_there) = redirector("", status, "never");
        let (first, seen_here) = redirector(&other.url(), status, "info/refs");
        let mut remote = http(&format!("{}/fleet.git", first.url()), Some("Bearer canary-7c2f"));
        let _ = git::list_refs(&mut remote, &[], Limits::DEFAULT).await;
        assert!(seen_here.lock().unwrap().iter().all(|(_, credentials)| credentials.is_some()));
        let there = seen_there.lock().unwrap();
        assert!(!there.is_empty(), "the redirect was followed");
        assert!(there.iter().all(|(_, credentials)| credentials.is_none()), "{there:?}");
    }
}

#[tokio::test]
async fn content_does_not_follow_a_redirect_at_all() {
    let (other, seen_there) = redirector("", 307, "never");
    let (first, _) = redirector(&other.url(), 307, "git-upload-pack");
    // The advertisement has the service in its query, so it is redirected and its conversation moves...
    let mut remote = http(&format!("{}/fleet.git", first.url()), None);
    let _ = git::list_refs(&mut remote, &[], Limits::DEFAULT).await;
    let moved = seen_there.lock().unwrap().len();
    assert!(moved > 0);
    // ...but a request with a body that is redirected ends there.
    let (other, seen_there) = redirector("", 307, "never");
    let (first, _) = redirector(&other.url(), 307, "fleet.git/git-upload-pack");
    let mut remote = http(&format!("{}/fleet.git", first.url()), None);
    let refused = git::list_refs(&mut remote, &[], Limits::DEFAULT).await;
    assert!(matches!(refused, Err(Error::Http(307))), "{refused:?}");
    assert!(seen_there.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_redirect_that_is_not_to_a_repository_is_refused() {
    for location in ["http://127.0.0.1:9/login?next=", "ftp://127.0.0.1:9", "file://"] {
        let (first, _) = redirector(location, 302, "info/refs");
        let mut remote = http(&format!("{}/fleet.git", first.url()), None);
        let refused = git::list_refs(&mut remote, &[], Limits::DEFAULT).await;
        assert!(refused.is_err(), "{location}");
    }
    // In circles.
    let seen = Seen::default();
    let state = Redirect { to: String::new(), status: 302, only: "info/refs", seen: seen.clone() };
    let server =
        HttpServer::start(Router::new().fallback(redirecting).with_state(state), Security::Plain).unwrap();
    let refused = git::list_refs(&mut http(&server.url(), None), &[], Limits::DEFAULT).await;
    assert!(refused.is_err());
    assert!(seen.lock().unwrap().len() < 10);
}

fn ssh(server: &GitServer, known_hosts: &str, key: &SshKey, url: &str) -> Result<Ssh, Error> {
    let _ = server;
    let Address::Ssh(address) = Address::parse(url)? else { panic!("not SSH") };
    let login = SshLogin {
        identity: SecretString::new(key.private().unwrap()),
        passphrase: None,
        known_hosts: known_hosts.to_owned(),
    };
    Ssh::new(address, &login, &SshAlgorithms::default())
}

#[tokio::test]
async fn a_host_that_shows_another_key_gets_nothing() {
    let server = GitServer::start().unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let key = SshKey::generate().unwrap();
    let url = server.ssh_url("fleet");
    // Known by another key.
    let host = server.known_hosts().unwrap().split(' ').next().unwrap().to_owned();
    let other = format!("{host} {}\n", SshKey::generate().unwrap().public().unwrap());
    let mut remote = ssh(&server, &other, &key, &url).unwrap();
    let refused = git::list_refs(&mut remote, &[], Limits::DEFAULT).await.unwrap_err();
    assert!(refused.to_string().contains("key mismatch"), "{refused}");
    // Not known at all: not even a connection is made.
    for known in [
        "",
        "elsewhere.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n",
    ] {
        let refused = ssh(&server, known, &key, &url).err().unwrap();
        assert!(refused.to_string().contains("key is unknown"), "{refused}");
    }
    assert!(server.ssh_commands().is_empty());
}

#[tokio::test]
async fn a_key_the_server_does_not_know_and_a_repository_it_does_not_have_are_told_apart() {
    let key = SshKey::generate().unwrap();
    let accounts = Accounts { keys: vec![key.public().unwrap()], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let known = server.known_hosts().unwrap();
    let stranger = SshKey::generate().unwrap();
    let mut remote = ssh(&server, &known, &stranger, &server.ssh_url("fleet")).unwrap();
    let refused = git::list_refs(&mut remote, &[], Limits::DEFAULT).await.unwrap_err();
    assert!(matches!(refused, Error::Login(_)), "{refused}");
    let mut remote = ssh(&server, &known, &key, &server.ssh_url("nothing")).unwrap();
    let missing = git::list_refs(&mut remote, &[], Limits::DEFAULT).await.unwrap_err();
    assert!(matches!(missing, Error::RepositoryNotFound), "{missing}");
}

#[tokio::test]
async fn a_quote_in_an_ssh_path_stays_in_the_path() {
    let server = GitServer::start().unwrap();
    let key = SshKey::generate().unwrap();
    let base = server.ssh_url("x");
    let url = base.replace("/x.git", "/x'%20;touch%20/tmp/pwned;'.git");
    let mut remote = ssh(&server, &server.known_hosts().unwrap(), &key, &url).unwrap();
    assert!(git::list_refs(&mut remote, &[], Limits::DEFAULT).await.is_err());
    let commands = server.ssh_commands();
    assert_eq!(commands, [r"git-upload-pack '/x'\'' ;touch /tmp/pwned;'\''.git'"]);
}

#[tokio::test]
async fn names_with_line_breaks_never_reach_the_wire() {
    let server = GitServer::start().unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let mut remote = http(&server.http_url("fleet"), None);
    for name in ["refs/heads/a\n0000", "refs/heads/\0x", &"x".repeat(100_000)] {
        let refused = git::list_refs(&mut remote, &[name], Limits::DEFAULT).await;
        assert!(matches!(refused, Err(Error::NoSuchRef(_))), "{refused:?}");
    }
    assert!(server.http().requests().is_empty());
    for name in ["--upload-pack=x", "-x", "refs/heads/../../config"] {
        assert_eq!(git::list_refs(&mut remote, &[name], Limits::DEFAULT).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_connection_cut_anywhere_is_an_error_and_the_next_try_is_whole() {
    let key = SshKey::generate().unwrap();
    let server = GitServer::start().unwrap();
    let repository = server.create("fleet").unwrap();
    let noise: String = (0..20_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_string()).collect();
    let id = Oid::parse(&repository.commit("first", &[("a", &noise)]).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for length in [0, 3, 40, 300, 5_000, 40_000] {
        server.http().faults().inject("/git-upload-pack", Times::Next(1), Fault::CutAfter(length));
        server.ssh_faults().inject("git-upload-pack", Times::Next(1), Fault::CutAfter(length));
        let mut store = ObjectStore::open(folder.path()).unwrap();
        let mut remote = http(&server.http_url("fleet"), None);
        let cut = git::fetch(&mut remote, &mut store, &[id], Some(1), Limits::DEFAULT).await;
        assert!(cut.is_err(), "http, {length}");
        let mut remote =
            ssh(&server, &server.known_hosts().unwrap(), &key, &server.ssh_url("fleet")).unwrap();
        let cut = git::fetch(&mut remote, &mut store, &[id], Some(1), Limits::DEFAULT).await;
        assert!(cut.is_err(), "ssh, {length}");
        assert!(!store.holds(&id, Some(1)));
    }
    let mut store = ObjectStore::open(folder.path()).unwrap();
    let mut remote = ssh(&server, &server.known_hosts().unwrap(), &key, &server.ssh_url("fleet")).unwrap();
    git::fetch(&mut remote, &mut store, &[id], Some(1), Limits::DEFAULT).await.unwrap();
    assert_eq!(store.commit(id).unwrap().message.trim(), "first");
    // Nothing half-received is left behind.
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("incoming")), "{left:?}");
}

#[tokio::test]
async fn a_push_to_a_server_that_lies_about_success_is_not_believed() {
    let server = GitServer::start().unwrap();
    server.create("fleet").unwrap().commit("first", &[("a", "1")]).unwrap();
    let mut remote = http(&server.http_url("fleet"), None);
    let folder = tempfile::tempdir().unwrap();
    let mut working = Working::clone(&mut remote, folder.path(), "main").await.unwrap();
    working.write("x", b"1".to_vec()).unwrap();
    let commit = NewCommit {
        message: "x".to_owned(),
        author: Person::new("a", "a@x"),
        time: std::time::SystemTime::now(),
    };
    working.commit(&commit, None).unwrap();
    server.http().faults().inject("fleet.git/git-receive-pack", Times::Next(1), Fault::CutAfter(0));
    assert!(working.push(&mut remote, &PushOptions::default()).await.is_err());
}
