//! ImageRepository and ImagePolicy: from the tags of a registry to the newest image.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use flux_api::kinds::{Controller, IMAGE_POLICY, IMAGE_REPOSITORY};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::fault::{Fault, Times};
use testbed::http_server::{HttpServer, Security};
use testbed::registry::{Access, Artifact, Blob, Options, Registry};
use testbed::tls::Authority;

use crate::flux::{Flux, condition, ready};
use crate::sources::{pull_secret, reconciled, secret, service_account};

crate::stories!(
    tags_are_scanned_and_every_policy_picks_its_newest,
    the_versions_before_v1_still_work,
    tags_outlive_a_restart_and_are_found_again_when_lost,
    every_login_opens_a_registry_and_a_wrong_one_is_named,
    what_cannot_work_says_why,
    a_policy_reaches_into_another_namespace_only_where_it_may,
    digests_are_looked_up_once_or_always,
    a_registry_that_stumbles_is_asked_again,
    a_hostile_registry_is_bounded_and_reported,
    a_suspended_repository_rests_and_a_deleted_one_leaves_nothing,
    a_registry_behind_a_proxy_is_scanned_in_the_clear_where_that_is_said,
);

async fn start(cluster: &Cluster) -> Flux {
    Flux::start(cluster, &[Controller::ImageReflector]).await
}

pub fn push(registry: &Registry, tag: &str) -> String {
    let artifact = Artifact {
        config: Blob { media_type: "application/vnd.oci.image.config.v1+json", bytes: tag.as_bytes() },
        layers: &[],
        annotations: &[],
    };
    registry.put("org/app", tag, &artifact).unwrap()
}

fn image(registry: &Registry) -> String {
    format!("{}/org/app", registry.host())
}

fn repository(registry: &Registry, more: Value) -> Value {
    let mut spec = json!({ "image": image(registry), "interval": "1h" });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn policy(choice: Value, more: Value) -> Value {
    let mut spec = json!({ "imageRepositoryRef": { "name": "app" }, "policy": choice });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn semver(range: &str) -> Value {
    json!({ "semver": { "range": range } })
}

async fn picked(flux: &Flux, name: &str, tag: &str) -> Value {
    let what = format!("picks {tag}");
    flux.until(&IMAGE_POLICY, name, &what, |object| {
        object["status"]["latestRef"]["tag"] == tag && ready(object).0 == "True"
    })
    .await
}

async fn tags_are_scanned_and_every_policy_picks_its_newest(cluster: &Cluster) {
    // Pages of three: the newest is not on the first.
    let options = Options { page_size: 3, ..Options::default() };
    let registry = Registry::start_with(options, Security::Plain).unwrap();
    for tag in
        ["1.0.0", "v1.10.0", "1.9.0", "2.0.0-rc.1", "main-abc-9", "main-def-10", "sha256-x.sig", "latest"]
    {
        push(&registry, tag);
    }
    let flux = start(cluster).await;
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, json!({}))).await;
    let scanned = flux.ready(&IMAGE_REPOSITORY, "app").await;
    let result = &scanned["status"]["lastScanResult"];
    assert_eq!(result["tagCount"], 7);
    let newest = ["v1.10.0", "main-def-10", "main-abc-9", "latest", "2.0.0-rc.1", "1.9.0", "1.0.0"];
    assert_eq!(result["latestTags"], json!(newest));
    let revision = result["revision"].as_str().unwrap();
    assert!(revision.bytes().all(|byte| byte.is_ascii_digit()), "{revision}");
    let message = format!("successful scan: found 7 tags with checksum {revision}");
    assert_eq!(ready(&scanned), ("True", "Succeeded", message.as_str()));
    assert_eq!(scanned["status"]["canonicalImageName"], image(&registry));
    assert_eq!(scanned["status"]["observedExclusionList"], json!([r"^.*\.sig$"]));
    assert_eq!(scanned["status"]["observedGeneration"], scanned["metadata"]["generation"]);
    assert_eq!(scanned["metadata"]["finalizers"], json!(["finalizers.fluxcd.io"]));
    flux.event("app", "Succeeded", &message).await;

    let build = json!({ "pattern": "^main-[a-f0-9]+-(?P<n>[0-9]+)$", "extract": "$n" });
    let numerical = json!({ "numerical": { "order": "asc" } });
    flux.apply(&IMAGE_POLICY, "range", policy(semver("1.x"), json!({}))).await;
    flux.apply(&IMAGE_POLICY, "candidates", policy(semver(">=2.0.0-0"), json!({}))).await;
    flux.apply(&IMAGE_POLICY, "builds", policy(numerical.clone(), json!({ "filterTags": build }))).await;
    let text = json!({ "alphabetical": { "order": "desc" } });
    flux.apply(&IMAGE_POLICY, "text", policy(text, json!({}))).await;
    picked(&flux, "candidates", "2.0.0-rc.1").await;
    picked(&flux, "builds", "main-def-10").await;
    picked(&flux, "text", "1.0.0").await;
    let first = picked(&flux, "range", "v1.10.0").await;
    assert_eq!(first["status"]["latestRef"], json!({ "name": image(&registry), "tag": "v1.10.0" }));
    let message = format!("Latest image tag for {} resolved to v1.10.0", image(&registry));
    assert_eq!(ready(&first).2, message);

    // A new tag reaches the policy within one scan.
    push(&registry, "1.11.0");
    reconciled(&flux, &IMAGE_REPOSITORY, "app").await;
    let second = picked(&flux, "range", "1.11.0").await;
    let message =
        format!("Latest image tag for {0} resolved to 1.11.0 (previously {0}:v1.10.0)", image(&registry));
    assert_eq!(ready(&second).2, message);
    assert_eq!(second["status"]["observedPreviousRef"]["tag"], "v1.10.0");
    flux.event("range", "Succeeded", &message).await;

    // Another exclusion list is reason enough to scan again.
    let exclusions = json!({ "exclusionList": ["^1\\.11", "^latest$"] });
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, exclusions)).await;
    picked(&flux, "range", "v1.10.0").await;
}

