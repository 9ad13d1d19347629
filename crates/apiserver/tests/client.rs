//! The server as kube-rs sees it, in process.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use apiserver::{Server, User};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::json;

async fn client() -> Client {
    let server = Server::builder().start().await.unwrap();
    Client::new(server.service(), "default")
}

fn config_map(name: &str, data: serde_json::Value) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": { "app": name } }, "data": data }))
        .unwrap()
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_object_is_created_read_changed_and_deleted() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    let made = api.create(&PostParams::default(), &config_map("a", json!({ "x": "1" }))).await.unwrap();
    assert!(made.uid().is_some() && made.resource_version().is_some() && made.creation_timestamp().is_some());
    assert_eq!(made.managed_fields().len(), 1);

    let again = api.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap_err();
    assert_eq!(code(&again), 409);

    let patch = Patch::Merge(json!({ "data": { "y": "2" } }));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 2);

    let stale = api.replace("a", &PostParams::default(), &made).await.unwrap_err();
    assert_eq!(code(&stale), 409);

    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(&api.get("a").await.unwrap_err()), 404);
}

#[tokio::test]
async fn a_watch_sees_every_change_from_where_the_list_ended() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    api.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
    let list = api.list(&ListParams::default()).await.unwrap();
    let from = list.metadata.resource_version.unwrap();
    let mut events = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    api.create(&PostParams::default(), &config_map("b", json!({}))).await.unwrap();
    api.patch("b", &PatchParams::default(), &Patch::Merge(json!({ "data": { "k": "v" } }))).await.unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(match events.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => format!("added {}", object.name_any()),
            WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
            WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, ["added b", "modified b", "deleted b"]);
}

#[tokio::test]
async fn a_selected_watch_reports_what_leaves_its_selection_as_deleted() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    api.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
    let mut events = api.watch(&WatchParams::default().labels("app=a"), "0").await.unwrap().boxed();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    api.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({ "metadata": { "labels": { "app": "z" } } })),
    )
    .await
    .unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
}

#[tokio::test]
async fn an_old_revision_is_gone_after_compaction() {
    let server = Server::builder().start().await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(Client::new(server.service(), "default"));
    api.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
    server.compact();
    api.create(&PostParams::default(), &config_map("b", json!({}))).await.unwrap();
    let mut events = api.watch(&WatchParams::default(), "5").await.unwrap().boxed();
    match events.try_next().await.unwrap() {
        Some(WatchEvent::Error(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_removed() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    let mut object = config_map("held", json!({}));
    object.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    api.create(&PostParams::default(), &object).await.unwrap();
    api.delete("held", &DeleteParams::default()).await.unwrap();
    let held = api.get("held").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    api.patch("held", &PatchParams::default(), &Patch::Merge(json!({ "metadata": { "finalizers": null } })))
        .await
        .unwrap();
    assert_eq!(code(&api.get("held").await.unwrap_err()), 404);
}

#[tokio::test]
async fn server_side_apply_creates_merges_and_finds_conflicts() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    let wanted = |data: serde_json::Value| {
        Patch::Apply(
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data }),
        )
    };
    api.patch("a", &PatchParams::apply("one"), &wanted(json!({ "x": "1", "y": "1" }))).await.unwrap();
    let both = api.patch("a", &PatchParams::apply("two"), &wanted(json!({ "z": "2" }))).await.unwrap();
    assert_eq!(both.data.as_ref().unwrap().len(), 3);
    let conflict =
        api.patch("a", &PatchParams::apply("two"), &wanted(json!({ "x": "2" }))).await.unwrap_err();
    let kube::Error::Api(status) = conflict else { panic!() };
    assert_eq!(status.code, 409);
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    let forced =
        api.patch("a", &PatchParams::apply("two").force(), &wanted(json!({ "x": "2" }))).await.unwrap();
    assert_eq!(forced.data.as_ref().unwrap()["x"], "2");
    assert!(!forced.data.as_ref().unwrap().contains_key("z"), "two no longer wants z");
    assert_eq!(forced.managed_fields().len(), 2);
}

fn widgets() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
                    "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                } } },
            }],
        },
    }))
    .unwrap()
}

async fn establish(client: &Client) -> Api<DynamicObject> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &widgets()).await.unwrap();
    let established = kube::runtime::conditions::is_crd_established();
    kube::runtime::wait::await_condition(crds, "widgets.example.com", established).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    Api::default_namespaced_with(client.clone(), &resource)
}

