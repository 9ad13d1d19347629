//! Git over SSH: keys in front of `git upload-pack` and `git receive-pack`. No shell, no other command.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};
use russh::server::{self, Auth, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelMsg, ChannelWriteHalf, Preferred};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::{Accounts, backend};
use crate::fault::{Fault, Faults};
use crate::http_server::runtime;

/// A fresh ed25519 key.
pub struct SshKey(PrivateKey);

impl SshKey {
    pub fn generate() -> Result<Self> {
        let mut seed = [0; 32];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut seed))
            .context("read randomness")?;
        Ok(Self(PrivateKey::from(Ed25519Keypair::from_seed(&seed))))
    }

    /// OpenSSH's PEM: what goes into a file or into a Secret's `identity`.
    pub fn private(&self) -> Result<String> {
        Ok(self.0.to_openssh(LineEnding::LF)?.to_string())
    }

    /// One line, for [`Accounts::keys`] or a Secret's `identity.pub`.
    pub fn public(&self) -> Result<String> {
        Ok(self.0.public_key().to_openssh()?)
    }
}

pub(super) struct SshServer {
    address: SocketAddr,
    host_key: PublicKey,
    faults: Faults,
    commands: Arc<Mutex<Vec<String>>>,
    accepting: AbortHandle,
}

