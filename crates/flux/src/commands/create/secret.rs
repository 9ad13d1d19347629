//! `flux create secret`: credentials in the form the controllers read. Values are written, never shown.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::error::{CliError, fail};
use crate::kinds::text;
use crate::output;
use crate::session::{self, FIELD_MANAGER, Session};
use crate::ssh::{self, KeyPair};
use crate::tree::Invocation;

use super::super::artifact::Reference;
use super::source::{GitAddress, split_scheme};
use super::{key_pair, labels, read};

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let name = run.name().unwrap_or_default();
    let namespace = session::namespace(run)?;
    let (mut secret, what) = match run.row.name() {
        "git" => (git(run, name, &namespace).await?, "git"),
        "githubapp" => (github_app(run, name, &namespace)?, "githubapp"),
        "helm" => {
            labels::of(run)?;
            let secret = helm(run, name, &namespace, "tls-crt-file", "tls-key-file", "ca-crt-file")?;
            (secret.unwrap_or_else(|| untyped(name, &namespace, json!({}))), "helm")
        }
        "notation" => (notation(run, name, &namespace)?, "notation configuration"),
        "oci" => (oci(run, name, &namespace)?, "oci"),
        "proxy" => (proxy(run, name, &namespace)?, "proxy"),
        "receiver" => (receiver(run, name, &namespace)?, "receiver"),
        "tls" => (tls(run, name, &namespace)?, "tls"),
        other => return Err(fail!("`flux create secret {other}` is not available")),
    };
    // Upstream takes labels for these two as well, and forgets them.
    if !matches!(what, "githubapp" | "oci") {
        let labels = labels::of(run)?;
        if !labels.is_empty() {
            secret["metadata"]["labels"] = labels.into();
        }
    }
    if secret["stringData"].as_object().is_some_and(Map::is_empty)
        && let Some(fields) = secret.as_object_mut()
    {
        fields.remove("stringData");
    }
    if run.is("export") {
        // One empty line more than other exports, except for tls: upstream's.
        let end = if what == "tls" { "" } else { "\n" };
        return output::data(&format!("---\n{}{end}", output::yaml_text(&secret)?));
    }
    if let Some(key) = secret.pointer("/stringData/identity.pub").and_then(Value::as_str) {
        output::generating(&format!("deploy key: {key}"));
    }
    let session = Session::open(run).await?;
    apply(&session, &secret).await?;
    output::action(&format!("{what} secret '{name}' created in '{namespace}' namespace"));
    Ok(())
}

/// Creates the Secret, or writes its values over those of the one that is there.
pub(in crate::commands) async fn apply(session: &Session, wanted: &Value) -> Result<(), CliError> {
    let api: Api<Secret> = Api::namespaced(session.client.clone(), text(wanted, "/metadata/namespace"));
    let failed = |error| session.failed(error, None);
    let typed = |value: Value| -> Result<Secret, CliError> {
        serde_json::from_value(value).map_err(|error| fail!("{error}"))
    };
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let name = text(wanted, "/metadata/name");
    let Some(mut existing) = api.get_opt(name).await.map_err(failed)? else {
        api.create(&parameters, &typed(wanted.clone())?).await.map_err(failed)?;
        return Ok(());
    };
    let wanted = typed(wanted.clone())?;
    existing.string_data = wanted.string_data;
    if let Some(annotations) = wanted.metadata.annotations {
        existing.metadata.annotations.get_or_insert_default().extend(annotations);
    }
    if let Some(labels) = wanted.metadata.labels {
        existing.metadata.labels.get_or_insert_default().extend(labels);
    }
    api.replace(name, &parameters, &existing).await.map_err(failed)?;
    Ok(())
}

/// A Secret without a type, which the server fills in.
pub(in crate::commands) fn untyped(name: &str, namespace: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": data,
    })
}

fn typed(name: &str, namespace: &str, kind: &str, data: Value) -> Value {
    let mut secret = untyped(name, namespace, data);
    secret["type"] = kind.into();
    secret
}

pub(super) fn opaque(name: &str, namespace: &str, data: Value) -> Value {
    typed(name, namespace, "Opaque", data)
}

