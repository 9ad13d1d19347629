//! `flux delete`: removes one object, after asking.

use std::io::{BufRead as _, Write as _};

use kube::api::DeleteParams;

use crate::error::{CliError, fail};
use crate::kinds::Kind;
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::required_name;

pub(crate) async fn run(run: &Invocation, kind: &Kind) -> Result<(), CliError> {
    let name = required_name(run, kind.human)?;
    let session = Session::open(run).await?;
    session.get(kind.api, name).await?;
    if !run.is("silent") && !confirmed(&format!("Are you sure you want to delete this {}", kind.human)) {
        return Err(fail!("aborting"));
    }
    output::action(&format!("deleting {} {name} in {} namespace", kind.human, session.namespace));
    let deleted = session.objects(kind.api).delete(name, &DeleteParams::default()).await;
    deleted.map_err(|error| session.failed(error, Some(kind.api)))?;
    output::success(&format!("{} deleted", kind.human));
    Ok(())
}

/// Asks on stderr, so that stdout stays data; only a yes is a yes.
pub(crate) fn confirmed(question: &str) -> bool {
    output::plain(&format!("? {question}? [y/N] "));
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    output::plain(if matches!(read, Ok(0) | Err(_)) { "\n" } else { "" });
    read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}
