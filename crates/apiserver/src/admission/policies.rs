//! Admission policies: CEL expressions a cluster's administrator sets between a write and the store. Validating ones
//! refuse or warn, mutating ones change the object on its way in.
//!
//! Authorizer checks are not offered: a policy that needs them fails as its `failurePolicy` says. Webhooks are kept as
//! objects and do nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::{Bindings, Key, Libraries, Map, Program, Value as Cel};
use serde_json::{Value, json};

use crate::object::{self, text};
use crate::rest::Call;
use crate::selector::LabelSelector;
use crate::status::{About, Status};

/// Which kind of policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyKind {
    Validating,
    Mutating,
}

impl PolicyKind {
    fn name(self) -> &'static str {
        match self {
            PolicyKind::Validating => "ValidatingAdmissionPolicy",
            PolicyKind::Mutating => "MutatingAdmissionPolicy",
        }
    }

    fn policies(self) -> &'static str {
        match self {
            PolicyKind::Validating => "validatingadmissionpolicies.admissionregistration.k8s.io",
            PolicyKind::Mutating => "mutatingadmissionpolicies.admissionregistration.k8s.io",
        }
    }

    fn bindings(self) -> &'static str {
        match self {
            PolicyKind::Validating => "validatingadmissionpolicybindings.admissionregistration.k8s.io",
            PolicyKind::Mutating => "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        }
    }

    fn libraries(self) -> Libraries {
        match self {
            PolicyKind::Validating => Libraries::Kubernetes,
            PolicyKind::Mutating => Libraries::Mutation,
        }
    }
}

/// What happens to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// Asks every bound policy; the first that denies decides.
pub fn check(
    call: &Call,
    operation: Operation,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Result<(), Status> {
    for (policy, binding) in bound(call, PolicyKind::Validating) {
        let review = Review {
            call,
            operation,
            old,
            new,
            policy: &policy,
            binding: &binding,
            kind: PolicyKind::Validating,
        };
        if !review.matches() {
            continue;
        }
        for params in review.params()? {
            review.judge(&params)?;
        }
    }
    Ok(())
}

/// Lets every bound policy change the object, one after the other.
pub fn mutate(call: &Call, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    for (policy, binding) in bound(call, PolicyKind::Mutating) {
        let current = new.clone();
        let review = Review {
            call,
            operation,
            old,
            new: Some(&current),
            policy: &policy,
            binding: &binding,
            kind: PolicyKind::Mutating,
        };
        if !review.matches() {
            continue;
        }
        for params in review.params()? {
            *new = review.mutated(new, &params)?;
            crate::defaults::apply(&call.resource, new);
        }
    }
    Ok(())
}

/// Policies with their bindings. They do not watch over themselves, so that a bad one can always be taken away.
fn bound(call: &Call, kind: PolicyKind) -> Vec<(Value, Value)> {
    let store = &call.server.store;
    if store.count(kind.bindings()) == 0 || &*call.resource.group == "admissionregistration.k8s.io" {
        return Vec::new();
    }
    let (_, bindings) = store.list(kind.bindings(), "");
    let pairs = bindings.iter().filter_map(|stored| {
        let binding = stored.value();
        let policy = store.get(kind.policies(), text(&binding, "/spec/policyName"))?;
        Some((policy.value(), binding))
    });
    pairs.collect()
}

struct Review<'a> {
    call: &'a Call,
    operation: Operation,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    policy: &'a Value,
    binding: &'a Value,
    kind: PolicyKind,
}