async fn git(run: &Invocation, name: &str, namespace: &str) -> Result<Value, CliError> {
    let url = run.some("url").ok_or_else(|| fail!("url is required"))?;
    split_scheme(url).map_err(|problem| fail!("git URL parse failed: {problem}"))?;
    labels::of(run)?;
    let address = GitAddress::parse(url)?;
    if address.scheme == "ssh" {
        return over_ssh(run, name, namespace, &address).await;
    }
    let (user, password, token) = (run.some("username"), run.some("password"), run.some("bearer-token"));
    let mut data = Map::new();
    match (user.zip(password), token) {
        (Some(_), Some(_)) => return Err(fail!("user credentials and bearer token cannot be used together")),
        (Some((user, password)), None) => {
            data.insert("username".to_owned(), user.into());
            data.insert("password".to_owned(), password.into());
        }
        (None, Some(token)) => {
            data.insert("bearerToken".to_owned(), token.into());
        }
        (None, None) => {
            return Err(fail!(
                "for Git over HTTP/S the username and password, or a bearer token is required"
            ));
        }
    }
    if let Some(file) = run.some("ca-crt-file") {
        data.insert("ca.crt".to_owned(), read(file, "unable to read TLS CA file")?.into());
    }
    Ok(untyped(name, namespace, data.into()))
}

/// Key pair and host key, as a source wants them.
pub(super) async fn over_ssh(
    run: &Invocation,
    name: &str,
    namespace: &str,
    address: &GitAddress,
) -> Result<Value, CliError> {
    let password = run.some("password");
    let pair = match run.some("private-key-file") {
        Some(file) => KeyPair::read(read(file, "failed to open private key file")?, password)?,
        None => {
            let text = |flag: &str| run.text(flag);
            KeyPair::generate(text("ssh-key-algorithm"), text("ssh-rsa-bits"), text("ssh-ecdsa-curve"))?
        }
    };
    let known_hosts = ssh::scan_host_key(&address.host).await?;
    Ok(key_secret(name, namespace, pair, &known_hosts, password))
}

/// A Secret that lets a source in by key.
pub(in crate::commands) fn key_secret(
    name: &str,
    namespace: &str,
    pair: KeyPair,
    known_hosts: &str,
    password: Option<&str>,
) -> Value {
    let mut data = json!({"identity": pair.private.into_exposed(), "identity.pub": pair.public, "known_hosts": known_hosts});
    if let Some(password) = password {
        data["password"] = password.into();
    }
    untyped(name, namespace, data)
}

fn github_app(run: &Invocation, name: &str, namespace: &str) -> Result<Value, CliError> {
    let key = read(run.text("app-private-key"), "unable to read private key file")?;
    let id = run.some("app-id").ok_or_else(|| fail!("app ID is required"))?;
    let (owner, installation) = (run.some("app-installation-owner"), run.some("app-installation-id"));
    if owner.is_some() == installation.is_some() {
        return Err(fail!(
            "exactly one of githubAppInstallationOwner or githubAppInstallationID must be provided"
        ));
    }
    let mut data = Map::new();
    data.insert("githubAppID".to_owned(), id.into());
    data.insert("githubAppPrivateKey".to_owned(), key.into());
    for (field, value) in [
        ("githubAppInstallationOwner", owner),
        ("githubAppInstallationID", installation),
        ("githubAppBaseURL", run.some("app-base-url")),
    ] {
        if let Some(value) = value {
            data.insert(field.to_owned(), value.into());
        }
    }
    Ok(opaque(name, namespace, data.into()))
}

/// A client certificate wins over a user name; a CA may come along with either.
pub(super) fn helm(
    run: &Invocation,
    name: &str,
    namespace: &str,
    certificate: &str,
    key: &str,
    authority: &str,
) -> Result<Option<Value>, CliError> {
    let optional = |flag: &str, what: &str| filled_file(run, flag, what);
    let authority = optional(authority, "unable to read TLS CA file")?;
    let certificate = optional(certificate, "failed to read cert file")?;
    let key = optional(key, "failed to read key file")?;
    if certificate.is_some() || key.is_some() {
        return with_certificates(name, namespace, certificate, key, authority).map(Some);
    }
    let (user, password) = (run.text("username"), run.text("password"));
    if user.is_empty() && password.is_empty() {
        return match authority {
            Some(_) => with_certificates(name, namespace, None, None, authority).map(Some),
            None => Ok(None),
        };
    }
    if user.is_empty() || password.is_empty() {
        let missing = if user.is_empty() { "username" } else { "password" };
        return Err(fail!("{missing} is required"));
    }
    let mut data = json!({"username": user, "password": password});
    if let Some(authority) = authority {
        data["ca.crt"] = authority.into();
    }
    Ok(Some(typed(name, namespace, "kubernetes.io/basic-auth", data)))
}

