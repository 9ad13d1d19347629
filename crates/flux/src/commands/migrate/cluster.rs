//! Objects of a cluster: each is written again in the version that is stored, then the CRD forgets the older ones.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::commands::version::PART_OF;
use crate::error::{CliError, fail};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

/// Objects are listed in pages of this size.
const PAGE: u32 = 500;

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    output::action("starting migration of custom resources");
    let session = Session::open(run).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(session.client.clone());
    let listed = crds.list(&ListParams::default().labels(PART_OF)).await;
    let listed = listed.map_err(|error| fail!("failed to list CRDs: {}", session.failed(error, None)))?;
    for crd in listed.items {
        migrate(&session, &crds, &crd).await?;
    }
    output::success("custom resources migrated successfully");
    Ok(())
}

async fn migrate(
    session: &Session,
    crds: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
) -> Result<(), CliError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let stored = crd.spec.versions.iter().find(|version| version.storage);
    let version = stored.ok_or_else(|| fail!("no storage version found for CRD {name}"))?.name.clone();
    let api_version = format!("{}/{version}", crd.spec.group);
    let resource = ApiResource {
        group: crd.spec.group.clone(),
        version: version.clone(),
        api_version: api_version.clone(),
        kind: crd.spec.names.kind.clone(),
        plural: crd.spec.names.plural.clone(),
    };
    let failed = |error: &dyn std::fmt::Display| fail!("failed to migrate resources for CRD {name}: {error}");
    let all: Api<DynamicObject> = Api::all_with(session.client.clone(), &resource);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = all.list(&page).await;
        let listed = listed.map_err(|error| {
            failed(&format!("failed to list resources for CRD {name}: {}", session.failed(error, None)))
        })?;
        for object in &listed.items {
            rewrite(session, &resource, object).await.map_err(|error| failed(&error))?;
        }
        match listed.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => break,
        }
    }
    forget(session, crds, crd, &version).await
}

async fn rewrite(session: &Session, resource: &ApiResource, object: &DynamicObject) -> Result<(), CliError> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(session.client.clone(), &namespace, resource);
    let parameters = PatchParams::default();
    let patched = match managed_fields(object, &resource.api_version) {
        // Nothing changes, and yet the server writes it anew.
        None => api.patch(&name, &parameters, &Patch::Merge(json!({}))).await,
        Some(fields) => {
            let version = object.metadata.resource_version.clone().unwrap_or_default();
            let patch = json!([
                {"op": "replace", "path": "/metadata/managedFields", "value": fields},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ]);
            let patch = serde_json::from_value(patch).map_err(|error| fail!("{error}"))?;
            api.patch(&name, &parameters, &Patch::Json::<()>(patch)).await
        }
    };
    let shown = format!("{}/{namespace}/{name}", resource.kind);
    match patched {
        Ok(_) => {}
        // Deleted meanwhile: nothing is left to migrate.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(fail!(" {shown} failed to migrate: {}", session.failed(error, None))),
    }
    output::success(&format!("{shown} migrated to version {}", resource.version));
    Ok(())
}

/// Who owns which field, told in the new version; nothing if nobody spoke an older one.
fn managed_fields(object: &DynamicObject, api_version: &str) -> Option<Value> {
    let mut fields = object.metadata.managed_fields.clone()?;
    let group = api_version.split_once('/').map(|(group, _)| format!("{group}/"))?;
    let mut changed = false;
    for entry in &mut fields {
        if let Some(version) =
            entry.api_version.as_mut().filter(|own| own.starts_with(&group) && *own != api_version)
        {
            api_version.clone_into(version);
            changed = true;
        }
    }
    changed.then(|| serde_json::to_value(fields).ok()).flatten()
}

async fn forget(
    session: &Session,
    crds: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
    version: &str,
) -> Result<(), CliError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let known = crd.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default();
    if known == [version] {
        return Ok(());
    }
    let patch = json!({"status": {"storedVersions": [version]}});
    let patched = crds.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(|error| fail!("failed to update CRD {name} status: {}", session.failed(error, None)))?;
    output::success(&format!("{name} migrated to storage version {version}"));
    Ok(())
}
