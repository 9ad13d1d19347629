//! OpenTelemetry: a span for each event, over OTLP/HTTP in protobuf, which every collector takes. What a commit set off is one trace: the source's span is
//! its root, and what was applied from it are its children.
//!
//! Ids are made from the Alert and the revision, so that spans sent at different times find each other; upstream's have the
//! same trace but no parents.

use http::Method;
use sha2::{Digest, Sha256};

use super::protobuf::Message;
use super::{Error, Request, Settings};
use crate::notification::event::Event;

/// Kinds whose events begin a trace.
const SOURCES: [&str; 5] = ["GitRepository", "HelmChart", "OCIRepository", "Bucket", "ExternalArtifact"];

pub(super) fn span(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let mut url = settings.url("OTLP endpoint")?;
    if matches!(url.path(), "" | "/") {
        url.set_path("/v1/traces");
    }
    let object = &event.involved_object;
    // An index is no source that anything is applied from.
    if object.kind == "HelmRepository" {
        return Ok(Vec::new());
    }
    let alert = &settings.alert;
    let digest = Sha256::digest(format!("{}:{}", alert.uid, revision(event)).as_bytes());
    let (trace, root) = (&digest[..16], &digest[16..24]);
    let resource = [
        ("service.name", format!("{}/{}", alert.namespace, alert.name)),
        ("service.namespace", alert.namespace.clone()),
        ("service.instance.id", alert.uid.clone()),
    ];
    let resource =
        resource.iter().fold(Message::default(), |all, (key, value)| all.message(1, attribute(key, value)));
    // The numbers are those of opentelemetry/proto/{collector/trace,trace,common}/v1.
    let scope = Message::default().text(1, "flux:notification-controller");
    let spans = Message::default().message(1, scope).message(2, span_message(event, trace, root));
    let body = Message::default().message(1, Message::default().message(1, resource).message(2, spans));
    let request = Request::new(Method::POST, url, "application/x-protobuf", body.into_bytes());
    sign(request, settings).map(|request| vec![request])
}

fn span_message(event: &Event, trace: &[u8], root: &[u8]) -> Message {
    const INTERNAL: u64 = 1;
    let object = &event.involved_object;
    let at = u64::try_from(event.unix_time()).unwrap_or_default().saturating_mul(1_000_000_000);
    let (id, parent) = if SOURCES.contains(&object.kind.as_str()) {
        (root.to_vec(), &[][..])
    } else {
        let own = Sha256::digest([hex(trace).as_bytes(), &event.to_json()].concat());
        (own[..8].to_vec(), root)
    };
    let status = Message::default().text(2, &event.message).number(3, if event.is_error() { 2 } else { 1 });
    let span = Message::default()
        .bytes(1, trace)
        .bytes(2, &id)
        .bytes(4, parent)
        .text(5, &format!("{}: {}/{}", object.kind, object.namespace, object.name))
        .number(6, INTERNAL)
        .fixed64(7, at)
        .fixed64(8, at);
    let own = [
        ("object.uid", &object.uid),
        ("object.kind", &object.kind),
        ("object.name", &object.name),
        ("object.namespace", &object.namespace),
    ];
    let all = own.into_iter().chain(event.metadata.iter().map(|(key, value)| (key.as_str(), value)));
    all.fold(span, |span, (key, value)| span.message(9, attribute(key, value))).message(15, status)
}

/// Upstream logs in only where there are headers too.
fn sign(mut request: Request, settings: &Settings) -> Result<Request, Error> {
    let (token, password) = (settings.token.expose().as_str(), settings.password.expose().as_str());
    let secret = if token.is_empty() { password } else { token };
    request = match (settings.username.as_str(), secret) {
        (_, "") => request,
        ("", token) => request.bearer(token)?,
        (username, password) => request.basic(username, password)?,
    };
    for (name, value) in &settings.headers {
        request = request.header(name, value)?;
    }
    Ok(request)
}

/// What a source and those who apply it both say: for a chart from a registry that is its version and digest.
fn revision(event: &Event) -> String {
    let get = |key: &str| event.metadata.get(key);
    match (get("app-version"), get("oci-digest"), get("revision")) {
        (Some(version), Some(digest), _) => format!("{version}@{digest}"),
        (_, _, Some(revision)) => revision.clone(),
        _ => "unknown".to_owned(),
    }
}

