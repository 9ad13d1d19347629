//! What `flux up` shows: a tree that is drawn over itself on a terminal; elsewhere a line for each change.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::explain::Problem;
use crate::fleet::{Seen, Verdict, draw};
use crate::output;

/// What is wrong for a shorter time than this is not worth a word: it is being worked on.
const WORTH_TELLING: Duration = Duration::from_millis(900);
/// Of a terminal that does not say how high it is.
const USUAL_HEIGHT: usize = 24;

pub(super) struct Screen {
    started: Instant,
    /// When this round of changes began.
    round: Instant,
    first: bool,
    drawn: Vec<String>,
    said: BTreeMap<String, String>,
    timings: BTreeMap<String, Timing>,
    /// What is wrong, since when, and whether it was told.
    wrong: BTreeMap<Problem, (Instant, bool)>,
}

/// How an object got to where it is.
struct Timing {
    verdict: Verdict,
    version: String,
    since: Instant,
    /// How long it took to become ready, once it has.
    took: Option<Duration>,
}

impl Screen {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            round: started,
            first: true,
            drawn: Vec::new(),
            said: BTreeMap::new(),
            timings: BTreeMap::new(),
            wrong: BTreeMap::new(),
        }
    }

    pub(super) fn show(&mut self, objects: &[Seen], problems: &[Problem]) {
        let now = Instant::now();
        objects.iter().for_each(|object| self.time(object, now));
        let before = std::mem::take(&mut self.wrong);
        for problem in problems {
            let known = before.get(problem).copied().unwrap_or((now, false));
            self.wrong.insert(problem.clone(), known);
        }
        let mut out = std::io::stdout();
        if out.is_terminal() {
            let colour = std::env::var_os("NO_COLOR").is_none();
            let mut lines = draw::tree(objects, colour, &|object| self.timing(object, now));
            lines.extend(self.told(now).flat_map(Problem::lines));
            self.redraw(&mut out, lines);
        } else {
            self.tell_changes(&mut out, objects, now);
        }
    }

    /// Everything is ready: says so, below the tree as it is now.
    pub(super) fn settled(&mut self, objects: &[Seen]) {
        let ready = objects.iter().filter(|object| object.verdict == Verdict::Ready).count();
        let seconds = |since: Instant| format!("{:.1} s", since.elapsed().as_secs_f64());
        match self.first {
            true => output::success(&format!(
                "everything is ready after {} ({ready} objects)",
                seconds(self.started)
            )),
            false => {
                output::success(&format!("the change is applied, {} after it was seen", seconds(self.round)))
            }
        }
        self.first = false;
        self.drawn.clear();
    }

    /// Files have changed: from here on it is about that.
    pub(super) fn changed(&mut self) {
        output::action("a change was seen");
        self.round = Instant::now();
        self.drawn.clear();
    }

    fn time(&mut self, object: &Seen, now: Instant) {
        let version = object.revision().unwrap_or_default().to_owned();
        let known = self.timings.entry(object.id()).or_insert_with(|| Timing {
            verdict: Verdict::Waiting,
            version: version.clone(),
            since: now,
            took: None,
        });
        if known.version != version {
            // A new revision begins when the change was seen.
            (known.version, known.since, known.took) = (version, self.round.max(known.since), None);
        }
        match object.verdict {
            Verdict::Ready if known.took.is_none() => known.took = Some(now - known.since),
            Verdict::Failed | Verdict::Waiting if known.verdict == Verdict::Ready => {
                (known.since, known.took) = (now, None);
            }
            _ => {}
        }
        known.verdict = object.verdict;
    }

    fn timing(&self, object: &Seen, now: Instant) -> String {
        let Some(known) = self.timings.get(&object.id()) else { return String::new() };
        match object.verdict {
            Verdict::Suspended => String::new(),
            Verdict::Ready => known.took.map(shown).unwrap_or_default(),
            Verdict::Failed | Verdict::Waiting => shown(now - known.since),
        }
    }

    /// What has been wrong for long enough.
    fn told(&self, now: Instant) -> impl Iterator<Item = &Problem> {
        let lasting = move |(_, (since, _)): &(&Problem, &(Instant, bool))| now - *since >= WORTH_TELLING;
        self.wrong.iter().filter(lasting).map(|(problem, _)| problem)
    }

    fn redraw(&mut self, out: &mut impl Write, mut lines: Vec<String>) {
        let height = terminal_size::terminal_size().map_or(USUAL_HEIGHT, |(_, height)| usize::from(height.0));
        // What has left the screen at its top cannot be drawn over.
        let room = height.saturating_sub(2).max(4);
        if lines.len() > room {
            let left_out = lines.len() - room + 1;
            lines.drain(..left_out);
            lines.insert(0, format!("… {left_out} lines above; `flux get all -A` shows everything"));
        }
        if lines == self.drawn {
            return;
        }
        let up = self.drawn.len();
        let back = if up == 0 { String::new() } else { format!("\x1b[{up}A\x1b[J") };
        // Long lines are cut, not wrapped: a wrapped one would take two lines of the count.
        // A closed pipe is no reason to stop the cluster.
        let _ = writeln!(out, "{back}\x1b[?7l{}\x1b[?7h", lines.join("\n"));
        let _ = out.flush();
        self.drawn = lines;
    }

    fn tell_changes(&mut self, out: &mut impl Write, objects: &[Seen], now: Instant) {
        for object in objects {
            let state = format!("{} {}", object.mark(), state(object));
            if self.said.get(&object.id()) != Some(&state) {
                let timing =
                    if object.verdict == Verdict::Ready { self.timing(object, now) } else { String::new() };
                let _ = writeln!(out, "{}", format!("{:<44} {state} {timing}", object.id()).trim_end());
                self.said.insert(object.id(), state);
            }
        }
        for (problem, (since, told)) in &mut self.wrong {
            if !*told && now - *since >= WORTH_TELLING {
                *told = true;
                let _ = writeln!(out, "{}", problem.lines().join("\n"));
            }
        }
        let _ = out.flush();
    }
}

