//! Child processes that do not outlive their owner, however the owner ends.
//!
//! Every child runs under a small shell supervisor whose standard input is a pipe held open by this
//! process. When the owner drops the child, returns from `main`, panics or is killed, the pipe closes
//! and the supervisor ends the child by its process id. `PR_SET_PDEATHSIG` is not used: it would fire
//! when the *thread* that started the child ends, and test threads end early.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Waits for the child on one side and for the owner's pipe on the other; whichever ends first ends the rest.
/// TERM is passed on, for those who end by themselves when asked; it also ends the first `wait`, hence the second.
/// Descriptor 3 is the pipe, since a shell gives its background jobs `/dev/null` as standard input.
const SUPERVISOR: &str = r#"
exec 3<&0 0</dev/null
"$@" 3<&- &
child=$!
{ read -r _ <&3; kill -KILL "$child"; } 2>/dev/null &
watcher=$!
exec 3<&-
trap 'kill -TERM "$child"' TERM
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
kill "$watcher" 2>/dev/null
exit "$code"
"#;

/// Removes a scratch folder once its owner is gone and the owner's children have had time to die.
const JANITOR: &str = r#"read -r _; sleep 1; case "$1" in */flux-testbed-*) rm -rf -- "$1";; esac"#;

/// A running server process, ended when this value is dropped.
pub struct Supervised {
    name: String,
    supervisor: Child,
    log: PathBuf,
}

impl Supervised {
    /// Starts `program` with both of its streams going to `log`.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        log: &Path,
    ) -> Result<Self> {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C in the terminal must reach the owner only: it decides the order of the shutdown.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { name, supervisor, log: log.to_owned() })
    }

    /// Says why the process ended, if it did.
    pub fn failure(&mut self) -> io::Result<Option<String>> {
        let Some(status) = self.supervisor.try_wait()? else {
            return Ok(None);
        };
        let tail = last_lines(&self.log, 15);
        Ok(Some(format!("{} ended: {status}\n{tail}", self.name)))
    }

    /// Asks the process to end, as Kubernetes does, and says how it ended.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        Command::new("kill").args(["-TERM", &self.supervisor.id().to_string()]).status().context("kill")?;
        let started = Instant::now();
        loop {
            if let Some(status) = self.supervisor.try_wait()? {
                return Ok(status);
            }
            if started.elapsed() > limit {
                bail!("{} did not end within {limit:?}\n{}", self.name, last_lines(&self.log, 15));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the process and waits until it is gone.
    pub fn stop(&mut self) {
        // The pipe is the leash: closing it makes the supervisor kill the child, then end itself.
        drop(self.supervisor.stdin.take());
        // An error here means that it is gone already.
        let _ = self.supervisor.wait();
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A temporary folder that disappears with its owner, also when the owner is killed.
pub struct Scratch {
    folder: tempfile::TempDir,
    _janitor: Child,
}

impl Scratch {
    pub fn new() -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("flux-testbed-").tempdir().context("make a scratch folder")?;
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start the janitor of the scratch folder")?;
        Ok(Self { folder, _janitor: janitor })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// The end of a log, for error messages.
pub fn last_lines(log: &Path, count: usize) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| file.read_to_end(&mut bytes));
    if let Err(error) = read {
        return format!("(no log at {}: {error})", log.display());
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: &str) -> bool {
        Path::new("/proc").join(pid.trim()).exists()
    }

    fn gone_within(pid: &str, limit: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < limit {
            if !alive(pid) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Starts a child that writes its own process id into the log and then waits for ever.
    fn sleeper(folder: &Path) -> (Supervised, String) {
        let log = folder.join("log");
        let child = Supervised::start(Path::new("sh"), ["-c", "echo $$; exec sleep 600"], &log).unwrap();
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(&log).unwrap();
            if text.ends_with('\n') {
                return (child, text.trim().to_owned());
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no pid: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (child, pid) = sleeper(folder.path());
        assert!(alive(&pid));
        drop(child);
        assert!(gone_within(&pid, Duration::from_secs(10)));
    }

    #[test]
    fn a_child_that_fails_is_reported_with_its_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut child =
            Supervised::start(Path::new("sh"), ["-c", "echo no such flag; exit 3"], &log).unwrap();
        let start = Instant::now();
        let failure = loop {
            if let Some(failure) = child.failure().unwrap() {
                break failure;
            }
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(failure.contains("exit status: 3"), "{failure}");
        assert!(failure.contains("no such flag"), "{failure}");
    }

    #[test]
    fn a_process_that_is_asked_to_end_has_the_last_word() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
        let log = folder.path().join("log");
        let mut child = Supervised::start(Path::new("sh"), ["-c", script], &log).unwrap();
        while !std::fs::read_to_string(&log).unwrap().contains("ready") {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(child.terminate(Duration::from_secs(20)).unwrap().code(), Some(7));
        assert!(std::fs::read_to_string(&log).unwrap().contains("bye"));
    }

    /// What the process that gets killed does: own a child and a scratch folder, say so, wait.
    fn be_the_owner(folder: &Path) {
        let scratch = Scratch::new().unwrap();
        let (_child, pid) = sleeper(scratch.path());
        let ready = format!("{pid} {}\n", scratch.path().display());
        std::fs::write(folder.join("ready"), ready).unwrap();
        std::thread::park();
    }

    #[test]
    fn a_killed_owner_takes_its_children_along() {
        // The same test in a second process plays the owner.
        if let Some(folder) = std::env::var_os("FLUX_TESTBED_OWNER_FOLDER") {
            return be_the_owner(Path::new(&folder));
        }
        let folder = tempfile::tempdir().unwrap();
        let this = "process::tests::a_killed_owner_takes_its_children_along";
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this])
            .env("FLUX_TESTBED_OWNER_FOLDER", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let ready = loop {
            match std::fs::read_to_string(folder.path().join("ready")) {
                Ok(text) if text.ends_with('\n') => break text,
                _ => assert!(start.elapsed() < Duration::from_secs(30), "owner not ready"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let (pid, scratch) = ready.trim().split_once(' ').unwrap();
        assert!(alive(pid));
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(gone_within(pid, Duration::from_secs(10)));
        let start = Instant::now();
        while Path::new(scratch).exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "{scratch} left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
