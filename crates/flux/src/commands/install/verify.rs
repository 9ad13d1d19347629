//! What is installed already, and whether what was installed runs.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use crate::error::CliError;
use crate::output;
use crate::session::Session;

const POLL: Duration = Duration::from_millis(500);

/// A Flux that is on the cluster, as the labels of one of its definitions tell.
pub(in crate::commands) struct Installation {
    pub(in crate::commands) version: String,
    pub(in crate::commands) bootstrapped: bool,
    pub(in crate::commands) managed_by: String,
}

impl Installation {
    pub(in crate::commands) async fn find(session: &Session) -> Result<Option<Installation>, CliError> {
        let api: Api<CustomResourceDefinition> = Api::all(session.client.clone());
        let found = api.get_opt("gitrepositories.source.toolkit.fluxcd.io").await;
        let Some(crd) = found.map_err(|error| session.failed(error, None))? else { return Ok(None) };
        let labels = crd.metadata.labels.unwrap_or_default();
        let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
        Ok(Some(Installation {
            version: label("app.kubernetes.io/version"),
            bootstrapped: labels.contains_key(flux_api::names::KUSTOMIZATION_NAMESPACE_LABEL),
            managed_by: label("app.kubernetes.io/managed-by"),
        }))
    }

    /// Nobody says that another tool manages it.
    pub(in crate::commands) fn is_ours(&self) -> bool {
        matches!(self.managed_by.as_str(), "" | "flux")
    }
}

/// Waits until all of them are ready, then tells of each by name.
pub(in crate::commands) async fn deployments_ready(session: &Session, names: &[&str]) -> bool {
    let api: Api<Deployment> = Api::namespaced(session.client.clone(), &session.namespace);
    let mut names = names.to_vec();
    names.sort_unstable();
    let all_ready = async {
        loop {
            let mut ready = true;
            for name in &names {
                ready &= state(&api, name).await == State::Ready;
            }
            if ready {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let in_time = tokio::time::timeout(session.timeout, all_ready).await.is_ok();
    for name in &names {
        let state = if in_time { State::Ready } else { state(&api, name).await };
        match state {
            State::Ready => output::success(&format!("{name}: deployment ready")),
            State::Missing => output::failure(&format!("{name}: deployment not found")),
            State::NotReady => output::failure(&format!("{name}: deployment not ready")),
        }
    }
    in_time
}

#[derive(PartialEq, Eq)]
enum State {
    Ready,
    NotReady,
    Missing,
}

async fn state(api: &Api<Deployment>, name: &str) -> State {
    match api.get_opt(name).await {
        Ok(Some(deployment)) => {
            let object = serde_json::to_value(deployment).unwrap_or_default();
            let now = jiff::Timestamp::now().as_second();
            let mut object = object;
            object["apiVersion"] = "apps/v1".into();
            object["kind"] = "Deployment".into();
            let health = flux_apply::health::judge(&object, now);
            if health.status == flux_apply::health::Status::Current { State::Ready } else { State::NotReady }
        }
        Ok(None) => State::Missing,
        Err(_) => State::NotReady,
    }
}
