//! `flux trace`: from an object in the cluster back to the Kustomization or HelmRelease that applied it, and to its source.

use flux_api::kinds as api;
use flux_apply::{Cluster, ObjectId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::kinds::{self, condition, text};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io";
const HELM: &str = "helm.toolkit.fluxcd.io";
/// Owners of owners of …
const MOST_OWNERS: usize = 32;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let objects = if run.some("kind").is_some() || run.some("api-version").is_some() {
        vec![named_by_flags(run, &session).await?]
    } else {
        named_by_words(run, &session).await?
    };
    for (at, object) in objects.iter().enumerate() {
        match traced(&session, object).await {
            Ok(report) => output::data(&report)?,
            Err(error) => output::plain(&format!(
                "failed to trace {}/{} in namespace {}: {error}",
                text(object, "/kind"),
                kinds::name(object),
                kinds::namespace(object)
            )),
        }
        if at + 1 < objects.len() {
            output::data("---\n")?;
        }
    }
    Ok(())
}

async fn named_by_flags(run: &Invocation, session: &Session) -> Result<Value, CliError> {
    let name = run.name().ok_or_else(|| fail!("object name is required"))?;
    let kind = run.some("kind").ok_or_else(|| fail!("object kind is required (--kind)"))?;
    let version =
        run.some("api-version").ok_or_else(|| fail!("object apiVersion is required (--api-version)"))?;
    if version.matches('/').count() > 1 {
        return Err(fail!("invaild apiVersion: unexpected GroupVersion string: {version}"));
    }
    let (group, short) = version.split_once('/').unwrap_or(("", version));
    let resources = resources(session, group, short).await?;
    let found = resources.iter().find(|one| one.kind.eq_ignore_ascii_case(kind));
    let found = found.ok_or_else(|| {
        fail!("failed to find object: no matches for kind \"{kind}\" in version \"{version}\"")
    })?;
    let mut object = get(session, group, short, found, name)
        .await
        .map_err(|error| fail!("failed to find object: {error}"))?;
    // Upstream shows the kind as it was typed.
    object["kind"] = kind.into();
    Ok(object)
}

/// `deployment app other`, or `deployment/app configmap/x`.
async fn named_by_words(run: &Invocation, session: &Session) -> Result<Vec<Value>, CliError> {
    let usage = || fail!("either `<resource>/<name>` or `<resource> <name>` is required as an argument");
    let words: Vec<&str> = run.args.iter().map(String::as_str).collect();
    let mut wanted: Vec<(String, String)> = Vec::new();
    if words.iter().any(|word| word.contains('/')) {
        for word in &words {
            match word.split('/').collect::<Vec<_>>()[..] {
                [kind, name] if !kind.is_empty() && !name.is_empty() => {
                    wanted.push((kind.to_owned(), name.to_owned()))
                }
                [_] => {
                    return Err(fail!(
                        "there is no need to specify a resource type as a separate argument when passing arguments in \
                         resource/name form (e.g. 'flux get resource/<resource_name>' instead of 'flux get resource resource/<resource_name>'"
                    ));
                }
                _ => return Err(fail!("arguments in resource/name form may not have more than one slash")),
            }
        }
    } else {
        let [kinds, names @ ..] = &words[..] else { return Err(usage()) };
        if names.is_empty() {
            return Err(usage());
        }
        for kind in kinds.split(',') {
            wanted.extend(names.iter().map(|name| (kind.to_owned(), (*name).to_owned())));
        }
    }
    let mut objects = Vec::new();
    for (kind, name) in wanted {
        let (group, version, resource) = find(session, &kind).await?;
        let found = get(session, &group, &version, &resource, &name).await;
        objects.push(found.map_err(|error| fail!("x: {error}"))?);
    }
    Ok(objects)
}

/// The object that a person calls `deploy` `web`, or `Deployment` `web`.
pub(super) async fn named(session: &Session, kind: &str, name: &str) -> Result<Value, CliError> {
    let (group, version, resource) = find(session, kind).await?;
    get(session, &group, &version, &resource, name).await
}

