//! What a Receiver demands of an identity token's claims, in CEL.

use flux_api::notification::{OIDCProvider, ReceiverSpec, ReceiverType};
use kube_cel::{Bindings, Environment, Libraries, Program, Type};
use serde_json::{Map, Value, json};

use super::token::Claims;

/// The expressions of one issuer, compiled.
pub struct Demands {
    variables: Vec<(String, Program)>,
    validations: Vec<(String, Program)>,
}

impl Demands {
    pub fn compile(provider: &OIDCProvider) -> Result<Self, String> {
        let environment = || {
            Environment::new()
                .with("claims", Type::Dyn)
                .with("vars", Type::Dyn)
                .with_libraries(Libraries::Extended)
        };
        let mut demands = Self { variables: Vec::new(), validations: Vec::new() };
        for variable in &provider.variables {
            let program = Program::compile(&variable.expression, &environment())
                .map_err(|error| format!("invalid expression for variable {:?}: {error}", variable.name))?;
            demands.variables.push((variable.name.clone(), program));
        }
        for validation in &provider.validations {
            let program = Program::compile(&validation.expression, &environment().returning(Type::Bool))
                .map_err(|error| {
                    format!("invalid expression for validation {:?}: {error}", validation.message)
                })?;
            demands.validations.push((validation.message.clone(), program));
        }
        Ok(demands)
    }

    /// All of them must hold; those that do not are told together.
    pub fn check(&self, claims: &Claims) -> Result<(), String> {
        let claims = Value::Object(claims.clone());
        let mut variables = json!({});
        for (name, program) in &self.variables {
            let failed = |why: String| format!("failed to evaluate variable {name:?}: {why}");
            let value = {
                let bindings = Bindings::new().with_json("claims", &claims).with_json("vars", &variables);
                let value = program.eval(&bindings).map_err(|error| failed(error.to_string()))?;
                value.to_json().ok_or_else(|| failed("its value cannot be kept".to_owned()))?
            };
            variables[name] = value;
        }
        let mut failures = Vec::new();
        for (message, program) in &self.validations {
            let bindings = Bindings::new().with_json("claims", &claims).with_json("vars", &variables);
            let answer =
                program.eval(&bindings).map_err(|error| format!("failed to evaluate validation: {error}"))?;
            match answer.as_bool() {
                Some(true) => {}
                Some(false) => failures.push(message.as_str()),
                None => return Err("failed to evaluate validation: it gives no true or false".to_owned()),
            }
        }
        match failures.is_empty() {
            true => Ok(()),
            false => Err(format!("token validation failed: {}", failures.join("; "))),
        }
    }
}

/// What the CRD demands too, for API servers that do not.
pub fn validate_spec(spec: &ReceiverSpec) -> Result<(), String> {
    let oidc = spec.receiver_type == ReceiverType::GenericOidc;
    match (oidc, spec.oidc_providers.is_empty(), spec.secret_ref.is_some()) {
        (true, true, _) => return Err("generic-oidc receiver requires at least one oidcProvider".to_owned()),
        (false, false, _) => return Err("oidcProviders can only be set when type is generic-oidc".to_owned()),
        (true, _, true) => return Err("secretRef cannot be set when type is generic-oidc".to_owned()),
        (false, _, false) => return Err("secretRef is required when type is not generic-oidc".to_owned()),
        (true, false, false) | (false, true, true) => {}
    }
    let mut seen = Map::new();
    for (index, provider) in spec.oidc_providers.iter().enumerate() {
        let issuer = &provider.issuer_url;
        if !issuer.starts_with("http://") && !issuer.starts_with("https://") {
            return Err(format!(
                "oidcProviders[{index}]: issuerURL {issuer:?} must start with http:// or https://"
            ));
        }
        if seen.insert(issuer.clone(), Value::Null).is_some() {
            return Err(format!("oidcProviders[{index}]: duplicate issuerURL {issuer:?}"));
        }
        let here = format!("oidcProviders[{index}] (issuerURL={issuer:?})");
        if provider.validations.is_empty() {
            return Err(format!(
                "{here}: at least one validation is required; without validations any caller able to obtain a token from this issuer can trigger the Receiver"
            ));
        }
        if provider
            .variables
            .iter()
            .any(|variable| variable.name.is_empty() || variable.expression.is_empty())
        {
            return Err(format!("{here}: every variable needs a name and an expression"));
        }
        if provider.validations.iter().any(|one| one.message.is_empty() || one.expression.is_empty()) {
            return Err(format!("{here}: every validation needs an expression and a message"));
        }
    }
    Ok(())
}

