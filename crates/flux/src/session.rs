//! A command's way to the cluster: which server, which namespace, for how long.

use std::collections::HashMap;
use std::time::Duration;

use flux_api::kinds::Kind;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::tree::Invocation;

/// Who the command writes as.
pub(crate) const FIELD_MANAGER: &str = "flux";

/// An open way to a cluster.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) timeout: Duration,
    server: String,
}

impl Session {
    /// Reads the kubeconfig and the flags. Nothing is sent yet.
    pub(crate) async fn open(run: &Invocation) -> Result<Session, CliError> {
        let config = config(run).await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config)
            .map_err(|error| fail!("kubernetes client initialization failed: {}", innermost(&error)))?;
        Ok(Session { client, namespace: namespace(run)?, timeout: run.duration("timeout").to_std(), server })
    }

    /// The same way, to another namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Session {
        Session {
            client: self.client.clone(),
            namespace: namespace.to_owned(),
            timeout: self.timeout,
            server: self.server.clone(),
        }
    }

    /// Objects of a kind of Flux in the session's namespace.
    pub(crate) fn objects(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    /// Objects of a kind of Flux in every namespace.
    pub(crate) fn objects_everywhere(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(kind))
    }

    pub(crate) async fn get(&self, kind: &Kind, name: &str) -> Result<Value, CliError> {
        let object = self.objects(kind).get(name).await.map_err(|error| self.failed(error, Some(kind)))?;
        Ok(value(&object, kind))
    }

    pub(crate) async fn list(
        &self,
        kind: &Kind,
        everywhere: bool,
        filter: &ListParams,
    ) -> Result<Vec<Value>, CliError> {
        let api = if everywhere { self.objects_everywhere(kind) } else { self.objects(kind) };
        let list = api.list(filter).await.map_err(|error| self.failed(error, Some(kind)))?;
        Ok(list.items.iter().map(|object| value(object, kind)).collect())
    }

    /// Changes the fields that `patch` holds.
    pub(crate) async fn merge(&self, kind: &Kind, name: &str, patch: &Value) -> Result<(), CliError> {
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.objects(kind).patch(name, &parameters, &Patch::Merge(patch)).await;
        patched.map(|_| ()).map_err(|error| self.failed(error, Some(kind)))
    }

    /// Creates the object, or replaces its labels and spec. Says whether it was created.
    pub(crate) async fn upsert(&self, kind: &Kind, wanted: &Value) -> Result<bool, CliError> {
        let name = wanted.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let api = self.objects(kind);
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let failed = |error| self.failed(error, Some(kind));
        let typed = |value: Value| serde_json::from_value(value).map_err(|error| fail!("{error}"));
        match api.get_opt(name).await.map_err(failed)? {
            None => {
                api.create(&parameters, &typed(wanted.clone())?).await.map_err(failed)?;
                Ok(true)
            }
            Some(existing) => {
                let mut object = value(&existing, kind);
                object["spec"] = wanted["spec"].clone();
                if let Some(labels) = wanted.pointer("/metadata/labels") {
                    object["metadata"]["labels"] = labels.clone();
                }
                api.replace(name, &parameters, &typed(object)?).await.map_err(failed)?;
                Ok(false)
            }
        }
    }

    /// What the API server or the way to it said, in words a Flux user knows.
    pub(crate) fn failed(&self, error: kube::Error, kind: Option<&Kind>) -> CliError {
        match (&error, kind) {
            (kube::Error::Api(status), Some(kind))
                if status.code == 404
                    && status.details.as_ref().is_none_or(|details| details.name.is_empty()) =>
            {
                CliError::no_such_kind(kind.kind, &kind.api_version())
            }
            (kube::Error::Api(status), _) if status.code == 404 => {
                CliError::not_found(status.message.clone())
            }
            (kube::Error::Api(status), _) => CliError::new(status.message.clone()),
            _ => self.unreachable(&error),
        }
    }

    fn unreachable(&self, error: &kube::Error) -> CliError {
        let server = self.server.trim_end_matches('/');
        let host = server.split("://").nth(1).unwrap_or(server);
        let cause = innermost(error);
        if cause.to_lowercase().contains("connection refused") {
            return fail!(
                "failed to get server groups: Get \"{server}/api\": dial tcp {host}: connect: connection refused"
            );
        }
        fail!("cannot reach the API server at {server}: {cause}")
    }
}

/// The last of a chain of errors: what really happened.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

/// What kube needs to know about a kind.
pub(crate) fn resource(kind: &Kind) -> ApiResource {
    ApiResource {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        api_version: kind.api_version(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    }
}

/// The object as JSON, with the apiVersion and kind that lists leave out.
fn value(object: &DynamicObject, kind: &Kind) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = kind.api_version().into();
    value["kind"] = kind.kind.into();
    value
}

