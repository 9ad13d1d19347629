//! ValidatingAdmissionPolicies: CEL expressions a cluster's administrator sets between a write and the store.
//!
//! Parameters (`paramKind`) and authorizer checks are not offered: a policy that needs them fails as its
//! `failurePolicy` says. MutatingAdmissionPolicies and webhooks are kept as objects and do nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::{Bindings, Key, Libraries, Map, Program, Value as Cel};
use serde_json::{Value, json};

use crate::object::{self, text};
use crate::rest::Call;
use crate::selector::LabelSelector;
use crate::status::{About, Status};

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

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
    // Policies do not watch over themselves, so that a bad one can always be taken away.
    if call.server.store.count(BINDINGS) == 0 || &*call.resource.group == "admissionregistration.k8s.io" {
        return Ok(());
    }
    for stored in call.server.store.list(BINDINGS, "").1 {
        let binding = stored.value();
        let Some(policy) = call.server.store.get(POLICIES, text(&binding, "/spec/policyName")) else {
            continue;
        };
        let review = Review { call, operation, old, new, policy: &policy.value(), binding: &binding };
        if review.matches() {
            review.judge()?;
        }
    }
    Ok(())
}

struct Review<'a> {
    call: &'a Call,
    operation: Operation,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    policy: &'a Value,
    binding: &'a Value,
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

    fn judge(&self) -> Result<(), Status> {
        let namespace = self.call.server.store.get("namespaces", &self.call.namespace);
        let namespace = namespace.map_or(Value::Null, |stored| stored.value());
        let request = self.request();
        let nothing = Value::Null;
        let mut variables: BTreeMap<Key, Cel<'_>> = BTreeMap::new();
        let run = |expression: &str, variables: &BTreeMap<Key, Cel<'_>>| -> Result<Value, String> {
            let program =
                Program::unchecked(expression, Libraries::Kubernetes).map_err(|error| error.to_string())?;
            let known: BTreeMap<Key, Cel<'_>> = variables.clone();
            let bindings = Bindings::new()
                .with_json("object", self.new.unwrap_or(&nothing))
                .with_json("oldObject", self.old.unwrap_or(&nothing))
                .with_json("request", &request)
                .with_json("namespaceObject", &namespace)
                .with_json("params", &nothing)
                .with("variables", Cel::Map(Map::Owned(Arc::new(known))));
            let value = program.eval(&bindings).map_err(|error| error.to_string())?;
            value.to_json().ok_or_else(|| "the result is no JSON".to_owned())
        };
        let mut kept: Vec<(String, Value)> = Vec::new();
        for variable in self.policy["spec"]["variables"].as_array().into_iter().flatten() {
            // One that fails is missed by whoever uses it.
            let known = as_variables(&kept);
            if let Ok(value) = run(text(variable, "/expression"), &known) {
                kept.push((text(variable, "/name").to_owned(), value));
            }
        }
        variables.extend(as_variables(&kept));
        for condition in self.policy["spec"]["matchConditions"].as_array().into_iter().flatten() {
            match run(text(condition, "/expression"), &variables) {
                Ok(Value::Bool(false)) => return Ok(()),
                Ok(_) => {}
                Err(error) => return self.failed(&error),
            }
        }
        for validation in self.policy["spec"]["validations"].as_array().into_iter().flatten() {
            let expression = text(validation, "/expression");
            match run(expression, &variables) {
                Ok(Value::Bool(true)) => continue,
                Ok(_) => {}
                Err(error) => {
                    self.failed(&format!("expression '{expression}' resulted in error: {error}"))?;
                    continue;
                }
            }
            let made = run(text(validation, "/messageExpression"), &variables).ok();
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

    /// Denies, warns or only notes, as the binding says.
    fn refuse(&self, why: &str, reason: &str) -> Result<(), Status> {
        let (policy, binding) = (object::name(self.policy), object::name(self.binding));
        let actions = self.binding["spec"]["validationActions"].as_array();
        let has = |wanted: &str| actions.into_iter().flatten().any(|action| action == wanted);
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
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}");
        Err(Status::denied(about, &message, reason))
    }
}

fn as_variables(kept: &[(String, Value)]) -> BTreeMap<Key, Cel<'_>> {
    kept.iter().map(|(name, value)| (Key::String(name.as_str().into()), Cel::from_json(value))).collect()
}
