//! Log lines in the shape of Flux's controllers, so that `flux logs` of either implementation can filter them:
//! `level`, `ts`, `logger`, `msg`, then the object (`controller`, `controllerGroup`, `controllerKind`,
//! `<Kind>: {name, namespace}`, `name`, `namespace`, `reconcileID`) and whatever else the line has to say.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::{CliError, fail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Json,
    Console,
}

/// Starts logging to stderr. Other people's libraries speak only of errors, unless everything is asked for.
pub(super) fn start(level: &str, encoding: &str) -> Result<(), CliError> {
    let encoding = match encoding {
        "json" => Encoding::Json,
        "console" => Encoding::Console,
        _ => return Err(fail!("--log-encoding '{encoding}' is not one of json, console")),
    };
    init(level, encoding, std::io::stderr)
}

/// Starts logging as JSON to somewhere else.
pub(in crate::commands) fn start_into<W>(level: &str, writer: W) -> Result<(), CliError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    init(level, Encoding::Json, writer)
}

fn init<W>(level: &str, encoding: Encoding, writer: W) -> Result<(), CliError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (ours, theirs) = match level {
        "trace" => (LevelFilter::TRACE, LevelFilter::DEBUG),
        "debug" => (LevelFilter::DEBUG, LevelFilter::WARN),
        "info" => (LevelFilter::INFO, LevelFilter::ERROR),
        "error" => (LevelFilter::ERROR, LevelFilter::ERROR),
        _ => return Err(fail!("--log-level '{level}' is not one of trace, debug, info, error")),
    };
    let mut targets = Targets::new().with_default(theirs);
    for ours_alone in ["flux", "flux_controllers", "flux_remote", "flux_apply", "flux_build"] {
        targets = targets.with_target(ours_alone, ours);
    }
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(JsonFields::new())
        .event_format(Lines(encoding))
        .with_writer(writer);
    let started = tracing_subscriber::registry().with(targets).with(lines).try_init();
    started.map_err(|error| fail!("cannot start logging: {error}"))
}

struct Lines(Encoding);

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for Lines {
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Map::new();
        for span in ctx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let Some(written) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            if let Ok(Value::Object(span)) = serde_json::from_str(&written.fields) {
                fields.extend(span);
            }
        }
        event.record(&mut Fields(&mut fields));
        let line = Line { level: *event.metadata().level(), target: event.metadata().target(), fields };
        match self.0 {
            Encoding::Json => writeln!(writer, "{}", line.json(Timestamp::now())),
            Encoding::Console => writeln!(writer, "{}", line.console(Timestamp::now())),
        }
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(name(field), Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(name(field), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(name(field), json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(name(field), json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(name(field), json!(value));
    }
}

fn name(field: &Field) -> String {
    if field.name() == "message" { "msg".to_owned() } else { field.name().to_owned() }
}

struct Line<'a> {
    level: Level,
    target: &'a str,
    fields: Map<String, Value>,
}

impl Line<'_> {
    /// Keys in upstream's order: first what every line has, then the object, then the rest by name.
    fn json(mut self, now: Timestamp) -> String {
        let mut parts =
            vec![("level".to_owned(), json!(self.level_name())), ("ts".to_owned(), json!(time(now)))];
        if !self.fields.contains_key("controllerKind") {
            parts.push(("logger".to_owned(), json!(self.logger())));
        }
        parts.push(("msg".to_owned(), self.fields.remove("msg").unwrap_or_default()));
        parts.extend(self.object());
        parts.extend(std::mem::take(&mut self.fields));
        let members: Vec<String> =
            parts.iter().map(|(key, value)| format!("{}:{value}", Value::from(key.as_str()))).collect();
        format!("{{{}}}", members.join(","))
    }

    /// `time LEVEL logger message {fields}`, separated by tabs.
    fn console(mut self, now: Timestamp) -> String {
        let (level, logger) = (self.level_name().to_uppercase(), self.logger().to_owned());
        let message = match self.fields.remove("msg") {
            Some(Value::String(message)) => message,
            other => other.unwrap_or_default().to_string(),
        };
        let object: Map<String, Value> = self.object().into_iter().collect();
        let mut rest = object;
        rest.extend(self.fields);
        format!("{}\t{level}\t{logger}\t{message}\t{}", time(now), Value::Object(rest))
    }

    fn object(&mut self) -> Vec<(String, Value)> {
        let Some(Value::String(kind)) = self.fields.remove("controllerKind") else {
            return Vec::new();
        };
        let mut take = |key: &str| self.fields.remove(key).unwrap_or_default();
        let (name, namespace) = (take("name"), take("namespace"));
        vec![
            ("controller".to_owned(), json!(kind.to_lowercase())),
            ("controllerGroup".to_owned(), take("controllerGroup")),
            ("controllerKind".to_owned(), json!(kind)),
            (kind, json!({ "name": name, "namespace": namespace })),
            ("namespace".to_owned(), namespace),
            ("name".to_owned(), name),
            ("reconcileID".to_owned(), take("reconcileID")),
        ]
    }

    /// Upstream knows no warnings: what went wrong is an error.
    fn level_name(&self) -> &'static str {
        match self.level {
            Level::ERROR | Level::WARN => "error",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        }
    }

    /// `setup` until something runs, the part that speaks afterwards.
    fn logger(&self) -> &str {
        let part = self.target.rsplit("::").next().unwrap_or_default();
        if self.target.starts_with("flux::") { "setup" } else { part }
    }
}

/// As zap writes ISO 8601: three digits of a second, UTC.
fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: Value) -> Line<'static> {
        let Value::Object(fields) = fields else { panic!("an object") };
        Line { level: Level::ERROR, target: "flux_controllers::reconcile::events", fields }
    }

    #[test]
    fn a_line_about_an_object_has_upstreams_keys_in_upstreams_order() {
        let line = line(json!({
            "msg": "Reconciler error", "controllerGroup": "kustomize.toolkit.fluxcd.io",
            "controllerKind": "Kustomization", "name": "apps", "namespace": "flux-system", "reconcileID": "1",
            "error": "it \"broke\"", "revision": "main@sha1:0",
        }));
        assert_eq!(
            line.json(Timestamp::UNIX_EPOCH),
            concat!(
                r#"{"level":"error","ts":"1970-01-01T00:00:00.000Z","msg":"Reconciler error","#,
                r#""controller":"kustomization","controllerGroup":"kustomize.toolkit.fluxcd.io","#,
                r#""controllerKind":"Kustomization","Kustomization":{"name":"apps","namespace":"flux-system"},"#,
                r#""namespace":"flux-system","name":"apps","reconcileID":"1","#,
                r#""error":"it \"broke\"","revision":"main@sha1:0"}"#
            )
        );
    }

    #[test]
    fn a_line_about_nothing_names_its_logger() {
        let text = line(json!({ "msg": "a listener stopped" })).json(Timestamp::UNIX_EPOCH);
        assert_eq!(
            text,
            r#"{"level":"error","ts":"1970-01-01T00:00:00.000Z","logger":"events","msg":"a listener stopped"}"#
        );
        let text = line(json!({ "msg": "x", "n": 1 })).console(Timestamp::UNIX_EPOCH);
        assert_eq!(text, "1970-01-01T00:00:00.000Z\tERROR\tevents\tx\t{\"n\":1}");
    }
}
