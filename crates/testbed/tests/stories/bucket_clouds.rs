//! Bucket: stores of Google, Azure and Amazon, and everybody who may open them.

use axum::Router;
use flux_api::kinds::{BUCKET, Controller};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::bucket::azure::{self, Admission, AzureServer};
use testbed::bucket::google::{self, GoogleServer};
use testbed::bucket::{BucketServer, Credentials};
use testbed::fault::{Fault, Times};
use testbed::http_server::{HttpServer, Security};

use crate::clouds::at;
use crate::flux::{Flux, ready};
use crate::sources::{files, reconciled, revision, secret};

crate::stories!(
    googles_buckets_open_for_a_key_and_for_the_machine,
    azures_containers_open_for_logins_keys_signatures_and_everybody,
    stores_of_clouds_are_reached_through_a_proxy,
    an_account_of_the_cluster_opens_a_bucket_at_every_cloud,
    an_object_that_names_nobody_is_the_default_account,
    secrets_of_clouds_that_are_wrong_are_named_and_not_shown,
);

/// Nobody uses it but these tests.
const RSA: &str = include_str!("../../../flux-remote/tests/keys/pkcs8-rsa");
const ACCOUNT_KEY: &str = "c2VjcmV0IGtleSBvZiB0aGUgYWNjb3VudA==";
const OPAQUE: &str = "Opaque";

async fn start(cluster: &Cluster, clouds: &HttpServer) -> Flux {
    Flux::start_with(cluster, &[Controller::Source], at(clouds, Controller::Source)).await
}

