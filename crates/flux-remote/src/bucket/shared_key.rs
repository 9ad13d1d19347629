//! Azure's signature with an account's key: a request that says who makes it, and cannot be made into another one.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::secret::Secret;
use url::Url;

/// A storage account and one of its keys.
#[derive(Clone)]
pub struct SharedKey {
    account: String,
    key: Secret<Vec<u8>>,
}

impl SharedKey {
    /// `key` is in base64, as Azure shows it.
    pub fn new(account: &str, key: &str) -> Option<Self> {
        let key = STANDARD.decode(key.trim()).ok().filter(|key| !key.is_empty())?;
        Some(Self { account: account.to_owned(), key: Secret::new(key) })
    }

    /// What the header `authorization` of a GET without body says. `headers` are those that begin with `x-ms-`.
    pub(super) fn authorization(&self, url: &Url, headers: &[(&str, &str)]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.expose());
        let signature = hmac::sign(&key, self.text(url, headers).as_bytes());
        format!("SharedKey {}:{}", self.account, STANDARD.encode(signature))
    }

    fn text(&self, url: &Url, headers: &[(&str, &str)]) -> String {
        let mut headers = headers.to_vec();
        headers.sort_unstable();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        // The verb, and eleven standard headers that we do not send.
        format!("GET{}{headers}{}", "\n".repeat(12), self.resource(url))
    }

    /// Account, path and every parameter on a line of its own, decoded; values of one name together.
    fn resource(&self, url: &Url) -> String {
        let mut parameters: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.to_lowercase(), value.into_owned())).collect();
        parameters.sort();
        let mut text = format!("/{}{}", self.account, url.path());
        let mut last = None;
        for (name, value) in &parameters {
            if last == Some(name) {
                text.push_str(&format!(",{value}"));
            } else {
                text.push_str(&format!("\n{name}:{value}"));
            }
            last = Some(name);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_that_is_signed_is_as_azure_documents_it() {
        let key = SharedKey::new("myaccount", "a2V5").unwrap();
        let url = Url::parse(
            "https://myaccount.blob.core.windows.net/my%20container?restype=container&comp=list&Prefix=a%2Fb&x=2&x=1",
        )
        .unwrap();
        let headers = [("x-ms-version", "2023-11-03"), ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT")];
        assert_eq!(
            key.text(&url, &headers),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2023-11-03\n\
             /myaccount/my%20container\ncomp:list\nprefix:a/b\nrestype:container\nx:1,2"
        );
    }

    /// What Azure's own client for Go (azblob 1.6.4) wrote for a list.
    #[test]
    fn a_list_is_signed_as_azures_own_client_signs_it() {
        let key = SharedKey::new("fleet", "c2VjcmV0IGtleSBvZiB0aGUgYWNjb3VudA==").unwrap();
        let url = Url::parse(
            "https://fleet.blob.core.windows.net/manifests?comp=list&prefix=apps%2Fa%20b%2B%C3%A9&restype=container",
        )
        .unwrap();
        let headers = [("x-ms-date", "Mon, 16 Nov 2026 04:14:40 GMT"), ("x-ms-version", "2026-02-06")];
        assert_eq!(
            key.authorization(&url, &headers),
            "SharedKey fleet:HMYeIa1/+D4xGa93L6fhvxRtTXfEUxiIH59M8vld4pI="
        );
    }

    #[test]
    fn a_key_that_is_no_base64_is_none() {
        assert!(SharedKey::new("a", "not base64!").is_none() && SharedKey::new("a", "").is_none());
    }
}
