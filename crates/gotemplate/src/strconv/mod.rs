//! Go's strconv: how Go quotes strings and reads and writes numbers.

mod float;
mod number;
mod quote;

pub use float::{append_float, format_float, parse_float};
pub use number::{NumberError, parse_int, parse_uint};
pub use quote::{
    can_backquote, quote, quote_rune, quote_rune_to_ascii, quote_to_ascii, unquote, unquote_char,
};
