//! Smart HTTP: accounts in front of `git http-backend`, a CGI program.
//!
//! Requests and answers are held in memory; test repositories are small.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};

use super::{Accounts, backend};
use crate::http_server::credentials;

/// No test pushes more than this.
const BODY_LIMIT: usize = 256 << 20;

#[derive(Clone)]
struct Site {
    root: PathBuf,
    accounts: Arc<Accounts>,
    is_old: Arc<AtomicBool>,
}

pub(super) fn router(root: PathBuf, accounts: Arc<Accounts>, is_old: Arc<AtomicBool>) -> Router {
    Router::new().fallback(answer).with_state(Site { root, accounts, is_old })
}

async fn answer(State(site): State<Site>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let Some(user) = site.accounts.admit(&parts) else {
        let mut response = text(StatusCode::UNAUTHORIZED, "unauthorized\n");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"testbed\""));
        return response;
    };
    let body = match axum::body::to_bytes(body, BODY_LIMIT).await {
        Ok(body) => body,
        Err(error) => return text(StatusCode::PAYLOAD_TOO_LARGE, &format!("{error}\n")),
    };
    let ran = tokio::task::spawn_blocking(move || site.run(&parts, &user, &body)).await;
    match ran {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}\n")),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}

impl Accounts {
    /// The user that a request comes from, or none if it may not come in.
    fn admit(&self, parts: &Parts) -> Option<String> {
        if self.passwords.is_empty() && self.tokens.is_empty() {
            return Some("anonymous".to_owned());
        }
        let value = parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        if let Some(token) = value.strip_prefix("Bearer ") {
            return self.knows_token(token).then(|| "token".to_owned());
        }
        let (user, password) = credentials(value)?;
        let known = self.passwords.iter().any(|(known, secret)| *known == user && *secret == password);
        (known || self.knows_token(&password)).then_some(user)
    }

    fn knows_token(&self, token: &str) -> bool {
        self.tokens.iter().any(|known| known == token)
    }
}

impl Site {
    fn run(&self, parts: &Parts, user: &str, body: &[u8]) -> Result<Response> {
        let header = |name: &str| {
            let value = parts.headers.get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or("")
        };
        let mut child = backend::git()
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env(
                "GIT_PROTOCOL",
                if self.is_old.load(Ordering::Relaxed) { "" } else { header("git-protocol") },
            )
            .env("PATH_INFO", parts.uri.path())
            .env("QUERY_STRING", parts.uri.query().unwrap_or(""))
            .env("REQUEST_METHOD", parts.method.as_str())
            .env("CONTENT_TYPE", header("content-type"))
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
            .env("REMOTE_USER", user)
            .env("REMOTE_ADDR", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start git http-backend: is git installed?")?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let output = std::thread::scope(|scope| {
            // git may stop reading early, for example when it refuses a push: not our error.
            scope.spawn(move || stdin.write_all(body));
            child.wait_with_output()
        })?;
        if output.stdout.is_empty() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        from_cgi(&output.stdout)
    }
}

/// A CGI answer is headers, an empty line and the body; the status is one of the headers.
fn from_cgi(output: &[u8]) -> Result<Response> {
    let end = output
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("git http-backend sent no headers")?;
    let mut response = Response::new(Body::from(output[end + 4..].to_vec()));
    for line in std::str::from_utf8(&output[..end])?.split("\r\n") {
        let (name, value) = line.split_once(':').context("not a header")?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().unwrap_or(value);
            *response.status_mut() = code.parse()?;
        } else {
            let name: HeaderName = name.parse()?;
            response.headers_mut().append(name, value.parse()?);
        }
    }
    Ok(response)
}

fn text(status: StatusCode, body: &str) -> Response {
    let mut response = Response::new(Body::from(body.to_owned()));
    *response.status_mut() = status;
    response
}