async fn the_versions_before_v1_still_work(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "1.0.0");
    let flux = start(cluster).await;
    for (kind, name, spec) in [
        (&IMAGE_REPOSITORY, "app", repository(&registry, json!({}))),
        (&IMAGE_POLICY, "range", policy(semver("1.x"), json!({}))),
    ] {
        let mut resource = flux_controllers::reconcile::resource(kind);
        (resource.version, resource.api_version) = ("v1beta2".into(), format!("{}/v1beta2", kind.group));
        let api: Api<DynamicObject> =
            Api::namespaced_with(cluster.client(), flux.namespace.name(), &resource);
        let object = json!({
            "apiVersion": resource.api_version, "kind": kind.kind,
            "metadata": { "name": name, "namespace": flux.namespace.name() }, "spec": spec,
        });
        api.patch(name, &PatchParams::apply("story").force(), &Patch::Apply(object)).await.unwrap();
    }
    picked(&flux, "range", "1.0.0").await;
}

async fn tags_outlive_a_restart_and_are_found_again_when_lost(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "1.0.0");
    let mut flux = start(cluster).await;
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, json!({}))).await;
    flux.ready(&IMAGE_REPOSITORY, "app").await;
    flux.stop().await;
    let scans = || registry.http().requests().iter().filter(|one| one.path.contains("/tags/list")).count();
    let before = scans();
    flux.resume().await;
    flux.apply(&IMAGE_POLICY, "range", policy(semver("*"), json!({}))).await;
    picked(&flux, "range", "1.0.0").await;
    assert_eq!(scans(), before, "the interval is not over and the tags are there");
    flux.stop().await;
    std::fs::remove_dir_all(flux.storage().join("imagerepository")).unwrap();
    flux.resume().await;
    flux.apply(&IMAGE_POLICY, "late", policy(semver("*"), json!({}))).await;
    picked(&flux, "late", "1.0.0").await;
    assert_eq!(scans(), before + 1);
}

