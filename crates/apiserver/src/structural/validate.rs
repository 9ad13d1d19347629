//! Validation of values against a schema, with the words of Kubernetes' OpenAPI validator.

use serde_json::{Map, Value};

use super::field_error::{ErrorKind, FieldError, Shown, child, go_float, go_quote};
use super::formats;
use super::schema::{Additional, Structural};

/// Objects nested deeper than this are refused.
const MAX_DEPTH: usize = 250;

impl Structural {
    /// What is wrong with the object. On update, what did not change is not complained about again.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut out = check(object, self, "", old, MAX_DEPTH).errors;
        super::embedded::check(object, self, "", &mut out);
        out.extend(super::lists::check(
            object,
            self,
            old.is_none_or(|old| super::lists::check(old, self, true).is_empty()),
        ));
        out
    }
}

/// Errors, and how many checks passed: the alternative that passed most is the one complained about.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    passed: usize,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.passed += other.passed;
        other.errors.into_iter().for_each(|error| self.add(error));
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

fn error(kind: ErrorKind, path: &str, value: Shown, detail: String) -> FieldError {
    // A path of a root's field begins with a dot, which is not shown.
    FieldError::new(kind, path.trim_start_matches('.'), value, detail)
}

fn wrong(path: &str, value: &Value, detail: String) -> FieldError {
    error(ErrorKind::Invalid, path, Shown::Value(value.clone()), detail)
}

/// Failures of alternatives are reported on the whole object, with the path in the text.
fn composite(path: &str, detail: String) -> FieldError {
    FieldError::invalid("", "", format!("{} {detail}", go_quote(path)))
}

