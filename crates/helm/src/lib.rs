//! Helm as a function: charts, values, rendering, releases.