async fn every_login_opens_a_registry_and_a_wrong_one_is_named(cluster: &Cluster) {
    let access = Access::Token { user: "ann".into(), password: "secret".into(), anonymous_pull: false };
    let options = Options { access, ..Options::default() };
    let closed = Registry::start_with(options.clone(), Security::Plain).unwrap();
    let authority = Authority::new("registry").unwrap();
    let basic =
        Options { access: Access::Basic { user: "ann".into(), password: "secret".into() }, ..options };
    let mutual = Registry::start_with(basic, Security::MutualTls(&authority)).unwrap();
    for registry in [&closed, &mutual] {
        push(registry, "1.0.0");
    }
    let flux = start(cluster).await;
    let pair = authority.client("ann", &[]).unwrap();
    pull_secret(cluster, &flux, "good", &closed.host(), "ann", "secret").await;
    pull_secret(cluster, &flux, "wrong", &closed.host(), "ann", "canary").await;
    pull_secret(cluster, &flux, "for-mutual", &mutual.host(), "ann", "secret").await;
    service_account(cluster, &flux, "puller", "good").await;
    let tls = [("ca.crt", authority.certificate()), ("tls.crt", &pair.certificate), ("tls.key", &pair.key)];
    secret(cluster, &flux, "certificates", "Opaque", &tls).await;
    let named = |name: &str| json!({ "secretRef": { "name": name } });
    let with_tls =
        json!({ "secretRef": { "name": "for-mutual" }, "certSecretRef": { "name": "certificates" } });
    flux.apply(&IMAGE_REPOSITORY, "secret", repository(&closed, named("good"))).await;
    flux.apply(&IMAGE_REPOSITORY, "account", repository(&closed, json!({ "serviceAccountName": "puller" })))
        .await;
    flux.apply(&IMAGE_REPOSITORY, "mutual", repository(&mutual, with_tls)).await;
    flux.apply(&IMAGE_REPOSITORY, "wrong", repository(&closed, named("wrong"))).await;
    flux.apply(&IMAGE_REPOSITORY, "nobody", repository(&closed, json!({}))).await;
    flux.apply(&IMAGE_REPOSITORY, "missing", repository(&closed, named("missing"))).await;
    let cloud = json!({ "provider": "aws", "serviceAccountName": "puller" });
    flux.apply(&IMAGE_REPOSITORY, "cloud", repository(&closed, cloud)).await;
    for good in ["secret", "account", "mutual"] {
        flux.ready(&IMAGE_REPOSITORY, good).await;
    }
    for bad in ["wrong", "nobody"] {
        let object = flux.not_ready(&IMAGE_REPOSITORY, bad, "ReadOperationFailed").await;
        assert!(ready(&object).2.starts_with("scan failed: "), "{}", ready(&object).2);
        assert!(!object.to_string().contains("canary"), "no credential is shown");
        assert_eq!(condition(&object, "Reconciling").1, "ProgressingWithRetry");
    }
    let object = flux.not_ready(&IMAGE_REPOSITORY, "missing", "AuthenticationFailed").await;
    let message = "failed to configure authentication options: secrets \"missing\" not found";
    assert_eq!(ready(&object).2, message);
    let object = flux.not_ready(&IMAGE_REPOSITORY, "cloud", "FeatureGateDisabled").await;
    assert_eq!(condition(&object, "Stalled").1, "FeatureGateDisabled");
    // The Secret appears: the next try uses it.
    pull_secret(cluster, &flux, "missing", &closed.host(), "ann", "secret").await;
    flux.ready(&IMAGE_REPOSITORY, "missing").await;
}

