//! ImageUpdateAutomation: from a new tag to a commit, and from there to what runs.

use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use axum::{Json, Router};
use flux_api::kinds::{
    Controller, GIT_REPOSITORY, IMAGE_POLICY, IMAGE_REPOSITORY, IMAGE_UPDATE_AUTOMATION, KUSTOMIZATION,
};
use flux_controllers::reconcile::FeatureGates;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::{Accounts, Change, GitServer, Security, SshKey};
use testbed::http_server::HttpServer;
use testbed::registry::Registry;

use crate::flux::{Flux, condition, ready};
use crate::image_reflector::push;
use crate::sources::reconciled;

crate::stories!(
    a_new_tag_becomes_a_signed_commit_and_runs,
    nothing_but_the_marked_values_changes,
    another_branch_is_made_and_pushed_anew_and_a_refspec_is_pushed_too,
    a_push_that_lost_the_race_is_made_again,
    only_selected_policies_below_the_path_count,
    an_automation_that_cannot_work_says_why,
    a_read_only_credential_is_explained_before_anything_changes,
    a_read_only_deploy_key_is_explained_before_anything_changes,
    a_marker_that_is_not_followed_is_told_with_file_and_line,
    commits_are_signed_with_ssh_keys_too,
    removed_template_fields_stall_only_where_upstream_is_followed,
    a_suspended_automation_rests,
    a_pull_request_is_opened_once_at_each_host,
    another_namespaces_repository_is_pushed_to_unless_that_is_forbidden,
    gates_keep_a_branch_from_being_made_anew,
);

fn recorded(name: &str) -> String {
    let path = format!("{}/../flux-remote/tests/signatures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// `@policy@` stands for a marker.
fn marked(flux: &Flux, text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('@').enumerate() {
        match index % 2 {
            0 => out.push_str(part),
            _ => out.push_str(&format!("# {{\"$imagepolicy\": \"{}:{part}\"}}", flux.namespace.name())),
        }
    }
    out
}

fn automation(more: Value) -> Value {
    let mut spec = json!({
        "sourceRef": { "kind": "GitRepository", "name": "fleet" },
        "interval": "1h",
        "git": { "commit": { "author": { "name": "fluxbot", "email": "bot@example.com" } } },
    });
    merge(&mut spec, more);
    spec
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, more) => *into = more,
    }
}

/// An image with one tag and a policy `app` that has picked it.
async fn with_image(flux: &Flux, registry: &Registry, tag: &str) {
    push(registry, tag);
    let image = format!("{}/org/app", registry.host());
    flux.apply(&IMAGE_REPOSITORY, "app", json!({ "image": image, "interval": "1h" })).await;
    policy(flux, "app", json!({})).await;
}

async fn policy(flux: &Flux, name: &str, labels: Value) {
    let spec =
        json!({ "imageRepositoryRef": { "name": "app" }, "policy": { "semver": { "range": ">=0.0.0" } } });
    flux.apply_labelled(&IMAGE_POLICY, name, spec, labels).await;
    flux.ready(&IMAGE_POLICY, name).await;
}

async fn pushed(flux: &Flux, name: &str) -> Value {
    flux.until(&IMAGE_UPDATE_AUTOMATION, name, "pushed", |object| {
        object["status"]["lastPushCommit"].is_string() && ready(object).0 == "True"
    })
    .await
}

const BOTH: &[Controller] = &[Controller::ImageReflector, Controller::ImageAutomation];

