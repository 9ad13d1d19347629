//! Reads JSON values into structs the way Go's encoding/json does, error texts included.
//!
//! Users meet those texts ("cannot unmarshal number into Go struct field …"), and three habits of Go decide
//! what a kustomization file means: keys match without regard to case, `null` leaves a field alone, and only
//! the first mistake is reported. Deliberately absent: any other decoding, serde does that better.

use std::collections::BTreeMap;

use serde_json::Value;

/// Something that can be read from JSON, with the name Go would use for its type.
pub(crate) trait FromGo: Default {
    fn go_type() -> String;
    fn read(&mut self, value: &Value, decoder: &mut Decoder);
}

/// The state of one decoding: where it is, and the first thing that went wrong.
#[derive(Default)]
pub(crate) struct Decoder {
    strict: bool,
    /// sigs.k8s.io/yaml turns a number or boolean into text where text is wanted. kustomization files do not
    /// pass through that.
    numbers_as_text: bool,
    error: Option<String>,
    struct_name: &'static str,
    path: Vec<&'static str>,
}

impl Decoder {
    /// Unknown fields are an error, as in kustomization files.
    pub(crate) fn strict<T: FromGo>(value: &Value) -> Result<T, String> {
        Self { strict: true, ..Self::default() }.run(value)
    }

    /// Unknown fields are an error, but numbers may stand for text, as in the files of `configurations`.
    pub(crate) fn strict_fields<T: FromGo>(value: &Value) -> Result<T, String> {
        Self { strict: true, numbers_as_text: true, ..Self::default() }.run(value)
    }

    /// Unknown fields are ignored and numbers may stand for text, as in plugin configuration.
    pub(crate) fn lenient<T: FromGo>(value: &Value) -> Result<T, String> {
        Self { numbers_as_text: true, ..Self::default() }.run(value)
    }

    fn run<T: FromGo>(mut self, value: &Value) -> Result<T, String> {
        let mut result = T::default();
        result.read(value, &mut self);
        match self.error {
            None => Ok(result),
            Some(error) => Err(format!("json: {error}")),
        }
    }

    fn save(&mut self, error: String) {
        self.error.get_or_insert(error);
    }

    fn mismatch(&mut self, value: &Value, go_type: &str) {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if go_type.starts_with("int") => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let place = if self.struct_name.is_empty() {
            "Go value".to_owned()
        } else {
            format!("Go struct field {}.{}", self.struct_name, self.path.join("."))
        };
        self.save(format!("cannot unmarshal {found} into {place} of type {go_type}"));
    }

    /// Hands each key of an object to `field`, which answers whether it knows the key.
    pub(crate) fn object(
        &mut self,
        value: &Value,
        name: &'static str,
        go_type: &str,
        mut field: impl FnMut(&mut Self, &str, &Value) -> bool,
    ) {
        let Value::Object(entries) = value else {
            if !value.is_null() {
                self.mismatch(value, go_type);
            }
            return;
        };
        for (key, value) in entries {
            let outer = std::mem::replace(&mut self.struct_name, name);
            let known = field(self, key, value);
            self.struct_name = outer;
            if !known && self.strict {
                self.save(format!("unknown field {}", crate::go_text::quote(key)));
            }
        }
    }

    /// Reads one field of the struct at hand; `path` is its place, with the embedded Go structs on the way.
    pub(crate) fn field<T: FromGo>(&mut self, path: &'static str, slot: &mut T, value: &Value) {
        self.path.push(path);
        // sigs.k8s.io/yaml loses sight of the type behind a struct that Go embeds.
        let outer = self.numbers_as_text;
        self.numbers_as_text &= !path.contains('.');
        slot.read(value, self);
        self.numbers_as_text = outer;
        self.path.pop();
    }
}

impl FromGo for String {
    fn go_type() -> String {
        "string".to_owned()
    }

    fn read(&mut self, value: &Value, decoder: &mut Decoder) {
        match value {
            Value::Null => {}
            Value::String(text) => text.clone_into(self),
            Value::Bool(flag) if decoder.numbers_as_text => *self = flag.to_string(),
            Value::Number(number) if decoder.numbers_as_text => *self = number_text(number),
            other => decoder.mismatch(other, "string"),
        }
    }
}

/// The text of a number after it went through JSON and YAML: a float without a fraction is an integer by then.
fn number_text(number: &serde_json::Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    match yaml::json_float(float) {
        Some(text) if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() => text,
        _ => yaml::format_float_g(float),
    }
}

impl FromGo for bool {
    fn go_type() -> String {
        "bool".to_owned()
    }

    fn read(&mut self, value: &Value, decoder: &mut Decoder) {
        match value {
            Value::Null => {}
            Value::Bool(flag) => *self = *flag,
            other => decoder.mismatch(other, "bool"),
        }
    }
}

impl FromGo for i64 {
    fn go_type() -> String {
        "int64".to_owned()
    }

    fn read(&mut self, value: &Value, decoder: &mut Decoder) {
        read_integer(self, value, "int64", decoder);
    }
}

/// Go's `int`; on every platform kustomize runs on it has 64 bits, only its name differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Int(pub i64);

impl FromGo for Int {
    fn go_type() -> String {
        "int".to_owned()
    }

