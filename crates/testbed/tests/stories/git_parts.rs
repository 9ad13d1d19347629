//! GitRepository: artifacts put together from several repositories, by include and by submodule.

use flux_api::kinds::{Controller, GIT_REPOSITORY};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::{Accounts, GitServer, Security};

use crate::flux::{Flux, condition, ready};
use crate::git_repository::download;

crate::stories!(
    an_include_is_waited_for_copied_and_followed,
    an_include_that_cannot_be_copied_is_named,
    submodules_are_fetched_with_their_parents_credentials,
);

fn names(files: &[(String, Vec<u8>)]) -> Vec<&str> {
    files.iter().map(|(path, _)| path.as_str()).collect()
}

fn including(flux: &Flux, include: Value) -> Value {
    json!({
        "url": flux.server.http_url("fleet"), "interval": "1h", "ref": { "branch": "main" }, "include": include,
    })
}

async fn an_include_is_waited_for_copied_and_followed(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("own.yaml", "own\n")]).unwrap();
    let library = flux.server.create("library").unwrap();
    library
        .commit("one", &[("base/a.yaml", "1\n"), ("base/deep/b.yaml", "b\n"), ("other.yaml", "o\n")])
        .unwrap();
    let include = json!([
        { "repository": { "name": "library" }, "fromPath": "base", "toPath": "vendor/base" },
        { "repository": { "name": "library" } },
    ]);
    flux.apply(&GIT_REPOSITORY, "fleet", including(&flux, include.clone())).await;
    let waiting = flux.not_ready(&GIT_REPOSITORY, "fleet", "NotFound").await;
    assert_eq!(condition(&waiting, "IncludeUnavailable").0, "True");
    assert!(
        ready(&waiting).2.starts_with("could not get resource for include 'library': "),
        "{}",
        ready(&waiting).2
    );

    let spec =
        json!({ "url": flux.server.http_url("library"), "interval": "1h", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "library", spec).await;
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    let files = download(&object).await;
    assert_eq!(
        names(&files),
        [
            "library/base/a.yaml",
            "library/base/deep/b.yaml",
            "library/other.yaml",
            "own.yaml",
            "vendor/base/a.yaml",
            "vendor/base/deep/b.yaml"
        ]
    );
    assert_eq!(object["status"]["observedInclude"], include);
    assert_eq!(object["status"]["includedArtifacts"].as_array().map(Vec::len), Some(2));
    assert_eq!(condition(&object, "IncludeUnavailable"), ("", "", ""));

    // What is included is held to the rules of whoever includes it.
    let mut ignoring = including(&flux, json!([{ "repository": { "name": "library" } }]));
    ignoring["ignore"] = json!("/library/base\n");
    flux.apply(&GIT_REPOSITORY, "ignoring", ignoring).await;
    let ignored = flux.ready(&GIT_REPOSITORY, "ignoring").await;
    assert_eq!(names(&download(&ignored).await), ["library/other.yaml", "own.yaml"]);

    // A new artifact there means a new one here, though this repository did not change.
    library.commit("two", &[("base/a.yaml", "2\n")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "library").await;
    let before = object["status"]["artifact"]["digest"].clone();
    let object = flux
        .until(&GIT_REPOSITORY, "fleet", "has the new include", |object| {
            object["status"]["artifact"]["digest"] != before && ready(object).0 == "True"
        })
        .await;
    let files = download(&object).await;
    assert!(files.iter().any(|(path, bytes)| path == "vendor/base/a.yaml" && bytes == b"2\n"));
}

async fn an_include_that_cannot_be_copied_is_named(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    flux.fleet.commit("first", &[("apps/own.yaml", "own\n")]).unwrap();
    flux.git_repository("library").await;
    flux.ready(&GIT_REPOSITORY, "library").await;
    let cases = [
        (
            "absent",
            json!({ "fromPath": "nowhere", "toPath": "x" }),
            "CopyFailure",
            "no such file or directory",
        ),
        ("taken", json!({ "toPath": "apps" }), "CopyFailure", "file exists"),
        (
            "climbs",
            json!({ "toPath": "../../etc" }),
            "IllegalPath",
            "path calculation for include 'library' failed",
        ),
        ("climbs-in", json!({ "fromPath": "../..", "toPath": "x" }), "IllegalPath", "failed"),
    ];
    for (name, include, _, _) in &cases {
        let mut include = include.clone();
        include["repository"] = json!({ "name": "library" });
        flux.apply(&GIT_REPOSITORY, name, including(&flux, json!([include]))).await;
    }
    for (name, _, reason, text) in &cases {
        let object = flux.not_ready(&GIT_REPOSITORY, name, reason).await;
        assert!(ready(&object).2.contains(text), "{name}: {}", ready(&object).2);
        assert_eq!(condition(&object, "StorageOperationFailed").1, *reason, "{name}");
    }
    // What the disk could not do then is not what is wrong now.
    let nowhere = json!({
        "url": flux.server.http_url("nowhere"), "interval": "1h", "ref": { "branch": "main" },
        "include": [{ "repository": { "name": "library" }, "toPath": "apps" }],
    });
    flux.apply(&GIT_REPOSITORY, "taken", nowhere).await;
    let object = flux.not_ready(&GIT_REPOSITORY, "taken", "GitOperationFailed").await;
    assert_eq!(condition(&object, "StorageOperationFailed"), ("", "", ""));
}

async fn submodules_are_fetched_with_their_parents_credentials(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let accounts = Accounts { tokens: vec!["t0ken".to_owned()], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    // On another host, open to all: no credentials may arrive there.
    let elsewhere = GitServer::start().unwrap();
    let (fleet, library, nested) = (
        server.create("fleet").unwrap(),
        server.create("library").unwrap(),
        elsewhere.create("nested").unwrap(),
    );
    let deepest = nested.commit("n", &[("n.yaml", "n\n")]).unwrap();
    add_submodules(&library, &[("inner", &elsewhere.http_url("nested"), &deepest)], "l.yaml");
    let library_head = library.resolve("main").unwrap();
    add_submodules(&fleet, &[("vendor/library", "../library.git", &library_head)], "own.yaml");
    flux.secret("login", &[("bearerToken", "t0ken")]).await;
    let spec = |recurse: bool| {
        json!({
            "url": server.http_url("fleet"), "interval": "1h", "ref": { "branch": "main" },
            "secretRef": { "name": "login" }, "recurseSubmodules": recurse,
        })
    };
    flux.apply(&GIT_REPOSITORY, "fleet", spec(false)).await;
    let object = flux.ready(&GIT_REPOSITORY, "fleet").await;
    assert_eq!(names(&download(&object).await), ["own.yaml"]);
    flux.apply(&GIT_REPOSITORY, "fleet", spec(true)).await;
    let object = flux
        .until(&GIT_REPOSITORY, "fleet", "has its submodules", |object| {
            object["status"]["observedRecurseSubmodules"] == true && ready(object).0 == "True"
        })
        .await;
    let files = download(&object).await;
    assert_eq!(names(&files), ["own.yaml", "vendor/library/inner/n.yaml", "vendor/library/l.yaml"]);
}

/// A commit with a `.gitmodules`, the links it speaks of, and one more file.
fn add_submodules(repository: &testbed::git_server::Repository, modules: &[(&str, &str, &str)], file: &str) {
    let mut stream =
        String::from("commit refs/heads/main\ncommitter testbed <testbed@example.com> now\ndata 1\nx\n");
    let mut config = String::new();
    for (path, url, commit) in modules {
        config.push_str(&format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = {url}\n"));
        stream.push_str(&format!("M 160000 {commit} {path}\n"));
    }
    stream.push_str(&format!("M 100644 inline .gitmodules\ndata {}\n{config}\n", config.len()));
    stream.push_str(&format!("M 100644 inline {file}\ndata 2\nx\n\n\ndone\n"));
    repository.git(&["fast-import", "--quiet", "--force", "--date-format=now"], stream.as_bytes()).unwrap();
}