/// What the file holds; an empty one counts as none.
fn filled_file(run: &Invocation, flag: &str, what: &str) -> Result<Option<String>, CliError> {
    let text = run.some(flag).map(|file| read(file, what)).transpose()?;
    Ok(text.filter(|text| !text.is_empty()))
}

fn tls(run: &Invocation, name: &str, namespace: &str) -> Result<Value, CliError> {
    labels::of(run)?;
    let optional = |flag: &str, what: &str| filled_file(run, flag, what);
    let authority = optional("ca-crt-file", "unable to read TLS CA file")?;
    let certificate = optional("tls-crt-file", "failed to read cert file")?;
    let key = optional("tls-key-file", "failed to read key file")?;
    with_certificates(name, namespace, certificate, key, authority)
}

fn with_certificates(
    name: &str,
    namespace: &str,
    certificate: Option<String>,
    key: Option<String>,
    authority: Option<String>,
) -> Result<Value, CliError> {
    let mut data = Map::new();
    let kind = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            key_pair::check(&certificate, &key)
                .map_err(|problem| fail!("invalid TLS certificate and key pair: {problem}"))?;
            data.insert("tls.crt".to_owned(), certificate.into());
            data.insert("tls.key".to_owned(), key.into());
            "kubernetes.io/tls"
        }
        (None, None) => "Opaque",
        (Some(_), None) => return Err(fail!("found certificate but missing private key")),
        (None, Some(_)) => return Err(fail!("found private key but missing certificate")),
    };
    if let Some(authority) = authority {
        data.insert("ca.crt".to_owned(), authority.into());
    }
    if data.is_empty() {
        return Err(fail!("no CA certificate or client certificate pair found"));
    }
    Ok(typed(name, namespace, kind, data.into()))
}

