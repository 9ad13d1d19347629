//! Answers webhooks: finds the Receiver by its path, checks the call, and has the Receiver's objects reconcile.
//!
//! 404 unknown path, 503 suspended or not ready, 400 not who it should be, 500 an object could not be asked, 200 all were.
//! The caller learns no more than that.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flux_api::Object as _;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds;
use flux_api::names::RECONCILE_REQUEST;
use flux_api::notification::{FluxKind, Receiver, ReceiverResource, ReceiverType};
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::check::{Refusal, bearer, check, decode};
use super::claims::Demands;
use super::filter::{Filter, Filters};
use super::token::{Claims, check_email, key_id, unverified_issuer, verify};
use super::{PATH, webhook_path};
use crate::notification::Context;
use crate::notification::known::Object;
use crate::notification::server::Answer;
use crate::notification::static_objects::MANAGER;
use crate::source::access::{Data, Secrets};

const DEFAULT_AUDIENCE: &str = "notification-controller";
const GOOGLE_ISSUERS: [&str; 2] = ["accounts.google.com", "https://accounts.google.com"];
/// Objects that `name: "*"` may mean at most; more are asked in further pages.
const PAGE: u32 = 500;

pub struct WebhookServer(pub Arc<Context>);

impl Answer for WebhookServer {
    fn answer(self: Arc<Self>, head: Parts, body: Bytes) -> BoxFuture<'static, StatusCode> {
        Box::pin(async move {
            // The whole of what was asked for must be the path: a query makes it another one.
            let asked = head.uri.path_and_query().map(|path| path.as_str()).unwrap_or_default();
            if head.uri.authority().is_some() || !asked.starts_with(PATH) {
                return StatusCode::NOT_FOUND;
            }
            let found = self.0.receivers.list().into_iter().find(|receiver| {
                let status = receiver.object.status.as_ref();
                status.and_then(|status| status.webhook_path.as_deref()) == Some(asked)
            });
            let Some(receiver) = found else { return StatusCode::NOT_FOUND };
            let name = format!("{}/{}", receiver.object.namespace(), receiver.object.name());
            if receiver.object.spec.suspend || !is_ready(&receiver.object) {
                tracing::error!(
                    receiver = name,
                    "unable to process request: the receiver is suspended or not ready"
                );
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            match self.0.handle(&receiver, &head.headers, &body).await {
                Ok(()) => StatusCode::OK,
                Err(Problem::Refused(refusal)) => {
                    tracing::error!(receiver = name, error = %refusal, "unable to validate payload");
                    StatusCode::BAD_REQUEST
                }
                Err(Problem::Failed(problems)) => {
                    for error in problems {
                        tracing::error!(receiver = name, error, "unable to request reconciliation");
                    }
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            }
        })
    }
}

enum Problem {
    Refused(Refusal),
    /// All objects that could not be asked; the others were.
    Failed(Vec<String>),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Problem::Refused(refusal)
    }
}

fn is_ready(receiver: &Receiver) -> bool {
    let conditions = receiver.conditions();
    let is = |kind: &str| {
        condition::find(conditions, kind).is_some_and(|found| found.status == ConditionStatus::True)
    };
    is(condition::READY) && !is(condition::STALLED) && !is(condition::RECONCILING)
}

impl Context {
    async fn handle(
        &self,
        receiver: &Object<Receiver>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), Problem> {
        let spec = &receiver.object.spec;
        let secret = self.receiver_secret(&receiver.object).await?;
        let token = secret.as_ref().and_then(|secret| secret.bytes("token")).unwrap_or_default();
        // The path was made from an earlier token: who knows only that one is no longer meant.
        let path = webhook_path(token, receiver.object.name(), receiver.object.namespace());
        if receiver.object.status.as_ref().and_then(|status| status.webhook_path.as_deref()) != Some(&path) {
            return Err(Refusal::Identity("the token of the receiver has changed".to_owned()).into());
        }
        check(spec, headers, body, token)?;
        let (mut claims, mut body) = (None, body.to_vec());
        match spec.receiver_type {
            ReceiverType::GenericOidc => claims = Some(self.identity(&receiver.object, headers).await?),
            ReceiverType::Gcr => body = self.registry_event(secret.as_ref(), headers, &body).await?,
            _ => {}
        }
        let filters =
            Filters::new(spec, headers, &body, claims).map_err(|error| Problem::Failed(vec![error]))?;
        let mut problems = Vec::new();
        for resource in &spec.resources {
            let asked = match filters.of(resource) {
                Ok(filter) => self.request(resource, receiver.object.namespace(), &filter).await,
                Err(error) => Err(error),
            };
            if let Err(problem) = asked {
                problems.push(format!("{}/{}: {problem}", resource.kind, resource.name));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Problem::Failed(problems)) }
    }

