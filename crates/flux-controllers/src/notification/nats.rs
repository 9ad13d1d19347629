//! NATS: the event as a message of a subject, over NATS' own protocol. What is said is made by pure functions; only
//! [`publish`] has a connection.
//!
//! TLS begins after the server's first line, where the server demands it, the address begins with `tls://`, or the
//! Provider brings certificates; then nothing is said in the clear, and whoever does not offer it is told nothing.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flux_remote::transport::Transport;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls_platform_verifier::Verifier;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use super::event::Event;
use super::provider::Settings;

const PORT: u16 = 4222;
const MOST_SERVERS: usize = 16;
const LONGEST_LINE: u64 = 1 << 20;
/// Lines that a server may say before it answers.
const MOST_LINES: usize = 16;
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

/// A server of the address.
#[derive(Debug, PartialEq, Eq)]
struct Server {
    host: String,
    port: u16,
    /// Whether the address says that nothing goes without TLS.
    secure: bool,
}

/// Connects, says who we are, publishes and waits until the server has it.
pub async fn publish(event: &Event, settings: &Settings) -> Result<(), String> {
    let servers = servers(settings)?;
    let subject = subject(settings)?;
    let within = settings.timeout.max(Duration::from_millis(100));
    let spoken = tokio::time::timeout(within, async {
        let stream = connect(&servers, settings).await?;
        speak(stream, subject, event, settings).await
    });
    spoken.await.unwrap_or_else(|_| Err("the server did not answer in time".to_owned()))
}

trait Stream: AsyncBufRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncBufRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A server that has said its first line.
struct Connection {
    stream: Box<dyn Stream>,
    info: Info,
    is_secure: bool,
}

/// The first server of a cluster that can be reached.
async fn connect(servers: &[Server], settings: &Settings) -> Result<Connection, String> {
    let mut problem = String::new();
    for server in servers {
        match TcpStream::connect((server.host.as_str(), server.port)).await {
            Ok(stream) => return greet(stream, server, settings).await,
            Err(error) => problem = lost(error),
        }
    }
    Err(problem)
}

async fn greet(stream: TcpStream, server: &Server, settings: &Settings) -> Result<Connection, String> {
    let mut stream = BufReader::new(stream);
    let info = Info::read(&line(&mut stream).await?)?;
    let certificates = settings.transport.ca.is_some() || settings.transport.client_certificate.is_some();
    let wanted = server.secure || certificates;
    if wanted && !info.tls_required && !info.tls_available {
        return Err("the server offers no TLS, which the Provider asks for".to_owned());
    }
    if !wanted && !info.tls_required {
        return Ok(Connection { stream: Box::new(stream), info, is_secure: false });
    }
    // Somebody in between might have put words into the server's mouth.
    if !stream.buffer().is_empty() {
        return Err("the server speaks before the TLS that it announces".to_owned());
    }
    let config = tls(&settings.transport)?;
    let name = ServerName::try_from(server.host.clone())
        .map_err(|_| "invalid NATS address: the host is no name and no address".to_owned())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream.into_inner()).await;
    let stream = stream.map_err(lost)?;
    Ok(Connection { stream: Box::new(BufReader::new(stream)), info, is_secure: true })
}

/// The system's authorities and those of the Provider, and its certificate.
fn tls(transport: &Transport) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let failed = |error: rustls::Error| format!("failed to get TLS config: {error}");
    let extra: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(transport.ca.as_deref().unwrap_or_default()).collect();
    let extra = extra.map_err(|_| "failed to get TLS config: ca.crt is no certificate".to_owned())?;
    let verifier = Verifier::new_with_extra_roots(extra, provider.clone()).map_err(failed)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(pair) = &transport.client_certificate else { return Ok(builder.with_no_client_auth()) };
    let wrong = || "failed to get TLS config: tls.crt and tls.key are no valid pair".to_owned();
    let pem = pair.expose().as_bytes();
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| wrong())?;
    builder.with_client_auth_cert(chain.map_err(|_| wrong())?, key).map_err(|_| wrong())
}

