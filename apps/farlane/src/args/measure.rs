//! The options of `farlane measure report`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Output, Target, Url, parse_runtime, parse_size};

pub(super) const EXAMPLES: &str = "Examples:
  farlane measure report tcp://10.0.0.2:4430 --to report.html
  farlane measure report vfio-user:ssd.sock --beside tcp://10.0.0.2:4430 --to report.html --to report.csv
  farlane measure report tcp://127.0.0.1:4430 --quick --to quick.html
  farlane measure report tcp://127.0.0.1:4430 --time 1s --samples 1000 --sizes 4k,64k --to few.html";

/// The effect of a measurement on the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    Read,
    /// Overwrites the namespace
    Write,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Measure this device too, in turn with URL; may be given again.
    ///
    /// The options of the connection are those of URL
    #[arg(long, value_name = "URL")]
    pub(crate) beside: Vec<Url>,
    /// Take a minute instead of an hour, for figures that are less certain.
    ///
    /// The defaults become --time 10s --samples 1000 --sizes 4k,64k: 5 points for each device
    #[arg(long)]
    pub(crate) quick: bool,
    /// Take at least this many samples of each point
    #[arg(long, value_name = "N", default_value_t = 10_000, default_value_if("quick", "true", "1000"), value_parser = clap::value_parser!(u64).range(10..=100_000_000))]
    pub(crate) samples: u64,
    /// Measure each point of each device for at least this long.
    ///
    /// By default there are 13 points: 65 min for one device. An estimate is shown at the start
    #[arg(long, value_name = "TIME", default_value = "5m", default_value_if("quick", "true", "10s"), value_parser = parse_runtime)]
    pub(crate) time: Duration,

    /// Transfer this many bytes with each command, a point for each size.
    ///
    /// Each is a multiple of the block size, and no longer than a command may be
    #[arg(long, value_name = "SIZE,…", default_value = "512,4k,16k,32k,64k,128k", default_value_if("quick", "true", "4k,64k"), value_delimiter = ',', value_parser = parse_size)]
    pub(crate) sizes: Vec<u64>,
    /// Read or write at random offsets; with both, a point for each
    #[arg(long, value_enum, default_value = "read", value_delimiter = ',')]
    pub(crate) rw: Vec<Direction>,

    /// Keep this many commands in progress at the points under load; 1 leaves these points out.
    ///
    /// At the idle points there is one at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) load: u32,
    /// Use the namespace with this identifier
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) namespace: u32,

    /// Write the report to this file, overwriting its contents; may be given again.
    ///
    /// .html is a page of its own, .csv and .parquet have a row for each point of each device, .svg
    /// and .png are pictures
    #[arg(long, value_name = "FILE", value_parser = parse_report)]
    pub(crate) to: Vec<(PathBuf, ReportForm)>,
    #[command(flatten)]
    pub(crate) output: Output,
    // The last field: these options have a help heading, which all later options would get.
    #[command(flatten)]
    pub(crate) target: Target,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportForm {
    Page,
    Csv,
    Parquet,
    Picture,
}

fn parse_report(text: &str) -> Result<(PathBuf, ReportForm), String> {
    let path = PathBuf::from(text);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let form = match extension.to_ascii_lowercase().as_str() {
        "html" => ReportForm::Page,
        "csv" => ReportForm::Csv,
        "parquet" => ReportForm::Parquet,
        "svg" | "png" => ReportForm::Picture,
        _ => return Err("expected a name that ends in .html, .csv, .parquet, .svg or .png".to_owned()),
    };
    Ok((path, form))
}
