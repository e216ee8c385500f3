//! Applications that run side by side on the host: `[[workload]]`.

use std::path::Path;

use engine::Nanos;
use network_models::Chance;
use serde::Deserialize;
use toml::Spanned;

use super::text::{Bytes, Text, one_of};
use super::{Wrong, within};
use crate::test_bench::{Job, Mixed, Source};

/// The largest number of commands of a job.
const COUNT_MAX: u64 = 10_000_000;
/// Allowed lengths of a command's data in bytes.
const SIZE_RANGE: std::ops::RangeInclusive<u64> = 512..=128 << 10;
/// Allowed numbers of commands that a job has outstanding.
const DEPTH_RANGE: std::ops::RangeInclusive<u32> = 1..=1024;
/// Allowed numbers of jobs of a workload.
const JOBS_RANGE: std::ops::RangeInclusive<u32> = 1..=256;
/// Allowed rates of a job in commands a second.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 1..=100_000_000;
/// The largest number of commands that all jobs have outstanding, which the driver's queue holds.
pub(super) const UNDER_WAY_MAX: u64 = 1023;
/// Length of a block in bytes.
const BLOCK: u64 = 512;

/// The table `[[workload]]` of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadTable {
    name: Option<String>,
    /// `read`, `write` or `rw`, optionally with `rand` in front.
    rw: Option<Spanned<String>>,
    /// The share of commands that read.
    mix: Option<Spanned<Text<Chance>>>,
    /// Length of a command's data in bytes.
    bs: Option<Spanned<Text<Bytes>>>,
    /// Number of commands that each job has outstanding.
    iodepth: Option<Spanned<u32>>,
    /// Number of equal jobs.
    numjobs: Option<Spanned<u32>>,
    /// Number of commands of each job.
    count: Option<Spanned<u64>>,
    /// How long each job begins commands.
    runtime: Option<Spanned<Text<Nanos>>>,
    /// Commands a second of each job.
    rate: Option<Spanned<u64>>,
    /// Where the region begins on the namespace, in bytes.
    offset: Option<Spanned<Text<Bytes>>>,
    /// Length of the region in bytes.
    size: Option<Spanned<Text<Bytes>>>,
    /// A file of commands, which replaces the keys that describe commands.
    trace: Option<Spanned<String>>,
}

/// The jobs of one `[[workload]]`.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) jobs: Vec<Job>,
}

impl Workload {
    /// Reads the table `place` for a namespace of `capacity` bytes. Names of other files are
    /// relative to `directory`.
    pub(super) fn new(
        place: &Spanned<WorkloadTable>,
        directory: &Path,
        capacity: u64,
    ) -> Result<Self, Wrong> {
        let table = place.get_ref();
        let jobs = within(table.numjobs.as_ref(), 1, "numjobs", &JOBS_RANGE)?;
        let (source, usual, depth) = match &table.trace {
            None => (mixed(place, capacity)?, "workload", 1),
            Some(trace) => (self::trace(place, trace, directory, capacity)?, trace.get_ref().as_str(), 64),
        };
        let depth = within(table.iodepth.as_ref(), depth, "iodepth", &DEPTH_RANGE)?;
        let usual = table.rw.as_ref().map_or(usual, |rw| rw.get_ref());
        let name = table.name.clone().unwrap_or_else(|| usual.to_owned());
        let job = Job { source, depth };
        Ok(Self { name, jobs: vec![job; jobs as usize] })
    }
}

/// A size that must be a multiple of a block.
fn blocks(value: &Spanned<Text<Bytes>>, key: &str) -> Result<u64, Wrong> {
    let Text(Bytes(bytes)) = *value.get_ref();
    if bytes.is_multiple_of(BLOCK) {
        return Ok(bytes);
    }
    Err(Wrong::at(value, key, format!("expected a multiple of {BLOCK}B, not {bytes}")))
}

/// The share of reads of `rw` and `randrw`, unless `mix` says another.
const HALF: Chance = Chance::percent(50);