async fn what_cannot_work_says_why(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "1.0.0");
    push(&registry, "nightly");
    let flux = start(cluster).await;
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, json!({}))).await;
    flux.ready(&IMAGE_REPOSITORY, "app").await;
    let tagged = json!({ "image": format!("{}:v1", image(&registry)), "interval": "1h" });
    flux.apply(&IMAGE_REPOSITORY, "tagged", tagged).await;
    flux.apply(&IMAGE_REPOSITORY, "bad-list", repository(&registry, json!({ "exclusionList": ["("] }))).await;
    let object = flux.not_ready(&IMAGE_REPOSITORY, "tagged", "ImageURLInvalid").await;
    assert!(ready(&object).2.ends_with("should not include a tag; remove ':v1'"), "{}", ready(&object).2);
    assert_eq!(condition(&object, "Stalled").0, "True");
    let object = flux.not_ready(&IMAGE_REPOSITORY, "bad-list", "ReadOperationFailed").await;
    assert!(ready(&object).2.starts_with("scan failed: failed to compile regex (: "), "{}", ready(&object).2);

    // What would grow without end is refused, on the object.
    let bomb = "((a{1,1000}){1,1000}){1,1000}";
    flux.apply(&IMAGE_REPOSITORY, "bomb", repository(&registry, json!({ "exclusionList": [bomb] }))).await;
    let object = flux.not_ready(&IMAGE_REPOSITORY, "bomb", "ReadOperationFailed").await;
    assert!(ready(&object).2.contains("failed to compile regex"), "{}", ready(&object).2);

    let to = |name: &str| json!({ "imageRepositoryRef": { "name": name } });
    let bomb = json!({ "filterTags": { "pattern": bomb } });
    let none = json!({ "filterTags": { "pattern": "^never$" } });
    let broken = json!({ "filterTags": { "pattern": "^(" } });
    for (name, spec, reason, text) in [
        (
            "no-rule",
            policy(json!({}), json!({})),
            "InvalidPolicy",
            "given ImagePolicyChoice object is invalid",
        ),
        (
            "bad-range",
            policy(semver("x.y.z.a"), json!({})),
            "InvalidPolicy",
            "invalid policy: improper constraint",
        ),
        (
            "bad-filter",
            policy(semver("*"), broken),
            "InvalidPolicy",
            "failed to filter tags: invalid regular",
        ),
        ("bomb", policy(semver("*"), bomb), "InvalidPolicy", "failed to filter tags: invalid regular"),
        ("no-repo", policy(semver("*"), to("nope")), "DependencyNotReady", "ImageRepository does not exist"),
        ("bad-repo", policy(semver("*"), to("tagged")), "ImageURLInvalid", "should not include a tag"),
        (
            "no-tags",
            policy(semver("*"), to("bad-list")),
            "DependencyNotReady",
            "retrying in 30s error: no tags in database",
        ),
        ("filtered", policy(semver("*"), none), "Failure", "version list argument cannot be empty"),
        ("no-match", policy(semver(">9"), json!({})), "Failure", "unable to determine latest version"),
        (
            "words",
            policy(json!({ "numerical": {} }), json!({})),
            "Failure",
            "failed to parse invalid numeric value 'nightly'",
        ),
    ] {
        flux.apply(&IMAGE_POLICY, name, spec).await;
        let object = flux.not_ready(&IMAGE_POLICY, name, reason).await;
        assert!(ready(&object).2.contains(text), "{name}: {}", ready(&object).2);
        let stalls = matches!(reason, "InvalidPolicy" | "ImageURLInvalid");
        assert_eq!(condition(&object, "Stalled").0 == "True", stalls, "{name}");
    }
    // What a policy waits for wakes it.
    flux.apply(&IMAGE_REPOSITORY, "bad-list", repository(&registry, json!({}))).await;
    picked(&flux, "no-tags", "1.0.0").await;
}

async fn a_policy_reaches_into_another_namespace_only_where_it_may(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "1.0.0");
    // The repositories' own controller, and the policies'.
    let theirs = start(cluster).await;
    let shared = theirs.storage().to_owned();
    let label = json!({ "kubernetes.io/metadata.name": "nobody" });
    let ours = Flux::start_with(cluster, &[Controller::ImageReflector], move |options| {
        options.storage_path = shared.clone();
    })
    .await;
    let own = json!({ "kubernetes.io/metadata.name": ours.namespace.name() });
    let open =
        |labels: &Value| json!({ "accessFrom": { "namespaceSelectors": [{ "matchLabels": labels }] } });
    theirs.apply(&IMAGE_REPOSITORY, "closed", repository(&registry, json!({}))).await;
    theirs.apply(&IMAGE_REPOSITORY, "other", repository(&registry, open(&label))).await;
    theirs.apply(&IMAGE_REPOSITORY, "open", repository(&registry, open(&own))).await;
    let names = ["closed", "other", "open"];
    for name in names {
        theirs.ready(&IMAGE_REPOSITORY, name).await;
    }
    for name in names {
        let reference =
            json!({ "imageRepositoryRef": { "name": name, "namespace": theirs.namespace.name() } });
        ours.apply(&IMAGE_POLICY, name, policy(semver("*"), reference)).await;
    }
    picked(&ours, "open", "1.0.0").await;
    for (name, text) in
        [("closed", "missing ACL labels on 'accessFrom'"), ("other", "ACL labels mismatch on namespace")]
    {
        let object = ours.not_ready(&IMAGE_POLICY, name, "AccessDenied").await;
        assert!(ready(&object).2.contains(text), "{}", ready(&object).2);
        assert_eq!(condition(&object, "Stalled").0, "");
    }
}