#[tokio::test]
async fn a_custom_kind_is_served_with_its_own_status_and_generation() {
    let client = client().await;
    let api = establish(&client).await;
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" },
        "spec": { "size": 1 }, "status": { "ready": true },
    });
    let made = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert!(made.data.get("status").is_none(), "status is dropped on create");
    let status = Patch::Merge(json!({ "status": { "ready": true }, "spec": { "size": 9 } }));
    let with_status = api.patch_status("w", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(with_status.data["status"]["ready"], true);
    assert_eq!(with_status.data["spec"]["size"], 1, "spec is not changed through status");
    assert_eq!(with_status.metadata.generation, Some(1));
    let spec = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let grown = api.patch("w", &PatchParams::default(), &spec).await.unwrap();
    assert_eq!((grown.metadata.generation, &grown.data["spec"]["size"]), (Some(2), &json!(2)));
    let labelled = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!(
        api.patch("w", &PatchParams::default(), &labelled).await.unwrap().metadata.generation,
        Some(2)
    );
}

#[tokio::test]
async fn deleting_a_crd_deletes_its_objects_and_stops_serving_the_kind() {
    let client = client().await;
    let api = establish(&client).await;
    let object = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" } });
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let uid = crds.get("widgets.example.com").await.unwrap().uid().unwrap();
    crds.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    let gone = kube::runtime::conditions::is_deleted(&uid);
    kube::runtime::wait::await_condition(crds, "widgets.example.com", gone).await.unwrap();
    assert_eq!(code(&api.list(&ListParams::default()).await.unwrap_err()), 404);
}

#[tokio::test]
async fn deleting_a_namespace_empties_it_and_owned_objects_follow_their_owner() {
    let client = client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let team: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    let uid = namespaces.create(&PostParams::default(), &team).await.unwrap().uid().unwrap();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let owner = api.create(&PostParams::default(), &config_map("owner", json!({}))).await.unwrap();
    let mut owned = config_map("owned", json!({}));
    owned.metadata.owner_references = Some(
        serde_json::from_value(json!([
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid() },
        ]))
        .unwrap(),
    );
    let owned_uid = api.create(&PostParams::default(), &owned).await.unwrap().uid().unwrap();
    api.delete("owner", &DeleteParams::default()).await.unwrap();
    let gone = kube::runtime::conditions::is_deleted(&owned_uid);
    kube::runtime::wait::await_condition(api.clone(), "owned", gone).await.unwrap();

    api.create(&PostParams::default(), &config_map("left", json!({}))).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let gone = kube::runtime::conditions::is_deleted(&uid);
    kube::runtime::wait::await_condition(namespaces, "team", gone).await.unwrap();
    let refused = api.create(&PostParams::default(), &config_map("late", json!({}))).await.unwrap_err();
    assert_eq!(code(&refused), 404);
}

