//! CDEvents 0.4: whether a body is one. The context, the subject, the type and what each type says in its subject's content
//! are checked; what is said beyond that is nobody's business, as upstream.

use serde_json::{Map, Value};

/// What there can be events about: the name in a type, the name in a subject, and what happens to it with what is said then.
struct Subject {
    name: &'static str,
    kind: &'static str,
    /// Predicate and content: fields with what they must be, `?` for those that may be missing.
    predicates: &'static [(&'static str, &'static str)],
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "artifact",
        kind: "artifact",
        predicates: &[
            ("deleted", "user?:text"),
            ("downloaded", "user?:text"),
            ("packaged", "change:reference sbom?:document"),
            ("published", "sbom?:document user?:text"),
            ("signed", "signature:some"),
        ],
    },
    Subject {
        name: "branch",
        kind: "branch",
        predicates: &[("created", "repository?:reference"), ("deleted", "repository?:reference")],
    },
    Subject {
        name: "build",
        kind: "build",
        predicates: &[("finished", "artifactId?:text"), ("queued", ""), ("started", "")],
    },
    Subject {
        name: "change",
        kind: "change",
        predicates: &[
            ("abandoned", "repository?:reference"),
            ("created", "description?:text repository?:reference"),
            ("merged", "repository?:reference"),
            ("reviewed", "repository?:reference"),
            ("updated", "repository?:reference"),
        ],
    },
    Subject {
        name: "environment",
        kind: "environment",
        predicates: &[
            ("created", "name?:text url?:text"),
            ("deleted", "name?:text"),
            ("modified", "name?:text url?:text"),
        ],
    },
    Subject {
        name: "incident",
        kind: "incident",
        predicates: &[
            ("detected", "description?:text environment:reference service?:reference artifactId?:text"),
            (
                "reported",
                "description?:text environment:reference ticketURI:some service?:reference artifactId?:text",
            ),
            ("resolved", "description?:text environment:reference service?:reference artifactId?:text"),
        ],
    },
    Subject {
        name: "pipelinerun",
        kind: "pipelineRun",
        predicates: &[
            ("finished", "pipelineName?:text url?:text outcome?:text errors?:text"),
            ("queued", "pipelineName?:text url?:text"),
            ("started", "pipelineName:text url:text"),
        ],
    },
    Subject {
        name: "repository",
        kind: "repository",
        predicates: &[
            ("created", "name:some owner?:text url:some viewUrl?:text"),
            ("deleted", "name?:text owner?:text url?:text viewUrl?:text"),
            ("modified", "name?:text owner?:text url?:text viewUrl?:text"),
        ],
    },
    Subject {
        name: "service",
        kind: "service",
        predicates: &[
            ("deployed", "environment:reference artifactId:some"),
            ("published", "environment?:reference"),
            ("removed", "environment?:reference"),
            ("rolledback", "environment:reference artifactId:some"),
            ("upgraded", "environment:reference artifactId:some"),
        ],
    },
    Subject {
        name: "taskrun",
        kind: "taskRun",
        predicates: &[
            ("finished", "taskName?:text url?:text pipelineRun?:reference outcome?:text errors?:text"),
            ("started", "taskName?:text url?:text pipelineRun?:reference"),
        ],
    },
    Subject {
        name: "testcaserun",
        kind: "testCaseRun",
        predicates: &[
            (
                "finished",
                "outcome:pass|fail|cancel|error severity?:low|medium|high|critical reason?:text environment:reference testSuiteRun?:reference testCase?:reference",
            ),
            ("queued", "trigger?:object environment:reference testSuiteRun?:reference testCase?:reference"),
            ("skipped", "reason?:text environment?:reference testSuiteRun?:reference testCase?:reference"),
            ("started", "trigger?:object environment:reference testSuiteRun?:reference testCase?:reference"),
        ],
    },
    Subject {
        name: "testoutput",
        kind: "testOutput",
        predicates: &[(
            "published",
            "outputType:report|video|image|log|other format:text uri?:text testCaseRun?:reference",
        )],
    },
    Subject {
        name: "testsuiterun",
        kind: "testSuiteRun",
        predicates: &[
            (
                "finished",
                "outcome:pass|fail|cancel|error severity?:low|medium|high|critical reason?:text environment:reference testSuite?:reference",
            ),
            ("queued", "trigger?:object environment:reference testSuite?:reference"),
            ("started", "trigger?:object environment:reference testSuite?:reference"),
        ],
    },
    Subject {
        name: "ticket",
        kind: "ticket",
        predicates: &[
            (
                "closed",
                "summary?:text group?:text creator?:text assignees?:texts labels?:texts milestone?:text uri:some resolution:text updatedBy?:text",
            ),
            (
                "created",
                "summary:text group?:text creator:some assignees?:texts labels?:texts milestone?:text uri:some",
            ),
            (
                "updated",
                "summary?:text group?:text creator?:text assignees?:texts labels?:texts milestone?:text uri:some updatedBy?:text",
            ),
        ],
    },
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
    let known = known_type(text(context, "context", "type")?)?;
    let subject = object(&event, "subject")?;
    if text(subject, "subject", "id")?.is_empty() {
        return Err("subject.id is empty".to_owned());
    }
    let content = object(subject, "content")?;
    let Some((kind, fields)) = known else { return Ok(()) };
    let said = text(subject, "subject", "type")?;
    if said != kind {
        let said: String = said.chars().take(128).collect();
        return Err(format!("subject.type {said:?} is not {kind:?}"));
    }
    fields.split_whitespace().try_for_each(|field| check(content, field))
}

