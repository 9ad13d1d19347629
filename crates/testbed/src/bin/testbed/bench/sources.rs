//! `testbed bench-sources`: the same sources under ours and under upstream's source-controller, each on a real control
//! plane and servers of its own, one after the other; then what only ours is held to. Only ratios mean anything.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;
use testbed::control_plane::Options;
use testbed::git_server::{GitServer, Repository};
use testbed::process::{Scratch, Supervised};
use testbed::reference::{self, Controller, Tool};
use testbed::registry::{Artifact, Blob, Registry};

use super::{Cost, cost};

const NAMESPACE: &str = "default";
const LIMIT: Duration = Duration::from_secs(20 * 60);
const GROUP: &str = "source.toolkit.fluxcd.io";

/// CPU of ours against upstream's, at most.
const CPU: f64 = 1.0 / 3.0;
/// The same for peak memory.
const MEMORY: f64 = 1.0 / 2.0;
/// How much cheaper a one-file commit is than the first fetch of a large repository, at least.
const CHEAPER: f64 = 20.0;
/// For one large index, in MiB.
const INDEX_MEMORY: f64 = 64.0;

/// How much of everything there is.
#[derive(Clone, Copy)]
struct Sizes {
    objects: usize,
    /// Of the large repository.
    files: usize,
    bytes: usize,
    index_bytes: usize,
}

impl Sizes {
    const BUDGET: Self = Self { objects: 300, files: 100_000, bytes: 500 << 20, index_bytes: 140 << 20 };
    /// For trying the bench itself: what the processes cost by themselves hides the rest.
    const SMALL: Self = Self { objects: 10, files: 2_000, bytes: 10 << 20, index_bytes: 14 << 20 };
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let [ours, crds, rest @ ..] = arguments else {
        bail!(
            "usage: testbed bench-sources FLUX CRDS [--small] [--without-upstream] [git|oci|charts|large|index …]"
        );
    };
    let sizes = if rest.contains(&"--small") { Sizes::SMALL } else { Sizes::BUDGET };
    let only: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with("--")).collect();
    let alone = rest.contains(&"--without-upstream");
    let wanted = |name: &str| only.is_empty() || only.contains(&name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut report = Report::default();
    let (ours, crds) = (Implementation::Ours(PathBuf::from(ours)), Path::new(crds));
    for fleet in [Fleet::Git, Fleet::Oci, Fleet::Charts] {
        if wanted(fleet.name()) {
            let our_steps = runtime.block_on(fleet_steps(&ours, crds, fleet, sizes))?;
            if alone {
                our_steps.iter().for_each(|step| report.step(fleet.name(), "ours", step));
                continue;
            }
            let their_steps = runtime.block_on(fleet_steps(&Implementation::Upstream, crds, fleet, sizes))?;
            report.compare(fleet, &our_steps, &their_steps);
        }
    }
    if wanted("large") {
        report.large(&runtime.block_on(large_repository(&ours, crds, sizes))?);
    }
    if wanted("index") {
        let our_step = runtime.block_on(large_index(&ours, crds, sizes))?;
        report.index(&our_step);
        if !alone {
            let theirs = runtime.block_on(large_index(&Implementation::Upstream, crds, sizes))?;
            report.step("index", "upstream", &theirs);
        }
    }
    println!("{}", json!({"bench": "sources", "objects": sizes.objects, "steps": report.rows}));
    if !report.missed.is_empty() && rest.contains(&"--small") {
        println!("not within the budget, which is for the real sizes: {}", report.missed.join("; "));
    } else if !report.missed.is_empty() {
        bail!("not within the budget: {}", report.missed.join("; "));
    }
    Ok(())
}

#[derive(Default)]
struct Report {
    rows: Vec<Value>,
    missed: Vec<String>,
}

impl Report {
    fn step(&mut self, what: &str, implementation: &str, step: &Step) {
        println!(
            "{what:<8} {:<10} {implementation:<10} wall {:>7.1} s, CPU {:>7.2} s, peak {:>7.1} MiB",
            step.name,
            step.wall.as_secs_f64(),
            step.cpu,
            step.peak
        );
        self.rows.push(json!({
            "what": what, "step": step.name, "implementation": implementation,
            "wall_seconds": step.wall.as_secs_f64(), "cpu_seconds": step.cpu, "peak_mebibytes": step.peak,
        }));
    }