async fn digests_are_looked_up_once_or_always(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let first = push(&registry, "1.0.0");
    let flux = start(cluster).await;
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, json!({}))).await;
    let once = json!({ "digestReflectionPolicy": "IfNotPresent" });
    let always = json!({ "digestReflectionPolicy": "Always", "interval": "1s" });
    flux.apply(&IMAGE_POLICY, "once", policy(semver("*"), once)).await;
    flux.apply(&IMAGE_POLICY, "always", policy(semver("*"), always)).await;
    for name in ["once", "always"] {
        let object = picked(&flux, name, "1.0.0").await;
        assert_eq!(object["status"]["latestRef"]["digest"], first.as_str(), "{name}");
        assert!(ready(&object).2.ends_with(&format!("with digest {first}")), "{}", ready(&object).2);
    }
    // The tag moves; the list of tags stays.
    let artifact = Artifact {
        config: Blob { media_type: "application/vnd.oci.image.config.v1+json", bytes: b"moved" },
        layers: &[],
        annotations: &[],
    };
    let second = registry.put("org/app", "1.0.0", &artifact).unwrap();
    let object = flux
        .until(&IMAGE_POLICY, "always", "sees the new digest", |object| {
            object["status"]["latestRef"]["digest"] == second.as_str()
        })
        .await;
    assert_eq!(object["status"]["observedPreviousRef"]["digest"], first.as_str());
    let object = reconciled(&flux, &IMAGE_POLICY, "once").await;
    assert_eq!(object["status"]["latestRef"]["digest"], first.as_str());
    // The API refuses an interval that means nothing.
    let api = flux.api(&IMAGE_POLICY);
    let object = json!({
        "apiVersion": IMAGE_POLICY.api_version(), "kind": IMAGE_POLICY.kind, "metadata": { "name": "bad" },
        "spec": policy(semver("*"), json!({ "interval": "1m" })),
    });
    let error = api.patch("bad", &PatchParams::apply("story"), &Patch::Apply(object)).await.unwrap_err();
    assert!(error.to_string().contains("spec.interval is only accepted when"), "{error}");
}

async fn a_registry_that_stumbles_is_asked_again(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "1.0.0");
    let flux = start(cluster).await;
    for fault in [429, 503, 502] {
        registry.http().faults().inject("/tags/list", Times::Next(1), Fault::Status(fault));
    }
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, json!({}))).await;
    flux.apply(&IMAGE_POLICY, "range", policy(semver("*"), json!({}))).await;
    picked(&flux, "range", "1.0.0").await;
    // Down for good: what was found stays, and the object says so.
    registry.http().faults().inject("/tags/list", Times::Always, Fault::Status(500));
    flux.reconcile(&IMAGE_REPOSITORY, "app").await;
    let object = flux.not_ready(&IMAGE_REPOSITORY, "app", "ReadOperationFailed").await;
    assert_eq!(object["status"]["lastScanResult"]["tagCount"], 1);
    let kept = reconciled(&flux, &IMAGE_POLICY, "range").await;
    assert_eq!(ready(&kept).0, "True");
    registry.http().faults().clear();
    push(&registry, "1.1.0");
    picked(&flux, "range", "1.1.0").await;
    flux.event("app", "ReadOperationFailed", "scan failed: ").await;
}

