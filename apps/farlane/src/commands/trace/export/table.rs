//! A row for each command: what it was, and how long each of its steps took.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use parquet::data_type::ByteArray;
use trace::{Command, Step};

use super::{Writer, wrong};
use crate::args::Source;
use crate::columns::{Column, Table};
use crate::commands::trace::{each_command, name};
use crate::error::Error;

/// Rows that are kept until they are written to a Parquet file together.
const ROWS_TOGETHER: usize = 65_536;

/// A column of numbers, which a command may lack: its name and its value.
type Figure = (&'static str, fn(&Command) -> Option<u64>);

const FIGURES: [Figure; 10] = [
    ("queue", |command| command.queue.map(u64::from)),
    ("id", |command| command.id.map(u64::from)),
    ("nsid", |command| command.namespace.map(u64::from)),
    ("lba", |command| command.lba),
    ("blocks", |command| command.blocks.map(u64::from)),
    ("bytes", |command| Some(command.bytes)),
    ("status", |command| command.status.map(u64::from)),
    ("begun_ns", |command| command.begun().map(|at| at.as_nanos())),
    ("latency_ns", |command| Some(command.latency().get())),
    ("whole_ns", |command| Some(command.length().get())),
];

/// The name of a step's column.
fn column_of(step: Step) -> String {
    format!("{}_ns", step.name().replace(' ', "_"))
}

/// The figures of a command, and then the time of each step.
fn values(command: &Command) -> impl Iterator<Item = Option<u64>> {
    let chain = command.chain();
    let figures = FIGURES.map(|(_, value)| value(command));
    let time = move |step| chain.iter().find(|(of, _)| *of == step).map(|(_, time)| time.get());
    figures.into_iter().chain(Step::ALL.into_iter().map(time))
}

fn names() -> impl Iterator<Item = String> {
    FIGURES.into_iter().map(|(name, _)| name.to_owned()).chain(Step::ALL.into_iter().map(column_of))
}

/// Comma-separated values. What a command lacks is empty.
pub(super) struct Csv;

impl Writer for Csv {
    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<_> = ["number".to_owned(), "command".to_owned()].into_iter().chain(names()).collect();
        writeln!(out, "{}", names.join(","))
    }

    fn command(&mut self, out: &mut dyn Write, number: u64, command: &Command) -> io::Result<()> {
        write!(out, "{number},{}", name(command.kind))?;
        for value in values(command) {
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

/// Columns of the commands that are written next.
struct Rows {
    first: u64,
    kinds: Vec<ByteArray>,
    figures: Vec<Vec<Option<i64>>>,
}

impl Rows {
    fn new(first: u64) -> Self {
        Self { first, kinds: Vec::new(), figures: names().map(|_| Vec::new()).collect() }
    }

    fn add(&mut self, command: &Command) {
        self.kinds.push(ByteArray::from(name(command.kind).as_str()));
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        for (column, value) in self.figures.iter_mut().zip(values(command)) {
            column.push(value.map(number));
        }
    }

    fn columns(self) -> Vec<Column> {
        let numbers = (self.first..).take(self.kinds.len());
        let numbers = numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX)).collect();
        let first = [Column::Numbers(numbers), Column::Words(self.kinds)];
        first.into_iter().chain(self.figures.into_iter().map(Column::Optional)).collect()
    }
}

/// Writes the commands of a capture to a Parquet file. Returns how many there are.
pub(super) fn parquet(from: Source<'_>, file: File, to: &Path) -> Result<u64, Error> {
    let failed = |why: String| wrong(to, io::Error::other(why));
    let names: Vec<_> = ["number".to_owned(), "command".to_owned()].into_iter().chain(names()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut rows = Rows::new(1);
    let mut table = Table::create("commands", &names, &Rows::new(1).columns(), file).map_err(failed)?;
    let (mut count, mut result) = (0, Ok(()));
    each_command(from, |command| {
        count += 1;
        rows.add(&command);
        if rows.kinds.len() == ROWS_TOGETHER && result.is_ok() {
            let full = std::mem::replace(&mut rows, Rows::new(count + 1));
            result = table.write(&full.columns());
        }
    })?;
    result.and_then(|()| table.write(&rows.columns())).and_then(|()| table.finish()).map_err(failed)?;
    Ok(count)
}