/// Whether every expression of every issuer can be run.
pub fn compile_all(spec: &ReceiverSpec) -> Result<(), String> {
    for (index, provider) in spec.oidc_providers.iter().enumerate() {
        Demands::compile(provider).map_err(|error| {
            format!("oidcProviders[{index}] (issuerURL={:?}): {error}", provider.issuer_url)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(value: Value) -> OIDCProvider {
        serde_json::from_value(value).unwrap()
    }

    fn claims(value: Value) -> Claims {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn variables_come_in_order_and_validations_must_all_hold() {
        let demands = Demands::compile(&provider(json!({
            "issuerURL": "https://issuer",
            "variables": [
                { "name": "parts", "expression": "claims.sub.split(':')" },
                { "name": "repo", "expression": "vars.parts[1]" },
            ],
            "validations": [
                { "expression": "vars.repo == 'org/app'", "message": "wrong repository" },
                { "expression": "claims.ref.startsWith('refs/heads/')", "message": "not a branch" },
            ],
        })))
        .unwrap();
        let of = |sub: &str, reference: &str| demands.check(&claims(json!({ "sub": sub, "ref": reference })));
        assert_eq!(of("repo:org/app", "refs/heads/main"), Ok(()));
        assert_eq!(
            of("repo:x", "refs/tags/1"),
            Err("token validation failed: wrong repository; not a branch".to_owned())
        );
        assert!(of("x", "refs/heads/main").unwrap_err().starts_with("failed to evaluate variable \"repo\""));
        assert!(demands.check(&claims(json!({}))).is_err());
    }

    #[test]
    fn an_expression_that_cannot_be_is_told_before_anybody_calls() {
        let wrong = |expression: &str| {
            Demands::compile(&provider(json!({ "issuerURL": "https://i", "validations": [{ "expression": expression, "message": "m" }] })))
                .err()
                .unwrap_or_default()
        };
        assert!(wrong("claims.x ==").starts_with("invalid expression for validation \"m\": "));
        assert!(wrong("'text'").contains("bool"));
        assert!(wrong("unknown.x == 1").starts_with("invalid expression"));
    }

    #[test]
    fn a_spec_that_an_old_server_let_through_is_refused() {
        let of = |receiver_type: &str, more: Value| {
            let mut spec = json!({ "type": receiver_type, "resources": [] });
            for (key, value) in more.as_object().unwrap() {
                spec[key] = value.clone();
            }
            validate_spec(&serde_json::from_value(spec).unwrap()).err().unwrap_or_default()
        };
        let good =
            json!({ "issuerURL": "https://i", "validations": [{ "expression": "true", "message": "m" }] });
        assert_eq!(of("generic-oidc", json!({ "oidcProviders": [good] })), "");
        assert_eq!(of("generic-oidc", json!({})), "generic-oidc receiver requires at least one oidcProvider");
        assert_eq!(of("generic", json!({})), "secretRef is required when type is not generic-oidc");
        assert!(of("generic-oidc", json!({ "oidcProviders": [good, good] })).contains("duplicate issuerURL"));
        assert!(
            of("generic-oidc", json!({ "oidcProviders": [{ "issuerURL": "https://i", "validations": [] }] }))
                .contains("at least one validation")
        );
        assert!(
            of("generic-oidc", json!({ "oidcProviders": [{ "issuerURL": "ftp://i", "validations": [] }] }))
                .contains("must start with")
        );
    }
}
