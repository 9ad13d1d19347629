//! `flux get`: objects and their state as a table.

use futures::TryStreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind, View};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let group = match run.row.path {
        "get all" => "",
        "get sources all" => "source ",
        "get images all" => "image ",
        path => {
            let kind = kinds::of_path(path).ok_or_else(|| fail!("`flux {path}` is not available"))?;
            return one_kind(run, kind).await;
        }
    };
    match (run.is("watch"), group) {
        (false, group) => several_kinds(run, group).await,
        (true, "") => watch_all(run).await,
        (true, _) => Err(fail!("expected a single resource type, but found all")),
    }
}

/// Every kind at once: what the handbook of many a team says, and upstream refuses.
async fn watch_all(run: &Invocation) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let filter = filter(run)?;
    let kinds = kinds::ALL.iter().filter(|kind| kind.words != "artifact generator");
    let watches = kinds.map(|kind| watch(run, &session, kind, &filter, true));
    let ended = futures::future::join_all(watches).await;
    // A kind that is not installed has nothing to watch.
    ended
        .into_iter()
        .find(|ended| ended.as_ref().is_err_and(|error| !error.is_no_such_kind()))
        .unwrap_or(Ok(()))
}

async fn one_kind(run: &Invocation, kind: &'static Kind) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let filter = filter(run)?;
    if run.is("watch") {
        return watch(run, &session, kind, &filter, false).await;
    }
    print(run, &session, kind, &filter, false).await
}

/// A table each; what cannot be listed is told and does not stop the others.
async fn several_kinds(run: &Invocation, group: &str) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let filter = filter(run)?;
    let generator = "artifact generator";
    for kind in kinds::ALL.iter().filter(|kind| kind.words.starts_with(group) && kind.words != generator) {
        if let Err(error) = print(run, &session, kind, &filter, true).await
            && !error.is_no_such_kind()
        {
            output::failure(&error.to_string());
        }
    }
    Ok(())
}

async fn print(
    run: &Invocation,
    session: &Session,
    kind: &Kind,
    filter: &ListParams,
    one_of_many: bool,
) -> Result<(), CliError> {
    let everywhere = run.is("all-namespaces");
    let objects = session.list(kind.api, everywhere, filter).await?;
    if objects.is_empty() {
        let place = if everywhere { "any".to_owned() } else { format!("{:?}", session.namespace) };
        return match run.name() {
            Some(name) => Err(fail!("{} object '{name}' not found in {place} namespace", kind.api.kind)),
            None if one_of_many => Ok(()),
            None => Err(fail!("no {} objects found in {place} namespace", kind.api.kind)),
        };
    }
    let view = View { namespace: everywhere, with_kind: one_of_many, source: run.is("show-source") };
    let rows = rows(run, kind, &objects, &view)?;
    if one_of_many && rows.is_empty() {
        return Ok(());
    }
    let header = if run.is("no-header") { Vec::new() } else { kind.headers(&view) };
    let end = if one_of_many { "\n" } else { "" };
    output::data(&format!("{}{end}", output::table(&header, &rows)))
}

fn rows(run: &Invocation, kind: &Kind, objects: &[Value], view: &View) -> Result<Vec<Vec<String>>, CliError> {
    let selector = run.some("status-selector").map(StatusSelector::parse).transpose()?;
    let chosen = objects
        .iter()
        .filter(|object| selector.as_ref().is_none_or(|selector| selector.matches(kind, object)));
    Ok(chosen.map(|object| kind.row(object, view)).collect())
}

/// `ready=false` or `ready!=true`.
struct StatusSelector {
    condition: String,
    status: String,
    negated: bool,
}

impl StatusSelector {
    fn parse(text: &str) -> Result<StatusSelector, CliError> {
        let negated = text.contains("!=");
        let (condition, status) = text.split_once(if negated { "!=" } else { "=" }).ok_or_else(|| {
            fail!("expected status selector in type=status or type!=status format, but found: {text}")
        })?;
        Ok(StatusSelector { condition: condition.to_owned(), status: status.to_owned(), negated })
    }

    fn matches(&self, kind: &Kind, object: &Value) -> bool {
        kind.matches(object, &self.condition, &self.status) != self.negated
    }
}

fn filter(run: &Invocation) -> Result<ListParams, CliError> {
    let mut filter = ListParams::default();
    if let Some(name) = run.name() {
        filter = filter.fields(&format!("metadata.name={name}"));
    }
    if let Some(selector) = run.some("label-selector") {
        check_selector(selector)?;
        filter = filter.labels(selector);
    }
    Ok(filter)
}

/// Finds a second `=` in an equality, which the server would refuse with a longer text.
fn check_selector(selector: &str) -> Result<(), CliError> {
    let bad = |problem: &str| {
        fail!("unable to parse label selector: couldn't parse the selector string {selector:?}: {problem}")
    };
    let mut depth = 0_i32;
    let mut start = 0;
    let mut parts = Vec::new();
    for (at, letter) in selector.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[start..]);
    for part in parts {
        if let Some((_, value)) = part.split_once('=')
            && value.trim_start_matches('=').contains('=')
        {
            return Err(bad("found '=', expected: ',' or 'end of string'"));
        }
    }
    Ok(())
}

/// Prints a row whenever an object changes, until the timeout.
async fn watch(
    run: &Invocation,
    session: &Session,
    kind: &Kind,
    filter: &ListParams,
    one_of_many: bool,
) -> Result<(), CliError> {
    let everywhere = run.is("all-namespaces");
    let api = if everywhere { session.objects_everywhere(kind.api) } else { session.objects(kind.api) };
    let mut parameters = WatchParams::default();
    if let Some(fields) = &filter.field_selector {
        parameters = parameters.fields(fields);
    }
    if let Some(labels) = &filter.label_selector {
        parameters = parameters.labels(labels);
    }
    let failed = |error| session.failed(error, Some(kind.api));
    let view = View { namespace: everywhere, with_kind: one_of_many, source: run.is("show-source") };
    let mut header = if run.is("no-header") { Vec::new() } else { kind.headers(&view) };
    let watching = async {
        let mut events = Box::pin(api.watch(&parameters, "0").await.map_err(failed)?);
        while let Some(event) = events.try_next().await.map_err(failed)? {
            let object = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    object
                }
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(CliError::new(status.message.clone())),
            };
            let object = serde_json::to_value(&object).map_err(|error| fail!("{error}"))?;
            let rows = rows(run, kind, &[object], &view)?;
            output::data(&output::table(&std::mem::take(&mut header), &rows))?;
        }
        Ok(())
    };
    match tokio::time::timeout(session.timeout, watching).await {
        Ok(ended) => ended,
        Err(_) => Err(fail!("timed out waiting for the condition")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_equals_sign_is_refused_and_sets_are_not() {
        assert!(check_selector("a=b=c").is_err());
        assert!(check_selector("a=b,c!=d,e in (f,g),h==i").is_ok());
    }

    #[test]
    fn a_status_selector_needs_a_sign() {
        assert!(StatusSelector::parse("ready").is_err());
        assert!(StatusSelector::parse("ready!=true").expect("it parses").negated);
    }
}
