//! `flux resume`: suspended objects reconcile again; the command waits for it when asked, or when there is only one.

use flux_api::names::{SUSPEND_REASON, SUSPEND_UNTIL};
use futures::future::join_all;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind};
use crate::output;
use crate::readiness;
use crate::session::Session;
use crate::tree::Invocation;

use super::required_name;
use super::suspend::distinct;

pub(crate) async fn run(run: &Invocation, kind: &Kind) -> Result<(), CliError> {
    if !run.is("all") {
        required_name(run, kind.human)?;
    }
    let session = Session::open(run).await?;
    let waits = run.is("wait") || (!run.given("wait") && run.args.len() == 1);
    let mut resumed = Vec::new();
    if run.args.is_empty() {
        let found = resume(&session, kind, run, &ListParams::default()).await;
        resumed = found.map_err(|error| fail!("failed patching objects: {error}"))?;
    }
    for name in distinct(&run.args) {
        let filter = ListParams::default().fields(&format!("metadata.name={name}"));
        resumed.extend(resume(&session, kind, run, &filter).await?);
    }
    if waits { wait(&session, kind, &resumed).await } else { Ok(()) }
}

/// Resumes what the filter finds and returns the names.
async fn resume(
    session: &Session,
    kind: &Kind,
    run: &Invocation,
    filter: &ListParams,
) -> Result<Vec<Value>, CliError> {
    let objects = session.list(kind.api, false, filter).await?;
    if objects.is_empty() {
        let (kind_name, namespace) = (kind.api.kind, &session.namespace);
        // Upstream names the first argument whichever is missing, and exits with success.
        output::failure(&match run.name() {
            Some(first) => format!("{kind_name} object '{first}' not found in {namespace} namespace"),
            None => format!("no {kind_name} objects found in {namespace} namespace"),
        });
    }
    for object in &objects {
        let name = kinds::name(object);
        output::action(&format!("resuming {} {name} in {} namespace", kind.human, session.namespace));
        let mut patch = json!({"spec": {"suspend": null}});
        for name in [SUSPEND_REASON, SUSPEND_UNTIL] {
            if object.pointer("/metadata/annotations").is_some_and(|all| all.get(name).is_some()) {
                patch["metadata"]["annotations"][name] = Value::Null;
            }
        }
        session.merge(kind.api, name, &patch).await?;
        output::success(&format!("{} resumed", kind.human));
    }
    Ok(objects)
}

async fn wait(session: &Session, kind: &Kind, resumed: &[Value]) -> Result<(), CliError> {
    let waits = resumed.iter().map(|object| async move {
        output::waiting(&format!("waiting for {} reconciliation", kind.api.kind));
        let ready = if kind.is_static(object) { readiness::is_current } else { readiness::is_ready };
        (kinds::name(object), readiness::until(session, kind, kinds::name(object), ready).await)
    });
    let mut results = join_all(waits).await;
    results.sort_by_key(|(name, _)| *name);
    let mut failed = 0;
    for (name, result) in &results {
        match result {
            Ok(object) => {
                output::success(&format!("{} {name} reconciliation completed", kind.api.kind));
                output::success(&kind.success(object));
            }
            Err(error) => {
                failed += 1;
                output::failure(&format!("{} {name} reconciliation failed: {error}", kind.api.kind));
            }
        }
    }
    if failed == 0 { Ok(()) } else { Err(fail!("reconciliation failed for {failed} {}(s)", kind.api.kind)) }
}
