//! Identities of clouds against a server that plays all of their services.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flux_api::secret::SecretString;
use flux_remote::cloud::{Account, AccountToken, CacheEvent, Cloud, Environment, Error, GitLogin, Provider};
use flux_remote::oci::{Credentials, Repository};
use flux_remote::transport::Transport;
use http::{Request, StatusCode};
use testbed::http_server::{HttpServer, Security};

type Log = Arc<Mutex<Vec<(String, String)>>>;

/// Answers by path; every request is written down with its headers and body.
fn clouds(answers: Vec<(&'static str, String)>) -> (HttpServer, Log) {
    let log = Log::default();
    let seen = log.clone();
    let answers = Arc::new(answers);
    let router = Router::new().fallback(move |request: Request<Body>| {
        let (seen, answers) = (seen.clone(), answers.clone());
        async move {
            let (parts, body) = request.into_parts();
            let path = parts.uri.to_string();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let text = format!("{:?}\n{}", parts.headers, String::from_utf8_lossy(&body));
            seen.lock().unwrap().push((path.clone(), text));
            let found = answers.iter().find(|(known, _)| path.split('?').next() == Some(known));
            let mut response =
                Response::new(Body::from(found.map(|(_, text)| text.clone()).unwrap_or_default()));
            if found.is_none() {
                *response.status_mut() = StatusCode::FORBIDDEN;
            }
            response
        }
    });
    (HttpServer::start(router, Security::Plain).unwrap(), log)
}

fn cloud(server: &HttpServer, variables: &[(&str, &str)]) -> Cloud {
    Cloud::new(Environment::for_tests(variables, &server.url()), 10, Duration::from_secs(3600))
}

fn account(annotations: &[(&str, &str)]) -> Account {
    Account {
        namespace: "team".to_owned(),
        name: "puller".to_owned(),
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        token: AccountToken::by(|| std::future::ready(Ok(SecretString::new("canary-token".to_owned())))),
    }
}

async fn login(
    cloud: &Cloud,
    provider: Provider,
    registry: &str,
    account: Option<&Account>,
) -> Result<(String, String), Error> {
    let repository = Repository::parse(&format!("{registry}/app"), false).unwrap();
    let now = jiff::Timestamp::now();
    match cloud.registry(provider, &repository, account, &Transport::default(), now).await? {
        Credentials::Basic { username, password } => Ok((username, password.into_exposed())),
        Credentials::Identity(_) | Credentials::Bearer(_) => {
            panic!("a user and password are what these registries take")
        }
    }
}

fn assumed() -> String {
    "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey>\
     <SessionToken>ST</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResponse>"
        .to_owned()
}

fn ecr() -> String {
    let token = STANDARD.encode("AWS:password");
    format!(r#"{{"authorizationData":[{{"authorizationToken":"{token}","expiresAt":4070908800}}]}}"#)
}

const ECR: &str = "012345678901.dkr.ecr.eu-west-1.amazonaws.com";

#[tokio::test]
async fn a_service_account_logs_in_to_amazon_and_is_remembered() {
    let (server, log) = clouds(vec![("/sts", assumed()), ("/ecr", ecr())]);
    let cloud = cloud(&server, &[]);
    let mut puller = account(&[("eks.amazonaws.com/role-arn", "arn:aws:iam::012345678901:role/flux")]);
    let asked = Arc::new(Mutex::new(0));
    let counted = asked.clone();
    puller.token = AccountToken::by(move || {
        *counted.lock().unwrap() += 1;
        std::future::ready(Ok(SecretString::new("canary-token".to_owned())))
    });
    for _ in 0..2 {
        let found = login(&cloud, Provider::Aws, ECR, Some(&puller)).await.unwrap();
        assert_eq!(found, ("AWS".to_owned(), "password".to_owned()));
    }
    let log = log.lock().unwrap().clone();
    assert_eq!(log.len(), 2, "the second login comes from memory");
    assert_eq!(*asked.lock().unwrap(), 1, "and nobody asks the cluster for another token");
    assert!(log[0].1.contains("RoleSessionName=puller.team.eu-west-1.fluxcd.io"), "{}", log[0].1);
    assert!(log[0].1.contains("WebIdentityToken=canary-token"));
    assert!(log[1].1.contains("AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"));
    assert_eq!((cloud.counts().hits, cloud.counts().misses), (1, 1));
    let none = login(&cloud, Provider::Aws, ECR, Some(&account(&[]))).await.unwrap_err();
    assert!(none.to_string().contains("eks.amazonaws.com/role-arn"), "{none}");
    let mut refused = account(&[("eks.amazonaws.com/role-arn", "arn:aws:iam::012345678901:role/other")]);
    refused.token = AccountToken::by(|| std::future::ready(Err("no token for the account".to_owned())));
    let refused = login(&cloud, Provider::Aws, ECR, Some(&refused)).await.unwrap_err();
    assert_eq!(refused.to_string(), "no token for the account");
}

#[tokio::test]
async fn a_pod_or_machine_logs_in_to_amazon() {
    let lent =
        r#"{"AccessKeyId":"AK","SecretAccessKey":"SK","Token":"ST","Expiration":"2099-01-01T00:00:00Z"}"#;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "canary-file\n").unwrap();
    let path = file.path().to_str().unwrap();
    let (server, log) = clouds(vec![
        ("/sts", assumed()),
        ("/ecr", ecr()),
        ("/pod-identity", lent.to_owned()),
        ("/imds/api/token", "imds-token".to_owned()),
        ("/imds/meta-data/iam/security-credentials/", "role\n".to_owned()),
        ("/imds/meta-data/iam/security-credentials/role", lent.to_owned()),
    ]);
    let irsa = [("AWS_REGION", "x"), ("AWS_ROLE_ARN", "arn"), ("AWS_WEB_IDENTITY_TOKEN_FILE", path)];
    let pod = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://pod"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path),
    ];
    for variables in [&irsa[..], &pod, &[]] {
        login(&cloud(&server, variables), Provider::Aws, ECR, None).await.unwrap();
    }
    assert!(log.lock().unwrap().iter().any(|(path, text)| path == "/sts" && text.contains("canary-file")));
    let keys =
        cloud(&server, &[]).aws_keys(None, None, None, &Transport::default(), jiff::Timestamp::now()).await;
    assert!(keys.err().is_some_and(|error| error.to_string().starts_with("AWS_REGION environment variable")));
}

#[tokio::test]
async fn accounts_and_machines_log_in_to_azure() {
    let claims = URL_SAFE_NO_PAD.encode(r#"{"exp":4070908800}"#);
    let granted = r#"{"access_token":"entra","expires_in":3600}"#;
    let machine = r#"{"access_token":"imds","expires_in":"3600"}"#;
    let (server, log) = clouds(vec![
        ("/entra", granted.to_owned()),
        ("/imds", machine.to_owned()),
        ("/acr", format!(r#"{{"refresh_token":"h.{claims}.s"}}"#)),
    ]);
    let cloud = cloud(&server, &[]);
    let ids = [
        ("azure.workload.identity/tenant-id", "tenant-1"),
        ("azure.workload.identity/client-id", "client-1"),
    ];
    let found = login(&cloud, Provider::Azure, "fleet.azurecr.io", Some(&account(&ids))).await.unwrap();
    assert_eq!(found.0, "00000000-0000-0000-0000-000000000000");
    assert!(found.1.starts_with("h."));
    login(&cloud, Provider::Azure, "fleet.azurecr.io", None).await.unwrap();
    let log = log.lock().unwrap().clone();
    assert!(log[0].1.contains("client_id=client-1") && log[0].1.contains("client_assertion=canary-token"));
    assert!(log[1].1.contains("access_token=entra") && log[1].1.contains("service=fleet.azurecr.io"));
    assert!(log.iter().any(|(path, _)| path.starts_with("/imds?api-version=2018-02-01&resource=")));
    let hostile =
        [("azure.workload.identity/tenant-id", "../evil"), ("azure.workload.identity/client-id", "c")];
    assert!(login(&cloud, Provider::Azure, "fleet.azurecr.io", Some(&account(&hostile))).await.is_err());
}

#[test]
fn event_hubs_are_where_their_cloud_is() {
    let of = |authority: &str| {
        let environment = Environment::for_tests(&[("AZURE_AUTHORITY_HOST", authority)], "http://x");
        Cloud::new(environment, 1, Duration::from_secs(1)).service_bus()
    };
    assert_eq!(of(""), "servicebus.windows.net");
    assert_eq!(of("https://login.microsoftonline.com/"), "servicebus.windows.net");
    assert_eq!(of("https://login.chinacloudapi.cn/"), "servicebus.chinacloudapi.cn");
    assert_eq!(of("https://login.microsoftonline.us"), "servicebus.usgovcloudapi.net");
}

#[tokio::test]
async fn accounts_and_machines_log_in_to_google() {
    let (server, log) = clouds(vec![
        ("/metadata/project/project-id", "proj".to_owned()),
        ("/metadata/instance/attributes/cluster-name", "c".to_owned()),
        ("/metadata/instance/attributes/cluster-location", "eu".to_owned()),
        (
            "/metadata/instance/service-accounts/default/token",
            r#"{"access_token":"machine","expires_in":3600}"#.to_owned(),
        ),
        ("/google-sts", r#"{"access_token":"exchanged","expires_in":3600}"#.to_owned()),
        ("/google-iam", r#"{"accessToken":"impersonated","expireTime":"2099-01-01T00:00:00Z"}"#.to_owned()),
    ]);
    let cloud = cloud(&server, &[]);
    let gar = "europe-docker.pkg.dev";
    assert_eq!(
        login(&cloud, Provider::Gcp, gar, None).await.unwrap(),
        ("oauth2accesstoken".into(), "machine".into())
    );
    assert_eq!(login(&cloud, Provider::Gcp, gar, Some(&account(&[]))).await.unwrap().1, "exchanged");
    let email = [("iam.gke.io/gcp-service-account", "flux@proj.iam.gserviceaccount.com")];
    assert_eq!(login(&cloud, Provider::Gcp, gar, Some(&account(&email))).await.unwrap().1, "impersonated");
    let transport = Transport::default();
    let pool = cloud.audience(Provider::Gcp, &BTreeMap::new(), &transport).await.unwrap();
    assert_eq!(pool, "proj.svc.id.goog");
    let provider = "projects/1/locations/global/workloadIdentityPools/p/providers/k";
    let annotated = account(&[("gcp.auth.fluxcd.io/workload-identity-provider", provider)]).annotations;
    let audience = cloud.audience(Provider::Gcp, &annotated, &transport).await.unwrap();
    assert_eq!(audience, format!("//iam.googleapis.com/{provider}"));
    assert!(
        log.lock()
            .unwrap()
            .iter()
            .any(|(path, text)| path == "/google-sts" && text.contains("identitynamespace%3Aproj"))
    );
}

#[tokio::test]
async fn other_registries_and_refusals_are_reported_without_a_token() {
    let (server, log) = clouds(vec![]);
    let cloud = cloud(&server, &[]);
    for (provider, registry) in
        [(Provider::Aws, "ghcr.io"), (Provider::Azure, "azurecr.io.evil.org"), (Provider::Gcp, "evil.org")]
    {
        assert!(
            matches!(login(&cloud, provider, registry, None).await, Err(Error::Registry { .. })),
            "{registry}"
        );
    }
    assert!(log.lock().unwrap().is_empty(), "nothing was asked of anybody");
    let puller = account(&[("eks.amazonaws.com/role-arn", "arn:aws:iam::012345678901:role/flux")]);
    let error = login(&cloud, Provider::Aws, ECR, Some(&puller)).await.unwrap_err();
    assert!(
        matches!(error, Error::Refused { status: 403, .. }) && !error.to_string().contains("canary"),
        "{error}"
    );
}

#[tokio::test]
async fn accounts_log_in_to_the_git_hosts_of_clouds() {
    let granted = r#"{"access_token":"devops","expires_in":3600}"#.to_owned();
    let (server, log) = clouds(vec![("/sts", assumed()), ("/entra", granted)]);
    let cloud = cloud(&server, &[]);
    let url = |text: &str| url::Url::parse(text).unwrap();
    let now: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let azure = account(&[
        ("azure.workload.identity/tenant-id", "tenant"),
        ("azure.workload.identity/client-id", "client"),
    ]);
    for repository in ["https://dev.azure.com/org/a/_git/a", "https://dev.azure.com/org/b/_git/b"] {
        let login =
            cloud.git(Provider::Azure, &url(repository), Some(&azure), &Transport::default(), now).await;
        let Ok((GitLogin::Bearer(token), _)) = login else { panic!("a token is what it takes") };
        assert_eq!(token.expose(), "devops");
    }
    let asked = log.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "one token is good for all repositories");
    assert!(asked[0].1.contains("499b84ac-1321-427f-aa17-267ca6975798"), "{}", asked[0].1);

    let aws = account(&[("eks.amazonaws.com/role-arn", "arn:aws:iam::012345678901:role/flux")]);
    let repository = url("https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/fleet");
    let (login, event) =
        cloud.git(Provider::Aws, &repository, Some(&aws), &Transport::default(), now).await.unwrap();
    let GitLogin::Password { username, password } = login else { panic!("a password is what it takes") };
    assert_eq!((username.expose().as_str(), event), ("AK%ST", CacheEvent::Miss));
    let signature = password.expose().strip_prefix("20260102T030405Z").unwrap();
    assert!(signature.len() == 64 && signature.bytes().all(|byte| byte.is_ascii_hexdigit()), "{signature}");
    for (other, problem) in [
        ("http://git-codecommit.eu-west-1.amazonaws.com/v1/repos/fleet", "HTTPS"),
        ("https://git.example.com/fleet", "invalid AWS CodeCommit Git URL"),
        ("https://git-codecommit.eu-west-1.example.com/fleet", "invalid AWS CodeCommit Git URL"),
    ] {
        let error = cloud.git(Provider::Aws, &url(other), Some(&aws), &Transport::default(), now).await;
        assert!(error.err().unwrap().to_string().contains(problem), "{other}");
    }
}