fn spec(provider: &str, endpoint: &str, more: Value) -> Value {
    let mut spec =
        json!({ "provider": provider, "endpoint": endpoint, "bucketName": "manifests", "interval": "1h" });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn with_secret(name: &str) -> Value {
    json!({ "secretRef": { "name": name } })
}

/// More than a page of the servers holds.
const OBJECTS: [(&str, &[u8]); 5] = [
    (".sourceignore", b"*.md\n"),
    ("apps/a b.yaml", b"a: 1\n"),
    ("apps/deep/c+d.yaml", b"c: 1\n"),
    ("docs/readme.md", b"read me\n"),
    ("folder/", b""),
];

async fn names(object: &Value) -> Vec<String> {
    files(object).await.into_iter().map(|(name, _)| name).collect()
}

const KEPT: [&str; 3] = [".sourceignore", "apps/a b.yaml", "apps/deep/c+d.yaml"];

fn google_key(server: &GoogleServer) -> String {
    let tokens = format!("{}/google-token", server.http().url());
    json!({ "type": "service_account", "client_email": "flux@p.iam", "private_key": RSA, "token_uri": tokens })
        .to_string()
}

async fn googles_buckets_open_for_a_key_and_for_the_machine(cluster: &Cluster) {
    let server = GoogleServer::start(google::MACHINE).unwrap();
    OBJECTS.iter().for_each(|(key, content)| server.put("manifests", key, content));
    let flux = start(cluster, server.http()).await;
    let google = |more: Value| spec("gcp", "storage.googleapis.com", more);
    flux.apply(&BUCKET, "machine", google(json!({}))).await;
    let object = flux.ready(&BUCKET, "machine").await;
    assert_eq!(names(&object).await, KEPT);
    let first = revision(&object).to_owned();
    assert_eq!(ready(&object).2, format!("stored artifact: revision '{first}'"));
    // Nothing changed, nothing is downloaded.
    let downloads = || server.http().requests().iter().filter(|one| one.path.contains("alt=media")).count();
    let before = downloads();
    let same = reconciled(&flux, &BUCKET, "machine").await;
    assert_eq!(same["status"]["artifact"], object["status"]["artifact"]);
    assert_eq!(downloads(), before + 1, "only the file with the rules");
    server.put("manifests", "apps/a b.yaml", b"a: 2\n");
    let object = reconciled(&flux, &BUCKET, "machine").await;
    assert_ne!(revision(&object), first);
    assert_eq!(files(&object).await[1].1, "a: 2\n");
    flux.apply(&BUCKET, "part", google(json!({ "prefix": "docs/", "ignore": "!*.md" }))).await;
    assert_eq!(names(&flux.ready(&BUCKET, "part").await).await, [".sourceignore", "docs/readme.md"]);
    flux.apply(&BUCKET, "none", google(json!({ "bucketName": "none" }))).await;
    let object = flux.not_ready(&BUCKET, "none", "BucketOperationFailed").await;
    assert_eq!(ready(&object).2, "bucket 'none' not found");

    server.admit(google::KEY);
    secret(cluster, &flux, "key", OPAQUE, &[("serviceaccount", &google_key(&server))]).await;
    flux.apply(&BUCKET, "key", google(with_secret("key"))).await;
    flux.ready(&BUCKET, "key").await;
    // The machine's token does no longer count; the artifact stays.
    let object = reconciled(&flux, &BUCKET, "machine").await;
    assert_eq!(
        (ready(&object).1, ready(&object).2),
        (
            "BucketOperationFailed",
            "failed to confirm existence of 'manifests' bucket: googleapi: Error 401: Invalid Credentials, authError"
        )
    );
    assert!(object.pointer("/status/artifact").is_some());
}

async fn azures_containers_open_for_logins_keys_signatures_and_everybody(cluster: &Cluster) {
    let server = AzureServer::start(Admission::Token(azure::PASSWORD)).unwrap();
    OBJECTS.iter().for_each(|(key, content)| server.put("manifests", key, content));
    let flux = start(cluster, server.http()).await;
    let url = server.http().url();
    let certificate = CertificateParams::new(Vec::new())
        .unwrap()
        .self_signed(&KeyPair::from_pem(RSA).unwrap())
        .unwrap()
        .pem();
    let pem = format!("{RSA}{certificate}");
    let ids = [("tenantId", "tenant"), ("clientId", "client")];
    let ways = [
        ("password", Admission::Token(azure::PASSWORD), vec![ids[0], ids[1], ("clientSecret", azure::RIGHT)]),
        (
            "elsewhere",
            Admission::Token(azure::PASSWORD),
            vec![ids[0], ids[1], ("clientSecret", azure::RIGHT), ("authorityHost", url.as_str())],
        ),
        (
            "certificate",
            Admission::Token(azure::STATEMENT),
            vec![ids[0], ids[1], ("clientCertificate", pem.as_str()), ("clientCertificateSendChain", "true")],
        ),
        ("managed", Admission::Token(azure::MACHINE), vec![("clientId", "managed-1")]),
        ("account-key", Admission::Key(ACCOUNT_KEY), vec![("accountKey", ACCOUNT_KEY)]),
        ("signature", Admission::Signature("a/b="), vec![("sasKey", "?sv=2024-01-01&sig=a%2Fb%3D\n")]),
    ];
    let mut revisions = Vec::new();
    for (name, admission, data) in ways {
        server.admit(admission);
        secret(cluster, &flux, name, OPAQUE, &data).await;
        flux.apply(&BUCKET, name, spec("azure", &url, with_secret(name))).await;
        let object = flux.ready(&BUCKET, name).await;
        assert_eq!(names(&object).await, KEPT, "{name}");
        revisions.push(revision(&object).to_owned());
    }
    revisions.dedup();
    assert_eq!(revisions.len(), 1, "whoever looks sees the same");
    let asked = server.asked();
    assert!(asked.iter().any(|(path, _)| path == "/tenant/oauth2/v2.0/token"), "{asked:?}");
    assert!(asked.iter().any(|(path, _)| path.contains("client_id=managed-1")), "{asked:?}");
    assert!(asked.iter().all(|(path, form)| path.contains("resource=https%3A%2F%2Fstorage.azure.com")
        || form.contains("scope=https%3A%2F%2Fstorage.azure.com%2F.default")));

    // Without a Secret: this machine, and where there is no such thing, nobody.
    server.admit(Admission::Token(azure::MACHINE));
    flux.apply(&BUCKET, "machine", spec("azure", &url, json!({}))).await;
    flux.ready(&BUCKET, "machine").await;
    // A list that did not change is all that is asked for.
    let before = server.http().requests().len();
    let same = reconciled(&flux, &BUCKET, "machine").await;
    assert_eq!(revision(&same), revisions[0]);
    let after: Vec<String> = server.http().requests()[before..].iter().map(|one| one.path.clone()).collect();
    assert!(
        after.iter().all(|path| path.contains("comp=list") || path.ends_with(".sourceignore")),
        "{after:?}"
    );
    server.put("manifests", "apps/a b.yaml", b"a: 2\n");
    let object = reconciled(&flux, &BUCKET, "machine").await;
    assert_ne!(revision(&object), revisions[0]);
    assert_eq!(files(&object).await[1].1, "a: 2\n");

    let nowhere = HttpServer::start(Router::new(), Security::Plain).unwrap();
    let other = start(cluster, &nowhere).await;
    drop(nowhere);
    server.admit(Admission::Everybody);
    other.apply(&BUCKET, "open", spec("azure", &url, json!({}))).await;
    other.ready(&BUCKET, "open").await;
    server.admit(Admission::Token(azure::MACHINE));
    let object = reconciled(&other, &BUCKET, "open").await;
    assert_eq!(ready(&object).1, "BucketOperationFailed");
}

async fn stores_of_clouds_are_reached_through_a_proxy(cluster: &Cluster) {
    let azure = AzureServer::start(Admission::Key(ACCOUNT_KEY)).unwrap();
    azure.put("manifests", "a.yaml", b"a: 1\n");
    let google = GoogleServer::start(google::KEY).unwrap();
    google.put("manifests", "a.yaml", b"a: 1\n");
    // Nobody answers under these names: whoever gets an answer came through the proxy.
    let tune = |options: &mut flux_controllers::manager::ManagerOptions| {
        options.cloud = flux_remote::cloud::Environment::for_tests(&[], "http://google.invalid");
    };
    let flux = Flux::start_with(cluster, &[Controller::Source], tune).await;
    secret(cluster, &flux, "account", OPAQUE, &[("accountKey", ACCOUNT_KEY)]).await;
    secret(cluster, &flux, "to-azure", OPAQUE, &[("address", &azure.http().url())]).await;
    let mut wanted = with_secret("account");
    wanted["proxySecretRef"] = json!({ "name": "to-azure" });
    flux.apply(&BUCKET, "azure", spec("azure", "http://fleet.blob.invalid", wanted)).await;
    secret(cluster, &flux, "key", OPAQUE, &[("serviceaccount", &google_key(&google))]).await;
    secret(cluster, &flux, "to-google", OPAQUE, &[("address", &google.http().url())]).await;
    let mut wanted = with_secret("key");
    wanted["proxySecretRef"] = json!({ "name": "to-google" });
    flux.apply(&BUCKET, "google", spec("gcp", "storage.googleapis.com", wanted)).await;
    for name in ["azure", "google"] {
        assert_eq!(names(&flux.ready(&BUCKET, name).await).await, ["a.yaml"]);
    }
}

async fn annotated(cluster: &Cluster, flux: &Flux, name: &str, annotations: Value) {
    let api: Api<ServiceAccount> = Api::namespaced(cluster.client(), flux.namespace.name());
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "annotations": annotations },
    });
    api.patch(name, &PatchParams::apply("story").force(), &Patch::Apply(object)).await.unwrap();
}

