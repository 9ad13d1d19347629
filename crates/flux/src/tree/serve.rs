//! `flux serve` and `flux serve <upstream controller name>`: the flags of each controller, under upstream's names.
//!
//! `flux serve` itself takes the union: a flag that several controllers have applies to all of them, and
//! `--<controller>-<flag>` to one (`--kustomize-concurrent`). Flags of the process (listeners, logs, election) have
//! no such form, since there is one process.

use std::sync::OnceLock;

use flux_api::kinds::Controller;
use flux_controllers::manager::AVAILABLE;

use super::flag::{array, boolean, boolean_on, duration, int, pairs, string, strings};
use super::{Args, Flag, Row, row};

/// What every process has, whatever it runs.
static PROCESS: &[Flag] = &[
    string("metrics-addr", ":8080"),
    string("health-addr", ":9440"),
    string("log-level", "info"),
    string("log-encoding", "json"),
    boolean("enable-leader-election"),
    boolean_on("leader-election-release-on-cancel"),
    duration("leader-election-lease-duration", "35s"),
    duration("leader-election-renew-deadline", "30s"),
    duration("leader-election-retry-period", "5s"),
    boolean_on("watch-all-namespaces"),
    // Ours: off where kube-state-metrics already makes these series.
    boolean_on("metrics-resource-info"),
];

/// What every controller has.
static SHARED: &[Flag] = &[
    string("events-addr", ""),
    duration("min-retry-delay", "750ms"),
    duration("max-retry-delay", "15m0s"),
    pairs("feature-gates", ""),
];

static WATCH: &[Flag] = &[string("watch-label-selector", "")];
static WATCH_CONFIGS: &[Flag] =
    &[string("watch-configs-label-selector", "reconcile.fluxcd.io/watch=Enabled")];
static JITTER: &[Flag] = &[int("interval-jitter-percentage", "5")];
static ACCESS: &[Flag] = &[boolean("no-cross-namespace-refs")];
static TOKENS: &[Flag] =
    &[int("token-cache-max-size", "100"), duration("token-cache-max-duration", "1h0m0s")];
static ACCOUNT: &[Flag] = &[string("default-service-account", "")];
static KUBECONFIG: &[Flag] = &[
    boolean("insecure-kubeconfig-exec"),
    boolean("insecure-kubeconfig-tls"),
    string("default-kubeconfig-service-account", ""),
];
static REQUEUE: &[Flag] = &[duration("requeue-dependency", "30s")];
static HTTP_RETRY: &[Flag] = &[int("http-retry", "9")];
static OVERRIDE_MANAGER: &[Flag] = &[array("override-manager", "")];
static SSH: &[Flag] = &[strings("ssh-kex-algos", ""), strings("ssh-hostkey-algos", "")];
static STORAGE: &[Flag] = &[
    string("storage-path", "/data"),
    string("storage-addr", ":9090"),
    string("storage-adv-addr", ""),
    duration("artifact-retention-ttl", "1m0s"),
    int("artifact-retention-records", "2"),
    string("artifact-digest-algo", "sha256"),
];