async fn a_new_tag_becomes_a_signed_commit_and_runs(cluster: &Cluster) {
    let controllers =
        [Controller::Source, Controller::Kustomize, Controller::ImageReflector, Controller::ImageAutomation];
    let flux = Flux::start(cluster, &controllers).await;
    let registry = Registry::start().unwrap();
    let image = format!("{}/org/app", registry.host());
    let manifest = |tag: &str| {
        marked(
            &flux,
            &format!(
                "# The shop.\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}} # flow\nspec:\n  replicas: 0\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      containers:\n      - name: web\n        image: '{image}:{tag}' @app@\n"
            ),
        )
    };
    flux.fleet.commit("first", &[("apps/web.yaml", &manifest("1.0.0"))]).unwrap();
    let signing = [("git.asc", recorded("bot.secret.asc")), ("passphrase", "open sesame".to_owned())];
    let signing: Vec<(&str, &str)> = signing.iter().map(|(key, value)| (*key, value.as_str())).collect();
    flux.secret("signing", &signing).await;
    flux.git_repository("fleet").await;
    let kustomization = json!({
        "sourceRef": { "kind": "GitRepository", "name": "fleet" }, "path": "./apps", "interval": "1h",
        "prune": true, "targetNamespace": flux.namespace.name(),
    });
    flux.apply(&KUSTOMIZATION, "apps", kustomization).await;
    with_image(&flux, &registry, "1.0.0").await;
    let template = "Update {{ range .Changed.Changes }}{{ .OldValue }} -> {{ .NewValue }}{{ end }}\n\n{{ range $id, $_ := .Changed.Objects }}{{ $id.Kind }}/{{ $id.Name }}{{ end }} by {{ .AutomationObject.Name }} for {{ .Values.cluster }}";
    let git = json!({ "git": { "commit": {
        "messageTemplate": template, "messageTemplateValues": { "cluster": "prod" },
        "signingKey": { "secretRef": { "name": "signing" } },
    } } });
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(git)).await;
    let object = flux
        .until(&IMAGE_UPDATE_AUTOMATION, "auto", "has seen the policy", |object| {
            object["status"]["observedPolicies"]["app"]["tag"] == "1.0.0" && ready(object).0 == "True"
        })
        .await;
    assert_eq!(ready(&object), ("True", "Succeeded", "repository up-to-date"));
    assert_eq!(object["status"]["lastPushCommit"], Value::Null);

    push(&registry, "1.1.0");
    flux.reconcile(&IMAGE_REPOSITORY, "app").await;
    let object = pushed(&flux, "auto").await;
    let commit = flux.fleet.resolve("refs/heads/main").unwrap();
    assert_eq!(object["status"]["lastPushCommit"], commit.as_str());
    assert_eq!(object["status"]["observedSourceRevision"], format!("main@sha1:{commit}"));
    assert_eq!(object["status"]["observedPolicies"]["app"]["tag"], "1.1.0");
    assert_eq!(flux.fleet.git(&["show", "main:apps/web.yaml"], b"").unwrap() + "\n", manifest("1.1.0"));
    let message = format!("Update {image}:1.0.0 -> {image}:1.1.0\n\nDeployment/web by auto for prod");
    assert_eq!(flux.fleet.git(&["log", "-1", "--format=%B", "main"], b"").unwrap(), message);
    let people = flux.fleet.git(&["log", "-1", "--format=%an <%ae> %cn <%ce>", "main"], b"").unwrap();
    assert_eq!(people, "fluxbot <bot@example.com> fluxbot <bot@example.com>");
    let summary = format!("pushed commit '{}' to branch 'main'\n{message}", &commit[..7]);
    flux.event("auto", "Succeeded", &summary).await;

    // The source checks the signature and the Deployment gets the image.
    flux.secret("keys", &[("bot.asc", &recorded("bot.asc"))]).await;
    let verify = json!({
        "url": flux.server.http_url("fleet"), "interval": "1h", "ref": { "branch": "main" },
        "verify": { "mode": "HEAD", "secretRef": { "name": "keys" } },
    });
    flux.apply(&GIT_REPOSITORY, "fleet", verify).await;
    let source = flux
        .until(&GIT_REPOSITORY, "fleet", "verified the commit", |object| {
            condition(object, "SourceVerified").0 == "True"
        })
        .await;
    assert!(condition(&source, "SourceVerified").2.contains(&commit), "{source}");
    flux.reconcile(&KUSTOMIZATION, "apps").await;
    let api: Api<Deployment> = Api::namespaced(cluster.client(), flux.namespace.name());
    let runs = |deployment: &Deployment| {
        serde_json::to_value(deployment).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"]
            == format!("{image}:1.1.0")
    };
    testbed::wait::until(&api, "web", std::time::Duration::from_secs(60), "runs the new image", runs)
        .await
        .unwrap();
}

