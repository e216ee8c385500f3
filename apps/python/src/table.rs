//! Columns of equal length, handed over by Arrow's C data interface without a copy.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array as _, ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::DataType;
use captures::table::number;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

/// A table. pyarrow, pandas and polars take it by the Arrow PyCapsule interface.
#[pyclass(frozen, module = "farlane")]
pub(crate) struct Table(RecordBatch);

impl Table {
    /// The rows of a batch as a table.
    pub(crate) const fn of(batch: RecordBatch) -> Self {
        Self(batch)
    }

    /// A table of these columns.
    ///
    /// # Errors
    /// When the columns have different lengths.
    pub(crate) fn new(columns: Vec<(&str, ArrayRef)>) -> PyResult<Self> {
        RecordBatch::try_from_iter(columns)
            .map(Self)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// A column of whole numbers; a number that is larger than a column can hold becomes the largest
/// that it can.
pub(crate) fn numbers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values.into_iter().map(number)))
}

/// A column of words.
pub(crate) fn words<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// A column of fractions that some rows lack.
pub(crate) fn fractions(values: impl IntoIterator<Item = Option<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from_iter(values))
}

/// The value of a column in row `at`; `None` if it has none there.
fn value<'py>(py: Python<'py>, column: &ArrayRef, at: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(at) {
        return Ok(py.None().into_bound(py));
    }
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(at).into_bound_py_any(py),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(at).into_bound_py_any(py),
        _ => column.as_string::<i32>().value(at).into_bound_py_any(py),
    }
}

#[pymethods]
impl Table {
    /// The Arrow C stream of the table. A schema that is asked for is not looked at, as the
    /// interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// A dictionary for each row, with the names of the columns as keys, as pyarrow has it.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let schema = self.0.schema();
        let row = |at: usize| {
            let row = PyDict::new(py);
            for (field, column) in schema.fields().iter().zip(self.0.columns()) {
                row.set_item(field.name(), value(py, column, at)?)?;
            }
            Ok(row)
        };
        (0..self.0.num_rows()).map(row).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __repr__(&self) -> String {
        format!("<farlane.Table: {} rows of {}>", self.0.num_rows(), self.column_names().join(", "))
    }
}