fn lost(error: std::io::Error) -> String {
    format!("error connecting to server: {error}")
}

async fn speak(
    connection: Connection,
    subject: &str,
    event: &Event,
    settings: &Settings,
) -> Result<(), String> {
    let Connection { mut stream, info, is_secure } = connection;
    let hello = hello(&info, is_secure, settings)?;
    let payload = event.to_json();
    let mut words = format!("{hello}PUB {subject} {}\r\n", payload.len()).into_bytes();
    words.extend_from_slice(&payload);
    words.extend_from_slice(b"\r\nPING\r\n");
    stream.write_all(&words).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    for _ in 0..MOST_LINES {
        let said = line(&mut stream).await?;
        match said.split_whitespace().next().unwrap_or_default() {
            "PONG" => return Ok(()),
            "PING" => {
                stream.write_all(b"PONG\r\n").await.map_err(lost)?;
                stream.flush().await.map_err(lost)?;
            }
            "-ERR" => return Err(format!("error publishing message to server: {}", said.trim())),
            _ => {}
        }
    }
    Err("the server did not confirm the message".to_owned())
}

async fn line(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = stream.take(LONGEST_LINE).read_until(b'\n', &mut bytes).await;
    match read {
        Ok(0) => Err("the server ended the connection".to_owned()),
        Ok(_) => String::from_utf8(bytes).map_err(|_| "the server speaks no NATS".to_owned()),
        Err(error) => Err(lost(error)),
    }
}

/// The servers of the address, in its order.
fn servers(settings: &Settings) -> Result<Vec<Server>, String> {
    let named: Vec<&str> =
        settings.address.split(',').map(str::trim).filter(|one| !one.is_empty()).take(MOST_SERVERS).collect();
    if named.is_empty() {
        return Err("NATS server (address) cannot be empty".to_owned());
    }
    named.into_iter().map(server).collect()
}

fn server(text: &str) -> Result<Server, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("nats://{text}") };
    let url = Url::parse(&text).map_err(|error| format!("invalid NATS address: {error}"))?;
    let secure = match url.scheme() {
        "nats" => false,
        "tls" => true,
        _ => return Err("invalid NATS address: it must begin with nats:// or tls://".to_owned()),
    };
    let host =
        url.host_str().filter(|host| !host.is_empty()).ok_or("invalid NATS address: it has no host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Server { host, port: url.port().unwrap_or(PORT), secure })
}

/// A subject that would end the line would be a command of its own.
fn subject(settings: &Settings) -> Result<&str, String> {
    let subject = settings.channel.as_str();
    if subject.is_empty() {
        return Err("NATS subject (channel) cannot be empty".to_owned());
    }
    if subject.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Err("invalid NATS subject (channel): it must not contain white space".to_owned());
    }
    Ok(subject)
}

#[derive(Debug, Deserialize)]
struct Info {
    #[serde(default)]
    nonce: String,
    #[serde(default)]
    tls_required: bool,
    #[serde(default)]
    tls_available: bool,
}

impl Info {
    fn read(line: &str) -> Result<Self, String> {
        let info = line.strip_prefix("INFO ").ok_or("the server speaks no NATS")?;
        Ok(serde_json::from_str(info.trim()).map_err(|_| "the server speaks no NATS")?)
    }
}

