//! `flux create source`: where files come from.

use flux_api::kinds as api;
use serde_json::{Value, json};

use crate::commands::delete::confirmed;
use crate::error::{CliError, fail};
use crate::kinds::Kind;
use crate::output;
use crate::tree::Invocation;

use super::{duration_of, labels, list_of, read, reference_of, secret, text_of, true_of};

pub(super) fn git(run: &Invocation) -> Result<Value, CliError> {
    let url = run.some("url").ok_or_else(|| fail!("url is required"))?;
    let address = GitAddress::parse(url)?;
    let given = |flag| run.some(flag).is_some();
    if !["branch", "tag", "tag-semver", "commit", "ref-name"].into_iter().any(given) {
        return Err(fail!(
            "a Git ref is required, use one of the following: --branch, --tag, --commit, --ref-name or --tag-semver"
        ));
    }
    if given("ca-file") && address.scheme == "ssh" {
        return Err(fail!("specifying a CA file is not supported for Git over SSH"));
    }
    let reference = if given("commit") {
        json!({"commit": run.text("commit"), "branch": text_of(run, "branch")})
    } else if given("ref-name") {
        json!({"name": run.text("ref-name")})
    } else if given("tag-semver") {
        json!({"semver": run.text("tag-semver")})
    } else if given("tag") {
        json!({"tag": run.text("tag")})
    } else {
        json!({"branch": run.text("branch")})
    };
    Ok(json!({
        "url": url,
        "interval": run.text("interval"),
        "ref": reference,
        "ignore": ignore(run),
        "sparseCheckout": list_of(run, "sparse-checkout-paths"),
        "recurseSubmodules": true_of(run, "recurse-submodules"),
        "timeout": duration_of(run, "fetch-timeout"),
        "secretRef": reference_of(run, "secret-ref"),
        "proxySecretRef": reference_of(run, "proxy-secret-ref"),
        "provider": text_of(run, "provider"),
    }))
}

pub(super) fn oci(run: &Invocation) -> Result<Value, CliError> {
    let url = run.some("url").ok_or_else(|| fail!("url is required"))?;
    if !["tag", "tag-semver", "digest"].into_iter().any(|flag| run.some(flag).is_some()) {
        return Err(fail!("--tag, --tag-semver or --digest is required"));
    }
    let layer_selector = layer_selector(run.text("layer-selector"))?;
    labels::of(run)?;
    Ok(json!({
        "url": url,
        "interval": run.text("interval"),
        "provider": text_of(run, "provider"),
        "insecure": true_of(run, "insecure"),
        "ref": {
            "tag": text_of(run, "tag"),
            "semver": text_of(run, "tag-semver"),
            "digest": text_of(run, "digest"),
        },
        "layerSelector": layer_selector,
        "ignore": ignore(run),
        "timeout": duration_of(run, "fetch-timeout"),
        "serviceAccountName": text_of(run, "service-account"),
        "secretRef": reference_of(run, "secret-ref"),
        "proxySecretRef": reference_of(run, "proxy-secret-ref"),
        "certSecretRef": reference_of(run, "cert-ref"),
        "verify": verification(run, true)?,
    }))
}

/// `media-type:operation`.
fn layer_selector(text: &str) -> Result<Value, CliError> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let Some((media_type, operation)) = text.rsplit_once(':') else {
        return Err(fail!(
            "invalid --layer-selector {text:?}: must be in the format '<media-type>:<operation>'"
        ));
    };
    if media_type.is_empty() {
        return Err(fail!("invalid --layer-selector {text:?}: media type cannot be empty"));
    }
    if !matches!(operation, "extract" | "copy") {
        return Err(fail!("invalid --layer-selector {text:?}: operation must be \"extract\" or \"copy\""));
    }
    Ok(json!({"mediaType": media_type, "operation": operation}))
}