async fn resources(session: &Session, group: &str, version: &str) -> Result<Vec<APIResource>, CliError> {
    let listed = if group.is_empty() {
        session.client.list_core_api_resources(version).await
    } else {
        session.client.list_api_group_resources(&format!("{group}/{version}")).await
    };
    match listed {
        Ok(list) => Ok(list.resources.into_iter().filter(|one| !one.name.contains('/')).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(session.failed(error, None)),
    }
}

/// The resource that `deploy`, `deployments`, `Deployment` or `deployments.apps` means.
async fn find(session: &Session, word: &str) -> Result<(String, String, APIResource), CliError> {
    let word = word.to_lowercase();
    let (short, in_group) =
        word.split_once('.').map_or((word.as_str(), None), |(short, group)| (short, Some(group)));
    let mut places = vec![(String::new(), "v1".to_owned())];
    let groups = session.client.list_api_groups().await.map_err(|error| session.failed(error, None))?;
    for group in groups.groups {
        let version = group.preferred_version.or_else(|| group.versions.into_iter().next());
        places.extend(version.map(|version| (group.name, version.version)));
    }
    for (group, version) in places {
        // `deployments.apps`, and `deployments.v1.apps`
        if in_group.is_some_and(|wanted| wanted != group && wanted != format!("{version}.{group}")) {
            continue;
        }
        for resource in resources(session, &group, &version).await? {
            let names = [resource.name.as_str(), resource.singular_name.as_str()];
            let shorts = resource.short_names.iter().flatten().map(String::as_str);
            if names.into_iter().chain(shorts).any(|name| name == short)
                || resource.kind.to_lowercase() == short
            {
                return Ok((group, version, resource));
            }
        }
    }
    Err(fail!("the server doesn't have a resource type \"{word}\""))
}

async fn get(
    session: &Session,
    group: &str,
    version: &str,
    resource: &APIResource,
    name: &str,
) -> Result<Value, CliError> {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let described = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.clone(),
        kind: resource.kind.clone(),
        plural: resource.name.clone(),
    };
    let api: Api<DynamicObject> = if resource.namespaced {
        Api::namespaced_with(session.client.clone(), &session.namespace, &described)
    } else {
        Api::all_with(session.client.clone(), &described)
    };
    let object = api.get(name).await.map_err(|error| session.failed(error, None))?;
    let mut object = serde_json::to_value(object).map_err(|error| fail!("{error}"))?;
    object["apiVersion"] = api_version.into();
    object["kind"] = resource.kind.clone().into();
    Ok(object)
}

async fn traced(session: &Session, object: &Value) -> Result<String, CliError> {
    if let Some((namespace, name)) = owner(session, object, KUSTOMIZE).await {
        return kustomization(session, object, &namespace, &name).await;
    }
    if let Some((namespace, name)) = owner(session, object, HELM).await {
        return release(session, object, &namespace, &name).await;
    }
    Err(fail!("object not managed by Flux"))
}

/// Namespace and name from the labels of the object, or of whoever owns it.
async fn owner(session: &Session, object: &Value, group: &str) -> Option<(String, String)> {
    let cluster = Cluster::new(session.client.clone());
    let mut waiting = vec![object.clone()];
    for _ in 0..MOST_OWNERS {
        let object = waiting.pop()?;
        let label = |what: &str| text(&object, &format!("/metadata/labels/{group}~1{what}")).to_owned();
        if !label("name").is_empty() {
            return Some((label("namespace"), label("name")));
        }
        let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned();
        for reference in references.unwrap_or_default().iter().rev() {
            let version = text(reference, "/apiVersion");
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let id = ObjectId {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: text(reference, "/kind").to_owned(),
                namespace: kinds::namespace(&object).to_owned(),
                name: text(reference, "/name").to_owned(),
            };
            waiting.extend(cluster.get(&id).await.ok().flatten());
        }
    }
    None
}

/// Lines of a report, with labels as wide as upstream pads them.
struct Report {
    text: String,
    width: usize,
}