    fn compare(&mut self, fleet: Fleet, ours: &[Step], theirs: &[Step]) {
        for (our, their) in ours.iter().zip(theirs) {
            self.step(fleet.name(), "ours", our);
            self.step(fleet.name(), "upstream", their);
            let (cpu, memory) = (our.cpu / their.cpu, our.peak / their.peak);
            println!("{:<8} {:<10} ratio      CPU {cpu:.3}, peak {memory:.3}", fleet.name(), our.name);
            for (what, ratio, bound) in [("CPU", cpu, CPU), ("peak", memory, MEMORY)] {
                if ratio > bound {
                    self.missed.push(format!(
                        "{} {}: {what} {ratio:.2} of upstream's",
                        fleet.name(),
                        our.name
                    ));
                }
            }
        }
    }

    fn large(&mut self, steps: &[Step]) {
        for step in steps {
            self.step("large", "ours", step);
        }
        if let [first, commit] = steps {
            let (cpu, wall) = (first.cpu / commit.cpu, first.wall.as_secs_f64() / commit.wall.as_secs_f64());
            println!("large    a commit is cheaper: CPU {cpu:.1} times, wall {wall:.1} times");
            if cpu < CHEAPER {
                self.missed
                    .push(format!("large: a commit is only {cpu:.1} times cheaper than the first fetch"));
            }
        }
    }

    fn index(&mut self, ours: &Step) {
        self.step("index", "ours", ours);
        if ours.peak > INDEX_MEMORY {
            self.missed.push(format!("index: {:.1} MiB", ours.peak));
        }
    }
}

/// What one step cost the controller.
struct Step {
    name: &'static str,
    wall: Duration,
    cpu: f64,
    peak: f64,
}

enum Implementation {
    Ours(PathBuf),
    Upstream,
}

impl Implementation {
    /// Starts source-controller alone, with its own defaults but for the size of an index.
    fn start(&self, cluster: &Cluster, folder: &Path) -> Result<Supervised> {
        let port = || -> Result<u16> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
        let storage = format!("127.0.0.1:{}", port()?);
        let flags = [
            format!("--storage-path={}", folder.display()),
            format!("--storage-addr={storage}"),
            format!("--storage-adv-addr={storage}"),
            format!("--metrics-addr=127.0.0.1:{}", port()?),
            format!("--health-addr=127.0.0.1:{}", port()?),
            format!("--helm-index-max-size={}", 1 << 30),
        ];
        // Upstream's knows no flag for the kubeconfig; ours reads the same variable.
        let mut arguments = vec![format!("KUBECONFIG={}", cluster.kubeconfig_path().display())];
        match self {
            Implementation::Ours(flux) => {
                arguments.extend([flux.display().to_string(), "serve".to_owned()]);
                arguments.push("source-controller".to_owned());
            }
            Implementation::Upstream => {
                let binary = reference::binary(Tool::Controller(Controller::Source), "source-controller")?;
                arguments.push(binary.display().to_string());
            }
        }
        arguments.extend(flags);
        Supervised::start(Path::new("/usr/bin/env"), arguments, &folder.join("controller.log"))
    }
}

/// A cluster with one controller on it, and what the controller has cost so far.
struct Bench {
    cluster: Cluster,
    // Removed when the controller is gone.
    _controller: Supervised,
    _scratch: Scratch,
}

