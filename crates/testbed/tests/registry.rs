//! The OCI registry as real clients see it.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result};
use testbed::chart::Chart;
use testbed::fault::{Fault, Times};
use testbed::http_server::Security;
use testbed::reference::{self, Tool};
use testbed::registry::{Access, Artifact, Blob, Options, Registry, digest};

fn helm(home: &Path, arguments: &[&str]) -> Result<Output> {
    let binary = reference::binary(Tool::Helm4, "helm")?;
    let output =
        Command::new(binary).args(arguments).current_dir(home).env_clear().env("HOME", home).output()?;
    Ok(output)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn with_tokens(anonymous_pull: bool) -> Result<Registry> {
    let access = Access::Token { user: "ada".to_owned(), password: "engine".to_owned(), anonymous_pull };
    let options = Options { access, ..Options::default() };
    Registry::start_with(options, Security::Plain)
}

fn store(registry: &Registry, tag: &str, layer: &[u8]) -> Result<String> {
    let artifact = Artifact {
        config: Blob { media_type: "application/vnd.oci.empty.v1+json", bytes: b"{}" },
        layers: &[Blob { media_type: "application/octet-stream", bytes: layer }],
        annotations: &[("org.opencontainers.image.revision", tag)],
    };
    registry.put("team/app", tag, &artifact)
}

#[test]
fn helm_logs_in_pushes_and_pulls_a_chart_with_tokens() -> Result<()> {
    let registry = with_tokens(false)?;
    let home = tempfile::tempdir()?;
    let chart = Chart::new("podinfo", "1.2.3").file("templates/a.yaml", "a: b\n");
    std::fs::write(home.path().join(chart.file_name()), chart.package()?)?;
    let target = format!("oci://{}/charts", registry.host());
    let push = ["push", "podinfo-1.2.3.tgz", &target, "--plain-http"];
    assert!(!helm(home.path(), &push)?.status.success(), "pushed without a login");

    let host = registry.host();
    let login = ["registry", "login", &host, "-u", "ada", "-p", "engine", "--plain-http"];
    let output = helm(home.path(), &login)?;
    assert!(output.status.success(), "{}", stderr(&output));
    let output = helm(home.path(), &push)?;
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(registry.tags("charts/podinfo"), ["1.2.3"]);

    let source = format!("{target}/podinfo");
    let pull = ["pull", &source, "--version", "1.2.3", "--plain-http", "-d", "pulled"];
    std::fs::create_dir(home.path().join("pulled"))?;
    let output = helm(home.path(), &pull)?;
    assert!(output.status.success(), "{}", stderr(&output));
    let pulled = std::fs::read(home.path().join("pulled/podinfo-1.2.3.tgz"))?;
    assert_eq!(digest(&pulled), digest(&chart.package()?));
    Ok(())
}

#[tokio::test]
async fn an_anonymous_token_pulls_but_does_not_push() -> Result<()> {
    let registry = with_tokens(true)?;
    store(&registry, "v1", b"layer")?;
    let url = format!("{}/v2/team/app/manifests/v1", registry.http().url());
    let challenge = reqwest::get(&url).await?;
    assert_eq!(challenge.status(), 401);
    let header = challenge.headers()["www-authenticate"].to_str()?.to_owned();
    assert!(header.contains("scope=\"repository:team/app:pull\""), "{header}");
    let realm = header.split('"').nth(1).context("realm")?;

    let scope = "repository:team/app:pull,push";
    let answer = reqwest::get(format!("{realm}?service=testbed&scope={scope}")).await?;
    let token: serde_json::Value = answer.json().await?;
    let token = token["token"].as_str().context("token")?;
    let client = reqwest::Client::new();
    let pulled = client.get(&url).bearer_auth(token).send().await?;
    assert_eq!(pulled.status(), 200);
    let pushed = client.put(&url).bearer_auth(token).body("{}").send().await?;
    assert_eq!(pushed.status(), 401);
    let other = format!("{}/v2/other/manifests/v1", registry.http().url());
    let foreign = client.get(other).bearer_auth(token).send().await?;
    assert_eq!(foreign.status(), 401);
    Ok(())
}

#[tokio::test]
async fn tags_come_by_pages_that_link_to_the_next() -> Result<()> {
    let options = Options { page_size: 2, ..Options::default() };
    let registry = Registry::start_with(options, Security::Plain)?;
    for tag in ["v1", "v2", "v3", "v4", "v5"] {
        store(&registry, tag, b"layer")?;
    }
    let mut path = "/v2/team/app/tags/list?n=100".to_owned();
    let mut pages = Vec::new();
    loop {
        let answer = reqwest::get(registry.http().url() + &path).await?;
        let link = answer.headers().get("link").map(|link| link.to_str().map(str::to_owned));
        let page: serde_json::Value = answer.json().await?;
        pages.push(page["tags"].to_string());
        let Some(link) = link else { break };
        path = link?.trim_start_matches('<').split('>').next().unwrap_or_default().to_owned();
    }
    assert_eq!(pages, [r#"["v1","v2"]"#, r#"["v3","v4"]"#, r#"["v5"]"#]);
    Ok(())
}

#[tokio::test]
async fn a_blob_is_pushed_in_chunks_pulled_in_part_and_refused_with_a_wrong_digest() -> Result<()> {
    let registry = Registry::start()?;
    let client = reqwest::Client::new();
    let base = registry.http().url();
    let open = || client.post(format!("{base}/v2/a/b/blobs/uploads/")).send();
    let location = |answer: &reqwest::Response| {
        answer.headers()["location"].to_str().map(str::to_owned).unwrap_or_default()
    };
    let upload = location(&open().await?);
    client.patch(format!("{base}{upload}")).body("hello ").send().await?;
    let wanted = digest(b"hello world");
    let close = format!("{base}{upload}?digest={wanted}");
    assert_eq!(client.put(close).body("world").send().await?.status(), 201);

    let blob = format!("{base}/v2/a/b/blobs/{wanted}");
    let part = client.get(&blob).header("range", "bytes=6-").send().await?;
    assert_eq!((part.status().as_u16(), part.text().await?), (206, "world".to_owned()));

    let upload = location(&open().await?);
    let close = format!("{base}{upload}?digest={wanted}");
    assert_eq!(client.put(close).body("other").send().await?.status(), 400);

    let mount = format!("{base}/v2/c/blobs/uploads/?mount={wanted}&from=a/b");
    assert_eq!(client.post(mount).send().await?.status(), 201);
    Ok(())
}

#[tokio::test]
async fn referrers_of_a_manifest_are_listed_and_a_deleted_tag_is_gone() -> Result<()> {
    let registry = Registry::start()?;
    let subject = store(&registry, "v1", b"layer")?;
    let base = format!("{}/v2/team/app", registry.http().url());
    let client = reqwest::Client::new();
    let signature = serde_json::json!({
        "schemaVersion": 2,
        "artifactType": "application/vnd.example.signature",
        "subject": {"digest": subject},
    });
    let put = client.put(format!("{base}/manifests/sig")).json(&signature).send().await?;
    assert_eq!(put.headers()["oci-subject"], subject.as_str());
    let list: serde_json::Value = reqwest::get(format!("{base}/referrers/{subject}")).await?.json().await?;
    assert_eq!(list["manifests"][0]["artifactType"], "application/vnd.example.signature");
    let none = format!("{base}/referrers/{subject}?artifactType=other");
    let none: serde_json::Value = reqwest::get(none).await?.json().await?;
    assert_eq!(none["manifests"], serde_json::json!([]));

    assert_eq!(client.delete(format!("{base}/manifests/v1")).send().await?.status(), 202);
    assert_eq!(reqwest::get(format!("{base}/manifests/v1")).await?.status(), 404);
    Ok(())
}

#[tokio::test]
async fn a_pull_that_is_cut_is_noticed() -> Result<()> {
    let registry = Registry::start()?;
    let layer = vec![7; 100_000];
    store(&registry, "v1", &layer)?;
    let faults = registry.http().faults();
    faults.inject("/blobs/", Times::Next(1), Fault::CutAfter(10));
    let url = format!("{}/v2/team/app/blobs/{}", registry.http().url(), digest(&layer));
    let cut = reqwest::get(&url).await?.bytes().await;
    assert!(cut.is_err());
    assert_eq!(reqwest::get(&url).await?.bytes().await?.len(), 100_000);
    Ok(())
}