async fn nothing_but_the_marked_values_changes(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let files: [(&str, &str); 6] = [
        ("crlf.yaml", "# a\r\nimage: x:1 @app@\r\nother:   [1, 2]\r\n"),
        ("no-end.yaml", "tag: \"1\" @app:tag@"),
        (
            "many.yaml",
            "---\na: &x 1 # one\nb: *x\n---\nimages:\n- name: x @app:name@\n  newTag: '1' @app:tag@\n",
        ),
        ("config.yaml", "kind: ConfigMap\ndata:\n  v.yaml: |\n    image: x:1 @app@\n  tag: 'v1' @app:tag@\n"),
        ("flow.yml", "a: {\n  b: x:1, @app@\n  c: [x:1]}\n"),
        ("chart/templates/d.yaml", "{{ if .Values.x }}\nimage: x:1 @app@\n{{ end }}\n"),
    ];
    let image = format!("{}/org/app", registry.host());
    let before: Vec<(&str, String)> = files.iter().map(|(path, text)| (*path, marked(&flux, text))).collect();
    let changes: Vec<Change<'_>> = before.iter().map(|(path, text)| Change::Write(path, text)).collect();
    flux.fleet.commit_to("main", "first", &changes).unwrap();
    let more = [Change::WriteExecutable("run.sh", "#!/bin/sh\n"), Change::Link("link.yaml", "crlf.yaml")];
    flux.fleet.commit_to("main", "more", &more).unwrap();
    let start = flux.fleet.resolve("main").unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(json!({}))).await;
    pushed(&flux, "auto").await;
    let full = format!("{image}:2.0.0");
    let expected = [
        ("crlf.yaml", files[0].1.replace("x:1", &full)),
        ("no-end.yaml", files[1].1.replace("\"1\"", "\"2.0.0\"")),
        ("many.yaml", files[2].1.replace("name: x", &format!("name: {image}")).replace("'1'", "'2.0.0'")),
        ("config.yaml", files[3].1.replace("'v1'", "'2.0.0'")),
        ("flow.yml", files[4].1.replace("b: x:1,", &format!("b: {full},"))),
        ("chart/templates/d.yaml", files[5].1.to_owned()),
    ];
    for (path, text) in &expected {
        let wanted = marked(&flux, text);
        let id = flux.fleet.git(&["hash-object", "--stdin"], wanted.as_bytes()).unwrap();
        let found = flux.fleet.git(&["rev-parse", &format!("main:{path}")], b"").unwrap();
        assert_eq!(found, id, "{path}: {:?}", flux.fleet.git(&["show", &format!("main:{path}")], b""));
    }
    let names = flux.fleet.git(&["diff", "--name-only", &start, "main"], b"").unwrap();
    assert_eq!(names, "config.yaml\ncrlf.yaml\nflow.yml\nmany.yaml\nno-end.yaml");
    assert_eq!(
        flux.fleet.git(&["log", "-1", "--format=%s", "main"], b"").unwrap(),
        "Update from image update automation"
    );
    flux.event("auto", "InvalidMarker", "chart/templates/d.yaml:").await;
    // Nothing new: no commit, and the remote is only asked for its refs.
    let head = flux.fleet.resolve("main").unwrap();
    let object = reconciled(&flux, &IMAGE_UPDATE_AUTOMATION, "auto").await;
    assert_eq!(ready(&object).2, "repository up-to-date");
    assert_eq!(flux.fleet.resolve("main").unwrap(), head);
    flux.event("auto", "Succeeded", "no change since last reconciliation").await;
}

async fn another_branch_is_made_and_pushed_anew_and_a_refspec_is_pushed_too(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    flux.fleet.git(&["config", "receive.advertisePushOptions", "true"], b"").unwrap();
    let text = marked(&flux, "tag: '1' @app:tag@\n");
    let main = flux.fleet.commit("first", &[("a.yaml", &text)]).unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    let git = json!({ "git": { "push": {
        "branch": "auto", "refspec": "refs/heads/auto:refs/heads/review", "options": { "ci.skip": "" },
    } } });
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(git)).await;
    let object = pushed(&flux, "auto").await;
    let commit = flux.fleet.resolve("refs/heads/auto").unwrap();
    assert_eq!(object["status"]["lastPushCommit"], commit.as_str());
    assert_eq!(flux.fleet.resolve("refs/heads/review").unwrap(), commit);
    assert_eq!(flux.fleet.resolve("refs/heads/main").unwrap(), main, "main is left alone");
    assert_eq!(flux.fleet.resolve("auto^").unwrap(), main);
    // The checked out branch is observed, so that the next run looks again.
    assert_eq!(object["status"]["observedSourceRevision"], format!("main@sha1:{main}"));
    flux.event("auto", "Succeeded", "to branch 'auto' and refspecs 'refs/heads/auto:refs/heads/review'")
        .await;
    // The branch exists now: the next commit goes on top of it.
    push(&registry, "3.0.0");
    flux.reconcile(&IMAGE_REPOSITORY, "app").await;
    flux.until(&IMAGE_UPDATE_AUTOMATION, "auto", "pushed again", |object| {
        object["status"]["observedPolicies"]["app"]["tag"] == "3.0.0" && ready(object).0 == "True"
    })
    .await;
    assert_eq!(flux.fleet.resolve("auto^").unwrap(), commit);
    assert!(flux.fleet.read("auto", "a.yaml").unwrap().contains("tag: '3.0.0'"));
}