impl Bench {
    /// `objects` are there before the controller is.
    async fn start(implementation: &Implementation, crds: &Path, objects: &str) -> Result<Self> {
        let cluster = Cluster::start(Options::default()).await?;
        for entry in std::fs::read_dir(crds)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                cluster.apply_crds(&std::fs::read_to_string(path)?).await?;
            }
        }
        cluster.apply_yaml(NAMESPACE, objects).await?;
        let scratch = Scratch::new()?;
        let controller = implementation.start(&cluster, scratch.path())?;
        Ok(Self { cluster, _controller: controller, _scratch: scratch })
    }

    fn cost(&self) -> Result<Cost> {
        let kubeconfig = self.cluster.kubeconfig_path().display().to_string();
        cost(|command| {
            command.contains(&kubeconfig)
                && !command.contains("kube-controller-manager")
                && !command.contains("supervisor")
        })
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{GROUP}/v1"),
            kind: kind.to_owned(),
            plural: kind.to_lowercase().replace("repository", "repositorie") + "s",
        };
        Api::namespaced_with(self.cluster.client(), NAMESPACE, &resource)
    }

    /// Until `count` objects of the kind are done; from `begun`, or from the controller's start.
    async fn step(
        &self,
        name: &'static str,
        begun: Option<(Instant, Cost)>,
        (kind, count): (&str, usize),
        done: impl Fn(&Value) -> bool,
    ) -> Result<Step> {
        let (started, before) = begun.unwrap_or((Instant::now(), Cost::default()));
        let all = |objects: &[&DynamicObject]| {
            let values = objects.iter().filter_map(|object| serde_json::to_value(object).ok());
            values.filter(|object| is_ready(object) && done(object)).count() >= count
        };
        testbed::wait::until_all(&self.api(kind), LIMIT, "are done", all).await?;
        let after = self.cost()?;
        Ok(Step { name, wall: started.elapsed(), cpu: after.cpu - before.cpu, peak: after.peak })
    }

    /// Asks for all of them, as a person does.
    async fn request(&self, kind: &str, names: &[String], token: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}});
        let (api, patch) = (self.api(kind), Patch::Merge(&patch));
        let parameters = PatchParams { field_manager: Some("testbed".to_owned()), ..PatchParams::default() };
        let requests = names.iter().map(|name| api.patch(name, &parameters, &patch));
        futures::stream::iter(requests).buffer_unordered(8).try_for_each(|_| async { Ok(()) }).await?;
        Ok(())
    }

    fn begin(&self) -> Result<Option<(Instant, Cost)>> {
        Ok(Some((Instant::now(), self.cost()?)))
    }
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
    observed
        && conditions
            .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Many sources on one server.
#[derive(Clone, Copy)]
enum Fleet {
    Git,
    Oci,
    Charts,
}

impl Fleet {
    fn name(self) -> &'static str {
        match self {
            Fleet::Git => "git",
            Fleet::Oci => "oci",
            Fleet::Charts => "charts",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Fleet::Git => "GitRepository",
            Fleet::Oci => "OCIRepository",
            Fleet::Charts => "HelmChart",
        }
    }
}

/// The server of a fleet and what is on it.
enum Server {
    /// One repository to commit to; all others are copies of its folder, since hundreds of Git processes take minutes.
    Git(Box<GitServer>, Repository),
    Oci(Registry),
    Charts(ChartRepository),
}

impl Server {
    fn start(fleet: Fleet, count: usize) -> Result<Self> {
        let server = match fleet {
            Fleet::Git => {
                let server = GitServer::start()?;
                let template = server.create("template")?;
                Server::Git(Box::new(server), template)
            }
            Fleet::Oci => Server::Oci(Registry::start()?),
            Fleet::Charts => Server::Charts(ChartRepository::start()?),
        };
        server.publish(count, "1.0.0")?;
        Ok(server)
    }

