//! Upstream's controllers at work, from the Go registry.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::Cluster;
use crate::process::{Scratch, Supervised};
use crate::reference::{self, Controller, Tool};

/// Controllers that watch one namespace, until they are stopped or dropped. They elect no leader.
pub struct Upstream {
    running: Vec<Supervised>,
    scratch: Scratch,
}

impl Upstream {
    /// Builds what is not built yet, which takes minutes.
    pub fn start(cluster: &Cluster, namespace: &str, controllers: &[Controller]) -> Result<Self> {
        let scratch = Scratch::new()?;
        let mut running = Vec::new();
        for controller in controllers {
            let tool = Tool::Controller(*controller);
            let name = tool.binaries().next().unwrap_or_default();
            let binary = reference::binary(tool, name)?;
            // There are no flags for the first two.
            let mut arguments = vec![
                format!("KUBECONFIG={}", cluster.kubeconfig_path().display()),
                format!("RUNTIME_NAMESPACE={namespace}"),
                binary.display().to_string(),
                format!("--metrics-addr={}", free_address()?),
                format!("--health-addr={}", free_address()?),
                "--events-addr=".to_owned(),
                "--enable-leader-election=false".to_owned(),
                "--watch-all-namespaces=false".to_owned(),
            ];
            if let Controller::Source = controller {
                let storage = free_address()?;
                arguments.push(format!("--storage-path={}", scratch.path().display()));
                arguments.push(format!("--storage-addr={storage}"));
                arguments.push(format!("--storage-adv-addr={storage}"));
            }
            running.push(Supervised::start(
                Path::new("/usr/bin/env"),
                arguments,
                &log(&scratch, *controller),
            )?);
        }
        Ok(Self { running, scratch })
    }

    /// What a controller has logged so far.
    pub fn log(&self, controller: Controller) -> std::io::Result<String> {
        std::fs::read_to_string(log(&self.scratch, controller))
    }

    /// Why one of them ended, if one did.
    pub fn failure(&mut self) -> std::io::Result<Option<String>> {
        for process in &mut self.running {
            if let Some(failure) = process.failure()? {
                return Ok(Some(failure));
            }
        }
        Ok(None)
    }

    /// Ends them and waits until they are gone.
    pub fn stop(mut self) {
        for process in &mut self.running {
            process.stop();
        }
    }
}

fn log(scratch: &Scratch, controller: Controller) -> PathBuf {
    let name = Tool::Controller(controller).binaries().next().unwrap_or_default();
    scratch.path().join(format!("{name}.log"))
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
