//! What a Kustomization waits for before it starts: objects that must be ready, and no circle among them.

use std::sync::PoisonError;

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus};
use flux_api::kinds::{self, Kind};
use flux_api::kustomize::Kustomization;
use flux_api::meta::DependencyReference;
use flux_api::revision::Revision;
use flux_apply::ObjectId;
use flux_apply::health::{Status, judge};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::DynamicObject;
use kube_cel::{Bindings, Environment, Libraries, Program, Type};
use serde_json::Value;

use super::failure::Failure;
use super::identity;
use super::kustomization::short;
use super::observe::SourceKey;
use super::run::{KIND, Run};
use crate::reconcile::{ObjectKey, circle, decode, resource};

/// Why a dependency holds its dependents up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// What was looked for, what the server calls it, and what there is instead.
    #[error("dependency '{0}' not found: {1} not found{2}")]
    NotFound(String, String, String),
    #[error("dependency '{0}' is not ready")]
    Waiting(String),
    #[error("dependency '{0}' revision is not up to date")]
    OldRevision(String),
    #[error("dependency '{0}' is not ready according to readyExpr eval")]
    ByExpression(String),
    #[error("{0}")]
    Unknown(String),
}

/// Ends well when all dependencies are ready.
pub(super) async fn check(run: &Run<'_>, revision: &Revision) -> Result<(), Failure> {
    if run.object.spec.depends_on.is_empty() {
        return Ok(());
    }
    // Before the first look, so that whatever changes after it wakes this object.
    let key = ObjectKey::of(run.raw);
    let undecided = || run.ctx.memory.undecided.lock().unwrap_or_else(PoisonError::into_inner);
    undecided().insert(key.clone());
    let result = look(run, revision).await;
    if result.is_ok() {
        undecided().remove(&key);
    }
    result
}

async fn look(run: &Run<'_>, revision: &Revision) -> Result<(), Failure> {
    let own = run.object;
    let mut expressions = Vec::new();
    for dependency in &own.spec.depends_on {
        expressions.push(dependency.ready_expr.as_deref().map(|text| compile(dependency, text)).transpose()?);
    }
    if !run.ctx.options.upstream_only
        && let Some(circle) = circle::of(&run.ctx.cache, KIND, &ObjectKey::of(run.raw))
    {
        return Err(Failure::DependencyCycle(circle));
    }
    for (dependency, expression) in own.spec.depends_on.iter().zip(&expressions) {
        let found = find(run, dependency).await?;
        if let Some(expression) = expression {
            evaluate(run, dependency, expression, &found)?;
            if !run.ctx.options.gates.additive_cel_dependency_check {
                continue;
            }
        }
        judge_dependency(run, dependency, &found, revision).map_err(Failure::Dependency)?;
    }
    Ok(())
}

fn compile(dependency: &DependencyReference, text: &str) -> Result<Program, Failure> {
    let environment = Environment::new()
        .with("self", Type::Dyn)
        .with("dep", Type::Dyn)
        .returning(Type::Bool)
        .with_libraries(Libraries::Extended);
    Program::compile(text, &environment).map_err(|error| {
        Failure::InvalidExpression(format!(
            "failed to evaluate dependency {}: failed to parse the CEL expression '{text}': {error}",
            dependency.name
        ))
    })
}

fn evaluate(
    run: &Run<'_>,
    dependency: &DependencyReference,
    expression: &Program,
    found: &Value,
) -> Result<(), Failure> {
    let unknown = |why: String| Failure::Dependency(NotReady::Unknown(why));
    let own = serde_json::to_value(run.raw).map_err(|error| unknown(error.to_string()))?;
    let bindings = Bindings::new().with_json("self", &own).with_json("dep", found);
    let text = dependency.ready_expr.as_deref().unwrap_or_default();
    let failed = |why: String| unknown(format!("failed to evaluate the CEL expression '{text}': {why}"));
    let answer = expression.eval(&bindings).map_err(|error| failed(error.to_string()))?;
    match answer.as_bool() {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::Dependency(NotReady::ByExpression(named(run.object, dependency)))),
        None => Err(failed("it gives no true or false".to_owned())),
    }
}

/// `namespace/name`, and the kind where it is another.
fn named(own: &Kustomization, dependency: &DependencyReference) -> String {
    let key = key(own, dependency);
    match &dependency.kind {
        Some(kind) if kind != KIND.kind => format!("{kind}/{key}"),
        _ => key.to_string(),
    }
}

fn key(own: &Kustomization, dependency: &DependencyReference) -> ObjectKey {
    let namespace = dependency.namespace.clone().unwrap_or_else(|| Object::namespace(own).to_owned());
    ObjectKey::new(namespace, &dependency.name)
}

/// The dependency as it is now. Kustomizations are known here; anything else is read as the tenant.
async fn find(run: &Run<'_>, dependency: &DependencyReference) -> Result<Value, Failure> {
    let key = key(run.object, dependency);
    let is_kustomization = dependency.kind.as_deref().is_none_or(|kind| kind == KIND.kind);
    let found = if is_kustomization {
        let known = run.ctx.cache.get(KIND, &key).and_then(|object| serde_json::to_value(&*object).ok());
        match known {
            Some(known) => Some(known),
            // It may be where this controller does not watch.
            None => read_kustomization(run, &key).await?,
        }
    } else {
        read_other(run, dependency, &key).await?
    };
    found.ok_or_else(|| {
        let hint = if run.ctx.options.upstream_only { String::new() } else { alternatives(run, &key) };
        let wanted = on_the_server(dependency, &key.name);
        Failure::Dependency(NotReady::NotFound(named(run.object, dependency), wanted, hint))
    })
}

