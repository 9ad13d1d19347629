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
    /// One in so many matching requests, by chance; the same ones in each run.
    OneIn(u64),
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
    chance: u64,
}

impl Rule {
    fn is_met(&mut self, path: &str) -> bool {
        if !path.contains(&self.path_contains) {
            return false;
        }
        let Times::OneIn(many) = self.times else { return true };
        // xorshift: nobody guesses it, everybody gets the same.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance.is_multiple_of(many)
    }
}

impl Faults {
    /// Requests whose path (over SSH: command) contains `path` go wrong in this way.
    pub fn inject(&self, path_contains: &str, times: Times, fault: Fault) {
        let mut rules = self.rules();
        let chance = 0x9e37_79b9_7f4a_7c15 ^ rules.len() as u64;
        rules.push(Rule { path_contains: path_contains.to_owned(), times, fault, chance });
    }

    /// Everything is well again; stalled requests are answered.
    pub fn clear(&self) {
        self.rules().clear();
        self.cleared.notify_waiters();
    }

    /// The fault that this request meets, which is then used up once.
    pub(crate) fn take(&self, path: &str) -> Option<Fault> {
        let mut rules = self.rules();
        let position = rules.iter_mut().position(|rule| rule.is_met(path))?;
        let fault = rules[position].fault.clone();
        match &mut rules[position].times {
            Times::Always | Times::OneIn(_) => {}
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
    fn a_fault_by_chance_comes_about_as_often_as_it_was_told() {
        let faults = Faults::default();
        faults.inject("/a", Times::OneIn(4), Fault::Status(503));
        let met = (0..1000).filter(|_| faults.take("/a").is_some()).count();
        assert!((200..300).contains(&met), "{met}");
        assert_eq!(faults.take("/b"), None);
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
