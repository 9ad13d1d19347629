//! NATS: the event as a message of a subject, over NATS' own protocol. What is said is made by pure functions; only
//! [`publish`] has a connection. TLS is not spoken: a server that wants it is told apart by name.

use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use url::Url;

use super::event::Event;
use super::provider::Settings;

const PORT: u16 = 4222;
const LONGEST_LINE: u64 = 1 << 20;
/// Lines that a server may say before it answers.
const MOST_LINES: usize = 16;
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

/// Connects, says who we are, publishes and waits until the server has it.
pub async fn publish(event: &Event, settings: &Settings) -> Result<(), String> {
    let (host, port) = address(settings)?;
    let subject = subject(settings)?;
    let within = settings.timeout.max(Duration::from_millis(100));
    let spoken = tokio::time::timeout(within, speak(&host, port, subject, event, settings));
    spoken.await.unwrap_or_else(|_| Err("the server did not answer in time".to_owned()))
}

async fn speak(
    host: &str,
    port: u16,
    subject: &str,
    event: &Event,
    settings: &Settings,
) -> Result<(), String> {
    let lost = |error: std::io::Error| format!("error connecting to server: {error}");
    let stream = TcpStream::connect((host, port)).await.map_err(lost)?;
    let mut stream = BufReader::new(stream);
    let info = line(&mut stream).await?;
    let hello = hello(&info, settings)?;
    let payload = event.to_json();
    let mut words = format!("{hello}PUB {subject} {}\r\n", payload.len()).into_bytes();
    words.extend_from_slice(&payload);
    words.extend_from_slice(b"\r\nPING\r\n");
    stream.get_mut().write_all(&words).await.map_err(lost)?;
    for _ in 0..MOST_LINES {
        let said = line(&mut stream).await?;
        match said.split_whitespace().next().unwrap_or_default() {
            "PONG" => return Ok(()),
            "PING" => stream.get_mut().write_all(b"PONG\r\n").await.map_err(lost)?,
            "-ERR" => return Err(format!("error publishing message to server: {}", said.trim())),
            _ => {}
        }
    }
    Err("the server did not confirm the message".to_owned())
}

async fn line(stream: &mut BufReader<TcpStream>) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = stream.take(LONGEST_LINE).read_until(b'\n', &mut bytes).await;
    match read {
        Ok(0) => Err("the server ended the connection".to_owned()),
        Ok(_) => String::from_utf8(bytes).map_err(|_| "the server speaks no NATS".to_owned()),
        Err(error) => Err(format!("error connecting to server: {error}")),
    }
}

/// The first server of the address.
fn address(settings: &Settings) -> Result<(String, u16), String> {
    let first = settings.address.split(',').next().unwrap_or_default().trim();
    if first.is_empty() {
        return Err("NATS server (address) cannot be empty".to_owned());
    }
    let text = if first.contains("://") { first.to_owned() } else { format!("nats://{first}") };
    let url = Url::parse(&text).map_err(|error| format!("invalid NATS address: {error}"))?;
    match url.scheme() {
        "nats" => {}
        "tls" => return Err("invalid NATS address: TLS is not supported".to_owned()),
        _ => return Err("invalid NATS address: it must begin with nats://".to_owned()),
    }
    let host =
        url.host_str().filter(|host| !host.is_empty()).ok_or("invalid NATS address: it has no host")?;
    Ok((host.to_owned(), url.port().unwrap_or(PORT)))
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

#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    nonce: String,
    #[serde(default)]
    tls_required: bool,
}

/// `CONNECT …`: credentials win over an nkey, and that over a user and password.
fn hello(info: &str, settings: &Settings) -> Result<String, String> {
    let info = info.strip_prefix("INFO ").ok_or("the server speaks no NATS")?;
    let info: Info = serde_json::from_str(info.trim()).map_err(|_| "the server speaks no NATS")?;
    if info.tls_required {
        return Err("the server requires TLS, which is not supported".to_owned());
    }
    let mut options = json!({
        "verbose": false, "pedantic": false, "tls_required": false, "name": "NATS Provider Publisher",
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
    use tokio::net::TcpListener;

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

    /// A server that says `answer` after a client's PING; what it heard comes back.
    async fn server(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        let heard = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"INFO {\"nonce\":\"n\",\"max_payload\":1048576}\r\n").await.unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(b"PING\r\n") {
                let mut piece = [0; 4096];
                let read = stream.read(&mut piece).await.unwrap();
                assert!(read > 0);
                heard.extend_from_slice(&piece[..read]);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(heard).unwrap()
        });
        (address, heard)
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
        let hello = hello("INFO {\"nonce\":\"abc\"}", &settings).unwrap();
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
        let hello = self::hello("INFO {\"nonce\":\"abc\"}", &settings).unwrap();
        assert!(
            hello.contains("\"jwt\":\"eyJ\"") && hello.contains("\"sig\"") && !hello.contains("\"nkey\"")
        );
    }

    #[test]
    fn what_cannot_be_is_told_and_secrets_are_not_shown() {
        let of = |address: &str| address_problem(&settings(address));
        assert_eq!(of(""), "NATS server (address) cannot be empty");
        assert_eq!(of("tls://h"), "invalid NATS address: TLS is not supported");
        assert_eq!(of("http://h"), "invalid NATS address: it must begin with nats://");
        assert_eq!(address(&settings("h:1,g:2")).unwrap(), ("h".to_owned(), 1));
        let mut settings = settings("h");
        settings.channel = "a\r\nPUB b 0".to_owned();
        assert!(subject(&settings).unwrap_err().contains("white space"));
        for (key, value) in [("nkey", "canary"), ("nkey", "SUcanary"), ("creds", "canary")] {
            settings.data = [(key.to_owned(), value.to_owned().into())].into();
            let error = hello("INFO {}", &settings).unwrap_err();
            assert!(!error.contains("canary"), "{error}");
        }
        settings.data.clear();
        assert!(hello("INFO {\"tls_required\":true}", &settings).unwrap_err().contains("TLS"));
        for bad in ["", "HTTP/1.1 400", "INFO nonsense"] {
            assert!(hello(bad, &settings).is_err());
        }
    }

    fn address_problem(settings: &Settings) -> String {
        address(settings).err().unwrap_or_default()
    }
}
