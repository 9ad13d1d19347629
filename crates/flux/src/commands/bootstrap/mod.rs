//! `flux bootstrap`: commits Flux to a repository, installs it, and has it follow that repository from then on.
//!
//! ```text
//! (repository at a provider) → clone → gotk-components.yaml → commit, push → install if Flux is not there yet
//!     → source Secret (token or deploy key) → gotk-sync.yaml, kustomization.yaml → commit, push → apply → wait until ready
//! ```
//!
//! Every step first looks whether there is anything to do, so a second run changes nothing, and a person's patches in
//! kustomization.yaml stay.

mod credentials;
mod flow;
mod provider;
mod sync;

use std::io::BufRead as _;

use flux_api::secret::SecretString;
use flux_remote::git::Signer;
use url::Url;

use crate::error::{CliError, fail, go_io};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::delete::confirmed;
use super::install::{self, Installation};
use credentials::{GitLogin, SourceLogin};
use flow::Bootstrap;
use provider::Provider;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let timeout = run.duration("timeout").to_std();
    let work = async {
        match Provider::named(run.row.name()) {
            Some(provider) => through_provider(run, provider).await,
            None => plain(run).await,
        }
    };
    tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| Err(fail!("context deadline exceeded")))
}

/// Any Git server.
async fn plain(run: &Invocation) -> Result<(), CliError> {
    let from_environment = std::env::var("GIT_PASSWORD").ok().filter(|password| !password.is_empty());
    let mut password = run.some("password").map(str::to_owned).or(from_environment);
    if run.is("token-auth") && password.is_none() {
        password = Some(asked("Please enter your Git repository password: ")?);
    }
    let signer = validated(run, password.as_deref())?;
    let given = run.text("url");
    let address = Url::parse(given).map_err(|error| fail!("parse {given:?}: {error}"))?;
    let session = Session::open(run).await?;
    may_bootstrap(run, &session).await?;
    let certificate = certificate(run)?;
    let login = GitLogin::for_plain(run, &address, password.as_deref(), certificate.as_deref()).await;
    let login =
        login.map_err(|error| fail!("failed to create authentication options for {given}: {error}"))?;
    let (source, sync_url) = SourceLogin::for_plain(run, &address, password, certificate)?;
    let bootstrap =
        Bootstrap { run, session: &session, signer, address: given.to_owned(), sync_url, provider: None };
    bootstrap.go(login, source).await
}

async fn through_provider(run: &Invocation, provider: Provider) -> Result<(), CliError> {
    if run.is("ssh-signing-reuse-private-key") {
        return Err(fail!(
            "--ssh-signing-reuse-private-key is not supported by 'bootstrap {}'; that subcommand generates the SSH transport key \
             in-process and has no operator-supplied key to reuse",
            run.row.name()
        ));
    }
    let variable = provider.token_variable();
    let token = match std::env::var(variable).ok().filter(|token| !token.is_empty()) {
        Some(token) => token,
        None => asked(&format!("Please enter your {} personal access token (PAT): ", provider.title()))?,
    };
    provider.check(run)?;
    let signer = validated(run, None)?;
    let session = Session::open(run).await?;
    may_bootstrap(run, &session).await?;
    let certificate = certificate(run)?;
    let token = SecretString::new(token);
    let client = provider.open(run, &token, certificate.as_deref())?;
    let repository = client.reconcile_repository(run).await?;
    let login =
        GitLogin::with_token(&repository.clone_url, repository.user(run), &token, certificate.as_deref())?;
    let token_auth = run.is("token-auth") || client.uses_deploy_token(run);
    let sync_url = if token_auth { repository.clone_url.clone() } else { repository.ssh_url(run) };
    let source = SourceLogin::for_provider(run, &client, &repository, &token, certificate).await?;
    let bootstrap = Bootstrap {
        run,
        session: &session,
        signer,
        address: repository.clone_url.clone(),
        sync_url,
        provider: Some((&client, &repository)),
    };
    bootstrap.go(login, source).await
}

/// Asks for a secret, on stderr and without a newline, as passwords are asked for.
fn asked(question: &str) -> Result<String, CliError> {
    output::plain(question);
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(0) => Err(fail!("could not read token: could not read from stdin: EOF")),
        Ok(_) => Ok(answer.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => Err(fail!("could not read token: could not read from stdin: {error}")),
    }
}

