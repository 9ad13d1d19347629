//! DaemonSet: one pod on the one node.

use serde_json::{Value, json};

use super::{Player, pods, template_hash};
use crate::object::{self, text};
use crate::status::Status;

const PLACE: &str = "daemonsets.apps";

pub(super) async fn reconcile(player: &Player, set: &Value) -> Result<(), Status> {
    if object::is_deleting(set) {
        return Ok(());
    }
    let hash = template_hash(&set["spec"]["template"]);
    let is_new = |pod: &Value| text(pod, "/metadata/labels/controller-revision-hash") == hash;
    let active = pods::active(player.owned("pods", set));
    if text(set, "/spec/updateStrategy/type") != "OnDelete" {
        for pod in active.iter().filter(|pod| !is_new(pod)) {
            player.delete("pods", pod, Some(0)).await?;
        }
    }
    if active.is_empty() {
        let mut pod = pods::from_template(set, &set["spec"]["template"], "");
        let labels = object::map_in(object::meta_mut(&mut pod), "labels");
        labels.insert("controller-revision-hash".into(), hash.as_str().into());
        let name = crate::rest::create::generate_name(object::meta_str(&pod, "generateName"));
        object::set_meta(&mut pod, "name", Some(name.into()));
        player.create("pods", pod).await?;
    }
    let active = pods::active(player.owned("pods", set));
    let (ready, updated) = (pods::ready_count(&active), active.iter().filter(|pod| is_new(pod)).count());
    let generation = object::integer(set, "/metadata/generation").unwrap_or(1);
    player
        .change(PLACE, set, "status", |set| {
            let mut status = json!({
                "currentNumberScheduled": active.len().min(1), "desiredNumberScheduled": 1, "numberMisscheduled": 0,
                "numberReady": ready, "observedGeneration": generation,
            });
            let unavailable = 1usize.saturating_sub(ready);
            for (key, count) in [("updatedNumberScheduled", updated), ("numberAvailable", ready), ("numberUnavailable", unavailable)] {
                if count > 0 {
                    status[key] = count.into();
                }
            }
            set["status"] = status;
        })
        .await
}