    async fn receiver_secret(&self, receiver: &Receiver) -> Result<Option<Data>, Refusal> {
        let Some(reference) = &receiver.spec.secret_ref else { return Ok(None) };
        let secrets = Secrets { client: &self.client, namespace: receiver.namespace() };
        let secret = secrets.get(&reference.name).await;
        let secret =
            secret.map_err(|error| Refusal::Identity(format!("unable to read secret, error: {error}")))?;
        if secret.bytes("token").is_none() {
            let problem = format!("invalid {:?} secret data: required field 'token'", secret.id());
            return Err(Refusal::Identity(problem));
        }
        Ok(Some(secret))
    }

    /// The claims of the caller, once the token and all that the Receiver demands of it hold.
    async fn identity(&self, receiver: &Receiver, headers: &HeaderMap) -> Result<Claims, Refusal> {
        let refused = |problem: String| Refusal::Identity(problem);
        let token = bearer(headers)?;
        let issuer = unverified_issuer(token)
            .map_err(|error| refused(format!("failed to parse bearer token: {error}")))?;
        let known = receiver.spec.oidc_providers.iter().find(|provider| provider.issuer_url == issuer);
        let provider = known.ok_or_else(|| {
            let shown: String = issuer.chars().take(256).collect();
            refused(format!("no oidcProvider configured for issuer {shown:?}"))
        })?;
        let keys =
            self.keys.of_issuer(&provider.issuer_url, key_id(token).as_deref()).await.map_err(refused)?;
        let audience = provider.audience.as_deref().unwrap_or(DEFAULT_AUDIENCE);
        let claims = verify(token, &keys, &[&provider.issuer_url], audience, Timestamp::now().as_second())
            .map_err(|error| refused(format!("failed to verify OIDC token: {error}")))?;
        Demands::compile(provider).and_then(|demands| demands.check(&claims)).map_err(refused)?;
        Ok(claims)
    }

