//! The native part of the Python package `farlane`: captures, simulations and measurements as
//! Arrow tables.

#![forbid(unsafe_code)]

mod capture;
mod measured;
mod published;
mod scenario;
mod stream;
mod table;

/// The native part of the Python package `farlane`.
#[pyo3::pymodule]
mod _farlane {
    #[pymodule_export]
    use crate::capture::Capture;
    #[pymodule_export]
    use crate::measured::measured;
    #[pymodule_export]
    use crate::published::{experiments, published};
    #[pymodule_export]
    use crate::scenario::{Run, Scenario};
    #[pymodule_export]
    use crate::stream::{Rows, Tables};
    #[pymodule_export]
    use crate::table::Table;
}
