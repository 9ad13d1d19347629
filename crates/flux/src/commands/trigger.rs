//! `flux trigger receiver`: calls a Receiver's webhook from a pipeline, with the authentication its type wants.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::{CliError, fail};
use crate::output;
use crate::session;
use crate::tree::Invocation;

const OIDC: &str = "generic-oidc";
const TOKEN_VARIABLE: &str = "FLUX_TRIGGER_RECEIVER_OIDC_TOKEN";
const AUDIENCE: &str = "notification-controller";
/// What is read of an answer.
const MOST_ANSWER: usize = 1 << 20;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let name = run.name().unwrap_or_default();
    let url = run.some("url").ok_or_else(|| fail!("--url is required"))?;
    check(run)?;
    let kind = run.text("type");
    let namespace = session::namespace(run)?;
    let token = if kind == OIDC { "" } else { run.text("token") };
    let url = format!("{}{}", url.trim_end_matches('/'), webhook_path(token, name, &namespace));
    let http = reqwest::Client::builder()
        .user_agent(format!("flux/v{}", super::version::CLIENT))
        // The token must not follow to another address.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| fail!("{error}"))?;
    let timeout = run.duration("timeout").to_std();
    let called = async {
        let header = match kind {
            "generic-hmac" => {
                Some(("X-Signature", format!("sha256={}", signature(token, run.text("payload"))?)))
            }
            OIDC => Some(("Authorization", format!("Bearer {}", oidc_token(run, &http).await?))),
            _ => None,
        };
        output::action(&format!("triggering Receiver {namespace}/{name}"));
        let mut attempt = 0;
        loop {
            let failure = match send(&http, &url, run.text("payload"), header.as_ref()).await {
                Ok(()) => break,
                Err(failure) => failure,
            };
            let retries: i64 = run.text("retries").parse().unwrap_or(0);
            if !failure.transient || attempt >= retries {
                return Err(CliError::new(failure.text));
            }
            attempt += 1;
            let delay = run.duration("retry-delay");
            output::waiting(&format!("{}; retrying in {delay} ({attempt}/{retries})", failure.text));
            tokio::time::sleep(delay.to_std()).await;
        }
        output::success(&format!("Receiver {namespace}/{name} triggered"));
        Ok(())
    };
    tokio::time::timeout(timeout, called).await.unwrap_or_else(|_| Err(fail!("context deadline exceeded")))
}

/// Where a Receiver listens.
pub(super) fn webhook_path(token: &str, name: &str, namespace: &str) -> String {
    let digest = Sha256::digest(format!("{token}{name}{namespace}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/hook/{hex}")
}

fn check(run: &Invocation) -> Result<(), CliError> {
    let kind = run.text("type");
    let given = |flag: &str| run.some(flag).is_some();
    if !["generic", "generic-hmac", OIDC].contains(&kind) {
        return Err(fail!("invalid --type {kind:?}, must be one of: generic, generic-hmac, {OIDC}"));
    }
    if kind != OIDC {
        if !given("token") {
            return Err(fail!("--token is required for --type={kind}"));
        }
        if given("oidc-provider") || given("oidc-token") || given("oidc-audience") {
            return Err(fail!(
                "--oidc-provider, --oidc-token and --oidc-audience can only be set for --type={OIDC}"
            ));
        }
        return Ok(());
    }
    if given("token") {
        return Err(fail!(
            "--token must not be set for --type={OIDC}, the Receiver of this type has no secret"
        ));
    }
    if given("oidc-provider") && given("oidc-token") {
        return Err(fail!("--oidc-provider and --oidc-token are mutually exclusive"));
    }
    if let Some(provider) = run.some("oidc-provider").filter(|name| !["github", "forgejo"].contains(name)) {
        return Err(fail!("invalid --oidc-provider {provider:?}, must be one of: github, forgejo"));
    }
    if given("oidc-audience") && !given("oidc-provider") {
        return Err(fail!("--oidc-audience can only be set together with --oidc-provider"));
    }
    Ok(())
}

fn signature(token: &str, payload: &str) -> Result<String, CliError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).map_err(|error| fail!("{error}"))?;
    mac.update(payload.as_bytes());
    Ok(mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// From the pipeline's own service, the flag, or the environment.
async fn oidc_token(run: &Invocation, http: &reqwest::Client) -> Result<String, CliError> {
    if run.some("oidc-provider").is_some() {
        return fetched_token(http, run.some("oidc-audience").unwrap_or(AUDIENCE)).await;
    }
    let from_environment = || std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    run.some("oidc-token").map(str::to_owned).or_else(from_environment).ok_or_else(|| {
        fail!("no OIDC token provided: set --oidc-provider, --oidc-token or the {TOKEN_VARIABLE} environment variable")
    })
}

/// GitHub and Forgejo Actions hand out tokens at the same kind of address.
async fn fetched_token(http: &reqwest::Client, audience: &str) -> Result<String, CliError> {
    let variable = |name: &str| {
        std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(|| {
            fail!("environment variable {name} is not set: the job needs the permission 'id-token: write'")
        })
    };
    let (url, token) =
        (variable("ACTIONS_ID_TOKEN_REQUEST_URL")?, variable("ACTIONS_ID_TOKEN_REQUEST_TOKEN")?);
    let failed =
        |error: reqwest::Error| fail!("failed to fetch the OIDC token: {}", session::innermost(&error));
    let answer =
        http.get(url).query(&[("audience", audience)]).bearer_auth(token).send().await.map_err(failed)?;
    if !answer.status().is_success() {
        return Err(fail!("failed to fetch the OIDC token: status {}", answer.status()));
    }
    let answer: Value = answer.json().await.map_err(failed)?;
    let value = answer.get("value").and_then(Value::as_str).filter(|value| !value.is_empty());
    value.map(str::to_owned).ok_or_else(|| fail!("failed to fetch the OIDC token: the answer holds none"))
}

struct Failure {
    text: String,
    transient: bool,
}

async fn send(
    http: &reqwest::Client,
    url: &str,
    payload: &str,
    header: Option<&(&'static str, String)>,
) -> Result<(), Failure> {
    let mut request = http.post(url).header("Content-Type", "application/json").body(payload.to_owned());
    if let Some((name, value)) = header {
        request = request.header(*name, value);
    }
    let lost = |error: reqwest::Error| Failure {
        text: format!("request to {url} failed: {}", session::innermost(&error).to_lowercase()),
        transient: true,
    };
    let mut answer = request.send().await.map_err(lost)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > MOST_ANSWER {
            break;
        }
    }
    let said = String::from_utf8_lossy(&body).trim().to_owned();
    let said = if said.is_empty() { said } else { format!(": {said}") };
    let transient = matches!(status.as_u16(), 404 | 408 | 429 | 500 | 502 | 503 | 504);
    Err(Failure { text: format!("request to {url} failed with status {status}{said}"), transient })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_salted_with_the_token() {
        let path = webhook_path("", "my-receiver", "default");
        assert_eq!(path, "/hook/83579a735892e34a07366333c25cb279278d29531730c414ea9870a01885f586");
        assert_ne!(path, webhook_path("t", "my-receiver", "default"));
    }
}
