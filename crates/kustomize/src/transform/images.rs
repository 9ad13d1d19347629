//! Names, tags and digests of images.

use regex::Regex;

use crate::error::{Class, Error};
use crate::field_specs::{VisitError, Visitor};
use crate::kustomization::{FieldSpec, Image};
use crate::resources::{Resources, Workspace};
use crate::tree::{Kind, NodeId, Tree};

/// Changes the images that `change` names.
///
/// They are looked for twice: in every list called `containers` or `initContainers`, and in the fields of the
/// specs. A tag suffix is therefore added twice, as kustomize does.
pub(crate) fn set(
    space: &mut Workspace,
    resources: &mut Resources,
    change: &Image,
    specs: &[FieldSpec],
) -> Result<(), Error> {
    let matcher = Matcher::new(change)?;
    let visitors = Visitor::all(specs, None);
    for resource in resources.list_mut() {
        let Some(root) = resource.root.filter(|_| resource.kind(&space.tree) != "CustomResourceDefinition")
        else {
            continue;
        };
        matcher.walk(&mut space.tree, root)?;
    }
    for resource in resources.list_mut() {
        let Some(root) = resource.root.filter(|_| resource.kind(&space.tree) != "CustomResourceDefinition")
        else {
            continue;
        };
        for visitor in &visitors {
            visitor
                .visit(&mut space.tree, root, &mut |tree, node| matcher.set_node(tree, node))
                .map_err(|error| error.into_error())?;
        }
    }
    Ok(())
}

struct Matcher<'a> {
    change: &'a Image,
    pattern: Regex,
}

impl<'a> Matcher<'a> {
    fn new(change: &'a Image) -> Result<Self, Error> {
        // The name is a regular expression; tags may hold the braces of templating tools.
        let pattern = format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$", change.name);
        let pattern = crate::go_text::regex(&pattern).map_err(|error| {
            Error::new(Class::Config, error)
                .context(format!("image name {}", crate::go_text::quote(&change.name)))
        })?;
        Ok(Self { change, pattern })
    }

    /// Finds container lists wherever they are.
    fn walk(&self, tree: &mut Tree, at: NodeId) -> Result<(), Error> {
        match tree.kind(at) {
            Kind::Scalar => Ok(()),
            Kind::Seq => tree.content(at).to_vec().into_iter().try_for_each(|item| self.walk(tree, item)),
            Kind::Map => {
                for index in 0..tree.content(at).len() / 2 {
                    let (key, value) = (tree.content(at)[index * 2], tree.content(at)[index * 2 + 1]);
                    self.walk(tree, value)?;
                    if matches!(tree.text(key), "containers" | "initContainers")
                        && tree.kind(value) == Kind::Seq
                    {
                        self.containers(tree, value).map_err(|error| error.into_error())?;
                    }
                }
                Ok(())
            }
        }
    }

    fn containers(&self, tree: &mut Tree, list: NodeId) -> Result<(), VisitError> {
        for container in tree.content(list).to_vec() {
            if let Some(image) = tree.field(container, "image")? {
                self.set_node(tree, image)?;
            }
        }
        Ok(())
    }

    fn set_node(&self, tree: &mut Tree, node: NodeId) -> Result<(), VisitError> {
        tree.demand(node, Kind::Scalar)?;
        if !self.pattern.is_match(tree.text(node)) {
            return Ok(());
        }
        let value = self.changed(tree.text(node));
        let value = tree.plain(value);
        Ok(tree.set_scalar(node, value)?)
    }

    fn changed(&self, image: &str) -> String {
        let (mut name, mut tag, mut digest) = split(image);
        let change = self.change;
        if !change.new_name.is_empty() {
            name.clone_from(&change.new_name);
        }
        match (change.new_tag.is_empty(), change.digest.is_empty()) {
            (false, _) => {
                tag.clone_from(&change.new_tag);
                digest.clone_from(&change.digest);
            }
            (true, false) => {
                tag.clear();
                digest.clone_from(&change.digest);
            }
            (true, true) if !change.tag_suffix.is_empty() => {
                tag.push_str(&change.tag_suffix);
                digest.clear();
            }
            (true, true) => {}
        }
        if !tag.is_empty() {
            name = format!("{name}:{tag}");
        }
        if !digest.is_empty() {
            name = format!("{name}@{digest}");
        }
        name
    }
}

/// Name, tag and digest; a colon in the host is a port.
fn split(image: &str) -> (String, String, String) {
    let start = image.find('/').unwrap_or(0);
    let at = image[start..].find('@').map(|at| at + start);
    let colon = image[start..].find(':').map(|at| at + start);
    let after = |from: usize, mark: char| image[from..].strip_prefix(mark).unwrap_or_default().to_owned();
    match (at, colon) {
        (None, None) => (image.to_owned(), String::new(), String::new()),
        (Some(at), colon) if colon.is_none_or(|colon| at < colon) => {
            (image[..at].to_owned(), String::new(), after(at, '@'))
        }
        (Some(at), Some(colon)) => {
            (image[..colon].to_owned(), image[colon + 1..at].to_owned(), after(at, '@'))
        }
        (Some(at), None) => (image[..at].to_owned(), String::new(), after(at, '@')),
        (None, Some(colon)) => (image[..colon].to_owned(), after(colon, ':'), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_split_behind_the_host() {
        let parts = |image| {
            let (name, tag, digest) = split(image);
            [name, tag, digest]
        };
        assert_eq!(parts("nginx"), ["nginx", "", ""]);
        assert_eq!(parts("host:5000/nginx:1@sha256:a"), ["host:5000/nginx", "1", "sha256:a"]);
        assert_eq!(parts("nginx@sha256:a"), ["nginx", "", "sha256:a"]);
    }
}