/// Has the API server say whose token it is; it has to be for this audience and for no other.
async fn assert_token_of(cluster: &Cluster, flux: &Flux, token: &str, account: &str, audience: &str) {
    let api: Api<TokenReview> = Api::all(cluster.client());
    for (asked, wanted) in [(audience, true), ("https://elsewhere.example.com", false)] {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
            "spec": { "token": token, "audiences": [asked] },
        });
        let review = serde_json::from_value(review).unwrap();
        let status = api.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
        assert_eq!(status.authenticated.unwrap_or_default(), wanted, "{asked}: {status:?}");
        if wanted {
            let name = format!("system:serviceaccount:{}:{account}", flux.namespace.name());
            assert_eq!(status.user.unwrap().username.as_deref(), Some(name.as_str()));
        }
    }
}

fn field(form: &str, name: &str) -> String {
    let pair = form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    // A JSON web token needs no encoding.
    pair.unwrap_or_default().to_owned()
}

/// Lends keys for a token, as Amazon does, and remembers the token.
fn lender() -> (HttpServer, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let forms = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let seen = forms.clone();
    let answer = move |body: String| {
        seen.lock().unwrap().push(body);
        async {
            "<Credentials><AccessKeyId>lent</AccessKeyId><SecretAccessKey>lent-secret</SecretAccessKey>\
             <SessionToken>lent-token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
        }
    };
    (HttpServer::start(Router::new().fallback(answer), Security::Plain).unwrap(), forms)
}

