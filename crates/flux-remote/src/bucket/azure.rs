//! Azure Blob Storage through its REST API: a container is a bucket.

use flux_api::secret::SecretString;
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Response, StatusCode};
use url::Url;

use super::http::{self, LARGEST_PAGE, Pages, body, segment};
use super::shared_key::SharedKey;
use super::signature::encode;
use super::xml::{self, Piece};
use super::{Error, Object};
use crate::transport::Transport;

const VERSION: &str = "2023-11-03";
/// What Azure gives at most.
const PAGE: &str = "5000";
const MASK: &str = "*****";

/// Who asks.
#[derive(Clone)]
pub enum AzureAccess {
    /// Nobody: the container is open.
    Anonymous,
    Token(SecretString),
    SharedKey(SharedKey),
    /// The query of a shared access signature.
    Sas(SecretString),
}

/// A storage account.
pub struct Azure {
    client: reqwest::Client,
    endpoint: Url,
    access: AzureAccess,
    /// What no message may hold, though a server may send it back.
    hidden: Vec<String>,
}

impl Azure {
    /// `endpoint` is the account's address. It may have a query, which goes along with every request.
    pub fn new(endpoint: &str, access: AzureAccess, transport: &Transport) -> Result<Self, Error> {
        let mut url = parse(endpoint)?;
        if let AzureAccess::Token(_) = access
            && !is_private(&url)
        {
            let problem = "authenticated requests are not permitted for non TLS protected (https) endpoints";
            return Err(Error::Endpoint(problem.to_owned()));
        }
        if let AzureAccess::Sas(query) = &access {
            merge(&mut url, query.expose());
        }
        let hidden = hidden(&url);
        Ok(Self { client: transport.client()?, endpoint: url, access, hidden })
    }

