//! Stories: tests that take a [`Cluster`] and run unchanged on each kind of it.
//!
//! ```text
//! async fn a_deployment_becomes_ready(cluster: &Cluster) -> anyhow::Result<()> { … }
//!
//! testbed::stories! { a_deployment_becomes_ready }
//! ```
//!
//! makes the tests `on_the_embedded_server::a_deployment_becomes_ready` and
//! `on_a_real_control_plane::a_deployment_becomes_ready`.

use crate::Cluster;

/// Runs each story on every kind of cluster, as one test each.
#[macro_export]
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        mod on_the_embedded_server {
            $(
                #[test]
                fn $name() -> impl ::std::process::Termination {
                    $crate::story::on_the_embedded_server(async |cluster| super::$name(&cluster).await)
                }
            )+
        }
        mod on_a_real_control_plane {
            $(
                #[test]
                fn $name() -> impl ::std::process::Termination {
                    $crate::story::on_a_real_control_plane(async |cluster| super::$name(&cluster).await)
                }
            )+
        }
    };
}

#[doc(hidden)]
pub fn on_the_embedded_server<R>(story: impl AsyncFnOnce(Cluster) -> R) -> R {
    run(async {
        let cluster = Cluster::embedded().await;
        story(cluster.expect("the embedded server starts")).await
    })
}

#[doc(hidden)]
pub fn on_a_real_control_plane<R>(story: impl AsyncFnOnce(Cluster) -> R) -> R {
    run(async {
        let cluster = Cluster::real().await;
        story(cluster.expect("the control plane starts")).await
    })
}

fn run<R>(story: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made wherever threads can")
        .block_on(story)
}