fn shown(took: Duration) -> String {
    format!("({:.1} s)", took.as_secs_f64())
}

fn state(object: &Seen) -> String {
    match object.verdict {
        Verdict::Waiting => "at work".to_owned(),
        Verdict::Suspended => "suspended".to_owned(),
        Verdict::Ready => object.message.clone(),
        Verdict::Failed => format!("{}: {}", object.reason, object.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(verdict: Verdict, revision: &str) -> Seen {
        Seen {
            kind: "Kustomization".to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            verdict,
            reason: "BuildFailed".to_owned(),
            message: "broken".to_owned(),
            object: json!({ "status": { "lastAppliedRevision": revision } }),
        }
    }

    #[test]
    fn a_new_revision_is_timed_from_when_the_change_was_seen() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut screen = Screen::new(start);
        screen.time(&seen(Verdict::Waiting, ""), at(1));
        screen.time(&seen(Verdict::Ready, ""), at(3));
        assert_eq!(screen.timing(&seen(Verdict::Ready, ""), at(9)), "(2.0 s)");
        screen.round = at(10);
        screen.time(&seen(Verdict::Ready, "main@sha1:1"), at(11));
        assert_eq!(screen.timing(&seen(Verdict::Ready, "main@sha1:1"), at(20)), "(1.0 s)");
        screen.time(&seen(Verdict::Failed, "main@sha1:1"), at(30));
        assert_eq!(screen.timing(&seen(Verdict::Failed, "main@sha1:1"), at(34)), "(4.0 s)");
    }

    #[test]
    fn elsewhere_than_on_a_terminal_each_change_is_a_line() {
        let mut screen = Screen::new(Instant::now());
        let mut out = Vec::new();
        for _ in 0..2 {
            screen.tell_changes(&mut out, &[seen(Verdict::Waiting, "")], Instant::now());
        }
        screen.tell_changes(&mut out, &[seen(Verdict::Failed, "")], Instant::now());
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[1].ends_with("✗ BuildFailed: broken"), "{text}");
    }
}
