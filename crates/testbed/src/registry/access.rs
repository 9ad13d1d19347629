//! Who may pull and push: everyone, holders of a password, or holders of a token that the registry itself gives out.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::response::Response;
use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::json;

use crate::http_server::credentials;

use super::{Site, json_answer, refuse, set};

/// The ways a registry can ask who is there.
#[derive(Clone, Debug)]
pub enum Access {
    Open,
    /// Basic authentication on every request.
    Basic {
        user: String,
        password: String,
    },
    /// The challenge of hosted registries: a token for the scope, bought with user and password.
    Token {
        user: String,
        password: String,
        anonymous_pull: bool,
    },
}

/// The tokens given out, with what each allows.
#[derive(Default)]
pub(super) struct Tokens {
    given: Mutex<HashMap<String, Grant>>,
}

#[derive(Clone)]
struct Grant {
    scopes: Vec<String>,
    may_push: bool,
}

impl Site {
    /// The answer to a request that may not come in.
    pub(super) fn refusal(
        &self,
        repository: Option<&str>,
        writes: bool,
        headers: &HeaderMap,
    ) -> Option<Response> {
        let authorization = headers.get(header::AUTHORIZATION);
        let authorization = authorization.and_then(|value| value.to_str().ok());
        match &self.access() {
            Access::Open => None,
            Access::Basic { user, password } => {
                let known = authorization.and_then(credentials) == Some((user.clone(), password.clone()));
                (!known).then(|| challenge("Basic realm=\"testbed\""))
            }
            Access::Token { .. } => {
                let token = authorization.and_then(|value| value.strip_prefix("Bearer "));
                if token.is_some_and(|token| self.tokens.allow(token, repository, writes)) {
                    return None;
                }
                Some(challenge(&self.token_challenge(repository, writes, headers)))
            }
        }
    }

    fn token_challenge(&self, repository: Option<&str>, writes: bool, headers: &HeaderMap) -> String {
        let host = headers.get(header::HOST);
        let host = host.and_then(|value| value.to_str().ok()).unwrap_or("127.0.0.1");
        let scheme = if self.secure { "https" } else { "http" };
        let mut text = format!("Bearer realm=\"{scheme}://{host}/token\",service=\"testbed\"");
        if let Some(name) = repository {
            let actions = if writes { "pull,push" } else { "pull" };
            text.push_str(&format!(",scope=\"repository:{name}:{actions}\""));
        }
        text
    }

    /// The token endpoint: with the right password for what was asked, without one for pulling if that is allowed.
    pub(super) fn token(&self, uri: &Uri, headers: &HeaderMap) -> Response {
        let Access::Token { user, password, anonymous_pull } = &self.access() else {
            return refuse(StatusCode::NOT_FOUND, "UNSUPPORTED", "no tokens here");
        };
        let authorization = headers.get(header::AUTHORIZATION);
        let offered = authorization
            .and_then(|value| value.to_str().ok())
            .map(|value| credentials(value).unwrap_or_default());
        let known = offered == Some((user.clone(), password.clone()));
        if offered.is_some() && !known || offered.is_none() && !anonymous_pull {
            return refuse(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "wrong user or password");
        }
        let scopes = crate::http_server::parameters(uri.query().unwrap_or_default())
            .into_iter()
            .filter(|(name, _)| name == "scope")
            .flat_map(|(_, scope)| scope.split(' ').map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let token = self.tokens.give(Grant { scopes, may_push: known });
        json_answer(&json!({"token": token, "access_token": token, "expires_in": 300}))
    }
}

impl Tokens {
    pub(super) fn revoke(&self) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        // Kept by name, so that numbers are not given out twice.
        given.values_mut().for_each(|grant| grant.scopes.clear());
    }

    fn give(&self, grant: Grant) -> String {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody attacks this registry; a number says best which token a test log shows.
        let token = format!("testbed-token-{}", given.len() + 1);
        given.insert(token.clone(), grant);
        token
    }

    fn allow(&self, token: &str, repository: Option<&str>, writes: bool) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(grant) = given.get(token) else {
            return false;
        };
        let Some(name) = repository else {
            return true;
        };
        let action = if writes { "push" } else { "pull" };
        let covered = grant.scopes.iter().any(|scope| {
            let actions = scope.strip_prefix(&format!("repository:{name}:"));
            actions.is_some_and(|actions| actions.split(',').any(|word| word == action || word == "*"))
        });
        covered && (grant.may_push || !writes)
    }
}

fn challenge(text: &str) -> Response {
    let mut response = refuse(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "authentication required");
    set(&mut response, "www-authenticate", text);
    response
}