fn attribute(key: &str, value: &str) -> Message {
    // An attribute that is there and empty is a text, too.
    Message::default().text(1, key).message(2, Message::default().field(1, value.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message as _;
    use serde_json::{Value, json};

    fn of(kind: &str, metadata: &[(&str, &str)]) -> Event {
        let mut event = failed();
        event.involved_object.kind = kind.to_owned();
        event.metadata =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        event
    }

    fn spans(event: &Event) -> Value {
        let mut settings = settings(ProviderType::OpenTelemetry, "https://otel.example.com");
        settings.alert.uid = "uid".to_owned();
        (settings.alert.namespace, settings.alert.name) = ("apps".to_owned(), "traces".to_owned());
        let sent = &requests(event, &settings)[0];
        assert_eq!(
            (sent.line().as_str(), sent.value("content-type")),
            ("POST https://otel.example.com/v1/traces", "application/x-protobuf")
        );
        // As OpenTelemetry's own code reads it.
        let read = ExportTraceServiceRequest::decode(sent.body.as_slice()).unwrap();
        serde_json::to_value(read).unwrap()["resourceSpans"][0].clone()
    }

    fn span(event: &Event) -> Value {
        spans(event)["scopeSpans"][0]["spans"][0].clone()
    }

    #[test]
    fn what_a_revision_set_off_is_one_trace_below_its_source() {
        let revision = [("revision", "main@sha1:1")];
        let (source, applied, release) = (
            span(&of("GitRepository", &revision)),
            span(&of("Kustomization", &revision)),
            span(&of("HelmRelease", &revision)),
        );
        assert_eq!(source["parentSpanId"], "");
        for child in [&applied, &release] {
            assert_eq!((&child["traceId"], &child["parentSpanId"]), (&source["traceId"], &source["spanId"]));
            assert_ne!(child["spanId"], source["spanId"]);
        }
        assert_eq!(
            (source["traceId"].as_str().unwrap().len(), source["spanId"].as_str().unwrap().len()),
            (32, 16)
        );
        assert_ne!(span(&of("GitRepository", &[("revision", "main@sha1:2")]))["traceId"], source["traceId"]);
        let chart = span(&of(
            "HelmRelease",
            &[("revision", "1.0.0"), ("app-version", "6.1.0"), ("oci-digest", "sha256:1")],
        ));
        assert_eq!(
            chart["traceId"],
            span(&of("OCIRepository", &[("revision", "6.1.0@sha256:1")]))["traceId"]
        );
    }

    #[test]
    fn a_span_says_what_happened_to_what() {
        let all = spans(&of("Kustomization", &[("revision", "main@sha1:1")]));
        assert_eq!(
            all["resource"]["attributes"][0],
            json!({ "key": "service.name", "value": { "stringValue": "apps/traces" } })
        );
        let span = &all["scopeSpans"][0]["spans"][0];
        assert_eq!(span["name"], "Kustomization: gitops-system/webapp");
        assert_eq!(span["status"], json!({ "code": 2, "message": "message" }));
        assert_eq!(span["startTimeUnixNano"], "1767323045000000000");
        assert_eq!(
            span["attributes"][4],
            json!({ "key": "revision", "value": { "stringValue": "main@sha1:1" } })
        );
        let index = of("HelmRepository", &[]);
        assert!(requests(&index, &settings(ProviderType::OpenTelemetry, "https://o/")).is_empty());
    }

    #[test]
    fn a_login_is_used_with_and_without_headers() {
        let mut settings = settings(ProviderType::OpenTelemetry, "https://otel.example.com/custom");
        settings.password = "p".to_owned().into();
        let sent = &requests(&example(), &settings)[0];
        assert_eq!(
            (sent.line().as_str(), sent.value("authorization")),
            ("POST https://otel.example.com/custom", "Bearer p")
        );
        settings.username = "u".to_owned();
        assert_eq!(requests(&example(), &settings)[0].value("authorization"), "Basic dTpw");
        settings.headers = [("Authorization".to_owned(), "Api-Key x".to_owned())].into();
        assert_eq!(requests(&example(), &settings)[0].value("authorization"), "Api-Key x");
    }
}
