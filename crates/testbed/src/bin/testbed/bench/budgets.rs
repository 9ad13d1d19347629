//! What a step of ours may cost at most, as a share of what the peer's costs, and whether it did.

use super::Step;

/// For fleets of a hundred, and up to so many, Kustomizations: shares of the peer's CPU, of its API server's CPU, and of its time until a
/// change is live; and mebibytes of memory.
struct Budget {
    step: &'static str,
    up_to: usize,
    cpu: f64,
    api_server: Option<f64>,
    live: Option<f64>,
    memory: Option<f64>,
}

const BUDGETS: [Budget; 4] = [
    Budget { step: "install", up_to: 100, cpu: 20.0, api_server: Some(2.0), live: None, memory: Some(80.0) },
    Budget { step: "install", up_to: 300, cpu: 20.0, api_server: Some(3.0), live: None, memory: None },
    Budget { step: "commit", up_to: 100, cpu: 50.0, api_server: None, live: Some(30.0), memory: None },
    Budget { step: "no-op", up_to: 100, cpu: 50.0, api_server: Some(5.0), live: None, memory: None },
];

/// One line for each step that has a budget.
pub(super) fn held(kustomizations: usize, ours: &[Step], theirs: &[Step]) -> Vec<String> {
    let pairs = ours.iter().zip(theirs);
    pairs.filter_map(|(ours, theirs)| line(find(ours.name, kustomizations)?, ours, theirs)).collect()
}

fn find(step: &str, kustomizations: usize) -> Option<&'static Budget> {
    // In a smaller fleet the start of the process is most of what is measured.
    BUDGETS.iter().find(|budget| budget.step == step && (100..=budget.up_to).contains(&kustomizations))
}

fn line(budget: &Budget, ours: &Step, theirs: &Step) -> Option<String> {
    let mut parts = vec![share("CPU", ours.controllers, theirs.controllers, budget.cpu)];
    if let Some(most) = budget.api_server {
        parts.push(share("API server", ours.api_server, theirs.api_server, most));
    }
    if let (Some(most), Some(ours), Some(theirs)) = (budget.live, ours.live, theirs.live) {
        parts.push(share("change live", ours.as_secs_f64(), theirs.as_secs_f64(), most));
    }
    if let Some(most) = budget.memory {
        parts.push(format!("memory {:.1} of {most:.0} MiB: {}", ours.peak, verdict(ours.peak <= most)));
    }
    Some(format!("{:<8} budgets: {}", ours.name, parts.join(", ")))
}

fn share(what: &str, ours: f64, theirs: f64, most: f64) -> String {
    format!("{what} 1/{most:.0}: {}", verdict(ours * most <= theirs))
}

fn verdict(held: bool) -> &'static str {
    if held { "held" } else { "MISSED" }
}