async fn an_account_of_the_cluster_opens_a_bucket_at_every_cloud(cluster: &Cluster) {
    let account = json!({ "serviceAccountName": "reader" });
    {
        let server = GoogleServer::start(google::IMPERSONATED).unwrap();
        OBJECTS.iter().for_each(|(key, content)| server.put("manifests", key, content));
        let flux = start(cluster, server.http()).await;
        flux.apply(&BUCKET, "google", spec("gcp", "storage.googleapis.com", account.clone())).await;
        let object = flux.not_ready(&BUCKET, "google", "AuthenticationFailed").await;
        assert!(ready(&object).2.contains("failed to get service account"), "{}", ready(&object).2);
        let email = json!({ "iam.gke.io/gcp-service-account": "flux@project.iam.gserviceaccount.com" });
        annotated(cluster, &flux, "reader", email).await;
        assert_eq!(names(&flux.ready(&BUCKET, "google").await).await, KEPT);
        let asked = server.asked();
        let (_, form) = asked.iter().find(|(path, _)| path == "/google-sts").unwrap();
        let token = field(form, "subject_token");
        assert_token_of(cluster, &flux, &token, "reader", "project.svc.id.goog").await;
        // A token that is at hand is used again.
        let before = server.asked().iter().filter(|(path, _)| path == "/google-sts").count();
        reconciled(&flux, &BUCKET, "google").await;
        assert_eq!(server.asked().iter().filter(|(path, _)| path == "/google-sts").count(), before);
    }
    {
        let server = AzureServer::start(Admission::Token(azure::STATEMENT)).unwrap();
        OBJECTS.iter().for_each(|(key, content)| server.put("manifests", key, content));
        let flux = start(cluster, server.http()).await;
        let ids = json!({
            "azure.workload.identity/tenant-id": "tenant", "azure.workload.identity/client-id": "client",
        });
        annotated(cluster, &flux, "reader", ids).await;
        flux.apply(&BUCKET, "azure", spec("azure", &server.http().url(), account.clone())).await;
        assert_eq!(names(&flux.ready(&BUCKET, "azure").await).await, KEPT);
        let (path, form) = server.asked().remove(0);
        assert_eq!((path.as_str(), field(&form, "client_id").as_str()), ("/entra", "client"));
        let token = field(&form, "client_assertion");
        assert_token_of(cluster, &flux, &token, "reader", "api://AzureADTokenExchange").await;
    }
    let keys = Credentials { access_key: "lent".to_owned(), secret_key: "lent-secret".to_owned() };
    let server = BucketServer::start_with(Some(keys), Security::Plain).unwrap();
    OBJECTS.iter().for_each(|(key, content)| server.put("manifests", key, content));
    let (clouds, forms) = lender();
    let flux = start(cluster, &clouds).await;
    annotated(
        cluster,
        &flux,
        "reader",
        json!({ "eks.amazonaws.com/role-arn": "arn:aws:iam::012345678901:role/flux" }),
    )
    .await;
    let wanted = json!({ "serviceAccountName": "reader", "region": "eu-west-1", "insecure": true });
    flux.apply(&BUCKET, "amazon", spec("aws", &server.endpoint(), wanted)).await;
    assert_eq!(names(&flux.ready(&BUCKET, "amazon").await).await, KEPT);
    let form = forms.lock().unwrap()[0].clone();
    let session = format!("reader.{}.eu-west-1.fluxcd.io", flux.namespace.name());
    assert_eq!(field(&form, "RoleSessionName"), session);
    let token = field(&form, "WebIdentityToken");
    assert_token_of(cluster, &flux, &token, "reader", "sts.amazonaws.com").await;
}

