//! Variables: `$(NAME)` in fields that the specs allow, replaced by a field of some resource.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Class, Error};
use crate::field_specs::{VisitError, Visitor};
use crate::id::{Gvk, ResId, split_api_version};
use crate::kustomization::{FieldSpec, Var};
use crate::resources::{Resources, Workspace};
use crate::tree::{Body, Kind, NodeId, ScalarStyle, Tag, Text, Tree, smart_split};

/// The variables of a build, each name once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vars(BTreeMap<String, Var>);

impl Vars {
    pub(crate) fn merge(&mut self, incoming: impl IntoIterator<Item = Var>) -> Result<(), Error> {
        for mut var in incoming {
            if self.0.contains_key(&var.name) {
                let text = format!("var '{}' already encountered", var.name);
                return Err(Error::new(Class::Replacement, text));
            }
            if var.field_ref.field_path.is_empty() {
                "metadata.name".clone_into(&mut var.field_ref.field_path);
            }
            self.0.insert(var.name.clone(), var);
        }
        Ok(())
    }

    pub(crate) fn merge_all(&mut self, other: Self) -> Result<(), Error> {
        self.merge(other.0.into_values())
    }
}

impl Var {
    fn gvk(&self) -> Gvk {
        let target = &self.obj_ref;
        if target.api_version.is_empty() {
            return Gvk::plain(&target.group, &target.version, &target.kind);
        }
        let (group, version) = split_api_version(&target.api_version);
        Gvk::plain(if group.is_empty() { &target.group } else { group }, version, &target.kind)
    }

    /// As Go prints the struct.
    fn go_text(&self) -> String {
        format!("{{{} {} {{{}}}}}", self.name, self.gvk(), self.field_ref.field_path)
    }

    /// As Go prints the struct before anyone looked at its `apiVersion`.
    pub(crate) fn raw_go_text(&self) -> String {
        let target = &self.obj_ref;
        let gvk = Gvk::plain(&target.group, &target.version, &target.kind);
        format!("{{{} {gvk} {{{}}}}}", self.name, self.field_ref.field_path)
    }
}

/// Notes in each resource which variables of this layer read from it.
pub(crate) fn mark_sources(space: &Workspace, resources: &mut Resources, vars: &[Var]) -> Result<(), Error> {
    for var in vars {
        let wanted = ResId::plain(var.gvk(), &var.obj_ref.name, &var.obj_ref.namespace);
        // Without a namespace a variable reads from whichever one has the object.
        let matches =
            |id: &ResId| if wanted.namespace.is_empty() { wanted.same_object(id) } else { wanted.same(id) };
        let found: Vec<usize> = resources
            .list()
            .iter()
            .enumerate()
            .filter(|(_, resource)| {
                resource.previous_ids(&space.tree).any(|id| matches(&id))
                    || matches(&resource.id(&space.tree, &space.schemas))
            })
            .map(|(at, _)| at)
            .collect();
        match found[..] {
            [] => {}
            [at] => resources.list_mut()[at].var_names.push(var.name.clone()),
            _ => {
                let text = format!(
                    "found {} resId matches for var {} (unable to disambiguate)",
                    found.len(),
                    var.go_text()
                );
                return Err(Error::new(Class::Replacement, text));
            }
        }
    }
    Ok(())
}

/// Replaces all variables; those that stand nowhere are named in a warning.
pub(crate) fn resolve(
    space: &mut Workspace,
    resources: &Resources,
    vars: &Vars,
    specs: &[FieldSpec],
) -> Result<(), Error> {
    let mut values = BTreeMap::new();
    for var in vars.0.values() {
        values.insert(var.name.as_str(), value_of(&space.tree, resources, var)?);
    }
    if values.is_empty() {
        return Ok(());
    }
    let mut used = BTreeSet::new();
    let visitors = Visitor::all(specs, None);
    for root in resources.list().iter().filter_map(|resource| resource.root) {
        for visitor in &visitors {
            visitor
                .visit(&mut space.tree, root, &mut |tree, node| replace_in(tree, node, &values, &mut used))
                .map_err(|error| error.into_error())?;
        }
    }
    let unused: Vec<&str> = values.keys().filter(|name| !used.contains(**name)).copied().collect();
    if !unused.is_empty() {
        space.warnings.push(format!("well-defined vars that were never replaced: {}", unused.join(",")));
    }
    Ok(())
}

/// What a variable stands for. Maps and lists cannot be put into a field.
#[derive(Clone, Debug, PartialEq)]
enum VarValue {
    String(Text),
    Int(i64),
    Float(f64),
    Bool(bool),
    Unusable,
}

fn value_of(tree: &Tree, resources: &Resources, var: &Var) -> Result<VarValue, Error> {
    let source = resources.list().iter().find(|resource| resource.var_names.contains(&var.name));
    let Some(source) = source else {
        let text =
            format!("var '{}' cannot be mapped to a field in the set of known resources", var.go_text());
        return Err(Error::new(Class::Replacement, text));
    };
    field_value(tree, source.root, &var.field_ref.field_path).ok_or_else(|| {
        let text = format!("field specified in var '{}' not found in corresponding resource", var.go_text());
        Error::new(Class::Replacement, text)
    })
}

