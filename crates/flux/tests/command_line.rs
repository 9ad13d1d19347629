//! What a person meets who types something else than they meant, or whose cluster is not there: one clear line, and an exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

fn flux() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
    command.env_clear().env("HOME", "/nonexistent").env("TZ", "UTC");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One line behind a cross, exit code 1, nothing on stdout.
fn one_line(output: &Output) -> String {
    let text = said(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("✗ ") && output.stdout.is_empty(), "{text}");
    assert!(!text.contains("panicked") && !text.contains("RUST_BACKTRACE"), "{text}");
    text
}

/// A cluster in this process, its administrator's kubeconfig, and a client.
struct Cluster {
    runtime: tokio::runtime::Runtime,
    server: apiserver::Handle,
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Cluster {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let server = runtime.block_on(async {
            let server = apiserver::Server::builder().start().await.unwrap();
            let listening = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
            listening.write_kubeconfig(&folder.path().join("kubeconfig")).unwrap();
            server
        });
        Cluster { runtime, server, folder }
    }

    fn with_definitions() -> Cluster {
        let cluster = Cluster::start();
        cluster.runtime.block_on(async {
            let client = Client::new(cluster.server.service(), "default");
            let resource = kube::api::ApiResource {
                group: "apiextensions.k8s.io".to_owned(),
                version: "v1".to_owned(),
                api_version: "apiextensions.k8s.io/v1".to_owned(),
                kind: "CustomResourceDefinition".to_owned(),
                plural: "customresourcedefinitions".to_owned(),
            };
            let api: Api<DynamicObject> = Api::all_with(client, &resource);
            for crd in flux_api::crds::all() {
                api.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
            }
            for kind in flux_api::kinds::ALL {
                cluster.served(kind).await;
            }
        });
        cluster
    }

    fn api(&self, kind: &flux_api::kinds::Kind) -> Api<DynamicObject> {
        let resource = kube::api::ApiResource {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            api_version: kind.api_version(),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
        };
        Api::namespaced_with(Client::new(self.server.service(), "default"), "default", &resource)
    }

    /// A definition takes a moment until its kind can be asked for.
    async fn served(&self, kind: &flux_api::kinds::Kind) {
        let limit = std::time::Duration::from_secs(30);
        let served = async {
            while self.api(kind).list(&kube::api::ListParams::default()).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(limit, served).await.unwrap();
    }

    fn flux(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = flux();
        command.env("KUBECONFIG", self.folder.path().join("kubeconfig")).args(words);
        command
    }

    fn apply(&self, kind: &flux_api::kinds::Kind, name: &str, spec: serde_json::Value) {
        let object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name}, "spec": spec});
        let parameters = PatchParams::apply("test").force();
        self.runtime.block_on(async {
            self.api(kind).patch(name, &parameters, &Patch::Apply(object)).await.unwrap()
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

const NOBODY: &str = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
    users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";

#[test]
fn a_cluster_that_is_not_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, NOBODY).unwrap();
    for words in
        [vec!["get", "ks"], vec!["reconcile", "ks", "x"], vec!["export", "ks", "x"], vec!["tree", "ks", "x"]]
    {
        let text = one_line(&flux().args(&words).env("KUBECONFIG", &kubeconfig).output().unwrap());
        assert!(text.contains("connection refused") && text.contains("127.0.0.1:1"), "{text}");
    }
}

#[test]
fn a_wrong_kubeconfig_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere");
    let text = one_line(&flux().args(["get", "ks"]).env("KUBECONFIG", &missing).output().unwrap());
    assert!(text.contains("kubeconfig"), "{text}");
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "clusters: [").unwrap();
    let text = one_line(&flux().args(["get", "ks", "--kubeconfig"]).arg(&broken).output().unwrap());
    assert!(text.contains("kubeconfig"), "{text}");
    let context = folder.path().join("context");
    std::fs::write(&context, NOBODY).unwrap();
    let text = one_line(
        &flux().args(["get", "ks", "--context=other", "--kubeconfig"]).arg(&context).output().unwrap(),
    );
    assert!(text.contains("other"), "{text}");
}

#[test]
fn what_flags_name_must_be_in_the_kubeconfig() {
    let cluster = Cluster::start();
    for (flag, what) in [("--context", "context"), ("--cluster", "cluster"), ("--user", "auth info")] {
        let text = one_line(&cluster.flux(&["get", "ks", flag, "nope"]));
        assert_eq!(text, format!("✗ {what} \"nope\" does not exist\n"));
    }
    let text = one_line(&cluster.flux(&["get", "ks", "--kubeconfig", "/nope"]));
    assert_eq!(text, "✗ stat /nope: no such file or directory\n");
}

