//! Workloads, played: what a cluster's controllers and nodes would do with Deployments, Jobs and the like.

use std::sync::Arc;

use tokio::sync::watch;

use crate::server::{Inner, Simulation};

/// Kinds whose changes the simulation looks at.
pub const PLACES: [&str; 9] = [
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "pods",
    "jobs.batch",
    "persistentvolumeclaims",
    "services",
    "nodes",
];

pub fn start(server: &Arc<Inner>, _stopped: &watch::Receiver<bool>) {
    if server.simulation == Simulation::Off {}
}
