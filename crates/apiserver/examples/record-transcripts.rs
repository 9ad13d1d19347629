//! Records what a real kube-apiserver answers to the requests in `tests/cases/*.http`, and writes it into them.
//!
//! ```text
//! cargo run -p apiserver --example record-transcripts -- --server https://127.0.0.1:6443 [FILE…]
//! ```
//!
//! The server must be fresh, accept `admintoken` as a member of system:masters and `usertoken` as the user `alice`, and
//! run without a controller manager, whose timing would show. Only for servers on this machine: certificates are not checked.

#[path = "../tests/transcript/mod.rs"]
mod transcript;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use transcript::{Answer, Exchange, Memory};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
struct Args {
    /// Address of the real server
    #[arg(long)]
    server: String,
    /// Case files; all of them when none is named
    files: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let mut files = args.files;
    if files.is_empty() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
        files = std::fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
    }
    for file in files {
        let mut exchanges = transcript::parse(&std::fs::read_to_string(&file)?);
        let mut memory = Memory::default();
        for exchange in &mut exchanges {
            record(&args.server, exchange, &mut memory).await?;
        }
        std::fs::write(&file, transcript::write(&exchanges))?;
        eprintln!("{}: {} requests", file.display(), exchanges.len());
    }
    Ok(())
}

async fn record(server: &str, exchange: &mut Exchange, memory: &mut Memory) -> Result<(), Failure> {
    for _ in 0..100 {
        let (code, warnings, bytes) = send(server, exchange, memory).await?;
        if let Some(wanted) = exchange.wait {
            if code == wanted {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        let body = transcript::read_body(exchange.path.contains("watch=1"), &bytes);
        memory.remember(&body);
        exchange.answer = Some(Answer { code, warnings, body: transcript::mask(&body) });
        return Ok(());
    }
    Err(format!("{}: never answered {:?}", exchange.path, exchange.wait).into())
}

async fn send(
    server: &str,
    exchange: &Exchange,
    memory: &Memory,
) -> Result<(u16, Vec<String>, Vec<u8>), Failure> {
    let address = server.trim_start_matches("https://");
    let stream = tokio::net::TcpStream::connect(address).await?;
    let tls = tokio_rustls::TlsConnector::from(Arc::new(trusting_config()?));
    let name = rustls_pki_types::ServerName::try_from("localhost")?;
    let stream = tls.connect(name, stream).await?;
    let (mut sender, connection) = hyper::client::conn::http2::handshake::<_, _, Full<bytes::Bytes>>(
        TokioExecutor::new(),
        TokioIo::new(stream),
    )
    .await?;
    tokio::spawn(connection);
    let mut request = http::Request::builder()
        .method(exchange.method.as_str())
        .uri(format!("{server}{}", memory.fill(&exchange.path)));
    let mut authorized = false;
    for (key, value) in &exchange.headers {
        authorized |= key.eq_ignore_ascii_case("authorization");
        request = request.header(key, value);
    }
    if !authorized {
        request = request.header("authorization", "Bearer admintoken");
    }
    let body = Full::new(bytes::Bytes::from(memory.fill(&exchange.body)));
    let response = sender.send_request(request.header("user-agent", "transcript/1").body(body)?).await?;
    let code = response.status().as_u16();
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .filter_map(|w| w.to_str().ok())
        .map(str::to_owned)
        .collect();
    Ok((code, warnings, response.into_body().collect().await?.to_bytes().to_vec()))
}

fn trusting_config() -> Result<rustls::ClientConfig, Failure> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// The recording server's certificate is made anew at each start.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &[rustls_pki_types::CertificateDer<'_>],
        _: &rustls_pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
