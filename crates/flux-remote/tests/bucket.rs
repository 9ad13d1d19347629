//! Buckets at Google and Azure, against servers that check who asks and give lists in pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flux_api::secret::SecretString;
use flux_remote::bucket::{Azure, AzureAccess, Error, Google, Index, SharedKey, Store, azure_account};
use flux_remote::cloud::{AzureLogin, Cloud, Environment, GoogleKey, Provider};
use flux_remote::transport::Transport;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use testbed::bucket::azure::{self, Admission, AzureServer};
use testbed::bucket::google::{self, GoogleServer};
use testbed::fault::{Fault, Times};

const KEY: &str = include_str!("keys/pkcs8-rsa");
const ACCOUNT_KEY: &str = "c2VjcmV0IGtleSBvZiB0aGUgYWNjb3VudA==";
const SCOPE: &str = "https://storage.azure.com/.default";

fn secret(text: &str) -> SecretString {
    SecretString::new(text.to_owned())
}

fn at_google(server: &GoogleServer, token: &str) -> Store {
    let address = format!("{}/google-storage", server.http().url());
    Store::Google(Google::new(&address, secret(token), &Transport::default()).unwrap())
}

fn at_azure(server: &AzureServer, access: AzureAccess) -> Store {
    Store::Azure(Azure::new(&server.http().url(), access, &Transport::default()).unwrap())
}

async fn index(store: &Store, prefix: &str) -> Result<Index, Error> {
    let mut index = Index::default();
    store.list("fleet", prefix, |key, etag| index.add(key, etag)).await?;
    Ok(index)
}

fn keys(index: &Index) -> Vec<&str> {
    index.iter().map(|(key, _)| key).collect()
}

const OBJECTS: [(&str, &str); 5] = [
    ("apps/a b+c.yaml", "a"),
    ("apps/x/y#?%.yaml", "b"),
    ("apps/é&<.yaml", "c"),
    ("docs/d", "d"),
    ("e", "e"),
];

/// Lists all pages, reads every object, and finds the tags of both to be the same.
async fn check(store: &Store) {
    assert!(store.bucket_exists("fleet").await.unwrap());
    assert!(!store.bucket_exists("none").await.unwrap());
    let all = index(store, "").await.unwrap();
    assert_eq!(keys(&all), OBJECTS.map(|(key, _)| key));
    assert_eq!(keys(&index(store, "apps/").await.unwrap()).len(), 3);
    assert_eq!(keys(&index(store, "apps/a b+").await.unwrap()), ["apps/a b+c.yaml"]);
    for ((key, etag), (_, content)) in all.iter().zip(OBJECTS) {
        let object = store.get("fleet", key, 10).await.unwrap().unwrap();
        assert_eq!((object.etag.as_str(), object.bytes.as_slice()), (etag, content.as_bytes()), "{key}");
    }
    assert_eq!(store.get("fleet", "none", 10).await.unwrap(), None);
    assert!(matches!(store.get("fleet", "e", 0).await, Err(Error::TooLarge { .. })));
}

#[tokio::test]
async fn googles_buckets_are_listed_by_pages_and_read_by_generation() {
    let server = GoogleServer::start("token").unwrap();
    OBJECTS.iter().for_each(|(key, content)| server.put("fleet", key, content.as_bytes()));
    let store = at_google(&server, "token");
    check(&store).await;
    // Trouble that passes is waited out; a list that is cut is none.
    server.http().faults().inject("/o?", Times::Next(2), Fault::Status(503));
    assert_eq!(keys(&index(&store, "").await.unwrap()).len(), 5);
    server.http().faults().inject("/o?", Times::Next(1), Fault::CutAfter(20));
    assert!(index(&store, "").await.is_err());
    // Somebody else's version in between: the object is looked at again.
    server.http().faults().inject("alt=media", Times::Next(1), Fault::Status(412));
    assert!(store.get("fleet", "e", 10).await.unwrap().is_some());
    server.http().faults().inject("alt=media", Times::Always, Fault::Status(412));
    let error = store.get("fleet", "e", 10).await.unwrap_err().to_string();
    assert!(error.contains("does not stop changing"), "{error}");
    let error = at_google(&server, "canary").bucket_exists("fleet").await.unwrap_err().to_string();
    assert_eq!(error, "googleapi: Error 401: Invalid Credentials, authError");
}

