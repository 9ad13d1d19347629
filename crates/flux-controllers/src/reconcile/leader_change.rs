//! While etcd chooses another leader, the API server answers with an error although nothing is wrong. Such a request is
//! sent once more, as Helm and helm-controller do.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;

/// Sends `request`, and once more when the answer says that there was no leader just then.
pub async fn send(client: &Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    let (parts, body) = request.into_parts();
    let again = body.try_clone().map(|body| Request::from_parts(parts.clone(), body));
    let answer = client.send(Request::from_parts(parts, body)).await?;
    let is_json = answer
        .headers()
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let (true, true, Some(again)) = (answer.status().is_server_error(), is_json, again) else {
        return Ok(answer);
    };
    let (parts, body) = answer.into_parts();
    let bytes = body.collect_bytes().await?;
    if is_leader_change(&bytes) {
        return client.send(again).await;
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

fn is_leader_change(answer: &[u8]) -> bool {
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let message = answer["message"].as_str().unwrap_or_default();
    answer["code"].as_i64().is_some_and(|code| code >= 500)
        && (message.ends_with("etcdserver: leader changed") || message.ends_with("raft proposal dropped"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    /// What a client hears that is told `first` and then that all is well, and how often it asked.
    async fn asked(code: u16, message: &str) -> (u16, String, usize) {
        let (asked, message) = (Arc::new(AtomicUsize::new(0)), message.to_owned());
        let seen = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (number, message) = (seen.fetch_add(1, Ordering::SeqCst), message.clone());
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let (code, text) = match number {
                    0 => (code, json!({"code": code, "message": message}).to_string()),
                    _ => (200, String::from_utf8(body.to_vec()).unwrap()),
                };
                let answer = Response::builder().status(code).header("content-type", "application/json");
                Ok::<_, tower::BoxError>(answer.body(Body::from(text.into_bytes())).unwrap())
            }
        });
        let client = Client::new(service, "default");
        let request = Request::post("/api").body(Body::from(b"sent".to_vec())).unwrap();
        let answer = send(&client, request).await.unwrap();
        let status = answer.status().as_u16();
        let text = String::from_utf8(answer.into_body().collect_bytes().await.unwrap().to_vec()).unwrap();
        (status, text, asked.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn a_change_of_etcds_leader_is_asked_through_once() {
        for message in
            ["etcdserver: leader changed", "rpc error: code = Unknown desc = raft proposal dropped"]
        {
            assert_eq!(asked(500, message).await, (200, "sent".to_owned(), 2), "{message}");
        }
        let (status, text, times) = asked(500, "boom").await;
        assert_eq!((status, times), (500, 1));
        assert!(text.contains("boom"), "the answer is passed on whole: {text}");
        assert_eq!(asked(409, "etcdserver: leader changed").await.2, 1);
    }
}
