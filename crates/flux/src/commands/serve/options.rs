//! Flags into options. What applies to a controller: `--<controller>-<flag>`, else `--<flag>`, else the environment
//! where upstream reads it, else that controller's default.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use flux_api::duration::GoDuration;
use flux_api::kinds::Controller;
use flux_controllers::manager::{AVAILABLE, ManagerOptions, Tuning};
use flux_controllers::reconcile::election::ElectionOptions;
use flux_controllers::reconcile::throttle::Limits;
use flux_controllers::reconcile::{FeatureGates, Selector, gates};
use flux_controllers::{helm, image, kustomize, notification, source, watcher};

use super::address;
use super::oom_watch::{self, OomWatch};
use crate::error::{CliError, fail};
use crate::tree::{Invocation, serve};

/// Flags of controllers that run, which nothing here reads yet: given, they are reported.
const WITHOUT_EFFECT: &[&str] = &["storage-value-log-file-size"];

/// The flags of one process, as one controller sees them.
#[derive(Clone, Copy)]
pub(super) struct Flags<'a> {
    run: &'a Invocation,
    controller: Controller,
}

impl<'a> Flags<'a> {
    pub(super) fn new(run: &'a Invocation, controller: Controller) -> Self {
        Self { run, controller }
    }

    /// The name under which the flag was given, if it was.
    fn given(&self, flag: &str) -> Option<String> {
        let own = format!("{}-{flag}", serve::short(self.controller));
        if self.run.given(&own) {
            return Some(own);
        }
        let means_another = self.run.row.path == "serve" && serve::is_ambiguous(self.controller, flag);
        (self.run.given(flag) && !means_another).then(|| flag.to_owned())
    }

    pub(super) fn text(&self, flag: &str) -> String {
        if let Some(name) = self.given(flag) {
            return self.run.text(&name).to_owned();
        }
        if let Some(value) = environment(self.controller, flag) {
            return value;
        }
        let own = format!("{}-{flag}", serve::short(self.controller));
        let of_row = self.run.text(&own);
        if !of_row.is_empty() {
            return of_row.to_owned();
        }
        let known = serve::flags(self.controller).into_iter().find(|known| known.name == flag);
        known.map(|known| known.default.to_owned()).unwrap_or_default()
    }

    pub(super) fn some(&self, flag: &str) -> Option<String> {
        Some(self.text(flag)).filter(|text| !text.is_empty())
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.text(flag) == "true"
    }

    pub(super) fn list(&self, flag: &str) -> Vec<String> {
        self.given(flag).map(|name| self.run.list(&name)).unwrap_or_default()
    }

    pub(super) fn duration(&self, flag: &str) -> Result<Duration, CliError> {
        let text = self.text(flag);
        let duration: GoDuration = text.parse().map_err(|error| fail!("--{flag} '{text}': {error}"))?;
        Ok(duration.to_std())
    }

    pub(super) fn number<N: std::str::FromStr>(&self, flag: &str) -> Result<N, CliError> {
        let text = self.text(flag);
        text.parse().map_err(|_| fail!("--{flag} '{text}' is out of range"))
    }
}

