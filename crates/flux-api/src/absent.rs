//! When a field is left out. Flux's Go types write a field only when it is not its zero value and read an empty string
//! as if it were not there; ours do the same, so that an object survives being read by one and written by the other.

use serde::{Deserialize, Deserializer};

/// `false` is not written.
pub(crate) fn no(value: &bool) -> bool {
    !*value
}

/// `0` is not written.
pub(crate) fn zero(value: &i64) -> bool {
    *value == 0
}

/// Reads `""` and `null` as absent.
pub(crate) fn empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}
