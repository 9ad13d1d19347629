//! Trouble on request: a server can be told to refuse, to stall, or to cut the connection.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answer with this HTTP status (over SSH: with this exit status).
    Status(u16),
    /// Accept the request and never answer it, until [`Faults::clear`].
    Stall,
    /// Send this many bytes of the answer, then break the connection.
    CutAfter(usize),
}

/// How often it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Always,
    /// This many matching requests, then everything is well again.
    Next(usize),
}

/// The faults that a server has been told to show. Clones share them.
#[derive(Clone, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
    cleared: Arc<Notify>,
}

struct Rule {
    path_contains: String,
    times: Times,
    fault: Fault,
}

impl Faults {
    /// Requests whose path (over SSH: command) contains `path` go wrong in this way.
    pub fn inject(&self, path_contains: &str, times: Times, fault: Fault) {
        self.rules().push(Rule { path_contains: path_contains.to_owned(), times, fault });
    }

    /// Everything is well again; stalled requests are answered.
    pub fn clear(&self) {
        self.rules().clear();
        self.cleared.notify_waiters();
    }

    /// The fault that this request meets, which is then used up once.
    pub(crate) fn take(&self, path: &str) -> Option<Fault> {
        let mut rules = self.rules();
        let position = rules.iter().position(|rule| path.contains(&rule.path_contains))?;
        let fault = rules[position].fault.clone();
        match &mut rules[position].times {
            Times::Always => {}
            Times::Next(left) if *left > 1 => *left -= 1,
            Times::Next(_) => {
                rules.remove(position);
            }
        }
        Some(fault)
    }

    /// Waits for [`Faults::clear`].
    pub(crate) async fn until_cleared(&self) {
        self.cleared.notified().await;
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_for_the_next_two_requests_is_gone_at_the_third() {
        let faults = Faults::default();
        faults.inject("/info/refs", Times::Next(2), Fault::Status(503));
        assert_eq!(faults.take("/a.git/info/refs"), Some(Fault::Status(503)));
        assert_eq!(faults.take("/a.git/HEAD"), None);
        assert_eq!(faults.take("/a.git/info/refs"), Some(Fault::Status(503)));
        assert_eq!(faults.take("/a.git/info/refs"), None);
    }

    #[test]
    fn a_lasting_fault_stays_until_it_is_cleared() {
        let faults = Faults::default();
        faults.inject("", Times::Always, Fault::Stall);
        assert_eq!(faults.take("/x"), Some(Fault::Stall));
        assert_eq!(faults.take("/y"), Some(Fault::Stall));
        faults.clear();
        assert_eq!(faults.take("/x"), None);
    }
}