fn field_value(tree: &Tree, root: Option<NodeId>, path: &str) -> Option<VarValue> {
    let fields: Vec<String> = smart_split(path, '.').iter().flat_map(|part| split_index(part)).collect();
    let node = tree.lookup(root?, &fields).ok()??;
    if tree.kind(node) != Kind::Scalar {
        return tree.to_json(node).ok().map(|_| VarValue::Unusable);
    }
    let text = tree.text(node);
    match tree[node].tag {
        Tag::Int => crate::tree::go_int(text).map(VarValue::Int),
        Tag::Float => text.parse().ok().map(VarValue::Float),
        Tag::Bool => match text {
            "true" | "True" | "TRUE" => Some(VarValue::Bool(true)),
            "false" | "False" | "FALSE" => Some(VarValue::Bool(false)),
            _ => None,
        },
        _ => Some(VarValue::String(tree.owned_text(node))),
    }
}

/// `ports[0]` is `ports` and `0`.
fn split_index(part: &str) -> Vec<String> {
    let index = part.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    match index {
        Some((name, digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            [name, digits].into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect()
        }
        _ => vec![part.to_owned()],
    }
}

type Values<'a> = BTreeMap<&'a str, VarValue>;

fn replace_in(
    tree: &mut Tree,
    node: NodeId,
    values: &Values<'_>,
    used: &mut BTreeSet<String>,
) -> Result<(), VisitError> {
    if tree.is_null(node) {
        return Ok(());
    }
    match tree.kind(node) {
        Kind::Scalar => {
            if tree.is_string(node) {
                replace_scalar(tree, node, values, used);
            }
        }
        Kind::Map => {
            for (key, value) in tree.entries(node).collect::<Vec<_>>() {
                if !tree.is_string(key) {
                    return Err(format!(
                        "invalid map key: value='{}', tag='{}'",
                        tree.text(key),
                        tree[key].tag.short().unwrap_or_default()
                    )
                    .into());
                }
                if tree.is_string(value) {
                    replace_scalar(tree, value, values, used);
                }
            }
        }
        Kind::Seq => {
            for item in tree.content(node).to_vec() {
                if !tree.is_string(item) {
                    return Err("invalid value type expect a string".to_owned().into());
                }
                replace_scalar(tree, item, values, used);
            }
        }
    }
    Ok(())
}

fn replace_scalar(tree: &mut Tree, node: NodeId, values: &Values<'_>, used: &mut BTreeSet<String>) {
    let (text, tag) = match expand(tree.text(node), values, used) {
        VarValue::String(text) => (text, Tag::Str),
        VarValue::Int(number) => (number.to_string().into(), Tag::Int),
        VarValue::Float(number) => (number.to_string().into(), Tag::Float),
        VarValue::Bool(flag) => (flag.to_string().into(), Tag::Bool),
        VarValue::Unusable => return,
    };
    let data = &mut tree[node];
    data.body = Body::Scalar { text, style: ScalarStyle::Plain };
    data.tag = tag;
    data.tag_shown = false;
}

/// Replaces `$(NAME)`; `$$` is a dollar. A text that is one variable takes the type of its value.
fn expand(input: &str, values: &Values<'_>, used: &mut BTreeSet<String>) -> VarValue {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$').filter(|at| at + 1 < rest.len()) {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        match after.as_bytes()[0] {
            b'$' => {
                out.push('$');
                rest = &after[1..];
            }
            b'(' => match after.find(')') {
                Some(end) => {
                    let name = &after[1..end];
                    let value = look_up(name, values, used);
                    if input.len() == name.len() + 3 && at == 0 {
                        return value;
                    }
                    out.push_str(&value_text(&value));
                    rest = &after[end + 1..];
                }
                None => {
                    out.push_str("$(");
                    rest = &after[1..];
                }
            },
            _ => {
                // Go copies one byte here; a longer character follows with its rest just the same.
                let length = after.chars().next().map_or(0, char::len_utf8);
                out.push('$');
                out.push_str(&after[..length]);
                rest = &after[length..];
            }
        }
    }
    out.push_str(rest);
    VarValue::String(out.into())
}

/// The value of a variable; an unknown one stays as it is, another layer may know it.
fn look_up(name: &str, values: &Values<'_>, used: &mut BTreeSet<String>) -> VarValue {
    match values.get(name) {
        None | Some(VarValue::Unusable) => VarValue::String(format!("$({name})").into()),
        Some(value) => {
            used.insert(name.to_owned());
            value.clone()
        }
    }
}

fn value_text(value: &VarValue) -> String {
    match value {
        VarValue::String(text) => text.to_string(),
        VarValue::Int(number) => number.to_string(),
        VarValue::Float(number) => yaml::format_float_g(*number),
        VarValue::Bool(flag) => flag.to_string(),
        VarValue::Unusable => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(input: &str) -> VarValue {
        let values = BTreeMap::from([("A", VarValue::String("a".into())), ("N", VarValue::Int(3))]);
        expand(input, &values, &mut BTreeSet::new())
    }

    #[test]
    fn dollars_and_unknown_names_stay() {
        assert_eq!(expanded("x $(A) $$(A) $(B) $(C $x $"), VarValue::String("x a $(A) $(B) $(C $x $".into()));
    }

    #[test]
    fn a_lone_variable_keeps_its_type() {
        assert_eq!(expanded("$(N)"), VarValue::Int(3));
        assert_eq!(expanded("$(N)x"), VarValue::String("3x".into()));
    }

    #[test]
    fn indexes_are_parts_of_their_own() {
        assert_eq!(split_index("ports[0]"), ["ports", "0"]);
        assert_eq!(split_index("a[b]"), ["a[b]"]);
    }
}
