//! Bucket: from objects in a store to an artifact.

use flux_api::kinds::{BUCKET, Controller};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::bucket::{BucketServer, Credentials};
use testbed::fault::{Fault, Times};
use testbed::http_server::{HttpServer, Security};
use testbed::tls::Authority;

use crate::flux::{Flux, ready};
use crate::sources::{artifact, bytes, condition, files, reconciled, revision, secret};

crate::stories!(
    objects_become_an_artifact_and_a_change_replaces_it,
    an_object_that_goes_meanwhile_is_left_out,
    keys_open_a_bucket_and_wrong_ones_do_not,
    a_bucket_that_is_missing_or_stumbles_is_reported_and_recovers,
    a_bucket_behind_a_private_authority,
    a_login_of_a_directory_opens_a_bucket,
    hostile_keys_leave_the_last_artifact_in_place,
    an_account_without_the_gate_is_refused_by_name,
    a_suspended_bucket_waits_and_a_deleted_one_leaves_nothing,
);

const NAME: &str = "fleet";

async fn start(cluster: &Cluster) -> Flux {
    Flux::start(cluster, &[Controller::Source]).await
}

fn spec(server: &BucketServer, more: Value) -> Value {
    let mut spec = json!({ "endpoint": server.endpoint(), "bucketName": "manifests", "interval": "1h", "insecure": true });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn fill(server: &BucketServer) {
    server.put("manifests", "apps/a b.yaml", b"a: 1\n");
    server.put("manifests", "apps/logo.png", b"png");
    server.put("manifests", "docs/", b"");
    server.put("manifests", "docs/readme.md", b"read me\n");
    server.put("manifests", ".sourceignore", b"*.md\n");
}

async fn objects_become_an_artifact_and_a_change_replaces_it(cluster: &Cluster) {
    let server = BucketServer::start().unwrap();
    fill(&server);
    let flux = start(cluster).await;
    flux.apply(&BUCKET, NAME, spec(&server, json!({}))).await;
    let object = flux.ready(&BUCKET, NAME).await;
    let first = revision(&object).to_owned();
    assert!(first.starts_with("sha256:"), "{first}");
    assert_eq!(
        ready(&object),
        ("True", "Succeeded", format!("stored artifact: revision '{first}'").as_str())
    );
    let names: Vec<String> = files(&object).await.into_iter().map(|(name, _)| name).collect();
    // Pictures stay in, since nobody said otherwise; the file with the rules is part of the artifact.
    assert_eq!(names, [".sourceignore", "apps/a b.yaml", "apps/logo.png"]);
    flux.event(NAME, "NewArtifact", "stored artifact with 2 fetched files from 'manifests' bucket").await;
    let path = object["status"]["artifact"]["path"].as_str().unwrap();
    assert!(path.ends_with(&format!("/{}.tar.gz", first.trim_start_matches("sha256:"))));
    assert_eq!(bytes(&object["status"]["url"]).await, artifact(&object).await);

    let same = reconciled(&flux, &BUCKET, NAME).await;
    assert_eq!(same["status"]["artifact"], object["status"]["artifact"]);
    server.put("manifests", "apps/a b.yaml", b"a: 2\n");
    let object = reconciled(&flux, &BUCKET, NAME).await;
    assert_ne!(revision(&object), first);
    assert_eq!(files(&object).await[1].1, "a: 2\n");

    flux.apply(&BUCKET, "docs", spec(&server, json!({ "prefix": "docs/", "ignore": "!*.md" }))).await;
    let object = flux.ready(&BUCKET, "docs").await;
    let names: Vec<String> = files(&object).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [".sourceignore", "docs/readme.md"]);
}

async fn an_object_that_goes_meanwhile_is_left_out(cluster: &Cluster) {
    let server = BucketServer::start().unwrap();
    fill(&server);
    // It is on the list, and not there when it is fetched.
    server.http().faults().inject("apps/logo.png", Times::Always, Fault::Status(404));
    let flux = start(cluster).await;
    flux.apply(&BUCKET, NAME, spec(&server, json!({}))).await;
    let object = flux.ready(&BUCKET, NAME).await;
    let names: Vec<String> = files(&object).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [".sourceignore", "apps/a b.yaml"]);
    let first = revision(&object).to_owned();
    server.http().faults().clear();
    let object = reconciled(&flux, &BUCKET, NAME).await;
    assert_ne!(revision(&object), first);
    assert_eq!(files(&object).await.len(), 3);
}

