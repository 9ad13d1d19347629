//! The id under which a Provider writes the state of a commit: one for each object and Provider, or what an expression says.

use flux_api::notification::Provider;
use kube_cel::{Bindings, Environment, Libraries, Program, Type};
use serde_json::Value;

use super::event::Event;

/// `event` has the metadata of the Alert already.
pub fn id(event: &Event, alert: &Value, provider: &Provider) -> Result<String, String> {
    match &provider.spec.commit_status_expr {
        None => Ok(default_id(event, provider.metadata.uid.as_deref().unwrap_or_default())),
        Some(expression) => evaluate(expression, event, alert, provider).map_err(|error| {
            format!("failed to evaluate the spec.commitStatusExpr CEL expression for the event: {error}")
        }),
    }
}

/// Clusters have Providers of their own, so the start of its UID keeps their statuses apart.
fn default_id(event: &Event, uid: &str) -> String {
    let object = &event.involved_object;
    let start = uid.split('-').next().unwrap_or_default();
    format!("{}/{}/{start}", object.kind, object.name).to_lowercase()
}

fn evaluate(expression: &str, event: &Event, alert: &Value, provider: &Provider) -> Result<String, String> {
    let environment = Environment::new()
        .with("event", Type::Dyn)
        .with("alert", Type::Dyn)
        .with("provider", Type::Dyn)
        .returning(Type::String)
        .with_libraries(Libraries::Extended);
    let program = Program::compile(expression, &environment)
        .map_err(|error| format!("failed to compile expression: {error}"))?;
    let event = serde_json::to_value(event).map_err(|error| error.to_string())?;
    let provider = serde_json::to_value(provider).map_err(|error| error.to_string())?;
    let bindings =
        Bindings::new().with_json("event", &event).with_json("alert", alert).with_json("provider", &provider);
    let value = program.eval(&bindings).map_err(|error| error.to_string())?;
    value.as_str().map(str::to_owned).ok_or_else(|| "the expression gives no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use serde_json::json;

    fn of(expression: Option<&str>) -> Result<String, String> {
        let provider: Provider = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "0C9C2E41-d2f9-4f9b" },
            "spec": { "type": "github", "commitStatusExpr": expression },
        }))
        .unwrap();
        id(&example(), &json!({ "metadata": { "name": "a" } }), &provider)
    }

    #[test]
    fn an_id_is_made_of_object_and_provider_or_by_an_expression() {
        assert_eq!(of(None).as_deref(), Ok("gitrepository/webapp/0c9c2e41"));
        let expression = "(event.involvedObject.kind + '/' + event.metadata.test + '/' + alert.metadata.name + '/' + provider.spec.type).lowerAscii()";
        assert_eq!(of(Some(expression)).as_deref(), Ok("gitrepository/metadata/a/github"));
    }

    #[test]
    fn an_expression_that_gives_no_text_is_an_error() {
        for bad in ["1", "event.", "event.metadata.missing", "unknown.x", "event.metadata"] {
            let error = of(Some(bad)).unwrap_err();
            assert!(
                error.starts_with(
                    "failed to evaluate the spec.commitStatusExpr CEL expression for the event: "
                ),
                "{error}"
            );
        }
    }
}