impl Review<'_> {
    fn matches(&self) -> bool {
        let own = &self.policy["spec"]["matchConstraints"];
        let bound = &self.binding["spec"]["matchResources"];
        self.selects(own) && (bound.is_null() || self.selects(bound))
    }

    fn selects(&self, constraints: &Value) -> bool {
        let rules = constraints["resourceRules"].as_array();
        let excluded = constraints["excludeResourceRules"].as_array();
        let ruled = rules.is_none_or(|rules| rules.is_empty() || rules.iter().any(|rule| self.fits(rule)));
        ruled
            && !excluded.into_iter().flatten().any(|rule| self.fits(rule))
            && self.labels_match(&constraints["objectSelector"])
            && self.namespace_matches(&constraints["namespaceSelector"])
    }

    fn fits(&self, rule: &Value) -> bool {
        let resource = &self.call.resource;
        let has = |key: &str, wanted: &str| {
            rule[key].as_array().into_iter().flatten().any(|entry| entry == "*" || entry == wanted)
        };
        let name = match self.call.subresource.as_str() {
            "" => resource.plural.to_string(),
            sub => format!("{}/{sub}", resource.plural),
        };
        let named =
            rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str).any(|entry| {
                entry == "*/*" || entry == name || (entry == "*" && self.call.subresource.is_empty())
            });
        let names = rule["resourceNames"].as_array();
        let subject = object::name(self.new.or(self.old).unwrap_or(&Value::Null));
        named
            && has("apiGroups", &resource.group)
            && has("apiVersions", &resource.version)
            && has("operations", self.operation.name())
            && names.is_none_or(|names| names.is_empty() || names.iter().any(|name| name == subject))
    }

    fn labels_match(&self, selector: &Value) -> bool {
        let selector = LabelSelector::from_object(selector);
        let matches = |object: &Value| {
            let labels = object::meta(object).get("labels");
            selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
        };
        self.new.is_some_and(matches) || self.old.is_some_and(matches)
    }

    fn namespace_matches(&self, selector: &Value) -> bool {
        let selector = LabelSelector::from_object(selector);
        if selector.is_everything() || !self.call.resource.namespaced() {
            return true;
        }
        let namespace = self.call.server.store.get("namespaces", &self.call.namespace);
        namespace.is_some_and(|namespace| selector.matches(|key| namespace.label(key)))
    }

    /// The objects the policy is parameterised with, one run for each; nothing at all when it takes none.
    fn params(&self) -> Result<Vec<Value>, Status> {
        let kind = &self.policy["spec"]["paramKind"];
        let reference = &self.binding["spec"]["paramRef"];
        if kind.is_null() || reference.is_null() {
            return Ok(vec![Value::Null]);
        }
        let registry = self.call.server.registry();
        let Some(resource) = registry.by_kind(text(kind, "/apiVersion"), text(kind, "/kind")) else {
            let (version, kind) = (text(kind, "/apiVersion"), text(kind, "/kind"));
            self.failed(&format!(
                "failed to find resource referenced by paramKind: '{version}, Kind={kind}'"
            ))?;
            return Ok(Vec::new());
        };
        let namespace = match (resource.namespaced(), text(reference, "/namespace")) {
            (false, _) => "",
            (true, "") => self.call.namespace.as_str(),
            (true, namespace) => namespace,
        };
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let selector = LabelSelector::from_object(&reference["selector"]);
        let name = text(reference, "/name");
        let (_, stored) = self.call.server.store.list(&resource.storage, &prefix);
        let chosen = stored.iter().filter(|stored| match name {
            "" => selector.matches(|key| stored.label(key)),
            name => stored.name() == name,
        });
        let found: Vec<Value> = chosen.map(|stored| crate::rest::finish::shown(resource, stored)).collect();
        if found.is_empty() && text(reference, "/parameterNotFoundAction") != "Allow" {
            let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
            self.failed(why)?;
        }
        Ok(found)
    }

    /// Runs expressions of the policy about `object`; variables are computed first.
    fn runner<'r>(&'r self, object: &'r Value, params: &'r Value) -> Runner<'r> {
        let namespace = self.call.server.store.get("namespaces", &self.call.namespace);
        let mut runner = Runner {
            libraries: self.kind.libraries(),
            object,
            old: self.old.cloned().unwrap_or_default(),
            request: self.request(),
            namespace: namespace.map_or(Value::Null, |stored| stored.value()),
            params,
            variables: Vec::new(),
        };
        for variable in self.policy["spec"]["variables"].as_array().into_iter().flatten() {
            // One that fails is missed by whoever uses it.
            if let Ok(value) = runner.run(text(variable, "/expression")) {
                runner.variables.push((text(variable, "/name").to_owned(), value));
            }
        }
        runner
    }

    /// Whether the policy's conditions leave this request to others.
    fn is_excluded(&self, runner: &Runner<'_>) -> Result<bool, Status> {
        for condition in self.policy["spec"]["matchConditions"].as_array().into_iter().flatten() {
            match runner.run(text(condition, "/expression")) {
                Ok(Value::Bool(false)) => return Ok(true),
                Ok(_) => {}
                Err(error) => return self.failed(&error).map(|()| true),
            }
        }
        Ok(false)
    }

    fn judge(&self, params: &Value) -> Result<(), Status> {
        let nothing = Value::Null;
        let runner = self.runner(self.new.unwrap_or(&nothing), params);
        if self.is_excluded(&runner)? {
            return Ok(());
        }
        for validation in self.policy["spec"]["validations"].as_array().into_iter().flatten() {
            let expression = text(validation, "/expression");
            match runner.run(expression) {
                Ok(Value::Bool(true)) => continue,
                Ok(_) => {}
                Err(error) => {
                    self.failed(&format!("expression '{expression}' resulted in error: {error}"))?;
                    continue;
                }
            }
            let made = runner.run(text(validation, "/messageExpression")).ok();
            let made = made.as_ref().and_then(Value::as_str).map(str::trim).filter(|made| !made.is_empty());
            let message = match (made, text(validation, "/message")) {
                (Some(made), _) => made.to_owned(),
                (None, "") => format!("failed expression: {}", expression.trim()),
                (None, message) => message.trim().to_owned(),
            };
            self.refuse(&message, text(validation, "/reason"))?;
        }
        Ok(())
    }

    /// The object after the policy's mutations. Each sees what the one before it made.
    fn mutated(&self, object: &Value, params: &Value) -> Result<Value, Status> {
        let mut current = object.clone();
        if self.is_excluded(&self.runner(&current, params))? {
            return Ok(current);
        }
        for mutation in self.policy["spec"]["mutations"].as_array().into_iter().flatten() {
            let path = match text(mutation, "/patchType") {
                "JSONPatch" => "/jsonPatch/expression",
                _ => "/applyConfiguration/expression",
            };
            let made = self.runner(&current, params).run(text(mutation, path));
            let changed = made.and_then(|made| match text(mutation, "/patchType") {
                "JSONPatch" => crate::patch::json(&current, &made).map_err(|why| why.to_string()),
                _ => crate::ownership::merged(self.call, &current, made),
            });
            match changed {
                Ok(changed) => current = changed,
                Err(error) => self.failed(&error)?,
            }
        }
        Ok(current)
    }

    fn request(&self) -> Value {
        let resource = &self.call.resource;
        json!({
            "operation": self.operation.name(), "name": object::name(self.new.or(self.old).unwrap_or(&Value::Null)),
            "namespace": self.call.namespace, "subResource": self.call.subresource, "dryRun": self.call.options.dry_run,
            "kind": { "group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind },
            "resource": { "group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural },
            "userInfo": {
                "username": self.call.user.name, "uid": self.call.user.uid, "groups": self.call.user.groups,
                "extra": self.call.user.extra,
            },
        })
    }

    fn failed(&self, error: &str) -> Result<(), Status> {
        if text(self.policy, "/spec/failurePolicy") == "Ignore" {
            return Ok(());
        }
        self.refuse(error, "")
    }

    /// Denies, warns or only notes, as the binding says. A mutating policy that fails always denies.
    fn refuse(&self, why: &str, reason: &str) -> Result<(), Status> {
        let (policy, binding) = (object::name(self.policy), object::name(self.binding));
        let actions = self.binding["spec"]["validationActions"].as_array();
        let has = |wanted: &str| match self.kind {
            PolicyKind::Validating => actions.into_iter().flatten().any(|action| action == wanted),
            PolicyKind::Mutating => wanted == "Deny",
        };
        if has("Warn") {
            self.call.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {why}"
            ));
        }
        if !has("Deny") {
            return Ok(());
        }
        let name = object::name(self.new.or(self.old).unwrap_or(&Value::Null));
        let about = About { name, ..self.call.about() };
        let message =
            format!("{} '{policy}' with binding '{binding}' denied request: {why}", self.kind.name());
        Err(Status::denied(about, &message, reason))
    }
}

/// What expressions of one policy are run with.
struct Runner<'r> {
    libraries: Libraries,
    object: &'r Value,
    old: Value,
    request: Value,
    namespace: Value,
    params: &'r Value,
    variables: Vec<(String, Value)>,
}

impl Runner<'_> {
    fn run(&self, expression: &str) -> Result<Value, String> {
        let program = Program::unchecked(expression, self.libraries).map_err(|error| error.to_string())?;
        let known = self.variables.iter();
        let known: BTreeMap<Key, Cel<'_>> =
            known.map(|(name, value)| (Key::String(name.as_str().into()), Cel::from_json(value))).collect();
        let bindings = Bindings::new()
            .with_json("object", self.object)
            .with_json("oldObject", &self.old)
            .with_json("request", &self.request)
            .with_json("namespaceObject", &self.namespace)
            .with_json("params", self.params)
            .with("variables", Cel::Map(Map::Owned(Arc::new(known))));
        let value = program.eval(&bindings).map_err(|error| error.to_string())?;
        value.to_json().ok_or_else(|| "the result is no JSON".to_owned())
    }
}
