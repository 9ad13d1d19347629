//! CDEvents 0.4: whether a body is one. The context, the subject and the type are checked; what each type says in its
//! subject's content beyond being an object is not.

use serde_json::{Map, Value};

/// Subjects with their predicates.
const TYPES: &[(&str, &[&str])] = &[
    ("artifact", &["deleted", "downloaded", "packaged", "published", "signed"]),
    ("branch", &["created", "deleted"]),
    ("build", &["finished", "queued", "started"]),
    ("change", &["abandoned", "created", "merged", "reviewed", "updated"]),
    ("environment", &["created", "deleted", "modified"]),
    ("incident", &["detected", "reported", "resolved"]),
    ("pipelinerun", &["finished", "queued", "started"]),
    ("repository", &["created", "deleted", "modified"]),
    ("service", &["deployed", "published", "removed", "rolledback", "upgraded"]),
    ("taskrun", &["finished", "started"]),
    ("testcaserun", &["finished", "queued", "skipped", "started"]),
    ("testoutput", &["published"]),
    ("testsuiterun", &["finished", "queued", "started"]),
    ("ticket", &["closed", "created", "updated"]),
];

pub fn validate(body: &[u8]) -> Result<(), String> {
    let event: Map<String, Value> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let context = object(&event, "context")?;
    let version = text(context, "context", "version")?;
    if !version.starts_with("0.4.") {
        return Err(format!("context.version {version:?} is not supported, 0.4 is"));
    }
    for field in ["id", "source"] {
        if text(context, "context", field)?.is_empty() {
            return Err(format!("context.{field} is empty"));
        }
    }
    let timestamp = text(context, "context", "timestamp")?;
    if timestamp.parse::<jiff::Timestamp>().is_err() {
        return Err("context.timestamp is no RFC 3339 time".to_owned());
    }
    known_type(text(context, "context", "type")?)?;
    let subject = object(&event, "subject")?;
    if text(subject, "subject", "id")?.is_empty() {
        return Err("subject.id is empty".to_owned());
    }
    object(subject, "content").map(drop)
}

fn object<'a>(parent: &'a Map<String, Value>, field: &str) -> Result<&'a Map<String, Value>, String> {
    parent.get(field).and_then(Value::as_object).ok_or_else(|| format!("'{field}' must be an object"))
}

fn text<'a>(parent: &'a Map<String, Value>, of: &str, field: &str) -> Result<&'a str, String> {
    parent.get(field).and_then(Value::as_str).ok_or_else(|| format!("{of}.{field} must be a text"))
}

/// `dev.cdevents.<subject>.<predicate>.<version>`, or `dev.cdeventsx.…` for those that somebody made up.
fn known_type(name: &str) -> Result<(), String> {
    let unknown = || format!("unknown event type {:?}", name.chars().take(128).collect::<String>());
    if name.strip_prefix("dev.cdeventsx.").is_some_and(|rest| rest.split('.').count() >= 5) {
        return Ok(());
    }
    let rest = name.strip_prefix("dev.cdevents.").ok_or_else(unknown)?;
    let mut parts = rest.splitn(3, '.');
    let (subject, predicate, version) = (parts.next(), parts.next(), parts.next());
    let known = TYPES.iter().any(|(known, predicates)| {
        subject == Some(known) && predicate.is_some_and(|predicate| predicates.contains(&predicate))
    });
    let numbers = version.unwrap_or_default().split('-').next().unwrap_or_default();
    let is_version =
        numbers.split('.').count() == 3 && numbers.split('.').all(|part| part.parse::<u32>().is_ok());
    if known && is_version { Ok(()) } else { Err(unknown()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event() -> Value {
        json!({
            "context": {
                "version": "0.4.1", "id": "271069a8", "source": "/event/source/123",
                "type": "dev.cdevents.change.merged.0.2.0", "timestamp": "2026-03-20T14:27:05.315384Z",
            },
            "subject": { "id": "mySubject123", "source": "/event/source/123", "type": "change", "content": { "repository": {} } },
        })
    }

    fn with(pointer: &str, value: Value) -> Result<(), String> {
        let mut event = event();
        *event.pointer_mut(pointer).unwrap() = value;
        validate(event.to_string().as_bytes())
    }

    #[test]
    fn an_event_of_the_specification_is_one() {
        assert_eq!(validate(event().to_string().as_bytes()), Ok(()));
        assert_eq!(with("/context/type", json!("dev.cdeventsx.mytool-resource.created.0.1.0")), Ok(()));
    }

    #[test]
    fn what_is_none_is_refused() {
        for (pointer, value) in [
            ("/context", json!([])),
            ("/context/version", json!("0.3.0")),
            ("/context/id", json!("")),
            ("/context/source", json!(1)),
            ("/context/timestamp", json!("yesterday")),
            ("/context/type", json!("dev.cdevents.change.eaten.0.1.0")),
            ("/context/type", json!("dev.cdevents.change.merged")),
            ("/context/type", json!("dev.cdevents.change.merged.x")),
            ("/subject", json!(null)),
            ("/subject/id", json!("")),
            ("/subject/content", json!("text")),
        ] {
            assert!(with(pointer, value.clone()).is_err(), "{pointer} {value}");
        }
        for bad in [&b""[..], b"[]", b"null", b"{}", b"\xff"] {
            assert!(validate(bad).is_err());
        }
    }
}
