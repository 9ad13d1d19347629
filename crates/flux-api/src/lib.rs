//! The kinds of Flux: types, reasons, CRDs.
