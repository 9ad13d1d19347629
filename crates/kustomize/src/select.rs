//! Selectors of resources: regular expressions for group, version, kind, name and namespace, and label selectors.

use regex::Regex;

use crate::error::{Class, Error};
use crate::id::{Gvk, ResId};
use crate::kustomization::Selector;
use crate::labels::LabelSelector;
use crate::resource::Resource;
use crate::resources::{Resources, Workspace};
use crate::tree::Tree;

/// A selector ready for use. An empty field accepts anything.
#[derive(Debug)]
pub(crate) struct ResourceSelector {
    pub id: IdPattern,
    labels: Result<LabelSelector, String>,
    annotations: Result<LabelSelector, String>,
}

/// Patterns for the parts of an id; each must match the whole of its part.
#[derive(Debug)]
pub(crate) struct IdPattern {
    group: Option<Pattern>,
    version: Option<Pattern>,
    kind: Option<Pattern>,
    name: Option<Pattern>,
    namespace: Option<Pattern>,
}

/// Most patterns are plain names, which need no regular expression.
#[derive(Debug)]
enum Pattern {
    Exact(String),
    Regex(Regex),
}

impl Pattern {
    fn new(text: &str) -> Result<Option<Self>, Error> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b':'))
        {
            return Ok(Some(Self::Exact(text.to_owned())));
        }
        let regex = crate::go_text::whole_regex(text).map_err(|error| Error::new(Class::Config, error))?;
        Ok(Some(Self::Regex(regex)))
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

fn accepts(pattern: &Option<Pattern>, text: &str) -> bool {
    pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
}

impl IdPattern {
    pub(crate) fn new(selector: &Selector) -> Result<Self, Error> {
        Ok(Self {
            group: Pattern::new(&selector.group)?,
            version: Pattern::new(&selector.version)?,
            kind: Pattern::new(&selector.kind)?,
            name: Pattern::new(&selector.name)?,
            namespace: Pattern::new(&selector.namespace)?,
        })
    }

    fn accepts_gvk(&self, gvk: &Gvk) -> bool {
        accepts(&self.group, &gvk.group)
            && accepts(&self.version, &gvk.version)
            && accepts(&self.kind, &gvk.kind)
    }

    /// Whether an id matches as it is written, an unset namespace being the empty text.
    pub(crate) fn accepts_id(&self, id: &ResId) -> bool {
        self.accepts_gvk(&id.gvk) && accepts(&self.name, &id.name) && accepts(&self.namespace, &id.namespace)
    }
}

impl ResourceSelector {
    pub(crate) fn new(selector: &Selector) -> Result<Self, Error> {
        Ok(Self {
            id: IdPattern::new(selector)?,
            labels: LabelSelector::parse(&selector.label_selector),
            annotations: LabelSelector::parse(&selector.annotation_selector),
        })
    }

    /// The places of the selected resources.
    pub(crate) fn select(&self, space: &Workspace, resources: &Resources) -> Result<Vec<usize>, Error> {
        let mut selected = Vec::new();
        for (at, resource) in resources.list().iter().enumerate() {
            if self.accepts(space, resource)? {
                selected.push(at);
            }
        }
        Ok(selected)
    }

    fn accepts(&self, space: &Workspace, resource: &Resource) -> Result<bool, Error> {
        let (tree, schemas) = (&space.tree, &space.schemas);
        let current = resource.id(tree, schemas);
        // Asking for names or kinds first would be the same; most resources fail here.
        if !self.id.accepts_gvk(&current.gvk) {
            return Ok(false);
        }
        let original = resource.previous_ids(tree).next();
        let original = original.as_ref().unwrap_or(&current);
        let either = |pattern: &Option<Pattern>, get: &dyn Fn(&ResId) -> crate::tree::Text| {
            accepts(pattern, &get(original)) || accepts(pattern, &get(&current))
        };
        if !either(&self.id.namespace, &|id| id.effective_namespace())
            || !either(&self.id.name, &|id| id.name.clone())
        {
            return Ok(false);
        }
        Ok(self.accepts_labels(tree, resource)? && self.accepts_annotations(tree, resource)?)
    }

    pub(crate) fn accepts_labels(&self, tree: &Tree, resource: &Resource) -> Result<bool, Error> {
        let selector = self.labels.as_ref().map_err(|error| Error::new(Class::Config, error.clone()))?;
        Ok(selector.is_empty() || selector.matches(|key| resource.label(tree, key)))
    }

    pub(crate) fn accepts_annotations(&self, tree: &Tree, resource: &Resource) -> Result<bool, Error> {
        let selector = self.annotations.as_ref().map_err(|error| Error::new(Class::Config, error.clone()))?;
        Ok(selector.is_empty() || selector.matches(|key| resource.annotation(tree, key)))
    }

    /// Whether it asks for labels or annotations at all.
    pub(crate) fn has_label_selectors(&self) -> bool {
        !matches!((&self.labels, &self.annotations), (Ok(labels), Ok(annotations)) if labels.is_empty() && annotations.is_empty())
    }
}