static SOURCE: &[Flag] = &[
    int("concurrent", "2"),
    int("helm-index-max-size", "52428800"),
    int("helm-chart-max-size", "10485760"),
    int("helm-chart-file-max-size", "5242880"),
    int("helm-cache-max-size", "0"),
    string("helm-cache-ttl", "15m"),
    string("helm-cache-purge-interval", "1m"),
];
static KUSTOMIZE: &[Flag] = &[
    int("concurrent", "4"),
    int("concurrent-ssa", "4"),
    boolean("no-remote-bases"),
    boolean("require-sops-mac"),
    boolean("no-drift-watch"),
    string("prune-brake-percent", ""),
    string("compat", ""),
    string("default-decryption-service-account", ""),
    string("sops-age-secret", ""),
    string("sops-vault-configmap", ""),
    string("custom-apply-stage-kinds", ""),
];
static HELM: &[Flag] = &[
    int("concurrent", "4"),
    duration("graceful-shutdown-timeout", "10m0s"),
    duration("http-timeout", "30s"),
    int("oom-watch-memory-threshold", "95"),
    duration("oom-watch-interval", "500ms"),
    string("oom-watch-max-memory-path", ""),
    string("oom-watch-current-memory-path", ""),
    string("snapshot-digest-algo", "sha256"),
    string("compat", ""),
];
static NOTIFICATION: &[Flag] = &[
    int("concurrent", "4"),
    // Where this controller listens, not where it sends: the nearer flag wins over the shared one.
    string("events-addr", ":9090"),
    string("receiverAddr", ":9292"),
    duration("rate-limit-interval", "5m0s"),
    boolean("export-http-path-metrics"),
];
static IMAGE_REFLECTOR: &[Flag] = &[
    int("concurrent", "4"),
    string("storage-path", "/data"),
    int("storage-value-log-file-size", "268435456"),
    int("storage-compression-threshold", "64"),
    int("gc-interval", "10"),
];
static IMAGE_AUTOMATION: &[Flag] = &[int("concurrent", "4"), string("compat", "")];
static SOURCE_WATCHER: &[Flag] = &[
    int("concurrent", "10"),
    duration("reconciliation-timeout", "10m0s"),
    duration("requeue-dependency", "5s"),
];

/// The flags of a controller besides those of the process; where two have the same name the first counts.
fn parts(controller: Controller) -> Vec<&'static [Flag]> {
    let own: &[&'static [Flag]] = match controller {
        Controller::Source => &[SOURCE, WATCH, WATCH_CONFIGS, JITTER, TOKENS, ACCOUNT, REQUEUE, SSH, STORAGE],
        Controller::Kustomize => &[
            KUSTOMIZE,
            WATCH,
            WATCH_CONFIGS,
            JITTER,
            ACCESS,
            TOKENS,
            ACCOUNT,
            KUBECONFIG,
            REQUEUE,
            HTTP_RETRY,
            OVERRIDE_MANAGER,
        ],
        Controller::Helm => &[
            HELM,
            WATCH,
            WATCH_CONFIGS,
            JITTER,
            ACCESS,
            TOKENS,
            ACCOUNT,
            KUBECONFIG,
            REQUEUE,
            HTTP_RETRY,
            OVERRIDE_MANAGER,
        ],
        Controller::Notification => &[NOTIFICATION, WATCH_CONFIGS, ACCESS, TOKENS, ACCOUNT],
        Controller::ImageReflector => {
            &[IMAGE_REFLECTOR, WATCH, WATCH_CONFIGS, ACCESS, TOKENS, ACCOUNT, REQUEUE]
        }
        Controller::ImageAutomation => {
            &[IMAGE_AUTOMATION, WATCH, WATCH_CONFIGS, ACCESS, TOKENS, ACCOUNT, SSH]
        }
        Controller::SourceWatcher => {
            &[SOURCE_WATCHER, WATCH, WATCH_CONFIGS, JITTER, ACCESS, HTTP_RETRY, STORAGE]
        }
    };
    own.iter().copied().chain([SHARED]).collect()
}

/// A controller's own flags, each name once.
pub(crate) fn flags(controller: Controller) -> Vec<Flag> {
    let mut found: Vec<Flag> = Vec::new();
    for flag in parts(controller).into_iter().flatten() {
        if !found.iter().any(|known| known.name == flag.name) {
            found.push(*flag);
        }
    }
    found
}

/// `source`, `kustomize`, …, `source-watcher`: how `flux serve` calls it and how its overrides begin.
pub(crate) fn short(controller: Controller) -> &'static str {
    let name = controller.as_str();
    name.strip_suffix("-controller").unwrap_or(name)
}

/// Means one thing in one controller and another in the rest, so `flux serve` takes it only with a prefix.
pub(crate) fn is_ambiguous(controller: Controller, flag: &str) -> bool {
    match flag {
        // Where the others send, this one listens.
        "events-addr" => controller == Controller::Notification,
        // An account to act as in the cluster; elsewhere, one to be at a cloud.
        "default-service-account" => !matches!(controller, Controller::Kustomize | Controller::Helm),
        _ => false,
    }
}

