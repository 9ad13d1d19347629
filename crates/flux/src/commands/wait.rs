//! `flux wait KIND/NAME [--revision R]`: until an object is ready, at a revision if one is given.
//!
//! A pipeline that has pushed a commit waits for it to be applied: an object that is ready, but at an older revision, is
//! not what it waits for, and an older revision that failed is no reason to give up.

use flux_api::revision::Revision;
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind, condition, text};
use crate::output;
use crate::readiness;
use crate::session::Session;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let (kind, name) = named(&run.args)?;
    let session = Session::open(run).await?;
    let wanted = run.some("revision");
    let what = format!("{} {name} in {} namespace", kind.human, session.namespace);
    output::waiting(&match wanted {
        Some(revision) => format!("waiting for {what} to reach revision {revision}"),
        None => format!("waiting for {what}"),
    });
    let waited = readiness::until(&session, kind, name, |object| is_done(object, wanted)).await;
    match waited {
        Ok(object) => {
            output::success(&format!("{what} is ready at revision {}", shown(&reached(&object))));
            Ok(())
        }
        Err(error) if error.is_timeout() => {
            let last = session.get(kind.api, name).await?;
            Err(fail!("timed out after {} s: {what} {}", session.timeout.as_secs(), state(&last)))
        }
        Err(error) => Err(error),
    }
}

/// `ks/apps`, or `kustomization apps`.
fn named(words: &[String]) -> Result<(&'static Kind, &str), CliError> {
    let usage = || fail!("name what to wait for: `flux wait <kind>/<name>`, such as `flux wait ks/apps`");
    let (kind, name) = match words {
        [one] => one.split_once('/').ok_or_else(usage)?,
        [kind, name] => (kind.as_str(), name.as_str()),
        _ => return Err(usage()),
    };
    let row = kinds::by_word(kind).ok_or_else(|| fail!("'{kind}' is not a kind of Flux"))?;
    if name.is_empty() { Err(usage()) } else { Ok((row, name)) }
}

fn is_done(object: &Value, wanted: Option<&str>) -> Result<bool, CliError> {
    let Some(wanted) = wanted else { return readiness::is_ready(object) };
    if is_at(&reached(object), wanted) {
        return readiness::is_ready(object);
    }
    // What was tried last and failed is final only if it is what is waited for.
    let failed = condition(object, "Ready").filter(|ready| text(ready, "/status") == "False");
    let attempted = text(object, "/status/lastAttemptedRevision");
    match failed {
        Some(ready) if is_at(attempted, wanted) && condition(object, "Stalled").is_some() => {
            Err(fail!("{}: {}", text(ready, "/reason"), text(ready, "/message")))
        }
        _ => Ok(false),
    }
}

/// The revision that an object has brought about.
fn reached(object: &Value) -> String {
    let places = [
        "/status/lastAppliedRevision",
        "/status/artifact/revision",
        "/status/history/0/chartVersion",
        "/status/lastHandledRevision",
    ];
    places
        .iter()
        .map(|place| text(object, place))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// Whether `revision` is what a person means by `wanted`: all of it, its branch, tag or version, or the beginning of its
/// commit or digest.
fn is_at(revision: &str, wanted: &str) -> bool {
    const SHORTEST_COMMIT: usize = 7;
    if revision == wanted || revision.is_empty() {
        return revision == wanted;
    }
    let parsed = Revision::from(revision);
    let hash = parsed.hash().unwrap_or_default();
    let plain = wanted.rsplit([':', '@']).next().unwrap_or(wanted);
    let is_hash = plain.len() >= SHORTEST_COMMIT && plain.bytes().all(|byte| byte.is_ascii_hexdigit());
    let label = revision.split('@').next().unwrap_or_default();
    (is_hash && hash.starts_with(&plain.to_lowercase()) && (plain == wanted || revision.starts_with(wanted)))
        || label == wanted
}

fn shown(revision: &str) -> String {
    match revision {
        "" => "unknown".to_owned(),
        revision => output::short_digests(revision),
    }
}

/// What an object is at instead.
fn state(object: &Value) -> String {
    let ready = condition(object, "Ready");
    let (status, message) =
        ready.map_or(("Unknown", ""), |ready| (text(ready, "/status"), text(ready, "/message")));
    format!("is at revision {}, Ready is {status}: {message}", shown(&reached(object)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_revision_is_named_whole_or_by_a_part_that_is_unique() {
        let revision = "main@sha1:5394cb7f48332b2de7c17dd8b8384bbc84b7e738";
        for wanted in
            [revision, "main", "5394cb7", "5394cb7f48332b2de7c17dd8b8384bbc84b7e738", "main@sha1:5394cb7"]
        {
            assert!(is_at(revision, wanted), "{wanted}");
        }
        for wanted in ["5394c", "other", "5394cb8", "dev@sha1:5394cb7", ""] {
            assert!(!is_at(revision, wanted), "{wanted}");
        }
        assert!(is_at("6.14.1", "6.14.1") && !is_at("6.14.1", "6.14") && !is_at("", "x"));
    }

    #[test]
    fn an_older_revision_that_is_ready_or_failed_is_waited_past() {
        let object = |revision: &str, ready: &str| {
            json!({
                "metadata": { "generation": 1 },
                "status": {
                    "observedGeneration": 1, "lastAppliedRevision": revision,
                    "conditions": [{ "type": "Ready", "status": ready, "observedGeneration": 1 }],
                },
            })
        };
        let new = "main@sha1:bbbbbbbbbb";
        assert!(!is_done(&object("main@sha1:aaaaaaaaaa", "True"), Some(new)).unwrap());
        assert!(!is_done(&object("main@sha1:aaaaaaaaaa", "False"), Some(new)).unwrap());
        assert!(is_done(&object(new, "True"), Some(new)).unwrap());
    }

    #[test]
    fn kinds_go_by_every_name_they_have() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for text in ["ks/apps", "kustomization/apps", "Kustomization apps", "kustomizations apps"] {
            let words = words(text);
            let (kind, name) = named(&words).unwrap();
            assert_eq!((kind.api.kind, name), ("Kustomization", "apps"), "{text}");
        }
        assert!(named(&words("deployment/web")).is_err() && named(&words("apps")).is_err());
    }
}