/// `<plural>.<group> "<name>"`, as the API server says it; a kind that is not Flux's by its own name.
fn on_the_server(dependency: &DependencyReference, name: &str) -> String {
    let kind = dependency.kind.as_deref().unwrap_or(KIND.kind);
    match kinds::by_kind(kind) {
        Some(row) => format!("{}.{} \"{name}\"", row.plural, row.group),
        None => format!("{kind} \"{name}\""),
    }
}

/// What exists instead of something that does not.
fn alternatives(run: &Run<'_>, key: &ObjectKey) -> String {
    let mut names: Vec<String> = run
        .ctx
        .cache
        .list(KIND)
        .iter()
        .map(|object| ObjectKey::of(object))
        .filter(|other| other.namespace == key.namespace && *other != ObjectKey::of(run.raw))
        .map(|other| other.name)
        .collect();
    names.sort();
    names.truncate(5);
    if names.is_empty() {
        return String::new();
    }
    format!("; there are: {}", names.join(", "))
}

async fn read_kustomization(run: &Run<'_>, key: &ObjectKey) -> Result<Option<Value>, Failure> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(run.ctx.client.clone(), &key.namespace, &resource(KIND));
    let found = api.get_opt(&key.name).await;
    let found = found.map_err(|error| {
        Failure::Dependency(NotReady::Unknown(format!("dependency '{key}': {}", short(&error))))
    })?;
    Ok(found.and_then(|object| serde_json::to_value(object).ok()))
}

async fn read_other(
    run: &Run<'_>,
    dependency: &DependencyReference,
    key: &ObjectKey,
) -> Result<Option<Value>, Failure> {
    if key.namespace != run.namespace() && run.ctx.options.no_cross_namespace_refs {
        return Err(Failure::AccessDenied(named(run.object, dependency)));
    }
    let kind = dependency.kind.clone().unwrap_or_default();
    let known = kinds::by_kind(&kind).map(Kind::api_version);
    let Some(api_version) = dependency.api_version.clone().or(known) else {
        let text = format!(
            "spec.dependsOn: '{kind}/{key}' needs an apiVersion, since {kind} is not one of Flux's kinds"
        );
        return Err(Failure::InvalidExpression(text));
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let id = ObjectId {
        group: group.to_owned(),
        version: version.to_owned(),
        kind,
        namespace: key.namespace.clone(),
        name: key.name.clone(),
    };
    let cluster = identity::local(run).await?;
    cluster.get(&id).await.map_err(|cause| {
        Failure::Dependency(NotReady::Unknown(format!(
            "dependency '{}': {cause}",
            named(run.object, dependency)
        )))
    })
}

fn judge_dependency(
    run: &Run<'_>,
    dependency: &DependencyReference,
    found: &Value,
    revision: &Revision,
) -> Result<(), NotReady> {
    let name = || named(run.object, dependency);
    if dependency.kind.as_deref().is_some_and(|kind| kind != KIND.kind) {
        let ready = condition_status(found, condition::READY) == Some("True");
        let current = judge(found, Timestamp::now().as_second()).status == Status::Current;
        return if ready && current { Ok(()) } else { Err(NotReady::Waiting(name())) };
    }
    let Ok(found) = serde_json::from_value::<Kustomization>(found.clone()) else {
        return Err(NotReady::Waiting(name()));
    };
    let settled = found.observed_generation() == Some(found.generation());
    if !settled || !condition::is(found.conditions(), condition::READY, ConditionStatus::True) {
        return Err(NotReady::Waiting(name()));
    }
    // From the same source, "ready" must mean ready at the same revision.
    let applied = found.status.as_ref().and_then(|status| status.last_applied_revision.as_ref());
    let same_source = SourceKey::primary(&found) == SourceKey::primary(run.object);
    if same_source && applied != Some(revision) {
        return Err(NotReady::OldRevision(name()));
    }
    Ok(())
}

fn condition_status<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one["type"] == name)?.get("status")?.as_str()
}

/// What dependents look at: ready or not, at which revision, of which generation.
pub(super) fn dependents_care_about(object: &DynamicObject) -> [Option<Value>; 4] {
    let ready = object.data.pointer("/status/conditions").and_then(Value::as_array).and_then(|conditions| {
        conditions.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(condition::READY))
    });
    [
        ready.and_then(|ready| ready.get("status").cloned()),
        object.data.pointer("/status/lastAppliedRevision").cloned(),
        object.data.pointer("/status/observedGeneration").cloned(),
        object.metadata.generation.map(Value::from),
    ]
}

/// Reads an object of the cache as a Kustomization; one that cannot be read waits for nothing.
pub(super) fn kustomization(object: &DynamicObject) -> Option<Kustomization> {
    decode(object).ok()
}
