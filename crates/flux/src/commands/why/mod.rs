//! `flux why <anything>`: follows an object to the first broken link of the chain it hangs on, and prints the evidence.
//!
//! From the object up to what applied it, to what that depends on and was fetched from; from the topmost broken one down
//! again to what it waits for. Changes nothing.

mod evidence;
mod links;

use std::collections::BTreeSet;

use flux_apply::Cluster;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use serde_json::Value;

use self::links::State;
use super::trace;
use crate::error::{CliError, fail};
use crate::kinds;
use crate::output;
use crate::session::{Session, resource};
use crate::tree::Invocation;

/// Objects that are looked at; a chain is never that long.
const MOST_LINKS: usize = 64;

/// Kinds beside those of Flux that a bare name may mean, most telling first.
const OTHERS: [(&str, &str, &str, &str); 8] = [
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("batch", "v1", "Job", "jobs"),
    ("batch", "v1", "CronJob", "cronjobs"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "Service", "services"),
    ("", "v1", "ConfigMap", "configmaps"),
];

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let start = find(run, &session).await?;
    let found = follow(&session, start).await;
    let mut out = String::new();
    for (depth, line) in found.trail.iter().enumerate() {
        out.push_str(&format!("{}{line}\n", "  ".repeat(depth.min(8))));
    }
    match found.end {
        End::Well => {
            out.push_str("\n✔ nothing is broken on the way\n");
            output::data(&out)
        }
        End::Unreadable(problem) => {
            output::data(&out)?;
            Err(fail!("{problem}"))
        }
        End::Missing(problem) => {
            out.push_str(&format!("\n✗ {problem}\n"));
            output::data(&out)?;
            Err(CliError::quiet(1))
        }
        End::Broken(object) => {
            out.push_str(&format!("\n✗ the first broken link is {}\n", links::id(&object)));
            for line in evidence::of(&session.client, &object).await {
                out.push_str(&format!("  {line}\n"));
            }
            output::data(&out)?;
            Err(CliError::quiet(1))
        }
    }
}

/// `kind/name`, `kind name`, or a name alone.
async fn find(run: &Invocation, session: &Session) -> Result<Value, CliError> {
    let words: Vec<&str> = run.args.iter().map(String::as_str).collect();
    match words[..] {
        [one] => match one.split_once('/') {
            Some((kind, name)) => trace::named(session, kind, name).await,
            None => by_name(run, session, one).await,
        },
        [kind, name] => trace::named(session, kind, name).await,
        _ => Err(fail!("name one object: `flux why <kind>/<name>`, or `flux why <name>`")),
    }
}

/// What a name alone means: what applies, before sources, before workloads. Several that are alike are told.
async fn by_name(run: &Invocation, session: &Session, name: &str) -> Result<Value, CliError> {
    let rank = |kind: &str| match kind {
        "Kustomization" | "HelmRelease" => 0,
        _ if flux_api::kinds::by_kind(kind).is_some() => 1,
        "Service" | "ConfigMap" | "Pod" => 3,
        _ => 2,
    };
    let others = OTHERS.iter().map(|(group, version, kind, plural)| ApiResource {
        group: (*group).to_owned(),
        version: (*version).to_owned(),
        api_version: if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") },
        kind: (*kind).to_owned(),
        plural: (*plural).to_owned(),
    });
    let of_flux = kinds::ALL.iter().map(|kind| resource(kind.api));
    let filter = ListParams::default().fields(&format!("metadata.name={name}"));
    let mut found: Vec<Value> = Vec::new();
    let mut refused = None;
    for resource in of_flux.chain(others) {
        let api: Api<DynamicObject> = match run.given("namespace") {
            true => Api::namespaced_with(session.client.clone(), &session.namespace, &resource),
            false => Api::all_with(session.client.clone(), &resource),
        };
        match api.list(&filter).await {
            Ok(list) => found.extend(list.items.iter().filter_map(|object| {
                let mut object = serde_json::to_value(object).ok()?;
                object["apiVersion"] = resource.api_version.clone().into();
                object["kind"] = resource.kind.clone().into();
                Some(object)
            })),
            // A kind that is not installed, or that this person may not list: the others may do.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                refused = (status.code == 403).then(|| status.message.clone()).or(refused);
            }
            Err(error) => return Err(session.failed(error, None)),
        }
    }
    found.sort_by_key(|object| rank(kinds::text(object, "/kind")));
    let best = found.first().map(|object| rank(kinds::text(object, "/kind")));
    let best: Vec<&Value> =
        found.iter().filter(|object| Some(rank(kinds::text(object, "/kind"))) == best).collect();
    match &best[..] {
        [one] => Ok((*one).clone()),
        [] => {
            let hint =
                refused.map_or(String::new(), |refused| format!("; not everything could be read: {refused}"));
            Err(CliError::not_found(format!("nothing is called '{name}'{hint}")))
        }
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|object| {
                    let id = links::id(object);
                    format!("`flux why {}/{} -n {}`", id.kind.to_lowercase(), id.name, id.namespace)
                })
                .collect();
            Err(fail!("'{name}' means several objects; say which: {}", names.join(", ")))
        }
    }
}

