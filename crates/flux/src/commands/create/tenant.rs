//! `flux create tenant`: namespaces with a service account that may do there what a role says.

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, core::GroupVersionKind};
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::text;
use crate::output;
use crate::session::{FIELD_MANAGER, Session};
use crate::tree::Invocation;

use super::labels;

const TENANT_LABEL: &str = "toolkit.fluxcd.io/tenant";

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let tenant = run.name().unwrap_or_default();
    let role = run.some("cluster-role").ok_or_else(|| fail!("cluster-role is required"))?;
    let namespaces = run.list("with-namespace");
    if namespaces.is_empty() {
        return Err(fail!("with-namespace is required"));
    }
    let account = run.some("with-service-account").unwrap_or(tenant);
    let mut objects = Vec::new();
    for namespace in &namespaces {
        checked(namespace, "namespace")?;
        labels::of(run)?;
        checked(account, "service-account name")?;
        objects.push(tenancy(run, tenant, namespace, account, role)?);
    }
    if run.is("export") {
        for object in objects.iter().flatten() {
            output::export(object)?;
        }
        return Ok(());
    }
    let session = Session::open(run).await?;
    for object in objects.iter().flatten() {
        apply(&session, object).await?;
    }
    output::success("tenant setup completed");
    Ok(())
}

fn checked(name: &str, what: &str) -> Result<(), CliError> {
    let problems = labels::name_problems(name);
    if problems.is_empty() { Ok(()) } else { Err(fail!("invalid {what} '{name}': [{}]", problems.join(" "))) }
}

fn tenancy(
    run: &Invocation,
    tenant: &str,
    namespace: &str,
    account: &str,
    role: &str,
) -> Result<Vec<Value>, CliError> {
    let mut labels = labels::of(run)?;
    labels.insert(TENANT_LABEL.to_owned(), tenant.into());
    let group = "rbac.authorization.k8s.io";
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace, "labels": labels},
        }),
        json!({
            "apiVersion": format!("{group}/v1"),
            "kind": "RoleBinding",
            "metadata": {"name": format!("{tenant}-reconciler"), "namespace": namespace, "labels": labels},
            "subjects": [
                {"apiGroup": group, "kind": "User", "name": format!("gotk:{namespace}:reconciler")},
                {"kind": "ServiceAccount", "name": account, "namespace": namespace},
            ],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        }),
    ];
    if run.is("skip-namespace") {
        objects.remove(0);
    }
    Ok(objects)
}

async fn apply(session: &Session, wanted: &Value) -> Result<(), CliError> {
    let (kind, name) = (text(wanted, "/kind"), text(wanted, "/metadata/name"));
    let (human, plural) = match kind {
        "Namespace" => ("namespace", "namespaces"),
        "ServiceAccount" => ("service account", "serviceaccounts"),
        _ => ("role binding", "rolebindings"),
    };
    output::action(&format!("applying {human} {name}"));
    let (group, version) = text(wanted, "/apiVersion").rsplit_once('/').unwrap_or(("", "v1"));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = match text(wanted, "/metadata/namespace") {
        "" => Api::all_with(session.client.clone(), &resource),
        namespace => Api::namespaced_with(session.client.clone(), namespace, &resource),
    };
    let failed = |error| session.failed(error, None);
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let typed = |value: &Value| serde_json::from_value(value.clone()).map_err(|error| fail!("{error}"));
    let Some(existing) = api.get_opt(name).await.map_err(failed)? else {
        api.create(&parameters, &typed(wanted)?).await.map_err(failed)?;
        return Ok(());
    };
    let mut existing = serde_json::to_value(&existing).map_err(|error| fail!("{error}"))?;
    if ["/metadata/labels", "/subjects", "/roleRef"]
        .iter()
        .all(|part| holds(existing.pointer(part), wanted.pointer(part)))
    {
        return Ok(());
    }
    if kind == "RoleBinding" {
        // The role of a binding cannot be changed.
        api.delete(name, &kube::api::DeleteParams::default()).await.map_err(failed)?;
        api.create(&parameters, &typed(wanted)?).await.map_err(failed)?;
        return Ok(());
    }
    existing["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
    api.replace(name, &parameters, &typed(&existing)?).await.map_err(failed)?;
    Ok(())
}

/// Whether everything wanted is there; more may be.
fn holds(existing: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (existing, wanted) {
        (_, None) => true,
        (Some(Value::Object(existing)), Some(Value::Object(wanted))) => {
            wanted.iter().all(|(key, value)| existing.get(key) == Some(value))
        }
        (existing, wanted) => existing == wanted,
    }
}
