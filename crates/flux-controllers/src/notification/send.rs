//! Sends what a plan says: a try, a wait, another try. What went wrong is told without address, token or header.

use std::time::Duration;

use flux_api::Object;
use flux_api::notification::{Provider, ProviderType};
use flux_remote::transport::causes;
use http::StatusCode;
use k8s_openapi::jiff::Timestamp;

use super::dispatch::Delivery;
use super::provider::{Accept, AlertName, Request, Settings, Step, plan, writes_commit_status};
use super::{Context, commit_status, identity, nats};

const TRIES: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const LARGEST_ANSWER: usize = 4 << 20;
const LONGEST_COMPLAINT: usize = 1024;
/// Steps that follow from answers; a plan has at most four.
const MOST_STEPS: usize = 16;

/// Why a notification was not delivered. Both texts can be shown.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The Provider cannot work as it is.
    #[error("{0}")]
    Setup(String),
    /// The service did not take it.
    #[error("{0}")]
    Send(String),
}

pub async fn execute(ctx: &Context, provider: &Provider, delivery: &Delivery) -> Result<(), Failure> {
    let mut settings = ctx.settings.read(&ctx.client, provider).await.map_err(Failure::Setup)?;
    let alert = &delivery.alert;
    settings.now = Timestamp::now().as_second();
    settings.incident = delivery.incident.clone();
    settings.service_bus = ctx.identity.cloud.service_bus();
    settings.alert = AlertName {
        namespace: alert.object.namespace().to_owned(),
        name: alert.object.name().to_owned(),
        uid: alert.object.metadata.uid.clone().unwrap_or_default(),
    };
    if writes_commit_status(settings.provider_type) {
        let raw = serde_json::to_value(&*alert.raw).unwrap_or_default();
        settings.commit_status = commit_status::id(&delivery.event, &raw, provider)
            .map_err(|error| Failure::Setup(format!("failed to create commit status: {error}")))?;
    }
    let app = ctx.app_tokens.add(&mut settings).await;
    app.map_err(|error| Failure::Setup(redacted(&error, &settings)))?;
    let token = identity::add(&ctx.identity, provider, &mut settings).await;
    token.map_err(|error| Failure::Setup(redacted(&error, &settings)))?;
    if settings.provider_type == ProviderType::Nats {
        let published = nats::publish(&delivery.event, &settings).await;
        return published.map_err(|error| Failure::Send(redacted(&error, &settings)));
    }
    let steps = plan(&delivery.event, &settings)
        .map_err(|error| Failure::Setup(redacted(&error.to_string(), &settings)))?;
    follow(steps, &settings, ctx.options.first_retry).await
}

/// Sends one request after the other, and those that follow from the answers.
async fn follow(steps: Vec<Step>, settings: &Settings, first_wait: Duration) -> Result<(), Failure> {
    let mut waiting: std::collections::VecDeque<Step> = steps.into();
    for _ in 0..MOST_STEPS {
        let Some(step) = waiting.pop_front() else { return Ok(()) };
        let answer = send(&step.request, settings, first_wait).await?;
        if let Some(then) = step.then {
            let next =
                then(&answer).map_err(|error| Failure::Send(redacted(&error.to_string(), settings)))?;
            waiting.extend(next);
        }
    }
    Ok(())
}

/// One request, again after a while when the service may answer differently then.
async fn send(request: &Request, settings: &Settings, first_wait: Duration) -> Result<Vec<u8>, Failure> {
    let client = settings
        .transport
        .client()
        .map_err(|error| Failure::Setup(redacted(&error.to_string(), settings)))?;
    let mut wait = first_wait;
    let mut tries = 1;
    loop {
        let refusal = match attempt(&client, request, settings).await {
            Ok(answer) => return Ok(answer),
            Err(refusal) => refusal,
        };
        if !refusal.may_pass || tries == TRIES {
            return Err(Failure::Send(redacted(&refusal.problem, settings)));
        }
        tokio::time::sleep(refusal.wait.unwrap_or(wait).min(LONGEST_WAIT)).await;
        wait *= 2;
        tries += 1;
    }
}

