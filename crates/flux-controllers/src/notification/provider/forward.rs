//! The event itself to any webhook, signed or not.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn generic(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    Ok(vec![forward(event, settings)?])
}

/// As generic, with `X-Signature: sha256=<hex of the HMAC of the body>`.
pub(super) fn generic_hmac(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let request = forward(event, settings)?;
    let key = settings.required_token("HMAC key is empty")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key of any length will do");
    mac.update(&request.body);
    let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(vec![request.header("X-Signature", &format!("sha256={signature}"))?])
}

fn forward(event: &Event, settings: &Settings) -> Result<Request, Error> {
    let url = settings.url("webhook")?;
    let mut request = Request::new(http::Method::POST, url, "application/json", event.to_json())
        .header("gotk-component", &event.reporting_controller)?;
    for (name, value) in &settings.headers {
        request = request.header(name, value)?;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{problem, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn generic_sends_the_event_with_the_headers_of_the_secret() {
        let mut settings = settings(ProviderType::Generic, "https://example.com/hook?a=b");
        settings.headers = [("X-Forwarded-Proto".to_owned(), "https".to_owned())].into();
        let sent = &requests(&example(), &settings)[0];
        assert_eq!(sent.line(), "POST https://example.com/hook?a=b");
        assert_eq!(sent.value("gotk-component"), "source-controller");
        assert_eq!(
            (sent.value("content-type"), sent.value("x-forwarded-proto")),
            ("application/json", "https")
        );
        assert_eq!(Event::parse(&sent.body).unwrap(), example());
        assert_eq!(sent.value("x-signature"), "");
    }

    #[test]
    fn generic_hmac_signs_the_bytes_that_are_sent() {
        let mut settings = settings(ProviderType::GenericHmac, "https://example.com/");
        assert_eq!(problem(&example(), &settings), "HMAC key is empty");
        settings.token = "secret".to_owned().into();
        let sent = &requests(&example(), &settings)[0];
        let mut mac = Hmac::<Sha256>::new_from_slice(b"secret").unwrap();
        mac.update(&sent.body);
        let hex = sent.value("x-signature").strip_prefix("sha256=").unwrap();
        let bytes: Vec<u8> =
            (0..32).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        assert!(mac.verify_slice(&bytes).is_ok());
    }
}
