//! SSH keys: making a pair, reading one, and asking a host for its key.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flux_api::secret::SecretString;
use russh::client::{self, Handler};
use russh::keys::key::safe_rng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::RsaKeypair;
use russh::keys::{Algorithm, EcdsaCurve, PrivateKey, PublicKey, PublicKeyOrCertificate};

use crate::error::{CliError, fail};

/// A host that has not shown its key by then is gone.
const SCAN_LIMIT: Duration = Duration::from_secs(30);

/// A private key and the line a Git host wants to know of it.
pub(crate) struct KeyPair {
    pub(crate) private: SecretString,
    pub(crate) public: String,
}

impl KeyPair {
    /// A fresh pair: `rsa`, `ecdsa` or `ed25519`.
    pub(crate) fn generate(algorithm: &str, bits: &str, curve: &str) -> Result<KeyPair, CliError> {
        let failed = |error: russh::keys::ssh_key::Error| fail!("key pair generation failed: {error}");
        let mut random = safe_rng();
        let key = match algorithm {
            "rsa" => {
                let bits =
                    bits.parse().map_err(|_| fail!("key pair generation failed: '{bits}' is no key size"))?;
                PrivateKey::from(RsaKeypair::random(&mut random, bits).map_err(failed)?)
            }
            "ed25519" => PrivateKey::random(&mut random, Algorithm::Ed25519).map_err(failed)?,
            _ => {
                let curve = match curve {
                    "p256" => EcdsaCurve::NistP256,
                    "p521" => EcdsaCurve::NistP521,
                    _ => EcdsaCurve::NistP384,
                };
                PrivateKey::random(&mut random, Algorithm::Ecdsa { curve }).map_err(failed)?
            }
        };
        let text = key.to_openssh(LineEnding::LF).map_err(failed)?.to_string();
        KeyPair::of(text, &key)
    }

    /// What a file holds; an encrypted key needs its password.
    pub(crate) fn read(pem: String, password: Option<&str>) -> Result<KeyPair, CliError> {
        let password = password.map(|password| SecretString::new(password.to_owned()));
        let key = flux_remote::git::private_key(&SecretString::new(pem.clone()), password.as_ref())
            .map_err(|error| fail!("failed to parse private key: {error}"))?;
        KeyPair::of(pem, &key)
    }

    fn of(private: String, key: &PrivateKey) -> Result<KeyPair, CliError> {
        let mut public = key.public_key().clone();
        public.set_comment("");
        let line = public.to_openssh().map_err(|error| fail!("key pair generation failed: {error}"))?;
        Ok(KeyPair { private: SecretString::new(private), public: format!("{}\n", line.trim_end()) })
    }
}

/// The `known_hosts` line of `host` or `host:port`.
pub(crate) async fn scan_host_key(host: &str) -> Result<String, CliError> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().map_err(|_| fail!("'{host}': '{port}' is no port"))?),
        None => (host, 22),
    };
    let place = format!("{name}:{port}");
    let seen = Arc::new(Mutex::new(None));
    let look = Look(seen.clone());
    let config = Arc::new(client::Config::default());
    let connecting = client::connect(config, (name, port), look);
    let connected = tokio::time::timeout(SCAN_LIMIT, connecting).await;
    let key = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(key) = key {
        let key: PublicKey = key;
        let shown = if port == 22 { name.to_owned() } else { format!("[{name}]:{port}") };
        let line = key
            .to_openssh()
            .map_err(|error| fail!("SSH key scan for host {place} failed, error: {error}"))?;
        return Ok(format!("{shown} {}", line.trim_end()));
    }
    let cause = match connected {
        Err(_) => "no answer".to_owned(),
        Ok(Err(russh::Error::IO(error))) => {
            format!("dial tcp {place}: connect: {}", crate::error::go_cause(&error))
        }
        Ok(Err(error)) => error.to_string(),
        Ok(Ok(_)) => "the host showed no key".to_owned(),
    };
    Err(fail!("SSH key scan for host {place} failed, error: {cause}"))
}

/// Notes the key and hangs up.
struct Look(Arc<Mutex<Option<PublicKey>>>);

impl Handler for Look {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        if let PublicKeyOrCertificate::PublicKey { key, .. } = key {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_can_be_read_again() {
        for (algorithm, start) in [("ecdsa", "ecdsa-sha2-nistp384 "), ("ed25519", "ssh-ed25519 ")] {
            let made = KeyPair::generate(algorithm, "2048", "p384").expect("a key pair");
            assert!(made.public.starts_with(start), "{}", made.public);
            let read = KeyPair::read(made.private.expose().clone(), None).expect("the same key pair");
            assert_eq!(read.public, made.public);
        }
    }
}
