//! CEL rules of a CRD (`x-kubernetes-validations`): compiled once, run on every write.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::{Bindings, Environment, EvalError, Key, ObjectType, Program, Type, Value as Cel};
use serde_json::Value;

use super::field_error::{ErrorKind, FieldError, Shown, child};
use super::lists::Correlated;
use super::schema::{Additional, Rule, Structural};

/// What all rules of one object may cost together.
const BUDGET: u64 = 10_000_000;
/// Messages made by an expression may be this long.
const MAX_MESSAGE: usize = 5 * 1024;

/// A schema with its rules compiled: everything needed to judge an object.
#[derive(Debug)]
pub struct Rules {
    schema: Arc<Structural>,
    root: Node,
}

/// The rules at one place and beneath it. Places without rules have no node.
#[derive(Debug, Default)]
struct Node {
    rules: Vec<Compiled>,
    all_of: Vec<Node>,
    properties: BTreeMap<String, Node>,
    items: Option<Box<Node>>,
    additional: Option<Box<Node>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Result<Program, String>,
    uses_old: bool,
    message: Option<Result<Program, String>>,
}

impl Rules {
    /// Compiles the rules of a schema. Rules that do not compile fail when they run; [`Rules::check`] tells them before.
    pub fn new(schema: Arc<Structural>) -> Self {
        let root = compile(&schema, true).unwrap_or_default();
        Rules { schema, root }
    }

    /// What is wrong with an object: by its schema first, then, if that leaves them something to look at, by the rules.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = self.schema.validate(object, old);
        if self.root.is_empty() {
            return errors;
        }
        let blocks = |error: &FieldError| match error.kind {
            ErrorKind::Required
            | ErrorKind::TypeInvalid
            | ErrorKind::NotSupported
            | ErrorKind::TooLong
            | ErrorKind::TooMany => true,
            ErrorKind::Invalid | ErrorKind::Duplicate | ErrorKind::Forbidden => false,
        };
        if errors.iter().any(blocks) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid("", Value::Null, detail));
            return errors;
        }
        let mut run = Run { left: BUDGET, exhausted: false, errors };
        run.visit(&self.root, &self.schema, object, old, "");
        run.errors
    }

    /// Rules that do not compile; `path` is where the schema stands in the CRD.
    pub fn check(&self, path: &str) -> Vec<FieldError> {
        let mut out = Vec::new();
        check(&self.root, &self.schema, path, None, &mut out);
        out
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.all_of.is_empty()
            && self.properties.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
    }
}

fn compile(schema: &Structural, is_root: bool) -> Option<Node> {
    let mut node = Node::default();
    if !schema.rules.is_empty() {
        let type_ = type_of(schema, is_root);
        node.rules = schema.rules.iter().map(|rule| compile_rule(rule, &type_)).collect();
    }
    for (name, property) in &schema.properties {
        if let Some(below) = compile(property, false) {
            node.properties.insert(name.clone(), below);
        }
    }
    node.all_of = schema.limits.all_of.iter().filter_map(|part| compile(part, is_root)).collect();
    node.items = schema.items.as_ref().and_then(|items| compile(items, false)).map(Box::new);
    if let Some(Additional::Schema(schema)) = &schema.additional {
        node.additional = compile(schema, false).map(Box::new);
    }
    (!node.is_empty()).then_some(node)
}

fn compile_rule(rule: &Rule, type_: &Type) -> Compiled {
    let plain = Environment::new().with("self", type_.clone());
    let old = match rule.optional_old_self {
        Some(true) => Type::optional(type_.clone()),
        _ => type_.clone(),
    };
    let with_old = plain.clone().with("oldSelf", old);
    let text = rule.rule.trim();
    // A rule that compiles without `oldSelf` does not use it.
    let (program, uses_old) = match Program::compile(text, &plain.clone().returning(Type::Bool)) {
        Ok(program) => (Ok(program), false),
        Err(without) => match Program::compile(text, &with_old.clone().returning(Type::Bool)) {
            Ok(program) => (Ok(program), true),
            Err(_) if !text.contains("oldSelf") => (Err(compile_error(&without.to_string())), false),
            Err(error) => (Err(compile_error(&error.to_string())), true),
        },
    };
    let message = (!rule.message_expression.trim().is_empty()).then(|| {
        let environment = if uses_old { with_old } else { plain };
        Program::compile(rule.message_expression.trim(), &environment.returning(Type::String)).map_err(
            |error| match error.to_string() {
                text if text.starts_with("must evaluate to string") => {
                    "messageExpression must evaluate to a string".to_owned()
                }
                text => format!("messageExpression compilation failed: {text}"),
            },
        )
    });
    Compiled { rule: rule.clone(), program, uses_old, message }
}

