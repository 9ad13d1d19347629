//! The audit log: one line of JSON for each request that may have changed something. It names who did what to which
//! object and how it ended, never what the object holds.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use serde_json::json;

use crate::auth::User;
use crate::request::RequestInfo;
use crate::server::Error;

pub struct Log(Mutex<File>);

impl Log {
    pub fn open(path: &Path) -> Result<Log, Error> {
        let mut options = std::fs::OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file =
            options.open(path).map_err(|source| Error::File { path: path.display().to_string(), source })?;
        Ok(Log(Mutex::new(file)))
    }

    pub fn write(&self, info: &RequestInfo, caller: &User, acting: &User, id: &str, code: u16, time: &str) {
        if matches!(info.verb.as_str(), "get" | "list" | "watch") {
            return;
        }
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
            "auditID": id, "requestURI": info.path, "verb": info.verb, "user": { "username": caller.name, "groups": caller.groups },
            "objectRef": {
                "resource": info.resource, "namespace": info.namespace, "name": info.name,
                "apiGroup": info.group, "apiVersion": info.version, "subresource": info.subresource,
            },
            "responseStatus": { "code": code }, "requestReceivedTimestamp": time,
        });
        if acting != caller {
            event["impersonatedUser"] = json!({ "username": acting.name, "groups": acting.groups });
        }
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = writeln!(file, "{event}") {
            tracing::warn!(%error, "audit log cannot be written");
        }
    }
}
