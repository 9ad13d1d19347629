//! `flux suspend`: objects are left alone until they are resumed. With `--reason` whoever looks can read why; with `--for` the
//! controller resumes them by itself when the time is over.

use flux_api::names::{SUSPEND_REASON, SUSPEND_UNTIL};
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::required_name;

pub(crate) async fn run(run: &Invocation, kind: &Kind) -> Result<(), CliError> {
    let all = run.is("all");
    if !all {
        required_name(run, kind.human)?;
    }
    let wish = Wish { reason: run.some("reason"), until: until(run, Timestamp::now())? };
    let session = Session::open(run).await?;
    if run.args.is_empty() {
        return match suspend(&session, kind, &wish, &ListParams::default()).await? {
            0 => Err(CliError::new("no objects found")),
            _ => Ok(()),
        };
    }
    for name in distinct(&run.args) {
        let filter = ListParams::default().fields(&format!("metadata.name={name}"));
        let (kind_name, namespace) = (kind.api.kind, &session.namespace);
        // One that is missing does not keep the others, nor the script, from going on.
        match suspend(&session, kind, &wish, &filter).await {
            Ok(0) => output::failure(&format!("{kind_name} {name} not found in {namespace} namespace")),
            Ok(_) => {}
            Err(error) => output::failure(&format!(
                "failed suspending {kind_name} {name} in {namespace} namespace: {error}"
            )),
        }
    }
    Ok(())
}

/// Why, and until when.
struct Wish<'a> {
    reason: Option<&'a str>,
    until: Option<Timestamp>,
}

/// The moment that `--for` means.
fn until(run: &Invocation, now: Timestamp) -> Result<Option<Timestamp>, CliError> {
    if !run.given("for") {
        return Ok(None);
    }
    let span = run.duration("for").to_std();
    if span.is_zero() {
        return Err(fail!("--for must be longer than nothing, such as 30m or 2h"));
    }
    let until = now.checked_add(span).map_err(|_| fail!("--for is too long"))?;
    Ok(Some(until))
}

impl Wish<'_> {
    /// The patch for one object. What an earlier suspension said is gone with it.
    fn patch(&self, object: &Value) -> Value {
        let mut patch = json!({"spec": {"suspend": true}});
        // To the second, rounded up: nobody is resumed too early.
        let until = self.until.map(|until| {
            let up = until.subsec_nanosecond() > 0;
            Timestamp::from_second(until.as_second() + i64::from(up)).unwrap_or(until).to_string()
        });
        for (name, value) in [(SUSPEND_REASON, self.reason), (SUSPEND_UNTIL, until.as_deref())] {
            let known = object.pointer("/metadata/annotations").is_some_and(|all| all.get(name).is_some());
            if value.is_some() || known {
                patch["metadata"]["annotations"][name] = json!(value);
            }
        }
        patch
    }
}

/// How many there were.
async fn suspend(
    session: &Session,
    kind: &Kind,
    wish: &Wish<'_>,
    filter: &ListParams,
) -> Result<usize, CliError> {
    let objects = session.list(kind.api, false, filter).await?;
    for object in &objects {
        let name = kinds::name(object);
        output::action(&format!("suspending {} {name} in {} namespace", kind.human, session.namespace));
        session.merge(kind.api, name, &wish.patch(object)).await?;
        match wish.until {
            None => output::success(&format!("{} suspended", kind.human)),
            Some(until) => {
                let until = kinds::local_time(&until.to_string());
                output::success(&format!("{} suspended until {until}", kind.human));
            }
        }
    }
    Ok(objects.len())
}

/// The names in their order, each once.
pub(super) fn distinct(names: &[String]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name.as_str()) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_suspension_forgets_what_an_older_one_said() {
        let until = Some("2026-01-01T12:00:00.25Z".parse().unwrap());
        let fresh = json!({"metadata": {}});
        let old = json!({"metadata": {"annotations": {SUSPEND_REASON: "a", SUSPEND_UNTIL: "b"}}});
        let plain = Wish { reason: None, until: None };
        assert_eq!(plain.patch(&fresh), json!({"spec": {"suspend": true}}));
        assert_eq!(
            plain.patch(&old)["metadata"]["annotations"],
            json!({SUSPEND_REASON: null, SUSPEND_UNTIL: null})
        );
        let timed = Wish { reason: Some("why"), until };
        assert_eq!(
            timed.patch(&old)["metadata"]["annotations"],
            json!({SUSPEND_REASON: "why", SUSPEND_UNTIL: "2026-01-01T12:00:01Z"})
        );
    }
}
