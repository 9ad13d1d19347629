//! A testbed that outlives the command that started it, until `down`.
//!
//! The process behind it listens on a Unix socket: a connection that can be made means it runs, and the
//! line `down` ends it. There is no process-id file that could name a stranger.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testbed::Cluster;
use testbed::git_server::GitServer;
use testbed::process::last_lines;
use testbed::reference;

/// A cold start builds the control plane first.
const START_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Starts the process in the background, unless it runs, and waits until it answers.
pub(super) fn up() -> Result<()> {
    if ask("status").is_ok() {
        println!("already up");
        return status();
    }
    std::fs::create_dir_all(folder()?)?;
    // Built here, where the progress can be seen.
    for tool in [reference::Tool::Etcd, reference::Tool::Kubernetes(reference::Kubernetes::V1_36)] {
        for binary in tool.binaries() {
            reference::binary(tool, binary)?;
        }
    }
    let log = folder()?.join("log");
    let output = std::fs::File::create(&log)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("run")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .context("start the testbed")?;
    let started = Instant::now();
    loop {
        if let Ok(answer) = ask("status") {
            print!("{answer}");
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended: {status}\n{}", last_lines(&log, 20));
        }
        if started.elapsed() > START_LIMIT {
            child.kill()?;
            bail!("it did not start in time\n{}", last_lines(&log, 20));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(super) fn status() -> Result<()> {
    match ask("status") {
        Ok(answer) => print!("{answer}"),
        Err(_) => println!("down"),
    }
    Ok(())
}

pub(super) fn down() -> Result<()> {
    match ask("down") {
        Ok(_) => println!("down"),
        Err(_) => println!("already down"),
    }
    Ok(())
}

/// The process itself.
pub(super) fn run() -> Result<()> {
    std::fs::create_dir_all(folder()?)?;
    let _lock = reference::cache_folder().and_then(|cache| {
        let file = std::fs::File::create(cache.join("standing.lock"))?;
        file.try_lock().context("another testbed of yours is running")?;
        Ok(file)
    })?;
    let runtime = tokio::runtime::Runtime::new()?;
    let cluster = runtime.block_on(Cluster::real())?;
    let git = GitServer::start()?;
    let kubeconfig = folder()?.join("kubeconfig");
    std::fs::copy(cluster.kubeconfig_path(), &kubeconfig)?;
    let description = format!(
        "up\nexport KUBECONFIG={}\ngit over http: {}/NAME.git (repositories in {})\ngit over ssh: {}\nlogs: {}\n",
        kubeconfig.display(),
        git.http().url(),
        git.root().display(),
        git.ssh_url("NAME"),
        cluster.control_plane()?.folder().display(),
    );
    // With the lock held, a socket that is there is a dead process's.
    let _ = std::fs::remove_file(socket()?);
    let listener = UnixListener::bind(socket()?).context("listen for status and down")?;
    print!("{description}");
    for stream in listener.incoming() {
        if serve(stream?, &description).unwrap_or(false) {
            break;
        }
    }
    std::fs::remove_file(socket()?)?;
    Ok(())
}

/// Answers one question; true when it was `down`.
fn serve(mut stream: UnixStream, description: &str) -> Result<bool> {
    let mut question = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut question)?;
    if question.trim() == "down" {
        stream.write_all(b"ending\n")?;
        return Ok(true);
    }
    stream.write_all(description.as_bytes())?;
    Ok(false)
}

fn ask(question: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket()?)?;
    writeln!(stream, "{question}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn folder() -> Result<PathBuf> {
    Ok(reference::cache_folder()?.join("standing"))
}

fn socket() -> Result<PathBuf> {
    Ok(folder()?.join("socket"))
}
