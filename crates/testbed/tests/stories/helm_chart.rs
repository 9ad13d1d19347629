//! HelmChart: charts from repositories, registries and sources.

use flux_api::kinds::{Controller, HELM_CHART, HELM_REPOSITORY};
use flux_remote::helm_repository::normalize;
use helm::{Chart as Loaded, Dialect, Limits};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;
use testbed::http_server::Security;
use testbed::reference::{self, Tool};
use testbed::registry::Registry;

use crate::flux::{Flux, ready};
use crate::sources::{artifact, bytes, condition, pull_secret, reconciled, revision, secret, signed};

crate::stories!(
    a_chart_is_stored_as_it_was_published_and_follows_its_repository,
    values_files_are_merged_into_the_chart,
    a_version_that_does_not_exist_waits_for_the_index,
    a_chart_waits_for_its_source,
    credentials_stay_with_the_repository_they_are_for,
    a_chart_in_git_is_packaged_with_its_dependencies,
    a_chart_that_helm_pushed_is_found_by_its_range,
    a_registry_that_refuses_the_login_is_reported,
    only_a_signed_chart_is_served,
);

async fn start(cluster: &Cluster) -> Flux {
    Flux::start(cluster, &[Controller::Source]).await
}

async fn repository(flux: &Flux, repository: &ChartRepository, more: Value) {
    let mut spec = json!({ "url": repository.url(), "interval": "1h" });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    flux.apply(&HELM_REPOSITORY, "charts", spec).await;
}

fn chart(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "chart": name, "interval": "1h", "sourceRef": { "kind": "HelmRepository", "name": "charts" },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec
}

async fn loaded(object: &Value) -> Loaded {
    Loaded::from_archive(&artifact(object).await, Limits::default(), Dialect::Helm4).unwrap()
}

fn app(version: &str) -> Chart {
    Chart::new("app", version).file("values.yaml", "a: 1\n").file("values-prod.yaml", "a: 2\n")
}

async fn a_chart_is_stored_as_it_was_published_and_follows_its_repository(cluster: &Cluster) {
    let server = ChartRepository::start().unwrap();
    server.add(&app("1.0.0")).unwrap();
    let flux = start(cluster).await;
    repository(&flux, &server, json!({})).await;
    flux.apply(&HELM_CHART, "app", chart("app", json!({ "version": "1.x" }))).await;
    let object = flux.ready(&HELM_CHART, "app").await;
    assert_eq!(ready(&object), ("True", "ChartPullSucceeded", "pulled 'app' chart with version '1.0.0'"));
    assert_eq!(revision(&object), "1.0.0");
    assert_eq!(artifact(&object).await, app("1.0.0").package().unwrap());
    assert_eq!(object["status"]["observedChartName"], "app");
    assert!(object["status"]["artifact"]["path"].as_str().unwrap().ends_with("/app-1.0.0.tgz"));
    assert!(object["status"]["url"].as_str().unwrap().ends_with("/latest.tar.gz"));
    assert_eq!(bytes(&object["status"]["url"]).await, artifact(&object).await);

    server.add(&app("1.1.0")).unwrap();
    server.add(&app("2.0.0")).unwrap();
    flux.reconcile(&HELM_REPOSITORY, "charts").await;
    // Nobody asks the chart: the new index wakes it.
    flux.until(&HELM_CHART, "app", "has the new version", |object| revision(object) == "1.1.0").await;
}