/// Who must have signed it.
fn verification(run: &Invocation, subject_needs_provider: bool) -> Result<Value, CliError> {
    let (issuer, subject) = (run.text("verify-issuer"), run.text("verify-subject"));
    let Some(provider) = run.some("verify-provider") else {
        if run.some("verify-secret-ref").is_some() {
            return Err(fail!("a verification provider must be specified when a secret is specified"));
        }
        // `create source chart` looks at the wrong flag upstream, so a subject alone passes and has no effect.
        if !issuer.is_empty() || (subject_needs_provider && !subject.is_empty()) {
            return Err(fail!(
                "a verification provider must be specified when OIDC issuer/subject is specified"
            ));
        }
        return Ok(Value::Null);
    };
    let identity = if issuer.is_empty() && subject.is_empty() {
        Value::Null
    } else {
        json!([{"issuer": issuer, "subject": subject}])
    };
    Ok(json!({
        "provider": provider,
        "secretRef": reference_of(run, "verify-secret-ref"),
        "matchOIDCIdentity": identity,
    }))
}

pub(super) fn helm(run: &Invocation) -> Result<Value, CliError> {
    let url = run.some("url").ok_or_else(|| fail!("url is required"))?;
    labels::of(run)?;
    let (scheme, rest) = split_scheme(url).map_err(|problem| fail!("url parse failed: {problem}"))?;
    if !matches!(scheme, "http" | "https" | "oci") {
        return Err(fail!("url scheme '{scheme}' not supported, can be: http, https and oci"));
    }
    if host(rest).is_empty() {
        return Err(fail!("url host is required"));
    }
    let is_oci = scheme == "oci";
    let has_secret = run.some("secret-ref").is_some();
    Ok(json!({
        "url": url,
        "interval": run.text("interval"),
        "type": if is_oci { "oci".into() } else { Value::Null },
        "provider": if is_oci { text_of(run, "oci-provider") } else { Value::Null },
        "timeout": duration_of(run, "fetch-timeout"),
        "secretRef": reference_of(run, "secret-ref"),
        "passCredentials": if has_secret { true_of(run, "pass-credentials") } else { Value::Null },
    }))
}

pub(super) fn chart(run: &Invocation) -> Result<Value, CliError> {
    let source = run.some("source").ok_or_else(|| fail!("chart source is required"))?;
    let chart = run.some("chart").ok_or_else(|| fail!("chart name or path is required"))?;
    // A chart's source is in its own namespace: a dot is part of the name.
    let (kind, name) = source.split_once('/').unwrap_or_default();
    // Upstream says so even when it only prints: scripts that look at stderr may see it.
    output::generating("generating HelmChart source");
    labels::of(run)?;
    Ok(json!({
        "chart": chart,
        "version": text_of(run, "chart-version"),
        "interval": run.text("interval"),
        "reconcileStrategy": text_of(run, "reconcile-strategy"),
        "sourceRef": {"kind": kind, "name": name},
        "verify": verification(run, false)?,
    }))
}

pub(super) fn bucket(run: &Invocation) -> Result<Value, CliError> {
    let name = run.some("bucket-name").ok_or_else(|| fail!("bucket-name is required"))?;
    let endpoint = run.some("endpoint").ok_or_else(|| fail!("endpoint is required"))?;
    Ok(json!({
        "bucketName": name,
        "endpoint": endpoint,
        "provider": text_of(run, "provider"),
        "insecure": true_of(run, "insecure"),
        "region": text_of(run, "region"),
        "interval": run.text("interval"),
        "ignore": ignore(run),
        "timeout": duration_of(run, "fetch-timeout"),
        "secretRef": reference_of(run, "secret-ref"),
        "proxySecretRef": reference_of(run, "proxy-secret-ref"),
    }))
}

fn ignore(run: &Invocation) -> Value {
    let paths = run.list("ignore-paths");
    if paths.is_empty() { Value::Null } else { paths.join("\n").into() }
}