impl Report {
    fn new(width: usize, object: &Value) -> Report {
        let mut report = Report { text: "\n".to_owned(), width };
        report.line("Object:", &format!("{}/{}", text(object, "/kind"), kinds::name(object)));
        report.optional("Namespace:", kinds::namespace(object));
        report.line("Status:", "Managed by Flux");
        report
    }

    fn line(&mut self, label: &str, value: &str) {
        self.text.push_str(&format!("{label:<width$}{value}\n", width = self.width));
    }

    fn optional(&mut self, label: &str, value: &str) {
        if !value.is_empty() {
            self.line(label, value);
        }
    }

    /// A new object; sections may be padded otherwise.
    fn section(&mut self, width: usize, kind: &str, object: &Value) {
        self.width = width;
        self.text.push_str("---\n");
        self.line(&format!("{kind}:"), kinds::name(object));
        self.line("Namespace:", kinds::namespace(object));
    }

    fn revision(&mut self, object: &Value) {
        if object.pointer("/status/artifact").is_some() {
            self.line("Revision:", text(object, "/status/artifact/revision"));
        }
    }

    /// `failing` objects say so; the others only say when.
    fn ready(&mut self, object: &Value, failing: bool) {
        let Some(ready) = condition(object, "Ready") else {
            return self.line("Status:", "Unknown");
        };
        let failed = failing && text(ready, "/status") == "False";
        let what = if failed { "Last reconciliation failed at" } else { "Last reconciled at" };
        self.line("Status:", &format!("{what} {}", go_time(text(ready, "/lastTransitionTime"))));
        self.line("Message:", text(ready, "/message"));
    }
}

/// As Go prints a time: `2021-08-01 04:42:56 +0000 UTC`.
fn go_time(time: &str) -> String {
    let Ok(moment) = time.parse::<Timestamp>() else { return time.to_owned() };
    let local = moment.to_zoned(TimeZone::system());
    let zone = local.strftime("%Z").to_string();
    format!("{} {zone}", local.strftime("%Y-%m-%d %H:%M:%S %z"))
}

async fn kustomization(
    session: &Session,
    object: &Value,
    namespace: &str,
    name: &str,
) -> Result<String, CliError> {
    let place = session.in_namespace(namespace);
    let owner = place.get(&api::KUSTOMIZATION, name).await;
    let owner = owner.map_err(|error| fail!("failed to find kustomization: {error}"))?;
    let source = source(&place, owner.pointer("/spec/sourceRef").unwrap_or(&Value::Null)).await?;
    let mut report = Report::new(17, object);
    report.section(17, "Kustomization", &owner);
    report.optional("Target:", text(&owner, "/spec/targetNamespace"));
    report.line("Path:", text(&owner, "/spec/path"));
    report.line("Revision:", text(&owner, "/status/lastAppliedRevision"));
    report.ready(&owner, false);
    if let Some((kind, source)) = source {
        section_of_source(&mut report, 17, kind, &source, true);
    }
    Ok(report.text)
}