/// Whether a field of the content is what `rule` says, as in `name?:text`.
fn check(content: &Map<String, Value>, rule: &str) -> Result<(), String> {
    let (name, must_be) = rule.split_once(':').unwrap_or((rule, "text"));
    let (name, may_miss) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
    let Some(value) = content.get(name).filter(|value| !value.is_null()) else {
        return if may_miss { Ok(()) } else { Err(format!("subject.content.{name} is missing")) };
    };
    // A part of a part that must be there and say something.
    let has = |key: &str| value.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let fits = match must_be {
        "text" => value.is_string(),
        "some" => value.as_str().is_some_and(|text| !text.is_empty()),
        "texts" => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
        "object" => value.is_object(),
        "reference" => has("id"),
        "document" => has("uri"),
        choice => value.as_str().is_some_and(|text| choice.split('|').any(|one| one == text)),
    };
    if fits { Ok(()) } else { Err(format!("subject.content.{name} is not what it must be: {must_be}")) }
}

fn object<'a>(parent: &'a Map<String, Value>, field: &str) -> Result<&'a Map<String, Value>, String> {
    parent.get(field).and_then(Value::as_object).ok_or_else(|| format!("'{field}' must be an object"))
}

fn text<'a>(parent: &'a Map<String, Value>, of: &str, field: &str) -> Result<&'a str, String> {
    parent.get(field).and_then(Value::as_str).ok_or_else(|| format!("{of}.{field} must be a text"))
}

/// `dev.cdevents.<subject>.<predicate>.<version>`, with what is said then; or `dev.cdeventsx.…` for those that somebody
/// made up, of which nothing is known.
fn known_type(name: &str) -> Result<Option<(&'static str, &'static str)>, String> {
    let unknown = || format!("unknown event type {:?}", name.chars().take(128).collect::<String>());
    if name.strip_prefix("dev.cdeventsx.").is_some_and(|rest| rest.split('.').count() >= 5) {
        return Ok(None);
    }
    let rest = name.strip_prefix("dev.cdevents.").ok_or_else(unknown)?;
    let mut parts = rest.splitn(3, '.');
    let (subject, predicate, version) = (parts.next(), parts.next(), parts.next());
    let subject = SUBJECTS.iter().find(|known| subject == Some(known.name)).ok_or_else(unknown)?;
    let found = subject.predicates.iter().find(|(known, _)| predicate == Some(known)).ok_or_else(unknown)?;
    let numbers = version.unwrap_or_default().split('-').next().unwrap_or_default();
    let is_version =
        numbers.split('.').count() == 3 && numbers.split('.').all(|part| part.parse::<u32>().is_ok());
    if is_version { Ok(Some((subject.kind, found.1))) } else { Err(unknown()) }
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
            "subject": { "id": "mySubject123", "source": "/event/source/123", "type": "change", "content": { "repository": { "id": "org/app" } } },
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
            ("/subject/type", json!("branch")),
            ("/subject/type", json!(null)),
            ("/subject/content/repository", json!("org/app")),
            ("/subject/content/repository", json!({})),
            ("/subject/content/repository", json!({ "id": "" })),
        ] {
            assert!(with(pointer, value.clone()).is_err(), "{pointer} {value}");
        }
        for bad in [&b""[..], b"[]", b"null", b"{}", b"\xff"] {
            assert!(validate(bad).is_err());
        }
    }

    /// Every type with the least it must say is one, and is none without any part of that.
    #[test]
    fn each_type_says_what_it_must_say() {
        let mut types = 0;
        for subject in SUBJECTS {
            for (predicate, fields) in subject.predicates {
                types += 1;
                let mut least = event();
                least["context"]["type"] = json!(format!("dev.cdevents.{}.{predicate}.0.2.0", subject.name));
                least["subject"]["type"] = json!(subject.kind);
                least["subject"]["content"] = json!({});
                let needed: Vec<(&str, Value)> = fields
                    .split_whitespace()
                    .filter_map(|rule| {
                        let (name, must_be) = rule.split_once(':')?;
                        let value = match must_be {
                            "reference" => json!({ "id": "x", "source": "/y", "more": 1 }),
                            "text" | "some" => json!("x"),
                            choice => json!(choice.split('|').next()),
                        };
                        (!name.ends_with('?')).then_some((name, value))
                    })
                    .collect();
                for (name, value) in &needed {
                    least["subject"]["content"][*name] = value.clone();
                }
                least["subject"]["content"]["more"] = json!(1);
                let judge = |event: &Value| validate(event.to_string().as_bytes());
                assert_eq!(judge(&least), Ok(()), "{} {predicate}", subject.name);
                for (name, _) in &needed {
                    let mut without = least.clone();
                    without["subject"]["content"].as_object_mut().unwrap().remove(*name);
                    assert_eq!(judge(&without), Err(format!("subject.content.{name} is missing")));
                    let mut wrong = least.clone();
                    wrong["subject"]["content"][*name] = json!([1]);
                    assert!(judge(&wrong).is_err(), "{} {predicate} {name}", subject.name);
                }
            }
        }
        assert_eq!(types, 45);
        let mut event = event();
        event["context"]["type"] = json!("dev.cdevents.testcaserun.finished.0.2.0");
        event["subject"]["type"] = json!("testCaseRun");
        event["subject"]["content"] = json!({ "outcome": "maybe", "environment": { "id": "x" } });
        assert!(validate(event.to_string().as_bytes()).unwrap_err().contains("outcome"));
    }
}
