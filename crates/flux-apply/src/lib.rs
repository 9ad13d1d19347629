//! What changes a cluster: staged server-side apply, inventory, prune, health.
