//! Loads of an SSD alone, without a host and PCIe: `[[load]]`.

use engine::Nanos;
use network_models::Chance;
use serde::Deserialize;
use sim::models::ssd::jobs::Job;
use toml::Spanned;

use super::text::{Bytes, Text};
use super::workload::{kind_of, share_of};
use super::{Wrong, within};

/// The largest number of commands of a load.
const COUNT_MAX: u64 = 100_000_000;
/// Allowed lengths of a command's data in bytes.
const SIZE_RANGE: std::ops::RangeInclusive<u64> = 512..=1 << 20;
/// Allowed numbers of commands at a time in a queue.
const DEPTH_RANGE: std::ops::RangeInclusive<u32> = 1..=1024;
/// Allowed numbers of queues.
const QUEUES_RANGE: std::ops::RangeInclusive<u32> = 1..=64;
/// The largest number of loads.
pub(super) const LOADS_MAX: usize = 16;
/// Length of a block in bytes.
const BLOCK: u64 = 512;

/// The table `[[load]]` of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadTable {
    name: Option<String>,
    /// `read`, `write` or `rw`, optionally with `rand` in front.
    rw: Spanned<String>,
    /// The share of commands that read.
    mix: Option<Spanned<Text<Chance>>>,
    /// Length of a command's data in bytes.
    bs: Option<Spanned<Text<Bytes>>>,
    /// Number of commands at a time in each queue.
    iodepth: Option<Spanned<u32>>,
    /// Number of queues.
    queues: Option<Spanned<u32>>,
    /// Number of commands in all.
    count: Option<Spanned<u64>>,
    /// How long commands begin.
    runtime: Option<Text<Nanos>>,
    /// Bytes a second.
    rate: Option<Spanned<Text<Bytes>>>,
    /// Where the region begins, in bytes.
    offset: Option<Spanned<Text<Bytes>>>,
    /// Length of the region in bytes.
    size: Option<Spanned<Text<Bytes>>>,
}

/// A multiple of a block, or `usual`.
fn blocks(value: Option<&Spanned<Text<Bytes>>>, key: &str, usual: u64) -> Result<u64, Wrong> {
    let Some(value) = value else { return Ok(usual) };
    let Text(Bytes(bytes)) = *value.get_ref();
    if bytes.is_multiple_of(BLOCK) {
        return Ok(bytes);
    }
    Err(Wrong::at(value, key, format!("expected a multiple of {BLOCK}B, not {bytes}")))
}

impl LoadTable {
    /// The load's name and commands, for an SSD of `capacity` bytes.
    pub(super) fn job(&self, capacity: u64) -> Result<(String, Job), Wrong> {
        let (random, reads) = kind_of(&self.rw)?;
        let reads = share_of(reads, self.mix.as_ref())?;
        let length = blocks(self.bs.as_ref(), "bs", 128 << 10)?;
        if let Some(bs) = self.bs.as_ref().filter(|_| !SIZE_RANGE.contains(&length)) {
            return Err(Wrong::at(bs, "bs", format!("expected 512B to 1MiB, not {length}")));
        }
        let queues = within(self.queues.as_ref(), 1, "queues", &QUEUES_RANGE)?;
        let offset = blocks(self.offset.as_ref(), "offset", 0)?;
        let rest = capacity.saturating_sub(offset);
        let span = blocks(self.size.as_ref(), "size", rest)?;
        let least = length * u64::from(queues);
        if span < least || span > rest {
            let place = self.size.as_ref().or(self.offset.as_ref()).map_or(self.rw.span(), Spanned::span);
            let why = format!(
                "expected {least} bytes at least and no end behind the SSD's {capacity}, not {span} from {offset} on"
            );
            return Err(Wrong { span: place, key: "size".into(), why });
        }
        let runtime = self.runtime.map(|Text(time)| time);
        let once = (span / length).min(COUNT_MAX);
        let usual = if runtime.is_some() { COUNT_MAX } else { once };
        let rate = match &self.rate {
            None => None,
            Some(rate) if rate.get_ref().0.0 > 0 => Some(rate.get_ref().0.0),
            Some(rate) => {
                return Err(Wrong::at(rate, "rate", "expected bytes a second such as 800MB, above 0"));
            }
        };
        let job = Job {
            reads: u8::try_from(reads.in_parts_per_billion() / 10_000_000).unwrap_or(100),
            random,
            length,
            queues,
            depth: within(self.iodepth.as_ref(), 1, "iodepth", &DEPTH_RANGE)?,
            count: within(self.count.as_ref(), usual, "count", &(1..=COUNT_MAX))?,
            runtime,
            rate,
            offset,
            span,
        };
        Ok((self.name.clone().unwrap_or_else(|| self.rw.get_ref().clone()), job))
    }
}