    fn read(&mut self, value: &Value, decoder: &mut Decoder) {
        read_integer(&mut self.0, value, "int", decoder);
    }
}

fn read_integer(slot: &mut i64, value: &Value, go_type: &str, decoder: &mut Decoder) {
    match value {
        Value::Null => {}
        Value::Number(number) if number.is_i64() => *slot = number.as_i64().unwrap_or_default(),
        other => decoder.mismatch(other, go_type),
    }
}

impl<T: FromGo> FromGo for Vec<T> {
    fn go_type() -> String {
        format!("[]{}", T::go_type())
    }

    fn read(&mut self, value: &Value, decoder: &mut Decoder) {
        match value {
            Value::Null => self.clear(),
            Value::Array(items) => {
                *self = items
                    .iter()
                    .map(|item| {
                        let mut element = T::default();
                        element.read(item, decoder);
                        element
                    })
                    .collect();
            }
            other => decoder.mismatch(other, &Self::go_type()),
        }
    }
}

/// A pointer in Go: absent and `null` are `None`.
impl<T: FromGo> FromGo for Option<T> {
    fn go_type() -> String {
        T::go_type()
    }

    fn read(&mut self, value: &Value, decoder: &mut Decoder) {
        if value.is_null() {
            *self = None;
        } else {
            self.get_or_insert_with(T::default).read(value, decoder);
        }
    }
}

impl FromGo for BTreeMap<String, String> {
    fn go_type() -> String {
        "map[string]string".to_owned()
    }

    fn read(&mut self, value: &Value, decoder: &mut Decoder) {
        match value {
            Value::Null => self.clear(),
            Value::Object(entries) => {
                for (key, value) in entries {
                    let mut text = String::new();
                    text.read(value, decoder);
                    self.insert(key.clone(), text);
                }
            }
            other => decoder.mismatch(other, &Self::go_type()),
        }
    }
}

/// Any JSON, kept as it is.
impl FromGo for Value {
    fn go_type() -> String {
        "interface {}".to_owned()
    }

    fn read(&mut self, value: &Value, _: &mut Decoder) {
        *self = value.clone();
    }
}

/// Declares a struct with the JSON keys and the Go paths of its fields.
///
/// `field: Type = "key"` reads `key`; `field: Type = "key" in "Embedded.key"` does too, and errors name the
/// path through the Go structs that kustomize embeds.
macro_rules! go_struct {
    ($(#[$meta:meta])* $go:literal struct $name:ident { $( $(#[$field_meta:meta])* $field:ident : $type:ty = $key:literal $(in $path:literal)? ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct $name { $( $(#[$field_meta])* pub $field: $type ),* }

        impl $crate::kustomization::decode::FromGo for $name {
            fn go_type() -> String {
                concat!("types.", $go).to_owned()
            }

            fn read(&mut self, value: &serde_json::Value, decoder: &mut $crate::kustomization::decode::Decoder) {
                decoder.object(value, $go, concat!("types.", $go), |decoder, key, value| {
                    let _ = (&decoder, value);
                    $( if key.eq_ignore_ascii_case($key) {
                        decoder.field($crate::kustomization::decode::go_struct!(@path $key $($path)?), &mut self.$field, value);
                        return true;
                    } )*
                    false
                });
            }
        }
    };
    (@path $key:literal) => { $key };
    (@path $key:literal $path:literal) => { $path };
}

pub(crate) use go_struct;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    go_struct! {
        "Inner" struct Inner { name: String = "name", literals: Vec<String> = "literals" in "Sources.literals" }
    }
    go_struct! {
        "Outer" struct Outer { inner: Vec<Inner> = "inner", count: Int = "count" }
    }

    #[test]
    fn keys_match_without_regard_to_case() {
        let outer: Outer = Decoder::strict(&json!({"INNER": [{"Name": "a"}]})).unwrap();
        assert_eq!(outer.inner[0].name, "a");
    }

    #[test]
    fn a_mismatch_names_struct_and_full_path() {
        let error = Decoder::strict::<Outer>(&json!({"inner": [{"literals": "x"}]})).unwrap_err();
        assert_eq!(
            error,
            "json: cannot unmarshal string into Go struct field Inner.inner.Sources.literals of type []string"
        );
    }

    #[test]
    fn unknown_fields_fail_only_when_strict() {
        assert!(Decoder::lenient::<Outer>(&json!({"x": 1})).is_ok());
        assert_eq!(Decoder::strict::<Outer>(&json!({"x": 1})).unwrap_err(), r#"json: unknown field "x""#);
    }

    #[test]
    fn numbers_stand_for_text_only_when_lenient() {
        let embedded = json!({"inner": [{"literals": [1]}]});
        assert!(Decoder::lenient::<Outer>(&embedded).is_err());
        let value = json!({"inner": [{"name": 2.5}, {"name": true}]});
        let outer: Outer = Decoder::lenient(&value).unwrap();
        assert_eq!([&*outer.inner[0].name, &*outer.inner[1].name], ["2.5", "true"]);
        assert!(Decoder::strict::<Outer>(&value).is_err());
    }

    #[test]
    fn fractions_are_shown_for_integers() {
        let error = Decoder::strict::<Outer>(&json!({"count": 1.5})).unwrap_err();
        assert_eq!(error, "json: cannot unmarshal number 1.5 into Go struct field Outer.count of type int");
    }
}
