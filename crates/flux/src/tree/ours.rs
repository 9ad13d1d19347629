//! Commands that upstream does not have. Rows only: what they do stands in `commands`.

use super::Row;

pub(super) static ROWS: &[Row] = &[];
