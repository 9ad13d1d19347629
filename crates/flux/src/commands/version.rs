//! `flux version`: this command's version, and what runs on the cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

/// The Flux version this command stands in for.
pub(crate) const CLIENT: &str = "2.9.4";
/// What every part of an installation is labelled with.
pub(crate) const PART_OF: &str = "app.kubernetes.io/part-of=flux";

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let form = run.text("output");
    if form != "yaml" && form != "json" {
        return Err(fail!("--output must be json or yaml, not {form}"));
    }
    let (distribution, controllers) = if run.is("client") {
        (None, BTreeMap::new())
    } else {
        installed(&Session::open(run).await?).await?
    };
    output::data(&if form == "json" {
        let mut all = serde_json::Map::new();
        if let Some(distribution) = &distribution {
            all.insert("distribution".to_owned(), distribution.clone().into());
        }
        all.insert("flux".to_owned(), format!("v{CLIENT}").into());
        all.extend(controllers.into_iter().map(|(name, tag)| (name, Value::from(tag))));
        let text = serde_json::to_string_pretty(&Value::Object(all)).map_err(|error| fail!("{error}"))?;
        format!("{text}\n")
    } else {
        let mut text = format!("flux: v{CLIENT}\n");
        if let Some(distribution) = distribution {
            text.push_str(&format!("distribution: {distribution}\n"));
        }
        for (name, tag) in controllers {
            text.push_str(&output::yaml_text(&json!({ name: tag }))?);
        }
        text
    })
}

type Installed = (Option<String>, BTreeMap<String, String>);

async fn installed(session: &Session) -> Result<Installed, CliError> {
    let failed = |error| session.failed(error, None);
    let crds: Api<CustomResourceDefinition> = Api::all(session.client.clone());
    let crd = crds.get_opt("gitrepositories.source.toolkit.fluxcd.io").await.map_err(failed)?;
    let distribution = crd.and_then(|crd| crd.metadata.labels).map(|labels| distribution(&labels));
    let deployments: Api<Deployment> = Api::namespaced(session.client.clone(), &session.namespace);
    let deployments = deployments.list(&ListParams::default().labels(PART_OF)).await.map_err(failed)?;
    if deployments.items.is_empty() {
        return Err(fail!("no deployments found in {} namespace", session.namespace));
    }
    let mut controllers = BTreeMap::new();
    for container in deployments.items.iter().flat_map(containers) {
        let (name, tag) = split_image(&container)?;
        controllers.insert(name, tag);
    }
    Ok((distribution, controllers))
}

/// `flux-v2.9.4`, from the labels of the GitRepository CRD.
pub(crate) fn distribution(labels: &BTreeMap<String, String>) -> String {
    let label = |name: &str| labels.get(&format!("app.kubernetes.io/{name}")).cloned().unwrap_or_default();
    match label("part-of").as_str() {
        "" => label("version"),
        part_of => format!("{part_of}-{}", label("version")),
    }
}

/// The images of a Deployment.
pub(crate) fn containers(deployment: &Deployment) -> Vec<String> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod.map(|pod| pod.containers.iter().filter_map(|container| container.image.clone()).collect())
        .unwrap_or_default()
}

/// `ghcr.io/fluxcd/source-controller:v1.9.4` as name and tag.
fn split_image(image: &str) -> Result<(String, String), CliError> {
    let (tagged, digest) =
        image.split_once('@').map_or((image, None), |(tagged, digest)| (tagged, Some(digest)));
    let last = tagged.rsplit('/').next().unwrap_or(tagged);
    match (last.split_once(':'), digest) {
        (Some((name, tag)), _) => Ok((name.to_owned(), tag.to_owned())),
        (None, Some(digest)) => Ok((last.to_owned(), digest.to_owned())),
        (None, None) => Err(fail!("could not find image tag: {image}")),
    }
}