async fn config(run: &Invocation) -> Result<Config, CliError> {
    if let Some(file) = run.some("kubeconfig").filter(|file| !std::path::Path::new(file).exists()) {
        return Err(fail!("stat {file}: no such file or directory"));
    }
    let read = kubeconfig(run);
    let bad = |error: &dyn std::error::Error| {
        // The first line only: what follows quotes the file, which may hold a token.
        let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
        let (outer, inner) = (first(error.to_string()), first(innermost(error)));
        if outer.contains(&inner) {
            fail!("kubeconfig: {outer}")
        } else {
            fail!("kubeconfig: {outer}: {inner}")
        }
    };
    let mut kubeconfig = match read {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            // Inside a pod there is no kubeconfig, and none is needed.
            return match (Config::incluster(), run.some("server")) {
                (Ok(config), _) => Ok(config),
                (Err(_), Some(server)) => {
                    let server = server.parse().map_err(|problem| fail!("--server {server}: {problem}"))?;
                    Ok(Config::new(server))
                }
                (Err(_), None) => Err(bad(&error)),
            };
        }
    };
    check_names(&kubeconfig, run)?;
    override_with_flags(&mut kubeconfig, run);
    let proxied = kubeconfig
        .clusters
        .iter()
        .any(|named| named.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some()));
    let text = |name| run.some(name).map(str::to_owned);
    let options =
        KubeConfigOptions { context: text("context"), cluster: text("cluster"), user: text("user") };
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| bad(&error))?;
    if !proxied {
        // The environment's proxies are for the outside, not for the cluster.
        config.proxy_url = None;
    }
    Ok(config)
}

/// What flags name must be there; a user that is not would be nobody.
fn check_names(kubeconfig: &Kubeconfig, run: &Invocation) -> Result<(), CliError> {
    let contexts = kubeconfig.contexts.iter().map(|known| known.name.as_str()).collect::<Vec<_>>();
    let clusters = kubeconfig.clusters.iter().map(|known| known.name.as_str()).collect();
    let users = kubeconfig.auth_infos.iter().map(|known| known.name.as_str()).collect();
    for (flag, what, known) in
        [("context", "context", contexts), ("cluster", "cluster", clusters), ("user", "auth info", users)]
    {
        if let Some(name) = run.some(flag).filter(|name| !known.contains(name)) {
            return Err(fail!("{what} {name:?} does not exist"));
        }
    }
    Ok(())
}

fn kubeconfig(run: &Invocation) -> Result<Kubeconfig, kube::config::KubeconfigError> {
    match run.some("kubeconfig") {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    }
}

/// `--server`, `--token`, `--as` and the like, put into every entry: only one of them will be used.
fn override_with_flags(kubeconfig: &mut Kubeconfig, run: &Invocation) {
    let text = |name| run.some(name).map(str::to_owned);
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.server = text("server").or(cluster.server.take());
        cluster.tls_server_name = text("tls-server-name").or(cluster.tls_server_name.take());
        if run.is("insecure-skip-tls-verify") {
            cluster.insecure_skip_tls_verify = Some(true);
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = None;
        }
        if let Some(file) = text("certificate-authority") {
            cluster.certificate_authority = Some(file);
            cluster.certificate_authority_data = None;
        }
        if run.is("disable-compression") {
            cluster.disable_compression = Some(true);
        }
    }
    let takes_token = crate::tree::GLOBAL.iter().any(|flag| flag.name == "token")
        && !run.row.flags.iter().any(|flag| flag.name == "token");
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        if let Some(token) = text("token").filter(|_| takes_token) {
            user.token = Some(token.into());
            user.token_file = None;
        }
        if let Some(file) = text("client-certificate") {
            user.client_certificate = Some(file);
            user.client_certificate_data = None;
        }
        if let Some(file) = text("client-key") {
            user.client_key = Some(file);
            user.client_key_data = None;
        }
        user.impersonate = text("as").or(user.impersonate.take());
        user.impersonate_uid = text("as-uid").or(user.impersonate_uid.take());
        let groups = run.list("as-group");
        if !groups.is_empty() {
            user.impersonate_groups = Some(groups);
        }
        let mut extra: HashMap<String, Vec<String>> = HashMap::new();
        for (key, value) in run.list("as-user-extra").iter().filter_map(|pair| pair.split_once('=')) {
            extra.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        if !extra.is_empty() {
            user.impersonate_user_extra = Some(extra);
        }
    }
}

/// `-n`, else the context's namespace if asked for, else `FLUX_SYSTEM_NAMESPACE`, else `flux-system`.
pub(crate) fn namespace(run: &Invocation) -> Result<String, CliError> {
    let follows = run.is("ns-follows-kube-context")
        || std::env::var_os("FLUX_NS_FOLLOWS_KUBE_CONTEXT").is_some_and(|value| !value.is_empty());
    // `create` has never followed the context, nor does it check the namespace: the server does.
    let creates = run.row.path.starts_with("create ");
    let namespace = if run.given("namespace") {
        run.text("namespace").to_owned()
    } else {
        let from_context = if follows && !creates { context_namespace(run) } else { None };
        from_context.or_else(namespace_from_environment).unwrap_or_else(|| run.text("namespace").to_owned())
    };
    if !creates && !is_dns_label(&namespace) {
        return Err(fail!("namespace must be a valid DNS label: {namespace:?}"));
    }
    Ok(namespace)
}

fn context_namespace(run: &Invocation) -> Option<String> {
    let kubeconfig = kubeconfig(run).ok()?;
    let current = run.some("context").map(str::to_owned).or(kubeconfig.current_context)?;
    let named = kubeconfig.contexts.into_iter().find(|named| named.name == current)?;
    named.context?.namespace.filter(|namespace| !namespace.is_empty())
}

fn namespace_from_environment() -> Option<String> {
    let namespace = std::env::var("FLUX_SYSTEM_NAMESPACE").ok().filter(|namespace| !namespace.is_empty())?;
    if is_dns_label(&namespace) {
        return Some(namespace);
    }
    crate::output::warning(&format!(" ignoring invalid FLUX_SYSTEM_NAMESPACE: {namespace:?}"));
    None
}

/// Lower-case letters, digits and hyphens, not at the ends, at most 63.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}
