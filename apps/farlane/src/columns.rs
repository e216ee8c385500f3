//! Columns of equal length, as a Parquet file.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// A column.
pub(crate) enum Column {
    Words(Vec<ByteArray>),
    Numbers(Vec<i64>),
    /// Numbers that some rows lack.
    Optional(Vec<Option<i64>>),
}

impl Column {
    fn field(&self, name: &str) -> Result<Arc<Type>, ParquetError> {
        let (physical, logical, repetition) = match self {
            Self::Words(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
            Self::Numbers(_) => (Physical::INT64, None, Repetition::REQUIRED),
            Self::Optional(_) => (Physical::INT64, None, Repetition::OPTIONAL),
        };
        let field = Type::primitive_type_builder(name, physical).with_logical_type(logical);
        field.with_repetition(repetition).build().map(Arc::new)
    }
}

/// A Parquet file that is written some rows at a time.
pub(crate) struct Table<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Table<W> {
    /// Begins a file whose schema has this name, with a column of each kind of `columns`.
    ///
    /// # Errors
    /// The library's words, or the system's.
    pub(crate) fn create(schema: &str, names: &[&str], columns: &[Column], out: W) -> Result<Self, String> {
        let create = || {
            let fields = names.iter().zip(columns).map(|(name, column)| column.field(name));
            let fields = fields.collect::<Result<_, _>>()?;
            let schema = Type::group_type_builder(schema).with_fields(fields).build()?;
            let properties = WriterProperties::builder().build();
            SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
        };
        create().map(Self).map_err(|error: ParquetError| error.to_string())
    }

    /// Writes rows: `columns` have the order and the kinds of the file's first columns.
    ///
    /// # Errors
    /// The library's words, or the system's.
    pub(crate) fn write(&mut self, columns: &[Column]) -> Result<(), String> {
        self.write_group(columns).map_err(|error| error.to_string())
    }

    fn write_group(&mut self, columns: &[Column]) -> Result<(), ParquetError> {
        let mut group = self.0.next_row_group()?;
        for column in columns {
            let Some(mut writer) = group.next_column()? else { break };
            match column {
                Column::Words(words) => writer.typed::<ByteArrayType>().write_batch(words, None, None)?,
                Column::Numbers(numbers) => writer.typed::<Int64Type>().write_batch(numbers, None, None)?,
                Column::Optional(numbers) => {
                    let levels: Vec<i16> = numbers.iter().map(|number| i16::from(number.is_some())).collect();
                    let there: Vec<i64> = numbers.iter().flatten().copied().collect();
                    writer.typed::<Int64Type>().write_batch(&there, Some(&levels), None)?
                }
            };
            writer.close()?;
        }
        group.close().map(drop)
    }

    /// Ends the file. Returns where it was written to.
    ///
    /// # Errors
    /// The library's words, or the system's.
    pub(crate) fn finish(self) -> Result<W, String> {
        self.0.into_inner().map_err(|error| error.to_string())
    }
}

/// Columns of equal length as a Parquet file whose schema has this name.
///
/// # Errors
/// The library's words.
pub(crate) fn to_parquet(schema: &str, names: &[&str], columns: &[Column]) -> Result<Vec<u8>, String> {
    let mut table = Table::create(schema, names, columns, Vec::new())?;
    table.write(columns)?;
    table.finish()
}