#[tokio::test]
async fn azures_containers_open_with_a_key_a_signature_a_token_or_for_everybody() {
    let server = AzureServer::start(Admission::Everybody).unwrap();
    OBJECTS.iter().for_each(|(key, content)| server.put("fleet", key, content.as_bytes()));
    let account = azure_account(&server.http().url()).unwrap();
    let ways = [
        (Admission::Everybody, AzureAccess::Anonymous),
        (Admission::Token("token"), AzureAccess::Token(secret("token"))),
        (Admission::Key(ACCOUNT_KEY), AzureAccess::SharedKey(SharedKey::new(&account, ACCOUNT_KEY).unwrap())),
        (Admission::Signature("a/b+c="), AzureAccess::Sas(secret("?sv=2024-01-01&sig=a%2Fb%2Bc%3D"))),
    ];
    for (admission, access) in ways {
        server.admit(admission);
        check(&at_azure(&server, access)).await;
    }
    let store = at_azure(&server, AzureAccess::Sas(secret("sv=1&sig=canary")));
    let error = store.bucket_exists("fleet").await.unwrap_err().to_string();
    assert!(error.starts_with("the specified bucket name may be incorrect"), "{error}");
    assert!(error.ends_with("AuthenticationFailed: Server failed to authenticate the request."), "{error}");
    server.http().faults().inject("fleet", Times::Always, Fault::CutAfter(5));
    server.admit(Admission::Signature("canary"));
    let error = index(&store, "").await.unwrap_err().to_string();
    assert!(error.contains("/fleet") && !error.contains("canary"), "{error}");
}

/// What upstream's revision of these blobs would be: made of the tags that downloads have, with their quotes.
#[tokio::test]
async fn an_azure_revision_is_the_one_that_upstream_writes() {
    let server = AzureServer::start(Admission::Everybody).unwrap();
    server.put("fleet", "a", b"1");
    let listed = index(&at_azure(&server, AzureAccess::Anonymous), "").await.unwrap();
    // printf 'a "0x8D1"\n' | sha256sum
    assert_eq!(listed.sha256(), "2ddee4c8a7d8814137635d202b203c979a9419f377128a78e00d48d06d612b9e");
}

fn cloud(base: &str, variables: &[(&str, &str)]) -> Cloud {
    Cloud::new(Environment::for_tests(variables, base), 10, Duration::from_secs(3600))
}

/// Header and claims of a token that this key has signed.
fn verified(token: &str, algorithm: Algorithm, audience: &str) -> (Value, Value) {
    let public = KeyPair::from_pem(KEY).unwrap().public_key_pem();
    let mut validation = Validation::new(algorithm);
    validation.set_audience(&[audience]);
    let key = DecodingKey::from_rsa_pem(public.as_bytes()).unwrap();
    let claims = jsonwebtoken::decode::<Value>(token, &key, &validation).unwrap().claims;
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    (serde_json::from_slice(&header).unwrap(), claims)
}

