//! The output of `farlane measure report`, as a table.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::table::{Table, numbers, words};

/// The columns of words, which come first. All others are whole numbers.
const WORDS: [&str; 2] = ["url", "operation"];

/// The points of a measurement.
struct Measured<'a> {
    names: Vec<&'a str>,
    words: [Vec<String>; WORDS.len()],
    numbers: Vec<Vec<u64>>,
}

impl<'a> Measured<'a> {
    /// Takes the file's text apart. An error has the number of its line.
    fn parse(text: &'a str) -> Result<Self, (usize, String)> {
        let mut lines = (1..).zip(text.lines());
        let names: Vec<_> = lines.next().map(|(_, head)| head.split(',').collect()).unwrap_or_default();
        if !names.starts_with(&WORDS) {
            let expected = WORDS.join(",");
            return Err((
                1,
                format!("expected the columns {expected} first: is it of farlane measure report --to?"),
            ));
        }
        let mut points =
            Self { words: Default::default(), numbers: vec![Vec::new(); names.len() - 2], names };
        for (number, line) in lines {
            points.add(line).map_err(|why| (number, why))?;
        }
        Ok(points)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        // A URL may have commas, so it has quotation marks.
        let quoted = line.strip_prefix('"').and_then(|line| line.split_once("\","));
        let (url, rest) =
            quoted.ok_or_else(|| format!("{line:?}: expected a URL in quotation marks first"))?;
        let mut cells = rest.split(',');
        let operation = cells.next().unwrap_or_default();
        let cells: Vec<_> = cells.collect();
        if cells.len() != self.numbers.len() {
            return Err(format!("expected {} columns, not {}", self.names.len(), cells.len() + WORDS.len()));
        }
        for (column, cell) in self.numbers.iter_mut().zip(cells) {
            column.push(cell.parse().map_err(|_| format!("{cell:?}: expected a whole number"))?);
        }
        self.words.iter_mut().zip([url, operation]).for_each(|(column, word)| column.push(word.to_owned()));
        Ok(())
    }
}

/// The points of the measurement that `farlane measure report --to` wrote to the CSV file at
/// `path`: a row for each point of each device.
#[pyfunction]
pub(crate) fn measured(path: PathBuf) -> PyResult<Table> {
    let unread = |error| PyOSError::new_err(format!("{}: {error}", path.display()));
    let text = texts::read(&path, texts::LIST_MAX).map_err(unread)?;
    let points = Measured::parse(&text)
        .map_err(|(line, why)| PyValueError::new_err(format!("{}: line {line}: {why}", path.display())))?;
    let columns = points.words.iter().map(words).chain(points.numbers.into_iter().map(numbers));
    Table::new(points.names.into_iter().zip(columns).collect())
}