/// The words and the order of flux 2.9.4.
#[test]
fn wrong_flags_of_create_are_told_as_upstream_tells_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("list.yaml"), "- a\n").unwrap();
    std::fs::write(folder.path().join("text"), "hello\n").unwrap();
    for (line, problem) in [
        (
            "kustomization app --source=x --path=./x --health-check=a/b/c --label=bad",
            "invalid label format 'bad', must be key=value",
        ),
        (
            "alert app --provider-ref=x --event-source=GitRepository/x --label=/x=1",
            "invalid label '/x': [prefix part must be non-empty]",
        ),
        (
            "helmrelease app --chart=x --source=HelmRepository/x --values=list.yaml",
            "unmarshaling values from list.yaml failed: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            "image policy app --image-ref=x --select-semver=1.x --filter-regex=( --reflect-digest=x",
            "--filter-regex is an invalid regex pattern",
        ),
        (
            "source git app --url=https://x --branch=main --provider=gcp",
            "invalid argument \"gcp\" for \"--provider\" flag: source Git provider 'gcp' is not supported, must be one of: generic|github|aws|azure",
        ),
        (
            "source oci app --url=oci://x --tag=1 --layer-selector=1",
            "invalid --layer-selector \"1\": must be in the format '<media-type>:<operation>'",
        ),
        (
            "secret oci app --url=git@h:x/y --username=u --password=p --label=bad",
            "error parsing url: 'could not parse reference: git@h:x/y'",
        ),
        ("secret tls app --tls-crt-file=text", "found certificate but missing private key"),
        ("secret tls app --tls-key-file=text", "found private key but missing certificate"),
        (
            "secret tls app --tls-crt-file=text --tls-key-file=text",
            "invalid TLS certificate and key pair: tls: failed to find any PEM data in certificate input",
        ),
        ("secret helm app --tls-crt-file=text --label=bad", "invalid label format 'bad', must be key=value"),
        ("secret proxy app --label=bad", "invalid label format 'bad', must be key=value"),
        (
            "tenant app --with-namespace=a --cluster-role=x --with-service-account=/ --label=bad",
            "invalid label format 'bad', must be key=value",
        ),
    ] {
        let mut command = flux();
        command.current_dir(folder.path()).arg("create").args(line.split(' ')).arg("--export");
        assert_eq!(one_line(&command.output().unwrap()), format!("✗ {problem}\n"), "{line}");
    }
    std::fs::write(folder.path().join("values.yaml"), "a: {b: null}\n").unwrap();
    let release = [
        "create",
        "hr",
        "app",
        "--chart=x",
        "--source=HelmRepository/x.y",
        "--values=values.yaml",
        "--export",
    ];
    let output = flux().current_dir(folder.path()).args(release).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with("  values:\n    a:\n      b: null\n"), "a null takes a default away: {text}");
    let text = one_line(&flux().args(["events", "--watch=x"]).output().unwrap());
    assert!(text.contains("for \"-w, --watch\" flag"), "{text}");
}

#[test]
fn missing_definitions_are_told_with_the_kind() {
    let cluster = Cluster::start();
    let text = one_line(&cluster.flux(&["get", "ks"]));
    assert!(text.contains("no matches for kind \"Kustomization\""), "{text}");
    assert_eq!(cluster.flux(&["get", "all"]).status.code(), Some(0));
}

#[test]
fn without_permission_the_server_says_who_may_not_what() {
    let cluster = Cluster::with_definitions();
    let text = one_line(&cluster.flux(&["get", "ks", "--as=nobody"]));
    assert!(text.contains("forbidden") && text.contains("nobody"), "{text}");
    let wrong = cluster.flux(&["get", "ks", "--token=wrong"]);
    assert!(one_line(&wrong).to_lowercase().contains("unauthorized"), "{}", said(&wrong));
}

#[test]
fn a_name_that_is_not_there_is_told_with_the_namespace_or_the_resource() {
    let cluster = Cluster::with_definitions();
    let text = one_line(&cluster.flux(&["get", "ks", "nope"]));
    assert_eq!(text, "✗ Kustomization object 'nope' not found in \"flux-system\" namespace\n");
    let text = one_line(&cluster.flux(&["reconcile", "ks", "nope"]));
    assert!(text.contains("\"nope\" not found"), "{text}");
}

