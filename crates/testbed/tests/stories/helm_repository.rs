//! HelmRepository: from an index somewhere to one that HelmCharts can look things up in.

use flux_api::kinds::{Controller, HELM_REPOSITORY};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;
use testbed::fault::{Fault, Times};
use testbed::http_server::Security;
use testbed::registry::digest;
use testbed::tls::Authority;

use crate::flux::{Flux, ready};
use crate::sources::{artifact, bytes, condition, reconciled, revision, secret};

crate::stories!(
    an_index_becomes_an_artifact_and_a_new_chart_replaces_it,
    a_repository_with_a_password_follows_its_rotation,
    a_repository_behind_mutual_tls,
    a_broken_index_leaves_the_last_one_in_place,
    a_repository_that_is_a_registry_is_left_alone,
    an_address_that_cannot_be_is_not_tried_again,
    a_suspended_repository_waits_and_a_deleted_one_leaves_nothing,
);

const NAME: &str = "charts";

async fn start(cluster: &Cluster, repository: &ChartRepository) -> Flux {
    repository.add(&Chart::new("app", "1.0.0")).unwrap();
    Flux::start(cluster, &[Controller::Source]).await
}

fn spec(repository: &ChartRepository) -> Value {
    json!({ "url": repository.url(), "interval": "1h" })
}

async fn an_index_becomes_an_artifact_and_a_new_chart_replaces_it(cluster: &Cluster) {
    let repository = ChartRepository::start().unwrap();
    let flux = start(cluster, &repository).await;
    flux.apply(&HELM_REPOSITORY, NAME, spec(&repository)).await;
    let object = flux.ready(&HELM_REPOSITORY, NAME).await;
    let first = digest(&repository.index());
    assert_eq!(revision(&object), first);
    assert_eq!(
        ready(&object),
        ("True", "Succeeded", format!("stored artifact: revision '{first}'").as_str())
    );
    let path = object["status"]["artifact"]["path"].as_str().unwrap();
    assert!(path.ends_with(&format!("/index-{}.yaml", first.trim_start_matches("sha256:"))), "{path}");
    let index: Value = serde_json::from_slice(&artifact(&object).await).unwrap();
    assert_eq!(index["entries"]["app"][0]["version"], "1.0.0");
    assert!(object["status"]["url"].as_str().unwrap().ends_with("/index.yaml"));
    assert_eq!(bytes(&object["status"]["url"]).await, artifact(&object).await);

    flux.event(NAME, "NewArtifact", &format!("B from '{}'", repository.url())).await;
    flux.event(NAME, "NewArtifact", "stored fetched index of size ").await;

    // Nothing new: the repository is asked, and answers without an index.
    let same = reconciled(&flux, &HELM_REPOSITORY, NAME).await;
    assert_eq!(same["status"]["artifact"], object["status"]["artifact"]);
    assert_eq!(repository.http().requests().last().and_then(|request| request.status), Some(304));

    repository.add(&Chart::new("app", "2.0.0")).unwrap();
    let object = reconciled(&flux, &HELM_REPOSITORY, NAME).await;
    assert_eq!(revision(&object), digest(&repository.index()));
    let index: Value = serde_json::from_slice(&artifact(&object).await).unwrap();
    assert_eq!(index["entries"]["app"][0]["version"], "2.0.0");
}

async fn a_repository_with_a_password_follows_its_rotation(cluster: &Cluster) {
    let repository = ChartRepository::start_with(Some(("user", "first")), Security::Plain).unwrap();
    let flux = start(cluster, &repository).await;
    let mut wanted = spec(&repository);
    wanted["secretRef"] = json!({ "name": "login" });
    flux.apply(&HELM_REPOSITORY, NAME, wanted).await;
    let object = flux.not_ready(&HELM_REPOSITORY, NAME, "AuthenticationFailed").await;
    let missing = format!(
        "failed to get authentication secret '{}/login': secrets \"login\" not found",
        flux.namespace.name()
    );
    assert_eq!(ready(&object).2, missing);
    secret(cluster, &flux, "login", "Opaque", &[("username", "user"), ("password", "first")]).await;
    let before = flux.ready(&HELM_REPOSITORY, NAME).await;

    repository.set_account("user", "second");
    let object = reconciled(&flux, &HELM_REPOSITORY, NAME).await;
    assert_eq!(ready(&object).1, "Failed");
    assert!(
        ready(&object).2.contains("401 Unauthorized") && !ready(&object).2.contains("first"),
        "{}",
        ready(&object).2
    );
    assert_eq!(condition(&object, "FetchFailed"), Some(("True", "Failed")));
    assert_eq!(object["status"]["artifact"], before["status"]["artifact"]);
    secret(cluster, &flux, "login", "Opaque", &[("username", "user"), ("password", "second")]).await;
    flux.ready(&HELM_REPOSITORY, NAME).await;
}