async fn a_push_that_lost_the_race_is_made_again(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let text = marked(&flux, "tag: '1' @app:tag@\n");
    flux.fleet.commit("first", &[("a.yaml", &text)]).unwrap();
    // The first pushes find that somebody was faster.
    let hook = flux.fleet.folder().join("hooks/pre-receive");
    let script = "#!/bin/sh\nread old new ref\nn=$(cat races 2>/dev/null || echo 0)\n[ $n -ge 2 ] && exit 0\necho $((n+1)) > races\nunset GIT_QUARANTINE_PATH\ntree=$(git rev-parse $old^{tree})\nother=$(echo other | GIT_AUTHOR_NAME=o GIT_AUTHOR_EMAIL=o GIT_COMMITTER_NAME=o GIT_COMMITTER_EMAIL=o GIT_OBJECT_DIRECTORY=objects git commit-tree $tree -p $old)\nGIT_OBJECT_DIRECTORY=objects git update-ref $ref $other\nexit 0\n";
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, script).unwrap();
    let mut permissions = std::fs::metadata(&hook).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    std::fs::set_permissions(&hook, permissions).unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(json!({}))).await;
    pushed(&flux, "auto").await;
    let subjects = flux.fleet.git(&["log", "--format=%s", "main"], b"").unwrap();
    assert_eq!(subjects, "Update from image update automation\nother\nother\nfirst");
    assert!(flux.fleet.read("main", "a.yaml").unwrap().contains("2.0.0"));
    // Two automations of one repository take turns; both commits arrive.
    let more = marked(&flux, "tag: '1' @app:tag@\n");
    let changes = [Change::Write("one/a.yaml", &more), Change::Write("two/a.yaml", &more)];
    flux.fleet.commit_to("main", "folders", &changes).unwrap();
    for folder in ["one", "two"] {
        let update = json!({ "update": { "path": format!("./{folder}"), "strategy": "Setters" } });
        flux.apply(&IMAGE_UPDATE_AUTOMATION, folder, automation(update)).await;
    }
    for folder in ["one", "two"] {
        pushed(&flux, folder).await;
        assert!(flux.fleet.read("main", &format!("{folder}/a.yaml")).unwrap().contains("2.0.0"));
    }
}

async fn only_selected_policies_below_the_path_count(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let text = marked(&flux, "a: '1' @app:tag@\nb: '1' @other:tag@\nc: '1' @app:digest@\n");
    let foreign = "d: '1' # {\"$imagepolicy\": \"elsewhere:app:tag\"}\n";
    let text = format!("{text}{foreign}");
    flux.fleet.commit("first", &[("in/a.yaml", &text), ("out/a.yaml", &text)]).unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    policy(&flux, "other", json!({ "team": "b" })).await;
    flux.git_repository("fleet").await;
    let spec = json!({
        "policySelector": { "matchExpressions": [{ "key": "team", "operator": "DoesNotExist" }] },
        "update": { "path": "./in", "strategy": "Setters" },
    });
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(spec)).await;
    let object = pushed(&flux, "auto").await;
    let observed = object["status"]["observedPolicies"].as_object().unwrap();
    assert_eq!(observed.keys().collect::<Vec<_>>(), ["app"]);
    let found = flux.fleet.read("main", "in/a.yaml").unwrap();
    let expected = text.replacen("'1'", "'2.0.0'", 1).replace("c: '1'", "c: ''");
    assert_eq!(found + "\n", expected);
    assert_eq!(flux.fleet.read("main", "out/a.yaml").unwrap() + "\n", text);
}

