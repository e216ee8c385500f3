//! Captures: their contents, the parts of their commands' times, and their rows as streams.

use std::collections::BTreeMap;
use std::path::PathBuf;

use captures::ordered::Queue;
use captures::statistics::Report;
use captures::{Columns, Commands, Error, Groups, Population, Source, Times, of_kind};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use trace::{Command, Step};

use crate::stream::{Level, Rows};
use crate::table::{Table, fractions, numbers, words};

/// Frames that are read before Python may say that it wants no more.
const FRAMES_TOGETHER: usize = 1 << 16;
/// The most rows of a batch: a batch is held whole.
const BATCH_MAX: usize = 1 << 20;

/// The Python error for a file that can't be read.
pub(crate) fn failed(error: Error) -> PyErr {
    match error {
        Error::File { .. } => PyOSError::new_err(error.to_string()),
        Error::Broken { .. } | Error::NoColumn { .. } | Error::Nothing { .. } => {
            PyValueError::new_err(error.to_string())
        }
    }
}

/// A capture: a file as `farlane observe trace` reads it. It is read anew for each answer.
#[pyclass(frozen, module = "farlane")]
pub(crate) struct Capture {
    #[pyo3(get)]
    path: PathBuf,
    /// The meaning of the columns of a hardware analyser's table, in the words of `--columns`.
    #[pyo3(get)]
    columns: Option<String>,
    map: Option<Columns>,
}

impl Capture {
    fn source(&self) -> Source<'_> {
        Source { file: &self.path, columns: self.map.as_ref() }
    }

    /// Shows each command to `show`, and returns the capture as far as it was read. `show` returns
    /// whether it wants more. Other threads of Python run meanwhile, and Ctrl-C interrupts it.
    fn each(&self, py: Python<'_>, mut show: impl FnMut(Command) -> bool + Send) -> PyResult<Commands> {
        let mut commands = py.detach(|| Commands::open(self.source())).map_err(failed)?;
        loop {
            let goes_on = py.detach(|| {
                for _ in 0..FRAMES_TOGETHER {
                    let goes_on = commands.read_on()?;
                    while let Some(command) = commands.poll_command() {
                        if !show(command) {
                            return Ok(false);
                        }
                    }
                    if !goes_on {
                        return Ok(false);
                    }
                }
                Ok(true)
            });
            if !goes_on.map_err(failed)? {
                return Ok(commands);
            }
            py.check_signals()?;
        }
    }

    fn rows(&self, level: Level, batch: usize) -> PyResult<Rows> {
        if !(1..=BATCH_MAX).contains(&batch) {
            return Err(PyValueError::new_err(format!("batch_rows={batch}: expected 1 to {BATCH_MAX}")));
        }
        Ok(Rows::new(self.path.clone(), self.map.clone(), level, batch))
    }
}

#[pymethods]
impl Capture {
    /// The capture in the file at `path`; with `columns`, a table as `--columns` names its columns.
    #[new]
    #[pyo3(signature = (path, columns=None))]
    fn new(path: PathBuf, columns: Option<String>) -> PyResult<Self> {
        let map = columns.as_deref().map(str::parse).transpose();
        let map = map.map_err(|why: String| PyValueError::new_err(format!("columns: {why}")))?;
        let capture = Self { path, columns, map };
        // A path that is no file is an error at once. A file that is no capture may be words, which
        // takes reading.
        Commands::open(capture.source()).map_err(failed)?;
        Ok(capture)
    }

    /// A row for each command, as `farlane observe trace convert` writes them.
    #[pyo3(signature = (*, batch_rows=65_536))]
    fn commands(&self, batch_rows: usize) -> PyResult<Rows> {
        self.rows(Level::Commands, batch_rows)
    }

    /// A row for each PCIe packet (TLP).
    #[pyo3(signature = (*, batch_rows=65_536))]
    fn tlps(&self, batch_rows: usize) -> PyResult<Rows> {
        self.rows(Level::Packets, batch_rows)
    }

