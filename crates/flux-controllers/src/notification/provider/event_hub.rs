//! Azure Event Hub: the event as a message, over its REST interface. The address is a connection string with a shared key,
//! or the name of a hub in the namespace that `channel` names, for a token or the identity of the machine.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use url::Url;

use super::git::below;
use super::{Error, Request, Settings, Step};
use crate::notification::event::Event;

const VERSION: &str = "timeout=60&api-version=2014-01";
/// How long a signature is good.
const LASTS: i64 = 600;

pub(super) fn message(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    if settings.address.contains("SharedAccessKey") {
        return Ok(vec![Step::only(with_shared_key(event, settings)?)]);
    }
    if settings.address.is_empty() || settings.channel.is_empty() {
        return Err(wrong("it must be the name of a hub, with its namespace as the channel"));
    }
    let host = format!("https://{}.{}/", settings.channel, settings.service_bus);
    let base = Url::parse(&host).map_err(|_| wrong("the channel is no name of a namespace"))?;
    let request = send(&base, &settings.address, event);
    if !settings.token.expose().is_empty() {
        return Ok(vec![Step::only(request.bearer(settings.token.expose())?)]);
    }
    let token = settings.identity.expose().as_str();
    if token.is_empty() {
        return Err(Error::Missing("there is no token for Azure Event Hub"));
    }
    Ok(vec![Step::only(request.bearer(token)?)])
}

fn wrong(problem: &str) -> Error {
    Error::Address { service: "Azure Event Hub", problem: problem.to_owned() }
}

fn send(base: &Url, hub: &str, event: &Event) -> Request {
    let mut url = below(base, &[hub, "messages"]);
    url.set_query(Some(VERSION));
    Request::new(http::Method::POST, url, "application/json", event.to_json())
}

/// `Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…`
fn with_shared_key(event: &Event, settings: &Settings) -> Result<Request, Error> {
    let value = |name: &str| {
        let found = settings
            .address
            .split(';')
            .find_map(|part| part.trim().strip_prefix(&format!("{name}=")).map(str::to_owned));
        found.filter(|value| !value.is_empty())
    };
    let missing = |name: &str| wrong(&format!("the connection string has no {name}"));
    let endpoint = value("Endpoint").ok_or_else(|| missing("Endpoint"))?;
    let name = value("SharedAccessKeyName").ok_or_else(|| missing("SharedAccessKeyName"))?;
    let key = value("SharedAccessKey").ok_or_else(|| missing("SharedAccessKey"))?;
    let hub = value("EntityPath").ok_or_else(|| missing("EntityPath"))?;
    let host = endpoint.strip_prefix("sb://").ok_or_else(|| wrong("the Endpoint must begin with sb://"))?;
    let base = Url::parse(&format!("https://{}/", host.trim_end_matches('/')))
        .map_err(|_| wrong("the Endpoint is no address"))?;
    let escaped = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let resource = escaped(below(&base, &[&hub]).as_str());
    let expires = settings.now + LASTS;
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key of any length will do");
    mac.update(format!("{resource}\n{expires}").as_bytes());
    let signature = escaped(&STANDARD.encode(mac.finalize().into_bytes()));
    let authorization =
        format!("SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={}", escaped(&name));
    send(&base, &hub, event).authorization(&authorization)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::plan;
    use crate::notification::provider::tests::{problem, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_shared_key_signs() {
        let address = "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=a+b/c=;EntityPath=hub";
        let mut settings = settings(ProviderType::AzureEventHub, address);
        settings.now = 1000;
        let sent = plan(&example(), &settings).unwrap().remove(0).request;
        assert_eq!(sent.line(), format!("POST https://ns.servicebus.windows.net/hub/messages?{VERSION}"));
        assert_eq!(Event::parse(&sent.body).unwrap(), example());
        let authorization = sent.value("authorization");
        let start = "SharedAccessSignature sr=https%3A%2F%2Fns.servicebus.windows.net%2Fhub&sig=";
        assert!(
            authorization.starts_with(start) && authorization.ends_with("&se=1600&skn=send"),
            "{authorization}"
        );
        for (part, name) in [
            ("EntityPath", "EntityPath"),
            ("Endpoint=sb", "Endpoint"),
            ("SharedAccessKeyName", "SharedAccessKeyName"),
        ] {
            settings.address = address.replace(part, "x");
            assert_eq!(
                problem(&example(), &settings),
                format!("invalid Azure Event Hub address: the connection string has no {name}")
            );
        }
    }

    #[test]
    fn a_token_or_the_machine_speaks_for_a_hub() {
        let mut settings = settings(ProviderType::AzureEventHub, "hub");
        assert!(problem(&example(), &settings).contains("its namespace as the channel"));
        settings.channel = "ns".to_owned();
        assert_eq!(problem(&example(), &settings), "there is no token for Azure Event Hub");
        settings.identity = "t".to_owned().into();
        let sent = plan(&example(), &settings).unwrap().remove(0).request;
        let line = format!("POST https://ns.servicebus.windows.net/hub/messages?{VERSION}");
        assert_eq!((sent.line(), sent.value("authorization")), (line.clone(), "Bearer t"));
        settings.service_bus = "servicebus.chinacloudapi.cn";
        let elsewhere = plan(&example(), &settings).unwrap().remove(0).request;
        assert_eq!(elsewhere.line(), line.replace("windows.net", "chinacloudapi.cn"));
        settings.service_bus = "servicebus.windows.net";
        settings.token = "jwt".to_owned().into();
        let sent = plan(&example(), &settings).unwrap().remove(0).request;
        assert_eq!((sent.line(), sent.value("authorization")), (line, "Bearer jwt"));
    }
}