async fn an_object_that_names_nobody_is_the_default_account(cluster: &Cluster) {
    let server = AzureServer::start(Admission::Token(azure::STATEMENT)).unwrap();
    OBJECTS.iter().for_each(|(key, content)| server.put("manifests", key, content));
    let meet = at(server.http(), Controller::Source);
    let tune = move |options: &mut flux_controllers::manager::ManagerOptions| {
        meet(options);
        options.source.default_service_account = Some("tenant".to_owned());
    };
    let flux = Flux::start_with(cluster, &[Controller::Source], tune).await;
    flux.apply(&BUCKET, "azure", spec("azure", &server.http().url(), json!({}))).await;
    let object = flux.not_ready(&BUCKET, "azure", "AuthenticationFailed").await;
    let text = ready(&object).2;
    assert!(
        text.starts_with(&format!("failed to get service account '{}/tenant': ", flux.namespace.name())),
        "{text}"
    );
    assert!(text.contains("multi-tenant workload identity lockdown"), "{text}");
    let ids = json!({
        "azure.workload.identity/tenant-id": "tenant", "azure.workload.identity/client-id": "client",
    });
    annotated(cluster, &flux, "tenant", ids).await;
    flux.ready(&BUCKET, "azure").await;
    let (_, form) = server.asked().remove(0);
    let token = field(&form, "client_assertion");
    assert_token_of(cluster, &flux, &token, "tenant", "api://AzureADTokenExchange").await;
}

async fn secrets_of_clouds_that_are_wrong_are_named_and_not_shown(cluster: &Cluster) {
    let server = AzureServer::start(Admission::Signature("right")).unwrap();
    server.put("manifests", "a.yaml", b"a: 1\n");
    let flux = start(cluster, server.http()).await;
    let url = server.http().url();
    let ids = [("tenantId", "tenant"), ("clientId", "client")];
    let incomplete = "invalid 'incomplete' secret data: requires a 'clientId' or 'accountKey' field, a combination of 'tenantId', 'clientId' and 'clientSecret', or 'tenantId', 'clientId' and 'clientCertificate'";
    let mistakes = [
        ("incomplete", "azure", vec![("tenantId", "canary")], "AuthenticationFailed", incomplete),
        (
            "password",
            "azure",
            vec![ids[0], ids[1], ("clientSecret", "canary")],
            "AuthenticationFailed",
            "AADSTS7000215",
        ),
        (
            "certificate",
            "azure",
            vec![ids[0], ids[1], ("clientCertificate", "canary")],
            "AuthenticationFailed",
            "failed to create token credential from 'certificate' Secret: failed to parse client certificates",
        ),
        (
            "authority",
            "azure",
            vec![ids[0], ids[1], ("clientSecret", "canary"), ("authorityHost", "http://evil.example.org")],
            "AuthenticationFailed",
            "authorityHost must begin with https://",
        ),
        (
            "account",
            "azure",
            vec![("accountKey", "canary!")],
            "AuthenticationFailed",
            "accountKey is no key in base64",
        ),
        (
            "signature",
            "azure",
            vec![("sasKey", "sv=1&sig=canary")],
            "BucketOperationFailed",
            "the specified bucket name may be incorrect, nonexistent, or the caller might lack sufficient permissions",
        ),
        (
            "no-key",
            "gcp",
            vec![("key", "canary")],
            "AuthenticationFailed",
            "invalid 'no-key' secret data: required fields 'serviceaccount'",
        ),
        (
            "no-file",
            "gcp",
            vec![("serviceaccount", "{\"type\": \"service_account\", \"private_key\": \"canary\"}")],
            "AuthenticationFailed",
            "private_key is no RSA key in PEM",
        ),
    ];
    for (name, provider, data, reason, words) in &mistakes {
        secret(cluster, &flux, name, OPAQUE, data).await;
        flux.apply(&BUCKET, name, spec(provider, &url, with_secret(name))).await;
        let object = flux.not_ready(&BUCKET, name, reason).await;
        assert!(ready(&object).2.contains(words), "{name}: {}", ready(&object).2);
        assert!(!object["status"].to_string().contains("canary"), "{name}");
    }
    // A connection that breaks is told without the signature in its address.
    secret(cluster, &flux, "signature", OPAQUE, &[("sasKey", "sv=1&sig=right")]).await;
    server.http().faults().inject("sig=right", Times::Always, Fault::CutAfter(3));
    let object = reconciled(&flux, &BUCKET, "signature").await;
    assert_eq!(ready(&object).1, "BucketOperationFailed");
    assert!(!object["status"].to_string().contains("right"), "{}", ready(&object).2);
    for (name, ..) in &mistakes {
        let events = flux.events(name).await;
        assert!(
            !events.iter().any(|(_, text)| text.contains("canary") || text.contains("sig=")),
            "{events:?}"
        );
    }
}
