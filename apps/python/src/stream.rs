//! Rows of a capture as a stream of batches, by Arrow's C stream interface: a capture may be larger
//! than memory.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchReader, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use captures::table::{Column, CommandRows, PacketRows, Rows as Gathered};
use captures::{Columns, Commands, Error, Packets, Source, refuse_empty};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::capture::failed;
use crate::table::Table;

/// The level of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Commands,
    Packets,
}

impl Level {
    /// The columns of such rows.
    fn schema(self) -> SchemaRef {
        match self {
            Self::Commands => schema_of::<CommandRows>(),
            Self::Packets => schema_of::<PacketRows>(),
        }
    }
}

fn schema_of<R: Gathered>() -> SchemaRef {
    let fields = R::names().into_iter().zip(R::new(1).into_columns()).map(|(name, column)| match column {
        Column::Words(_) => Field::new(name, DataType::Utf8, false),
        Column::Numbers(_) => Field::new(name, DataType::Int64, false),
        Column::Optional(_) => Field::new(name, DataType::Int64, true),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns of rows as Arrow has them.
fn batch(schema: &SchemaRef, rows: impl Gathered) -> Result<RecordBatch, ArrowError> {
    let array = |column| -> ArrayRef {
        match column {
            Column::Words(words) => Arc::new(StringArray::from(words)),
            Column::Numbers(numbers) => Arc::new(Int64Array::from(numbers)),
            Column::Optional(numbers) => Arc::new(Int64Array::from(numbers)),
        }
    };
    RecordBatch::try_new(schema.clone(), rows.into_columns().into_iter().map(array).collect())
}

/// The source of batches.
enum From {
    Commands(Box<Commands>),
    Packets(Packets),
}

/// The batches of a capture, from its beginning on.
struct Batches {
    from: From,
    path: PathBuf,
    map: Option<Columns>,
    schema: SchemaRef,
    /// Rows of a batch.
    size: usize,
    /// Rows so far.
    count: u64,
    is_over: bool,
    /// Why the capture ends before its end: rows that were read before come first.
    failure: Option<Error>,
}

impl Batches {
    /// The next rows; none at the end.
    fn gather(&mut self) -> Option<Result<RecordBatch, ArrowError>> {
        let first = self.count + 1;
        match &mut self.from {
            From::Commands(commands) => {
                let mut rows = CommandRows::new(first);
                while !self.is_over && rows.len() < self.size {
                    match commands.next() {
                        Some(Ok(command)) => rows.add(&command),
                        ended => {
                            self.is_over = true;
                            let read = ended.and_then(Result::err).map_or(Ok(()), Err);
                            let has_rows = self.count > 0 || !rows.is_empty();
                            let check = || commands.analysis().check(&self.path, has_rows);
                            self.failure = read.and_then(|()| check()).err();
                        }
                    }
                }
                self.count += rows.len() as u64;
                (!rows.is_empty()).then(|| batch(&self.schema, rows))
            }
            From::Packets(packets) => {
                let mut rows = PacketRows::new(first);
                while !self.is_over && rows.len() < self.size {
                    let read = packets.read_on(|seen| rows.add(seen));
                    self.is_over = !matches!(read, Ok(true));
                    self.failure = read.err();
                }
                if self.is_over && self.failure.is_none() && self.count == 0 && rows.is_empty() {
                    // A capture without packets may have commands of another kind.
                    let source = Source { file: &self.path, columns: self.map.as_ref() };
                    self.failure = refuse_empty(source).err();
                }
                self.count += rows.len() as u64;
                (!rows.is_empty()).then(|| batch(&self.schema, rows))
            }
        }
    }

    /// The next rows; none at the end. An error in the capture comes behind the rows that are
    /// before it.
    fn next_batch(&mut self) -> Option<Result<RecordBatch, Failure>> {
        match self.gather() {
            Some(rows) => Some(rows.map_err(Failure::Arrow)),
            None => self.failure.take().map(|error| Err(Failure::Capture(error))),
        }
    }
}

/// Why there is no batch.
enum Failure {
    Capture(Error),
    Arrow(ArrowError),
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch()?;
        Some(next.map_err(|failure| match failure {
            Failure::Capture(error) => ArrowError::ExternalError(Box::new(error)),
            Failure::Arrow(error) => error,
        }))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Rows of a capture, which are read from its beginning each time that they are taken: pyarrow,
/// pandas and polars by the Arrow PyCapsule interface, Python by iteration over tables.
#[pyclass(frozen, module = "farlane")]
pub(crate) struct Rows {
    path: PathBuf,
    map: Option<Columns>,
    level: Level,
    batch: usize,
}

impl Rows {
    pub(crate) fn new(path: PathBuf, map: Option<Columns>, level: Level, batch: usize) -> Self {
        Self { path, map, level, batch }
    }

    fn batches(&self, py: Python<'_>) -> PyResult<Batches> {
        let source = Source { file: &self.path, columns: self.map.as_ref() };
        let from = py.detach(|| match self.level {
            Level::Commands => Commands::open(source).map(|commands| From::Commands(Box::new(commands))),
            Level::Packets => Packets::open(source).map(From::Packets),
        });
        let (schema, size) = (self.level.schema(), self.batch);
        let (path, map) = (self.path.clone(), self.map.clone());
        let from = from.map_err(failed)?;
        Ok(Batches { from, path, map, schema, size, count: 0, is_over: false, failure: None })
    }
}

#[pymethods]
impl Rows {
    /// The Arrow C stream of the rows, from the beginning of the capture on. A schema that is asked
    /// for is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(self.batches(py)?));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Tables of some rows, one after the other.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Tables> {
        Ok(Tables(Mutex::new(self.batches(py)?)))
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.level.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __repr__(&self) -> String {
        format!("<farlane.Rows: {} of {}>", self.column_names().join(", "), self.path.display())
    }
}

/// Tables of some rows of a capture, one after the other.
#[pyclass(frozen, module = "farlane")]
pub(crate) struct Tables(Mutex<Batches>);

#[pymethods]
impl Tables {
    const fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Table>> {
        let next = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).next_batch());
        match next {
            None => Ok(None),
            Some(Ok(batch)) => Ok(Some(Table::of(batch))),
            Some(Err(Failure::Capture(error))) => Err(failed(error)),
            Some(Err(Failure::Arrow(error))) => Err(PyValueError::new_err(error.to_string())),
        }
    }
}
