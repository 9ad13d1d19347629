//! `Status`: how Kubernetes says that a request failed, in its exact words and shape.
//!
//! One constructor for each failure clients can tell apart. Nothing here decides *when* a request fails.

use http::StatusCode;
use serde_json::{Map, Value, json};

/// A failed request, ready to be written as a `Status` object.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: StatusCode,
    pub reason: &'static str,
    pub message: String,
    details: Option<Map<String, Value>>,
}

/// One wrong field, as `details.causes` shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    pub reason: CauseReason,
    pub message: String,
    pub field: String,
}

/// The closed set of reasons Kubernetes gives for a wrong field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseReason {
    Required,
    Invalid,
    Duplicate,
    NotSupported,
    NotFound,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    ManagerConflict,
}

impl CauseReason {
    pub fn name(self) -> &'static str {
        match self {
            CauseReason::Required => "FieldValueRequired",
            CauseReason::Invalid => "FieldValueInvalid",
            CauseReason::Duplicate => "FieldValueDuplicate",
            CauseReason::NotSupported => "FieldValueNotSupported",
            CauseReason::NotFound => "FieldValueNotFound",
            CauseReason::Forbidden => "FieldValueForbidden",
            CauseReason::TooLong => "FieldValueTooLong",
            CauseReason::TooMany => "FieldValueTooMany",
            CauseReason::TypeInvalid => "FieldValueTypeInvalid",
            CauseReason::ManagerConflict => "FieldManagerConflict",
        }
    }
}

impl Cause {
    pub fn required(field: impl Into<String>, detail: &str) -> Cause {
        Cause::new(CauseReason::Required, field, with_detail("Required value", detail))
    }

    /// `value` is written as Go's `%q`/JSON would show it.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
        let message = with_detail(&format!("Invalid value: {value}"), detail);
        Cause::new(CauseReason::Invalid, field, message)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
        Cause::new(CauseReason::Forbidden, field, with_detail("Forbidden", detail))
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
        Cause::new(CauseReason::Duplicate, field, format!("Duplicate value: {value}"))
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Cause {
        Cause::new(CauseReason::NotFound, field, format!("Not found: {value}"))
    }

    pub fn too_long(field: impl Into<String>, limit: usize) -> Cause {
        let message = format!("Too long: may not be more than {limit} bytes");
        Cause::new(CauseReason::TooLong, field, message)
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Cause {
        let quoted: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", quoted.join(", "));
        Cause::new(CauseReason::NotSupported, field, message)
    }

    pub fn new(reason: CauseReason, field: impl Into<String>, message: impl Into<String>) -> Cause {
        Cause { reason, message: message.into(), field: field.into() }
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

/// What a failure is about: the resource (or kind) and the object's name.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub group: &'a str,
    /// The plural resource for most failures, the kind for `Invalid`: Kubernetes puts both under `details.kind`.
    pub kind: &'a str,
    pub name: &'a str,
}

impl About<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details
    }
}

