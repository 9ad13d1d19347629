//! Which of a Receiver's objects a call is about, in CEL over the object, the call's body and the caller's claims.

use flux_api::notification::{ReceiverResource, ReceiverSpec, ReceiverType};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use kube_cel::{Bindings, Environment, Libraries, Program, Type};
use serde_json::{Value, json};

use super::check::header;
use super::token::Claims;

/// Whether all expressions of a Receiver can be run.
pub fn validate(spec: &ReceiverSpec) -> Result<(), String> {
    let with_claims = spec.receiver_type == ReceiverType::GenericOidc;
    if let Some(text) = &spec.resource_filter {
        compile(text, with_claims).map_err(|error| format!("invalid resourceFilter expression: {error}"))?;
    }
    for (index, resource) in spec.resources.iter().enumerate() {
        if let Some(text) = &resource.filter {
            compile(text, with_claims).map_err(|error| {
                let (kind, name) = (resource.kind, &resource.name);
                format!("invalid filter expression for resources[{index}] (kind=\"{kind}\", name={name:?}): {error}")
            })?;
        }
    }
    Ok(())
}

fn compile(text: &str, with_claims: bool) -> Result<Program, String> {
    let mut environment = Environment::new()
        .with("res", Type::Dyn)
        .with("req", Type::Dyn)
        .returning(Type::Bool)
        .with_libraries(Libraries::Extended);
    if with_claims {
        environment = environment.with("claims", Type::Dyn);
    }
    Program::compile(text, &environment).map_err(|error| error.to_string())
}

/// What the expressions of one call look at.
pub struct Filters {
    request: Value,
    claims: Option<Value>,
    common: Option<Program>,
}

impl Filters {
    pub fn new(
        spec: &ReceiverSpec,
        headers: &HeaderMap,
        body: &[u8],
        claims: Option<Claims>,
    ) -> Result<Self, String> {
        let claims = claims.map(Value::Object);
        let any =
            spec.resource_filter.is_some() || spec.resources.iter().any(|resource| resource.filter.is_some());
        let request = if any { request(headers, body)? } else { json!({}) };
        let common =
            spec.resource_filter.as_deref().map(|text| compile(text, claims.is_some())).transpose()?;
        Ok(Self { request, claims, common })
    }

    /// The filter of one of the Receiver's resources.
    pub fn of(&self, resource: &ReceiverResource) -> Result<Filter<'_>, String> {
        let own = resource.filter.as_deref().map(|text| compile(text, self.claims.is_some())).transpose()?;
        Ok(Filter { filters: self, own })
    }
}

pub struct Filter<'a> {
    filters: &'a Filters,
    own: Option<Program>,
}

impl Filter<'_> {
    /// Whether the object (its apiVersion, kind and metadata) is accepted by all expressions.
    pub fn accepts(&self, object: &Value) -> Result<bool, String> {
        for program in self.filters.common.iter().chain(&self.own) {
            let mut bindings =
                Bindings::new().with_json("res", object).with_json("req", &self.filters.request);
            if let Some(claims) = &self.filters.claims {
                bindings = bindings.with_json("claims", claims);
            }
            let answer = program.eval(&bindings).map_err(|error| error.to_string())?;
            match answer.as_bool() {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => return Err("the expression gives no true or false".to_owned()),
            }
        }
        Ok(true)
    }
}

/// The body as the expressions see it: nothing unless it is JSON.
fn request(headers: &HeaderMap, body: &[u8]) -> Result<Value, String> {
    let is_json = header(headers, CONTENT_TYPE.as_str()).split(',').any(|media| {
        media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
    });
    if !is_json {
        return Ok(json!({}));
    }
    let wrong = |why: String| format!("failed to parse request body as JSON: {why}");
    match serde_json::Deserializer::from_slice(body).into_iter::<Value>().next() {
        Some(Ok(value @ Value::Object(_))) => Ok(value),
        Some(Ok(Value::Null)) => Ok(json!({})),
        Some(Ok(_)) => Err(wrong("it is no object".to_owned())),
        Some(Err(error)) => Err(wrong(error.to_string())),
        None => Err(wrong("it is empty".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(receiver_type: &str, common: &str, own: &str) -> ReceiverSpec {
        let resource = json!({ "kind": "ImageRepository", "name": "*", "filter": own });
        serde_json::from_value(
            json!({ "type": receiver_type, "resources": [resource], "resourceFilter": common }),
        )
        .unwrap()
    }

    fn headers(content_type: &str) -> HeaderMap {
        [(CONTENT_TYPE, content_type.parse().unwrap())].into_iter().collect()
    }

    fn run(
        spec: &ReceiverSpec,
        body: &str,
        content_type: &str,
        claims: Option<Value>,
    ) -> Result<bool, String> {
        let claims = claims.map(|claims| claims.as_object().unwrap().clone());
        let filters = Filters::new(spec, &headers(content_type), body.as_bytes(), claims)?;
        let object = json!({ "apiVersion": "image.toolkit.fluxcd.io/v1", "kind": "ImageRepository", "metadata": { "name": "app", "annotations": { "image": "x/app" } } });
        filters.of(&spec.resources[0])?.accepts(&object)
    }

    #[test]
    fn both_filters_must_accept() {
        let of = spec("generic", "req.tag == 'v1'", "res.metadata.name == 'app'");
        assert_eq!(run(&of, r#"{"tag":"v1"}"#, "application/json", None), Ok(true));
        assert_eq!(run(&of, r#"{"tag":"v2"}"#, "application/json; charset=utf-8", None), Ok(false));
        let of = spec("generic", "req.tag == 'v1'", "res.metadata.name == 'other'");
        assert_eq!(run(&of, r#"{"tag":"v1"}"#, "application/json", None), Ok(false));
        assert_eq!(run(&spec("generic", "", ""), "nonsense", "application/json", None), Ok(true));
    }

    #[test]
    fn a_body_that_is_no_json_object_is_nothing_or_an_error() {
        let of = spec("generic", "!has(req.tag)", "");
        assert_eq!(run(&of, r#"{"tag":"v1"}"#, "text/plain", None), Ok(true));
        for bad in ["[1]", "1", "", "{", "\u{0}"] {
            assert!(
                run(&of, bad, "application/json", None)
                    .unwrap_err()
                    .starts_with("failed to parse request body")
            );
        }
        assert!(run(&spec("generic", "req.missing == 1", ""), "{}", "application/json", None).is_err());
    }

    #[test]
    fn claims_are_there_for_identity_tokens_only() {
        let of = spec("generic-oidc", "claims.repository == req.repository", "");
        let claims = json!({ "repository": "org/app" });
        assert_eq!(run(&of, r#"{"repository":"org/app"}"#, "application/json", Some(claims)), Ok(true));
        assert!(validate(&of).is_ok());
        let of = spec("generic", "claims.repository == 'x'", "");
        assert!(validate(&of).unwrap_err().starts_with("invalid resourceFilter expression: "));
        assert!(validate(&spec("generic", "", "res.")).unwrap_err().starts_with(
            "invalid filter expression for resources[0] (kind=\"ImageRepository\", name=\"*\"): "
        ));
        assert!(validate(&spec("generic", "'text'", "")).is_err());
    }

    #[test]
    fn an_expression_that_costs_too_much_ends() {
        let of = spec("generic", "req.list.all(a, req.list.all(b, req.list.all(c, a + b + c >= 0)))", "");
        let list: Vec<u32> = (0..2000).collect();
        assert!(run(&of, &json!({ "list": list }).to_string(), "application/json", None).is_err());
    }
}
