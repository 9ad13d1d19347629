//! An S3 endpoint: whether a bucket is there, what is in it, and its objects.

use std::sync::Mutex;
use std::sync::PoisonError;

use jiff::Timestamp;
use reqwest::{Response, StatusCode};
use url::Url;

use super::http::{FIRST_WAIT, LARGEST_COMPLAINT, LARGEST_PAGE, Pages, TRIES, body, may_pass};
use super::signature::{self, encode};
use super::xml::{self, Piece};
use super::{Error, Keys, Object};
use crate::transport::{Transport, causes, shown};

/// A place that holds buckets and speaks S3.
pub struct S3 {
    client: reqwest::Client,
    endpoint: Url,
    /// Where none is given, the store says which one it is in.
    region: Mutex<String>,
    /// Nobody, when there are none.
    keys: Option<Keys>,
}

impl S3 {
    /// `endpoint` is host and port, as in a Bucket's spec.
    pub fn new(
        endpoint: &str,
        insecure: bool,
        region: Option<&str>,
        keys: Option<Keys>,
        transport: &Transport,
    ) -> Result<Self, Error> {
        let scheme = if insecure { "http" } else { "https" };
        let invalid = |problem: &str| Error::Endpoint(format!("Endpoint: {endpoint} {problem}"));
        let url = Url::parse(&format!("{scheme}://{endpoint}/"))
            .map_err(|_| invalid("does not follow ip address or domain name standards."))?;
        if url.path() != "/"
            || url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || endpoint.contains("://")
        {
            return Err(invalid("url cannot have fully qualified paths."));
        }
        let region = region.map_or_else(|| region_of(&url), str::to_owned);
        Ok(Self { client: transport.client()?, endpoint: url, region: Mutex::new(region), keys })
    }

    pub(super) async fn bucket_exists(&self, bucket: &str) -> Result<bool, Error> {
        match self.send("HEAD", &self.url(bucket, "")?).await {
            Ok(_) => Ok(true),
            Err(Error::Refused { status: 404, .. }) => Ok(false),
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
            let mut url = self.url(bucket, "")?;
            {
                let mut query = url.query_pairs_mut();
                query
                    .append_pair("list-type", "2")
                    .append_pair("encoding-type", "url")
                    .append_pair("max-keys", "1000");
                if !prefix.is_empty() {
                    query.append_pair("prefix", prefix);
                }
                if let Some(token) = pages.token() {
                    query.append_pair("continuation-token", token);
                }
            }
            let response = self.send("GET", &url).await?;
            let bytes = body(response, LARGEST_PAGE, "a list of objects").await?;
            let page = Page::read(&String::from_utf8_lossy(&bytes))?;
            let count = page.objects.len();
            page.objects.into_iter().for_each(|(key, etag)| each(key, etag));
            if !pages.turn(count, page.next)? {
                return Ok(());
            }
        }
    }

