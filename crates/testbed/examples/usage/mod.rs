//! What a controller under measurement has used so far.

use anyhow::{Result, bail};

/// CPU seconds and the most memory in MiB of the process that was started with this kubeconfig.
pub fn of(kubeconfig: &str) -> Result<(f64, f64)> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(command) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if !command.contains(kubeconfig) || !command.contains(" serve ") || command.contains("supervisor") {
            continue;
        }
        let stat = std::fs::read_to_string(entry.path().join("stat"))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
        let status = std::fs::read_to_string(entry.path().join("status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let peak: f64 = peak.trim().trim_end_matches(" kB").trim().parse().unwrap_or_default();
        return Ok(((ticks(11) + ticks(12)) / 100.0, peak / 1024.0));
    }
    bail!("the controller is gone")
}