fn certificate(run: &Invocation) -> Result<Option<String>, CliError> {
    let Some(file) = run.some("ca-file") else { return Ok(None) };
    let read = std::fs::read_to_string(file);
    read.map(Some).map_err(|error| fail!("unable to read TLS CA file: {}", go_io(file.as_ref(), &error)))
}

/// Flags that contradict each other, and keys that cannot be used, are told before anything is touched.
fn validated(run: &Invocation, password: Option<&str>) -> Result<Option<Signer>, CliError> {
    let mut components = run.list("components");
    components.extend(run.list("components-extra"));
    for required in ["source-controller", "kustomize-controller"] {
        if !components.iter().any(|component| component == required) {
            return Err(fail!("component {required} is required"));
        }
    }
    install::options(run)?;
    install::registry_credentials(run)?;
    install::check_version(run.text("version"))?;
    signer(run, password)
}

fn signer(run: &Invocation, password: Option<&str>) -> Result<Option<Signer>, CliError> {
    let (ring, key_file) = (run.some("gpg-key-ring"), run.some("ssh-signing-key-file"));
    let reuse = run.is("ssh-signing-reuse-private-key");
    if ring.is_some() && (key_file.is_some() || reuse) {
        return Err(fail!("--gpg-* and --ssh-signing-* are mutually exclusive; pick one signing format"));
    }
    if key_file.is_some() && reuse {
        return Err(fail!(
            "--ssh-signing-key-file and --ssh-signing-reuse-private-key are mutually exclusive"
        ));
    }
    if reuse && run.some("private-key-file").is_none() {
        return Err(fail!("--ssh-signing-reuse-private-key requires --private-key-file"));
    }
    let given = match (run.some("ssh-signing-password"), run.some("ssh-signing-passphrase")) {
        (Some(one), Some(other)) if one != other => {
            return Err(fail!(
                "--ssh-signing-password and --ssh-signing-passphrase are aliases; do not pass both"
            ));
        }
        (one, other) => one.or(other),
    };
    if given.is_some() && key_file.is_none() {
        return Err(fail!("--ssh-signing-password requires --ssh-signing-key-file"));
    }
    let secret = |text: Option<&str>| text.map(|text| SecretString::new(text.to_owned()));
    if let Some(ring) = ring {
        let bytes = std::fs::read(ring);
        let bytes =
            bytes.map_err(|error| fail!("invalid GPG signing key: {}", go_io(ring.as_ref(), &error)))?;
        let signer =
            Signer::open_pgp(&bytes, secret(run.some("gpg-passphrase")).as_ref(), run.some("gpg-key-id"));
        return signer.map(Some).map_err(|error| fail!("invalid GPG signing key: {error}"));
    }
    let (file, password, what) = match (key_file, reuse) {
        (Some(file), _) => (file, given, "invalid SSH signing key"),
        (None, true) => {
            (run.text("private-key-file"), password, "invalid signing key (reused from --private-key-file)")
        }
        (None, false) => return Ok(None),
    };
    let pem = std::fs::read_to_string(file);
    let pem =
        pem.map_err(|error| fail!("failed to read SSH signing key file: {}", go_io(file.as_ref(), &error)))?;
    let signer = Signer::ssh(&SecretString::new(pem), secret(password).as_ref());
    signer.map(Some).map_err(|error| match error {
        flux_remote::git::Error::PassphraseMissing => fail!("{what}: passphrase required: {error}"),
        error => fail!("{what}: {error}"),
    })
}

/// A Flux that another tool manages is not taken over without asking.
async fn may_bootstrap(run: &Invocation, session: &Session) -> Result<(), CliError> {
    if run.is("force") {
        return Ok(());
    }
    let found = Installation::find(session).await;
    let found = found.map_err(|error| fail!("cluster info unavailable: {error}"))?;
    let Some(found) = found.filter(|found| !found.is_ours()) else { return Ok(()) };
    let (version, manager) = (&found.version, &found.managed_by);
    output::plain(&format!("Flux {version} has been installed on this cluster with {manager}!\n"));
    if !confirmed(&format!("Are you sure you want to override the {manager} installation? Y/N")) {
        return Err(fail!("bootstrap cancelled"));
    }
    Ok(())
}