/// What a reference names, for the kinds that reports show.
async fn source(
    session: &Session,
    reference: &Value,
) -> Result<Option<(&'static api::Kind, Value)>, CliError> {
    let shown: [&'static api::Kind; 4] =
        [&api::GIT_REPOSITORY, &api::OCI_REPOSITORY, &api::EXTERNAL_ARTIFACT, &api::HELM_REPOSITORY];
    let Some(kind) = shown.into_iter().find(|kind| kind.kind == text(reference, "/kind")) else {
        return Ok(None);
    };
    let namespace = Some(text(reference, "/namespace")).filter(|namespace| !namespace.is_empty());
    let place = session.in_namespace(namespace.unwrap_or(&session.namespace));
    let found = place.get(kind, text(reference, "/name")).await;
    let found = found.map_err(|error| fail!("failed to find {}: {error}", kind.kind))?;
    if *kind == api::EXTERNAL_ARTIFACT && found.pointer("/spec/sourceRef").is_none() {
        let (namespace, name) = (kinds::namespace(&found), kinds::name(&found));
        return Err(fail!("ExternalArtifact {namespace}/{name} is missing spec.sourceRef"));
    }
    Ok(Some((kind, found)))
}

fn section_of_source(report: &mut Report, width: usize, kind: &api::Kind, source: &Value, origin: bool) {
    report.section(width, kind.kind, source);
    if *kind == api::EXTERNAL_ARTIFACT {
        let reference = |field: &str| text(source, &format!("/spec/sourceRef/{field}")).to_owned();
        report.line(
            "Source:",
            &format!("{}/{}/{}", reference("kind"), reference("namespace"), reference("name")),
        );
    } else {
        report.line("URL:", text(source, "/spec/url"));
    }
    let chosen: &[(&str, &str)] = if *kind == api::GIT_REPOSITORY {
        &[("Tag:", "tag"), ("Tag:", "semver"), ("Branch:", "branch")]
    } else if *kind == api::OCI_REPOSITORY {
        &[("Tag:", "tag"), ("Tag:", "semver"), ("Digest:", "digest")]
    } else {
        &[]
    };
    let value = |field: &str| text(source, &format!("/spec/ref/{field}")).to_owned();
    if let Some((label, field)) = chosen.iter().find(|(_, field)| !value(field).is_empty()) {
        report.line(label, &value(field));
    }
    report.revision(source);
    let with_origin = [api::OCI_REPOSITORY, api::EXTERNAL_ARTIFACT].contains(kind);
    if origin && with_origin && source.pointer("/status/artifact/metadata").is_some() {
        for (label, annotation) in [("Origin Revision:", "revision"), ("Origin Source:", "source")] {
            let value =
                text(source, &format!("/status/artifact/metadata/org.opencontainers.image.{annotation}"));
            // Upstream leaves an empty line where there is nothing to tell.
            if value.is_empty() { report.text.push('\n') } else { report.line(label, value) }
        }
    }
    report.ready(source, *kind != api::HELM_REPOSITORY);
}

async fn release(session: &Session, object: &Value, namespace: &str, name: &str) -> Result<String, CliError> {
    let place = session.in_namespace(namespace);
    let owner = place.get(&api::HELM_RELEASE, name).await;
    let owner = owner.map_err(|error| fail!("failed to find HelmRelease: {error}"))?;
    let chart = match text(&owner, "/status/helmChart") {
        "" => None,
        chart => {
            let (namespace, name) = chart.split_once('/').unwrap_or(("", chart));
            let found = session.in_namespace(namespace).get(&api::HELM_CHART, name).await;
            Some(found.map_err(|error| fail!("failed to find HelmChart: {error}"))?)
        }
    };
    let by_chart = owner.pointer("/spec/chart").is_some();
    let reference = if by_chart { "/spec/chart/spec/sourceRef" } else { "/spec/chartRef" };
    let source = source(&place, owner.pointer(reference).unwrap_or(&Value::Null)).await?;
    let fits = |kind: &api::Kind| {
        let of_chart = [api::GIT_REPOSITORY, api::HELM_REPOSITORY].contains(kind);
        of_chart == by_chart
    };
    let mut report = Report::new(16, object);
    report.section(16, "HelmRelease", &owner);
    report.optional("Target:", text(&owner, "/spec/targetNamespace"));
    report.line("Revision:", text(&owner, "/status/lastAttemptedRevision"));
    report.ready(&owner, false);
    if let Some(chart) = &chart {
        report.section(16, "HelmChart", chart);
        report.line("Chart:", text(chart, "/spec/chart"));
        report.line("Version:", text(chart, "/spec/version"));
        report.revision(chart);
        report.ready(chart, false);
    }
    if let Some((kind, source)) = source.filter(|(kind, _)| fits(kind)) {
        let width = match kind.kind {
            "GitRepository" => 15,
            "HelmRepository" => 16,
            _ => 17,
        };
        section_of_source(&mut report, width, kind, &source, false);
    }
    Ok(report.text)
}
