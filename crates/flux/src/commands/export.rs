//! `flux export`: objects as YAML that can be applied again.

use kube::api::ListParams;
use serde_json::{Map, Value};

use flux_api::kinds as api;

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind, text};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation, kind: &Kind) -> Result<(), CliError> {
    let all = run.is("all");
    let name = if all { None } else { Some(run.name().ok_or_else(|| fail!("name is required"))?) };
    let session = Session::open(run).await?;
    let objects = match name {
        Some(name) => vec![session.get(kind.api, name).await?],
        None => session.list(kind.api, false, &ListParams::default()).await?,
    };
    if objects.is_empty() {
        return Err(fail!("no objects found in {} namespace", session.namespace));
    }
    for object in &objects {
        output::export(&exported(kind, object))?;
        if run.is("with-credentials") {
            credentials(&session, object).await?;
        }
    }
    Ok(())
}

/// What defines the object: its name, labels, annotations and spec, written as the typed object is.
fn exported(kind: &Kind, object: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "labels", "annotations"] {
        if let Some(value) = object.pointer(&format!("/metadata/{field}")) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut export = Map::new();
    export.insert("apiVersion".to_owned(), kind.api.api_version().into());
    export.insert("kind".to_owned(), kind.api.kind.into());
    export.insert("metadata".to_owned(), metadata.into());
    export.insert("spec".to_owned(), object.get("spec").cloned().unwrap_or_default());
    typed(kind, Value::Object(export))
}

/// Reads and writes the object by its type, which spells durations the one way (`1m` becomes `1m0s`).
fn typed(kind: &Kind, object: Value) -> Value {
    macro_rules! round_trip {
        ($($kind:ident => $type:ty),* $(,)?) => {
            $(if *kind.api == api::$kind {
                return match flux_api::parse::object::<$type>(object.clone()) {
                    Ok(typed) => serde_json::to_value(typed).map_or(object, without_status),
                    Err(_) => object,
                };
            })*
        };
    }
    round_trip! {
        GIT_REPOSITORY => flux_api::source::GitRepository,
        OCI_REPOSITORY => flux_api::source::OCIRepository,
        BUCKET => flux_api::source::Bucket,
        HELM_REPOSITORY => flux_api::source::HelmRepository,
        HELM_CHART => flux_api::source::HelmChart,
        EXTERNAL_ARTIFACT => flux_api::source::ExternalArtifact,
        KUSTOMIZATION => flux_api::kustomize::Kustomization,
        HELM_RELEASE => flux_api::helm::HelmRelease,
        PROVIDER => flux_api::notification::Provider,
        ALERT => flux_api::notification::Alert,
        RECEIVER => flux_api::notification::Receiver,
        IMAGE_REPOSITORY => flux_api::image::ImageRepository,
        IMAGE_POLICY => flux_api::image::ImagePolicy,
        IMAGE_UPDATE_AUTOMATION => flux_api::image::ImageUpdateAutomation,
        ARTIFACT_GENERATOR => flux_api::extensions::ArtifactGenerator,
    }
    object
}

fn without_status(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// The Secret the source refers to. Upstream stops after the first one; we export each.
async fn credentials(session: &Session, object: &Value) -> Result<(), CliError> {
    let name = text(object, "/spec/secretRef/name");
    if name.is_empty() {
        return Ok(());
    }
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(session.client.clone(), kinds::namespace(object));
    let secret = secrets
        .get(name)
        .await
        .map_err(|error| fail!("failed to retrieve secret {name}, error: {}", session.failed(error, None)))?;
    let mut export = serde_json::to_value(&secret).map_err(|error| fail!("{error}"))?;
    if let Some(metadata) = export.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace" | "labels" | "annotations"));
    }
    export["apiVersion"] = "v1".into();
    export["kind"] = "Secret".into();
    output::export(&export)
}
