//! Sentry: an event for a failure, a transaction for news, in an envelope. Ids are made from the event, so what is sent
//! again is known there.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn envelope(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let (url, key) = endpoint(settings)?;
    let (item, payload) = match event.severity.as_str() {
        "error" => ("event", failure(event, settings)),
        "info" => ("transaction", transaction(event, settings)),
        _ => return Ok(Vec::new()),
    };
    let payload = payload.to_string();
    let head = json!({ "event_id": id(event, "event", 16), "sdk": { "name": "flux", "version": "2" } });
    let body = format!("{head}\n{}\n{payload}\n", json!({ "type": item, "length": payload.len() }));
    let request = Request::new(http::Method::POST, url, "application/x-sentry-envelope", body.into_bytes());
    let auth = format!("Sentry sentry_version=7, sentry_client=flux/2, sentry_key={key}");
    Ok(vec![request.header("X-Sentry-Auth", &auth)?])
}

/// `https://key@host/path/project` → `https://host/path/api/project/envelope/` and the key.
fn endpoint(settings: &Settings) -> Result<(Url, String), Error> {
    const SERVICE: &str = "Sentry";
    let wrong = |problem: &str| Error::Address { service: SERVICE, problem: problem.to_owned() };
    let mut url = settings.url(SERVICE)?;
    let key = url.username().to_owned();
    if key.is_empty() {
        return Err(wrong("the DSN has no public key"));
    }
    let path = url.path().to_owned();
    let (folder, project) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", ""));
    if project.is_empty() {
        return Err(wrong("the DSN has no project"));
    }
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_path(&format!("{folder}/api/{project}/envelope/"));
    Ok((url, key))
}

fn failure(event: &Event, settings: &Settings) -> Value {
    with_environment(
        settings,
        json!({
            "event_id": id(event, "event", 16),
            "timestamp": event.time(),
            "level": "error",
            "platform": "other",
            "server_name": event.reporting_controller,
            "transaction": summary(event),
            "contexts": { "metadata": event.metadata },
            "message": event.message,
        }),
    )
}

fn transaction(event: &Event, settings: &Settings) -> Value {
    let (trace, span) = (id(event, "trace", 16), id(event, "span", 8));
    let object = &event.involved_object;
    let mut tags = json!(event.metadata);
    for (name, value) in [
        ("flux_involved_object_kind", &object.kind),
        ("flux_involved_object_namespace", &object.namespace),
        ("flux_involved_object_name", &object.name),
        ("flux_reporting_controller", &event.reporting_controller),
        ("flux_reporting_instance", &event.reporting_instance),
        ("flux_reason", &event.reason),
    ] {
        if tags.get(name).is_none() {
            tags[name] = json!(value);
        }
    }
    with_environment(
        settings,
        json!({
            "type": "transaction",
            "event_id": id(event, "event", 16),
            "platform": "other",
            "transaction": summary(event),
            "message": event.message,
            "contexts": { "trace": { "trace_id": trace, "span_id": span, "op": "event" } },
            "tags": tags,
            "start_timestamp": event.time(),
            "timestamp": event.time(),
            "spans": [{
                "trace_id": trace, "span_id": span, "op": "event", "tags": tags,
                "start_timestamp": event.time(), "timestamp": event.time(),
            }],
        }),
    )
}

/// The channel of a Provider is the environment in Sentry.
fn with_environment(settings: &Settings, mut payload: Value) -> Value {
    if !settings.channel.is_empty() {
        payload["environment"] = json!(settings.channel);
    }
    payload
}

fn summary(event: &Event) -> String {
    let object = &event.involved_object;
    format!("{}: {}/{}", object.kind, object.namespace, object.name)
}

fn id(event: &Event, what: &str, bytes: usize) -> String {
    let digest = Sha256::new().chain_update(what).chain_update(event.to_json()).finalize();
    digest[..bytes].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{failed, problem, requests, settings};
    use flux_api::notification::ProviderType;

    fn lines(request: &Request) -> Vec<Value> {
        let text = String::from_utf8(request.body.clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_failure_is_an_event() {
        let mut settings = settings(ProviderType::Sentry, "https://public:secret@sentry.example.com/sub/42");
        settings.channel = "production".to_owned();
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!(sent.line(), "POST https://sentry.example.com/sub/api/42/envelope/");
        assert_eq!(
            sent.value("x-sentry-auth"),
            "Sentry sentry_version=7, sentry_client=flux/2, sentry_key=public"
        );
        let lines = lines(sent);
        assert_eq!(lines[0]["event_id"], lines[2]["event_id"]);
        assert_eq!(lines[1], json!({ "type": "event", "length": lines[2].to_string().len() }));
        let event = &lines[2];
        assert_eq!((&event["level"], &event["environment"]), (&json!("error"), &json!("production")));
        assert_eq!(event["transaction"], "GitRepository: gitops-system/webapp");
        assert_eq!(event["contexts"]["metadata"]["test"], "metadata");
    }

    #[test]
    fn news_are_a_transaction() {
        let sent =
            &requests(&example(), &settings(ProviderType::Sentry, "https://public@sentry.example.com/42"))[0];
        let lines = lines(sent);
        assert_eq!(lines[1]["type"], "transaction");
        let trace = &lines[2]["contexts"]["trace"];
        assert_eq!(
            (trace["trace_id"].as_str().unwrap().len(), trace["span_id"].as_str().unwrap().len()),
            (32, 16)
        );
        assert_eq!(
            (&lines[2]["tags"]["flux_reason"], &lines[2]["tags"]["test"]),
            (&json!("ArtifactFailed"), &json!("metadata"))
        );
        assert!(
            requests(
                &Event { severity: "trace".to_owned(), ..example() },
                &settings(ProviderType::Sentry, "https://p@h/1")
            )
            .is_empty()
        );
    }

    #[test]
    fn a_dsn_needs_a_key_and_a_project() {
        let of = |dsn| problem(&failed(), &settings(ProviderType::Sentry, dsn));
        assert_eq!(of("https://host/1"), "invalid Sentry address: the DSN has no public key");
        assert_eq!(of("https://key@host"), "invalid Sentry address: the DSN has no project");
    }
}
