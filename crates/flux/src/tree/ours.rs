//! Commands that upstream does not have. Rows only: what they do stands in `commands`.

use super::flag::{boolean, boolean_on, duration, int, string, strings};
use super::{Args, Row, row};

pub(super) static ROWS: &[Row] = &[
    row("up", "Run a fleet on this machine, without a cluster").args(Args::AtMost(1)).flags(&[
        string("path", ""),
        string("state", ""),
        int("port", "0"),
        boolean("once"),
    ]),
    row("serve", "Run the controllers against a cluster").args(Args::None).flags(&[
        strings("controllers", "source,kustomize"),
        string("storage-path", "/data"),
        string("storage-addr", "0.0.0.0:9090"),
        string("storage-adv-addr", ""),
        string("events-addr", ""),
        int("concurrent", "0"),
        boolean_on("watch-all-namespaces"),
        boolean("no-cross-namespace-refs"),
        string("default-service-account", ""),
        duration("requeue-dependency", "30s"),
        int("http-retry", "9"),
    ]),
];
