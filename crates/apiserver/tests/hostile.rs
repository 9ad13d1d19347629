//! Requests nobody means well with: the right status code, and bounded cost.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use apiserver::{Handle, Server, User};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(server: &Handle, method: &str, uri: &str, body: Vec<u8>) -> (u16, String) {
    let request = http::Request::builder().method(method).uri(uri).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn large_deep_and_broken_bodies_are_refused() {
    let server = Server::builder().start().await.unwrap();
    let large = format!(r#"{{"metadata":{{"name":"x"}},"data":{{"k":"{}"}}}}"#, "a".repeat(5 << 20));
    assert_eq!(send(&server, "POST", MAPS, large.into_bytes()).await.0, 413);
    let deep = format!("{}{}", r#"{"a":"#.repeat(50_000), "}".repeat(50_000));
    assert_eq!(send(&server, "POST", MAPS, deep.into_bytes()).await.0, 400);
    let brackets = "[".repeat(1 << 20);
    assert_eq!(send(&server, "POST", MAPS, brackets.into_bytes()).await.0, 400);
    let bad_text = b"{\"metadata\":{\"name\":\"\xff\xfe\"}}".to_vec();
    assert_eq!(send(&server, "POST", MAPS, bad_text).await.0, 400);
    let medium = format!(r#"{{"metadata":{{"name":"x"}},"data":{{"k":"{}"}}}}"#, "a".repeat(2 << 20));
    assert_eq!(
        send(&server, "POST", MAPS, medium.into_bytes()).await.0,
        422,
        "more data than a ConfigMap may hold"
    );
}

#[tokio::test]
async fn strange_addresses_and_queries_are_answered() {
    let server = Server::builder().start().await.unwrap();
    for (uri, code) in [
        ("/api/v1/namespaces/%00/configmaps/%ff", 404),
        ("/api/v1/namespaces/../../etc/passwd", 404),
        ("/api/v1/namespaces/default/configmaps/a%2Fb", 404),
        ("/apis/apps/v1/namespaces/default/deployments?limit=-1", 200),
        ("/api/v1/configmaps?limit=99999999999999999999", 400),
        ("/api/v1/configmaps?labelSelector=a%20in%20(", 400),
        ("/api/v1/configmaps?labelSelector=((((((", 400),
        ("/api/v1/configmaps?fieldSelector=%3D%3D%3D", 400),
        ("/api/v1/configmaps?continue=%00%00", 400),
        ("/api/v1/configmaps?resourceVersion=-1", 400),
        ("/api/v1/configmaps?watch=1&resourceVersion=x", 400),
        ("/api/v1/configmaps?timeoutSeconds=x&watch=1", 400),
    ] {
        assert_eq!(send(&server, "GET", uri, Vec::new()).await.0, code, "{uri}");
    }
}

#[tokio::test]
async fn a_watch_from_an_absurd_revision_waits_or_is_gone_and_costs_nothing() {
    let server = Server::builder().start().await.unwrap();
    let future = format!("{MAPS}?watch=1&resourceVersion=18446744073709551615&timeoutSeconds=1");
    let (code, text) = send(&server, "GET", &future, Vec::new()).await;
    assert_eq!((code, text.as_str()), (200, ""), "nothing newer ever comes");
    server.compact();
    let (code, text) = send(&server, "GET", &format!("{MAPS}?watch=1&resourceVersion=2"), Vec::new()).await;
    assert!(code == 200 && text.contains(r#""reason":"Expired""#), "{text}");
}

#[tokio::test]
async fn patches_cannot_explode() {
    let server = Server::builder().start().await.unwrap();
    send(&server, "POST", MAPS, br#"{"metadata":{"name":"x"}}"#.to_vec()).await;
    let many = format!("[{}]", vec![r#"{"op":"test","path":"/kind","value":"ConfigMap"}"#; 10_001].join(","));
    let request =
        http::Request::patch(format!("{MAPS}/x")).header("content-type", "application/json-patch+json");
    let response =
        server.service().oneshot(request.body(Full::new(Bytes::from(many))).unwrap()).await.unwrap();
    assert_eq!(response.status(), 413);
}

#[tokio::test]
async fn without_credentials_there_is_version_and_health_and_nothing_else() {
    let server = Server::builder().start().await.unwrap();
    let nobody = server.service_as(User::new("system:anonymous", &["system:unauthenticated"]));
    for (uri, code) in [
        ("/version", 200),
        ("/healthz", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/api", 403),
        ("/apis", 403),
        ("/openapi/v2", 403),
        ("/api/v1/namespaces", 403),
        ("/api/v1/namespaces/kube-system/secrets", 403),
        ("/", 403),
    ] {
        let request = http::Request::get(uri).body(Full::new(Bytes::new())).unwrap();
        assert_eq!(nobody.clone().oneshot(request).await.unwrap().status().as_u16(), code, "{uri}");
    }
}

fn tls(ca: &str) -> tokio_rustls::TlsConnector {
    use rustls_pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls_pki_types::CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[tokio::test]
async fn idle_and_slow_clients_do_not_keep_others_out() {
    let server = Server::builder().start().await.unwrap();
    let listening = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let (count, before) = (connections_possible(), resident_bytes());
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(tokio::net::TcpStream::connect(listening.address).await.unwrap());
    }
    let stream = tokio::net::TcpStream::connect(listening.address).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let mut stream = tls(server.ca_pem()).connect(name, stream).await.unwrap();
    let token = server.admin_token().to_owned();
    let request = format!(
        "GET /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    // One byte at a time is slow, but it is a request.
    for byte in request.bytes() {
        stream.write_all(&[byte]).await.unwrap();
        stream.flush().await.unwrap();
    }
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200"));
    let each = resident_bytes().saturating_sub(before) / count as u64;
    println!("{count} idle connections, {each} bytes each");
    assert!(each < 40_000, "{each} bytes for a connection that says nothing");
    drop(idle);
}

#[tokio::test]
async fn a_client_certificate_says_who_its_holder_is() {
    use rustls_pki_types::pem::PemObject as _;
    let server = Server::builder().start().await.unwrap();
    let listening = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let (certificate, key) = server.client_certificate(&User::new("carol", &["ops"])).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls_pki_types::CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![rustls_pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = config.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
    let stream = tokio::net::TcpStream::connect(listening.address).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    stream.write_all(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains(r#"User \"carol\" cannot list resource"#), "{answer}");
}

#[tokio::test]
async fn a_wrong_token_is_refused_even_where_anonymous_may_read() {
    let server = Server::builder().start().await.unwrap();
    let listening = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let stream = tokio::net::TcpStream::connect(listening.address).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let mut stream = tls(server.ca_pem()).connect(name, stream).await.unwrap();
    stream
        .write_all(
            b"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\nConnection: close\r\n\r\n",
        )
        .await
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 401"));
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Each connection takes a descriptor on both of its ends, and both are in this process.
fn connections_possible() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    let files: usize = line.split_whitespace().nth(3).and_then(|count| count.parse().ok()).unwrap_or(1024);
    10_000.min(files.saturating_sub(200) / 2)
}

#[tokio::test]
async fn a_watcher_that_never_reads_is_cut_off_and_costs_bounded_memory() {
    let server = Server::builder().publish_ca(false).start().await.unwrap();
    let uri = format!("{MAPS}?watch=1&resourceVersion={}&timeoutSeconds=600", server.revision());
    let request = http::Request::get(uri).body(Full::new(Bytes::new())).unwrap();
    let watch = server.service().oneshot(request).await.unwrap();
    for at in 0..6_000 {
        let body = format!(r#"{{"metadata":{{"name":"m"}},"data":{{"n":"{at}"}}}}"#);
        let (method, uri) = if at == 0 { ("POST", MAPS.to_owned()) } else { ("PUT", format!("{MAPS}/m")) };
        let (code, text) = send(&server, method, &uri, body.into_bytes()).await;
        assert!(code < 300, "{text}");
    }
    // It ends by itself: whoever reads on must begin anew from the last revision it saw.
    let text = tokio::time::timeout(Duration::from_secs(30), watch.into_body().collect()).await.unwrap();
    let text = text.unwrap().to_bytes();
    let events: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert!(events.len() < 5_000, "{} events were kept for it", events.len());
    let last: serde_json::Value = serde_json::from_slice(events.last().unwrap()).unwrap();
    assert_eq!(last["object"]["data"]["n"], (events.len() - 1).to_string(), "none is missing before the cut");
}
