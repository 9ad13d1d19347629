//! What the controllers of this process log, kept for each as the log of its Pod.
//!
//! Everything runs in one process, so the lines come mixed; the object a line is about tells whose it is. What is about no
//! object belongs to all.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use apiserver::{Log, LogLine, LogOf, LogSource};
use flux_api::kinds::{self, Controller};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::broadcast;
use tracing_subscriber::fmt::MakeWriter;

use super::cluster::NAMESPACE;

/// Lines kept for each controller.
const MOST_LINES: usize = 5_000;
/// How far a reader may fall behind before it misses lines.
const AHEAD: usize = 1_024;
/// The container that upstream runs a controller in.
const CONTAINER: &str = "manager";

pub(crate) struct LogBook {
    pages: BTreeMap<Controller, Mutex<Page>>,
}

struct Page {
    lines: VecDeque<LogLine>,
    told: broadcast::Sender<LogLine>,
}

impl LogBook {
    pub(crate) fn new(controllers: impl IntoIterator<Item = Controller>) -> Self {
        let page = || Mutex::new(Page { lines: VecDeque::new(), told: broadcast::channel(AHEAD).0 });
        Self { pages: controllers.into_iter().map(|controller| (controller, page())).collect() }
    }

    fn write(&self, text: &str, now: Timestamp) {
        let line = LogLine { time: now, text: text.to_owned() };
        match author(text) {
            Some(author) => self.append(author, line),
            None => self.pages.keys().for_each(|controller| self.append(*controller, line.clone())),
        }
    }

    fn append(&self, controller: Controller, line: LogLine) {
        let Some(page) = self.pages.get(&controller) else { return };
        let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
        if page.lines.len() == MOST_LINES {
            page.lines.pop_front();
        }
        page.lines.push_back(line.clone());
        // Nobody listening is fine.
        let _ = page.told.send(line);
    }
}

/// The controller of the kind that the line is about.
fn author(text: &str) -> Option<Controller> {
    let line: Value = serde_json::from_str(text).ok()?;
    kinds::by_kind(line.get("controllerKind")?.as_str()?).map(|kind| kind.controller)
}

impl LogSource for LogBook {
    fn open(&self, of: &LogOf<'_>) -> Option<Log> {
        if of.namespace != NAMESPACE || of.container != CONTAINER {
            return None;
        }
        let owns = |controller: &Controller| {
            of.pod.strip_prefix(controller.as_str()).is_some_and(|rest| rest.starts_with('-'))
        };
        let (_, page) = self.pages.iter().find(|(controller, _)| owns(controller))?;
        let page = page.lock().unwrap_or_else(PoisonError::into_inner);
        let coming = futures::stream::unfold(page.told.subscribe(), |mut lines| async move {
            loop {
                match lines.recv().await {
                    Ok(line) => return Some((line, lines)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        Some(Log { written: page.lines.iter().cloned().collect(), coming: Box::pin(coming) })
    }
}

/// Has log lines end up in a book.
#[derive(Clone)]
pub(crate) struct IntoBook(pub(crate) Arc<LogBook>);

impl<'a> MakeWriter<'a> for IntoBook {
    type Writer = IntoBook;

    fn make_writer(&'a self) -> IntoBook {
        self.clone()
    }
}

/// Every call is one event; a line is never written in parts.
impl io::Write for IntoBook {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let now = Timestamp::now();
        for line in String::from_utf8_lossy(bytes).lines() {
            self.0.write(line, now);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use std::io::Write;

    fn read(book: &LogBook, pod: &str) -> Option<Log> {
        book.open(&LogOf { namespace: NAMESPACE, pod, container: CONTAINER })
    }

    #[tokio::test]
    async fn a_line_is_in_the_log_of_the_controller_whose_object_it_is_about() {
        let book = Arc::new(LogBook::new([Controller::Source, Controller::Kustomize]));
        let mut writer = IntoBook(book.clone());
        let about = |kind: &str| format!("{{\"msg\":\"m\",\"controllerKind\":\"{kind}\"}}\n");
        writer.write_all(about("GitRepository").as_bytes()).unwrap();
        writer.write_all(about("Kustomization").as_bytes()).unwrap();
        writer.write_all(b"{\"msg\":\"starting\"}\n").unwrap();
        let source = read(&book, "source-controller-5d9-abc").unwrap();
        let texts: Vec<&str> = source.written.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, [about("GitRepository").trim(), "{\"msg\":\"starting\"}"]);
        assert_eq!(read(&book, "kustomize-controller-1-2").unwrap().written.len(), 2);
        assert!(read(&book, "source-watcher-1-2").is_none(), "nobody of ours");
        assert!(read(&book, "web-1-2").is_none(), "a workload");

        let mut coming = source.coming;
        writer.write_all(about("HelmChart").as_bytes()).unwrap();
        assert_eq!(coming.next().await.unwrap().text, about("HelmChart").trim());
    }

    #[test]
    fn a_book_does_not_grow_for_ever() {
        let book = Arc::new(LogBook::new([Controller::Source]));
        for _ in 0..MOST_LINES + 10 {
            IntoBook(book.clone()).write_all(b"{}\n").unwrap();
        }
        assert_eq!(read(&book, "source-controller-a").unwrap().written.len(), MOST_LINES);
    }
}