impl SshServer {
    pub(super) fn start(root: PathBuf, accounts: Arc<Accounts>, is_old: Arc<AtomicBool>) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("bind a free port")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let SshKey(key) = SshKey::generate()?;
        let host_key = key.public_key().clone();
        let config = server::Config {
            keys: vec![key],
            // Rejections are slow by default, against guessing; here they would only slow tests.
            auth_rejection_time: Duration::ZERO,
            auth_rejection_time_initial: Some(Duration::ZERO),
            preferred: Preferred::default(),
            ..server::Config::default()
        };
        let read = |lines: &[String]| {
            let keys = lines.iter().map(|line| PublicKey::from_openssh(line).context("read a public key"));
            keys.collect::<Result<Vec<_>>>()
        };
        let keys = Keys { writers: read(&accounts.keys)?, readers: read(&accounts.read_only_keys)? };
        let client = Client {
            root,
            keys: Arc::new(keys),
            faults: Faults::default(),
            commands: Arc::default(),
            is_old,
            protocol: String::new(),
            may_write: true,
            channel: None,
        };
        let (faults, commands) = (client.faults.clone(), client.commands.clone());
        let accepting = runtime().spawn(accept(listener, Arc::new(config), client));
        Ok(Self { address, host_key, faults, commands, accepting: accepting.abort_handle() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(super) fn known_hosts(&self) -> Result<String> {
        let (host, port) = (self.address.ip(), self.address.port());
        Ok(format!("[{host}]:{port} {}\n", self.host_key.to_openssh()?))
    }

    pub(super) fn commands(&self) -> Vec<String> {
        let commands = self.commands.lock();
        commands.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: std::net::TcpListener, config: Arc<server::Config>, client: Client) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                let (config, client) = (config.clone(), client.clone_for_connection());
                connections.spawn(async move {
                    if let Ok(session) = server::run_stream(config, stream, client).await {
                        // An error is a client that left or was cut off.
                        let _ = session.await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Who may come in; everybody if there is nobody.
struct Keys {
    writers: Vec<PublicKey>,
    readers: Vec<PublicKey>,
}

impl Keys {
    fn is_empty(&self) -> bool {
        self.writers.is_empty() && self.readers.is_empty()
    }

    fn has(keys: &[PublicKey], offered: &PublicKey) -> bool {
        keys.iter().any(|known| known.key_data() == offered.key_data())
    }
}

/// One connection.
struct Client {
    root: PathBuf,
    keys: Arc<Keys>,
    faults: Faults,
    commands: Arc<Mutex<Vec<String>>>,
    is_old: Arc<AtomicBool>,
    /// What the client says in `GIT_PROTOCOL`.
    protocol: String,
    may_write: bool,
    channel: Option<Channel<Msg>>,
}

impl Client {
    fn clone_for_connection(&self) -> Self {
        Self {
            root: self.root.clone(),
            keys: self.keys.clone(),
            faults: self.faults.clone(),
            commands: self.commands.clone(),
            is_old: self.is_old.clone(),
            protocol: String::new(),
            may_write: true,
            channel: None,
        }
    }

    /// Starts what the client asks for, if it is one of the two commands and the repository is there.
    fn start(&self, command: &str) -> Result<Child, String> {
        let (program, argument) = command.split_once(' ').unwrap_or((command, ""));
        let service = match program {
            "git-upload-pack" => "upload-pack",
            "git-receive-pack" => "receive-pack",
            _ => return Err(format!("{program}: no such command here")),
        };
        if service == "receive-pack" && !self.may_write {
            return Err("this deploy key has been marked as read only".to_owned());
        }
        let path = argument.trim().trim_matches('\'');
        let Some(folder) = backend::repository(&self.root, path) else {
            return Err(format!("repository '{path}' not found"));
        };
        backend::git()
            .arg(service)
            .arg(folder)
            .env(
                "GIT_PROTOCOL",
                if self.is_old.load(Ordering::Relaxed) { "" } else { self.protocol.as_str() },
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("git cannot be started: {error}"))
    }
}

impl server::Handler for Client {
    type Error = anyhow::Error;

    async fn auth_none(&mut self, _user: &str) -> Result<Auth> {
        Ok(if self.keys.is_empty() { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, _user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth> {
        let is_writer = Keys::has(&self.keys.writers, key.public_key);
        let is_reader = Keys::has(&self.keys.readers, key.public_key);
        self.may_write = is_writer || self.keys.is_empty();
        Ok(if self.may_write || is_reader { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: server::ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<()> {
        self.channel = Some(channel);
        reply.accept().await;
        Ok(())
    }

    async fn env_request(
        &mut self,
        _id: ChannelId,
        name: &str,
        value: &str,
        _session: &mut Session,
    ) -> Result<()> {
        if name == "GIT_PROTOCOL" {
            value.clone_into(&mut self.protocol);
        }
        Ok(())
    }

    async fn exec_request(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<()> {
        let command = String::from_utf8_lossy(data).into_owned();
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command.clone());
        let channel = self.channel.take().context("a command without a channel")?;
        session.channel_success(id)?;
        let fault = self.faults.take(&command);
        if let Some(Fault::Status(code)) = fault {
            let message = "told to fail".to_owned();
            tokio::spawn(refuse(channel, message, u32::from(code)));
            return Ok(());
        }
        let faults = self.faults.clone();
        let (handle, started) = (session.handle(), self.start(&command));
        tokio::spawn(async move {
            if fault == Some(Fault::Stall) {
                faults.until_cleared().await;
            }
            let child = match started {
                Ok(child) => child,
                Err(message) => return refuse(channel, message, 128).await,
            };
            let limit = match fault {
                Some(Fault::CutAfter(limit)) => Some(limit),
                _ => None,
            };
            if let Err(error) = serve(channel, child, limit).await {
                let reason = russh::Disconnect::ByApplication;
                let _ = handle.disconnect(reason, format!("{error}"), String::new()).await;
            }
        });
        Ok(())
    }
}

async fn refuse(channel: Channel<Msg>, message: String, status: u32) {
    let text = format!("fatal: {message}\n").into_bytes();
    // A client that has gone need not be told.
    let _ = channel.extended_data(1, &text[..]).await;
    let _ = finish(&channel.split().1, status).await;
}

async fn finish(channel: &ChannelWriteHalf<Msg>, status: u32) -> Result<()> {
    channel.exit_status(status).await?;
    channel.eof().await?;
    Ok(channel.close().await?)
}

/// Connects the channel with the process, both ways; with a limit, breaks off after that many bytes of the answer.
async fn serve(channel: Channel<Msg>, mut child: Child, limit: Option<usize>) -> Result<()> {
    let (mut incoming, outgoing) = channel.split();
    let stdin = child.stdin.take().context("no stdin")?;
    let stdout = child.stdout.take().context("no stdout")?;
    let to_git = feed(stdin);
    let mut from_git = drain(stdout);
    tokio::spawn(async move {
        while let Some(message) = incoming.wait().await {
            let data = match message {
                ChannelMsg::Data { data } => data,
                ChannelMsg::Eof | ChannelMsg::Close => break,
                _ => continue,
            };
            if to_git.send(data.to_vec()).await.is_err() {
                break;
            }
        }
    });
    let mut left = limit.unwrap_or(usize::MAX);
    while let Some(chunk) = from_git.recv().await {
        let part = &chunk[..chunk.len().min(left)];
        outgoing.data(part).await?;
        left -= part.len();
        if left == 0 {
            // It is only a test's git; it ends by itself when its pipes close, but let it not linger.
            let _ = child.kill();
            let _ = child.wait();
            anyhow::bail!("told to cut the connection");
        }
    }
    let status = tokio::task::spawn_blocking(move || child.wait()).await??;
    let code = status.code().and_then(|code| u32::try_from(code).ok());
    finish(&outgoing, code.unwrap_or(255)).await
}

/// Pipes of a std process block, so each end gets a thread.
fn feed(mut stdin: std::process::ChildStdin) -> mpsc::Sender<Vec<u8>> {
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(16);
    std::thread::spawn(move || {
        while let Some(chunk) = receiver.blocking_recv() {
            if stdin.write_all(&chunk).is_err() {
                break;
            }
        }
    });
    sender
}

fn drain(mut stdout: std::process::ChildStdout) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(count) = stdout.read(&mut buffer) {
            if count == 0 || sender.blocking_send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}