/// `CONNECT …`: credentials win over an nkey, and that over a user and password.
fn hello(info: &Info, is_secure: bool, settings: &Settings) -> Result<String, String> {
    let mut options = json!({
        "verbose": false, "pedantic": false, "tls_required": is_secure, "name": "NATS Provider Publisher",
        "lang": "rust", "version": "1", "protocol": 1,
    });
    let secret = |key: &str| {
        settings.data.get(key).map(|value| value.expose().as_str()).filter(|text| !text.is_empty())
    };
    if let Some(creds) = secret("creds") {
        let jwt = section(creds, "NATS USER JWT").ok_or("the key 'creds' holds no user JWT")?;
        let seed = section(creds, "USER NKEY SEED").ok_or("the key 'creds' holds no nkey seed")?;
        options["jwt"] = json!(jwt);
        options["sig"] = json!(Nkey::from_seed(seed)?.sign(&info.nonce));
    } else if let Some(seed) = secret("nkey") {
        let nkey = Nkey::from_seed(seed.trim())?;
        options["nkey"] = json!(nkey.public);
        options["sig"] = json!(nkey.sign(&info.nonce));
    } else if !settings.username.is_empty() && !settings.password.expose().is_empty() {
        options["user"] = json!(settings.username);
        options["pass"] = Value::from(settings.password.expose().as_str());
    }
    Ok(format!("CONNECT {options}\r\n"))
}

/// The line between `BEGIN name` and `END name`.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().skip_while(|line| !(line.contains("BEGIN") && line.contains(name)));
    lines.next()?;
    lines.next().map(str::trim).filter(|line| !line.is_empty() && !line.contains("END"))
}

struct Nkey {
    pair: Ed25519KeyPair,
    public: String,
}

impl Nkey {
    /// `SU…`: base32 of two bytes that say what it is, 32 of the seed, and a checksum.
    fn from_seed(seed: &str) -> Result<Self, String> {
        let wrong = || "error parsing nkey seed: it is none of a user".to_owned();
        let bytes = from_base32(seed).filter(|bytes| bytes.len() == 36).ok_or_else(wrong)?;
        let (body, sum) = bytes.split_at(34);
        let kind = ((body[0] & 7) << 5) | ((body[1] & 0xf8) >> 3);
        if body[0] & 0xf8 != SEED || kind != USER || checksum(body).to_le_bytes() != sum[..] {
            return Err(wrong());
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(&body[2..]).map_err(|_| wrong())?;
        let mut public = vec![kind];
        public.extend_from_slice(pair.public_key().as_ref());
        public.extend_from_slice(&checksum(&public).to_le_bytes());
        Ok(Self { pair, public: to_base32(&public) })
    }

    fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()))
    }
}

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn from_base32(text: &str) -> Option<Vec<u8>> {
    if text.len() > 256 {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for letter in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        bits = (bits << 5) | value as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

fn to_base32(bytes: &[u8]) -> String {
    let (mut text, mut bits, mut count) = (String::new(), 0u32, 0);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(char::from(ALPHABET[((bits >> count) & 31) as usize]));
        }
        bits &= (1 << count) - 1;
    }
    if count > 0 {
        text.push(char::from(ALPHABET[((bits << (5 - count)) & 31) as usize]));
    }
    text
}