/// Where a walk ended.
enum End {
    Well,
    /// Who needs what is not there.
    Missing(String),
    Broken(Box<Value>),
    Unreadable(String),
}

struct Found {
    /// What was looked at, a line each.
    trail: Vec<String>,
    end: End,
}

async fn follow(session: &Session, start: Value) -> Found {
    let cluster = Cluster::new(session.client.clone());
    let now = Timestamp::now().as_second();
    let mut trail = vec![line(&start, now)];
    let mut seen = BTreeSet::from([links::id(&start)]);
    let first = links::id(&start);
    let mut current = start;
    'walk: for _ in 0..MOST_LINKS {
        let is_well = |object: &Value| matches!(links::state(object, now), State::Well(_));
        for (how, id) in links::needs(&current) {
            if seen.contains(&id) {
                continue;
            }
            match cluster.get(&id).await {
                Ok(Some(object)) => {
                    seen.insert(id);
                    trail.push(format!("{} {}", how.as_str(), line(&object, now)));
                    if !is_well(&object) {
                        current = object;
                        continue 'walk;
                    }
                }
                Ok(None) => {
                    let (by, how) = (links::id(&current), how.as_str());
                    let problem = format!("{by} {how} {id}, which does not exist");
                    return Found { trail, end: End::Missing(problem) };
                }
                Err(error) => {
                    return Found { trail, end: End::Unreadable(format!("{id} cannot be read: {error}")) };
                }
            }
        }
        // Nothing above is broken: then it is this one, or what it waits for.
        for id in links::applied(&current) {
            let Ok(Some(object)) = cluster.get(&id).await else { continue };
            if is_well(&object) || (seen.contains(&id) && id != first) {
                continue;
            }
            if seen.insert(id) {
                trail.push(format!("applied {}", line(&object, now)));
                current = object;
                continue 'walk;
            }
            return Found { trail, end: End::Broken(Box::new(object)) };
        }
        let end = if is_well(&current) { End::Well } else { End::Broken(Box::new(current)) };
        return Found { trail, end };
    }
    Found { trail, end: End::Unreadable("the chain is too long".to_owned()) }
}

/// `✔ Kind/namespace/name`, or what is wrong with it.
fn line(object: &Value, now: i64) -> String {
    let id = links::id(object);
    let first = |text: &str| output::short_digests(text.lines().next().unwrap_or_default());
    match links::state(object, now) {
        State::Well(message) => format!("✔ {id} {}", first(&message)).trim_end().to_owned(),
        State::Suspended => format!("‖ {id} is suspended: changes do not arrive until it is resumed"),
        State::Broken { reason, message } => format!("✗ {id} {reason}: {}", first(&message)),
    }
}
