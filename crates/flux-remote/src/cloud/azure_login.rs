//! Logins at Azure that a Secret holds: an application with a password or a certificate, or an identity of the machine.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flux_api::secret::SecretString;
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::assertion::{Scheme, SigningKey, certificates};
use super::azure::{entra, is_tenant, machine_token};
use super::{Environment, Error, Token};
use crate::transport::Transport;

/// How long a statement is good for, in seconds.
const STATEMENT: i64 = 600;
pub(super) const STATEMENT_KIND: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Somebody whom Entra knows. It cannot be printed.
pub struct AzureLogin {
    client: String,
    /// Where Entra is; the public one, when nothing is said.
    authority: Option<String>,
    proof: Proof,
}

enum Proof {
    Password { tenant: String, password: SecretString },
    Certificate { tenant: String, key: Box<SigningKey>, chain: Vec<Vec<u8>>, sends_chain: bool },
    Machine,
}

impl AzureLogin {
    pub fn with_password(tenant: String, client: String, password: SecretString) -> Self {
        Self { client, authority: None, proof: Proof::Password { tenant, password } }
    }

    /// `pem` holds the certificate, its key, and maybe the certificates above it, in any order.
    pub fn with_certificate(
        tenant: String,
        client: String,
        pem: &[u8],
        sends_chain: bool,
    ) -> Result<Self, Error> {
        let wrong =
            |problem: &str| Error::Configuration(format!("failed to parse client certificates: {problem}"));
        let key = SigningKey::from_pem(pem)
            .ok_or_else(|| wrong("no RSA key in PEM without a password; PKCS#12 has to be converted"))?;
        let mut chain = certificates(pem);
        let own = chain.iter().position(|certificate| key.is_of(certificate));
        let own = own.ok_or_else(|| wrong("no certificate in PEM is one of the key"))?;
        chain[..=own].rotate_right(1);
        let key = Box::new(key);
        Ok(Self { client, authority: None, proof: Proof::Certificate { tenant, key, chain, sends_chain } })
    }

    /// An identity that the machine has beside others.
    pub fn of_the_machine(client: String) -> Self {
        Self { client, authority: None, proof: Proof::Machine }
    }

    /// The same at another Entra.
    pub fn at(mut self, authority: Option<String>) -> Self {
        self.authority = authority.filter(|authority| !authority.is_empty());
        self
    }

    pub(super) async fn token(
        &self,
        env: &Environment,
        scope: &str,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<Token, Error> {
        let (tenant, proof) = match &self.proof {
            Proof::Machine => return machine_token(env, scope, Some(&self.client), transport, now).await,
            Proof::Password { tenant, password } => {
                (tenant, vec![("client_secret".to_owned(), password.clone())])
            }
            Proof::Certificate { tenant, key, chain, sends_chain } => {
                let address = self.address(env, tenant)?;
                let statement = self.statement(key, chain, *sends_chain, &address, now)?;
                let kind = SecretString::new(STATEMENT_KIND.to_owned());
                let proof = vec![
                    ("client_assertion_type".to_owned(), kind),
                    ("client_assertion".to_owned(), statement),
                ];
                (tenant, proof)
            }
        };
        entra(&self.address(env, tenant)?, &self.client, &proof, scope, transport, now).await
    }

    /// The password goes wherever this says, so at least nobody on the way may read it.
    fn address(&self, env: &Environment, tenant: &str) -> Result<String, Error> {
        let authority = env.authority(self.authority.as_deref());
        if !authority.starts_with("https://") && !authority.starts_with("http://127.0.0.1:") {
            return Err(Error::Configuration("authorityHost must begin with https://".to_owned()));
        }
        if !is_tenant(tenant) {
            return Err(Error::Configuration("tenantId is neither an id nor a domain".to_owned()));
        }
        let address = format!("{authority}/{tenant}/oauth2/v2.0/token");
        Ok(if self.authority.is_some() { address } else { env.url("entra", address) })
    }

    fn statement(
        &self,
        key: &SigningKey,
        chain: &[Vec<u8>],
        sends_chain: bool,
        address: &str,
        now: Timestamp,
    ) -> Result<SecretString, Error> {
        let wrong = || Error::Configuration("the key of the client certificate cannot sign".to_owned());
        let mut number = [0; 16];
        SystemRandom::new().fill(&mut number).map_err(|_| wrong())?;
        let mut header = json!({ "x5t#S256": URL_SAFE_NO_PAD.encode(Sha256::digest(&chain[0])) });
        if sends_chain {
            header["x5c"] = chain.iter().map(|one| STANDARD.encode(one)).collect();
        }
        let second = now.as_second();
        let claims = json!({
            "aud": address, "iss": self.client, "sub": self.client, "jti": URL_SAFE_NO_PAD.encode(number),
            "nbf": second, "iat": second, "exp": second + STATEMENT,
        });
        key.sign(Scheme::Ps256, header, &claims).ok_or_else(wrong)
    }
}
