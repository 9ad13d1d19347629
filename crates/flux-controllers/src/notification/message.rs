//! The message of a notification: what the controller said, or what an expression on the Alert makes of it; and in incident
//! mode what became of the problem.

use flux_api::duration::GoDuration;
use kube_cel::{Bindings, Environment, Libraries, Program, Type};
use serde_json::{Value, json};

use super::event::Event;
use super::incident::{Incident, Phase};

/// Annotation on an Alert: the message, in CEL over `event` (with all metadata), `alert` and `incident`.
pub const MESSAGE: &str = "fluxcd.rs/message";

/// Adds what is known of an incident to its event.
pub fn tell(event: &mut Event, incident: &Incident, now: i64) {
    let phase = match incident.phase {
        Phase::Started => "started",
        Phase::Resolved => "resolved",
    };
    event.metadata.insert("incident".to_owned(), phase.to_owned());
    event.metadata.insert("fingerprint".to_owned(), incident.fingerprint.clone());
    if incident.phase == Phase::Started {
        return;
    }
    event.message = format!("resolved after {}: {}", lasted(incident, now), event.message);
    if !incident.folded.is_empty() {
        let folded: Vec<&str> = incident.folded.iter().map(String::as_str).collect();
        event.metadata.insert("folded".to_owned(), folded.join(", "));
    }
}

fn lasted(incident: &Incident, now: i64) -> GoDuration {
    GoDuration::from_secs(u32::try_from((now - incident.since).max(0)).unwrap_or(u32::MAX).into())
}

/// What the expression makes of an event.
pub fn evaluate(
    expression: &str,
    event: &Event,
    alert: &Value,
    incident: Option<&Incident>,
) -> Result<String, String> {
    let environment = Environment::new()
        .with("event", Type::Dyn)
        .with("alert", Type::Dyn)
        .with("incident", Type::Dyn)
        .returning(Type::String)
        .with_libraries(Libraries::Extended);
    let wrong = |error: String| format!("annotation {MESSAGE}: {error}");
    let program = Program::compile(expression, &environment).map_err(|error| wrong(error.to_string()))?;
    let event = serde_json::to_value(event).map_err(|error| wrong(error.to_string()))?;
    let incident = incident.map_or(json!({}), |incident| {
        let phase = if incident.phase == Phase::Started { "started" } else { "resolved" };
        json!({ "phase": phase, "fingerprint": incident.fingerprint, "repeated": incident.repeated, "folded": incident.folded })
    });
    let bindings =
        Bindings::new().with_json("event", &event).with_json("alert", alert).with_json("incident", &incident);
    let value = program.eval(&bindings).map_err(|error| wrong(error.to_string()))?;
    value.as_str().map(str::to_owned).ok_or_else(|| wrong("it gives no text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;

    fn incident(phase: Phase) -> Incident {
        let folded = ["Kustomization/apps/web".to_owned()].into();
        Incident { phase, fingerprint: "f00".to_owned(), since: 100, repeated: 3, folded }
    }

    #[test]
    fn the_end_of_an_incident_says_how_long_it_lasted_and_what_it_took_along() {
        let mut event = example();
        tell(&mut event, &incident(Phase::Started), 100);
        assert_eq!((event.message.as_str(), event.metadata["incident"].as_str()), ("message", "started"));
        let mut event = example();
        tell(&mut event, &incident(Phase::Resolved), 225);
        assert_eq!(event.message, "resolved after 2m5s: message");
        assert_eq!(
            (event.metadata["fingerprint"].as_str(), event.metadata["folded"].as_str()),
            ("f00", "Kustomization/apps/web")
        );
    }

    #[test]
    fn an_expression_writes_the_message() {
        let alert = json!({ "metadata": { "name": "a" } });
        let of =
            |expression: &str| evaluate(expression, &example(), &alert, Some(&incident(Phase::Resolved)));
        let expression = "event.involvedObject.name + ': ' + event.message + ' (' + incident.phase + ', ' + alert.metadata.name + ')'";
        assert_eq!(of(expression).as_deref(), Ok("webapp: message (resolved, a)"));
        for bad in ["1", "event.", "event.missing", "nothing"] {
            assert!(of(bad).unwrap_err().starts_with("annotation fluxcd.rs/message: "), "{bad}");
        }
        assert!(
            evaluate("has(incident.phase) ? 'x' : 'none'", &example(), &alert, None)
                .is_ok_and(|text| text == "none")
        );
    }
}
