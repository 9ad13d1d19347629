//! End-to-end stories: controllers at work on a cluster. Each story takes a [`Cluster`] and does not know which.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod artifact_generator;
mod bucket;
mod bucket_clouds;
mod clouds;
mod flux;
mod git_hostile;
mod git_login;
mod git_parts;
mod git_repository;
mod git_verification;
mod health;
mod helm_chart;
mod helm_charts;
mod helm_crash;
mod helm_lifecycle;
mod helm_never_stuck;
mod helm_options;
mod helm_release;
mod helm_repository;
mod helm_sources;
mod helm_swap;
mod image_automation;
mod image_reflector;
mod interchange;
mod kustomization;
mod kustomization_apply;
mod kustomization_crash;
mod kustomization_decryption;
mod kustomization_dependencies;
mod kustomization_drift;
mod kustomization_health;
mod kustomization_identity;
mod kustomization_kill;
mod kustomization_latency;
mod kustomization_prune;
mod kustomization_renames;
mod kustomization_self_management;
mod kustomization_sources;
mod kustomization_swap;
mod kustomization_teardown;
mod kustomization_told;
mod notification;
mod oci_repository;
mod receivers;
mod source_trouble;
mod sources;
#[path = "loop.rs"]
mod the_loop;
mod trust;

/// Runs each story on every kind of cluster, as one test each.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        mod on_a_real_control_plane {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    super::$name(&testbed::Cluster::real().await.unwrap()).await;
                }
            )+
        }

        mod on_the_embedded_server {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    super::$name(&testbed::Cluster::embedded().await.unwrap()).await;
                }
            )+
        }
    };
}
pub(crate) use stories;

/// Runs each of these stories, which are of what upstream does too, once more with `--compat=upstream`; with `--peers` on a real
/// control plane as well.
macro_rules! parity {
    ($($name:ident),+ $(,)?) => {
        mod with_all_of_upstreams_behaviour {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    let cluster = testbed::Cluster::embedded().await.unwrap();
                    crate::flux::AS_UPSTREAM.scope((), super::$name(&cluster)).await;
                }
            )+
        }

        mod with_all_of_upstreams_behaviour_on_a_real_control_plane {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[ignore = "peers: the embedded server has shown it"]
                async fn $name() {
                    let cluster = testbed::Cluster::real().await.unwrap();
                    crate::flux::AS_UPSTREAM.scope((), super::$name(&cluster)).await;
                }
            )+
        }
    };
}
pub(crate) use parity;

/// Stories that are all of what upstream does too.
macro_rules! parity_stories {
    ($($name:ident),+ $(,)?) => {
        crate::stories!($($name),+);
        crate::parity!($($name),+);
    };
}
pub(crate) use parity_stories;
