//! Scenarios that are played, and their results.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use captures::Simulated;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use scenarios::file::scenario::{self, Played};
use scenarios::file::sweep::{Axis, apply, scenario_at};
use scenarios::summary::Summary;

use crate::capture::failed;
use crate::table::{Table, numbers, words};

/// A scenario: the text of a file as `farlane model sim` reads it, checked.
#[pyclass(frozen, module = "farlane")]
pub(crate) struct Scenario {
    #[pyo3(get)]
    text: String,
    folder: PathBuf,
    #[pyo3(get)]
    seed: u64,
}

#[pymethods]
impl Scenario {
    /// The scenario in `text`. Files that it names are relative to `folder`.
    #[new]
    #[pyo3(signature = (text, folder=PathBuf::from(".")))]
    fn new(text: String, folder: PathBuf) -> PyResult<Self> {
        let scenario = scenario::Scenario::parse_in(&text, &folder).map_err(PyValueError::new_err)?;
        Ok(Self { text, folder, seed: scenario.seed })
    }

    /// The scenario in the file at `path`.
    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<Self> {
        let unread = |error| PyOSError::new_err(format!("{}: {error}", path.display()));
        let text = texts::read(&path, texts::FILE_MAX).map_err(unread)?;
        Self::new(text, path.parent().unwrap_or(Path::new(".")).to_owned())
    }

    /// The same scenario with other values, by path as `farlane model sweep --set` names them.
    fn with_values(&self, values: BTreeMap<String, String>) -> PyResult<Self> {
        let point: Vec<_> = values.values().cloned().collect();
        let axis = |(path, value)| Axis { path, values: vec![value] };
        let axes: Vec<_> = values.into_iter().map(axis).collect();
        let scenario = scenario_at(&self.text, &self.folder, &axes, &point).map_err(PyValueError::new_err)?;
        let text = apply(&self.text, &axes, &point).map_err(PyValueError::new_err)?;
        Ok(Self { text, folder: self.folder.clone(), seed: scenario.seed })
    }

    /// Plays the scenario once. Other threads of Python run meanwhile. With `trace`, the packets
    /// that pass the root port's link go to this file (pcapng).
    #[pyo3(signature = (*, seed=None, trace=None))]
    fn play(&self, py: Python<'_>, seed: Option<u64>, trace: Option<PathBuf>) -> PyResult<Run> {
        let seed = seed.unwrap_or(self.seed);
        let scenario =
            scenario::Scenario::parse_in(&self.text, &self.folder).map_err(PyValueError::new_err)?;
        let played = match trace {
            Some(path) => py.detach(|| play_to(&scenario, seed, &path)),
            None => py.detach(|| scenario.play(seed, false)).map_err(PyRuntimeError::new_err),
        }?;
        Ok(Run { seed, played })
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (String, PathBuf)) {
        let own = this.get();
        (this.get_type().into_any(), (own.text.clone(), own.folder.clone()))
    }
}

/// Plays a scenario, and writes the packets of its root port's link to a new file at `path`.
fn play_to(scenario: &scenario::Scenario, seed: u64, path: &Path) -> PyResult<Played> {
    let capture = Rc::new(RefCell::new(Simulated::create(path).map_err(failed)?));
    let played = scenario.play_watched(seed, capture.clone()).map_err(PyRuntimeError::new_err)?;
    capture.borrow_mut().finish().map_err(failed)?;
    Ok(played)
}

/// The result of a scenario that was played.
#[pyclass(frozen, module = "farlane")]
pub(crate) struct Run {
    #[pyo3(get)]
    seed: u64,
    played: Played,
}

#[pymethods]
impl Run {
    /// How long the host took to bring the device up, in nanoseconds.
    #[getter]
    fn boot_ns(&self) -> u64 {
        self.played.boot.get()
    }

    /// How many events the world had.
    #[getter]
    fn events(&self) -> u64 {
        self.played.events
    }

    /// The fingerprint of all that happened, as `farlane model sim --json` prints it.
    #[getter]
    fn digest(&self) -> String {
        format!("{:016x}", self.played.digest)
    }

    /// A row for each task.
    #[getter]
    fn tasks(&self) -> PyResult<Table> {
        let figures: Vec<_> = self.played.tasks.iter().map(Summary::of).collect();
        let mut columns = vec![("task", words(self.played.tasks.iter().map(|task| &task.name)))];
        for (name, value) in Summary::FIGURES {
            columns.push((name, numbers(figures.iter().map(value))));
        }
        Table::new(columns)
    }

    /// A row for each stream: its frames that arrived are operations, those that were lost failed.
    #[getter]
    fn streams(&self) -> PyResult<Table> {
        let streams = &self.played.streams;
        let figures: Vec<_> = streams.iter().map(|stream| Summary::of(&stream.done)).collect();
        let mut columns = vec![
            ("stream", words(streams.iter().map(|stream| &stream.done.name))),
            ("sent", numbers(streams.iter().map(|stream| stream.sent))),
        ];
        for (name, value) in Summary::FIGURES {
            columns.push((name, numbers(figures.iter().map(value))));
        }
        Table::new(columns)
    }

    /// A row for each measured operation.
    #[getter]
    fn operations(&self) -> PyResult<Table> {
        let tasks = &self.played.tasks;
        let names = tasks.iter().flat_map(|task| task.outcome.times.iter().map(|_| &task.name));
        let of = |task: &scenario::Done| task.outcome.numbers.clone();
        Table::new(vec![
            ("task", words(names)),
            ("number", numbers(tasks.iter().flat_map(of))),
            (
                "latency_ns",
                numbers(tasks.iter().flat_map(|task| task.outcome.times.iter().map(|time| time.get()))),
            ),
        ])
    }
}
