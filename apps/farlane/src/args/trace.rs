//! The options of `farlane observe trace`.

use std::path::PathBuf;

use captures::{Columns, Source};
use clap::{Args, Subcommand, ValueEnum};

use super::Output;

pub(crate) const EXAMPLES: &str = "Examples:\n  \
    farlane bench tcp://127.0.0.1:4430 --runtime 1s --capture bench.pcapng\n  \
    farlane observe trace stats bench.pcapng\n  \
    farlane observe trace chain bench.pcapng --command 12\n  \
    farlane observe trace show bench.pcapng --level command";

#[derive(Debug, Subcommand)]
pub(crate) enum TraceAction {
    /// Count a capture's packets and NVMe commands, and report how long commands took
    #[command(after_help = "Examples:\n  farlane observe trace stats bench.pcapng --json\n  \
        farlane observe trace stats analyser.csv --columns 'time=Time Stamp:ns,direction=Dir,tlp=Raw Data'")]
    Stats(CaptureArgs),
    /// Show where the time of one command went, or of all of a kind, step by step
    #[command(after_help = "Examples:\n  farlane observe trace chain bench.pcapng\n  \
        farlane observe trace chain bench.pcapng --command 12 --json")]
    Chain(ChainArgs),
    /// Print a capture, one line for each packet, transaction or command
    #[command(after_help = "Example:\n  farlane observe trace show bench.pcapng --level command")]
    Show(ShowArgs),
    /// Compare two captures step by step, and report which differences are more than chance
    #[command(after_help = "Example:\n  farlane observe trace compare direct.pcapng tunnelled.pcapng")]
    Compare(CompareArgs),
    /// Write the commands of a capture for other programs, or a picture of where their time went
    #[command(
        after_help = "Examples:\n  farlane observe trace convert bench.pcapng --to commands.parquet\n  \
        farlane observe trace convert bench.pcapng --to perfetto.json\n  \
        farlane observe trace convert bench.pcapng --to where.svg"
    )]
    Convert(TraceConvertArgs),
    /// Print or install a dissector, by which Wireshark and tshark decode captures and the tunnel
    #[command(after_help = "Examples:\n  farlane observe trace dissector --install\n  \
        farlane observe trace dissector > farlane.lua && tshark -X lua_script:farlane.lua -r bench.pcapng")]
    Dissector(DissectorArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CaptureArgs {
    /// The capture: pcapng of --capture, pcap or pcapng of NetTLP or NVMe/TCP, or a trace of Linux
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Take FILE for a hardware analyser's table (CSV), whose columns have these names.
    ///
    /// KEY=COLUMN for time (with its unit behind a colon), direction, tlp (bytes), or type,
    /// requester, completer, tag, address, length (double words), count, status and data;
    /// joined by commas
    #[arg(long, value_name = "MAP")]
    pub(crate) columns: Option<Columns>,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl CaptureArgs {
    /// The capture.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { file: &self.file, columns: self.columns.as_ref() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DissectorArgs {
    /// Write it to the folder where Wireshark looks for plugins, and print the path
    #[arg(long)]
    pub(crate) install: bool,
    /// Write it into this folder instead
    #[arg(long, value_name = "FOLDER", requires = "install")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The capture that the other one is compared with
    #[arg(value_name = "FIRST")]
    pub(crate) first: PathBuf,
    /// The capture whose times are more or less
    #[arg(value_name = "SECOND")]
    pub(crate) second: PathBuf,

    /// Take both for a hardware analyser's tables with these columns, as trace stats does
    #[arg(long, value_name = "MAP")]
    pub(crate) columns: Option<Columns>,
    /// Leave out times beyond three standard deviations of the mean
    #[arg(long)]
    pub(crate) three_sigma: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct TraceConvertArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    /// The file to write, which is written over
    ///
    /// .csv and .parquet have a row for each command, .json has events for Perfetto and Chrome,
    /// .svg and .png are pictures.
    #[arg(long, value_name = "OUT", value_parser = parse_out)]
    pub(crate) to: Out,
}

/// A file to write, and its contents.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) path: PathBuf,
    pub(crate) form: Form,
}

/// The contents of a file of `observe trace convert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A row for each command.
    Csv,
    /// The same as a Parquet file.
    Parquet,
    /// Trace Event Format, which Perfetto and Chrome show.
    Events,
    /// Where the time of each kind of command went.
    Picture,
}

/// Takes a file by the extension of its name.
fn parse_out(text: &str) -> Result<Out, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let form = match extension.to_ascii_lowercase().as_str() {
        "csv" => Form::Csv,
        "parquet" => Form::Parquet,
        "json" => Form::Events,
        "svg" | "png" => Form::Picture,
        _ => return Err("expected a name that ends in .csv, .parquet, .json, .svg or .png".to_owned()),
    };
    Ok(Out { path, form })
}

#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Show the command with this number; the first of the capture is 1 [default: all, by kind]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) command: Option<u64>,
    /// Leave out times beyond three standard deviations of the mean
    #[arg(long, conflicts_with = "command")]
    pub(crate) three_sigma: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Print a line for each of these
    #[arg(long, default_value = "tlp")]
    pub(crate) level: Level,
}

/// The unit of which each has a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Each packet
    Tlp,
    /// Each request with its completions
    Transaction,
    /// Each NVMe command
    Command,
}