impl Status {
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Status {
        Status { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, about: About<'_>) -> Status {
        self.details = Some(about.details());
        self
    }

    /// Many answers carry `"details": {}`; others leave it out. Clients see both, so we keep the difference.
    pub fn with_empty_details(mut self) -> Status {
        self.details = Some(Map::new());
        self
    }

    pub fn with_causes(mut self, causes: &[Cause]) -> Status {
        let list = causes
            .iter()
            .map(|cause| {
                let mut entry = Map::new();
                entry.insert("reason".into(), cause.reason.name().into());
                entry.insert("message".into(), cause.message.clone().into());
                if !cause.field.is_empty() {
                    entry.insert("field".into(), cause.field.clone().into());
                }
                Value::Object(entry)
            })
            .collect();
        self.details.get_or_insert_default().insert("causes".into(), Value::Array(list));
        self
    }

    fn with_raw_cause(mut self, reason: &str, message: String, field: &str) -> Status {
        let mut entry = Map::new();
        entry.insert("reason".into(), reason.into());
        entry.insert("message".into(), message.into());
        if !field.is_empty() {
            entry.insert("field".into(), field.into());
        }
        self.details.get_or_insert_default().insert("causes".into(), json!([entry]));
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn unauthorized() -> Status {
        Status::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub fn not_found(about: About<'_>) -> Status {
        let message = format!("{} \"{}\" not found", about.qualified(), about.name);
        Status::new(StatusCode::NOT_FOUND, "NotFound", message).about(about)
    }

    pub fn no_such_resource() -> Status {
        let message = "the server could not find the requested resource";
        Status::new(StatusCode::NOT_FOUND, "NotFound", message).with_empty_details()
    }

    pub fn method_not_allowed() -> Status {
        let message = "the server does not allow this method on the requested resource";
        Status::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with_empty_details()
    }

    pub fn already_exists(about: About<'_>) -> Status {
        let message = format!("{} \"{}\" already exists", about.qualified(), about.name);
        Status::new(StatusCode::CONFLICT, "AlreadyExists", message).about(about)
    }

    pub fn conflict(about: About<'_>, why: &str) -> Status {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", about.qualified(), about.name);
        Status::new(StatusCode::CONFLICT, "Conflict", message).about(about)
    }

    pub fn modified(about: About<'_>) -> Status {
        Status::conflict(
            about,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Server-side apply met fields owned by others.
    pub fn apply_conflict(message: String, causes: &[Cause]) -> Status {
        Status::new(StatusCode::CONFLICT, "Conflict", message).with_empty_details().with_causes(causes)
    }

    pub fn forbidden(about: About<'_>, why: &str) -> Status {
        let message = match about.name {
            "" => format!("{} is forbidden: {why}", about.qualified()),
            name => format!("{} \"{name}\" is forbidden: {why}", about.qualified()),
        };
        Status::new(StatusCode::FORBIDDEN, "Forbidden", message).about(about)
    }

    pub fn forbidden_path(why: &str) -> Status {
        Status::new(StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {why}")).with_empty_details()
    }

    /// An admission policy said no; its author chose the reason.
    pub fn denied(about: About<'_>, why: &str, reason: &str) -> Status {
        let mut status = Status::forbidden(about, why).with_causes_plain(why);
        (status.code, status.reason) = match reason {
            "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
            "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        };
        status
    }

    pub fn namespace_terminating(about: About<'_>, namespace: &str) -> Status {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = format!("namespace {namespace} is being terminated");
        Status::forbidden(about, &why).with_raw_cause("NamespaceTerminating", cause, "metadata.namespace")
    }

    /// `about.kind` is the kind here (`Deployment`), not the resource.
    pub fn invalid(about: About<'_>, causes: &[Cause]) -> Status {
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(Status::cause_text) {
            // What is said twice stands once in the message, but twice in the causes.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} \"{}\" is invalid: {all}", about.qualified(), about.name);
        Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(about).with_causes(causes)
    }

    fn cause_text(cause: &Cause) -> String {
        match cause.field.as_str() {
            "" => cause.message.clone(),
            field => format!("{field}: {}", cause.message),
        }
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Status {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Status::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub fn not_acceptable(message: impl Into<String>) -> Status {
        Status::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub fn too_large(message: impl Into<String>) -> Status {
        Status::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 410: the revision asked for is no longer kept.
    pub fn expired(message: impl Into<String>) -> Status {
        Status::new(StatusCode::GONE, "Expired", message)
    }

    /// 504: the revision asked for lies in the future.
    pub fn revision_too_large(asked: u64, current: u64) -> Status {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut status = Status::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .with_empty_details()
            .with_raw_cause("ResourceVersionTooLarge", "Too large resource version".into(), "");
        status.details.get_or_insert_default().insert("retryAfterSeconds".into(), 1.into());
        status
    }

    /// An error the real server did not think of: 500 without a reason.
    pub fn unexpected(message: impl Into<String>) -> Status {
        Status::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// A JSON patch that does not fit the object.
    pub fn patch_rejected() -> Status {
        let message = "the server rejected our request due to an error in our request";
        Status::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_empty_details()
    }

    /// Wrong request options, as the real server reports them.
    pub fn invalid_options(kind: &str, causes: &[Cause]) -> Status {
        Status::invalid(About { group: "meta.k8s.io", kind, name: "" }, causes)
    }

    pub fn internal(message: impl std::fmt::Display) -> Status {
        let status = Status::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        status.with_empty_details().with_causes_plain(&message.to_string())
    }

    fn with_causes_plain(mut self, message: &str) -> Status {
        self.details.get_or_insert_default().insert("causes".into(), json!([{ "message": message }]));
        self
    }

    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        let fields = status.as_object_mut().expect("written as an object above");
        if !self.reason.is_empty() {
            fields.insert("reason".into(), self.reason.into());
        }
        if let Some(details) = &self.details {
            fields.insert("details".into(), Value::Object(details.clone()));
        }
        status
    }
}

/// What a successful delete answers when the object is gone at once.
pub fn deleted(about: About<'_>, uid: &str) -> Value {
    let mut details = about.details();
    if !uid.is_empty() {
        details.insert("uid".into(), uid.into());
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