#[tokio::test]
async fn a_user_may_do_what_roles_say_and_nothing_else() {
    let server = Server::builder().start().await.unwrap();
    let alice = Client::new(server.service_as(User::new("alice", &["system:authenticated"])), "default");
    let api: Api<ConfigMap> = Api::default_namespaced(alice.clone());
    let kube::Error::Api(status) = api.get("x").await.unwrap_err() else { panic!() };
    assert_eq!(
        status.message,
        "configmaps \"x\" is forbidden: User \"alice\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let admin = Client::new(server.service(), "default");
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::default_namespaced(admin);
    let binding = json!({
        "metadata": { "name": "alice" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    api.create(&PostParams::default(), &config_map("x", json!({}))).await.unwrap();
    let deployments: Api<Deployment> = Api::all(alice);
    assert_eq!(code(&deployments.list(&ListParams::default()).await.unwrap_err()), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_that_name_no_revision_all_succeed_at_once() {
    let api: Api<ConfigMap> = Api::default_namespaced(client().await);
    api.create(&PostParams::default(), &config_map("raced", json!({}))).await.unwrap();
    let patches = (0..20).map(|at| {
        let api = api.clone();
        tokio::spawn(async move {
            let patch = Patch::Merge(json!({ "data": { format!("k{at}"): "v" } }));
            api.patch("raced", &PatchParams::default(), &patch).await
        })
    });
    for patched in futures::future::join_all(patches).await {
        patched.unwrap().unwrap();
    }
    assert_eq!(api.get("raced").await.unwrap().data.unwrap().len(), 20, "no patch undid another");
}

struct Lines;

impl apiserver::LogSource for Lines {
    fn open(&self, of: &apiserver::LogOf<'_>) -> Option<apiserver::Log> {
        let line = |second: i64, text: &str| apiserver::LogLine {
            time: jiff::Timestamp::from_second(second).unwrap(),
            text: text.to_owned(),
        };
        (of.pod == "spoken").then(|| apiserver::Log {
            written: vec![line(1, "one"), line(2, "two"), line(3, "three")],
            coming: Box::pin(futures::stream::iter([line(4, "four")])),
        })
    }
}

#[tokio::test]
async fn logs_come_from_whoever_runs_the_pod_or_from_the_played_container() {
    use futures::{AsyncReadExt as _, TryStreamExt as _};
    let simulation = apiserver::Simulation::On { delay: std::time::Duration::ZERO };
    let builder = Server::builder().simulation(simulation).logs(std::sync::Arc::new(Lines));
    let server = builder.start().await.unwrap();
    let api: Api<k8s_openapi::api::core::v1::Pod> =
        Api::default_namespaced(Client::new(server.service(), "default"));
    for name in ["spoken", "played"] {
        let pod = json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "web:1" }] } });
        api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let running = kube::runtime::conditions::is_pod_running();
        kube::runtime::wait::await_condition(api.clone(), name, running).await.unwrap();
    }
    let options =
        |tail_lines, timestamps| kube::api::LogParams { tail_lines, timestamps, ..Default::default() };
    assert_eq!(api.logs("spoken", &options(None, false)).await.unwrap(), "one\ntwo\nthree\n");
    let stamped = api.logs("spoken", &options(Some(1), true)).await.unwrap();
    assert_eq!(stamped, "1970-01-01T00:00:03.000000000Z three\n");
    let follow = kube::api::LogParams { follow: true, tail_lines: Some(1), ..Default::default() };
    let mut followed = String::new();
    api.log_stream("spoken", &follow).await.unwrap().read_to_string(&mut followed).await.unwrap();
    assert_eq!(followed, "three\nfour\n");

    let played = api.logs("played", &options(None, false)).await.unwrap();
    assert!(played.contains("web:1 is simulated"), "{played}");
    // Following ends when the pod does.
    let reader = api.log_stream("played", &follow).await.unwrap();
    let ended =
        tokio::spawn(
            async move { futures::AsyncBufReadExt::lines(reader).try_collect::<Vec<String>>().await },
        );
    api.delete("played", &DeleteParams::default().grace_period(0)).await.unwrap();
    let lines =
        tokio::time::timeout(std::time::Duration::from_secs(10), ended).await.unwrap().unwrap().unwrap();
    assert_eq!(lines.len(), 1);
    let missing = kube::api::LogParams { container: Some("x".to_owned()), ..Default::default() };
    assert_eq!(code(&api.logs("spoken", &missing).await.unwrap_err()), 400);
}

#[tokio::test]
async fn an_object_is_read_by_the_schema_of_today() {
    let client = client().await;
    let crd = |default: serde_json::Value| {
        let mut size = json!({ "type": "string" });
        if !default.is_null() {
            size["default"] = default;
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "hats.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": { "plural": "hats", "kind": "Hat" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "size": size },
                } } }],
            },
        })
    };
    let kind = |group: &str, kind: &str| {
        kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, "v1", kind))
    };
    let crds: Api<kube::api::DynamicObject> =
        Api::all_with(client.clone(), &kind("apiextensions.k8s.io", "CustomResourceDefinition"));
    let hats: Api<kube::api::DynamicObject> =
        Api::default_namespaced_with(client, &kind("example.com", "Hat"));
    let apply = PatchParams::apply("test");
    crds.patch("hats.example.com", &apply, &Patch::Apply(crd(json!(null)))).await.unwrap();
    let hat = json!({ "apiVersion": "example.com/v1", "kind": "Hat", "metadata": { "name": "top" } });
    let hat: kube::api::DynamicObject = serde_json::from_value(hat).unwrap();
    while hats.create(&PostParams::default(), &hat).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(hats.get("top").await.unwrap().data.get("size").is_none());
    crds.patch("hats.example.com", &apply, &Patch::Apply(crd(json!("large")))).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while hats.get("top").await.unwrap().data.get("size") != Some(&json!("large")) {
        assert!(std::time::Instant::now() < deadline, "the default never shows");
        tokio::task::yield_now().await;
    }
    let listed = hats.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items[0].data["size"], "large");
}