fn notation(run: &Invocation, name: &str, namespace: &str) -> Result<Value, CliError> {
    let files = run.list("ca-cert-file");
    if files.is_empty() {
        return Err(fail!("--ca-cert-file is required"));
    }
    let policy_file =
        run.some("trust-policy-file").ok_or_else(|| fail!("--trust-policy-file is required"))?;
    labels::of(run)?;
    let policy = read(policy_file, "unable to read trust policy file")?;
    let document: Value = serde_json::from_str(&policy)
        .map_err(|error| fail!("failed to unmarshal trust policy {policy_file}: {error}"))?;
    check_trust_policy(&document)
        .map_err(|problem| fail!("invalid trust policy: trust policy: {problem}"))?;
    let (mut data, mut problems) = (Map::new(), Vec::new());
    for file in &files {
        let base =
            Path::new(file).file_name().map(|base| base.to_string_lossy().into_owned()).unwrap_or_default();
        if !base.ends_with(".crt") && !base.ends_with(".pem") {
            problems.push(format!("{base} must end with either .crt or .pem"));
            continue;
        }
        match read(file, "unable to read TLS CA file") {
            Ok(text) => {
                data.insert(base, text.into());
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    if !problems.is_empty() {
        return Err(CliError::new(problems.join("\n")));
    }
    data.insert("trustpolicy.json".to_owned(), policy.into());
    Ok(untyped(name, namespace, data.into()))
}

/// The rules of Notation that a written policy breaks most often.
fn check_trust_policy(document: &Value) -> Result<(), String> {
    let version = text(document, "/version");
    if version.is_empty() {
        return Err("trust policy document is missing or has empty version, it must be specified".to_owned());
    }
    if version != "1.0" {
        return Err(format!("trust policy document uses unsupported version {version:?}"));
    }
    let statements =
        document.pointer("/trustPolicies").and_then(Value::as_array).cloned().unwrap_or_default();
    if statements.is_empty() {
        return Err("trust policy document can not have zero trust policy statements".to_owned());
    }
    let mut known: Vec<&str> = Vec::new();
    for statement in &statements {
        let name = text(statement, "/name");
        if name.is_empty() {
            return Err(
                "a trust policy statement is missing a name, every statement requires a name".to_owned()
            );
        }
        if known.contains(&name) {
            return Err(format!(
                "multiple trust policy statements use the same name {name:?}, statement names must be unique"
            ));
        }
        known.push(name);
        let level = text(statement, "/signatureVerification/level");
        if !matches!(level, "strict" | "permissive" | "audit" | "skip") {
            return Err(format!(
                "trust policy statement {name:?} has invalid signatureVerification: invalid signature verification level {level:?}"
            ));
        }
        let filled =
            |field: &str| statement.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if level != "skip" && !(filled("trustStores") && filled("trustedIdentities")) {
            return Err(format!(
                "trust policy statement {name:?} is either missing trust stores or trusted identities, both must be specified"
            ));
        }
        if !filled("registryScopes") {
            return Err(format!(
                "trust policy statement {name:?} has zero registry scopes, it must specify registry scopes with at least one value"
            ));
        }
    }
    Ok(())
}

fn oci(run: &Invocation, name: &str, namespace: &str) -> Result<Value, CliError> {
    let needed = |flag: &str| run.some(flag).ok_or_else(|| fail!("--{flag} is required"));
    let (registry, user, password) = (needed("url")?, needed("username")?, needed("password")?);
    if !Reference::is_one(registry) {
        return Err(fail!("error parsing url: 'could not parse reference: {registry}'"));
    }
    Ok(registry_secret(name, namespace, registry, user, password))
}

/// What a kubelet or a source needs to pull from a registry.
pub(in crate::commands) fn registry_secret(
    name: &str,
    namespace: &str,
    registry: &str,
    user: &str,
    password: &str,
) -> Value {
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    // Laid out as upstream writes it, field for field.
    let config = format!(
        "{{\n  \"auths\": {{\n    {}: {{\n      \"username\": {},\n      \"password\": {},\n      \"auth\": {}\n    }}\n  }}\n}}",
        json!(registry),
        json!(user),
        json!(password),
        json!(auth)
    );
    let data = json!({ ".dockerconfigjson": config });
    typed(name, namespace, "kubernetes.io/dockerconfigjson", data)
}

fn proxy(run: &Invocation, name: &str, namespace: &str) -> Result<Value, CliError> {
    labels::of(run)?;
    let address = run.some("address").ok_or_else(|| fail!("address is required"))?;
    let mut data = json!({ "address": address });
    for field in ["username", "password"] {
        if let Some(value) = run.some(field) {
            data[field] = value.into();
        }
    }
    Ok(opaque(name, namespace, data))
}

fn receiver(run: &Invocation, name: &str, namespace: &str) -> Result<Value, CliError> {
    let needed = |flag: &str| run.some(flag).ok_or_else(|| fail!("--{flag} is required"));
    let kind = needed("type")?;
    let hostname = needed("hostname")?;
    let email = run.some("email-claim");
    if kind == "gcr" && email.is_none() {
        return Err(fail!("--email-claim is required for gcr receiver type"));
    }
    labels::of(run)?;
    let token = match run.some("token") {
        Some(token) => token.to_owned(),
        None => random_token()?,
    };
    let digest: String = Sha256::digest(format!("{token}{name}{namespace}"))
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let url = format!("https://{hostname}/hook/{digest}");
    let mut data = json!({ "token": token });
    if let Some(email) = email.filter(|_| kind == "gcr") {
        data["email"] = email.into();
        data["audience"] = run.some("audience-claim").unwrap_or(&url).into();
    }
    let mut secret = untyped(name, namespace, data);
    secret["metadata"]["annotations"] = json!({"notification.toolkit.fluxcd.io/webhook": url});
    Ok(secret)
}

/// 32 random bytes of the operating system in hexadecimal.
fn random_token() -> Result<String, CliError> {
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| fail!("failed to generate random token: {error}; give one with --token"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
