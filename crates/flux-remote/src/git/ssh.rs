//! Git over SSH.
//!
//! The host's key is checked against `known_hosts`, always. No agent, no configuration file, no password
//! authentication, and no `ssh` binary.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flux_api::secret::SecretString;
use futures::Stream;
use russh::client::{self, Handle, Msg};
use russh::keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Preferred, kex};
use tokio_util::io::StreamReader;

use super::address::SshAddress;
use super::known_hosts::KnownHosts;
use super::transport::{Answer, Remote, Service};
use super::{Error, RemoteSaid};

/// The user where an address names none.
const DEFAULT_USER: &str = "git";
const LONGEST_COMPLAINT: usize = 4 << 10;
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// What a Secret holds for SSH.
pub struct SshLogin {
    /// A private key: OpenSSH's own format, PKCS#8, PKCS#1 or SEC1, as PEM.
    pub identity: SecretString,
    /// For an encrypted key.
    pub passphrase: Option<SecretString>,
    pub known_hosts: String,
}

/// `--ssh-kex-algos` and `--ssh-hostkey-algos`; empty lists leave the choice to the library and to `known_hosts`.
#[derive(Clone, Debug, Default)]
pub struct SshAlgorithms {
    pub key_exchange: Vec<String>,
    pub host_keys: Vec<String>,
}

pub struct Ssh {
    host: Host,
    connection: Option<Handle<HostCheck>>,
    channel: Option<OpenChannel>,
}

/// Where to go, as whom, and what to expect there.
struct Host {
    address: SshAddress,
    user: String,
    key: Arc<PrivateKey>,
    known_hosts: Arc<KnownHosts>,
    config: Arc<client::Config>,
}

struct OpenChannel {
    incoming: StreamReader<Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>, Bytes>,
    outgoing: ChannelWriteHalf<Msg>,
}

impl Ssh {
    pub fn new(address: SshAddress, login: &SshLogin, algorithms: &SshAlgorithms) -> Result<Self, Error> {
        let key = private_key(&login.identity, login.passphrase.as_ref())?;
        let known_hosts = KnownHosts::parse(&login.known_hosts)?;
        let keys = host_key_algorithms(&known_hosts, &address, algorithms)?;
        let mut preferred = Preferred { key: Cow::Owned(keys), ..Preferred::default() };
        if !algorithms.key_exchange.is_empty() {
            preferred.kex = Cow::Owned(key_exchange(&algorithms.key_exchange)?);
        }
        let config = client::Config { preferred, nodelay: true, ..client::Config::default() };
        let host = Host {
            user: address.user.clone().unwrap_or_else(|| DEFAULT_USER.to_owned()),
            address,
            key: Arc::new(key),
            known_hosts: Arc::new(known_hosts),
            config: Arc::new(config),
        };
        Ok(Self { host, connection: None, channel: None })
    }

    /// A channel on the connection there is; some servers allow one for each connection, then a new one is made.
    async fn session(&mut self) -> Result<russh::Channel<Msg>, Error> {
        if let Some(handle) = self.connection.as_ref().filter(|handle| !handle.is_closed())
            && let Ok(channel) = handle.channel_open_session().await
        {
            return Ok(channel);
        }
        let handle = self.host.connect().await?;
        let channel =
            handle.channel_open_session().await.map_err(|error| unreachable(&self.host.address, &error))?;
        self.connection = Some(handle);
        Ok(channel)
    }

    async fn start(&mut self, service: Service) -> Result<&mut OpenChannel, Error> {
        if let Some(old) = self.channel.take() {
            // The server's command for it would wait for more.
            let _ = old.outgoing.close().await;
        }
        let channel = self.session().await?;
        let failed = |error: russh::Error| unreachable(&self.host.address, &error);
        if service == Service::UploadPack {
            // Servers that do not take the variable answer in version 0.
            channel.set_env(false, "GIT_PROTOCOL", "version=2").await.map_err(failed)?;
        }
        let command = format!("{} {}", service.name(), quoted(&self.host.address.path));
        channel.exec(false, command).await.map_err(failed)?;
        let (incoming, outgoing) = channel.split();
        let incoming = StreamReader::new(stream(incoming));
        Ok(self.channel.insert(OpenChannel { incoming, outgoing }))
    }
}

impl Host {
    async fn connect(&self) -> Result<Handle<HostCheck>, Error> {
        let problem = Arc::new(Mutex::new(None));
        let check = HostCheck {
            known_hosts: self.known_hosts.clone(),
            host: self.address.known_as(),
            problem: problem.clone(),
        };
        let place = (self.address.host.as_str(), self.address.port);
        let connecting = client::connect(self.config.clone(), place, check);
        let connected = tokio::time::timeout(CONNECT_LIMIT, connecting)
            .await
            .map_err(|_| Error::Unreachable(format!("{}: no answer", self.address.known_as())))?;
        let mut handle = match connected {
            Ok(handle) => handle,
            Err(error) => {
                let refused = problem.lock().unwrap_or_else(PoisonError::into_inner).take();
                return Err(refused.unwrap_or_else(|| unreachable(&self.address, &error)));
            }
        };
        self.authenticate(&mut handle).await?;
        Ok(handle)
    }

    async fn authenticate(&self, handle: &mut Handle<HostCheck>) -> Result<(), Error> {
        let failed = |error: russh::Error| unreachable(&self.address, &error);
        let hash = match self.key.algorithm() {
            Algorithm::Rsa { .. } => handle.best_supported_rsa_hash().await.map_err(failed)?.flatten(),
            _ => None,
        };
        let key = PrivateKeyWithHashAlg::new(self.key.clone(), hash);
        match handle.authenticate_publickey(self.user.as_str(), key).await.map_err(failed)?.success() {
            true => Ok(()),
            false => Err(Error::Login(format!(
                "ssh: handshake failed: the server does not accept the key for user '{}'",
                self.user
            ))),
        }
    }
}

