//! Objects as the recorded runs put them on the server: plain requests, nothing typed.

use std::collections::BTreeMap;
use std::sync::Mutex;

use base64::Engine as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

/// The API by path.
pub struct Objects {
    client: Client,
    known: Mutex<BTreeMap<(String, String), (String, bool)>>,
}

/// What the server answered.
pub struct Answered {
    pub code: u16,
    pub body: Value,
}

impl Answered {
    pub fn is_fine(&self) -> bool {
        self.code < 300
    }

    fn problem(&self) -> Option<String> {
        (!self.is_fine()).then(|| self.body["message"].as_str().unwrap_or("refused").to_owned())
    }
}

impl Objects {
    pub fn new(client: Client) -> Objects {
        Objects { client, known: Mutex::default() }
    }

    pub async fn request(&self, method: &str, path: &str, kind: &str, body: &Value) -> Answered {
        let content = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Body::from(content))
            .unwrap();
        let answer = self.client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.unwrap();
        Answered { code, body: serde_json::from_slice(&bytes).unwrap_or_default() }
    }

    async fn collection(&self, object: &Value) -> Option<String> {
        let version = object["apiVersion"].as_str()?.to_owned();
        let kind = object["kind"].as_str()?.to_owned();
        let base = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let key = (version, kind.clone());
        let known = self.known.lock().unwrap().get(&key).cloned();
        let (plural, namespaced) = match known {
            Some(known) => known,
            None => {
                let list = self.request("GET", &base, "application/json", &Value::Null).await;
                let resources = list.body["resources"].as_array().cloned().unwrap_or_default();
                let found = resources.iter().find(|one| {
                    one["kind"] == kind.as_str() && !one["name"].as_str().unwrap_or_default().contains('/')
                })?;
                let found = (found["name"].as_str()?.to_owned(), found["namespaced"].as_bool()?);
                self.known.lock().unwrap().insert(key, found.clone());
                found
            }
        };
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
        Some(if namespaced {
            format!("{base}/namespaces/{namespace}/{plural}")
        } else {
            format!("{base}/{plural}")
        })
    }

    async fn path(&self, object: &Value) -> Option<String> {
        let name = object.pointer("/metadata/name")?.as_str()?;
        Some(format!("{}/{name}", self.collection(object).await?))
    }

    /// Creates the object, then writes its status. What went wrong, if anything.
    pub async fn create(&self, object: &Value) -> Option<String> {
        let Some(collection) = self.collection(object).await else {
            return Some(format!("unknown kind {}", object["kind"]));
        };
        let created = self.request("POST", &collection, "application/json", object).await;
        if !created.is_fine() {
            return created.problem();
        }
        let mut with_status = object.clone();
        with_status["metadata"]["resourceVersion"] = created.body["metadata"]["resourceVersion"].clone();
        let answer = self.put_status(&with_status).await;
        if answer.code == 404 { None } else { answer.problem() }
    }

    pub async fn get(&self, object: &Value) -> Option<Value> {
        let path = self.path(object).await?;
        let answer = self.request("GET", &path, "application/json", &Value::Null).await;
        (answer.code == 200).then_some(answer.body)
    }

    pub async fn put_status(&self, object: &Value) -> Answered {
        let Some(path) = self.path(object).await else { return Answered { code: 404, body: Value::Null } };
        self.request("PUT", &format!("{path}/status"), "application/json", object).await
    }

    pub async fn delete(&self, object: &Value) {
        if let Some(path) = self.path(object).await {
            self.request("DELETE", &path, "application/json", &Value::Null).await;
        }
    }

    /// Applies as a manager. Upstream turns `stringData` into `data` before it does.
    pub async fn apply(&self, object: &Value, manager: &str) -> Option<String> {
        let mut object = object.clone();
        if object["kind"] == "Secret" && object["stringData"].is_object() {
            let mut data = object["data"].as_object().cloned().unwrap_or_else(Map::new);
            for (key, value) in object["stringData"].as_object().unwrap() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                data.insert(key.clone(), base64::prelude::BASE64_STANDARD.encode(text).into());
            }
            object.as_object_mut().unwrap().remove("stringData");
            object["data"] = data.into();
        }
        let path = self.path(&object).await?;
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.request("PATCH", &path, "application/apply-patch+yaml", &object).await.problem()
    }

    pub async fn label_crd(&self, name: &str, labels: &Value) {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let patch = json!({"metadata": {"labels": labels}});
        self.request("PATCH", &path, "application/merge-patch+json", &patch).await;
    }
}
