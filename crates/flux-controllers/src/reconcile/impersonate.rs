//! Acting as somebody else: the same connection, another user.

use http::HeaderValue;
use http::header::HeaderName;
use kube::Client;
use kube::client::Body;

const USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A client whose every request is made as the ServiceAccount; the server adds the account's groups.
pub fn service_account(
    client: &Client,
    namespace: &str,
    account: &str,
) -> Result<Client, http::header::InvalidHeaderValue> {
    let user = HeaderValue::from_str(&format!("system:serviceaccount:{namespace}:{account}"))?;
    let inner = client.clone();
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        request.headers_mut().insert(USER, user.clone());
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    Ok(Client::new(service, namespace))
}