async fn an_automation_that_cannot_work_says_why(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let text = marked(&flux, "tag: '1' @app:tag@\n");
    flux.fleet.commit("first", &[("a.yaml", &text)]).unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    let url = flux.server.http_url("fleet");
    let tagged = json!({ "url": url, "interval": "1h", "ref": { "tag": "v1" } });
    flux.apply(&GIT_REPOSITORY, "tagged", tagged).await;
    let gone = json!({ "url": flux.server.http_url("gone"), "interval": "1h", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "gone", gone).await;
    let mut without_git = automation(json!({}));
    without_git.as_object_mut().unwrap().remove("git");
    let selector = json!({ "policySelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } });
    let source = |name: &str| json!({ "sourceRef": { "name": name } });
    let commit = |more: Value| json!({ "git": { "commit": more } });
    let endless = "{{ define \"x\" }}{{ template \"x\" . }}{{ end }}{{ template \"x\" . }}";
    flux.secret("no-key", &[("other", "x")]).await;
    let cases = [
        ("no-git", without_git, "InvalidSourceConfiguration", "necessitates field .spec.git", true),
        ("selector", automation(selector), "InvalidPolicySelector", "failed to parse policy selector", true),
        (
            "no-source",
            automation(source("nope")),
            "SourceManagerFailed",
            "referenced git repository does not exist",
            false,
        ),
        ("no-branch", automation(source("tagged")), "SourceManagerFailed", "push spec not provided", false),
        ("no-repo", automation(source("gone")), "GitOperationFailed", "failed to checkout source: ", false),
        (
            "no-path",
            automation(json!({ "update": { "path": "./nope", "strategy": "Setters" } })),
            "UpdateFailed",
            "failed to apply policies: ",
            false,
        ),
        (
            "no-signer",
            automation(commit(json!({ "signingKey": { "secretRef": { "name": "nope" } } }))),
            "SourceManagerFailed",
            "could not find signing key secret 'nope'",
            false,
        ),
        (
            "no-key",
            automation(commit(json!({ "signingKey": { "secretRef": { "name": "no-key" } } }))),
            "SourceManagerFailed",
            "does not contain a 'git.asc' key",
            false,
        ),
        (
            "template",
            automation(commit(json!({ "messageTemplate": "{{ .Nope" }))),
            "GitOperationFailed",
            "unable to create commit message template from spec",
            false,
        ),
        (
            "endless",
            automation(commit(json!({ "messageTemplate": endless }))),
            "GitOperationFailed",
            "failed to run template from spec",
            false,
        ),
        (
            "climbing",
            automation(json!({ "update": { "path": "../../etc", "strategy": "Setters" } })),
            "UpdateFailed",
            "etc: no such file or directory in the repository",
            false,
        ),
    ];
    let head = flux.fleet.resolve("main").unwrap();
    for (name, spec, _, _, _) in &cases {
        flux.apply(&IMAGE_UPDATE_AUTOMATION, name, spec.clone()).await;
    }
    for (name, _, reason, text, stalls) in &cases {
        let object = flux.not_ready(&IMAGE_UPDATE_AUTOMATION, name, reason).await;
        assert!(ready(&object).2.contains(text), "{name}: {}", ready(&object).2);
        assert_eq!(condition(&object, "Stalled").0 == "True", *stalls, "{name}");
        flux.event(name, reason, text).await;
    }
    assert_eq!(flux.fleet.resolve("main").unwrap(), head, "nobody pushed");
}

async fn a_read_only_credential_is_explained_before_anything_changes(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let text = marked(&flux, "tag: '1' @app:tag@\n");
    let head = flux.fleet.commit("first", &[("a.yaml", &text)]).unwrap();
    flux.fleet.git(&["config", "http.receivepack", "false"], b"").unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(json!({}))).await;
    let object = flux.not_ready(&IMAGE_UPDATE_AUTOMATION, "auto", "GitOperationFailed").await;
    let message = ready(&object).2;
    assert!(
        message.contains("has no secretRef, and image automation cannot push without logging in"),
        "{message}"
    );
    assert_eq!(flux.fleet.resolve("main").unwrap(), head);
    // Write access is given: the next try pushes.
    flux.fleet.git(&["config", "http.receivepack", "true"], b"").unwrap();
    pushed(&flux, "auto").await;
}

async fn a_read_only_deploy_key_is_explained_before_anything_changes(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let (reader, writer) = (SshKey::generate().unwrap(), SshKey::generate().unwrap());
    let accounts = Accounts {
        keys: vec![writer.public().unwrap()],
        read_only_keys: vec![reader.public().unwrap()],
        ..Accounts::default()
    };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    let fleet = server.create("fleet").unwrap();
    // Nothing is to be changed yet: the key is looked at all the same, before the day it matters.
    let head = fleet.commit("first", &[("a.yaml", &marked(&flux, "tag: '2.0.0' @app:tag@\n"))]).unwrap();
    let known = server.known_hosts().unwrap();
    flux.secret("login", &[("identity", &reader.private().unwrap()), ("known_hosts", &known)]).await;
    let source = json!({
        "url": server.ssh_url("fleet"), "interval": "1h", "ref": { "branch": "main" },
        "secretRef": { "name": "login" },
    });
    flux.apply(&GIT_REPOSITORY, "fleet", source).await;
    with_image(&flux, &registry, "2.0.0").await;
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(json!({}))).await;
    let object = flux.not_ready(&IMAGE_UPDATE_AUTOMATION, "auto", "GitOperationFailed").await;
    let namespace = flux.namespace.name();
    let sentence = format!(
        "failed to update source: the deploy key of GitRepository {namespace}/fleet is read-only, and image automation needs \
         write access: allow write access for this key at the Git host, or put a key that has it into Secret \
         {namespace}/login (the server said: "
    );
    assert!(ready(&object).2.starts_with(&sentence), "{}", ready(&object).2);
    assert!(ready(&object).2.contains("marked as read only"), "{}", ready(&object).2);
    flux.event("auto", "GitOperationFailed", "allow write access for this key").await;
    assert_eq!(fleet.resolve("main").unwrap(), head);
    assert_eq!(object["status"]["lastPushCommit"], Value::Null);
    // Another key: the next try is well, and the next image is pushed.
    flux.secret("login", &[("identity", &writer.private().unwrap()), ("known_hosts", &known)]).await;
    flux.ready(&IMAGE_UPDATE_AUTOMATION, "auto").await;
    push(&registry, "2.1.0");
    flux.reconcile(&IMAGE_REPOSITORY, "app").await;
    pushed(&flux, "auto").await;
    assert!(fleet.read("main", "a.yaml").unwrap().contains("'2.1.0'"));
}

async fn a_marker_that_is_not_followed_is_told_with_file_and_line(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let good = marked(&flux, "tag: '1' @app:tag@\n");
    let broken = "a: 1\nb: v1 # {\"$imagepolicy\": \"app\"}\nc: v1 # {\"$imagepolicy\": 'ns:app'}\n";
    let misplaced = marked(&flux, "values:\n  image: {name: x, tag: v1} @app@\n");
    let files = [("good.yaml", good.as_str()), ("apps/broken.yaml", broken), ("misplaced.yml", &misplaced)];
    flux.fleet.commit("first", &files).unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(json!({}))).await;
    pushed(&flux, "auto").await;
    for line in [
        "apps/broken.yaml:2: 'app' lacks the namespace",
        "apps/broken.yaml:3: write exactly",
        "misplaced.yml:2: the marker has no effect on a mapping",
    ] {
        flux.event("auto", "InvalidMarker", line).await;
    }
    assert_eq!(flux.fleet.read("main", "apps/broken.yaml").unwrap() + "\n", broken);
    assert_eq!(flux.fleet.read("main", "good.yaml").unwrap() + "\n", good.replace("'1'", "'2.0.0'"));
}

