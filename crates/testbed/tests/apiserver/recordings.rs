//! What was recorded of the real API server is still what it answers: the same requests, the same masks.
//!
//! `crates/apiserver/tests/transcripts.rs` runs them against the embedded server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use testbed::Cluster;
use testbed::control_plane::Options;

use crate::transcript::{self, Answer, Exchange, Memory};

struct Clients {
    admin: Client,
    alice: Client,
}

async fn client(cluster: &Cluster, token: &str) -> Result<Client> {
    let file = Kubeconfig::read_from(cluster.kubeconfig_path())?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    Ok(Client::try_from(config)?)
}

async fn send(
    clients: &Clients,
    exchange: &Exchange,
    memory: &Memory,
) -> Result<(u16, Vec<String>, Vec<u8>)> {
    let mut request = http::Request::builder()
        .method(exchange.method.as_str())
        .uri(memory.fill(&exchange.path))
        .header("user-agent", "transcript/1");
    let mut client = &clients.admin;
    for (key, value) in &exchange.headers {
        if key.eq_ignore_ascii_case("authorization") {
            client = &clients.alice;
        } else {
            request = request.header(key, value);
        }
    }
    let request = request.body(Body::from(memory.fill(&exchange.body).into_bytes()))?;
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.filter_map(|warning| warning.to_str().ok()).map(str::to_owned).collect();
    Ok((code, warnings, response.into_body().collect().await?.to_bytes().to_vec()))
}

/// Deletes all objects of a kind in the default namespace, whatever holds them.
async fn clear<K>(client: &Client) -> Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), "default");
    for object in api.list(&ListParams::default()).await?.items {
        let name = object.meta().name.clone().unwrap_or_default();
        let free = Patch::Merge(serde_json::json!({ "metadata": { "finalizers": null } }));
        api.patch(&name, &PatchParams::default(), &free).await?;
        if api.get_opt(&name).await?.is_some() {
            api.delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

async fn answer(clients: &Clients, exchange: &Exchange, memory: &mut Memory) -> Result<Option<Answer>> {
    for _ in 0..100 {
        let (code, warnings, bytes) = send(clients, exchange, memory).await?;
        match exchange.wait {
            Some(wanted) if code == wanted => return Ok(None),
            Some(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            None => {
                let body = transcript::read_body(exchange.path.contains("watch=1"), &bytes);
                memory.remember(&body);
                return Ok(Some(Answer { code, warnings, body: transcript::mask(&body) }));
            }
        }
    }
    anyhow::bail!("{} was never answered with {:?}", exchange.path, exchange.wait)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_server_still_answers_as_it_was_recorded() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apiserver/tests/cases");
    // Without a controller manager, whose timing would show.
    let options = Options { controller_manager: false, recorded_users: true, ..Options::default() };
    let cluster = Cluster::start(options).await?;
    let clients =
        Clients { admin: client(&cluster, "admintoken").await?, alice: client(&cluster, "usertoken").await? };
    let mut files: Vec<_> =
        std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "http"));
    files.sort();
    let (mut passed, mut failures) = (0, Vec::new());
    for file in files {
        // Each file was recorded on a fresh server; this is what some of them list.
        clear::<ConfigMap>(&clients.admin).await?;
        clear::<Secret>(&clients.admin).await?;
        let name = file.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        let mut memory = Memory::default();
        for mut exchange in transcript::parse(&std::fs::read_to_string(&file)?) {
            let case = format!("{name}: {}", exchange.title);
            let got = answer(&clients, &exchange, &mut memory).await.with_context(|| case.clone())?;
            if let Some(recorded) = &mut exchange.answer {
                recorded.body = transcript::mask(&recorded.body);
            }
            match got == exchange.answer {
                true => passed += 1,
                false => failures.push(transcript::difference(&case, &exchange, &got)),
            }
        }
    }
    println!("recordings: {passed} still true, {} not", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}