async fn keys_open_a_bucket_and_wrong_ones_do_not(cluster: &Cluster) {
    let credentials = Credentials { access_key: "access".to_owned(), secret_key: "right".to_owned() };
    let server = BucketServer::start_with(Some(credentials), Security::Plain).unwrap();
    fill(&server);
    let flux = start(cluster).await;
    flux.apply(&BUCKET, NAME, spec(&server, json!({ "secretRef": { "name": "keys" } }))).await;
    flux.not_ready(&BUCKET, NAME, "AuthenticationFailed").await;
    secret(cluster, &flux, "keys", "Opaque", &[("accesskey", "access")]).await;
    let object = flux
        .until(&BUCKET, NAME, "names the fields", |object| ready(object).2.contains("required fields"))
        .await;
    assert_eq!(ready(&object).2, "invalid 'keys' secret data: required fields 'accesskey' and 'secretkey'");
    secret(cluster, &flux, "keys", "Opaque", &[("accesskey", "access"), ("secretkey", "canary")]).await;
    let object = flux.not_ready(&BUCKET, NAME, "BucketOperationFailed").await;
    assert!(!object.to_string().contains("canary"));
    secret(cluster, &flux, "keys", "Opaque", &[("accesskey", "access"), ("secretkey", "right")]).await;
    flux.ready(&BUCKET, NAME).await;
}

async fn a_bucket_that_is_missing_or_stumbles_is_reported_and_recovers(cluster: &Cluster) {
    let server = BucketServer::start().unwrap();
    let flux = start(cluster).await;
    flux.apply(&BUCKET, NAME, spec(&server, json!({}))).await;
    let object = flux.not_ready(&BUCKET, NAME, "BucketOperationFailed").await;
    assert_eq!(ready(&object).2, "bucket 'manifests' not found");
    fill(&server);
    server.http().faults().inject("list-type", Times::Next(2), Fault::Status(503));
    let object = flux.ready(&BUCKET, NAME).await;
    // A list that is cut off is no list.
    server.put("manifests", "new.yaml", b"n: 1\n");
    server.http().faults().inject("list-type", Times::Always, Fault::CutAfter(200));
    let cut = reconciled(&flux, &BUCKET, NAME).await;
    assert_eq!(ready(&cut).1, "BucketOperationFailed");
    assert_eq!(cut["status"]["artifact"], object["status"]["artifact"]);
    server.http().faults().clear();
    flux.ready(&BUCKET, NAME).await;
}

async fn a_bucket_behind_a_private_authority(cluster: &Cluster) {
    let authority = Authority::new("story").unwrap();
    let server = BucketServer::start_with(None, Security::Tls(&authority)).unwrap();
    fill(&server);
    let flux = start(cluster).await;
    secret(cluster, &flux, "tls", "Opaque", &[("ca.crt", authority.certificate())]).await;
    let wanted = json!({ "insecure": false, "certSecretRef": { "name": "tls" } });
    flux.apply(&BUCKET, NAME, spec(&server, wanted)).await;
    flux.apply(&BUCKET, "unknown", spec(&server, json!({ "insecure": false }))).await;
    flux.ready(&BUCKET, NAME).await;
    flux.not_ready(&BUCKET, "unknown", "BucketOperationFailed").await;
}

async fn hostile_keys_leave_the_last_artifact_in_place(cluster: &Cluster) {
    let server = BucketServer::start().unwrap();
    fill(&server);
    let flux = start(cluster).await;
    flux.apply(&BUCKET, NAME, spec(&server, json!({}))).await;
    let good = flux.ready(&BUCKET, NAME).await;
    for hostile in ["../escape.yaml", "a/../../escape.yaml", "apps"] {
        server.put("manifests", hostile, b"x");
        let object = reconciled(&flux, &BUCKET, NAME).await;
        assert_eq!(ready(&object).1, "BucketOperationFailed", "{hostile}");
        assert!(ready(&object).2.starts_with("failed to resolve path for '"), "{}", ready(&object).2);
        assert_eq!(object["status"]["artifact"], good["status"]["artifact"]);
        server.remove("manifests", hostile);
    }
}