async fn commits_are_signed_with_ssh_keys_too(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source, BOTH[0], BOTH[1]]).await;
    let registry = Registry::start().unwrap();
    let (login, signing) = (SshKey::generate().unwrap(), SshKey::generate().unwrap());
    let accounts = Accounts { keys: vec![login.public().unwrap()], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    let fleet = server.create("fleet").unwrap();
    fleet.commit("first", &[("a.yaml", &marked(&flux, "tag: '1' @app:tag@\n"))]).unwrap();
    let (identity, known) = (login.private().unwrap(), server.known_hosts().unwrap());
    flux.secret("login", &[("identity", &identity), ("known_hosts", &known)]).await;
    flux.secret("signing", &[("identity", &signing.private().unwrap())]).await;
    flux.secret("keys", &[("bot.sshpub", &signing.public().unwrap())]).await;
    let source = |verify: bool| {
        let mut spec = json!({
            "url": server.ssh_url("fleet"), "interval": "1h", "ref": { "branch": "main" },
            "secretRef": { "name": "login" },
        });
        if verify {
            spec["verify"] = json!({ "mode": "HEAD", "secretRef": { "name": "keys" } });
        }
        spec
    };
    flux.apply(&GIT_REPOSITORY, "fleet", source(false)).await;
    with_image(&flux, &registry, "2.0.0").await;
    let key = json!({ "git": { "commit": { "signingKey": { "type": "ssh", "secretRef": { "name": "signing" } } } } });
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(key)).await;
    pushed(&flux, "auto").await;
    assert!(fleet.read("main", "a.yaml").unwrap().contains("2.0.0"));
    flux.apply(&GIT_REPOSITORY, "fleet", source(true)).await;
    flux.until(&GIT_REPOSITORY, "fleet", "verified the commit", |object| {
        condition(object, "SourceVerified").0 == "True"
    })
    .await;
}

async fn removed_template_fields_stall_only_where_upstream_is_followed(cluster: &Cluster) {
    let template =
        json!({ "git": { "commit": { "messageTemplate": "{{ range .Updated.Images }}{{ . }}{{ end }}" } } });
    let registry = Registry::start().unwrap();
    let flux = Flux::start(cluster, BOTH).await;
    let strict = Flux::start_with(cluster, BOTH, |options| options.automation.upstream_only = true).await;
    for flux in [&flux, &strict] {
        flux.fleet.commit("first", &[("a.yaml", &marked(flux, "tag: '1' @app:tag@\n"))]).unwrap();
        with_image(flux, &registry, "2.0.0").await;
        flux.git_repository("fleet").await;
        flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(template.clone())).await;
    }
    pushed(&flux, "auto").await;
    let subject = flux.fleet.git(&["log", "-1", "--format=%s", "main"], b"").unwrap();
    assert_eq!(subject, format!("{}/org/app:2.0.0", registry.host()));
    let object = strict.not_ready(&IMAGE_UPDATE_AUTOMATION, "auto", "RemovedTemplateField").await;
    assert!(ready(&object).2.starts_with("template uses removed '.Updated' field."), "{}", ready(&object).2);
    assert_eq!(condition(&object, "Stalled").0, "True");
}