struct Refusal {
    problem: String,
    /// Whether it is worth another try.
    may_pass: bool,
    /// How long the service wants to be left alone.
    wait: Option<Duration>,
}

impl Refusal {
    fn lasting(problem: String) -> Self {
        Self { problem, may_pass: false, wait: None }
    }
}

async fn attempt(
    client: &reqwest::Client,
    request: &Request,
    settings: &Settings,
) -> Result<Vec<u8>, Refusal> {
    let unreachable = |error: reqwest::Error| Refusal {
        problem: format!("failed to execute request: {}", causes(error)),
        may_pass: true,
        wait: None,
    };
    let sent = client
        .request(request.method.clone(), request.url.clone())
        .headers(request.headers.clone())
        .body(request.body.clone())
        .timeout(settings.timeout)
        .send();
    let mut answer = sent.await.map_err(unreachable)?;
    let (status, retry_after) = (answer.status(), retry_after(answer.headers()));
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
        body.extend_from_slice(&piece);
        if body.len() > LARGEST_ANSWER {
            return Err(Refusal::lasting("the answer is too large".to_owned()));
        }
    }
    judge(request.accept, status, &body).map_err(|problem| Refusal {
        problem,
        may_pass: status == StatusCode::TOO_MANY_REQUESTS
            || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED),
        wait: retry_after,
    })?;
    // Nothing is there yet: that is an answer too.
    if status == StatusCode::NOT_FOUND {
        body.clear();
    }
    Ok(body)
}

fn judge(accept: Accept, status: StatusCode, body: &[u8]) -> Result<(), String> {
    let complaint = || String::from_utf8_lossy(&body[..body.len().min(LONGEST_COMPLAINT)]).into_owned();
    if status.is_redirection() {
        return Err(format!(
            "request failed with status code {}: it points elsewhere, and what is sent goes to its address only",
            status.as_u16()
        ));
    }
    let fine = match accept {
        Accept::Success | Accept::SlackOk => status.is_success(),
        Accept::SuccessOrMissing => status.is_success() || status == StatusCode::NOT_FOUND,
    };
    if !fine {
        return Err(format!("request failed with status code {}: {}", status.as_u16(), complaint()));
    }
    if accept == Accept::SlackOk {
        let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        if answer["ok"] != serde_json::Value::Bool(true) {
            let error = answer["error"].as_str().unwrap_or("an answer that is not understood").to_owned();
            return Err(format!("Slack responded with error: {error}"));
        }
    }
    Ok(())
}

fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Without anything that the Secrets or the address hold.
fn redacted(text: &str, settings: &Settings) -> String {
    settings.secrets().iter().fold(text.to_owned(), |text, secret| text.replace(secret, "*****"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A service that answers with these codes in turn, the last one for ever; and how often it was asked.
    async fn service(codes: &'static [u16]) -> (String, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/services/canary-path", listener.local_addr().unwrap());
        let count = asked.clone();
        let router = axum::Router::new().fallback(move |uri: http::Uri, headers: http::HeaderMap| {
            let index = count.fetch_add(1, Ordering::SeqCst);
            let code = codes[index.min(codes.len() - 1)];
            // A service that is careless with what it was sent.
            let value = |name: &str| format!("{:?}", headers.get(name));
            let echo = format!("{uri} {} {} {headers:?}", value("authorization"), value("dd-api-key"));
            async move {
                let mut answer = http::Response::new(axum::body::Body::from(echo));
                *answer.status_mut() = StatusCode::from_u16(code).unwrap();
                if code == 307 {
                    answer.headers_mut().insert("location", "http://127.0.0.1:1/".parse().unwrap());
                }
                answer
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        (url, asked)
    }

    async fn try_with(codes: &'static [u16]) -> (Result<Vec<u8>, Failure>, usize) {
        let (url, asked) = service(codes).await;
        let mut settings = Settings::new(ProviderType::Slack);
        settings.address = url;
        settings.token = "canary-token".to_owned().into();
        let request = plan(&crate::notification::event::example(), &settings).unwrap().remove(0).request;
        let result = send(&request, &settings, Duration::from_millis(1)).await;
        (result, asked.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn what_may_pass_is_tried_again_and_what_cannot_is_not() {
        assert!(matches!(try_with(&[503, 429, 500, 200]).await, (Ok(_), 4)));
        assert!(matches!(try_with(&[204]).await, (Ok(_), 1)));
        assert!(matches!(try_with(&[500]).await, (Err(Failure::Send(_)), 5)));
        for code in [&[400], &[401], &[404], &[501], &[307]] {
            assert!(matches!(try_with(code).await, (Err(Failure::Send(_)), 1)), "{code:?}");
        }
    }

    #[tokio::test]
    async fn a_service_that_repeats_what_it_was_sent_reveals_nothing() {
        let (result, _) = try_with(&[403]).await;
        let text = result.unwrap_err().to_string();
        assert!(
            text.starts_with("request failed with status code 403: *****") && !text.contains("canary"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_not_shown() {
        let mut settings = Settings::new(ProviderType::Generic);
        settings.address = "http://127.0.0.1:1/canary-path?sig=canary".to_owned();
        let request = plan(&crate::notification::event::example(), &settings).unwrap().remove(0).request;
        let error = send(&request, &settings, Duration::from_millis(1)).await.unwrap_err().to_string();
        assert!(error.starts_with("failed to execute request: ") && !error.contains("canary"), "{error}");
    }

    /// A wrong or expired token, and a service that is down: told with the code, without anything secret.
    #[tokio::test]
    async fn every_type_tells_of_a_refusal_and_shows_no_secret() {
        use crate::notification::provider::tests::{ALL, complete, event_for};
        for provider_type in ALL {
            let mut settings = complete(*provider_type);
            // These are at addresses of their own, whatever a Provider says, or speak no HTTP.
            if matches!(
                provider_type,
                ProviderType::Telegram
                    | ProviderType::GooglePubSub
                    | ProviderType::AzureEventHub
                    | ProviderType::Bitbucket
                    | ProviderType::Nats
            ) {
                continue;
            }
            for (codes, tries) in [(&[401][..], 1), (&[403], 1), (&[503], TRIES as usize)] {
                let (url, asked) = service(codes).await;
                let host = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap();
                settings.address = match provider_type {
                    ProviderType::Sentry => format!("http://canary-key@{host}/1"),
                    ProviderType::BitbucketServer => format!("http://{host}/scm/org/repo.git"),
                    ProviderType::AzureDevOps => format!("http://{host}/org/project/_git/repo"),
                    _ if settings.address.ends_with("/org/repo") => format!("http://{host}/org/repo"),
                    _ => url,
                };
                let steps = plan(&event_for(*provider_type), &settings).unwrap();
                let failure = follow(steps, &settings, Duration::from_millis(1)).await.unwrap_err();
                let text = failure.to_string();
                assert!(matches!(failure, Failure::Send(_)), "{provider_type}: {text}");
                assert!(text.contains(&format!("status code {}", codes[0])), "{provider_type}: {text}");
                assert!(!text.contains("canary"), "{provider_type}: {text}");
                assert_eq!(asked.load(Ordering::SeqCst), tries, "{provider_type}");
            }
        }
    }

    #[test]
    fn slack_says_in_the_body_whether_it_worked() {
        let ok = StatusCode::OK;
        assert_eq!(judge(Accept::SlackOk, ok, br#"{"ok":true}"#), Ok(()));
        let refused = judge(Accept::SlackOk, ok, br#"{"ok":false,"error":"channel_not_found"}"#);
        assert_eq!(refused, Err("Slack responded with error: channel_not_found".to_owned()));
        assert!(judge(Accept::SlackOk, ok, b"<html>").is_err());
        assert_eq!(judge(Accept::SuccessOrMissing, StatusCode::NOT_FOUND, b""), Ok(()));
    }
}
