//! A row for each command: its fields, and how long each of its steps took.

use std::io::{self, Write};
use std::path::Path;

use captures::table::{CommandRows, Rows as _, figures};
use captures::{Commands, Source, name};
use parquet::data_type::ByteArray;
use trace::Command;

use super::{Writer, each, wrong};
use crate::columns::{Column, Table};
use crate::error::Error;
use crate::whole_file::WholeFile;

/// Rows that are kept until they are written to a Parquet file together.
const ROWS_TOGETHER: usize = 65_536;

/// Comma-separated values. A missing value is empty.
pub(super) struct Csv;

impl Writer for Csv {
    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", CommandRows::names().join(","))
    }

    fn command(&mut self, out: &mut dyn Write, number: u64, command: &Command) -> io::Result<()> {
        write!(out, "{number},{}", name(command.kind))?;
        for value in figures(command) {
            match value {
                Some(value) => write!(out, ",{value}")?,
                None => write!(out, ",")?,
            }
        }
        writeln!(out)
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// Columns as Parquet has them.
fn columns(rows: CommandRows) -> Vec<Column> {
    let words = |of: Vec<String>| of.into_iter().map(|word| ByteArray::from(word.into_bytes())).collect();
    let column = |column| match column {
        captures::table::Column::Words(of) => Column::Words(words(of)),
        captures::table::Column::Numbers(of) => Column::Numbers(of),
        captures::table::Column::Optional(of) => Column::Optional(of),
    };
    rows.into_columns().into_iter().map(column).collect()
}

/// Writes the commands of a capture to a Parquet file. Returns how many there are. Of a broken
/// capture, the file has the part before the fault.
pub(super) fn parquet(from: Source<'_>, to: &Path) -> Result<u64, Error> {
    let failed = |why: String| wrong(to, io::Error::other(why));
    // A capture that can't be read replaces nothing.
    let commands = Commands::open(from)?;
    let file = WholeFile::begin(to).map_err(|error| wrong(to, error))?;
    let names = CommandRows::names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut rows = CommandRows::new(1);
    let mut table = Table::create("commands", &names, &columns(CommandRows::new(1)), file).map_err(failed)?;
    let (count, whole) = each(commands, |number, command| {
        rows.add(command);
        if rows.len() < ROWS_TOGETHER {
            return Ok(());
        }
        let full = std::mem::replace(&mut rows, CommandRows::new(number + 1));
        table.write(&columns(full)).map_err(failed)
    })?;
    let file = table.write(&columns(rows)).and_then(|()| table.finish()).map_err(failed)?;
    file.keep().map_err(|error| wrong(to, error))?;
    whole.map(|()| count)
}
