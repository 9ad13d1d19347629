//! Kubernetes CEL: the `cel` crate with Kubernetes' libraries, limits and type rules.

mod quantity;

pub use quantity::{Quantity, QuantityError};