    /// The output of `farlane observe trace stats --json`, as a dictionary.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut groups = Groups::new();
        let commands = self.each(py, |command| {
            of_kind(&mut groups, command.kind).add(&command);
            true
        })?;
        commands.analysis().check(&self.path, !groups.is_empty()).map_err(failed)?;
        let report = Report::of(&commands.analysis(), &groups);
        let text =
            serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// Where the time of the command with this number went: a row for each step. The command that
    /// began first is 1.
    fn chain(&self, py: Python<'_>, number: u64) -> PyResult<Table> {
        let (mut count, mut found, mut queue) = (0, None, Queue::default());
        let mut look = |command| {
            count += 1;
            if count == number {
                found = Some(command);
            }
            found.is_none()
        };
        let commands = self.each(py, |command| queue.add(command).is_none_or(&mut look))?;
        // The waiting commands are younger.
        while queue.next().is_some_and(&mut look) {}
        let command = found.ok_or_else(|| {
            if let Err(error) = commands.analysis().check(&self.path, count > 0) {
                return failed(error);
            }
            let expected = format!("1 to {count}, as the capture has {count} commands");
            PyValueError::new_err(format!("number={number}: expected {expected}"))
        })?;
        let chain = command.chain();
        let packets = chain.iter().map(|(step, _)| {
            command.hops.iter().find(|hop| hop.step == *step).map_or(0, |hop| u64::from(hop.packets))
        });
        Table::new(vec![
            ("step", words(chain.iter().map(|(step, _)| step.name()))),
            ("ns", numbers(chain.iter().map(|(_, length)| length.get()))),
            ("packets", numbers(packets)),
        ])
    }

    /// Where the time of all commands went: a row for each step of each kind of command. With
    /// `three_sigma`, without times beyond three standard deviations of the mean.
    #[pyo3(signature = (*, three_sigma=false))]
    fn chains(&self, py: Python<'_>, three_sigma: bool) -> PyResult<Table> {
        let mut kinds = BTreeMap::<String, Population>::new();
        let commands = self.each(py, |command| {
            of_kind(&mut kinds, command.kind).add(&command);
            true
        })?;
        commands.analysis().check(&self.path, !kinds.is_empty()).map_err(failed)?;
        if three_sigma {
            kinds.values_mut().for_each(Population::filter);
        }
        chains(&kinds)
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (PathBuf, Option<String>)) {
        let own = this.get();
        (this.get_type().into_any(), (own.path.clone(), own.columns.clone()))
    }

    fn __repr__(&self) -> String {
        format!("<farlane.Capture: {}>", self.path.display())
    }
}

/// A row for each step of each kind.
fn chains(kinds: &BTreeMap<String, Population>) -> PyResult<Table> {
    let rows: Vec<(&String, &Population, Step, &Times)> = kinds
        .iter()
        .flat_map(|(name, of)| of.steps.iter().map(move |(step, times)| (name, of, *step, times)))
        .collect();
    let quantile = |share| numbers(rows.iter().map(|(.., of)| of.times.quantile(share).get()));
    Table::new(vec![
        ("command", words(rows.iter().map(|(name, ..)| name))),
        ("step", words(rows.iter().map(|(_, _, step, _)| step.name()))),
        ("count", numbers(rows.iter().map(|(.., of)| of.times.count()))),
        ("packets", numbers(rows.iter().map(|(.., of)| of.packets))),
        ("share", fractions(rows.iter().map(|(_, of, step, _)| Some(of.share(*step))))),
        ("mean_ns", fractions(rows.iter().map(|(.., of)| Some(of.times.mean())))),
        ("deviation_ns", fractions(rows.iter().map(|(.., of)| Some(of.times.deviation())))),
        ("p50_ns", quantile(0.5)),
        ("p90_ns", quantile(0.9)),
        ("p99_ns", quantile(0.99)),
        ("p999_ns", quantile(0.999)),
        ("max_ns", quantile(1.0)),
    ])
}