fn field(form: &str, name: &str) -> String {
    let found = url::form_urlencoded::parse(form.as_bytes()).find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[tokio::test]
async fn a_key_of_a_service_account_signs_for_its_token() {
    let server = GoogleServer::start(google::KEY).unwrap();
    let tokens = format!("{}/google-token", server.http().url());
    let file = json!({
        "type": "service_account", "client_email": "flux@p.iam", "private_key": KEY, "private_key_id": "7",
        "token_uri": tokens,
    });
    let key = GoogleKey::read(file.to_string().as_bytes()).unwrap();
    let client = Transport::default().client().unwrap();
    let token = key.token(&client, "scope-1", Timestamp::now()).await.unwrap();
    assert_eq!(token.expose(), google::KEY);
    let (path, form) = server.asked().remove(0);
    assert_eq!(
        (path.as_str(), field(&form, "grant_type").as_str()),
        ("/google-token", "urn:ietf:params:oauth:grant-type:jwt-bearer")
    );
    let (header, claims) = verified(&field(&form, "assertion"), Algorithm::RS256, &tokens);
    assert_eq!(header["kid"], "7");
    assert_eq!((&claims["iss"], &claims["scope"]), (&json!("flux@p.iam"), &json!("scope-1")));
    // A pod may be started with such a file.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let cloud = cloud(&server.http().url(), &[("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap())]);
    let token = cloud.token(Provider::Gcp, "", None, &Transport::default(), Timestamp::now()).await.unwrap();
    assert_eq!(token.expose(), google::KEY);
}

#[tokio::test]
async fn an_application_logs_in_with_a_password_or_a_certificate() {
    let server = AzureServer::start(Admission::Everybody).unwrap();
    let base = server.http().url();
    let (cloud, transport) = (cloud(&base, &[]), Transport::default());
    let ask = async |login: &AzureLogin| {
        let token = cloud.azure_token(login, SCOPE, &transport, Timestamp::now()).await;
        token.map(SecretString::into_exposed).map_err(|error| error.to_string())
    };
    let password = |text: &str| AzureLogin::with_password("tenant".into(), "client".into(), secret(text));
    assert_eq!(ask(&password(azure::RIGHT)).await.unwrap(), azure::PASSWORD);
    let refused = ask(&password("canary")).await.unwrap_err();
    assert!(refused.contains("AADSTS7000215") && !refused.contains("canary"), "{refused}");
    ask(&password(azure::RIGHT).at(Some(format!("{base}/")))).await.unwrap();
    assert_eq!(server.asked().last().unwrap().0, "/tenant/oauth2/v2.0/token");
    for (login, words) in [
        (password("x").at(Some("http://evil.example.org".to_owned())), "https://"),
        (AzureLogin::with_password("../x".into(), "c".into(), secret("x")), "tenantId"),
    ] {
        let error = ask(&login).await.unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(ask(&AzureLogin::of_the_machine("mi".into())).await.unwrap(), azure::MACHINE);
    assert!(server.asked().last().unwrap().0.ends_with("&client_id=mi"));

    let own = KeyPair::from_pem(KEY).unwrap();
    let certificate = |key: &KeyPair, name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(key).unwrap().pem()
    };
    let above = certificate(&KeyPair::generate().unwrap(), "above");
    let pem = format!("{above}{KEY}{}", certificate(&own, "own"));
    for sends_chain in [false, true] {
        let login =
            AzureLogin::with_certificate("tenant".into(), "client".into(), pem.as_bytes(), sends_chain)
                .unwrap();
        assert_eq!(ask(&login).await.unwrap(), azure::STATEMENT);
        let (_, form) = server.asked().pop().unwrap();
        assert_eq!(
            field(&form, "client_assertion_type"),
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        );
        let (header, claims) =
            verified(&field(&form, "client_assertion"), Algorithm::PS256, &format!("{base}/entra"));
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("client"), &json!("client")));
        assert_eq!(header["x5t#S256"].as_str().unwrap().len(), 43);
        // The one of the key goes first.
        let chain = header["x5c"].as_array().map(Vec::len);
        assert_eq!(chain, sends_chain.then_some(2));
    }
    for bad in [above.as_bytes(), KEY.as_bytes(), format!("{above}{KEY}").as_bytes(), b"canary"] {
        let error =
            AzureLogin::with_certificate("t".into(), "c".into(), bad, false).err().unwrap().to_string();
        assert!(
            error.starts_with("failed to parse client certificates") && !error.contains("canary"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_pod_that_was_started_as_an_application_is_one() {
    let server = AzureServer::start(Admission::Everybody).unwrap();
    let ids = [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "c"), ("AZURE_CLIENT_SECRET", azure::RIGHT)];
    let folder = tempfile::tempdir().unwrap();
    let own = KeyPair::from_pem(KEY).unwrap();
    let path = folder.path().join("certificate.pem");
    let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&own).unwrap().pem();
    std::fs::write(&path, format!("{certificate}{KEY}")).unwrap();
    let certified = [ids[0], ids[1], ("AZURE_CLIENT_CERTIFICATE_PATH", path.to_str().unwrap())];
    for (variables, wanted) in
        [(&ids[..], azure::PASSWORD), (&certified, azure::STATEMENT), (&[], azure::MACHINE)]
    {
        let cloud = cloud(&server.http().url(), variables);
        let token = cloud.token(Provider::Azure, SCOPE, None, &Transport::default(), Timestamp::now()).await;
        assert_eq!(token.unwrap().expose(), wanted);
    }
}
