//! The table of a sweep, as CSV and as Parquet: a row for each task of each point.

use parquet::data_type::ByteArray;
use scenarios::file::scenario::Done;
use scenarios::file::sweep::Axis;
use scenarios::summary::{Figure, Summary};

use crate::columns::{Column, to_parquet};

/// The results of one task at one point.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The value of each axis at the point.
    pub(super) point: Vec<String>,
    pub(super) task: String,
    pub(super) summary: Summary,
}

/// The columns other than the axes and the task.
const FIGURES: [Figure; 8] = [
    ("count", |of| of.count),
    ("failed", |of| of.failed),
    ("mean_ns", |of| of.mean.get()),
    ("p50_ns", |of| of.median.get()),
    ("p99_ns", |of| of.p99.get()),
    ("p999_ns", |of| of.p999.get()),
    ("max_ns", |of| of.longest.get()),
    ("bits_per_second", |of| of.rate),
];

impl Line {
    pub(super) fn new(point: &[String], task: &Done) -> Self {
        Self { point: point.to_vec(), task: task.name.clone(), summary: Summary::of(task) }
    }
}

/// A value in CSV, quoted if need be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

pub(super) fn csv(axes: &[Axis], lines: &[Line]) -> String {
    let names = axes.iter().map(|axis| field(&axis.path)).chain(["task".to_owned()]);
    let names: Vec<_> = names.chain(FIGURES.map(|(name, _)| name.to_owned())).collect();
    let mut text = names.join(",") + "\n";
    for line in lines {
        let words = line.point.iter().chain([&line.task]).map(|word| field(word));
        let figures = FIGURES.iter().map(|(_, value)| value(&line.summary).to_string());
        text += &(words.chain(figures).collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

/// A column of numbers if every value is one, so that programs that read the file can calculate
/// with them.
fn column_of<'a>(words: impl Iterator<Item = &'a String> + Clone) -> Column {
    let numbers: Option<Vec<i64>> = words.clone().map(|word| word.parse().ok()).collect();
    match numbers {
        Some(numbers) => Column::Numbers(numbers),
        None => Column::Words(words.map(|word| ByteArray::from(word.as_str())).collect()),
    }
}

/// The table as Parquet. An axis whose values are all whole numbers becomes a column of numbers.
pub(super) fn parquet(axes: &[Axis], lines: &[Line]) -> Result<Vec<u8>, String> {
    let mut names: Vec<_> = axes.iter().map(|axis| axis.path.as_str()).collect();
    let values = |index: usize| column_of(lines.iter().map(move |line| &line.point[index]));
    let mut columns: Vec<_> = (0..axes.len()).map(values).collect();
    names.push("task");
    columns.push(Column::Words(lines.iter().map(|line| ByteArray::from(line.task.as_str())).collect()));
    for (name, value) in FIGURES {
        names.push(name);
        let numbers = lines.iter().map(|line| i64::try_from(value(&line.summary)).unwrap_or(i64::MAX));
        columns.push(Column::Numbers(numbers.collect()));
    }
    to_parquet("sweep", &names, &columns)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use engine::Nanos;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use std::io::Write;

    /// A line for tests, of a sweep that never ran.
    pub(in super::super) fn line(point: &[&str], median: u64) -> Line {
        let nanos = Nanos::new;
        Line {
            point: point.iter().map(|value| (*value).to_owned()).collect(),
            task: "read, 4 KiB".into(),
            summary: Summary {
                count: 100,
                mean: nanos(median),
                median: nanos(median),
                p99: nanos(median * 2),
                p999: nanos(median * 3),
                longest: nanos(median * 4),
                rate: 1_000_000,
                ..Summary::default()
            },
        }
    }

    #[test]
    fn a_table_reads_back_as_it_was() {
        let axes: Vec<Axis> =
            ["link.rate=1Gbit/s,10Gbit/s", "task.0.depth=1,2"].map(|axis| axis.parse().unwrap()).into();
        let lines = [line(&["1Gbit/s", "1"], 1_000), line(&["10Gbit/s", "2"], 500)];
        let text = csv(&axes, &lines);
        let rows: Vec<_> = text.lines().collect();
        assert_eq!(rows[0].split(',').next(), Some("link.rate"));
        assert_eq!(rows[1], "1Gbit/s,1,\"read, 4 KiB\",100,0,1000,1000,2000,3000,4000,1000000");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&super::parquet(&axes, &lines).unwrap()).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let fields = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let names: Vec<_> = fields.iter().map(|column| column.name().to_owned()).collect();
        assert_eq!(names.join(","), rows[0]);
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].get_string(0).unwrap(), "10Gbit/s");
        assert_eq!(rows[1].get_long(1).unwrap(), 2);
        assert_eq!(rows[1].get_string(2).unwrap(), "read, 4 KiB");
        assert_eq!(rows[1].get_long(7).unwrap(), 1_000);
    }
}
