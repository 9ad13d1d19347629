//! The chart repository, the bucket and the webhook sink as their clients see them.

use std::process::Command;

use anyhow::Result;
use testbed::bucket::{BucketServer, Credentials};
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;
use testbed::fault::{Fault, Times};
use testbed::http_server::Security;
use testbed::reference::{self, Tool};
use testbed::tls::Authority;
use testbed::webhook_sink::WebhookSink;

#[test]
fn helm_renders_a_chart_from_the_repository_with_the_right_password_only() -> Result<()> {
    let authority = Authority::new("charts")?;
    let repository = ChartRepository::start_with(Some(("ada", "engine")), Security::Tls(&authority))?;
    for version in ["1.0.0", "1.1.0"] {
        let template = "version: {{ .Chart.Version }}\n";
        repository.add(&Chart::new("podinfo", version).file("templates/a.yaml", template))?;
    }
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("ca.crt"), authority.certificate())?;
    let render = |password: &str| -> Result<(bool, String)> {
        let output = Command::new(reference::binary(Tool::Helm4, "helm")?)
            .args(["template", "x", "podinfo", "--repo", &repository.url()])
            .args(["--username", "ada", "--password", password, "--ca-file", "ca.crt"])
            .current_dir(home.path())
            .env_clear()
            .env("HOME", home.path())
            .output()?;
        let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        Ok((output.status.success(), text))
    };
    let (_, text) = render("engine")?;
    assert!(text.contains("version: 1.1.0"), "{text}");
    let (success, text) = render("wrong")?;
    assert!(!success && text.contains("401"), "{text}");
    Ok(())
}

#[tokio::test]
async fn an_open_bucket_is_listed_and_read() -> Result<()> {
    let server = BucketServer::start()?;
    server.put("fleet", "apps/a.yaml", b"a: 1\n");
    server.put("fleet", "apps/b c.yaml", b"b: 1\n");
    let base = format!("{}/fleet", server.http().url());
    let list = reqwest::get(format!("{base}?list-type=2&prefix=apps/")).await?.text().await?;
    assert!(list.contains("<Key>apps/b c.yaml</Key>"), "{list}");

    let object = reqwest::get(format!("{base}/apps/b%20c.yaml")).await?;
    let tag = object.headers()["etag"].clone();
    assert_eq!(object.text().await?, "b: 1\n");
    let client = reqwest::Client::new();
    let again = client.get(format!("{base}/apps/b%20c.yaml")).header("if-none-match", tag);
    assert_eq!(again.send().await?.status(), 304);
    let part = client.get(format!("{base}/apps/a.yaml")).header("range", "bytes=3-3");
    assert_eq!(part.send().await?.text().await?, "1");
    assert_eq!(reqwest::get(format!("{base}/none")).await?.status(), 404);
    let other = reqwest::get(format!("{}/other", server.http().url())).await?;
    assert!(other.text().await?.contains("NoSuchBucket"));
    Ok(())
}

#[tokio::test]
async fn a_closed_bucket_refuses_requests_without_a_signature() -> Result<()> {
    let credentials = Credentials { access_key: "key".to_owned(), secret_key: "secret".to_owned() };
    let server = BucketServer::start_with(Some(credentials), Security::Plain)?;
    server.put("fleet", "a", b"1");
    let refused = reqwest::get(format!("{}/fleet/a", server.http().url())).await?;
    assert_eq!(refused.status(), 403);
    assert!(refused.text().await?.contains("AccessDenied"));
    Ok(())
}

#[tokio::test]
async fn the_sink_remembers_what_it_was_told_and_when_it_was_deaf() -> Result<()> {
    let sink = WebhookSink::start()?;
    let faults = sink.http().faults();
    faults.inject("/hook", Times::Next(1), Fault::Status(500));
    let client = reqwest::Client::new();
    let post = |text: &'static str| {
        let url = format!("{}/hook?a=b", sink.url());
        client.post(url).header("x-signature", "s").body(text).send()
    };
    assert_eq!(post(r#"{"n": 1}"#).await?.status(), 500);
    assert!(sink.received().is_empty());

    let expected =
        sink.await_request("says two", |received| received.json().is_ok_and(|json| json["n"] == 2));
    let (received, _) = tokio::join!(expected, post(r#"{"n": 2}"#));
    let received = received?;
    assert_eq!((received.path.as_str(), received.header("x-signature")), ("/hook?a=b", "s"));
    Ok(())
}
