//! `flux suspend`: objects are left alone until they are resumed. With `--reason` whoever looks can read why.

use kube::api::ListParams;
use serde_json::json;

use crate::error::CliError;
use crate::kinds::{self, Kind, SUSPEND_REASON};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::required_name;

pub(crate) async fn run(run: &Invocation, kind: &Kind) -> Result<(), CliError> {
    let all = run.is("all");
    if !all {
        required_name(run, kind.human)?;
    }
    let session = Session::open(run).await?;
    if run.args.is_empty() {
        return match suspend(&session, kind, run.some("reason"), &ListParams::default()).await? {
            0 => Err(CliError::new("no objects found")),
            _ => Ok(()),
        };
    }
    for name in distinct(&run.args) {
        let filter = ListParams::default().fields(&format!("metadata.name={name}"));
        let (kind_name, namespace) = (kind.api.kind, &session.namespace);
        // One that is missing does not keep the others, nor the script, from going on.
        match suspend(&session, kind, run.some("reason"), &filter).await {
            Ok(0) => output::failure(&format!("{kind_name} {name} not found in {namespace} namespace")),
            Ok(_) => {}
            Err(error) => output::failure(&format!(
                "failed suspending {kind_name} {name} in {namespace} namespace: {error}"
            )),
        }
    }
    Ok(())
}

/// How many there were.
async fn suspend(
    session: &Session,
    kind: &Kind,
    reason: Option<&str>,
    filter: &ListParams,
) -> Result<usize, CliError> {
    let objects = session.list(kind.api, false, filter).await?;
    for object in &objects {
        let name = kinds::name(object);
        output::action(&format!("suspending {} {name} in {} namespace", kind.human, session.namespace));
        let mut patch = json!({"spec": {"suspend": true}});
        if let Some(reason) = reason {
            patch["metadata"] = json!({"annotations": {SUSPEND_REASON: reason}});
        }
        session.merge(kind.api, name, &patch).await?;
        output::success(&format!("{} suspended", kind.human));
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