async fn a_repository_behind_mutual_tls(cluster: &Cluster) {
    let authority = Authority::new("story").unwrap();
    let repository = ChartRepository::start_with(None, Security::MutualTls(&authority)).unwrap();
    let flux = start(cluster, &repository).await;
    let pair = authority.client("flux", &[]).unwrap();
    let mut wanted = spec(&repository);
    wanted["certSecretRef"] = json!({ "name": "tls" });
    secret(cluster, &flux, "tls", "Opaque", &[("ca.crt", authority.certificate())]).await;
    flux.apply(&HELM_REPOSITORY, NAME, wanted).await;
    flux.not_ready(&HELM_REPOSITORY, NAME, "Failed").await;
    let whole = [("ca.crt", authority.certificate()), ("tls.crt", &pair.certificate), ("tls.key", &pair.key)];
    secret(cluster, &flux, "tls", "Opaque", &whole).await;
    flux.ready(&HELM_REPOSITORY, NAME).await;
}

async fn a_broken_index_leaves_the_last_one_in_place(cluster: &Cluster) {
    let repository = ChartRepository::start().unwrap();
    let flux = start(cluster, &repository).await;
    flux.apply(&HELM_REPOSITORY, NAME, spec(&repository)).await;
    let before = flux.ready(&HELM_REPOSITORY, NAME).await;

    repository.add(&Chart::new("app", "2.0.0")).unwrap();
    repository.http().faults().inject("index.yaml", Times::Always, Fault::CutAfter(40));
    let object = reconciled(&flux, &HELM_REPOSITORY, NAME).await;
    assert_eq!(ready(&object).1, "Failed", "{object}");
    assert_eq!(object["status"]["artifact"], before["status"]["artifact"]);
    repository.http().faults().clear();

    repository.set_index("apiVersion: v1\nentries:\n  app:\n  - name: [\n");
    let object = flux.not_ready(&HELM_REPOSITORY, NAME, "IndexationFailed").await;
    assert_eq!(object["status"]["artifact"], before["status"]["artifact"]);
    // Entries that are no charts are left out; the rest is an index all the same.
    repository.set_index("apiVersion: v1\nentries:\n  app:\n  - name: app\n    version: 3.0.0\n  - name: ../app\n    version: 1.0.0\n");
    let object = flux.ready(&HELM_REPOSITORY, NAME).await;
    let index: Value = serde_json::from_slice(&artifact(&object).await).unwrap();
    assert_eq!(index["entries"]["app"].as_array().map(Vec::len), Some(1));
}

async fn a_repository_that_is_a_registry_is_left_alone(cluster: &Cluster) {
    let repository = ChartRepository::start().unwrap();
    let flux = start(cluster, &repository).await;
    flux.apply(&HELM_REPOSITORY, NAME, spec(&repository)).await;
    let object = flux.ready(&HELM_REPOSITORY, NAME).await;
    let path = flux.storage().join(object["status"]["artifact"]["path"].as_str().unwrap());
    let wanted = json!({ "url": "oci://registry.example.com/charts", "type": "oci", "interval": "1h" });
    flux.apply(&HELM_REPOSITORY, NAME, wanted).await;
    let object = flux
        .until(&HELM_REPOSITORY, NAME, "is static", |object| {
            object.pointer("/status/conditions").is_none() && object.pointer("/metadata/finalizers").is_none()
        })
        .await;
    assert!(object.pointer("/status/artifact").is_none());
    assert!(!path.exists());
}

async fn an_address_that_cannot_be_is_not_tried_again(cluster: &Cluster) {
    let repository = ChartRepository::start().unwrap();
    let flux = start(cluster, &repository).await;
    let wanted = json!({ "url": "oci://registry.example.com/charts", "interval": "1h" });
    flux.apply(&HELM_REPOSITORY, NAME, wanted).await;
    let object = flux.not_ready(&HELM_REPOSITORY, NAME, "URLInvalid").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "URLInvalid")));
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
    let text =
        "invalid Helm repository URL: 'oci' URL scheme cannot be used with 'default' HelmRepository type";
    assert_eq!(ready(&object).2, text);
}

async fn a_suspended_repository_waits_and_a_deleted_one_leaves_nothing(cluster: &Cluster) {
    let repository = ChartRepository::start().unwrap();
    let flux = start(cluster, &repository).await;
    let mut wanted = spec(&repository);
    wanted["suspend"] = json!(true);
    flux.apply(&HELM_REPOSITORY, NAME, wanted).await;
    let object = reconciled(&flux, &HELM_REPOSITORY, NAME).await;
    assert!(object.pointer("/status/artifact").is_none() && repository.http().requests().is_empty());
    flux.apply(&HELM_REPOSITORY, NAME, spec(&repository)).await;
    let object = flux.ready(&HELM_REPOSITORY, NAME).await;
    let path = flux.storage().join(object["status"]["artifact"]["path"].as_str().unwrap());
    assert!(path.exists());
    flux.api(&HELM_REPOSITORY).delete(NAME, &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&HELM_REPOSITORY), NAME).await.unwrap();
    assert!(!path.exists());
}