fn check(value: &Value, schema: &Structural, path: &str, old: Option<&Value>, depth: usize) -> Outcome {
    let mut out = Outcome::default();
    let Some(depth) = depth.checked_sub(1) else {
        out.add(FieldError::invalid(path, "", "nested too deep"));
        return out;
    };
    if let Err(error) = check_type(value, schema, path) {
        out.add(error);
    } else {
        out.passed += 1;
    }
    if value.is_null() {
        check_enum(value, schema, path, &mut out);
        return out;
    }
    out.merge(check_alternatives(value, schema, path, depth));
    match value {
        Value::String(text) => {
            check_text(text, value, schema, path, &mut out);
            check_format(text, schema, path, &mut out);
        }
        Value::Number(number) => check_number(number, value, schema, path, &mut out),
        Value::Array(list) => check_list(list, schema, path, old, depth, &mut out),
        Value::Null | Value::Bool(_) | Value::Object(_) => {}
    }
    check_enum(value, schema, path, &mut out);
    if let Value::Object(map) = value {
        check_object(map, schema, path, old, depth, &mut out);
    }
    out.passed += 2;
    // What is as it was may stay as it was.
    if old == Some(value) {
        out.errors.clear();
    }
    out
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(value: &Value, schema: &Structural, path: &str) -> Result<(), FieldError> {
    let wanted = match (schema.int_or_string, schema.type_.as_str()) {
        (true, _) => "integer,string",
        (false, type_) => type_,
    };
    if wanted.is_empty() || value.is_null() && schema.nullable {
        return Ok(());
    }
    let is = json_type(value);
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = wanted.split(',').any(|type_| match (type_, is) {
        (wanted, is) if wanted == is => true,
        ("integer", "number") => whole,
        ("number", "integer") => true,
        _ => false,
    });
    // Text with a format that the server knows is left to the format.
    let by_format = is == "string" && wanted == "string" && !schema.format.is_empty();
    if fits || by_format {
        return Ok(());
    }
    let detail =
        format!("{} in body must be of type {wanted}: {}", path.trim_start_matches('.'), go_quote(is));
    Err(error(ErrorKind::TypeInvalid, path, Shown::Value(is.into()), detail))
}

fn check_enum(value: &Value, schema: &Structural, path: &str, out: &mut Outcome) {
    let allowed = &schema.limits.allowed;
    let same = |left: &Value| {
        left == value || left.is_number() && value.is_number() && left.as_f64() == value.as_f64()
    };
    if allowed.is_empty() || allowed.iter().any(same) {
        return;
    }
    let names: Vec<String> = allowed
        .iter()
        .map(|value| go_quote(&value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    let detail = format!("supported values: {}", names.join(", "));
    out.add(error(ErrorKind::NotSupported, path, Shown::Value(value.clone()), detail));
}

fn check_text(text: &str, value: &Value, schema: &Structural, path: &str, out: &mut Outcome) {
    let limits = &schema.limits;
    let length = text.chars().count() as u64;
    let name = path.trim_start_matches('.');
    if let Some(max) = limits.max_length.filter(|max| length > *max) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        out.add(error(
            ErrorKind::TooLong,
            path,
            Shown::Nothing,
            format!("may not be more than {max} {unit}"),
        ));
    } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
        out.add(wrong(path, value, format!("{name} in body should be at least {min} chars long")));
    } else if let Some(pattern) = &limits.pattern
        && !pattern.regex.as_ref().is_some_and(|regex| regex.is_match(text))
    {
        out.add(wrong(path, value, format!("{name} in body should match '{}'", pattern.text)));
    }
}

fn check_format(text: &str, schema: &Structural, path: &str, out: &mut Outcome) {
    if matches!(schema.type_.as_str(), "" | "string") && !formats::fits(&schema.format, text) {
        let name = path.trim_start_matches('.');
        let detail =
            format!("{name} in body must be of type {}: {}", formats::name(&schema.format), go_quote(text));
        out.add(error(ErrorKind::TypeInvalid, path, Shown::Value(text.into()), detail));
    }
}

fn check_number(
    number: &serde_json::Number,
    value: &Value,
    schema: &Structural,
    path: &str,
    out: &mut Outcome,
) {
    let limits = &schema.limits;
    let name = path.trim_start_matches('.');
    let float = number.as_f64().unwrap_or(0.0);
    // Limits of whole numbers are cut to whole numbers.
    let is_int = !number.is_f64();
    let limit_text = |limit: f64| if is_int { format!("{}", limit.trunc()) } else { go_float(limit) };
    let limit_of = |limit: f64| if is_int { limit.trunc() } else { limit };
    if schema.type_ == "integer" {
        let (fits, format) = match schema.format.as_str() {
            "int32" => (float >= f64::from(i32::MIN) && float <= f64::from(i32::MAX), "with format int32"),
            "int64" => (true, "with format int64"),
            _ => (true, "(default format)"),
        };
        if !fits || float.fract() != 0.0 {
            let detail = format!("Checked value must be of type integer {format} in {name}");
            out.add(FieldError::invalid("", "", detail));
        }
    }
    if let Some(of) = limits.multiple_of.filter(|of| *of > 0.0) {
        let times = float / of;
        if (times - times.round()).abs() > 1e-9 {
            out.add(wrong(path, value, format!("{name} in body should be a multiple of {}", limit_text(of))));
        }
    }
    if let Some(min) = limits.minimum {
        let (min_value, strict) = (limit_of(min), limits.exclusive_minimum);
        if float < min_value || strict && float == min_value {
            let word = if strict { "greater than" } else { "greater than or equal to" };
            out.add(wrong(path, value, format!("{name} in body should be {word} {}", limit_text(min))));
        }
    }
    if let Some(max) = limits.maximum {
        let (max_value, strict) = (limit_of(max), limits.exclusive_maximum);
        if float > max_value || strict && float == max_value {
            let word = if strict { "less than" } else { "less than or equal to" };
            out.add(wrong(path, value, format!("{name} in body should be {word} {}", limit_text(max))));
        }
    }
}

fn check_list(
    list: &[Value],
    schema: &Structural,
    path: &str,
    old: Option<&Value>,
    depth: usize,
    out: &mut Outcome,
) {
    let limits = &schema.limits;
    let name = path.trim_start_matches('.');
    let count = list.len() as u64;
    if let Some(items) = &schema.items {
        let old = super::lists::Correlated::new(schema, old);
        for (index, item) in list.iter().enumerate() {
            out.merge(check(item, items, &format!("{path}[{index}]"), old.get(item), depth));
        }
    }
    if let Some(min) = limits.min_items.filter(|min| count < *min) {
        out.add(wrong(path, &count.into(), format!("{name} in body should have at least {min} items")));
    }
    if let Some(max) = limits.max_items.filter(|max| count > *max) {
        out.add(too_many(path, count, max));
    }
    if limits.unique_items && (1..list.len()).any(|at| list[..at].contains(&list[at])) {
        out.add(wrong(path, &"".into(), format!("{name} in body shouldn't contain duplicates")));
    }
}

fn too_many(path: &str, count: u64, max: u64) -> FieldError {
    let unit = if max == 1 { "item" } else { "items" };
    error(ErrorKind::TooMany, path, Shown::Value(count.into()), format!("must have at most {max} {unit}"))
}

fn check_object(
    map: &Map<String, Value>,
    schema: &Structural,
    path: &str,
    old: Option<&Value>,
    depth: usize,
    out: &mut Outcome,
) {
    let limits = &schema.limits;
    let name = path.trim_start_matches('.');
    let count = map.len() as u64;
    if let Some(min) = limits.min_properties.filter(|min| count < *min) {
        out.add(wrong(path, &count.into(), format!("{name} in body should have at least {min} properties")));
    }
    if let Some(max) = limits.max_properties.filter(|max| count > *max) {
        out.add(too_many(path, count, max));
    }
    let old_of = |key: &str| old.and_then(|old| old.get(key));
    for (key, value) in map.iter().filter(|(key, _)| !schema.properties.contains_key(*key)) {
        match &schema.additional {
            Some(Additional::Allowed(false)) => {
                out.add(wrong(
                    path,
                    &key.as_str().into(),
                    format!("{name}.{key} in body is a forbidden property"),
                ));
            }
            Some(Additional::Schema(of)) => {
                out.merge(check(value, of, &format!("{path}.{key}"), old_of(key), depth));
            }
            Some(Additional::Allowed(true)) | None => {}
        }
    }
    for (key, property) in &schema.properties {
        if let Some(value) = map.get(key) {
            out.merge(check(value, property, &child(path, key), old_of(key), depth));
        }
    }
    for key in limits.required.iter().filter(|key| !map.contains_key(*key)) {
        out.add(error(ErrorKind::Required, &format!("{path}.{key}"), Shown::Nothing, String::new()));
    }
}

fn check_alternatives(value: &Value, schema: &Structural, path: &str, depth: usize) -> Outcome {
    let limits = &schema.limits;
    let mut out = Outcome::default();
    let run = |part: &Structural| check(value, part, path, None, depth);
    if !limits.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut fine = false;
        for outcome in limits.any_of.iter().map(run) {
            if outcome.is_valid() {
                fine = true;
                break;
            }
            if best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
                best = Some(outcome);
            }
        }
        if !fine {
            out.add(composite(path, "must validate at least one schema (anyOf)".to_owned()));
            out.merge(best.unwrap_or_default());
        }
    }
    if !limits.one_of.is_empty() {
        let (mut best, mut valid): (Option<Outcome>, usize) = (None, 0);
        for outcome in limits.one_of.iter().map(run) {
            if outcome.is_valid() {
                valid += 1;
                best = None;
            } else if valid == 0 && best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
                best = Some(outcome);
            }
        }
        if valid != 1 {
            let found = match valid {
                0 => "Found none valid".to_owned(),
                many => format!("Found {many} valid alternatives"),
            };
            out.add(composite(path, format!("must validate one and only one schema (oneOf). {found}")));
            out.merge(best.unwrap_or_default());
        }
    }
    if !limits.all_of.is_empty() {
        let mut valid = 0;
        for outcome in limits.all_of.iter().map(run) {
            valid += usize::from(outcome.is_valid());
            out.merge(outcome);
        }
        if valid != limits.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            out.add(composite(path, format!("must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &limits.not
        && run(not).is_valid()
    {
        out.add(composite(path, "must not validate the schema (not)".to_owned()));
    }
    out.passed += 1;
    out
}
