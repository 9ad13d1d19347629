//! How bootstrap itself reaches the repository, and what the source on the cluster gets to reach it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flux_api::secret::SecretString;
use flux_remote::git::{Address, Http, Remote, Ssh, SshAlgorithms, SshLogin};
use reqwest::{Certificate, ClientBuilder};
use serde_json::{Value, json};
use url::Url;

use crate::commands::create::{key_secret, plain_secret};
use crate::error::{CliError, fail, go_io};
use crate::ssh::{KeyPair, scan_host_key};
use crate::tree::Invocation;

use super::provider::{Client, Repository};

/// An open way to the repository.
pub(super) struct GitLogin(pub(super) Box<dyn Remote>);

impl GitLogin {
    pub(super) async fn for_plain(
        run: &Invocation,
        address: &Url,
        password: Option<&str>,
        certificate: Option<&str>,
    ) -> Result<GitLogin, CliError> {
        match address.scheme() {
            "http" if !run.is("allow-insecure-http") => {
                Err(fail!("scheme http is insecure, pass --allow-insecure-http=true to allow it"))
            }
            "http" | "https" => {
                let header = password.map(|password| {
                    if run.is("with-bearer-token") {
                        format!("Bearer {password}")
                    } else {
                        basic(run.text("username"), password)
                    }
                });
                GitLogin::http(address, header, certificate)
            }
            "ssh" => GitLogin::ssh(run, address, password).await,
            scheme => Err(fail!("scheme {scheme:?} is not supported")),
        }
    }

    pub(super) fn with_token(
        address: &str,
        user: &str,
        token: &SecretString,
        certificate: Option<&str>,
    ) -> Result<GitLogin, CliError> {
        let address = Url::parse(address).map_err(|error| fail!("{address}: {error}"))?;
        GitLogin::http(&address, Some(basic(user, token.expose())), certificate)
    }

    fn http(address: &Url, header: Option<String>, certificate: Option<&str>) -> Result<GitLogin, CliError> {
        let client = builder(certificate)?;
        let remote = Http::new(client, address, header).map_err(|error| fail!("{error}"))?;
        Ok(GitLogin(Box::new(remote)))
    }

    async fn ssh(run: &Invocation, address: &Url, password: Option<&str>) -> Result<GitLogin, CliError> {
        let file = run.some("private-key-file").ok_or_else(|| {
            fail!("a private key is required for Git over SSH: pass --private-key-file, or --token-auth with an https address")
        })?;
        let pem = std::fs::read_to_string(file).map_err(|error| fail!("{}", go_io(file.as_ref(), &error)))?;
        let Address::Ssh(place) = Address::parse(address.as_str()).map_err(|error| fail!("{error}"))? else {
            return Err(fail!("{address} is no address for Git over SSH"));
        };
        let known_hosts = scan_host_key(&host_and_port(address)).await?;
        let login = SshLogin {
            identity: SecretString::new(pem),
            passphrase: password.map(|password| SecretString::new(password.to_owned())),
            known_hosts,
        };
        let algorithms = SshAlgorithms { key_exchange: Vec::new(), host_keys: run.list("ssh-hostkey-algos") };
        let remote = Ssh::new(place, &login, &algorithms).map_err(|error| fail!("{error}"))?;
        Ok(GitLogin(Box::new(remote)))
    }
}