    pub(super) async fn get(&self, bucket: &str, key: &str, largest: u64) -> Result<Option<Object>, Error> {
        let response = match self.send("GET", &self.url(bucket, key)?).await {
            Ok(response) => response,
            Err(Error::Refused { status: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let etag = response.headers().get("etag").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let etag = etag.trim_matches('"').to_owned();
        let limit = usize::try_from(largest).unwrap_or(usize::MAX);
        let bytes = body(response, limit, key).await?;
        Ok(Some(Object { etag, bytes }))
    }

    /// Amazon has the bucket in the host name, everybody else in the path.
    fn url(&self, bucket: &str, key: &str) -> Result<Url, Error> {
        let host = self.endpoint.host_str().unwrap_or_default();
        let mut url = self.endpoint.clone();
        let key = encode(key, true);
        let virtual_host = host.ends_with(".amazonaws.com") || host.ends_with(".aliyuncs.com");
        if virtual_host && is_host_label(bucket) {
            url.set_host(Some(&format!("{bucket}.{host}")))
                .map_err(|error| Error::Endpoint(error.to_string()))?;
            url.set_path(&format!("/{key}"));
        } else {
            url.set_path(&format!("/{}/{key}", encode(bucket, false)));
        }
        Ok(url)
    }

    async fn send(&self, method: &'static str, url: &Url) -> Result<Response, Error> {
        let mut wait = FIRST_WAIT;
        let mut moved = false;
        for attempt in 1.. {
            let verb = if method == "HEAD" { reqwest::Method::HEAD } else { reqwest::Method::GET };
            let mut request = self.client.request(verb, url.clone());
            if let Some(keys) = &self.keys {
                let region = self.region.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let headers = signature::sign(keys, "s3", &region, method, url, Timestamp::now())
                    .ok_or_else(|| {
                        Error::Endpoint("the keys hold a character that no header may have".to_owned())
                    })?;
                request = request.headers(headers);
            }
            match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => {
                    let status = response.status();
                    let region = response.headers().get("x-amz-bucket-region");
                    let region = region.and_then(|value| value.to_str().ok()).map(str::to_owned);
                    let complaint = body(response, LARGEST_COMPLAINT, "an error").await.unwrap_or_default();
                    let complaint = String::from_utf8_lossy(&complaint).into_owned();
                    let region = region.or_else(|| xml::text_of(&complaint, "Region"));
                    if let Some(region) =
                        region.filter(|_| !moved && matches!(status.as_u16(), 301 | 400 | 403))
                    {
                        let mut known = self.region.lock().unwrap_or_else(PoisonError::into_inner);
                        if *known != region {
                            (*known, moved) = (region, true);
                            continue;
                        }
                    }
                    if attempt >= TRIES || !may_pass(status) {
                        return Err(refused(status, &complaint));
                    }
                }
                Err(error) if attempt >= TRIES || !error.is_connect() => {
                    return Err(Error::Unreachable { url: shown(url), cause: causes(error) });
                }
                Err(_) => {}
            }
            tokio::time::sleep(wait).await;
            wait *= 3;
        }
        unreachable!("the last try returns")
    }
}

fn refused(status: StatusCode, complaint: &str) -> Error {
    let code = xml::text_of(complaint, "Code").unwrap_or_default();
    let message = xml::text_of(complaint, "Message").unwrap_or_default();
    let problem = if message.is_empty() { status.to_string() } else { message.chars().take(500).collect() };
    Error::Refused { status: status.as_u16(), code, problem }
}

/// `s3.eu-west-1.amazonaws.com` says where it is; others are asked.
fn region_of(endpoint: &Url) -> String {
    let host = endpoint.host_str().unwrap_or_default();
    let region = host.strip_suffix(".amazonaws.com").and_then(|rest| {
        let rest = rest
            .strip_prefix("s3.dualstack.")
            .or_else(|| rest.strip_prefix("s3."))
            .or_else(|| rest.strip_prefix("s3-"))?;
        (!rest.contains('.')).then(|| rest.to_owned())
    });
    region.unwrap_or_else(|| "us-east-1".to_owned())
}

fn is_host_label(bucket: &str) -> bool {
    (3..=63).contains(&bucket.len())
        && bucket.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !bucket.starts_with('-')
        && !bucket.ends_with('-')
}

/// One page of a list.
#[derive(Default)]
struct Page {
    objects: Vec<(String, String)>,
    next: Option<String>,
}

impl Page {
    fn read(text: &str) -> Result<Self, Error> {
        let mut page = Page::default();
        let mut path: Vec<&str> = Vec::new();
        let (mut key, mut etag, mut truncated, mut encoded) = (String::new(), String::new(), false, false);
        for piece in xml::pieces(text) {
            match piece {
                Piece::Start(name, _) => {
                    if name == "Contents" {
                        (key, etag) = (String::new(), String::new());
                    }
                    if path.len() > 16 {
                        return Err(Error::Answer("a list of objects that is nested too deep".to_owned()));
                    }
                    path.push(name);
                }
                Piece::Text(text) => match path.as_slice() {
                    [_, "Contents", "Key"] => key = text,
                    [_, "Contents", "ETag"] => etag = text.trim_matches('"').to_owned(),
                    [_, "IsTruncated"] => truncated = text == "true",
                    [_, "NextContinuationToken"] => page.next = Some(text),
                    [_, "EncodingType"] => encoded = text == "url",
                    _ => {}
                },
                Piece::End(name) => {
                    if path.pop() != Some(name) {
                        return Err(Error::Answer("a list of objects that is no XML".to_owned()));
                    }
                    if name == "Contents" {
                        page.objects.push((std::mem::take(&mut key), std::mem::take(&mut etag)));
                    }
                }
            }
        }
        if !path.is_empty() {
            return Err(Error::Answer("a list of objects that was cut off".to_owned()));
        }
        if encoded {
            for (key, _) in &mut page.objects {
                *key = decode(key);
            }
        }
        if !truncated {
            page.next = None;
        }
        Ok(page)
    }
}

/// `%xx` and `+`, as the store encodes keys.
fn decode(text: &str) -> String {
    let pair = format!("k={text}");
    url::form_urlencoded::parse(pair.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(endpoint: &str) -> Result<S3, Error> {
        S3::new(endpoint, false, None, None, &Transport::default())
    }

    #[test]
    fn a_page_is_read_and_a_cut_one_is_not() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextContinuationToken>t&amp;</NextContinuationToken><Contents><Key>a%2Fb+c</Key><ETag>&quot;x&quot;</ETag>\
            <Owner><Key>not this</Key></Owner></Contents></ListBucketResult>";
        let page = Page::read(text).unwrap();
        assert_eq!(page.objects, [("a/b c".to_owned(), "x".to_owned())]);
        assert_eq!(page.next.as_deref(), Some("t&"));
        assert!(Page::read(&text[..text.len() - 20]).is_err());
        assert!(Page::read("<a></b>").is_err());
    }

    #[tokio::test]
    async fn buckets_are_in_the_path_or_in_the_host() {
        let url =
            |endpoint: &str, bucket: &str| store(endpoint).unwrap().url(bucket, "a b/c").unwrap().to_string();
        assert_eq!(url("minio.example.com:9000", "fleet"), "https://minio.example.com:9000/fleet/a%20b/c");
        assert_eq!(url("s3.amazonaws.com", "fleet"), "https://fleet.s3.amazonaws.com/a%20b/c");
        assert_eq!(url("s3.amazonaws.com", "dotted.name"), "https://s3.amazonaws.com/dotted.name/a%20b/c");
        for bad in ["https://minio", "minio/path", "user@minio", "mi nio", "minio?x"] {
            assert!(store(bad).is_err(), "{bad}");
        }
        let region = |endpoint: &str| region_of(&Url::parse(&format!("https://{endpoint}/")).unwrap());
        assert_eq!(region("s3.eu-west-1.amazonaws.com"), "eu-west-1");
        assert_eq!(region("s3.amazonaws.com"), "us-east-1");
    }
}
