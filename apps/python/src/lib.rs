//! The native part of the Python package `farlane`: simulations whose results are Arrow tables.

#![forbid(unsafe_code)]

mod published;
mod scenario;
mod table;

/// The native part of the Python package `farlane`.
#[pyo3::pymodule]
mod _farlane {
    #[pymodule_export]
    use crate::published::{experiments, published};
    #[pymodule_export]
    use crate::scenario::{Run, Scenario};
    #[pymodule_export]
    use crate::table::Table;
}
