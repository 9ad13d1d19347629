//! The command lines of the three servers.

use super::files::Files;
use super::{Options, Ports};

pub(super) fn etcd(ports: Ports, files: &Files) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", ports.etcd_client);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    vec![
        format!("--data-dir={}", files.folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data lives as long as the test.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

pub(super) fn api_server(ports: Ports, files: &Files, options: Options) -> Vec<String> {
    let tokens = options.recorded_users.then(|| format!("--token-auth-file={}", files.tokens.display()));
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd_client),
        "--bind-address=127.0.0.1".to_owned(),
        // Nobody is told it. Without one the server looks for the default route, which a machine that is offline does not
        // have; this one is reserved for documentation, since loopback is refused.
        "--advertise-address=192.0.2.1".to_owned(),
        format!("--secure-port={}", ports.api_server),
        format!("--tls-cert-file={}", files.server_certificate.display()),
        format!("--tls-private-key-file={}", files.server_key.display()),
        format!("--client-ca-file={}", files.authority.display()),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", files.account_key.display()),
        format!("--service-account-key-file={}", files.account_public_key.display()),
        // A /24 would be full after 250 Services.
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        // The `kubernetes` Service may not point to loopback, and nobody here needs it to.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--audit-policy-file={}", files.audit_policy.display()),
        format!("--audit-log-path={}", files.audit_log.display()),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
        format!("--feature-gates=WatchList={}", options.streaming_lists),
    ];
    arguments.extend(tokens);
    arguments
}

pub(super) fn controller_manager(files: &Files) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", files.kubeconfig.display()),
        format!("--root-ca-file={}", files.authority.display()),
        format!("--service-account-private-key-file={}", files.account_key.display()),
        "--leader-elect=false".to_owned(),
        // 0: it serves nothing, so it needs no port.
        "--secure-port=0".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        // The defaults (20 and 30) would make tests wait for it.
        "--kube-api-qps=300".to_owned(),
        "--kube-api-burst=600".to_owned(),
        "--profiling=false".to_owned(),
    ]
}