    pub(super) async fn bucket_exists(&self, bucket: &str) -> Result<bool, Error> {
        let list = [("restype", "container"), ("comp", "list"), ("maxresults", "1")];
        match self.send(&self.url(bucket, "", &list)?).await {
            Ok(_) => Ok(true),
            Err(Error::Refused { code, .. }) if code == "ContainerNotFound" => Ok(false),
            // A signature for one container is no use at another, whether that is there or not.
            Err(Error::Refused { status, code, problem }) if code == "AuthenticationFailed" => {
                let problem = format!(
                    "the specified bucket name may be incorrect, nonexistent, or the caller might lack sufficient permissions to access it: {problem}"
                );
                Err(Error::Refused { status, code, problem })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn list(
        &self,
        bucket: &str,
        prefix: &str,
        mut each: impl FnMut(String, String),
    ) -> Result<(), Error> {
        let mut pages = Pages::default();
        loop {
            let mut query = vec![("restype", "container"), ("comp", "list"), ("maxresults", PAGE)];
            query.extend((!prefix.is_empty()).then_some(("prefix", prefix)));
            query.extend(pages.token().map(|marker| ("marker", marker)));
            let response = self.send(&self.url(bucket, "", &query)?).await?;
            let bytes = body(response, LARGEST_PAGE, "a list of objects").await?;
            let page = Page::read(&String::from_utf8_lossy(&bytes))?;
            let count = page.blobs.len();
            page.blobs.into_iter().for_each(|(key, etag)| each(key, etag));
            if !pages.turn(count, page.next)? {
                return Ok(());
            }
        }
    }

    pub(super) async fn get(&self, bucket: &str, key: &str, largest: u64) -> Result<Option<Object>, Error> {
        let response = match self.send(&self.url(bucket, key, &[])?).await {
            Ok(response) => response,
            Err(Error::Refused { code, .. }) if code == "BlobNotFound" => return Ok(None),
            Err(error) => return Err(error),
        };
        let etag = response.headers().get("etag").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let etag = quoted(etag);
        let limit = usize::try_from(largest).unwrap_or(usize::MAX);
        let bytes = body(response, limit, key).await?;
        Ok(Some(Object { etag, bytes }))
    }

    fn url(&self, bucket: &str, key: &str, query: &[(&str, &str)]) -> Result<Url, Error> {
        let mut url = self.endpoint.clone();
        let mut path = format!("{}/{}", url.path().trim_end_matches('/'), segment(bucket)?);
        if !key.is_empty() {
            path = format!("{path}/{}", encode(key, true));
        }
        url.set_path(&path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        // To Azure a plus is a plus.
        let spaced = url.query().map(|query| query.replace('+', "%20"));
        url.set_query(spaced.as_deref());
        Ok(url)
    }

    async fn send(&self, url: &Url) -> Result<Response, Error> {
        let request = || {
            let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let own = [("x-ms-date", date.as_str()), ("x-ms-version", VERSION)];
            let mut request = self.client.get(url.clone());
            for (name, value) in own {
                request = request.header(name, value);
            }
            match &self.access {
                AzureAccess::Anonymous | AzureAccess::Sas(_) => Ok(request),
                AzureAccess::Token(token) => Ok(request.bearer_auth(token.expose())),
                AzureAccess::SharedKey(key) => {
                    let mut value = HeaderValue::from_str(&key.authorization(url, &own)).map_err(|_| {
                        Error::Endpoint(
                            "the account's name holds a character that no header may have".to_owned(),
                        )
                    })?;
                    value.set_sensitive(true);
                    Ok(request.header(AUTHORIZATION, value))
                }
            }
        };
        http::send(url, request, |status, complaint| self.refused(status, complaint)).await
    }

    /// The first line of what Azure says: further ones are numbers and times, and details quote what was signed.
    fn refused(&self, status: StatusCode, complaint: &str) -> Error {
        let code = xml::text_of(complaint, "Code").unwrap_or_default();
        let message = xml::text_of(complaint, "Message").unwrap_or_default();
        let line: String = message.lines().next().unwrap_or_default().chars().take(500).collect();
        let line = self.hidden.iter().fold(line, |line, secret| line.replace(secret, MASK));
        let problem = match (code.as_str(), line.as_str()) {
            ("", "") => status.to_string(),
            (code, "") => format!("{status}: {code}"),
            ("", line) => line.to_owned(),
            (code, line) => format!("{code}: {line}"),
        };
        Error::Refused { status: status.as_u16(), code, problem }
    }
}

/// The account that an address is of: the first part of its host.
pub fn azure_account(endpoint: &str) -> Result<String, Error> {
    let url = parse(endpoint)?;
    let host = url.host_str().unwrap_or_default();
    let parts: Vec<&str> = host.split('.').collect();
    if parts.len() <= 2 {
        return Err(Error::Endpoint(format!(
            "failed to extract account name from endpoint: expected '{host}' to be a subdomain"
        )));
    }
    Ok(parts[0].to_owned())
}

fn parse(endpoint: &str) -> Result<Url, Error> {
    // What is no address may still hold a signature.
    let invalid = || {
        let shown = endpoint.split('?').next().unwrap_or_default();
        Error::Endpoint(format!("endpoint '{shown}' is no address that begins with https://"))
    };
    let url = Url::parse(endpoint).map_err(|_| invalid())?;
    match url.scheme() {
        "https" | "http" if url.has_host() && url.username().is_empty() && url.password().is_none() => {
            Ok(url)
        }
        _ => Err(invalid()),
    }
}

/// Whether nobody on the way can read along.
fn is_private(url: &Url) -> bool {
    let loopback = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || loopback
}

/// Puts the parameters of a signature before those of the endpoint; of two with one name the signature's stays.
fn merge(url: &mut Url, query: &str) {
    let query = query.trim().trim_start_matches('?');
    let own: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .filter(|(name, _)| !name.is_empty())
        .collect();
    let kept: Vec<(String, String)> =
        url.query_pairs().into_owned().filter(|(name, _)| own.iter().all(|(ours, _)| ours != name)).collect();
    url.set_query(None);
    if !own.is_empty() || !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(own).extend_pairs(kept);
    }
}

/// The signature in an address, as it is written there and as it reads.
fn hidden(url: &Url) -> Vec<String> {
    let mut hidden: Vec<String> = Vec::new();
    for pair in url.query().unwrap_or_default().split('&') {
        if let Some(raw) = pair.strip_prefix("sig=") {
            hidden.push(raw.to_owned());
        }
    }
    hidden.extend(url.query_pairs().filter(|(name, _)| name == "sig").map(|(_, value)| value.into_owned()));
    hidden.retain(|text| !text.is_empty());
    hidden
}

/// Lists have tags without quotes and downloads with them. Upstream's revisions are made of the second kind.
fn quoted(etag: &str) -> String {
    format!("\"{}\"", etag.trim_matches('"'))
}

/// One page of a list.
#[derive(Default)]
struct Page {
    blobs: Vec<(String, String)>,
    next: Option<String>,
}

impl Page {
    fn read(text: &str) -> Result<Self, Error> {
        let wrong = |problem: &str| Error::Answer(format!("a list of objects that {problem}"));
        // Some proxies put a mark in front.
        let text = text.trim_start_matches('\u{feff}');
        let mut page = Page::default();
        let mut path: Vec<&str> = Vec::new();
        let (mut name, mut etag, mut encoded) = (String::new(), String::new(), false);
        let mut complete = false;
        for piece in xml::pieces(text) {
            match piece {
                Piece::Start(tag, attributes) => {
                    match tag {
                        "Blob" => (name, etag, encoded) = (String::new(), String::new(), false),
                        "Name" => encoded = attributes.contains("Encoded=\"true\""),
                        _ => {}
                    }
                    if path.len() > 16 {
                        return Err(wrong("is nested too deep"));
                    }
                    path.push(tag);
                }
                Piece::Text(text) => match path.as_slice() {
                    ["EnumerationResults", "Blobs", "Blob", "Name"] => {
                        name = if encoded { percent_decoded(&text) } else { text };
                    }
                    ["EnumerationResults", "Blobs", "Blob", "Properties", "Etag"] => etag = quoted(&text),
                    ["EnumerationResults", "NextMarker"] => page.next = Some(text),
                    _ => {}
                },
                Piece::End(tag) => {
                    if path.pop() != Some(tag) {
                        return Err(wrong("is no XML"));
                    }
                    if tag == "Blob" {
                        page.blobs.push((std::mem::take(&mut name), std::mem::take(&mut etag)));
                    }
                    complete |= tag == "EnumerationResults" && path.is_empty();
                }
            }
        }
        if complete && path.is_empty() { Ok(page) } else { Err(wrong("was cut off")) }
    }
}

/// Names that XML cannot hold are written so.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        plain.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn azure(endpoint: &str, access: AzureAccess) -> Result<Azure, Error> {
        Azure::new(endpoint, access, &Transport::default())
    }

    fn sas(query: &str) -> AzureAccess {
        AzureAccess::Sas(SecretString::new(query.to_owned()))
    }

    #[test]
    fn a_page_is_read_and_a_cut_one_is_not() {
        let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"https://a/\"><Prefix>x</Prefix><Blobs>\
            <Blob><Name>a &amp; b/c</Name><Properties><Etag>0x8D1</Etag><Owner>x</Owner></Properties></Blob>\
            <Blob><Name Encoded=\"true\">d%EF%BF%BEe%</Name><Properties><Etag>\"0x8D2\"</Etag></Properties><OrMetadata/></Blob>\
            </Blobs><NextMarker>2!8!next</NextMarker></EnumerationResults>";
        let page = Page::read(text).unwrap();
        let wanted = [("a & b/c", "\"0x8D1\""), ("d\u{fffe}e%", "\"0x8D2\"")];
        assert_eq!(page.blobs, wanted.map(|(name, etag)| (name.to_owned(), etag.to_owned())));
        assert_eq!(page.next.as_deref(), Some("2!8!next"));
        assert!(
            Page::read("<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>")
                .unwrap()
                .next
                .is_none()
        );
        for cut in [&text[..text.len() - 30], "<EnumerationResults><Blobs/>", "<a></b>", "", "<html></html>"]
        {
            assert!(Page::read(cut).is_err(), "{cut}");
        }
    }

    #[tokio::test]
    async fn a_signature_goes_before_the_parameters_of_the_endpoint() {
        let store =
            azure("https://a.blob.core.windows.net/?sig=old&x=1", sas("?sv=2022&sig=a%2Fb%3D")).unwrap();
        let url = store.url("fleet", "a b/c", &[("comp", "list")]).unwrap();
        assert_eq!(
            url.as_str(),
            "https://a.blob.core.windows.net/fleet/a%20b/c?sv=2022&sig=a%2Fb%3D&x=1&comp=list"
        );
        let url = store.url("fleet", "", &[("prefix", "a b+c")]).unwrap();
        assert!(url.as_str().ends_with("&prefix=a%20b%2Bc"), "{url}");
        let told = store.refused(
            StatusCode::FORBIDDEN,
            "<Error><Code>AuthenticationFailed</Code><Message>not a/b= nor a%2Fb%3D\nRequestId:1</Message></Error>",
        );
        assert_eq!(told.to_string(), "AuthenticationFailed: not ***** nor *****");
    }

    #[tokio::test]
    async fn tokens_are_not_sent_where_others_read_along() {
        let token = || AzureAccess::Token(SecretString::new("canary".to_owned()));
        for endpoint in ["https://a.blob.core.windows.net", "http://127.0.0.1:10000/dev", "http://localhost"]
        {
            assert!(azure(endpoint, token()).is_ok(), "{endpoint}");
        }
        let error = azure("http://a.blob.core.windows.net", token()).err().unwrap().to_string();
        assert!(error.contains("non TLS protected"), "{error}");
        assert!(azure("http://a.blob.core.windows.net", AzureAccess::Anonymous).is_ok());
    }

    #[test]
    fn the_account_is_the_first_part_of_the_host() {
        assert_eq!(azure_account("https://fleet.blob.core.windows.net").unwrap(), "fleet");
        for bad in [
            "https://example.com",
            "fleet.blob.core.windows.net?sig=canary",
            "ftp://a.b.c",
            "https://u:p@a.b.c",
        ] {
            let error = azure_account(bad).unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