    /// One new commit, image or chart for each source.
    fn publish(&self, count: usize, version: &str) -> Result<()> {
        let files: Vec<(String, String)> =
            (0..20).map(|file| (format!("app-{file}/config.yaml"), manifest(file, version))).collect();
        match self {
            Server::Git(server, template) => {
                let mut files: Vec<(&str, &str)> =
                    files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
                if version != "1.0.0" {
                    files.truncate(1);
                }
                template.commit(version, &files)?;
                (0..count).try_for_each(|number| {
                    copy(template.folder(), &server.root().join(format!("{}.git", name(number))))
                })
            }
            Server::Oci(registry) => {
                for number in 0..count {
                    let layer = tarball(&files, number)?;
                    registry.put(&name(number), "latest", &artifact(&[blob(&layer)]))?;
                }
                Ok(())
            }
            Server::Charts(charts) => {
                // An index is mostly history.
                let history: &[&str] =
                    if version == "1.0.0" { &["0.1.0", "0.2.0", "0.3.0", version] } else { &[version] };
                for number in 0..count {
                    for version in history {
                        let mut chart = Chart::new(&name(number), version);
                        for (path, text) in &files {
                            chart = chart.file(&format!("templates/{}", path.replace('/', "-")), text);
                        }
                        charts.add(&chart)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn objects(&self, count: usize) -> String {
        let mut text = String::new();
        if let Server::Charts(charts) = self {
            text += &object("HelmRepository", "charts", &json!({"url": charts.url(), "interval": "1h"}));
        }
        for number in 0..count {
            let name = name(number);
            text += &match self {
                Server::Git(server, _) => object(
                    "GitRepository",
                    &name,
                    &json!({
                        "url": server.http_url(&name), "interval": "1h", "ref": {"branch": "main"},
                    }),
                ),
                Server::Oci(registry) => object(
                    "OCIRepository",
                    &name,
                    &json!({
                        "url": format!("oci://{}/{name}", registry.host()), "interval": "1h", "insecure": true,
                        "ref": {"tag": "latest"},
                    }),
                ),
                Server::Charts(_) => object(
                    "HelmChart",
                    &name,
                    &json!({
                        "chart": name, "version": ">=0.1.0", "interval": "1h",
                        "sourceRef": {"kind": "HelmRepository", "name": "charts"},
                    }),
                ),
            };
        }
        text
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if !target.exists() || entry.file_name().to_string_lossy() == "main" {
            // Git's objects never change; its only branch does.
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("app-{number}")
}

fn object(kind: &str, name: &str, spec: &Value) -> String {
    let object =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "spec": spec});
    format!("---\n{object}\n")
}

fn manifest(number: usize, version: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config-{number}\ndata:\n  version: '{version}'\n  text: |\n{}",
        "    some text that somebody wrote once\n".repeat(40)
    )
}

fn tarball(files: &[(String, String)], number: usize) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, text) in files {
        let text = format!("{text}# of {number}\n");
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, path, text.as_bytes())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn blob(bytes: &[u8]) -> Blob<'_> {
    Blob { media_type: "application/vnd.cncf.flux.content.v1.tar+gzip", bytes }
}

fn artifact<'a>(layers: &'a [Blob<'a>]) -> Artifact<'a> {
    let config = Blob { media_type: "application/vnd.cncf.flux.config.v1+json", bytes: b"{}" };
    Artifact { config, layers, annotations: &[("org.opencontainers.image.revision", "main@sha1:0")] }
}

async fn fleet_steps(
    implementation: &Implementation,
    crds: &Path,
    fleet: Fleet,
    sizes: Sizes,
) -> Result<Vec<Step>> {
    let (kind, count) = (fleet.kind(), sizes.objects);
    let server = Server::start(fleet, count)?;
    let bench = Bench::start(implementation, crds, &server.objects(count)).await?;
    let has_artifact = |object: &Value| object["status"]["artifact"]["digest"].is_string();
    let first = bench.step("first", None, (kind, count), has_artifact).await?;

    let names: Vec<String> = (0..count).map(name).collect();
    let begun = bench.begin()?;
    bench.request(kind, &names, "poll").await?;
    let handled = |object: &Value| object["status"]["lastHandledReconcileAt"] == "poll";
    let poll = bench.step("no-op", begun, (kind, count), handled).await?;

    let before: Vec<String> = bench.digests(kind).await?;
    server.publish(count, "1.1.0")?;
    let begun = bench.begin()?;
    match fleet {
        Fleet::Git | Fleet::Oci => bench.request(kind, &names, "new").await?,
        // Its charts follow by themselves.
        Fleet::Charts => bench.request("HelmRepository", &["charts".to_owned()], "new").await?,
    }
    let is_new = |object: &Value| {
        let digest = object["status"]["artifact"]["digest"].as_str().unwrap_or_default();
        before.binary_search_by(|known| known.as_str().cmp(digest)).is_err()
    };
    let new = bench.step("new", begun, (kind, count), is_new).await?;
    Ok(vec![first, poll, new])
}

impl Bench {
    /// The digests of all artifacts, sorted.
    async fn digests(&self, kind: &str) -> Result<Vec<String>> {
        let objects = self.api(kind).list(&Default::default()).await?;
        let digest =
            |object: &DynamicObject| object.data["status"]["artifact"]["digest"].as_str().map(str::to_owned);
        let mut digests: Vec<String> = objects.iter().filter_map(digest).collect();
        digests.sort();
        Ok(digests)
    }
}

async fn large_repository(implementation: &Implementation, crds: &Path, sizes: Sizes) -> Result<Vec<Step>> {
    let server = GitServer::start()?;
    let repository = server.create("large")?;
    fill(&repository, sizes)?;
    let spec = json!({
        "url": server.http_url("large"), "interval": "1h", "ref": {"branch": "main"}, "timeout": "10m",
    });
    let bench = Bench::start(implementation, crds, &object("GitRepository", "large", &spec)).await?;
    let at = |commit: String| {
        move |object: &Value| object["status"]["artifact"]["revision"] == format!("main@sha1:{commit}")
    };
    let kind = ("GitRepository", 1);
    let first = bench.step("first", None, kind, at(repository.resolve("refs/heads/main")?)).await?;
    let commit = repository.commit("one file", &[("folder-3/file-3.txt", "changed\n")])?;
    let begun = bench.begin()?;
    bench.request("GitRepository", &["large".to_owned()], "new").await?;
    let second = bench.step("commit", begun, kind, at(commit)).await?;
    Ok(vec![first, second])
}

/// Folders of fifty files whose text compresses to about a fifth, as manifests do.
fn fill(repository: &Repository, sizes: Sizes) -> Result<()> {
    let mut stream = Vec::with_capacity(sizes.bytes + sizes.files * 80);
    stream.extend_from_slice(
        b"commit refs/heads/main\ncommitter testbed <testbed@example.com> 1700000000 +0000\n",
    );
    stream.extend_from_slice(b"data 5\nfirst\n");
    let (size, mut state) = (sizes.bytes / sizes.files, 0x2545_f491_4f6c_dd1d_u64);
    let mut text = Vec::with_capacity(size + 100);
    for file in 0..sizes.files {
        text.clear();
        while text.len() < size {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            writeln!(text, "  setting-{state:016x}: some words that somebody wrote for everybody else")?;
        }
        write!(stream, "M 100644 inline folder-{}/file-{file}.txt\ndata {}\n", file / 50, text.len())?;
        stream.extend_from_slice(&text);
        stream.push(b'\n');
    }
    repository.git(&["fast-import", "--quiet", "--force"], &stream).context("fill the large repository")?;
    Ok(())
}

async fn large_index(implementation: &Implementation, crds: &Path, sizes: Sizes) -> Result<Step> {
    let charts = ChartRepository::start()?;
    charts.set_index(index(sizes.index_bytes));
    let spec = json!({"url": charts.url(), "interval": "1h", "timeout": "10m"});
    let bench = Bench::start(implementation, crds, &object("HelmRepository", "charts", &spec)).await?;
    let has_artifact = |object: &Value| object["status"]["artifact"]["digest"].is_string();
    bench.step("first", None, ("HelmRepository", 1), has_artifact).await
}

/// An index as `helm repo index` writes it, of about this size.
fn index(bytes: usize) -> Vec<u8> {
    let mut text = String::with_capacity(bytes + 4096);
    text.push_str("apiVersion: v1\nentries:\n");
    let mut chart = 0;
    while text.len() < bytes {
        text.push_str(&format!("  chart-{chart}:\n"));
        for version in 0..200 {
            text.push_str(&format!(
                "  - annotations:\n      category: Infrastructure\n      images: |\n        - name: app\n          image: example.org/app:{version}\n    \
                 apiVersion: v2\n    appVersion: 1.{version}.0\n    created: \"2026-01-01T00:00:00Z\"\n    \
                 description: A chart for something that many people want to run, number {chart}.\n    \
                 digest: {:064x}\n    home: https://example.org/chart-{chart}\n    keywords:\n    - something\n    - other\n    \
                 maintainers:\n    - email: someone@example.org\n      name: Someone\n    name: chart-{chart}\n    \
                 sources:\n    - https://example.org/src/chart-{chart}\n    urls:\n    - chart-{chart}-1.{version}.0.tgz\n    version: 1.{version}.0\n",
                chart * 1000 + version
            ));
        }
        chart += 1;
    }
    text.push_str("generated: \"2026-01-01T00:00:00Z\"\n");
    text.into_bytes()
}