/// The Secret that a source's credentials go to, if there are any.
pub(super) async fn credentials(
    run: &Invocation,
    kind: &Kind,
    name: &str,
) -> Result<Option<Value>, CliError> {
    let is_source = [api::GIT_REPOSITORY, api::HELM_REPOSITORY, api::BUCKET].contains(kind.api);
    if !is_source || run.some("secret-ref").is_some() {
        return Ok(None);
    }
    let namespace = crate::session::namespace(run)?;
    let both = |one: &str, other: &str| run.some(one).is_some() && run.some(other).is_some();
    if *kind.api == api::BUCKET {
        let data = json!({"accesskey": run.text("access-key"), "secretkey": run.text("secret-key")});
        let secret = secret::opaque(&format!("bucket-{name}"), &namespace, data);
        return Ok(both("access-key", "secret-key").then_some(secret));
    }
    if *kind.api == api::HELM_REPOSITORY {
        return secret::helm(run, &format!("helm-{name}"), &namespace, "cert-file", "key-file", "ca-file");
    }
    let address = GitAddress::parse(run.text("url"))?;
    if address.scheme == "ssh" {
        let secret = secret::over_ssh(run, name, &namespace, &address).await?;
        let part = |key: &str| secret["stringData"][key].as_str().unwrap_or_default().to_owned();
        output::success(&format!("collected public key from SSH server:\n{}", part("known_hosts")));
        output::generating(&format!("deploy key: {}", part("identity.pub")));
        if !run.is("silent") && !confirmed("Have you added the deploy key to your repository") {
            return Err(fail!("aborting"));
        }
        return Ok(Some(secret));
    }
    if address.scheme == "http" {
        output::warning("insecure configuration: credentials configured for an HTTP URL");
    }
    let mut data = serde_json::Map::new();
    if both("username", "password") {
        data.insert("username".to_owned(), run.text("username").into());
        data.insert("password".to_owned(), run.text("password").into());
    }
    if let Some(file) = run.some("ca-file").filter(|_| address.scheme == "https") {
        data.insert("ca.crt".to_owned(), read(file, "unable to read TLS CA file")?.into());
    }
    Ok((!data.is_empty()).then(|| secret::untyped(name, &namespace, data.into())))
}

/// The parts of a repository's address that matter here.
pub(super) struct GitAddress {
    pub(super) scheme: String,
    pub(super) host: String,
}

impl GitAddress {
    /// Only ssh, http and https; `git@host:path` is no URL.
    pub(super) fn parse(url: &str) -> Result<GitAddress, CliError> {
        let (scheme, rest) = split_scheme(url).map_err(|problem| fail!("git URL parse failed: {problem}"))?;
        if !matches!(scheme, "ssh" | "http" | "https") {
            return Err(fail!("git URL scheme '{scheme}' not supported, can be: ssh, http and https"));
        }
        Ok(GitAddress { scheme: scheme.to_owned(), host: host(rest).to_owned() })
    }
}

/// Scheme and rest, by Go's rules for what a scheme is.
pub(super) fn split_scheme(url: &str) -> Result<(&str, &str), String> {
    let is_scheme = |text: &str| {
        text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    };
    match url.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => Ok((scheme, rest)),
        Some(("", _)) => Err(format!("parse {url:?}: missing protocol scheme")),
        Some((first, _)) if !first.contains('/') => {
            Err(format!("parse {url:?}: first path segment in URL cannot contain colon"))
        }
        _ => Ok(("", url)),
    }
}

/// `host:port` of what follows the scheme.
fn host(rest: &str) -> &str {
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_scp_style_address_is_no_url() {
        assert!(GitAddress::parse("git@github.com:x/y").is_err());
        let address = GitAddress::parse("ssh://git@host:22/x").expect("it parses");
        assert_eq!((address.scheme.as_str(), address.host.as_str()), ("ssh", "host:22"));
    }
}
