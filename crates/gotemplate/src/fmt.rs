//! Go fmt.