impl Remote for Ssh {
    fn advertisement(&mut self, service: Service) -> Answer<'_> {
        Box::pin(async move {
            let channel = self.start(service).await?;
            Ok(Box::pin(&mut channel.incoming) as super::transport::Reply<'_>)
        })
    }

    fn request(&mut self, _service: Service, body: Vec<u8>) -> Answer<'_> {
        Box::pin(async move {
            let channel = self
                .channel
                .as_mut()
                .ok_or_else(|| Error::Unreachable("a request before the advertisement".to_owned()))?;
            // A server that refuses closes its end while we still write; its reason is in what we read.
            let _ = channel.outgoing.data_bytes(body).await;
            Ok(Box::pin(&mut channel.incoming) as super::transport::Reply<'_>)
        })
    }

    fn is_stateless(&self) -> bool {
        false
    }
}

/// Reads a private key; errors never quote it.
pub fn private_key(pem: &SecretString, passphrase: Option<&SecretString>) -> Result<PrivateKey, Error> {
    let text = pem.expose().trim();
    if passphrase.is_none() && is_encrypted(text) {
        return Err(Error::PassphraseMissing);
    }
    // A passphrase beside a key that needs none is ignored, as OpenSSH does.
    let passphrase = passphrase.map(|one| one.expose().as_str()).filter(|_| is_encrypted(text));
    russh::keys::decode_secret_key(text, passphrase).map_err(|_| match passphrase {
        Some(_) => Error::Login("the SSH key cannot be decrypted with the password given".to_owned()),
        None => Error::Login("the SSH key cannot be read: expected a private key in PEM".to_owned()),
    })
}

fn is_encrypted(pem: &str) -> bool {
    pem.contains("BEGIN ENCRYPTED PRIVATE KEY")
        || pem.contains("Proc-Type: 4,ENCRYPTED")
        || PrivateKey::from_openssh(pem).is_ok_and(|key| key.is_encrypted())
}

fn host_key_algorithms(
    known_hosts: &KnownHosts,
    address: &SshAddress,
    algorithms: &SshAlgorithms,
) -> Result<Vec<Algorithm>, Error> {
    if algorithms.host_keys.is_empty() {
        let known = known_hosts.algorithms(&address.known_as());
        let host = address.known_as();
        return match known.is_empty() {
            true => Err(Error::HostKey(format!(
                "knownhosts: key is unknown: no line of known_hosts is for {host}"
            ))),
            false => Ok(known),
        };
    }
    let unknown = |name: &String| Error::Unsupported(format!("SSH host key algorithm '{name}' is not known"));
    algorithms.host_keys.iter().map(|name| Algorithm::new(name).map_err(|_| unknown(name))).collect()
}

fn key_exchange(names: &[String]) -> Result<Vec<kex::Name>, Error> {
    let unknown = |name: &String| Error::Unsupported(format!("SSH key exchange '{name}' is not known"));
    names.iter().map(|name| kex::Name::try_from(name.as_str()).map_err(|()| unknown(name))).collect()
}

/// Single quotes around, and none inside: a server hands this to a shell.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

fn unreachable(address: &SshAddress, error: &russh::Error) -> Error {
    Error::Unreachable(format!("ssh: {}: {error}", address.known_as()))
}

struct HostCheck {
    known_hosts: Arc<KnownHosts>,
    host: String,
    problem: Arc<Mutex<Option<Error>>>,
}

impl client::Handler for HostCheck {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let verdict = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.known_hosts.check(&self.host, key),
            PublicKeyOrCertificate::Certificate(_) => {
                Err(Error::HostKey("knownhosts: host certificates are not supported".to_owned()))
            }
        };
        let accepted = verdict.is_ok();
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = verdict.err();
        Ok(accepted)
    }
}

/// What the command prints; if it fails, the end is an error with what it complained.
fn stream(channel: ChannelReadHalf) -> Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>> {
    struct State {
        channel: ChannelReadHalf,
        complaint: Vec<u8>,
        status: Option<u32>,
        ended: bool,
    }
    let state = State { channel, complaint: Vec::new(), status: None, ended: false };
    Box::pin(futures::stream::unfold(state, |mut state| async move {
        if state.ended {
            return None;
        }
        loop {
            match state.channel.wait().await {
                Some(ChannelMsg::Data { data }) => return Some((Ok(data), state)),
                Some(ChannelMsg::ExtendedData { data, ext: 1 }) => {
                    let room = LONGEST_COMPLAINT.saturating_sub(state.complaint.len());
                    state.complaint.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => state.status = Some(exit_status),
                Some(ChannelMsg::Close) | None => break,
                Some(_) => {}
            }
        }
        state.ended = true;
        match state.status {
            Some(0) => None,
            _ => {
                let said = RemoteSaid(String::from_utf8_lossy(&state.complaint).into_owned());
                Some((Err(io::Error::other(said)), state))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_path_does_not_end_the_argument() {
        assert_eq!(quoted("/a.git"), "'/a.git'");
        assert_eq!(quoted("/a'; rm -rf x; '"), r"'/a'\''; rm -rf x; '\'''");
    }

    #[test]
    fn an_unreadable_key_is_not_quoted() {
        let error =
            private_key(&SecretString::new("hunter2".to_owned()), None).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| !text.contains("hunter2")));
    }

    #[test]
    fn unknown_algorithms_are_named() {
        assert!(key_exchange(&["curve25519-sha256".to_owned()]).is_ok());
        assert!(key_exchange(&["nonsense".to_owned()]).unwrap_err().to_string().contains("nonsense"));
    }
}
