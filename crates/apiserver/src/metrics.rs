//! `/metrics`: a few numbers under the names a real API server gives them.

use std::fmt::Write as _;

use crate::auth::flow;
use crate::server::Inner;

pub fn text(server: &Inner) -> String {
    let mut out = String::new();
    metric(&mut out, "apiserver_flowcontrol_nominal_limit_seats", "Seats of each priority level.");
    for (level, seats) in flow::seats(&server.store) {
        let _ =
            writeln!(out, "apiserver_flowcontrol_nominal_limit_seats{{priority_level={level:?}}} {seats}");
    }
    metric(&mut out, "apiserver_resource_objects", "Objects of each kind that are kept.");
    for resource in server.registry().all_stored() {
        let count = server.store.count(&resource.storage);
        let (group, plural) = (&resource.group, &resource.plural);
        let _ = writeln!(out, "apiserver_resource_objects{{group={group:?},resource={plural:?}}} {count}");
    }
    metric(&mut out, "apiserver_storage_revision", "The revision of the newest write.");
    let _ = writeln!(out, "apiserver_storage_revision {}", server.store.revision());
    out
}

fn metric(out: &mut String, name: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
}
