//! What containers wrote: lines from whoever plays them.
//!
//! Nothing runs behind a pod here. An embedder that does run something, such as controllers in its own process, offers
//! its lines through a [`LogSource`]; `pods/log` (and with it `kubectl logs`) shows them. Reading options such as
//! `tailLines` are applied by the server.

use std::pin::Pin;

use futures::Stream;
use jiff::Timestamp;

/// Which container's lines are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOf<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub container: &'a str,
}

/// One line, without its line break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub time: Timestamp,
    pub text: String,
}

/// A container's log.
pub struct Log {
    /// What is there already, oldest first.
    pub written: Vec<LogLine>,
    /// What comes after that, for those who follow; ends when the container does.
    pub coming: Pin<Box<dyn Stream<Item = LogLine> + Send>>,
}

/// Knows what containers wrote.
pub trait LogSource: Send + Sync {
    /// `None` when this container is not one of the source's: it is played then.
    fn open(&self, of: &LogOf<'_>) -> Option<Log>;
}
