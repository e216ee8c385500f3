//! `farlane model explain`: where the time of an operation goes.

use std::path::PathBuf;

use clap::Args;

use super::Output;

pub(super) const EXAMPLES: &str = "Examples:
  farlane model explain scenarios/tcp-1g.toml
  farlane model explain scenarios/5g.toml --percentile 99.9 --svg slow.svg

The drawing shows the critical path: at each moment, the step that the operation waited for last, from its end back to its \
beginning. The segments follow each other without a gap and add up to the measured latency.";

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The scenario, a TOML file, or - for standard input; see docs/scenarios.md
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// Explain the operation of each task at this percentile of latency
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = thousandths)]
    pub(crate) percentile: usize,
    /// Derive all random choices from this seed [default: that of the file, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Also draw to this file; may be given again, for both formats
    #[arg(long = "svg", visible_alias = "png", value_name = "FILE.svg|FILE.png")]
    pub(crate) plot: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Parses a percentile with at most one decimal, into thousandths.
fn thousandths(text: &str) -> Result<usize, String> {
    let wrong = || "expected 0 to 100, with one decimal at most, such as 99.9".to_owned();
    let (whole, decimal) = text.split_once('.').unwrap_or((text, "0"));
    let digit = |text: &str| text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_digit());
    let whole: usize = whole.parse().map_err(|_| wrong())?;
    let decimal: usize =
        Some(decimal).filter(|text| digit(text)).and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    Some(whole.saturating_mul(10).saturating_add(decimal)).filter(|all| *all <= 1000).ok_or_else(wrong)
}