async fn a_suspended_automation_rests(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    let head = flux.fleet.commit("first", &[("a.yaml", &marked(&flux, "tag: '1' @app:tag@\n"))]).unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(json!({ "suspend": true }))).await;
    flux.until(&IMAGE_UPDATE_AUTOMATION, "auto", "has its finalizer", |object| {
        object["metadata"]["finalizers"] == json!(["finalizers.fluxcd.io"])
    })
    .await;
    flux.reconcile_as(&IMAGE_UPDATE_AUTOMATION, "auto", "now").await;
    let patch = json!({ "spec": { "suspend": false } });
    assert_eq!(flux.fleet.resolve("main").unwrap(), head);
    let api = flux.api(&IMAGE_UPDATE_AUTOMATION);
    let object = serde_json::to_value(api.get("auto").await.unwrap()).unwrap();
    assert_eq!(object["status"]["lastHandledReconcileAt"], Value::Null);
    api.patch("auto", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let object = pushed(&flux, "auto").await;
    assert_eq!(object["status"]["lastHandledReconcileAt"], "now");
}

type Requests = std::sync::Arc<std::sync::Mutex<Vec<Value>>>;

/// Answers as GitHub, GitLab and Gitea do, as far as it goes: lists what is open, opens more.
fn git_host(token: &'static str) -> (HttpServer, Requests) {
    let open = Requests::default();
    let (listed, made) = (open.clone(), open.clone());
    let known = move |headers: &HeaderMap| {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        [text("authorization"), text("private-token")].iter().any(|one| one.ends_with(token))
    };
    let list = move |headers: HeaderMap| async move {
        let open = listed.lock().unwrap().clone();
        if known(&headers) {
            (StatusCode::OK, Json(json!(open)))
        } else {
            (StatusCode::UNAUTHORIZED, Json(json!({})))
        }
    };
    let create = move |headers: HeaderMap, Json(mut body): Json<Value>| async move {
        if !known(&headers) {
            return (StatusCode::UNAUTHORIZED, Json(json!({ "message": "Bad credentials" })));
        }
        if body["head"].is_string() {
            body["head"] = json!({ "ref": body["head"] });
            body["base"] = json!({ "ref": body["base"] });
        }
        (body["html_url"], body["web_url"]) =
            (json!("https://git.example.com/1"), json!("https://git.example.com/1"));
        made.lock().unwrap().push(body.clone());
        (StatusCode::CREATED, Json(body))
    };
    let site = Router::new()
        .route("/repos/org/fleet/pulls", get(list.clone()).post(create.clone()))
        .route("/projects/org%2Ffleet/merge_requests", get(list.clone()).post(create.clone()))
        .fallback(axum::routing::get(list).post(create));
    (HttpServer::start(site, Security::Plain).unwrap(), open)
}