/// CRC-16/XMODEM.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |mut sum, byte| {
        sum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            sum = if sum & 0x8000 != 0 { (sum << 1) ^ 0x1021 } else { sum << 1 };
        }
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use flux_api::notification::ProviderType;
    use rustls::ServerConfig;
    use rustls::server::WebPkiClientVerifier;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    fn settings(address: &str) -> Settings {
        Settings {
            address: address.to_owned(),
            channel: "flux.events".to_owned(),
            ..Settings::new(ProviderType::Nats)
        }
    }

    fn seed() -> String {
        let mut bytes = vec![SEED | (USER >> 5), (USER & 31) << 3];
        bytes.extend([7; 32]);
        bytes.extend(checksum(&bytes).to_le_bytes());
        to_base32(&bytes)
    }

    const INFO: &str = "INFO {\"nonce\":\"n\",\"max_payload\":1048576}\r\n";
    const SECURE: &str = "INFO {\"nonce\":\"n\",\"tls_required\":true}\r\n";

    /// Says `answer` after a client's PING; what it heard comes back.
    async fn converse(mut stream: impl tokio::io::AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
        let mut heard = Vec::new();
        while !heard.ends_with(b"PING\r\n") {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).await.unwrap_or_default();
            if read == 0 {
                return String::from_utf8(heard).unwrap();
            }
            heard.extend_from_slice(&piece[..read]);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        String::from_utf8(heard).unwrap()
    }

    async fn server(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        server_with(INFO, None, answer).await
    }

    async fn server_with(
        info: &'static str,
        tls: Option<ServerConfig>,
        answer: &'static str,
    ) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        let heard = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(info.as_bytes()).await.unwrap();
            match tls {
                None => converse(stream, answer).await,
                Some(config) => match TlsAcceptor::from(Arc::new(config)).accept(stream).await {
                    Ok(stream) => converse(stream, answer).await,
                    Err(error) => format!("no TLS: {error}"),
                },
            }
        });
        (address, heard)
    }

    /// An authority, a server that demands a certificate of it, and a client's certificate with its key.
    fn mutual() -> (String, ServerConfig, String) {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let sign = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let key = KeyPair::generate().unwrap();
            let signed = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
            (signed.pem(), key.serialize_pem())
        };
        let (certificate, key) = sign(&["127.0.0.1"]);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let (certificate, key) = sign(&["client"]);
        (authority, config, format!("{certificate}{key}"))
    }

    #[tokio::test]
    async fn tls_begins_where_either_side_asks_for_it_and_nothing_is_said_before() {
        let (authority, config, pair) = mutual();
        let (address, heard) = server_with(SECURE, Some(config.clone()), "PONG\r\n").await;
        let mut settings = settings(&address);
        (settings.username, settings.password) = ("u".to_owned(), "canary".to_owned().into());
        settings.transport.ca = Some(authority.clone().into_bytes());
        settings.transport.client_certificate = Some(pair.clone().into());
        publish(&example(), &settings).await.unwrap();
        let heard = heard.await.unwrap();
        assert!(heard.contains("\"tls_required\":true") && heard.contains("PUB flux.events "), "{heard}");

        // Without a certificate of its own, and without knowing the authority, it does not come in.
        for (ca, client) in [(Some(authority.clone()), None), (None, Some(pair.clone()))] {
            let (address, heard) = server_with(SECURE, Some(config.clone()), "PONG\r\n").await;
            settings.address = address;
            settings.transport.ca = ca.map(String::into_bytes);
            settings.transport.client_certificate = client.map(Into::into);
            assert!(publish(&example(), &settings).await.is_err());
            assert!(!heard.await.unwrap().contains("canary"));
        }

        // A server that offers no TLS hears nothing from who wants it, and neither does one that speaks too early.
        settings.transport = Transport::default();
        let early = "INFO {\"tls_required\":true}\r\nPONG\r\n";
        for (info, scheme, problem) in
            [(INFO, "tls", "offers no TLS"), (early, "nats", "speaks before the TLS")]
        {
            let (address, heard) = server_with(info, None, "PONG\r\n").await;
            settings.address = address.replace("nats://", &format!("{scheme}://"));
            let error = publish(&example(), &settings).await.unwrap_err();
            assert!(error.contains(problem), "{error}");
            assert_eq!(heard.await.unwrap(), "");
        }
        settings.transport.ca = Some(b"-----BEGIN CERTIFICATE-----\ncanary".to_vec());
        let (address, _) = server_with(SECURE, None, "").await;
        settings.address = address;
        let error = publish(&example(), &settings).await.unwrap_err();
        assert!(error.starts_with("failed to get TLS config: ") && !error.contains("canary"), "{error}");
    }

    #[tokio::test]
    async fn the_next_server_of_a_cluster_is_tried() {
        let (address, heard) = server("PONG\r\n").await;
        publish(&example(), &settings(&format!("nats://127.0.0.1:1,{address}"))).await.unwrap();
        assert!(heard.await.unwrap().contains("PUB flux.events "));
    }

    #[tokio::test]
    async fn a_subject_gets_the_event_and_the_server_confirms_it() {
        let (address, heard) = server("PING\r\nPONG\r\n").await;
        let mut settings = settings(&address);
        (settings.username, settings.password) = ("u".to_owned(), "p".to_owned().into());
        publish(&example(), &settings).await.unwrap();
        let heard = heard.await.unwrap();
        let mut lines = heard.split("\r\n");
        let hello: Value =
            serde_json::from_str(lines.next().unwrap().strip_prefix("CONNECT ").unwrap()).unwrap();
        assert_eq!((&hello["user"], &hello["pass"]), (&json!("u"), &json!("p")));
        let payload = example().to_json();
        assert_eq!(lines.next().unwrap(), format!("PUB flux.events {}", payload.len()));
        assert_eq!(lines.next().unwrap().as_bytes(), payload);
        let (address, _) = server("-ERR 'Authorization Violation'\r\n").await;
        let error = publish(&example(), &self::settings(&address)).await.unwrap_err();
        assert_eq!(error, "error publishing message to server: -ERR 'Authorization Violation'");
        assert!(publish(&example(), &self::settings("nats://127.0.0.1:1")).await.is_err());
    }

    #[test]
    fn an_nkey_signs_the_nonce() {
        assert_eq!(checksum(b"123456789"), 0x31C3);
        assert!(seed().starts_with("SU"));
        let mut settings = settings("nats://h");
        settings.data.insert("nkey".to_owned(), seed().into());
        let hello = hello(&Info::read("INFO {\"nonce\":\"abc\"}").unwrap(), false, &settings).unwrap();
        let hello: Value = serde_json::from_str(hello.trim().strip_prefix("CONNECT ").unwrap()).unwrap();
        assert!(hello["nkey"].as_str().unwrap().starts_with('U'));
        let signature = URL_SAFE_NO_PAD.decode(hello["sig"].as_str().unwrap()).unwrap();
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        assert_eq!(pair.sign(b"abc").as_ref(), signature);
        let creds = format!(
            "-----BEGIN NATS USER JWT-----\neyJ\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            seed()
        );
        settings.data.insert("creds".to_owned(), creds.into());
        let hello = self::hello(&Info::read("INFO {\"nonce\":\"abc\"}").unwrap(), true, &settings).unwrap();
        assert!(
            hello.contains("\"jwt\":\"eyJ\"") && hello.contains("\"sig\"") && !hello.contains("\"nkey\"")
        );
    }

    #[test]
    fn what_cannot_be_is_told_and_secrets_are_not_shown() {
        let of = |address: &str| servers(&settings(address)).err().unwrap_or_default();
        assert_eq!(of(""), "NATS server (address) cannot be empty");
        assert_eq!(of("http://h"), "invalid NATS address: it must begin with nats:// or tls://");
        assert_eq!(of("nats://"), "invalid NATS address: it has no host");
        let found = servers(&settings("h:1, tls://g")).unwrap();
        let server = |host: &str, port, secure| Server { host: host.to_owned(), port, secure };
        assert_eq!(found, [server("h", 1, false), server("g", PORT, true)]);
        let mut settings = settings("h");
        settings.channel = "a\r\nPUB b 0".to_owned();
        assert!(subject(&settings).unwrap_err().contains("white space"));
        for (key, value) in [("nkey", "canary"), ("nkey", "SUcanary"), ("creds", "canary")] {
            settings.data = [(key.to_owned(), value.to_owned().into())].into();
            let error = hello(&Info::read("INFO {}").unwrap(), false, &settings).unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
        for bad in ["", "HTTP/1.1 400", "INFO nonsense"] {
            assert_eq!(Info::read(bad).unwrap_err(), "the server speaks no NATS");
        }
    }
}
