//! Finding out who asks: an in-process caller, a client certificate, a bearer token, or nobody.

use std::collections::HashMap;
use std::sync::RwLock;

use http::HeaderMap;

use super::User;
use super::tokens::Signer;
use crate::status::Status;
use crate::storage::Store;

/// Put into a request's extensions by those who already know the caller: the TLS listener and in-process services.
#[derive(Debug, Clone)]
pub struct Peer(pub User);

pub struct Authenticator {
    static_tokens: RwLock<HashMap<String, User>>,
    pub signer: Signer,
}

impl Authenticator {
    pub fn new(signer: Signer) -> Authenticator {
        Authenticator { static_tokens: RwLock::default(), signer }
    }

    pub fn add_token(&self, token: String, user: User) {
        self.static_tokens.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(token, user);
    }

    /// A bearer token wins over a certificate, as in the real server's chain a wrong token fails the request.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
        store: &Store,
        now: i64,
    ) -> Result<User, Status> {
        if let Some(Peer(user)) = peer {
            return Ok(user.clone());
        }
        let Some(token) = bearer(headers) else { return Ok(User::anonymous()) };
        self.token_user(token, store, now, &[]).ok_or_else(Status::unauthorized)
    }

    /// Whose token this is. `audiences` empty means the server's own.
    pub fn token_user(&self, token: &str, store: &Store, now: i64, audiences: &[String]) -> Option<User> {
        let fixed = self.static_tokens.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(user) = fixed.get(token) {
            let mut user = user.clone();
            if !user.groups.iter().any(|group| group == "system:authenticated") {
                user.groups.push("system:authenticated".into());
            }
            return Some(user);
        }
        self.signer.verify(token, store, now, audiences)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
