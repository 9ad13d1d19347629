//! What a command speaks to besides a cluster: a webhook receiver with scripted answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;
use testbed::http_server::{HttpServer, Security};

pub struct Webhook {
    pub http: HttpServer,
    state: Arc<Script>,
}

struct Script {
    answers: Vec<Value>,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Clone)]
pub struct Seen {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Webhook {
    pub fn start(answers: &Value) -> Webhook {
        let answers = answers.as_array().cloned().unwrap_or_default();
        let state = Arc::new(Script { answers, seen: Mutex::default() });
        let router = Router::new().fallback(received).with_state(state.clone());
        Webhook { http: HttpServer::start(router, Security::Plain).unwrap(), state }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }
}

async fn received(
    State(script): State<Arc<Script>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let mut seen = script.seen.lock().unwrap();
    let headers =
        headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("").to_owned()));
    seen.push(Seen {
        path: uri.path().to_owned(),
        headers: headers.collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let at = (seen.len() - 1).min(script.answers.len().saturating_sub(1));
    let answer = script.answers.get(at).cloned().unwrap_or_default();
    let code = answer["status"].as_u64().unwrap_or(200) as u16;
    (StatusCode::from_u16(code).unwrap(), answer["body"].as_str().unwrap_or_default().to_owned())
}
