//! A Kubernetes-compatible API server as an in-process tower service.
//!
//! ```text
//!   kubectl, helm, controllers ── TLS ──┐
//!                                       ├─▶ service: who asks? may they?  ─▶ verbs ─▶ rest ─▶ storage ─▶ watchers
//!   kube::Client::new(service, ns) ─────┘        (auth)                        │       │         │
//!                                                                   discovery, table   │     durable (redb)
//!                                                                     decode, convert, defaults,
//!                                                                     validate, admission, ownership
//!   cluster (CRDs, namespaces, garbage, roles) and simulate (workloads) are clients of `rest` like anybody else.
//! ```
//!
//! Deliberately absent: nodes, scheduling, networking, admission webhooks, aggregated API servers. It knows nothing of
//! Flux.
//!
//! ```no_run
//! # async fn example() -> Result<(), apiserver::Error> {
//! let server = apiserver::Server::builder().start().await?;
//! let service = server.service(); // kube::Client::new(service, "default")
//! let listening = server.serve(([127, 0, 0, 1], 0).into()).await?;
//! println!("{}", listening.kubeconfig());
//! # Ok(())
//! # }
//! ```

mod serve;
mod server;
mod service;

pub mod apply;
pub mod patch;
pub mod structural;

mod admission;
mod audit;
mod auth;
mod cluster;
mod convert;
mod custom;
mod decode;
mod defaults;
mod discovery;
mod kept;
mod kinds;
mod logs;
mod media;
mod metrics;
mod object;
mod openapi;
mod ownership;
mod protobuf;
mod request;
mod respond;
mod rest;
mod reviews;
mod selector;
mod simulate;
mod status;
mod storage;
mod strategy;
mod table;
mod tls;
mod validate;
mod verbs;
mod yaml_text;

pub use auth::User;
pub use logs::{Log, LogLine, LogOf, LogSource};
pub use respond::Body;
pub use serve::Listening;
pub use server::{Builder, Clock, Error, Handle, Server, Simulation};
pub use service::Service;
