//! Writing answers: status codes, headers, JSON or YAML, gzip, streams.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::Value;
use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;

use crate::auth::flow::Flow;
use crate::media::{Accept, Encoding};
use crate::status::Status;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers smaller than this are not compressed, as in the real server.
const GZIP_FROM: usize = 128 << 10;

pub struct Answer {
    code: StatusCode,
    content_type: &'static str,
    content: Content,
    warnings: Vec<String>,
    etag: Option<String>,
    flow: Option<Flow>,
}

enum Content {
    Bytes(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Answer {
    pub fn json(code: StatusCode, bytes: impl Into<Bytes>) -> Answer {
        Answer::new(code, "application/json", Content::Bytes(bytes.into()))
    }

    /// An object in the encoding the client accepts.
    pub fn value(code: StatusCode, value: &Value, accept: Accept) -> Answer {
        match accept.encoding {
            Encoding::Json if accept.pretty => {
                let text = serde_json::to_vec_pretty(value).expect("a JSON value has string keys");
                Answer::json(code, text)
            }
            Encoding::Json => Answer::json(code, value.to_string()),
            Encoding::Yaml => {
                let text = crate::yaml_text::from_json(value);
                Answer::new(code, "application/yaml", Content::Bytes(text.into()))
            }
        }
    }

    pub fn status(status: &Status) -> Answer {
        Answer::json(status.code, status.to_json().to_string())
    }

    /// A failure in the encoding the client accepts, if it accepts one.
    pub fn failure(status: &Status, headers: &HeaderMap) -> Answer {
        let accept = Accept::read(headers).unwrap_or(Accept::JSON);
        Answer::value(status.code, &status.to_json(), Accept { form: crate::media::Form::Object, ..accept })
    }

    pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
        Answer::new(code, "text/plain; charset=utf-8", Content::Bytes(text.into()))
    }

    /// A watch: one JSON document a line.
    pub fn stream(lines: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
        Answer::new(StatusCode::OK, "application/json", Content::Stream(Box::pin(lines)))
    }

    pub fn of_type(mut self, content_type: &'static str) -> Answer {
        self.content_type = content_type;
        self
    }

    pub fn with_warnings(mut self, warnings: Vec<String>) -> Answer {
        self.warnings = warnings;
        self
    }

    pub fn with_etag(mut self, etag: String) -> Answer {
        self.etag = Some(etag);
        self
    }

    /// Says which flow the request belonged to.
    pub fn with_flow(mut self, flow: Option<Flow>) -> Answer {
        self.flow = flow;
        self
    }

    pub fn code(&self) -> StatusCode {
        self.code
    }

    fn new(code: StatusCode, content_type: &'static str, content: Content) -> Answer {
        Answer { code, content_type, content, warnings: Vec::new(), etag: None, flow: None }
    }
}

pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let value =
        headers.get(http::header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(',').any(|part| part.trim().split(';').next() == Some("gzip"))
}

pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

pub fn write(answer: Answer, gzip: bool) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = answer.code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    for warning in answer.warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quoted(&warning))) {
            headers.append("warning", value);
        }
    }
    if let Some(Ok(etag)) = answer.etag.map(|etag| HeaderValue::from_str(&etag)) {
        headers.insert(http::header::ETAG, etag);
        headers.insert(VARY, HeaderValue::from_static("Accept"));
    }
    if let Some(flow) = answer.flow {
        for (name, uid) in [
            ("x-kubernetes-pf-flowschema-uid", flow.schema_uid),
            ("x-kubernetes-pf-prioritylevel-uid", flow.level_uid),
        ] {
            if let Ok(value) = HeaderValue::from_str(&uid) {
                headers.insert(name, value);
            }
        }
    }
    match answer.content {
        Content::Bytes(bytes) if gzip && bytes.len() > GZIP_FROM => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
            *response.body_mut() = full(compressed(&bytes));
        }
        Content::Bytes(bytes) => *response.body_mut() = full(bytes),
        Content::Stream(lines) => {
            let frames = lines.map(|line| Ok(http_body::Frame::data(line)));
            *response.body_mut() = StreamBody::new(frames).boxed_unsync();
        }
    }
    response
}

fn compressed(bytes: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory can be written to");
    encoder.finish().expect("memory can be written to").into()
}

/// A quoted string of RFC 7234: only quotes and backslashes need escaping, control characters go.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .filter(|c| !c.is_control())
        .flat_map(|c| if c == '"' || c == '\\' { vec!['\\', c] } else { vec![c] })
        .collect();
    format!("\"{escaped}\"")
}