fn compile_error(text: &str) -> String {
    match text.strip_prefix("must evaluate to bool, not ") {
        Some(_) => "cel expression must evaluate to a bool".to_owned(),
        None => format!("compilation failed: {text}"),
    }
}

/// `uncorrelatable` is the list above whose items have no past, if there is one.
fn check(
    node: &Node,
    schema: &Structural,
    path: &str,
    uncorrelatable: Option<&str>,
    out: &mut Vec<FieldError>,
) {
    for (index, compiled) in node.rules.iter().enumerate() {
        let rule = &compiled.rule;
        let at = |name: &str| format!("{path}.x-kubernetes-validations[{index}].{name}");
        if let Err(error) = &compiled.program {
            let shown = Shown::Raw(shown_rule(rule));
            out.push(FieldError::new(ErrorKind::Invalid, at("rule"), shown, error.clone()));
        }
        if let Some(Err(error)) = &compiled.message {
            let shown = Shown::Raw(shown_rule(rule));
            out.push(FieldError::new(ErrorKind::Invalid, at("messageExpression"), shown, error.clone()));
        }
        if let (true, Ok(_), Some(list)) = (compiled.uses_old, &compiled.program, uncorrelatable) {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            out.push(FieldError::invalid(at("rule"), rule.rule.as_str(), detail));
        }
        if rule.optional_old_self == Some(true) && !compiled.uses_old && compiled.program.is_ok() {
            let detail = "may not be set if oldSelf is not used in rule";
            out.push(FieldError::invalid(at("optionalOldSelf"), true, detail));
        }
    }
    for (name, below) in &node.properties {
        if let Some(property) = schema.properties.get(name) {
            check(below, property, &format!("{path}.properties[{name}]"), uncorrelatable, out);
        }
    }
    if let (Some(below), Some(items)) = (&node.items, &schema.items) {
        let forgets = schema.list_type.as_deref() != Some("map");
        let list = uncorrelatable.or(forgets.then_some(path));
        check(below, items, &format!("{path}.items"), list, out);
    }
    if let (Some(below), Some(Additional::Schema(of))) = (&node.additional, &schema.additional) {
        check(below, of, &format!("{path}.additionalProperties"), uncorrelatable, out);
    }
}

/// The rule as the server prints it: its internal form, with Go's escapes.
fn shown_rule(rule: &Rule) -> String {
    let text = |text: &str| {
        let quoted = Value::from(text).to_string();
        quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    let reason = if rule.reason.is_empty() { "null".to_owned() } else { text(&rule.reason) };
    let optional = rule.optional_old_self.map_or("null".to_owned(), |optional| optional.to_string());
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path),
    )
}

struct Run {
    left: u64,
    exhausted: bool,
    errors: Vec<FieldError>,
}