/// The words of a command line without the program's name; under the name of a controller the program is that
/// controller.
pub(crate) fn by_own_name(words: Vec<String>) -> Vec<String> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    match name.parse::<Controller>() {
        Ok(controller) => {
            ["serve", controller.as_str()].map(str::to_owned).into_iter().chain(words).collect()
        }
        Err(_) => words.collect(),
    }
}

/// One row for `serve`, and one for each controller below it.
pub(super) fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let mut rows =
            vec![row("serve", "Run the controllers against a cluster").args(Args::None).flags(leak(union()))];
        for controller in Controller::ALL {
            let own = flags(*controller).into_iter().chain(PROCESS.iter().copied()).collect();
            rows.push(
                row(leak_text(format!("serve {controller}")), about(*controller))
                    .args(Args::None)
                    .flags(leak(own)),
            );
        }
        rows
    })
}

fn about(controller: Controller) -> &'static str {
    leak_text(format!("Run {controller} with the flags it has in Flux"))
}

fn union() -> Vec<Flag> {
    let available: Vec<_> = AVAILABLE.iter().map(|controller| short(*controller)).collect();
    let mut all = vec![strings("controllers", leak_text(available.join(",")))];
    all.extend(PROCESS.iter().copied());
    for controller in Controller::ALL {
        for flag in flags(*controller) {
            if !is_ambiguous(*controller, flag.name) && !all.iter().any(|known| known.name == flag.name) {
                // The default differs between controllers: what was not given is looked up there.
                all.push(flag);
            }
            let name = leak_text(format!("{}-{}", short(*controller), flag.name));
            all.push(Flag { name, hidden: true, ..flag });
        }
    }
    // Beside the artifact server, which keeps :9090.
    for flag in &mut all {
        if flag.name == "notification-events-addr" {
            flag.default = ":9091";
            flag.hidden = false;
        }
    }
    all
}

/// Lives as long as the process, as the command tree does.
fn leak(flags: Vec<Flag>) -> &'static [Flag] {
    Vec::leak(flags)
}