#[test]
fn an_ambiguous_or_unknown_word_is_explained() {
    let cluster = Cluster::with_definitions();
    let text = one_line(&cluster.flux(&["trace", "nonsense", "x"]));
    assert!(text.contains("doesn't have a resource type"), "{text}");
    let output = flux().arg("gett").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("Did you mean this?\n\tget"), "{}", said(&output));
    let text = one_line(&flux().args(["get", "ks", "--nope"]).output().unwrap());
    assert!(text.contains("unknown flag: --nope"), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let cluster = Cluster::with_definitions();
    for number in 0..200 {
        let spec = json!({"interval": "1m", "url": format!("https://example.com/{}", "x".repeat(300))});
        cluster.apply(&flux_api::kinds::GIT_REPOSITORY, &format!("source-{number}"), spec);
    }
    let mut child = cluster
        .command(&["export", "source", "git", "--all", "-n", "default"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "---\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(said(&output), "");
}

#[test]
fn an_interrupt_ends_a_wait_at_once() {
    let cluster = Cluster::with_definitions();
    let spec = json!({"interval": "1m", "url": "https://example.com/x"});
    cluster.apply(&flux_api::kinds::GIT_REPOSITORY, "waiting", spec);
    let mut child = cluster
        .command(&["reconcile", "source", "git", "waiting", "-n", "default"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with('◎') {
        line.clear();
        assert_ne!(talk.read_line(&mut line).unwrap(), 0, "it ended before it waited");
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let status = child.wait().unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut talk, &mut rest).unwrap();
    assert!(!rest.contains("panicked"), "{rest}");
    assert!(!status.success());
    assert_eq!(status.code(), Some(130), "{rest}");
}

/// What scripts and people type: singular, plural and short.
#[test]
fn aliases_mean_the_same_command() {
    for (one, other) in [
        ("get ks", "get kustomizations"),
        ("get kustomization", "get kustomizations"),
        ("get hr", "get helmreleases"),
        ("get source git", "get sources git"),
        ("get image policy", "get images policy"),
        ("get alert", "get alerts"),
        ("reconcile ks x", "reconcile kustomization x"),
        ("suspend hr x", "suspend helmrelease x"),
        ("export ks x", "export kustomization x"),
        ("tree ks x", "tree kustomization x"),
        ("build ks x", "build kustomization x"),
        ("debug hr x", "debug helmrelease x"),
        ("plugin ls", "plugin list"),
    ] {
        let run = |words: &str| {
            let output = Command::new(env!("CARGO_BIN_EXE_flux"))
                .args(words.split(' '))
                .env_clear()
                .env("KUBECONFIG", "/nonexistent/kubeconfig")
                .output()
                .unwrap();
            (output.status.code(), output.stdout, output.stderr)
        };
        assert_eq!(run(one), run(other), "{one}");
    }
}

/// Bash reads its script and completes commands and flags with it; the others hold the same words.
#[test]
fn completion_scripts_complete() {
    let script = |shell: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_flux")).args(["completion", shell]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    // It is longer than an argument may be.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script("bash")).unwrap();
    let completed = |words: &str, last: &str, before: &str| {
        let count = words.split(' ').count() - 1;
        let program = format!(
            ". {}; COMP_WORDS=({words}) COMP_CWORD={count}; _flux flux '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            file.path().display()
        );
        let output = Command::new("bash").args(["-c", &program]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(completed("flux recon", "recon", "flux").contains("reconcile"));
    assert!(completed("flux get kust", "kust", "get").contains("kustomizations"));
    assert!(
        completed("flux reconcile kustomization --with", "--with", "kustomization").contains("--with-source")
    );
    for shell in ["zsh", "fish", "powershell"] {
        let text = script(shell);
        assert!(text.contains("reconcile") && text.contains("with-source"), "{shell}");
    }
}

/// Every tag with its place or the reason it has none; from the registry, with the Secret that the object names, or a file.
#[test]
fn an_image_policy_is_explained_tag_by_tag() {
    use flux_api::kinds::{IMAGE_POLICY, IMAGE_REPOSITORY};
    use testbed::http_server::Security;
    use testbed::registry::{Access, Artifact, Blob, Options, Registry};

    let access = Access::Token { user: "ann".into(), password: "canary".into(), anonymous_pull: false };
    // Pages of three: all of them are read.
    let options = Options { access, page_size: 3 };
    let registry = Registry::start_with(options, Security::Plain).unwrap();
    for tag in ["main-1-aa", "main-10-bb", "main-9-cc", "dev-99-dd", "latest", "main-10-bb.sig"] {
        let config = Blob { media_type: "application/vnd.oci.image.config.v1+json", bytes: tag.as_bytes() };
        registry.put("org/app", tag, &Artifact { config, layers: &[], annotations: &[] }).unwrap();
    }
    let cluster = Cluster::with_definitions();
    let image = format!("{}/org/app", registry.host());
    let auths = json!({ "auths": { registry.host(): { "username": "ann", "password": "canary" } } });
    cluster.runtime.block_on(async {
        let client = Client::new(cluster.server.service(), "default");
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, "default");
        let secret = json!({
            "metadata": { "name": "pull" }, "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": auths.to_string() },
        });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    });
    let repository =
        |secret: &str| json!({ "image": image, "interval": "1h", "secretRef": { "name": secret } });
    cluster.apply(&IMAGE_REPOSITORY, "app", repository("pull"));
    let policy = |choice: serde_json::Value, filter: serde_json::Value| json!({ "imageRepositoryRef": { "name": "app" }, "policy": choice, "filterTags": filter });
    let filter = json!({ "pattern": "^main-(?P<n>[0-9]+)-", "extract": "$n" });
    cluster.apply(&IMAGE_POLICY, "app", policy(json!({ "numerical": {} }), filter.clone()));

    let explain = |words: &[&str]| {
        let words = [&["image", "explain", "policy"], words].concat();
        let output = cluster.flux(&words);
        (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), said(&output))
    };
    let cells = |line: &str| line.split('\t').take(4).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let (code, table, told) = explain(&["app", "-n", "default"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(!told.contains("canary") && !table.contains("canary"));
    let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
    let expected = [
        ["TAG", "ORDERED BY", "PLACE", "WHY"],
        ["main-10-bb", "10", "1", "chosen"],
        ["main-9-cc", "9", "2", "in the order, not the first"],
        ["main-1-aa", "1", "3", "in the order, not the first"],
        ["latest", "-", "-", "does not match filterTags.pattern '^main-(?P<n>[0-9]+)-'"],
        ["dev-99-dd", "-", "-", "does not match filterTags.pattern '^main-(?P<n>[0-9]+)-'"],
        ["main-10-bb.sig", "-", "-", "left out by the ImageRepository's exclusionList"],
    ];
    assert_eq!(rows, expected, "{table}");
    assert!(told.contains(&format!("{image}:main-10-bb is chosen out of 6 tags")), "{told}");

    // What was probably not meant is doubted, and what cannot be chosen fails.
    cluster.apply(&IMAGE_POLICY, "app", policy(json!({ "alphabetical": {} }), filter));
    let (code, table, told) = explain(&["app", "-n", "default"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(table.lines().nth(1).map(cells).unwrap()[0], "main-9-cc");
    assert!(told.contains("use numerical"), "{told}");
    cluster.apply(&IMAGE_POLICY, "none", policy(json!({ "semver": { "range": ">1" } }), json!({})));
    let (code, table, told) = explain(&["none", "-n", "default"]);
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(table.lines().filter(|line| line.contains("is no semantic version")).count(), 5, "{table}");
    assert!(told.contains("no tag is chosen out of 6"), "{told}");

    // A list that is at hand instead of the registry, with what no registry should say.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "2.0.0\n1.0.0\n\u{1b}[31mevil\n3.0.0-rc.1\n").unwrap();
    let (code, table, told) =
        explain(&["none", "-n", "default", "--tags-from", file.path().to_str().unwrap()]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(table.lines().nth(1).map(cells).unwrap(), ["2.0.0", "-", "1", "chosen"]);
    assert!(table.contains("is no tag by the OCI distribution specification"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");

    // What is missing is said in a line.
    let (code, _, told) = explain(&["nobody", "-n", "default"]);
    assert!(code == Some(1) && told.contains("\"nobody\" not found"), "{told}");
    cluster.apply(&IMAGE_REPOSITORY, "app", repository("missing"));
    let (code, _, told) = explain(&["none", "-n", "default"]);
    assert!(code == Some(1) && told.contains("secrets \"missing\" not found"), "{told}");
    let (code, _, told) = explain(&[]);
    assert!(code == Some(1) && told.contains("image policy name is required"), "{told}");
}
