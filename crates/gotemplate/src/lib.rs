//! Go's text/template and sprig, on values that are shared and mutable as Go's maps are.