/// TLS as the certificate says.
pub(super) fn builder(certificate: Option<&str>) -> Result<ClientBuilder, CliError> {
    let mut client = reqwest::Client::builder();
    if let Some(pem) = certificate {
        let own = Certificate::from_pem(pem.as_bytes())
            .map_err(|error| fail!("unable to read TLS CA file: {error}"))?;
        client = client.add_root_certificate(own);
    }
    Ok(client)
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

fn host_and_port(address: &Url) -> String {
    let host = address.host_str().unwrap_or_default();
    address.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// What goes into the source's Secret.
pub(super) enum SourceLogin {
    Password {
        user: String,
        password: String,
        certificate: Option<String>,
    },
    Bearer {
        token: String,
        certificate: Option<String>,
    },
    Key {
        pair: Option<KeyPair>,
        host: String,
        password: Option<String>,
    },
    /// A deploy token that is there already and cannot be read again.
    Kept,
}

impl SourceLogin {
    /// With the address that the source will use.
    pub(super) fn for_plain(
        run: &Invocation,
        address: &Url,
        password: Option<String>,
        certificate: Option<String>,
    ) -> Result<(SourceLogin, String), CliError> {
        let mut address = address.clone();
        let impossible = |()| fail!("{}: the address cannot be used for a source", run.text("url"));
        if run.is("token-auth") {
            let password = password.unwrap_or_default();
            if !matches!(address.scheme(), "http" | "https") {
                address.set_port(None).map_err(impossible)?;
            }
            address.set_username("").map_err(impossible)?;
            address.set_password(None).map_err(impossible)?;
            let mut text = address.to_string();
            if !run.is("allow-insecure-http") {
                text = with_scheme(&text, "https");
            }
            let login = if run.is("with-bearer-token") {
                SourceLogin::Bearer { token: password, certificate }
            } else {
                SourceLogin::Password { user: run.text("username").to_owned(), password, certificate }
            };
            return Ok((login, text));
        }
        if address.username().is_empty() || run.text("username") != "git" {
            address.set_username(run.text("username")).map_err(impossible)?;
        }
        address.set_password(None).map_err(impossible)?;
        let mut text = with_scheme(address.as_str(), "ssh");
        let mut host = host_and_port(&address);
        if let Some(name) = run.some("ssh-hostname") {
            text = text.replacen(&host, name, 1);
            name.clone_into(&mut host);
        }
        let pair = given_pair(run, password.as_deref())?;
        Ok((SourceLogin::Key { pair, host, password }, text))
    }

    pub(super) async fn for_provider(
        run: &Invocation,
        client: &Client,
        repository: &Repository,
        token: &SecretString,
        certificate: Option<String>,
    ) -> Result<SourceLogin, CliError> {
        if client.uses_deploy_token(run) {
            return Ok(match client.deploy_token(run, repository).await? {
                Some((user, password)) => SourceLogin::Password { user, password, certificate },
                None => SourceLogin::Kept,
            });
        }
        if run.is("token-auth") {
            let user = client.token_user(run);
            return Ok(SourceLogin::Password { user, password: token.expose().clone(), certificate });
        }
        let host = run.some("ssh-hostname").map_or_else(|| client.host().to_owned(), str::to_owned);
        // Upstream makes a new key here whatever is given; whoever names one means it.
        Ok(SourceLogin::Key { pair: given_pair(run, None)?, host, password: None })
    }

    /// Whether there is something new to write over a Secret that exists.
    pub(super) fn is_given(&self) -> bool {
        match self {
            SourceLogin::Password { .. } | SourceLogin::Bearer { .. } => true,
            SourceLogin::Key { pair, password, .. } => pair.is_some() || password.is_some(),
            SourceLogin::Kept => false,
        }
    }

    pub(super) async fn secret(
        self,
        run: &Invocation,
        name: &str,
        namespace: &str,
    ) -> Result<Value, CliError> {
        Ok(match self {
            SourceLogin::Password { user, password, certificate } => {
                let mut data = json!({"username": user, "password": password});
                if let Some(certificate) = certificate {
                    data["ca.crt"] = certificate.into();
                }
                plain_secret(name, namespace, data)
            }
            SourceLogin::Bearer { token, certificate } => {
                let mut data = json!({ "bearerToken": token });
                if let Some(certificate) = certificate {
                    data["ca.crt"] = certificate.into();
                }
                plain_secret(name, namespace, data)
            }
            SourceLogin::Key { pair, host, password } => {
                let pair = match pair {
                    Some(pair) => pair,
                    None => {
                        let text = |flag: &str| run.text(flag);
                        KeyPair::generate(
                            text("ssh-key-algorithm"),
                            text("ssh-rsa-bits"),
                            text("ssh-ecdsa-curve"),
                        )?
                    }
                };
                let known_hosts = scan_host_key(&host).await?;
                key_secret(name, namespace, pair, &known_hosts, password.as_deref())
            }
            SourceLogin::Kept => {
                return Err(fail!(
                    "the deploy token exists, but its Secret is gone: delete the token and try again"
                ));
            }
        })
    }
}

/// The key of `--private-key-file`.
fn given_pair(run: &Invocation, password: Option<&str>) -> Result<Option<KeyPair>, CliError> {
    let Some(file) = run.some("private-key-file") else { return Ok(None) };
    let pem = std::fs::read_to_string(file)
        .map_err(|error| fail!("failed to open private key file: {}", go_io(file.as_ref(), &error)))?;
    KeyPair::read(pem, password).map(Some)
}

/// A URL keeps its kind of scheme; ours changes it all the same.
fn with_scheme(address: &str, scheme: &str) -> String {
    address.split_once("://").map_or_else(|| address.to_owned(), |(_, rest)| format!("{scheme}://{rest}"))
}