async fn values_files_are_merged_into_the_chart(cluster: &Cluster) {
    let server = ChartRepository::start().unwrap();
    server.add(&app("1.0.0")).unwrap();
    let flux = start(cluster).await;
    repository(&flux, &server, json!({})).await;
    let wanted = chart("app", json!({ "valuesFiles": ["values.yaml", "values-prod.yaml", "nope.yaml"] }));
    flux.apply(&HELM_CHART, "app", wanted.clone()).await;
    let object = flux.not_ready(&HELM_CHART, "app", "ValuesFilesError").await;
    assert_eq!(
        ready(&object).2,
        "values files merge error: failed to merge chart values: no values file found at path 'nope.yaml'"
    );
    assert_eq!(condition(&object, "Stalled"), Some(("True", "ValuesFilesError")));
    assert_eq!(condition(&object, "BuildFailed"), Some(("True", "ValuesFilesError")));

    let mut wanted = wanted;
    wanted["ignoreMissingValuesFiles"] = json!(true);
    flux.apply(&HELM_CHART, "app", wanted).await;
    let object = flux.ready(&HELM_CHART, "app").await;
    let generation = object["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(revision(&object), format!("1.0.0+{generation}"));
    assert_eq!(object["status"]["observedValuesFiles"], json!(["values.yaml", "values-prod.yaml"]));
    let text = format!(
        "packaged 'app' chart with version '1.0.0+{generation}' and merged values files [values.yaml values-prod.yaml]"
    );
    assert_eq!(ready(&object), ("True", "ChartPackageSucceeded", text.as_str()));
    assert_eq!(loaded(&object).await.values.unwrap()["a"], json!(2.0));
    let same = reconciled(&flux, &HELM_CHART, "app").await;
    assert_eq!(same["status"]["artifact"], object["status"]["artifact"]);
}

async fn a_version_that_does_not_exist_waits_for_the_index(cluster: &Cluster) {
    let server = ChartRepository::start().unwrap();
    server.add(&app("1.0.0")).unwrap();
    let flux = start(cluster).await;
    repository(&flux, &server, json!({})).await;
    flux.apply(&HELM_CHART, "app", chart("app", json!({ "version": "2.x" }))).await;
    let object = flux.not_ready(&HELM_CHART, "app", "InvalidChartReference").await;
    assert_eq!(
        ready(&object).2,
        "invalid chart reference: failed to get chart version for remote reference: no 'app' chart with version matching '2.x' found"
    );
    assert_eq!(condition(&object, "Stalled"), Some(("True", "InvalidChartReference")));
    server.add(&app("2.1.0")).unwrap();
    flux.reconcile(&HELM_REPOSITORY, "charts").await;
    let object = flux.ready(&HELM_CHART, "app").await;
    assert_eq!(revision(&object), "2.1.0");
    assert_eq!(condition(&object, "Stalled"), None);
}

async fn a_chart_waits_for_its_source(cluster: &Cluster) {
    let server = ChartRepository::start().unwrap();
    server.add(&app("1.0.0")).unwrap();
    let flux = start(cluster).await;
    flux.apply(&HELM_CHART, "app", chart("app", json!({}))).await;
    let object = flux.not_ready(&HELM_CHART, "app", "SourceUnavailable").await;
    assert_eq!(
        ready(&object).2,
        "failed to get source: helmrepositories.source.toolkit.fluxcd.io \"charts\" not found"
    );
    repository(&flux, &server, json!({ "suspend": true })).await;
    let object = flux.not_ready(&HELM_CHART, "app", "NoSourceArtifact").await;
    assert_eq!(ready(&object).2, "no artifact available for HelmRepository source 'charts'");
    repository(&flux, &server, json!({ "suspend": false })).await;
    flux.ready(&HELM_CHART, "app").await;
}

async fn credentials_stay_with_the_repository_they_are_for(cluster: &Cluster) {
    let server = ChartRepository::start_with(Some(("user", "canary")), Security::Plain).unwrap();
    let elsewhere = ChartRepository::start_with(Some(("user", "canary")), Security::Plain).unwrap();
    server.add(&app("1.0.0")).unwrap();
    elsewhere.add(&app("1.0.0")).unwrap();
    server.set_chart_base(&normalize(&elsewhere.url()).unwrap());
    let flux = start(cluster).await;
    secret(cluster, &flux, "login", "Opaque", &[("username", "user"), ("password", "canary")]).await;
    repository(&flux, &server, json!({ "secretRef": { "name": "login" } })).await;
    flux.apply(&HELM_CHART, "app", chart("app", json!({}))).await;
    let object = flux.not_ready(&HELM_CHART, "app", "Unknown").await;
    let start_of = "unknown build error: failed to authenticate with the Helm repository: chart pull error:";
    assert!(ready(&object).2.starts_with(start_of), "{}", ready(&object).2);
    assert!(!object.to_string().contains("canary"));
    repository(&flux, &server, json!({ "secretRef": { "name": "login" }, "passCredentials": true })).await;
    flux.ready(&HELM_CHART, "app").await;
}

async fn a_chart_in_git_is_packaged_with_its_dependencies(cluster: &Cluster) {
    let server = ChartRepository::start().unwrap();
    server.add(&Chart::new("far", "0.3.0").file("values.yaml", "far: true\n")).unwrap();
    let flux = start(cluster).await;
    let metadata = format!(
        "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n- {{name: lib, version: 1.x, repository: 'file://../lib'}}\n- {{name: far, version: '*', repository: '{}'}}\n",
        server.url()
    );
    flux.fleet
        .commit(
            "charts",
            &[
                ("charts/app/Chart.yaml", metadata.as_str()),
                ("charts/app/values.yaml", "a: 1\n"),
                ("charts/app/templates/x.yaml", "x: 1\n"),
                ("charts/lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 1.5.0\n"),
                ("env/prod.yaml", "a: 3\n"),
            ],
        )
        .unwrap();
    flux.git_repository("fleet").await;
    let wanted = chart(
        "./charts/app",
        json!({
            "sourceRef": { "kind": "GitRepository", "name": "fleet" },
            "reconcileStrategy": "Revision", "valuesFiles": ["env/prod.yaml"],
        }),
    );
    flux.apply(&HELM_CHART, "app", wanted).await;
    let object = flux.ready(&HELM_CHART, "app").await;
    let commit = flux.fleet.resolve("main").unwrap();
    let generation = object["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(revision(&object), format!("1.0.0+{}.{generation}", &commit[..12]));
    let found = loaded(&object).await;
    let mut names: Vec<&str> = found.subcharts.iter().map(Loaded::name).collect();
    names.sort_unstable();
    assert_eq!(names, ["far", "lib"]);
    assert_eq!(found.values.unwrap()["a"], json!(3.0));

    let second = flux.fleet.commit("more", &[("charts/app/templates/y.yaml", "y: 1\n")]).unwrap();
    flux.reconcile(&flux_api::kinds::GIT_REPOSITORY, "fleet").await;
    let wanted = format!("1.0.0+{}.{generation}", &second[..12]);
    flux.until(&HELM_CHART, "app", "follows the commit", |object| revision(object) == wanted).await;
}

async fn a_chart_that_helm_pushed_is_found_by_its_range(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let helm = reference::binary(Tool::Helm4, "helm").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for version in ["1.0.0", "1.2.0+build.5", "2.0.0"] {
        let source = folder.path().join(version).join("app");
        std::fs::create_dir_all(source.join("templates")).unwrap();
        let metadata = format!("apiVersion: v2\nname: app\nversion: {version}\n");
        std::fs::write(source.join("Chart.yaml"), metadata).unwrap();
        std::fs::write(source.join("values.yaml"), "a: 1\n").unwrap();
        let run = |arguments: &[&str]| {
            let output = std::process::Command::new(&helm)
                .args(arguments)
                .current_dir(folder.path())
                .env("HOME", folder.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        run(&["package", source.to_str().unwrap()]);
        run(&[
            "push",
            &format!("app-{version}.tgz"),
            &format!("oci://{}/charts", registry.host()),
            "--plain-http",
        ]);
    }
    let flux = start(cluster).await;
    let url = format!("oci://{}/charts", registry.host());
    flux.apply(&HELM_REPOSITORY, "charts", json!({ "url": url, "type": "oci", "insecure": true })).await;
    flux.apply(&HELM_CHART, "app", chart("app", json!({ "version": "^1.0.0" }))).await;
    let object = flux.ready(&HELM_CHART, "app").await;
    assert_eq!(revision(&object), "1.2.0+build.5");
    assert_eq!(artifact(&object).await, std::fs::read(folder.path().join("app-1.2.0+build.5.tgz")).unwrap());
    assert_eq!(loaded(&object).await.metadata.version, "1.2.0+build.5");
    // A version that is spelled out needs no list of tags.
    let before = registry.http().requests().len();
    flux.apply(&HELM_CHART, "exact", chart("app", json!({ "version": "1.0.0" }))).await;
    flux.ready(&HELM_CHART, "exact").await;
    assert!(registry.http().requests()[before..].iter().all(|request| !request.path.contains("tags/list")));
}

async fn a_registry_that_refuses_the_login_is_reported(cluster: &Cluster) {
    use testbed::registry::{Access, Options};
    let access = Access::Basic { user: "user".to_owned(), password: "right".to_owned() };
    let registry = Registry::start_with(Options { access, ..Options::default() }, Security::Plain).unwrap();
    let flux = start(cluster).await;
    let url = format!("oci://{}/charts", registry.host());
    let spec = json!({ "url": url, "type": "oci", "insecure": true, "secretRef": { "name": "login" } });
    flux.apply(&HELM_REPOSITORY, "charts", spec).await;
    pull_secret(cluster, &flux, "login", &registry.host(), "user", "canary").await;
    flux.apply(&HELM_CHART, "app", chart("app", json!({}))).await;
    let object = flux.not_ready(&HELM_CHART, "app", "Unknown").await;
    assert!(
        ready(&object).2.contains("failed to authenticate with the Helm repository"),
        "{}",
        ready(&object).2
    );
    assert!(!object.to_string().contains("canary"));
}

async fn only_a_signed_chart_is_served(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    signed::chart(&registry, "charts/app").await;
    let flux = start(cluster).await;
    let url = format!("oci://{}/charts", registry.host());
    flux.apply(&HELM_REPOSITORY, "charts", json!({ "url": url, "type": "oci", "insecure": true })).await;
    secret(cluster, &flux, "keys", "Opaque", &[("cosign.pub", signed::KEY)]).await;
    let verify = json!({ "verify": { "provider": "cosign", "secretRef": { "name": "keys" } } });
    flux.apply(&HELM_CHART, "app", chart("app", verify)).await;
    let object = flux.not_ready(&HELM_CHART, "app", "VerificationError").await;
    let place = format!("{}/charts/app:1.0.0", registry.host());
    let text = format!(
        "chart verification error: failed to verify oci://{place}: no matching signatures were found for '{place}'"
    );
    assert_eq!(ready(&object).2, text);
    assert_eq!(condition(&object, "BuildFailed"), Some(("True", "ChartVerificationError")));
    assert_eq!(condition(&object, "SourceVerified"), Some(("False", "VerificationError")));
    assert!(object.pointer("/status/artifact").is_none());
    signed::chart_bundle(&registry, "charts/app").await;
    let object = flux.ready(&HELM_CHART, "app").await;
    assert_eq!(condition(&object, "SourceVerified"), Some(("True", "Succeeded")));
    assert_eq!(artifact(&object).await, signed::CHART);
}
