//! The embedded API server on its own, to be tried with kubectl:
//!
//! ```text
//! cargo run --release -p apiserver --example apiserver -- --kubeconfig FILE [--port N] [--data DIR] [--no-simulation]
//! ```
//!
//! It is ready when FILE exists.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use apiserver::{Server, Simulation, User};
use clap::Parser;

#[derive(Parser)]
struct Args {
    /// Where to write the kubeconfig; the server is ready when it exists
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    bind: std::net::IpAddr,
    /// Folder to keep objects in; without it they are gone with the process
    #[arg(long)]
    data: Option<PathBuf>,
    /// Do not play workloads
    #[arg(long)]
    no_simulation: bool,
    /// How long workloads take to become ready, in milliseconds
    #[arg(long, default_value_t = 500)]
    ready_after: u64,
    /// File for the audit log
    #[arg(long)]
    audit_log: Option<PathBuf>,
    /// Accept this bearer token: TOKEN=USER[,GROUP…]
    #[arg(long)]
    token: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    // A file left by an earlier run would say "ready" too soon.
    match std::fs::remove_file(&args.kubeconfig) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let started = std::time::Instant::now();
    let mut builder = Server::builder();
    if let Some(folder) = args.data {
        builder = builder.data_dir(folder);
    }
    if !args.no_simulation {
        builder = builder.simulation(Simulation::On { delay: Duration::from_millis(args.ready_after) });
    }
    if let Some(file) = args.audit_log {
        builder = builder.audit_log(file);
    }
    for token in &args.token {
        let (token, who) = token.split_once('=').ok_or("--token takes TOKEN=USER[,GROUP…]")?;
        let mut names = who.split(',');
        let name = names.next().unwrap_or_default();
        builder = builder.token(token, User::new(name, &names.collect::<Vec<_>>()));
    }
    let server = builder.start().await?;
    let listening = server.serve(SocketAddr::new(args.bind, args.port)).await?;
    listening.write_kubeconfig(&args.kubeconfig)?;
    eprintln!("ready on {} after {} ms", listening.url(), started.elapsed().as_millis());
    tokio::signal::ctrl_c().await?;
    server.shutdown();
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}
