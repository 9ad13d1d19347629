//! Go's text/template and sprig, on values that are shared and mutable as Go's maps are.
//!
//! ```text
//! let mut set = Set::new(Functions::sprig().shared()).missing_key(MissingKey::Zero);
//! set.parse("greeting", "hello {{ .name | upper }}")?;
//! let session = Session::new(&host, Limits::default());
//! let output = Arc::new(set).execute(&session, "greeting", &data)?;
//! ```
//!
//! Pure: the clock, chance, time zones and the network are the caller's [`Host`]. Not here: what Helm adds (`include`,
//! `tpl`, `toYaml`, `.Files`…); the crate `helm` registers those as [`Function`]s.

mod context;
mod error;
mod exec;
mod fmt;
mod function;
mod host;
mod lex;
mod limits;
mod memory;
mod node;
mod number;
mod parse;
mod set;
mod sprig;
mod stack;
mod strconv;
mod time;
mod unicode;
mod value;

pub use context::{Context, Failure, Session};
pub use error::{Error, ErrorKind, Limit};
pub use fmt::{show, sprintf};
pub use function::{Call, Function, Functions, Signature};
pub use host::Host;
pub use limits::Limits;
pub use set::{MissingKey, Set, Template};
pub use sprig::{JsonStyle, compile_regex, decode_json, encode_json, strval, to_float64, to_int64};
pub use stack::grow;
pub use strconv::{NumberError, format_float, parse_float, quote, quote_rune};
pub use time::{Duration, Time, Zone};
pub use unicode::is_print;
pub use value::*;