fn leak_text(text: String) -> &'static str {
    String::leak(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::flag::Shape;

    #[test]
    fn no_override_has_the_name_of_another_flag() {
        let mut seen = std::collections::BTreeMap::new();
        for flag in rows()[0].flags {
            assert!(seen.insert(flag.name, ()).is_none(), "--{} twice", flag.name);
        }
    }

    #[test]
    fn a_program_called_like_a_controller_is_one() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let ours = by_own_name(words("/usr/bin/source-controller --concurrent 2"));
        assert_eq!(ours, words("serve source-controller --concurrent 2"));
        assert_eq!(by_own_name(words("flux get all")), words("get all"));
    }

    #[test]
    fn flags_of_one_name_take_one_kind_of_value() {
        for controller in Controller::ALL {
            for flag in flags(*controller) {
                for other in Controller::ALL.iter().flat_map(|other| flags(*other)) {
                    let same = std::mem::discriminant(&flag.shape) == std::mem::discriminant(&other.shape);
                    assert!(flag.name != other.name || same, "--{}", flag.name);
                    assert!(!matches!(flag.shape, Shape::Checked(_)), "--{}", flag.name);
                }
            }
        }
    }

    const EVERYWHERE: &str = "metrics-addr=:8080 health-addr=:9440 log-level=info log-encoding=json \
        enable-leader-election=false leader-election-release-on-cancel=true leader-election-lease-duration=35s \
        leader-election-renew-deadline=30s leader-election-retry-period=5s watch-all-namespaces=true \
        kube-api-qps=50 kube-api-burst=300 min-retry-delay=750ms max-retry-delay=15m0s feature-gates= \
        watch-configs-label-selector=reconcile.fluxcd.io/watch=Enabled";
    const NOT_IN_NOTIFICATION: &str = "events-addr= watch-label-selector=";
    const AT_CLOUDS: &str =
        "token-cache-max-size=100 token-cache-max-duration=1h0m0s default-service-account=";
    const APPLIERS: &str = "concurrent=4 requeue-dependency=30s http-retry=9 interval-jitter-percentage=5 \
        no-cross-namespace-refs=false override-manager= insecure-kubeconfig-exec=false \
        insecure-kubeconfig-tls=false default-kubeconfig-service-account=";
    const ARTIFACTS: &str = "storage-path=/data storage-addr=:9090 storage-adv-addr= \
        artifact-retention-ttl=1m0s artifact-retention-records=2 artifact-digest-algo=sha256 \
        interval-jitter-percentage=5";
    const SSH_ALGORITHMS: &str = "ssh-kex-algos= ssh-hostkey-algos=";
    /// Those that Flux does not have.
    const OURS: &str = "metrics-resource-info require-sops-mac no-drift-watch prune-brake-percent compat";

    /// What the main functions of Flux 2.9 define, each flag with its default.
    fn upstream(controller: Controller) -> Vec<&'static str> {
        match controller {
            Controller::Source => vec![
                NOT_IN_NOTIFICATION,
                AT_CLOUDS,
                ARTIFACTS,
                SSH_ALGORITHMS,
                "concurrent=2 requeue-dependency=30s helm-index-max-size=52428800 \
                 helm-chart-max-size=10485760 helm-chart-file-max-size=5242880 helm-cache-max-size=0 \
                 helm-cache-ttl=15m helm-cache-purge-interval=1m",
            ],
            Controller::Kustomize => vec![
                NOT_IN_NOTIFICATION,
                AT_CLOUDS,
                APPLIERS,
                "concurrent-ssa=4 no-remote-bases=false default-decryption-service-account= \
                 sops-age-secret= sops-vault-configmap= custom-apply-stage-kinds=",
            ],
            Controller::Helm => vec![
                NOT_IN_NOTIFICATION,
                AT_CLOUDS,
                APPLIERS,
                "graceful-shutdown-timeout=10m0s http-timeout=30s oom-watch-memory-threshold=95 \
                 oom-watch-interval=500ms oom-watch-max-memory-path= oom-watch-current-memory-path= \
                 snapshot-digest-algo=sha256",
            ],
            Controller::Notification => vec![
                AT_CLOUDS,
                "concurrent=4 events-addr=:9090 receiverAddr=:9292 rate-limit-interval=5m0s \
                 export-http-path-metrics=false no-cross-namespace-refs=false",
            ],
            Controller::ImageReflector => vec![
                NOT_IN_NOTIFICATION,
                AT_CLOUDS,
                "concurrent=4 requeue-dependency=30s no-cross-namespace-refs=false storage-path=/data \
                 storage-value-log-file-size=268435456 storage-compression-threshold=64 gc-interval=10",
            ],
            Controller::ImageAutomation => vec![
                NOT_IN_NOTIFICATION,
                AT_CLOUDS,
                SSH_ALGORITHMS,
                "concurrent=4 no-cross-namespace-refs=false",
            ],
            Controller::SourceWatcher => vec![
                NOT_IN_NOTIFICATION,
                ARTIFACTS,
                "concurrent=10 http-retry=9 reconciliation-timeout=10m0s requeue-dependency=5s \
                 no-cross-namespace-refs=false",
            ],
        }
    }

    #[test]
    fn each_controller_has_upstreams_flags_with_upstreams_defaults_and_no_others() {
        for controller in Controller::ALL {
            let row = rows().iter().find(|row| row.path == format!("serve {controller}")).unwrap();
            let mut wanted = std::collections::BTreeMap::new();
            for text in upstream(*controller).into_iter().chain([EVERYWHERE]) {
                wanted.extend(text.split_whitespace().filter_map(|flag| flag.split_once('=')));
            }
            for (name, default) in &wanted {
                let own = row.flags.iter().chain(super::super::flag::GLOBAL);
                let flag = own.into_iter().find(|flag| flag.name == *name);
                let flag = flag.unwrap_or_else(|| panic!("{controller} lacks --{name}"));
                assert_eq!(flag.default, *default, "--{name} of {controller}");
            }
            for flag in row.flags {
                let known = wanted.contains_key(flag.name) || OURS.split(' ').any(|ours| ours == flag.name);
                assert!(known, "{controller} has a flag --{} of its own", flag.name);
            }
        }
    }
}
