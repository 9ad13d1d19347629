//! Google Pub/Sub: the event as a message of a topic. A key of a service account, or the identity of the machine, is
//! exchanged for a token first.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::git::{below, text};
use super::{Error, Request, Settings, Step};
use crate::notification::event::Event;

const SERVICE: &str = "Google";
const SCOPE: &str = "https://www.googleapis.com/auth/pubsub";
const LASTS: i64 = 3600;

/// The address is the project, the channel the topic, headers are attributes.
pub(super) fn message(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    if settings.address.is_empty() {
        return Err(Error::Missing("GCP project ID cannot be empty"));
    }
    if settings.channel.is_empty() {
        return Err(Error::Missing("GCP Pub/Sub topic ID cannot be empty"));
    }
    let base = Url::parse("https://pubsub.googleapis.com/v1/").expect("it is a URL");
    let topic = format!("{}:publish", settings.channel);
    let url = below(&base, &["projects", &settings.address, "topics", &topic]);
    let mut message = json!({ "data": STANDARD.encode(event.to_json()) });
    if !settings.headers.is_empty() {
        message["attributes"] = json!(settings.headers);
    }
    let publish = Request::post(url, &json!({ "messages": [message] }));
    let token = match settings.token.expose().as_str() {
        "" if settings.identity.expose().is_empty() => {
            return Err(Error::Missing("there is no token for Google Pub/Sub"));
        }
        "" => return Ok(vec![Step::only(publish.bearer(settings.identity.expose())?)]),
        credentials => exchange(credentials, settings.now)?,
    };
    Ok(vec![Step::then(token, move |answer| {
        let token = text(SERVICE, answer, "access_token")?;
        Ok(vec![Step::only(publish.bearer(&token)?)])
    })])
}

#[derive(Deserialize)]
struct Credentials {
    client_email: String,
    private_key: String,
    #[serde(default)]
    private_key_id: Option<String>,
    #[serde(default)]
    token_uri: Option<String>,
}

/// Asks for a token with a statement that the key of the service account signs.
fn exchange(credentials: &str, now: i64) -> Result<Request, Error> {
    let wrong =
        |problem: &str| Error::Field { field: "credentials in the key 'token'", problem: problem.to_owned() };
    let credentials: Credentials =
        serde_json::from_str(credentials).map_err(|_| wrong("it is no JSON key of a service account"))?;
    let uri = credentials.token_uri.unwrap_or_else(|| "https://oauth2.googleapis.com/token".to_owned());
    let url = Url::parse(&uri)
        .ok()
        .filter(|url| url.scheme() == "https")
        .ok_or_else(|| wrong("token_uri is no https address"))?;
    let key = EncodingKey::from_rsa_pem(credentials.private_key.as_bytes())
        .map_err(|_| wrong("private_key is no RSA key"))?;
    let mut header = Header::new(Algorithm::RS256);
    header.kid = credentials.private_key_id;
    let claims = json!({ "iss": credentials.client_email, "scope": SCOPE, "aud": uri, "iat": now, "exp": now + LASTS });
    let assertion =
        jsonwebtoken::encode(&header, &claims, &key).map_err(|_| wrong("private_key cannot sign"))?;
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
        .append_pair("assertion", &assertion)
        .finish();
    Ok(Request::new(http::Method::POST, url, "application/x-www-form-urlencoded", body.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::plan;
    use crate::notification::provider::tests::{problem, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_topic_gets_the_event_with_a_token_of_the_machine() {
        let mut settings = settings(ProviderType::GooglePubSub, "");
        assert_eq!(problem(&example(), &settings), "GCP project ID cannot be empty");
        settings.address = "project".to_owned();
        assert_eq!(problem(&example(), &settings), "GCP Pub/Sub topic ID cannot be empty");
        settings.channel = "topic".to_owned();
        settings.headers = [("env".to_owned(), "dev".to_owned())].into();
        assert_eq!(problem(&example(), &settings), "there is no token for Google Pub/Sub");
        settings.identity = "t".to_owned().into();
        let publish = plan(&example(), &settings).unwrap().remove(0).request;
        assert_eq!(
            (publish.line().as_str(), publish.value("authorization")),
            ("POST https://pubsub.googleapis.com/v1/projects/project/topics/topic:publish", "Bearer t")
        );
        let message = &publish.body_json()["messages"][0];
        assert_eq!(message["attributes"], json!({ "env": "dev" }));
        let data = STANDARD.decode(message["data"].as_str().unwrap()).unwrap();
        assert_eq!(Event::parse(&data).unwrap(), example());
    }

    #[test]
    fn credentials_that_are_none_are_refused_and_not_shown() {
        let mut settings = settings(ProviderType::GooglePubSub, "project");
        settings.channel = "topic".to_owned();
        for bad in [
            "canary",
            r#"{"client_email":"canary","private_key":"canary"}"#,
            r#"{"client_email":"c","private_key":"k","token_uri":"http://canary"}"#,
        ] {
            settings.token = bad.to_owned().into();
            let problem = problem(&example(), &settings);
            assert!(
                problem.starts_with("invalid credentials in the key 'token'") && !problem.contains("canary"),
                "{problem}"
            );
        }
    }
}