/// What upstream takes from the environment where a flag is not given.
fn environment(controller: Controller, flag: &str) -> Option<String> {
    let stores = matches!(controller, Controller::Source | Controller::SourceWatcher);
    let variable = match flag {
        "storage-path" if stores => "STORAGE_PATH",
        "storage-addr" if stores => "STORAGE_ADDRESS",
        "storage-adv-addr" if stores => "STORAGE_ADV_ADDR",
        "events-addr" if controller == Controller::Source => "EVENTS_ADDR",
        _ => return None,
    };
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// The controllers that a command line asks for.
pub(super) fn controllers(run: &Invocation) -> Result<BTreeSet<Controller>, CliError> {
    let asked = match run.row.path.strip_prefix("serve ") {
        Some(name) => vec![name.to_owned()],
        None => run.list("controllers"),
    };
    let mut controllers = BTreeSet::new();
    for name in asked {
        let found = AVAILABLE
            .iter()
            .find(|controller| controller.as_str() == name || serve::short(**controller) == name);
        let Some(controller) = found else {
            let known: Vec<_> = AVAILABLE.iter().map(|controller| serve::short(*controller)).collect();
            return Err(fail!("controller '{name}' is not available; choose from {}", known.join(", ")));
        };
        controllers.insert(*controller);
    }
    if controllers.is_empty() {
        return Err(fail!("--controllers names none"));
    }
    Ok(controllers)
}

pub(super) fn options(run: &Invocation) -> Result<ManagerOptions, CliError> {
    let controllers = controllers(run)?;
    report_without_effect(run);
    let keeper = keeper(&controllers);
    let flags = Flags::new(run, keeper);
    let storage_addr = flags.text("storage-addr");
    let storage_addr = if storage_addr.is_empty() { ":0".to_owned() } else { storage_addr };
    let listen: SocketAddr = address::listen("storage-addr", &storage_addr)?;
    let metrics_addr = process_listener(run, keeper, "metrics-addr")?;
    let health_addr = process_listener(run, keeper, "health-addr")?;
    let mut listeners =
        vec![("storage-addr", Some(listen)), ("metrics-addr", metrics_addr), ("health-addr", health_addr)];
    if controllers.contains(&Controller::Notification) {
        let of = notification(&Flags::new(run, Controller::Notification))?;
        listeners.extend([("events-addr", Some(of.events_addr)), ("receiverAddr", Some(of.receiver_addr))]);
    }
    address::check_collisions(&listeners)?;
    let mut options = ManagerOptions::new(controllers.clone(), storage_path(&flags)?, listen);
    (options.metrics_addr, options.health_addr) = (metrics_addr, health_addr);
    options.election = election(run)?;
    options.kube_api = Limits { qps: real(run, "kube-api-qps")?, burst: real(run, "kube-api-burst")? };
    options.resource_info = run.is("metrics-resource-info");
    let hostname = std::env::var("HOSTNAME").ok();
    let derived = || address::advertised(&storage_addr, listen.port(), hostname.as_deref());
    options.storage_adv_addr = flags.some("storage-adv-addr").or_else(derived);
    if let Some(ttl) = flags.some("artifact-retention-ttl") {
        options.artifact_retention_ttl = duration("artifact-retention-ttl", &ttl)?;
        options.artifact_retention_records = flags.number("artifact-retention-records")?;
        let algorithm = flags.text("artifact-digest-algo");
        options.artifact_digest_algo =
            algorithm.parse().map_err(|error| fail!("--artifact-digest-algo: {error}"))?;
    }
    if !run.is("watch-all-namespaces") {
        let namespace = std::env::var("RUNTIME_NAMESPACE");
        options.namespace =
            Some(namespace.map_err(|_| fail!("RUNTIME_NAMESPACE must be set to watch one namespace"))?);
    }
    check_shared_gates(run, &controllers)?;
    for controller in &controllers {
        options.tuned.insert(*controller, tuning(&Flags::new(run, *controller))?);
    }
    for controller in controllers {
        let flags = Flags::new(run, controller);
        match controller {
            Controller::Source => options.source = source(&flags)?,
            Controller::Kustomize => options.kustomize = kustomize(&flags)?,
            Controller::Helm => {
                options.helm = helm(&flags)?;
                options.stop_within = flags.duration("graceful-shutdown-timeout")?;
            }
            Controller::Notification => options.notification = notification(&flags)?,
            Controller::ImageAutomation => {
                options.automation = image::automation::AutomationOptions {
                    no_cross_namespace_refs: flags.is("no-cross-namespace-refs"),
                    ssh_kex_algos: flags.list("ssh-kex-algos"),
                    ssh_hostkey_algos: flags.list("ssh-hostkey-algos"),
                    default_service_account: flags.some("default-service-account"),
                    token_cache_max_size: flags.number("token-cache-max-size")?,
                    token_cache_max_duration: flags.duration("token-cache-max-duration")?,
                    upstream_only: flags.text("compat") == "upstream",
                };
            }
            Controller::ImageReflector => options.reflector = reflector(&flags)?,
            Controller::SourceWatcher => {
                options.watcher = watcher::Options {
                    no_cross_namespace_refs: flags.is("no-cross-namespace-refs"),
                    requeue_dependency: flags.duration("requeue-dependency")?,
                    reconciliation_timeout: flags.duration("reconciliation-timeout")?,
                };
            }
        }
    }
    Ok(options)
}

/// helm-controller's watch of memory, where its gate is on.
pub(super) fn oom_watch(
    run: &Invocation,
    controllers: &BTreeSet<Controller>,
) -> Result<Option<OomWatch>, CliError> {
    let flags = Flags::new(run, Controller::Helm);
    if !controllers.contains(&Controller::Helm) {
        return Ok(None);
    }
    let gates = FeatureGates::with(Controller::Helm, &flags.list("feature-gates"));
    if !gates.map_err(|error| fail!("{error}"))?.is("OOMWatch") {
        return Ok(None);
    }
    let watch = OomWatch::new(&oom_watch::Flags {
        max_path: flags.text("oom-watch-max-memory-path"),
        current_path: flags.text("oom-watch-current-memory-path"),
        threshold_percent: flags.number("oom-watch-memory-threshold")?,
        interval: flags.duration("oom-watch-interval")?,
    })?;
    Ok(Some(watch))
}

/// Whose storage flags count: those of the controller that serves artifacts.
fn keeper(controllers: &BTreeSet<Controller>) -> Controller {
    let stores =
        |controller: &&Controller| matches!(controller, Controller::Source | Controller::SourceWatcher);
    let first = controllers.iter().next().copied().unwrap_or(Controller::Source);
    controllers.iter().find(stores).copied().unwrap_or(first)
}

fn real(run: &Invocation, flag: &str) -> Result<f64, CliError> {
    run.text(flag).parse().map_err(|_| fail!("--{flag} '{}' is not a number", run.text(flag)))
}

fn election(run: &Invocation) -> Result<Option<ElectionOptions>, CliError> {
    if !run.is("enable-leader-election") {
        return Ok(None);
    }
    let (lease, renew, retry) = (
        run.duration("leader-election-lease-duration").to_std(),
        run.duration("leader-election-renew-deadline").to_std(),
        run.duration("leader-election-retry-period").to_std(),
    );
    // client-go refuses the same: a holder must give up before others may take over.
    if lease <= renew {
        return Err(fail!("--leader-election-lease-duration must be greater than the renew deadline"));
    }
    if renew <= retry.mul_f64(1.2) {
        return Err(fail!("--leader-election-renew-deadline must be greater than 1.2 retry periods"));
    }
    Ok(Some(ElectionOptions {
        namespace: std::env::var("RUNTIME_NAMESPACE").unwrap_or_else(|_| run.text("namespace").to_owned()),
        lease_duration: lease,
        renew_deadline: renew,
        retry_period: retry,
        release_on_cancel: run.is("leader-election-release-on-cancel"),
    }))
}

/// `0` switches a listener of the process off, as controller-runtime has it.
fn process_listener(
    run: &Invocation,
    keeper: Controller,
    flag: &'static str,
) -> Result<Option<SocketAddr>, CliError> {
    let from_environment = (keeper == Controller::Source && flag == "metrics-addr" && !run.given(flag))
        .then(|| std::env::var("METRICS_ADDR").ok().filter(|value| !value.is_empty()))
        .flatten();
    let text = from_environment.unwrap_or_else(|| run.text(flag).to_owned());
    if text == "0" || text.is_empty() {
        return Ok(None);
    }
    address::listen(flag, &text).map(Some)
}

/// A controller without `--storage-path` keeps what it downloads where temporary files go.
fn storage_path(flags: &Flags<'_>) -> Result<PathBuf, CliError> {
    if let Some(path) = flags.some("storage-path") {
        return Ok(path.into());
    }
    let folder = std::env::temp_dir().join(format!("{}-artifacts", flags.controller));
    std::fs::create_dir_all(&folder).map_err(|error| fail!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn duration(flag: &str, text: &str) -> Result<Duration, CliError> {
    let duration: GoDuration = text.parse().map_err(|error| fail!("--{flag} '{text}': {error}"))?;
    Ok(duration.to_std())
}

/// A gate that was set for all must be known to one of them; one set for a controller, to that one.
fn check_shared_gates(run: &Invocation, controllers: &BTreeSet<Controller>) -> Result<(), CliError> {
    gates::check(controllers, &run.list("feature-gates")).map_err(|error| fail!("{error}"))?;
    for controller in controllers {
        let own = run.list(&format!("{}-feature-gates", serve::short(*controller)));
        gates::check(&BTreeSet::from([*controller]), &own).map_err(|error| fail!("{error}"))?;
    }
    Ok(())
}

/// A default account for clouds needs the gate, as upstream has it: without, it would mean nothing, and whoever gave it
/// believes that tenants are held to it.
fn check_default_accounts(flags: &Flags<'_>, gates: &FeatureGates) -> Result<(), CliError> {
    const GATE: &str = "ObjectLevelWorkloadIdentity";
    let accounts: &[&str] = match flags.controller {
        Controller::Source
        | Controller::Notification
        | Controller::ImageReflector
        | Controller::ImageAutomation => &["default-service-account"],
        Controller::Kustomize => {
            &["default-decryption-service-account", "default-kubeconfig-service-account"]
        }
        Controller::Helm => &["default-kubeconfig-service-account"],
        Controller::SourceWatcher => &[],
    };
    match accounts.iter().find(|flag| flags.some(flag).is_some()) {
        Some(flag) if !gates.is(GATE) => Err(fail!(
            "--{flag}: cannot set default service accounts when the feature gate {GATE} is not enabled"
        )),
        _ => Ok(()),
    }
}

fn tuning(flags: &Flags<'_>) -> Result<Tuning, CliError> {
    let controller = flags.controller;
    let gates = FeatureGates::with(controller, &flags.list("feature-gates"));
    let gates = gates.map_err(|error| fail!("{error}"))?;
    check_default_accounts(flags, &gates)?;
    let selector = flags.some("watch-label-selector");
    let configs = flags.text("watch-configs-label-selector");
    for text in selector.iter().chain([&configs]) {
        Selector::parse(text).map_err(|error| fail!("{error}"))?;
    }
    let concurrent: usize = flags.number("concurrent")?;
    let jitter_percent: u8 = flags.some("interval-jitter-percentage").map_or(Ok(0), |text| {
        text.parse()
            .ok()
            .filter(|percent| *percent < 100)
            .ok_or_else(|| fail!("--interval-jitter-percentage '{text}' must be between 0 and 99"))
    })?;
    Ok(Tuning {
        concurrent: concurrent.max(1),
        least_retry: flags.duration("min-retry-delay")?,
        most_retry: flags.duration("max-retry-delay")?,
        events_addr: (controller != Controller::Notification).then(|| flags.some("events-addr")).flatten(),
        jitter_percent,
        watch_label_selector: selector,
        watch_configs_label_selector: configs,
        gates,
        http_retry: flags.some("http-retry").map_or(Ok(0), |_| flags.number("http-retry"))?,
        resource_info: flags.run.is("metrics-resource-info"),
    })
}

fn source(flags: &Flags<'_>) -> Result<source::Options, CliError> {
    Ok(source::Options {
        requeue_dependency: flags.duration("requeue-dependency")?,
        helm_index_max_size: flags.number("helm-index-max-size")?,
        helm_chart_max_size: flags.number("helm-chart-max-size")?,
        helm_chart_file_max_size: flags.number("helm-chart-file-max-size")?,
        helm_cache_max_size: flags.number("helm-cache-max-size")?,
        helm_cache_ttl: flags.duration("helm-cache-ttl")?,
        helm_cache_purge_interval: flags.duration("helm-cache-purge-interval")?,
        ssh_kex_algos: flags.list("ssh-kex-algos"),
        ssh_hostkey_algos: flags.list("ssh-hostkey-algos"),
        default_service_account: flags.some("default-service-account"),
        token_cache_max_size: flags.number("token-cache-max-size")?,
        token_cache_max_duration: flags.duration("token-cache-max-duration")?,
    })
}

fn kustomize(flags: &Flags<'_>) -> Result<kustomize::Options, CliError> {
    let gates = FeatureGates::with(flags.controller, &flags.list("feature-gates"));
    let gates = gates.map_err(|error| fail!("{error}"))?;
    let kinds: Vec<String> = flags
        .text("custom-apply-stage-kinds")
        .split(',')
        .filter(|kind| !kind.trim().is_empty())
        .map(str::to_owned)
        .collect();
    let kinds = kustomize::stage_kinds(&kinds);
    Ok(kustomize::Options {
        depot: None,
        jitter_percent: flags.number("interval-jitter-percentage")?,
        no_cross_namespace_refs: flags.is("no-cross-namespace-refs"),
        default_service_account: flags.some("default-service-account"),
        default_decryption_service_account: flags.some("default-decryption-service-account"),
        default_kubeconfig_service_account: flags.some("default-kubeconfig-service-account"),
        strict_substitutions: gates.is("StrictPostBuildSubstitutions"),
        requeue_dependency: flags.duration("requeue-dependency")?,
        concurrent_ssa: flags.number("concurrent-ssa")?,
        no_remote_bases: flags.is("no-remote-bases"),
        override_managers: flags.list("override-manager"),
        custom_stage_kinds: kinds.map_err(|error| fail!("--custom-apply-stage-kinds: {error}"))?,
        runtime_namespace: std::env::var("RUNTIME_NAMESPACE").ok().filter(|name| !name.is_empty()),
        sops_age_secret: flags.some("sops-age-secret"),
        sops_vault_config_map: flags.some("sops-vault-configmap"),
        require_sops_mac: flags.is("require-sops-mac"),
        insecure_kubeconfig_exec: flags.is("insecure-kubeconfig-exec"),
        insecure_kubeconfig_tls: flags.is("insecure-kubeconfig-tls"),
        gates: kustomize::Gates::from_features(&gates),
        token_cache_max_size: flags.number("token-cache-max-size")?,
        token_cache_max_duration: flags.duration("token-cache-max-duration")?,
        watch_drift: !flags.is("no-drift-watch"),
        prune_brake_percent: brake_percent(&flags.text("prune-brake-percent"))?,
        upstream_only: upstream_only(&flags.text("compat"))?,
    })
}

fn brake_percent(text: &str) -> Result<Option<u8>, CliError> {
    if text.is_empty() {
        return Ok(None);
    }
    let percent = text.trim_end_matches('%').parse().ok().filter(|percent| *percent <= 100);
    percent.map(Some).ok_or_else(|| fail!("--prune-brake-percent: '{text}' is no percentage from 0 to 100"))
}

fn upstream_only(text: &str) -> Result<bool, CliError> {
    match text {
        "" => Ok(false),
        "upstream" => Ok(true),
        other => Err(fail!("--compat: '{other}' is unknown; there is 'upstream'")),
    }
}

fn helm(flags: &Flags<'_>) -> Result<helm::Options, CliError> {
    Ok(helm::Options {
        no_cross_namespace_refs: flags.is("no-cross-namespace-refs"),
        identity: flux_controllers::identity::Options {
            default_service_account: flags.some("default-service-account"),
            default_kubeconfig_service_account: flags.some("default-kubeconfig-service-account"),
            insecure_kubeconfig_exec: flags.is("insecure-kubeconfig-exec"),
            insecure_kubeconfig_tls: flags.is("insecure-kubeconfig-tls"),
            object_level_workload_identity: false,
        },
        requeue_dependency: flags.duration("requeue-dependency")?,
        http_timeout: flags.duration("http-timeout")?,
        override_managers: flags.list("override-manager"),
        snapshot_digest_algo: flags
            .text("snapshot-digest-algo")
            .parse()
            .map_err(|error| fail!("--snapshot-digest-algo: {error}"))?,
        upstream_only: upstream_only(&flags.text("compat"))?,
        ..helm::Options::upstream()
    })
}

fn notification(flags: &Flags<'_>) -> Result<notification::Options, CliError> {
    Ok(notification::Options {
        events_addr: address::listen("events-addr", &flags.text("events-addr"))?,
        receiver_addr: address::listen("receiverAddr", &flags.text("receiverAddr"))?,
        rate_limit_interval: flags.duration("rate-limit-interval")?,
        no_cross_namespace_refs: flags.is("no-cross-namespace-refs"),
        default_service_account: flags.some("default-service-account"),
        export_http_path_metrics: flags.is("export-http-path-metrics"),
        token_cache_max_size: flags.number("token-cache-max-size")?,
        token_cache_max_duration: flags.duration("token-cache-max-duration")?,
        ..notification::Options::upstream()
    })
}

fn reflector(flags: &Flags<'_>) -> Result<image::ReflectorOptions, CliError> {
    let threshold: usize = flags.number("storage-compression-threshold")?;
    if threshold == 0 {
        return Err(fail!("--storage-compression-threshold: value must be greater than zero"));
    }
    let minutes: u16 = flags.number("gc-interval")?;
    Ok(image::ReflectorOptions {
        no_cross_namespace_refs: flags.is("no-cross-namespace-refs"),
        default_service_account: flags.some("default-service-account"),
        requeue_dependency: flags.duration("requeue-dependency")?,
        compression_threshold: threshold << 10,
        gc_interval: Duration::from_secs(u64::from(minutes) * 60),
        token_cache_max_size: flags.number("token-cache-max-size")?,
        token_cache_max_duration: flags.duration("token-cache-max-duration")?,
    })
}

fn report_without_effect(run: &Invocation) {
    let prefixes: BTreeMap<&str, ()> =
        AVAILABLE.iter().map(|controller| (serve::short(*controller), ())).collect();
    for flag in WITHOUT_EFFECT {
        let overridden = prefixes.keys().any(|prefix| run.given(&format!("{prefix}-{flag}")));
        if run.given(flag) || overridden {
            tracing::warn!(flag = format!("--{flag}"), "this flag has no effect yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Parsed, parse};

    fn run(text: &str) -> Invocation {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match parse(&words).expect("it parses") {
            Parsed::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    fn of(text: &str) -> ManagerOptions {
        let folder = std::env::temp_dir();
        match ["storage-path", "kustomize-controller", "notification-controller"]
            .iter()
            .any(|word| text.contains(word))
        {
            true => options(&run(text)),
            false => options(&run(&format!("{text} --storage-path {}", folder.display()))),
        }
        .expect("the flags are fine")
    }

    #[test]
    fn a_shared_flag_reaches_all_and_an_override_one() {
        let options = of("serve --controllers=source,kustomize --concurrent=7 --kustomize-concurrent=9");
        assert_eq!(options.tuned[&Controller::Source].concurrent, 7);
        assert_eq!(options.tuned[&Controller::Kustomize].concurrent, 9);
        let options = of("serve --kustomize-requeue-dependency=3s");
        assert_eq!(options.kustomize.requeue_dependency, Duration::from_secs(3));
        assert_eq!(options.source.requeue_dependency, Duration::from_secs(30));
        assert_eq!(
            (options.tuned[&Controller::Source].concurrent, options.tuned[&Controller::Kustomize].concurrent),
            (2, 4)
        );
        let options = of("serve --kustomize-http-retry=3");
        let retries = |controller| options.tuned[&controller].http_retry;
        assert_eq!((retries(Controller::Kustomize), retries(Controller::Helm)), (3, 9));
        assert_eq!(retries(Controller::SourceWatcher), 9);
    }

    #[test]
    fn a_controller_by_its_own_name_takes_its_own_flags() {
        let options =
            of("serve source-controller --storage-path=/tmp --storage-addr=127.0.0.1:0 --concurrent 5");
        assert_eq!(options.controllers, BTreeSet::from([Controller::Source]));
        assert_eq!(options.tuned[&Controller::Source].concurrent, 5);
        let words = ["serve", "kustomize-controller", "--storage-addr=:9090"].map(str::to_owned);
        assert_eq!(parse(&words).unwrap_err().to_string(), "unknown flag: --storage-addr");
        let options = of("serve kustomize-controller --concurrent-ssa=2 --events-addr=http://nc/");
        assert_eq!(options.kustomize.concurrent_ssa, 2);
        assert_eq!(options.tuned[&Controller::Kustomize].events_addr.as_deref(), Some("http://nc/"));
    }

    #[test]
    fn notification_listens_where_upstream_does_and_beside_the_artifacts() {
        let options = of(
            "serve notification-controller --rate-limit-interval=1m --no-cross-namespace-refs --export-http-path-metrics",
        );
        let of_it = &options.notification;
        assert!(of_it.export_http_path_metrics && !of("serve").notification.export_http_path_metrics);
        assert_eq!((of_it.events_addr.port(), of_it.receiver_addr.port()), (9090, 9292));
        assert_eq!((of_it.rate_limit_interval.as_secs(), of_it.no_cross_namespace_refs), (60, true));
        let options = of("serve --events-addr=http://nc/ --notification-receiverAddr=127.0.0.1:1");
        assert_eq!(options.notification.events_addr.port(), 9091);
        assert_eq!(options.notification.receiver_addr, ([127, 0, 0, 1], 1).into());
        assert_eq!(options.tuned[&Controller::Kustomize].events_addr.as_deref(), Some("http://nc/"));
    }

    #[test]
    fn the_image_reflector_takes_its_own_flags() {
        let options = of(
            "serve image-reflector-controller --storage-path=/tmp/images --gc-interval=5 --requeue-dependency=3s \
             --storage-compression-threshold=1 --no-cross-namespace-refs --default-service-account=sa \
             --feature-gates=ObjectLevelWorkloadIdentity=true",
        );
        assert_eq!(options.controllers, BTreeSet::from([Controller::ImageReflector]));
        assert_eq!(options.storage_path, PathBuf::from("/tmp/images"));
        let reflector = options.reflector;
        assert_eq!((reflector.gc_interval.as_secs(), reflector.requeue_dependency.as_secs()), (300, 3));
        assert_eq!((reflector.compression_threshold, reflector.no_cross_namespace_refs), (1024, true));
        assert_eq!(reflector.default_service_account.as_deref(), Some("sa"));
        let bad =
            run("serve image-reflector-controller --storage-path=/tmp --storage-compression-threshold=0");
        assert!(super::options(&bad).unwrap_err().to_string().contains("greater than zero"));
    }

    #[test]
    fn the_source_watcher_takes_its_own_flags() {
        let storage = "--storage-path=/tmp --storage-addr=127.0.0.1:0";
        let watcher = of(&format!("serve source-watcher {storage}")).watcher;
        assert_eq!(
            (watcher.requeue_dependency.as_secs(), watcher.reconciliation_timeout.as_secs()),
            (5, 600)
        );
        let given = "--requeue-dependency=7s --reconciliation-timeout=1m --no-cross-namespace-refs";
        let watcher = of(&format!("serve source-watcher {storage} {given}")).watcher;
        assert_eq!((watcher.requeue_dependency.as_secs(), watcher.reconciliation_timeout.as_secs()), (7, 60));
        assert!(watcher.no_cross_namespace_refs);
    }

    #[test]
    fn a_release_under_way_has_the_time_that_helm_controller_gives_it() {
        assert_eq!(of("serve --controllers=helm").stop_within, Duration::from_secs(600));
        let options = of("serve --controllers=helm --graceful-shutdown-timeout=45s");
        assert_eq!(options.stop_within, Duration::from_secs(45));
        assert_eq!(of("serve --controllers=source").stop_within, Duration::from_secs(20));
    }

    #[test]
    fn helm_controller_has_upstreams_defaults() {
        let options = of("serve --controllers=helm");
        let tuned = &options.tuned[&Controller::Helm];
        assert_eq!((tuned.concurrent, tuned.http_retry), (4, 9));
        let helm = options.helm;
        assert_eq!(helm.requeue_dependency, Duration::from_secs(30));
        assert_eq!(helm.http_timeout, Duration::from_secs(30));
        assert_eq!(helm.snapshot_digest_algo.to_string(), "sha256");
        assert_eq!((helm.identity.default_service_account, helm.override_managers.len()), (None, 0));
        let tuned = of("serve --controllers=helm --http-timeout=5s --requeue-dependency=7s --default-service-account=robot --default-kubeconfig-service-account=far --feature-gates=ObjectLevelWorkloadIdentity=true --no-cross-namespace-refs").helm;
        assert_eq!(
            (tuned.http_timeout, tuned.requeue_dependency),
            (Duration::from_secs(5), Duration::from_secs(7))
        );
        assert_eq!(tuned.identity.default_service_account.as_deref(), Some("robot"));
        assert_eq!(tuned.identity.default_kubeconfig_service_account.as_deref(), Some("far"));
        assert!(tuned.no_cross_namespace_refs);
    }

    #[test]
    fn releases_take_their_own_flags() {
        let helm = of("serve --controllers=helm --snapshot-digest-algo=sha512 --override-manager=a --override-manager=b").helm;
        assert_eq!(helm.snapshot_digest_algo.to_string(), "sha512");
        assert_eq!(helm.override_managers, ["a", "b"]);
        assert!(!helm.upstream_only && of("serve --controllers=helm --compat=upstream").helm.upstream_only);
        let run =
            run("serve --controllers=helm --feature-gates=OOMWatch=true --oom-watch-memory-threshold=0");
        let refused = oom_watch(&run, &BTreeSet::from([Controller::Helm])).unwrap_err().to_string();
        assert!(refused.contains("--oom-watch-memory-threshold"), "{refused}");
        assert!(oom_watch(&run, &BTreeSet::from([Controller::Source])).unwrap().is_none());
    }

    #[test]
    fn image_automation_takes_its_own_flags() {
        let options = of(
            "serve --controllers=image-automation --ssh-kex-algos=curve25519-sha256 --no-cross-namespace-refs --compat=upstream",
        );
        assert_eq!(options.automation.ssh_kex_algos, ["curve25519-sha256"]);
        assert!(options.automation.no_cross_namespace_refs && options.automation.upstream_only);
    }

    #[test]
    fn gates_are_checked_against_the_union_of_what_runs() {
        let options =
            of("serve --feature-gates=StrictPostBuildSubstitutions=false,CacheSecretsAndConfigMaps=true");
        assert!(!options.kustomize.strict_substitutions);
        assert!(options.tuned[&Controller::Source].gates.is("CacheSecretsAndConfigMaps"));
        let error = super::options(&run(
            "serve --controllers=source --storage-path=/tmp --feature-gates=GroupChangeLog=true",
        ));
        assert!(error.unwrap_err().to_string().contains("'GroupChangeLog' not supported"));
    }

    #[test]
    fn an_account_for_clouds_needs_its_gate_and_is_not_the_one_to_act_as() {
        let refused = |text: &str| super::options(&run(text)).unwrap_err().to_string();
        for text in [
            "serve source-controller --storage-path=/tmp --default-service-account=sa",
            "serve --storage-path=/tmp --source-default-service-account=sa",
            "serve notification-controller --default-service-account=sa",
            "serve kustomize-controller --default-decryption-service-account=sa",
            "serve kustomize-controller --default-kubeconfig-service-account=sa",
            "serve helm-controller --default-kubeconfig-service-account=sa",
        ] {
            let problem = refused(text);
            assert!(problem.contains("ObjectLevelWorkloadIdentity is not enabled"), "{text}: {problem}");
            let allowed = format!("{text} --feature-gates=ObjectLevelWorkloadIdentity=true");
            assert!(super::options(&run(&allowed)).is_ok(), "{text}");
        }
        // In one process it is the account to act as, which needs no gate and says nothing about clouds.
        let options = of("serve --default-service-account=tenant");
        assert_eq!(options.kustomize.default_service_account.as_deref(), Some("tenant"));
        assert_eq!(options.helm.identity.default_service_account.as_deref(), Some("tenant"));
        assert_eq!(options.source.default_service_account, None);
        assert_eq!(options.notification.default_service_account, None);
    }

    #[test]
    fn each_controller_keeps_tokens_as_its_own_flags_say() {
        let options = of("serve --token-cache-max-size=7 --kustomize-token-cache-max-duration=5m");
        assert_eq!((options.source.token_cache_max_size, options.kustomize.token_cache_max_size), (7, 7));
        assert_eq!(options.source.token_cache_max_duration, Duration::from_secs(3600));
        assert_eq!(options.kustomize.token_cache_max_duration, Duration::from_secs(300));
    }

    #[test]
    fn election_flags_are_checked_as_client_go_checks_them() {
        assert!(of("serve").election.is_none());
        let election = of("serve --enable-leader-election -n apps").election.expect("it is on");
        assert_eq!((election.lease_duration.as_secs(), election.namespace.as_str()), (35, "apps"));
        let text = "serve --enable-leader-election --storage-path=/tmp --leader-election-lease-duration=10s";
        assert!(options(&run(text)).unwrap_err().to_string().contains("must be greater"));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, problem) in [
            ("serve --controllers=nope", "'nope' is not available"),
            ("serve --watch-label-selector=a=b,", "label selector 'a=b,'"),
            ("serve --interval-jitter-percentage=100", "must be between 0 and 99"),
            ("serve --metrics-addr=:9440", "--metrics-addr and --health-addr are both on port 9440"),
            ("serve --storage-addr=nonsense", "--storage-addr 'nonsense'"),
        ] {
            let error = options(&run(&format!("{text} --storage-path=/tmp"))).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
