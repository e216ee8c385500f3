//! Tables, printed for people as Markdown and for machines as JSON.

use serde_json::{Map, Value, json};

/// The content of one place in a table.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// Nothing was measured, or nothing can be.
    None,
    /// A text.
    Text(String),
    /// A time in nanoseconds.
    Time(u64),
    /// A number, shown with the given number of decimals.
    Number(f64, usize),
    /// A share of 1, shown in percent.
    Share(f64),
}

impl Cell {
    fn words(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) => text.clone(),
            Self::Time(nanoseconds) => time(*nanoseconds),
            Self::Number(number, digits) => grouped(&format!("{number:.digits$}")),
            Self::Share(share) => format!("{:.1} %", share * 100.0),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Text(text) => json!(text),
            Self::Time(nanoseconds) => json!(nanoseconds),
            Self::Number(number, _) | Self::Share(number) => json!(number),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A time of two or three significant digits, with its unit.
fn time(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (nanoseconds as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanoseconds as f64 / 1e6, "ms"),
        _ => (nanoseconds as f64 / 1e9, "s"),
    };
    match value {
        value if value < 100.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// The number with a comma between groups of three digits before the decimal point.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && whole.as_bytes()[index - 1] != b'-' {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// A table: rows below the names of their columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "{row:?}");
        self.rows.push(row);
    }

    /// Prints the table as Markdown, or as a line of JSON that names the `part`.
    pub(crate) fn print(&self, part: &str, json: bool) {
        if json {
            let object = |row: &Vec<Cell>| -> Value {
                let pairs =
                    self.columns.iter().zip(row).map(|(name, cell)| ((*name).to_owned(), cell.json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            };
            let rows: Vec<Value> = self.rows.iter().map(object).collect();
            return println!("{}", json!({ "part": part, "rows": rows }));
        }
        let line = |cells: Vec<String>| println!("| {} |", cells.join(" | "));
        line(self.columns.iter().map(|name| (*name).to_owned()).collect());
        println!("|{}", "---|".repeat(self.columns.len()));
        self.rows.iter().for_each(|row| line(row.iter().map(Cell::words).collect()));
        println!();
    }
}
