//! ClusterRoles that gather the rules of others by label (`admin`, `edit`, `view`).

use std::sync::Arc;

use serde_json::Value;

use crate::rest::Call;
use crate::rest::update::{Managers, change};
use crate::selector::LabelSelector;
use crate::server::Inner;

const PLACE: &str = "clusterroles.rbac.authorization.k8s.io";

pub async fn run_on_change(server: Arc<Inner>) {
    loop {
        server.controllers.aggregation.next().await;
        run(&server).await;
    }
}

/// Brings every aggregated role up to date; `admin` gathers from `edit`, so until nothing changes.
pub async fn run(server: &Arc<Inner>) {
    for _ in 0..8 {
        if !pass(server).await {
            return;
        }
    }
}

async fn pass(server: &Arc<Inner>) -> bool {
    let registry = server.registry();
    let Some(resource) = registry.stored(PLACE) else { return false };
    let (_, roles) = server.store.list(PLACE, "");
    let mut changed = false;
    for stored in &roles {
        let role = stored.value();
        let Some(selectors) = role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array)
        else {
            continue;
        };
        let selectors: Vec<LabelSelector> = selectors.iter().map(LabelSelector::from_object).collect();
        let mut rules: Vec<Value> = Vec::new();
        for source in roles.iter().filter(|source| source.key != stored.key) {
            if !selectors.iter().any(|selector| selector.matches(|key| source.label(key))) {
                continue;
            }
            for rule in source.value()["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        if role["rules"].as_array() == Some(&rules) || (rules.is_empty() && role["rules"].is_null()) {
            continue;
        }
        let call = Call::internal(server, resource, "", &stored.key, "clusterrole-aggregation-controller");
        let outcome = change(&call, Managers::Update, |old| {
            let mut new = old.clone();
            new["rules"] = Value::Array(rules.clone());
            Ok(new)
        });
        changed |= outcome.await.is_ok();
    }
    changed
}
