//! `flux events`: what has happened to Flux's objects, the newest last.

use flux_api::kinds as api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::kinds::text;
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

/// How many events are asked for at a time.
const PAGE: u32 = 500;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let types = run.list("types");
    if let Some(unknown) =
        types.iter().find(|kind| !["normal", "warning"].contains(&kind.to_lowercase().as_str()))
    {
        return Err(fail!("type '{unknown}' not supported. Supported types are Normal, Warning"));
    }
    if run.is("watch") {
        return Err(fail!("`flux events --watch` is not available yet"));
    }
    let session = Session::open(run).await?;
    let everywhere = run.is("all-namespaces");
    let mut asked = vec![Asked { namespace: (!everywhere).then(|| session.namespace.clone()), fields: None }];
    let mut elsewhere = false;
    if let Some(selector) = run.some("for") {
        let (kind, name) = chosen(selector)?;
        asked[0].fields = Some(fields(kind.kind, name));
        for reference in references(&session, kind, name).await? {
            elsewhere |= everywhere || reference.namespace != session.namespace;
            asked.push(Asked {
                namespace: Some(reference.namespace),
                fields: Some(fields(&reference.kind, Some(&reference.name))),
            });
        }
    }
    let mut events = Vec::new();
    for one in &asked {
        events.extend(list(&session, one).await?);
    }
    events.retain(|event| {
        is_ours(event) && (types.is_empty() || types.iter().any(|kind| has_type(event, kind)))
    });
    events.sort_by_key(time);
    if events.is_empty() {
        output::failure(&if everywhere {
            "No events found.".to_owned()
        } else {
            format!("No events found in {} namespace.", session.namespace)
        });
        return Ok(());
    }
    print(&events, everywhere || elsewhere)
}

struct Asked {
    namespace: Option<String>,
    fields: Option<String>,
}

/// `Kind[/name]`, in any case.
fn chosen(selector: &str) -> Result<(&'static api::Kind, Option<&str>), CliError> {
    let (kind, name) = selector.split_once('/').map_or((selector, None), |(kind, name)| (kind, Some(name)));
    if kind.is_empty() {
        return Err(fail!("--for selector must be of format <kind>[/<name>]"));
    }
    let row = api::ALL.iter().find(|row| row.kind.eq_ignore_ascii_case(kind));
    let row = row.filter(|row| **row != api::EXTERNAL_ARTIFACT);
    let name = name.filter(|name| !name.is_empty());
    row.map(|row| (row, name)).ok_or_else(|| fail!("'{kind}' is not a recognized Flux kind"))
}

fn fields(kind: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("involvedObject.kind={kind},involvedObject.name={name}"),
        None => format!("involvedObject.kind={kind}"),
    }
}

struct Reference {
    kind: String,
    name: String,
    namespace: String,
}

/// What the object depends on, whose events belong to its story.
async fn references(
    session: &Session,
    kind: &'static api::Kind,
    name: Option<&str>,
) -> Result<Vec<Reference>, CliError> {
    let field = match kind.kind {
        "Kustomization" | "HelmChart" => "/spec/sourceRef",
        "HelmRelease" => "/spec/chart/spec/sourceRef",
        "Alert" => "/spec/providerRef",
        "ImagePolicy" => "/spec/imageRepositoryRef",
        _ => return Ok(Vec::new()),
    };
    let Some(name) = name else { return Ok(Vec::new()) };
    let object = session.get(kind, name).await?;
    let Some(reference) = object.pointer(field) else {
        // A release with a chartRef has no template to follow.
        return Ok(Vec::new());
    };
    Ok(followed(kind, &object, reference, session))
}

fn followed(kind: &api::Kind, object: &Value, reference: &Value, session: &Session) -> Vec<Reference> {
    let own = session.namespace.clone();
    let target = match kind.kind {
        "Alert" => "Provider".to_owned(),
        "ImagePolicy" => "ImageRepository".to_owned(),
        _ => text(reference, "/kind").to_owned(),
    };
    let namespace = match text(reference, "/namespace") {
        "" => own.clone(),
        namespace => namespace.to_owned(),
    };
    let mut all = vec![Reference {
        kind: target,
        name: text(reference, "/name").to_owned(),
        namespace: namespace.clone(),
    }];
    if kind.kind == "HelmRelease" {
        let name = format!("{own}-{}", crate::kinds::name(object));
        all.push(Reference { kind: "HelmChart".to_owned(), name, namespace });
    }
    all
}

async fn list(session: &Session, asked: &Asked) -> Result<Vec<Event>, CliError> {
    let api: Api<Event> = match &asked.namespace {
        Some(namespace) => Api::namespaced(session.client.clone(), namespace),
        None => Api::all(session.client.clone()),
    };
    let mut parameters = ListParams::default().limit(PAGE);
    if let Some(fields) = &asked.fields {
        parameters = parameters.fields(fields);
    }
    let mut events = Vec::new();
    loop {
        let page = api.list(&parameters).await;
        let page = page.map_err(|error| fail!("error getting events: {}", session.failed(error, None)))?;
        events.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(events),
        }
    }
}

fn is_ours(event: &Event) -> bool {
    let kind = event.involved_object.kind.as_deref().unwrap_or_default();
    kind != api::EXTERNAL_ARTIFACT.kind && api::by_kind(kind).is_some()
}

fn has_type(event: &Event, kind: &str) -> bool {
    event.type_.as_deref().unwrap_or_default().eq_ignore_ascii_case(kind)
}

/// When it last happened.
fn time(event: &Event) -> Option<Timestamp> {
    let series =
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    series
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
}

fn print(events: &[Event], with_namespace: bool) -> Result<(), CliError> {
    let mut header = vec!["Last seen", "Type", "Reason", "Object", "Message"];
    if with_namespace {
        header.insert(0, "Namespace");
    }
    let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = events.iter().map(|event| row(event, with_namespace, now)).collect();
    output::data(&output::table(&header, &rows))
}

fn row(event: &Event, with_namespace: bool, now: Timestamp) -> Vec<String> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let object = &event.involved_object;
    let mut row = Vec::new();
    if with_namespace {
        row.push(text(&event.metadata.namespace));
    }
    row.extend([
        last_seen(event, now),
        text(&event.type_),
        text(&event.reason),
        format!("{}/{}", text(&object.kind), text(&object.name)),
        text(&event.message),
    ]);
    row
}

/// `5m`, or `5m (x3 over 20m)` for one that came again.
fn last_seen(event: &Event, now: Timestamp) -> String {
    let since = |moment: Option<Timestamp>| match moment {
        Some(moment) => human_duration(now.as_second() - moment.as_second()),
        None => "<unknown>".to_owned(),
    };
    let first =
        event.event_time.as_ref().map(|time| time.0).or(event.first_timestamp.as_ref().map(|time| time.0));
    if let Some(series) = &event.series {
        let last = series.last_observed_time.as_ref().map(|time| time.0);
        return format!("{} (x{} over {})", since(last), series.count.unwrap_or_default(), since(first));
    }
    match event.count {
        Some(count) if count > 1 => {
            let last = event.last_timestamp.as_ref().map(|time| time.0);
            format!("{} (x{count} over {})", since(last), since(first))
        }
        _ => since(first),
    }
}

/// As kubectl writes ages: two units while they are small, one when they are not.
fn human_duration(seconds: i64) -> String {
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => pair(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => pair(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::human_duration;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let cases = [
            (5, "5s"),
            (119, "119s"),
            (150, "2m30s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (50 * 3600, "2d2h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(seconds), text);
        }
    }
}