async fn a_hostile_registry_is_bounded_and_reported(cluster: &Cluster) {
    let many: Vec<String> = (0..600_000).map(|number| format!("t{number}")).collect();
    let many = json!({ "tags": many }).to_string();
    let names = json!({ "tags": [
        "1.0.0", "2.0.0\n9.0.0", "../../../../tmp/x", "", "a b", "3.0.0\u{2028}", "x".repeat(5000), "$(reboot)",
    ] });
    let names = names.to_string();
    let page = |query: Option<String>| {
        let at: u64 = query.and_then(|text| text.rsplit('=').next()?.parse().ok()).unwrap_or_default();
        let link = format!("</v2/org/endless/tags/list?last={}>; rel=\"next\"", at + 1);
        ([("link", link)], r#"{"tags":[]}"#)
    };
    let site = Router::new()
        .route("/v2/", get(|| async { StatusCode::OK }))
        .route("/v2/org/many/tags/list", get(move || async move { many }))
        .route("/v2/org/names/tags/list", get(move || async move { names }))
        .route("/v2/org/nonsense/tags/list", get(|| async { "<html>" }))
        .route(
            "/v2/org/endless/tags/list",
            get(move |uri: axum::http::Uri| async move { page(uri.query().map(str::to_owned)) }),
        );
    let server = HttpServer::start(site, Security::Plain).unwrap();
    let flux = start(cluster).await;
    let spec = |name: &str| json!({ "image": format!("{}/org/{name}", server.address()), "interval": "1h", "timeout": "20s" });
    for name in ["many", "names", "nonsense"] {
        flux.apply(&IMAGE_REPOSITORY, name, spec(name)).await;
    }
    let mut endless = spec("endless");
    endless["timeout"] = json!("2s");
    flux.apply(&IMAGE_REPOSITORY, "endless", endless).await;
    let object = flux.ready(&IMAGE_REPOSITORY, "names").await;
    assert_eq!(object["status"]["lastScanResult"]["latestTags"], json!(["1.0.0"]));
    flux.event("names", "ReadOperationFailed", "left out 7 names that are no tags").await;
    let object = flux.not_ready(&IMAGE_REPOSITORY, "many", "ReadOperationFailed").await;
    assert!(ready(&object).2.contains("has more than 500000 tags"), "{}", ready(&object).2);
    flux.not_ready(&IMAGE_REPOSITORY, "nonsense", "ReadOperationFailed").await;
    let object = flux.not_ready(&IMAGE_REPOSITORY, "endless", "ReadOperationFailed").await;
    assert_eq!(ready(&object).2, "scan failed: context deadline exceeded");
}

async fn a_suspended_repository_rests_and_a_deleted_one_leaves_nothing(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "1.0.0");
    let flux = start(cluster).await;
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, json!({}))).await;
    flux.ready(&IMAGE_REPOSITORY, "app").await;
    flux.apply(&IMAGE_REPOSITORY, "app", repository(&registry, json!({ "suspend": true }))).await;
    push(&registry, "2.0.0");
    let object = reconciled(&flux, &IMAGE_REPOSITORY, "app").await;
    assert_eq!(object["status"]["lastScanResult"]["tagCount"], 1);
    let folder = flux.storage().join("imagerepository").join(flux.namespace.name());
    assert!(folder.join("app/tags.txt").exists());
    flux.api(&IMAGE_REPOSITORY).delete("app", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&IMAGE_REPOSITORY), "app").await.unwrap();
    assert!(!folder.join("app").exists());
}

async fn a_registry_behind_a_proxy_is_scanned_in_the_clear_where_that_is_said(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    push(&registry, "1.0.0");
    let flux = start(cluster).await;
    // Asked for whole addresses, it knows the way to one host only.
    let there = registry.http().url();
    let forward = move |request: axum::extract::Request| {
        let target = format!("{there}{}", request.uri().path_and_query().unwrap());
        async move {
            if request.headers().get("proxy-authorization").is_none() {
                return (StatusCode::PROXY_AUTHENTICATION_REQUIRED, Vec::new());
            }
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let answer = client.get(target).send().await.unwrap();
            (answer.status(), answer.bytes().await.unwrap().to_vec())
        }
    };
    let proxy = HttpServer::start(Router::new().fallback(forward), Security::Plain).unwrap();
    flux.secret("proxy", &[("address", &proxy.url()), ("username", "u"), ("password", "canary")]).await;
    // Nobody but the proxy can resolve this name.
    let spec = |insecure: bool| {
        json!({
            "image": "registry.invalid/org/app", "interval": "1h", "timeout": "5s", "insecure": insecure,
            "proxySecretRef": { "name": "proxy" },
        })
    };
    flux.apply(&IMAGE_REPOSITORY, "clear", spec(true)).await;
    flux.apply(&IMAGE_REPOSITORY, "secure", spec(false)).await;
    let object = flux.ready(&IMAGE_REPOSITORY, "clear").await;
    assert_eq!(object["status"]["lastScanResult"]["latestTags"], json!(["1.0.0"]));
    assert!(!proxy.requests().is_empty());
    // Without being told, nothing is said in the clear: the proxy would have to let TLS through.
    let object = flux.not_ready(&IMAGE_REPOSITORY, "secure", "ReadOperationFailed").await;
    assert!(!object.to_string().contains("canary"), "{object}");
}