/// The meaning of `rw`: whether offsets are random, and the share of reads.
pub(super) fn kind_of(rw: &Spanned<String>) -> Result<(bool, Chance), Wrong> {
    let kinds = [
        ("read", (false, Chance::ALWAYS)),
        ("write", (false, Chance::NEVER)),
        ("rw", (false, HALF)),
        ("randread", (true, Chance::ALWAYS)),
        ("randwrite", (true, Chance::NEVER)),
        ("randrw", (true, HALF)),
    ];
    one_of(rw.get_ref(), &kinds).map_err(|why| Wrong::at(rw, "rw", why))
}

/// The share of reads that `mix` says, if there is one, where `rw` says `reads`.
pub(super) fn share_of(reads: Chance, mix: Option<&Spanned<Text<Chance>>>) -> Result<Chance, Wrong> {
    match mix {
        None => Ok(reads),
        Some(mix) if reads == HALF => Ok(mix.get_ref().0),
        Some(mix) => {
            Err(Wrong::at(mix, "mix", "expected rw = 'rw' or 'randrw' where some read and some write"))
        }
    }
}

fn mixed(place: &Spanned<WorkloadTable>, capacity: u64) -> Result<Source, Wrong> {
    let table = place.get_ref();
    let Some(rw) = &table.rw else {
        return Err(Wrong::at(place, "rw", "expected rw, such as 'randread', or trace, a file"));
    };
    let (random, reads) = kind_of(rw)?;
    let reads = share_of(reads, table.mix.as_ref())?;
    let bytes = match &table.bs {
        None => 4096,
        Some(bs) => {
            let bytes = blocks(bs, "bs")?;
            if !SIZE_RANGE.contains(&bytes) {
                return Err(Wrong::at(bs, "bs", format!("expected 512B to 128KiB, not {bytes}")));
            }
            bytes
        }
    };
    let offset = table.offset.as_ref().map_or(Ok(0), |offset| blocks(offset, "offset"))?;
    let rest = capacity.saturating_sub(offset);
    let region = table.size.as_ref().map_or(Ok(rest), |size| blocks(size, "size"))?;
    if region < bytes || region > rest {
        let place = table.size.as_ref().or(table.offset.as_ref()).map_or(place.span(), Spanned::span);
        let why = format!(
            "expected {bytes} bytes at least and no end behind the SSD's {capacity}, not {region} from {offset} on"
        );
        return Err(Wrong { span: place, key: "size".into(), why });
    }
    let runtime = table.runtime.as_ref().map(|time| time.get_ref().0);
    let usual = if runtime.is_some() { COUNT_MAX } else { 1_000 };
    let interval = match &table.rate {
        None => None,
        Some(_) => {
            let rate = within(table.rate.as_ref(), 1, "rate", &RATE_RANGE)?;
            Some(Nanos::new(1_000_000_000 / rate))
        }
    };
    Ok(Source::Mixed(Mixed {
        reads,
        bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        random,
        offset,
        region,
        count: within(table.count.as_ref(), usual, "count", &(1..=COUNT_MAX))?,
        runtime,
        interval,
    }))
}

fn trace(
    place: &Spanned<WorkloadTable>,
    name: &Spanned<String>,
    directory: &Path,
    capacity: u64,
) -> Result<Source, Wrong> {
    let table = place.get_ref();
    let foreign = [
        ("rw", table.rw.is_some()),
        ("mix", table.mix.is_some()),
        ("bs", table.bs.is_some()),
        ("count", table.count.is_some()),
        ("runtime", table.runtime.is_some()),
        ("rate", table.rate.is_some()),
        ("offset", table.offset.is_some()),
        ("size", table.size.is_some()),
    ];
    if let Some((key, _)) = foreign.into_iter().find(|(_, given)| *given) {
        return Err(Wrong::at(
            place,
            key,
            "the trace sets that itself; expected only name, iodepth and numjobs besides",
        ));
    }
    let wrong = |why: String| Wrong::at(name, "trace", format!("{}: {why}", name.get_ref()));
    let path = directory.join(name.get_ref());
    let text = texts::read(&path, texts::TRACE_MAX).map_err(|error| wrong(error.to_string()))?;
    let operations = super::trace::parse(&text, capacity).map_err(wrong)?;
    Ok(Source::Trace(operations.into()))
}
