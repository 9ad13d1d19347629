//! Where resources come from and what changed them, for `buildMetadata`.

use crate::tree::Text;

/// A file, or a generator or transformer and the file that configures it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub path: String,
    pub configured_in: String,
    pub configured_by: Option<ConfiguredBy>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfiguredBy {
    pub api_version: Text,
    pub kind: Text,
    pub name: Text,
    pub namespace: Text,
}

impl Origin {
    /// The origin one path further in.
    pub(crate) fn append(&self, path: &str) -> Self {
        Self { path: join(&self.path, path), ..self.clone() }
    }

    /// A builtin generator or transformer, configured in a file of this folder.
    pub(crate) fn builtin(&self, kind: &str, file: &str) -> Self {
        Self {
            path: String::new(),
            configured_in: join(&self.path, file),
            configured_by: Some(ConfiguredBy {
                api_version: Text::new_static("builtin"),
                kind: kind.into(),
                ..ConfiguredBy::default()
            }),
        }
    }

    /// The lines of an annotation.
    pub(crate) fn text(&self) -> String {
        let mut lines = Vec::new();
        self.lines(&mut lines);
        lines.join("\n") + "\n"
    }

    fn lines(&self, lines: &mut Vec<String>) {
        let field = |name: &str, value: &str| {
            let text = yaml::format_node(&yaml::Node::mapping(vec![(
                yaml::Node::plain(name),
                yaml::Node::string(value),
            )]));
            text.unwrap_or_default().trim_end().to_owned()
        };
        if !self.path.is_empty() {
            lines.push(field("path", &self.path));
        }
        if !self.configured_in.is_empty() {
            lines.push(field("configuredIn", &self.configured_in));
        }
        if let Some(by) = &self.configured_by {
            lines.push("configuredBy:".to_owned());
            for (name, value) in [
                ("apiVersion", &by.api_version),
                ("kind", &by.kind),
                ("name", &by.name),
                ("namespace", &by.namespace),
            ] {
                if !value.is_empty() {
                    lines.push(format!("  {}", field(name, value)));
                }
            }
        }
    }

    /// Several origins as one annotation.
    pub(crate) fn list_text(origins: &[Self]) -> String {
        let mut text = String::new();
        for origin in origins {
            let mut lines = Vec::new();
            origin.lines(&mut lines);
            if lines.is_empty() {
                text.push_str("- {}\n");
            }
            for (at, line) in lines.iter().enumerate() {
                text.push_str(if at == 0 { "- " } else { "  " });
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

/// Go's `filepath.Join` of two relative paths: dots are resolved by name.
fn join(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_by_name() {
        let origin = Origin::default().append("../base").append("a/./b.yaml");
        assert_eq!(origin.text(), "path: ../base/a/b.yaml\n");
    }

    #[test]
    fn builtin_plugins_name_their_file() {
        let origin = Origin::default().append("base").builtin("ConfigMapGenerator", "kustomization.yaml");
        assert_eq!(
            Origin::list_text(&[origin]),
            "- configuredIn: base/kustomization.yaml\n  configuredBy:\n    apiVersion: builtin\n    kind: ConfigMapGenerator\n"
        );
    }
}
