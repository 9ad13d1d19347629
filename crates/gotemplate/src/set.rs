//! A set of named templates: parsing into it, extending it, executing from it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::Session;
use crate::error::Error;
use crate::function::Functions;
use crate::node::Tree;
use crate::value::Value;

/// Bytes of templates from which on a second thread parses half of them: starting one costs what 20 KB cost.
const WORTH_A_THREAD: usize = 256 * 1024;

/// What an absent map key gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingKey {
    /// `<no value>`: Go's default.
    #[default]
    Invalid,
    /// The zero value of the map's elements: Helm's choice.
    Zero,
    /// An error: Helm's choice with `--strict`.
    Error,
}

/// One parsed template.
pub struct Template {
    pub(crate) name: Arc<str>,
    pub(crate) tree: Tree,
}

impl Template {
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Named templates that may call each other. Share it as `Arc<Set>` once everything is parsed; it can be executed by
/// many threads at once.
#[derive(Clone)]
pub struct Set {
    functions: Arc<Functions>,
    missing_key: MissingKey,
    templates: HashMap<Arc<str>, Arc<Template>>,
    parent: Option<Arc<Set>>,
}

impl Set {
    pub fn new(functions: Arc<Functions>) -> Self {
        Self { functions, missing_key: MissingKey::default(), templates: HashMap::new(), parent: None }
    }

    pub fn missing_key(mut self, missing_key: MissingKey) -> Self {
        self.missing_key = missing_key;
        self
    }

    /// A set that sees everything of this one and can be parsed into without changing it: what `tpl` needs.
    pub fn extend(self: &Arc<Self>) -> Self {
        Self {
            functions: self.functions.clone(),
            missing_key: self.missing_key,
            templates: HashMap::new(),
            parent: Some(self.clone()),
        }
    }

    /// Parses a text as the template `name`, with everything it defines. As in Go, a later definition replaces an
    /// earlier one unless it is empty. Returns the template of the text itself, even if it is empty and did not
    /// replace the one of the same name.
    pub fn parse(&mut self, name: &str, text: &str) -> Result<Arc<Template>, Error> {
        let trees = crate::parse::parse(name, text, &self.functions)?;
        self.keep(name, trees)
    }

    /// Parses many texts in this order, as [`Set::parse`] one by one would. The error is that of the first text that has one, by
    /// its place in the list.
    pub fn parse_all(&mut self, texts: &[(&str, &str)]) -> Result<(), (usize, Error)> {
        let total: usize = texts.iter().map(|(_, text)| text.len()).sum();
        let mut seen = 0;
        let half = texts
            .iter()
            .take_while(|(_, text)| {
                seen += text.len();
                seen <= total / 2
            })
            .count();
        let alone = total < WORTH_A_THREAD;
        let (first, second) = texts.split_at(if alone { texts.len() } else { half });
        let functions = &self.functions;
        let parse = |texts: &[(&str, &str)]| -> Vec<_> {
            texts.iter().map(|(name, text)| crate::parse::parse(name, text, functions)).collect()
        };
        let parsed = if second.is_empty() {
            parse(first)
        } else {
            std::thread::scope(|scope| {
                let second = scope.spawn(|| parse(second));
                let mut parsed = parse(first);
                parsed.extend(second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                parsed
            })
        };
        for (at, ((name, _), trees)) in texts.iter().zip(parsed).enumerate() {
            trees.and_then(|trees| self.keep(name, trees)).map_err(|error| (at, error))?;
        }
        Ok(())
    }

    fn keep(&mut self, name: &str, trees: Vec<Tree>) -> Result<Arc<Template>, Error> {
        let mut root = None;
        for tree in trees {
            let template = Arc::new(Template { name: tree.name.clone(), tree });
            if template.name.as_ref() == name {
                root = Some(template.clone());
            }
            let replaces = !template.tree.is_empty() || self.lookup(&template.name).is_none();
            if replaces {
                self.templates.insert(template.name.clone(), template);
            }
        }
        root.ok_or_else(|| Error::no_template(name, name))
    }

    pub fn lookup(&self, name: &str) -> Option<Arc<Template>> {
        let mut set = self;
        loop {
            if let Some(template) = set.templates.get(name) {
                return Some(template.clone());
            }
            set = set.parent.as_deref()?;
        }
    }

    /// Executes a named template.
    pub fn execute(
        self: &Arc<Self>,
        session: &Session<'_>,
        name: &str,
        data: &Value,
    ) -> Result<Vec<u8>, Error> {
        match self.lookup(name) {
            Some(template) => self.execute_template(session, &template, data),
            None => Err(Error::no_template(name, name)),
        }
    }

    /// Executes a template that [`Set::parse`] returned.
    pub fn execute_template(
        self: &Arc<Self>,
        session: &Session<'_>,
        template: &Arc<Template>,
        data: &Value,
    ) -> Result<Vec<u8>, Error> {
        crate::exec::execute(self, session, template, data)
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    pub(crate) fn missing(&self) -> MissingKey {
        self.missing_key
    }
}