    /// What Google's registry says happened, out of the Pub/Sub message that a known account delivers.
    async fn registry_event(
        &self,
        secret: Option<&Data>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let refused =
            |problem: String| Refusal::Identity(format!("cannot authenticate GCR request: {problem}"));
        let text = |key: &'static str| {
            let value =
                secret.and_then(|secret| secret.text(key).ok().flatten()).filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                Refusal::Identity(format!("invalid secret data: required field '{key}' for GCR receiver"))
            })
        };
        let (email, audience) = (text("email")?, text("audience")?);
        let token = bearer(headers)?;
        let keys = self.keys.of_google(key_id(token).as_deref()).await.map_err(refused)?;
        let claims = verify(token, &keys, &GOOGLE_ISSUERS, &audience, Timestamp::now().as_second())
            .map_err(refused)?;
        check_email(&claims, &email).map_err(refused)?;
        unwrapped(body)
    }

    /// Has the objects of one entry reconcile, those that the filter accepts.
    async fn request(
        &self,
        resource: &ReceiverResource,
        own: &str,
        filter: &Filter<'_>,
    ) -> Result<(), String> {
        let namespace = resource.namespace.as_deref().unwrap_or(own);
        if self.options.no_cross_namespace_refs && namespace != own {
            return Err("cross-namespace references are not allowed".to_owned());
        }
        let kind = api_resource(resource)?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        if resource.name != "*" {
            let found = api.get_metadata(&resource.name).await;
            let found = found.map_err(|error| {
                format!("unable to read {} \"{namespace}/{}\" error: {error}", kind.kind, resource.name)
            })?;
            return self.annotate(&api, &kind, &found.metadata, filter).await;
        }
        if resource.match_labels.is_empty() {
            return Err("matchLabels field not set when using wildcard '*' as name".to_owned());
        }
        let labels: Vec<String> =
            resource.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut parameters = ListParams::default().labels(&labels.join(",")).limit(PAGE);
        loop {
            let page = api.list_metadata(&parameters).await;
            let page = page.map_err(|error| {
                format!("failed listing resources in namespace {namespace:?} by matching labels: {error}")
            })?;
            for found in &page.items {
                self.annotate(&api, &kind, &found.metadata, filter).await?;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    async fn annotate(
        &self,
        api: &Api<DynamicObject>,
        kind: &ApiResource,
        found: &ObjectMeta,
        filter: &Filter<'_>,
    ) -> Result<(), String> {
        let metadata = serde_json::to_value(found).map_err(|error| error.to_string())?;
        let object = json!({ "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata });
        if !filter.accepts(&object)? {
            return Ok(());
        }
        let name = found.name.as_deref().unwrap_or_default();
        let patch =
            json!({ "metadata": { "annotations": { RECONCILE_REQUEST: go_time(Timestamp::now()) } } });
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        api.patch_metadata(name, &parameters, &Patch::Merge(&patch))
            .await
            .map_err(|error| format!("failed to annotate resource: '{}/{name}': {error}", kind.kind))?;
        tracing::info!(kind = kind.kind, name, "resource annotated");
        Ok(())
    }
}

/// The event in a Pub/Sub message.
fn unwrapped(body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let message: PubSub = decode("GCR", body)?;
    let data =
        STANDARD.decode(message.message.unwrap_or_default().data.unwrap_or_default()).unwrap_or_default();
    let event: RegistryEvent = decode("GCR", &data)?;
    Ok(serde_json::to_vec(&event).unwrap_or_default())
}

/// The kind that an entry means. Only some have a version that need not be said, as upstream.
fn api_resource(resource: &ReceiverResource) -> Result<ApiResource, String> {
    let kind =
        kinds::by_kind(resource.kind.as_str()).ok_or_else(|| format!("unknown kind {}", resource.kind))?;
    let has_default = matches!(
        resource.kind,
        FluxKind::Bucket
            | FluxKind::HelmChart
            | FluxKind::HelmRepository
            | FluxKind::GitRepository
            | FluxKind::OCIRepository
            | FluxKind::ImageRepository
            | FluxKind::ArtifactGenerator
    );
    let api_version = match &resource.api_version {
        Some(version) => version.clone(),
        None if has_default => kind.api_version(),
        None => return Err(format!("apiVersion must be specified for kind \"{}\"", resource.kind)),
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    Ok(ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.clone(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    })
}

/// As Go's `time.Time.String()` writes it.
fn go_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S.%9f +0000 UTC").to_string()
}

#[derive(Default, Deserialize)]
struct PubSub {
    message: Option<PubSubMessage>,
}

#[derive(Default, Deserialize)]
struct PubSubMessage {
    data: Option<String>,
}

/// The only parts of it that filters see, as upstream.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct RegistryEvent {
    action: String,
    digest: String,
    tag: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn resource(value: Value) -> ReceiverResource {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_version_must_be_said_unless_upstream_knows_it() {
        let found = api_resource(&resource(json!({ "kind": "GitRepository", "name": "x" }))).unwrap();
        assert_eq!(
            (found.api_version.as_str(), found.plural.as_str()),
            ("source.toolkit.fluxcd.io/v1", "gitrepositories")
        );
        let missing = api_resource(&resource(json!({ "kind": "Kustomization", "name": "x" })));
        assert_eq!(missing.unwrap_err(), "apiVersion must be specified for kind \"Kustomization\"");
        let said =
            json!({ "kind": "Kustomization", "name": "x", "apiVersion": "kustomize.toolkit.fluxcd.io/v1" });
        assert_eq!(api_resource(&resource(said)).unwrap().group, "kustomize.toolkit.fluxcd.io");
    }

    #[test]
    fn a_request_is_written_as_go_writes_times() {
        let at: Timestamp = "2026-01-02T03:04:05.000000006Z".parse().unwrap();
        assert_eq!(go_time(at), "2026-01-02 03:04:05.000000006 +0000 UTC");
    }

    #[test]
    fn a_message_of_pub_sub_is_unwrapped_to_the_parts_that_filters_see() {
        let data = STANDARD
            .encode(r#"{"action":"INSERT","digest":"gcr.io/x@sha256:1","tag":"gcr.io/x:1","more":1}"#);
        let body = unwrapped(json!({ "message": { "data": data, "messageId": "1" } }).to_string().as_bytes())
            .unwrap();
        let expected = json!({ "action": "INSERT", "digest": "gcr.io/x@sha256:1", "tag": "gcr.io/x:1" });
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
        for bad in [
            &b""[..],
            b"[]",
            b"{}",
            br#"{"message":{"data":"!!"}}"#,
            br#"{"message":{"data":"W10="}}"#,
            br#"{"message":1}"#,
        ] {
            assert!(unwrapped(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_receiver_in_trouble_is_not_ready() {
        let of = |conditions: &[(&str, &str)]| {
            let conditions: Vec<Value> = conditions
                .iter()
                .map(|(kind, status)| json!({ "type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z" }))
                .collect();
            let receiver: Receiver = serde_json::from_value(json!({
                "metadata": { "name": "r" }, "spec": { "type": "generic", "resources": [] }, "status": { "conditions": conditions },
            }))
            .unwrap();
            is_ready(&receiver)
        };
        assert!(of(&[("Ready", "True")]));
        assert!(!of(&[]) && !of(&[("Ready", "False")]));
        assert!(
            !of(&[("Ready", "True"), ("Stalled", "True")])
                && !of(&[("Ready", "True"), ("Reconciling", "True")])
        );
    }
}