impl Run {
    fn visit(&mut self, node: &Node, schema: &Structural, value: &Value, old: Option<&Value>, path: &str) {
        if self.exhausted || value.is_null() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !node.rules.is_empty() {
            self.run_rules(node, schema, value, old, path);
        }
        for part in &node.all_of {
            self.visit(part, schema, value, old, path);
        }
        match value {
            Value::Array(list) => {
                if let (Some(below), Some(items)) = (&node.items, &schema.items) {
                    let correlated = Correlated::new(schema, old);
                    for (index, item) in list.iter().enumerate() {
                        self.visit(below, items, item, correlated.get(item), &format!("{path}[{index}]"));
                    }
                }
            }
            Value::Object(map) => {
                let old_of = |name: &str| old.and_then(|old| old.get(name));
                for (name, value) in map {
                    match (
                        node.properties.get(name),
                        schema.properties.get(name),
                        &node.additional,
                        &schema.additional,
                    ) {
                        (Some(below), Some(property), _, _) => {
                            self.visit(below, property, value, old_of(name), &child(path, name));
                        }
                        (None, None, Some(below), Some(Additional::Schema(of))) => {
                            self.visit(below, of, value, old_of(name), &format!("{path}[{name}]"));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn run_rules(
        &mut self,
        node: &Node,
        schema: &Structural,
        value: &Value,
        old: Option<&Value>,
        path: &str,
    ) {
        let current = to_cel(value, schema);
        let before = old.map(|old| to_cel(old, schema));
        for compiled in &node.rules {
            let rule = &compiled.rule;
            let type_name = schema.type_.as_str();
            let program = match &compiled.program {
                Ok(program) => program,
                Err(error) => {
                    let detail = format!("rule compile error: {error}");
                    self.errors.push(FieldError::invalid(path, type_name, detail));
                    continue;
                }
            };
            let optional = rule.optional_old_self == Some(true);
            if compiled.uses_old && before.is_none() && !optional {
                continue;
            }
            let mut bindings = Bindings::new().with("self", current.clone());
            if compiled.uses_old {
                let before = match (&before, optional) {
                    (before, true) => Cel::Optional(before.clone().map(Box::new)),
                    (Some(before), false) => before.clone(),
                    (None, false) => Cel::Null,
                };
                bindings = bindings.with("oldSelf", before);
            }
            let (answer, spent) = program.eval_within(&bindings, kube_cel::COST_LIMIT.min(self.left));
            self.left = self.left.saturating_sub(spent);
            let name = if rule.message.trim().is_empty() { rule.rule.trim() } else { rule.message.trim() };
            match answer {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    // What is as it was may stay as it was, unless the rule is about the change.
                    if compiled.uses_old || old != Some(value) {
                        let error = self.failure(compiled, schema, value, path, &bindings);
                        self.errors.push(error);
                    }
                }
                Err(EvalError::NoSuchOverload) => {
                    let detail = format!(
                        "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                    );
                    self.errors.push(FieldError::invalid(path, type_name, detail));
                }
                Err(error @ (EvalError::CostLimit | EvalError::Cancelled)) => {
                    let detail = if self.left == 0 {
                        "validation failed due to running out of cost budget, no further validation rules will be run".to_owned()
                    } else {
                        format!(
                            "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                        )
                    };
                    self.errors.push(FieldError::invalid(path, type_name, detail));
                    self.exhausted = true;
                    return;
                }
                Err(error) => {
                    self.errors.push(FieldError::invalid(
                        path,
                        type_name,
                        format!("{error} evaluating rule: {name}"),
                    ));
                }
            }
        }
    }

    fn failure(
        &mut self,
        compiled: &Compiled,
        schema: &Structural,
        value: &Value,
        path: &str,
        bindings: &Bindings<'_>,
    ) -> FieldError {
        let rule = &compiled.rule;
        let detail = match &compiled.message {
            Some(Ok(program)) => {
                let (answer, spent) = program.eval_within(bindings, kube_cel::COST_LIMIT.min(self.left));
                self.left = self.left.saturating_sub(spent);
                answer.ok().and_then(|text| text.as_str().map(|text| text.trim().to_owned()))
            }
            _ => None,
        };
        let usable = |text: &String| !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE;
        let detail = detail.filter(usable).unwrap_or_else(|| match rule.message.trim() {
            "" => format!("failed rule: {}", rule.rule.trim()),
            message => message.to_owned(),
        });
        let field = format!("{path}{}", normalized(&rule.field_path));
        let field = if path.is_empty() { field.trim_start_matches('.').to_owned() } else { field };
        let shown = match schema.type_.as_str() {
            "object" | "array" => Shown::Nothing,
            _ => Shown::Value(value.clone()),
        };
        match rule.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(field, detail),
            "FieldValueRequired" => FieldError::required(field, detail),
            "FieldValueDuplicate" => FieldError::new(ErrorKind::Duplicate, field, shown, ""),
            _ => FieldError::new(ErrorKind::Invalid, field, shown, detail),
        }
    }
}

/// `.a['b']` as a field path: `.a.b`.
fn normalized(path: &str) -> String {
    path.trim().replace("['", ".").replace("']", "")
}

/// The type of a value with this schema. Without structure it is not known.
fn type_of(schema: &Structural, is_root: bool) -> Type {
    if schema.int_or_string {
        return Type::Dyn;
    }
    match schema.type_.as_str() {
        "array" => Type::list(schema.items.as_ref().map_or(Type::Dyn, |items| type_of(items, false))),
        "object" => match &schema.additional {
            Some(Additional::Schema(of)) if schema.properties.is_empty() => {
                Type::map(Type::String, type_of(of, false))
            }
            Some(Additional::Allowed(true)) if schema.properties.is_empty() => {
                Type::map(Type::String, Type::Dyn)
            }
            _ => object_type(schema, is_root),
        },
        "string" => match schema.format.as_str() {
            "byte" => Type::Bytes,
            "duration" => Type::Duration,
            "date" | "date-time" => Type::Timestamp,
            _ => Type::String,
        },
        "boolean" => Type::Bool,
        "number" => Type::Double,
        "integer" => Type::Int,
        _ => Type::Dyn,
    }
}

fn object_type(schema: &Structural, is_root: bool) -> Type {
    let mut fields: BTreeMap<String, Type> = BTreeMap::new();
    for (name, property) in &schema.properties {
        // A field without structure cannot be looked into.
        let known = !property.type_.is_empty() || property.int_or_string;
        if let (true, Some(name)) = (known, escape(name)) {
            fields.insert(name, type_of(property, false));
        }
    }
    if is_root || schema.embedded {
        let names = ["name", "generateName"].map(|name| (name.to_owned(), Type::String));
        let metadata = ObjectType { name: "object".to_owned(), fields: names.into_iter().collect() };
        fields.insert("metadata".to_owned(), Type::Object(Arc::new(metadata)));
        fields.insert("apiVersion".to_owned(), Type::String);
        fields.insert("kind".to_owned(), Type::String);
    }
    Type::Object(Arc::new(ObjectType { name: "object".to_owned(), fields }))
}

/// A field's name as an expression writes it; none if it cannot be written.
fn escape(name: &str) -> Option<String> {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    escaped.chars().all(|character| character == '_' || character.is_ascii_alphanumeric()).then_some(escaped)
}

/// The value as rules see it: names escaped, texts with a format read, whole numbers of type number made doubles.
fn to_cel<'a>(value: &'a Value, schema: &Structural) -> Cel<'a> {
    match value {
        Value::Object(map) => {
            if schema.properties.is_empty() && schema.additional.is_none() {
                return Cel::from_json(value);
            }
            let mut out: BTreeMap<Key, Cel<'a>> = BTreeMap::new();
            for (name, value) in map {
                let below = match schema.properties.get(name) {
                    Some(property) => escape(name).map(|escaped| (escaped, to_cel(value, property))),
                    None => Some((
                        name.clone(),
                        schema.child(name).map_or_else(|| Cel::from_json(value), |of| to_cel(value, of)),
                    )),
                };
                if let Some((name, value)) = below {
                    out.insert(Key::String(name.into()), value);
                }
            }
            Cel::Map(kube_cel::Map::Owned(Arc::new(out)))
        }
        Value::Array(list) => {
            let unordered = matches!(schema.list_type.as_deref(), Some("set" | "map"));
            match &schema.items {
                Some(items) if unordered || !is_plain(items) => {
                    let items = Arc::new(list.iter().map(|item| to_cel(item, items)).collect());
                    Cel::List(if unordered {
                        kube_cel::List::Unordered(items, schema.list_map_keys.clone().into())
                    } else {
                        kube_cel::List::Owned(items)
                    })
                }
                _ => Cel::from_json(value),
            }
        }
        Value::Number(number) if schema.type_ == "number" => Cel::Double(number.as_f64().unwrap_or(f64::NAN)),
        Value::Number(number) if schema.type_ == "integer" && number.is_f64() => {
            Cel::Int(number.as_f64().unwrap_or(0.0) as i64)
        }
        Value::String(text) if schema.type_ == "string" => {
            of_text(text, &schema.format).unwrap_or_else(|| Cel::from_json(value))
        }
        other => Cel::from_json(other),
    }
}

/// Whether JSON is what rules see anyway.
fn is_plain(schema: &Structural) -> bool {
    match schema.type_.as_str() {
        "string" => schema.format.is_empty(),
        "boolean" => true,
        _ => false,
    }
}

fn of_text<'a>(text: &str, format: &str) -> Option<Cel<'a>> {
    match format {
        "date-time" => text.parse().ok().map(Cel::Timestamp),
        "date" => format!("{text}T00:00:00Z").parse().ok().map(Cel::Timestamp),
        "duration" => kube_cel::parse_duration(text).map(Cel::Duration),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).ok().map(|bytes| Cel::Bytes(bytes.into()))
        }
        _ => None,
    }
}
