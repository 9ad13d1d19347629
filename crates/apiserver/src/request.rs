//! What a request asks for, read from its method, path and query alone.
//!
//! The same reading is used to authorise, to audit and to dispatch, so that they cannot disagree.

use std::collections::HashMap;

use http::Method;

use crate::status::Status;

/// A request's address and verb.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestInfo {
    pub path: String,
    /// `get`, `list`, `create`, …; for other paths the method in lower case.
    pub verb: String,
    pub is_resource: bool,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows a proxy-like subresource.
    pub rest: String,
    pub query: Query,
}

impl RequestInfo {
    pub fn read(method: &Method, path: &str, query: &str) -> RequestInfo {
        let query = Query::parse(query);
        let mut info = RequestInfo { path: path.to_owned(), query, ..RequestInfo::default() };
        let decoded: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(percent_decode).collect();
        let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let rest = match parts[..] {
            ["api", version, ref rest @ ..] => {
                info.version = version.to_owned();
                rest
            }
            ["apis", group, version, ref rest @ ..] => {
                info.group = group.to_owned();
                info.version = version.to_owned();
                rest
            }
            _ => &[],
        };
        if rest.is_empty() {
            info.verb = method.as_str().to_ascii_lowercase();
            return info;
        }
        info.is_resource = true;
        info.read_resource(method, rest);
        info
    }

    fn read_resource(&mut self, method: &Method, mut parts: &[&str]) {
        // `/api/v1/watch/…` is the old way to say `?watch=true`.
        let old_watch = parts.len() > 1 && parts[0] == "watch";
        if old_watch {
            parts = &parts[1..];
        }
        if let ["namespaces", namespace, rest @ ..] = parts {
            self.namespace = (*namespace).to_owned();
            // `/namespaces/x`, `/namespaces/x/status` and `/finalize` are about the namespace itself.
            if !rest.is_empty() && !matches!(rest, ["status"] | ["finalize"]) {
                parts = rest;
            }
        }
        let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
        (self.resource, self.name, self.subresource) = (part(0), part(1), part(2));
        self.rest = parts.get(3..).unwrap_or_default().join("/");
        let watching = old_watch || self.query.is_true("watch");
        self.verb = match (method, self.name.is_empty()) {
            (&Method::GET | &Method::HEAD, true) => {
                if watching {
                    "watch"
                } else {
                    "list"
                }
            }
            (&Method::GET | &Method::HEAD, false) => {
                if old_watch {
                    "watch"
                } else {
                    "get"
                }
            }
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "deletecollection",
            (&Method::DELETE, false) => "delete",
            _ => "",
        }
        .to_owned();
    }
}

/// A decoded query string; of a repeated key the first counts, except where all are asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query(HashMap<String, Vec<String>>);

impl Query {
    pub fn parse(text: &str) -> Query {
        let mut map: HashMap<String, Vec<String>> = HashMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| percent_decode(&text.replace('+', " "));
            map.entry(decode(key)).or_default().push(decode(value));
        }
        Query(map)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.first().map(String::as_str)
    }

    pub fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Go's conversion: present and neither `false` nor `0`.
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "false" | "0"))
    }

    pub fn integer(&self, key: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(key).filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = text.parse().map_err(|_| {
            Status::bad_request(format!(
                "strconv.ParseInt: parsing {}: invalid syntax",
                serde_json::Value::from(text)
            ))
        })?;
        Ok(Some(number))
    }
}

/// Decodes `%xx`; what is no UTF-8 afterwards is replaced, and then simply not found.
pub fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::read(&method, path, query)
    }

    #[test]
    fn paths_are_read_as_kubernetes_reads_them() {
        let cases = [
            (Method::GET, "/api/v1/namespaces", "list", "", "namespaces", "", ""),
            (Method::GET, "/api/v1/namespaces/a", "get", "a", "namespaces", "a", ""),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update", "a", "namespaces", "a", "finalize"),
            (Method::GET, "/api/v1/namespaces/a/pods", "list", "a", "pods", "", ""),
            (Method::GET, "/api/v1/namespaces/a/pods?watch=true", "watch", "a", "pods", "", ""),
            (Method::GET, "/api/v1/watch/namespaces/a/pods/x", "watch", "a", "pods", "x", ""),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch",
                "a",
                "deployments",
                "d",
                "scale",
            ),
            (Method::DELETE, "/api/v1/nodes", "deletecollection", "", "nodes", "", ""),
            (Method::DELETE, "/api/v1/nodes/n", "delete", "", "nodes", "n", ""),
        ];
        for (method, uri, verb, namespace, resource, name, subresource) in cases {
            let info = read(method, uri);
            assert!(info.is_resource, "{uri}");
            let got = (&*info.verb, &*info.namespace, &*info.resource, &*info.name, &*info.subresource);
            assert_eq!(got, (verb, namespace, resource, name, subresource), "{uri}");
        }
        assert!(!read(Method::GET, "/apis/apps/v1").is_resource);
        assert_eq!(read(Method::GET, "/healthz").verb, "get");
    }

    #[test]
    fn queries_decode_both_spaces_and_escapes() {
        let query = Query::parse("labelSelector=app+in+%28a%2Cb%29&watch&x=1&x=2");
        assert_eq!(query.get("labelSelector"), Some("app in (a,b)"));
        assert!(query.is_true("watch"));
        assert_eq!(query.all("x"), ["1", "2"]);
    }
}