async fn a_pull_request_is_opened_once_at_each_host(cluster: &Cluster) {
    let flux = Flux::start(cluster, BOTH).await;
    let registry = Registry::start().unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    let fleet = flux.server.create("org/fleet").unwrap();
    fleet.commit("first", &[("a.yaml", &marked(&flux, "tag: '1' @app:tag@\n"))]).unwrap();
    let spec =
        json!({ "url": flux.server.http_url("org/fleet"), "interval": "1h", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "fleet", spec).await;
    let hosts: Vec<_> =
        ["github", "gitlab", "gitea"].into_iter().map(|name| (name, git_host("t0ken"))).collect();
    let annotate = |name: &'static str, host: &'static str, secret: &'static str| {
        let api = flux.api(&IMAGE_UPDATE_AUTOMATION);
        let spec = automation(json!({ "git": {
            "push": { "branch": format!("images-{name}") },
            "commit": { "messageTemplate": "Update images\n\nby flux" },
        } }));
        let object = json!({
            "apiVersion": IMAGE_UPDATE_AUTOMATION.api_version(), "kind": IMAGE_UPDATE_AUTOMATION.kind,
            "metadata": { "name": name, "annotations": {
                "fluxcd.rs/pull-request": host, "fluxcd.rs/pull-request-secret": secret,
            } },
            "spec": spec,
        });
        async move {
            api.patch(name, &PatchParams::apply("story").force(), &Patch::Apply(object)).await.unwrap();
        }
    };
    for (name, (server, _)) in &hosts {
        flux.secret(name, &[("token", "t0ken"), ("address", &server.url())]).await;
        annotate(name, name, name).await;
    }
    flux.secret("wrong", &[("token", "canary"), ("address", &hosts[0].1.0.url())]).await;
    annotate("wrong", "github", "wrong").await;
    annotate("nowhere", "bitbucket", "wrong").await;
    for (name, (_, open)) in &hosts {
        pushed(&flux, name).await;
        flux.event(name, "Succeeded", "request https://git.example.com/1").await;
        // Again: the branch is there, and so is the request.
        reconciled(&flux, &IMAGE_UPDATE_AUTOMATION, name).await;
        let open = open.lock().unwrap().clone();
        let title: Vec<&Value> =
            open.iter().map(|one| &one["title"]).filter(|one| **one == "Update images").collect();
        assert_eq!(title.len(), 1, "{name}: {open:?}");
    }
    let object = flux.not_ready(&IMAGE_UPDATE_AUTOMATION, "wrong", "GitOperationFailed").await;
    assert!(ready(&object).2.contains("failed to open a pull request: "), "{}", ready(&object).2);
    assert!(!object.to_string().contains("canary"));
    flux.not_ready(&IMAGE_UPDATE_AUTOMATION, "nowhere", "InvalidSourceConfiguration").await;
}

async fn another_namespaces_repository_is_pushed_to_unless_that_is_forbidden(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let theirs = Flux::start(cluster, &[]).await;
    // Neither being suspended nor being broken as a source matters: only its address and login do.
    let spec = json!({
        "url": theirs.server.http_url("fleet"), "interval": "1h", "ref": { "branch": "main" }, "suspend": true,
    });
    theirs.apply(&GIT_REPOSITORY, "fleet", spec).await;
    let flux = Flux::start(cluster, BOTH).await;
    let strict =
        Flux::start_with(cluster, BOTH, |options| options.automation.no_cross_namespace_refs = true).await;
    let both = marked(&flux, "a: '1' @app:tag@\n") + &marked(&strict, "b: '1' @app:tag@\n");
    theirs.fleet.commit("first", &[("a.yaml", &both)]).unwrap();
    for flux in [&flux, &strict] {
        with_image(flux, &registry, "2.0.0").await;
        let source = json!({ "sourceRef": { "namespace": theirs.namespace.name() } });
        flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(source)).await;
    }
    pushed(&flux, "auto").await;
    let object = strict.not_ready(&IMAGE_UPDATE_AUTOMATION, "auto", "AccessDenied").await;
    assert!(ready(&object).2.contains("cross-namespace references have been blocked"), "{object}");
    assert_eq!(condition(&object, "Stalled").0, "True");
    let found = theirs.fleet.read("main", "a.yaml").unwrap();
    assert!(found.contains("a: '2.0.0'") && found.contains("b: '1'"), "{found}");
}

/// Without GitAllBranchReferences the branch begins at the checkout each time; without GitForcePushBranch what somebody
/// else put there stays, and the push is refused.
async fn gates_keep_a_branch_from_being_made_anew(cluster: &Cluster) {
    let registry = Registry::start().unwrap();
    let flux = Flux::start_with(cluster, BOTH, |options| {
        let controller = Controller::ImageAutomation;
        let mut tuning = options.tuning(controller);
        let gates = ["GitForcePushBranch=false", "GitAllBranchReferences=false"].map(str::to_owned);
        tuning.gates = FeatureGates::with(controller, &gates).unwrap();
        options.tuned.insert(controller, tuning);
    })
    .await;
    let text = marked(&flux, "tag: '1' @app:tag@\n");
    flux.fleet.commit("first", &[("a.yaml", &text)]).unwrap();
    flux.fleet.git(&["branch", "auto", "main"], b"").unwrap();
    flux.fleet.commit_to("auto", "somebody else's", &[Change::Write("b.yaml", "b: 1\n")]).unwrap();
    let theirs = flux.fleet.resolve("auto").unwrap();
    with_image(&flux, &registry, "2.0.0").await;
    flux.git_repository("fleet").await;
    let git = json!({ "git": { "push": { "branch": "auto" } } });
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation(git)).await;
    let object = flux.not_ready(&IMAGE_UPDATE_AUTOMATION, "auto", "GitOperationFailed").await;
    assert!(ready(&object).2.starts_with("failed to update source: "), "{}", ready(&object).2);
    assert_eq!(flux.fleet.resolve("auto").unwrap(), theirs);
}
