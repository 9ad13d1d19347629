//! JSON over HTTP with a token. The token stays with the host: redirects are not followed.

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Method};
use serde_json::Value;

use crate::commands::bootstrap::credentials::builder;
use crate::error::{CliError, fail};
use crate::session::innermost;

use super::host::Call;

/// Answers of these hosts are small.
const MOST: usize = 16 << 20;

pub(super) struct Api {
    http: Client,
    base: String,
    header: (HeaderName, HeaderValue),
}

impl Api {
    pub(super) fn open(
        base: String,
        (name, value): (&'static str, String),
        certificate: Option<&str>,
    ) -> Result<Api, CliError> {
        let http = builder(certificate)?
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(format!("flux/v{}", crate::commands::version::CLIENT))
            .build()
            .map_err(|error| fail!("{error}"))?;
        let name: HeaderName = name.parse().map_err(|_| fail!("{name} is no header"))?;
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| fail!("the token holds characters that no token has"))?;
        value.set_sensitive(true);
        Ok(Api { http, base, header: (name, value) })
    }

    /// What is there, or `None`.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>, CliError> {
        self.send(Method::GET, path, None).await
    }

    /// A list, page after page while pages are full.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>, CliError> {
        let mut all = Vec::new();
        let sign = if path.contains('?') { '&' } else { '?' };
        for page in 1..=100 {
            let answer = self.get(&format!("{path}{sign}per_page=100&limit=100&page={page}")).await?;
            let answer = answer.unwrap_or_default();
            // Bitbucket wraps its lists.
            let items = answer
                .as_array()
                .or_else(|| answer.get("values").and_then(Value::as_array))
                .cloned()
                .unwrap_or_default();
            let full = items.len() >= 50 && answer.is_array();
            all.extend(items);
            if !full {
                break;
            }
        }
        Ok(all)
    }

    /// Changes something; what is not there to be changed is an error.
    pub(super) async fn call(&self, call: Call) -> Result<Value, CliError> {
        let shown = format!("{} {}{}", call.method, self.base, call.path);
        let answer = self.send(call.method, &call.path, call.body).await?;
        answer.ok_or_else(|| fail!("{shown}: 404 Not Found"))
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), CliError> {
        self.send(Method::DELETE, path, None).await.map(|_| ())
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Option<Value>, CliError> {
        let url = format!("{}{path}", self.base);
        let mut request =
            self.http.request(method.clone(), &url).header(self.header.0.clone(), self.header.1.clone());
        if let Some(body) = &body {
            request = request.json(body);
        }
        let failed = |error: reqwest::Error| fail!("{method} {url}: {}", innermost(&error));
        let mut answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > MOST {
                return Err(fail!("{method} {url}: the answer is longer than {MOST} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.as_u16() == 404 {
            return Ok(None);
        }
        if !status.is_success() {
            let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let message = ["/message", "/error", "/errors/0/message"].iter().find_map(|pointer| {
                said.pointer(pointer)
                    .map(|text| text.as_str().map_or_else(|| text.to_string(), str::to_owned))
            });
            return Err(fail!("{method} {url}: {status}: {}", message.unwrap_or_default()));
        }
        Ok(Some(serde_json::from_slice(&bytes).unwrap_or_default()))
    }
}
