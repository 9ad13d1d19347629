//! What a running function can reach: the templates being executed, the session, and through it the host.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::error::{Error, Limit};
use crate::host::Host;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::set::{Set, Template};
use crate::value::{Map, Value};

/// Why a function failed. Go shows it as `error calling NAME: TEXT`.
#[derive(Debug)]
pub struct Failure {
    text: String,
    limit: Option<Limit>,
}

impl Failure {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), limit: None }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The limit that was reached, if that is why it failed.
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { limit: error.limit(), text: error.to_string() }
    }
}

impl From<Limit> for Failure {
    fn from(limit: Limit) -> Self {
        Self { text: limit.to_string(), limit: Some(limit) }
    }
}

/// One render: the budget it has left, and the world it may ask. Several templates may be executed in a session; they
/// share its limits.
///
/// When it ends, maps into which a template put maps or lists (`set`, `merge`) are emptied: nothing else would free
/// those that came to hold themselves. Whoever wants values after the render copies them before the session ends.
pub struct Session<'h> {
    host: &'h dyn Host,
    limits: Limits,
    extension: Option<Rc<dyn Any>>,
    steps: Cell<u64>,
    pub(crate) memory: Memory,
    pub(crate) depth: Cell<u32>,
    /// Maps that were made to hold other containers after they were made: only through these can a cycle have come to
    /// be, which reference counting would never free.
    grown: RefCell<Vec<Map>>,
}

impl<'h> Session<'h> {
    pub fn new(host: &'h dyn Host, limits: Limits) -> Self {
        Self {
            host,
            limits,
            extension: None,
            steps: Cell::new(0),
            memory: Memory::default(),
            depth: Cell::new(0),
            grown: RefCell::new(Vec::new()),
        }
    }

    /// Something of the caller's own that its functions find again with [`Context::extension`].
    pub fn with_extension(mut self, extension: Rc<dyn Any>) -> Self {
        self.extension = Some(extension);
        self
    }

    pub fn host(&self) -> &'h dyn Host {
        self.host
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts one node executed or one turn of a loop.
    pub(crate) fn step(&self) -> Result<(), Limit> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > self.limits.steps {
            return Err(Limit::Steps(self.limits.steps));
        }
        if steps & 0x3ff == 0 && self.host.cancelled() {
            return Err(Limit::Cancelled);
        }
        Ok(())
    }

    /// Accounts for work inside a function that is not visible as steps.
    pub fn work(&self, steps: u64) -> Result<(), Limit> {
        let steps = self.steps.get().saturating_add(steps);
        self.steps.set(steps);
        if steps > self.limits.steps { Err(Limit::Steps(self.limits.steps)) } else { Ok(()) }
    }

    /// Refuses memory that is more than one value may take. Call it *before* allocating what a template's number asks
    /// for; the value a function returns is counted without its help.
    pub fn charge(&self, bytes: usize) -> Result<(), Limit> {
        let most = self.limits.value_bytes;
        if bytes > most { Err(Limit::ValueSize(most)) } else { Ok(()) }
    }

    /// Counts memory that grew without a new value, such as an entry set in a map.
    pub fn grow(&self, bytes: usize) -> Result<(), Limit> {
        self.memory.small(bytes as u64, &self.limits)
    }

    /// Remembers a map into which a container was put, so that a cycle through it is freed with the session.
    pub fn grew(&self, map: &Map, value: &Value) {
        if matches!(value, Value::Map(_) | Value::List(_)) {
            self.grown.borrow_mut().push(map.clone());
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        for map in self.grown.borrow_mut().drain(..) {
            drop(map.take());
        }
    }
}

/// What a function is handed besides its arguments.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub(crate) session: &'a Session<'a>,
    pub(crate) set: &'a Arc<Set>,
    pub(crate) template: &'a str,
}

impl<'a> Context<'a> {
    /// A context outside of any template, for calling functions from Rust.
    pub fn new(session: &'a Session<'a>, set: &'a Arc<Set>) -> Self {
        Self { session, set, template: "" }
    }

    pub fn session(&self) -> &'a Session<'a> {
        self.session
    }

    pub fn host(&self) -> &'a dyn Host {
        self.session.host
    }

    /// The templates that are being executed, as `include` and `tpl` see them.
    pub fn set(&self) -> &'a Arc<Set> {
        self.set
    }

    /// The name of the template that is being executed.
    pub fn template(&self) -> &'a str {
        self.template
    }

    /// What the caller put into the session.
    pub fn extension<T: 'static>(&self) -> Option<&'a T> {
        self.session.extension.as_ref()?.downcast_ref()
    }

    /// Executes a named template of the current set: what `include` does.
    pub fn include(&self, name: &str, data: &Value) -> Result<Vec<u8>, Error> {
        match self.set.lookup(name) {
            Some(template) => self.set.execute_template(self.session, &template, data),
            None => Err(Error::no_template(name, self.template)),
        }
    }

    /// Executes a template of another set within this session: what `tpl` does with a [`Set::extend`]ed set.
    pub fn execute(&self, set: &Arc<Set>, template: &Arc<Template>, data: &Value) -> Result<Vec<u8>, Error> {
        set.execute_template(self.session, template, data)
    }

    pub fn charge(&self, bytes: usize) -> Result<(), Failure> {
        Ok(self.session.charge(bytes)?)
    }

    pub fn work(&self, steps: u64) -> Result<(), Failure> {
        Ok(self.session.work(steps)?)
    }
}
