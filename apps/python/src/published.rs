//! Published experiments beside our figures.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use scenarios::published::{EXPERIMENTS, Row, run};

use crate::table::{Table, fractions, words};

/// The names of the published experiments, each with a description.
#[pyfunction]
pub(crate) fn experiments() -> Vec<(&'static str, &'static str)> {
    EXPERIMENTS.to_vec()
}

/// The rows of the experiment `name`, or of all experiments: published figures beside ours.
#[pyfunction]
#[pyo3(signature = (name=None, *, seed=1))]
pub(crate) fn published(py: Python<'_>, name: Option<String>, seed: u64) -> PyResult<Table> {
    let names = match &name {
        Some(name) => vec![name.as_str()],
        None => EXPERIMENTS.iter().map(|(name, _)| *name).collect(),
    };
    let reports = py.detach(|| names.into_iter().map(|name| run(name, seed)).collect::<Result<Vec<_>, _>>());
    let reports = reports.map_err(PyValueError::new_err)?;
    let rows: Vec<&Row> = reports.iter().flat_map(|report| &report.rows).collect();
    Table::new(vec![
        ("experiment", words(rows.iter().map(|row| row.experiment))),
        ("row", words(rows.iter().map(|row| &row.row))),
        ("published", fractions(rows.iter().map(|row| row.published))),
        ("ours", fractions(rows.iter().map(|row| Some(row.ours)))),
        ("unit", words(rows.iter().map(|row| row.unit))),
        ("error_percent", fractions(rows.iter().map(|row| row.error_percent()))),
        ("kind", words(rows.iter().map(|row| row.class().name()))),
        ("measure", words(rows.iter().map(|row| row.measure.name()))),
        ("source", words(rows.iter().map(|row| row.source))),
    ])
}