/// Gives keys to those who know the password, as MinIO does.
fn directory() -> HttpServer {
    let answer = |body: String| async move {
        let admitted = body.contains("LDAPUsername=ann") && body.contains("LDAPPassword=s3cret%26");
        let keys = "<Credentials><AccessKeyId>lent</AccessKeyId><SecretAccessKey>lent-secret</SecretAccessKey>\
                    <SessionToken>lent-token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>";
        let refusal = "<Error><Message>LDAP says no</Message></Error>";
        match admitted && body.contains("Action=AssumeRoleWithLDAPIdentity") {
            true => (http::StatusCode::OK, keys),
            false => (http::StatusCode::FORBIDDEN, refusal),
        }
    };
    HttpServer::start(axum::Router::new().fallback(answer), Security::Plain).unwrap()
}

async fn a_login_of_a_directory_opens_a_bucket(cluster: &Cluster) {
    let keys = Credentials { access_key: "lent".to_owned(), secret_key: "lent-secret".to_owned() };
    let server = BucketServer::start_with(Some(keys), Security::Plain).unwrap();
    fill(&server);
    let (flux, directory) = (start(cluster).await, directory());
    secret(cluster, &flux, "ann", "Opaque", &[("username", "ann"), ("password", "wrong")]).await;
    let sts = json!({ "provider": "ldap", "endpoint": directory.url(), "secretRef": { "name": "ann" } });
    flux.apply(&BUCKET, NAME, spec(&server, json!({ "sts": sts }))).await;
    let object = flux.not_ready(&BUCKET, NAME, "AuthenticationFailed").await;
    assert!(ready(&object).2.contains("LDAP says no") && !object["status"].to_string().contains("wrong"));
    secret(cluster, &flux, "ann", "Opaque", &[("username", "ann"), ("password", "s3cret&")]).await;
    flux.ready(&BUCKET, NAME).await;
    secret(cluster, &flux, "half", "Opaque", &[("username", "ann")]).await;
    let sts = json!({ "provider": "ldap", "endpoint": directory.url(), "secretRef": { "name": "half" } });
    flux.apply(&BUCKET, "half", spec(&server, json!({ "sts": sts }))).await;
    let object = flux.not_ready(&BUCKET, "half", "AuthenticationFailed").await;
    assert!(ready(&object).2.contains("required fields username, password"), "{}", ready(&object).2);
}

async fn an_account_without_the_gate_is_refused_by_name(cluster: &Cluster) {
    let server = BucketServer::start().unwrap();
    let flux = start(cluster).await;
    let account = json!({ "provider": "aws", "serviceAccountName": "fleet" });
    flux.apply(&BUCKET, "gated", spec(&server, account)).await;
    let object = flux.not_ready(&BUCKET, "gated", "FeatureGateDisabled").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "FeatureGateDisabled")));
}

async fn a_suspended_bucket_waits_and_a_deleted_one_leaves_nothing(cluster: &Cluster) {
    let server = BucketServer::start().unwrap();
    fill(&server);
    let flux = start(cluster).await;
    flux.apply(&BUCKET, NAME, spec(&server, json!({ "suspend": true }))).await;
    let object = reconciled(&flux, &BUCKET, NAME).await;
    assert!(object.pointer("/status/artifact").is_none() && server.http().requests().is_empty());
    flux.apply(&BUCKET, NAME, spec(&server, json!({ "suspend": false }))).await;
    let object = flux.ready(&BUCKET, NAME).await;
    let path = flux.storage().join(object["status"]["artifact"]["path"].as_str().unwrap());
    assert!(path.exists());
    flux.api(&BUCKET).delete(NAME, &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&BUCKET), NAME).await.unwrap();
    assert!(!path.exists());
}
