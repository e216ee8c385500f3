//! The machines of a scenario: `[host]`, `[ssd]` and `[pcie]`.

use engine::Nanos;
use pcie::requester::CompletionTimeout;
use serde::Deserialize;
use sim::models::hca::Card;
use sim::models::{host, pcie as pcie_model, ssd};
use toml::Spanned;

use super::Wrong;
use super::text::{Bytes, Text, one_of};
use crate::test_bench::Setup;

/// Allowed sizes of a namespace in bytes; a table of its pages must fit in memory.
const CAPACITY_RANGE: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 30;
/// Allowed sizes of a write buffer in bytes.
const BUFFER_RANGE: std::ops::RangeInclusive<u64> = 1 << 20..=4 << 30;
/// The largest number of channels, of dies of a channel, and of planes of a die.
const PARTS_MAX: u32 = 32;
/// The largest time of reclaiming, in percent of a program.
const PERCENT_MAX: u64 = 10_000;
/// Allowed sizes in bytes of an SSD that is loaded alone, which keeps no data.
const OWN_CAPACITY_RANGE: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 40;
/// The most bytes of flash beyond the capacity.
const SPARE_MAX: u64 = 64 << 40;
/// Allowed lengths of a page of the flash in bytes.
const PAGE_RANGE: std::ops::RangeInclusive<u64> = PAGE..=1 << 20;
/// The largest number of rows of a block.
const ROWS_MAX: u32 = 1 << 16;
/// The least and the largest rate in bytes a second.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// Length of a page of the namespace in bytes.
const PAGE: u64 = 4096;

/// `[host]`: differences from the host of the published time lines.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostTable {
    memory_read: Option<Text<Nanos>>,
    memory_read_first: Option<Text<Nanos>>,
    completion_size: Option<Spanned<u32>>,
    submit: Option<Text<Nanos>>,
    complete_read: Option<Text<Nanos>>,
    complete_write: Option<Text<Nanos>>,
    completion_timeout: Option<Spanned<Text<Nanos>>>,
}

/// `[ssd]`: a known model, and differences from it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SsdTable {
    model: Option<Spanned<String>>,
    capacity: Option<Spanned<Text<Bytes>>>,
    firmware: Option<Text<Nanos>>,
    array_read: Option<Text<Nanos>>,
    array_spread: Option<Text<Nanos>>,
    completion: Option<Text<Nanos>>,
    channels: Option<Spanned<u32>>,
    dies: Option<Spanned<u32>>,
    planes: Option<Spanned<u32>>,
    program: Option<Text<Nanos>>,
    cache_program: Option<Text<Nanos>>,
    erase: Option<Text<Nanos>>,
    suspend: Option<Text<Nanos>>,
    page: Option<Spanned<Text<Bytes>>>,
    block_rows: Option<Spanned<u32>>,
    spare: Option<Spanned<Text<Bytes>>>,
    read_rate: Option<Spanned<Text<Bytes>>>,
    write_rate: Option<Spanned<Text<Bytes>>>,
    channel_rate: Option<Spanned<Text<Bytes>>>,
    aged: Option<Spanned<String>>,
    accept_spread: Option<Text<Nanos>>,
    cache: Option<Text<Bytes>>,
    buffer: Option<Spanned<Text<Bytes>>>,
    direct: Option<Text<Bytes>>,
    reclaim_percent: Option<Spanned<u64>>,
    rest: Option<Text<Nanos>>,
    pause_every: Option<Text<Bytes>>,
    pause: Option<Text<Nanos>>,
    thermal: Option<ThermalTable>,
}

/// `[ssd.thermal]`: how writes warm the SSD, and the effects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThermalTable {
    rise_per_gib: u64,
    half_life: Text<Nanos>,
    limit: u64,
    throttled_percent: Spanned<u64>,
}

/// `[pcie]`: the settings of both PCIe links.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PcieTable {
    generation: Option<Spanned<u8>>,
    lanes: Option<Spanned<u8>>,
    payload: Option<Spanned<u32>>,
    read_request: Option<Spanned<u32>>,
}

fn set(value: &mut Nanos, new: Option<Text<Nanos>>) {
    *value = new.map_or(*value, |Text(new)| new);
}

impl HostTable {
    /// The parameters of the host's model.
    pub(super) fn parameters(&self) -> Result<host::Parameters, Wrong> {
        let mut host = host::Parameters::RYZEN_3200G;
        set(&mut host.memory_read, self.memory_read);
        set(&mut host.memory_read_first, self.memory_read_first);
        set(&mut host.submit, self.submit);
        set(&mut host.complete_read, self.complete_read);
        set(&mut host.complete_write, self.complete_write);
        if let Some(size) = &self.completion_size {
            host.completion_size = *size.get_ref();
            if ![64, 128, 256].contains(&host.completion_size) {
                return Err(Wrong::at(size, "completion_size", "expected 64, 128 or 256"));
            }
        }
        Ok(host)
    }

    /// The completion timeout of host and device.
    pub(super) fn timeout(&self) -> Result<CompletionTimeout, Wrong> {
        let Some(time) = &self.completion_timeout else { return Ok(CompletionTimeout::D2) };
        let wanted = time.get_ref().0;
        CompletionTimeout::all().find(|timeout| timeout.longest() == wanted).ok_or_else(|| {
            let known: Vec<_> = CompletionTimeout::all().map(|one| one.longest().to_string()).collect();
            let why = format!(
                "expected the longest time of a range that PCIe has, {}, not {wanted}",
                known.join(", ")
            );
            Wrong::at(time, "completion_timeout", why)
        })
    }
}

impl SsdTable {
    /// The parameters of the SSD's model.
    pub(super) fn parameters(&self) -> Result<ssd::Parameters, Wrong> {
        let mut parameters = match &self.model {
            None => ssd::Parameters::SAMSUNG_970_PRO,
            Some(name) => ssd::Parameters::named(name.get_ref()).ok_or_else(|| {
                let known: Vec<_> = ssd::Parameters::names().collect();
                let why = format!("expected one of {}, not '{}'", known.join(", "), name.get_ref());
                Wrong::at(name, "model", why)
            })?,
        };
        set(&mut parameters.firmware, self.firmware);
        set(&mut parameters.array_read, self.array_read);
        set(&mut parameters.array_spread, self.array_spread);
        set(&mut parameters.completion, self.completion);
        set(&mut parameters.program, self.program);
        set(&mut parameters.cache_program, self.cache_program);
        set(&mut parameters.erase, self.erase);
        set(&mut parameters.suspend, self.suspend);
        set(&mut parameters.accept_spread, self.accept_spread);
        set(&mut parameters.rest, self.rest);
        set(&mut parameters.pause, self.pause);
        self.sizes(&mut parameters)?;
        self.flash(&mut parameters)?;
        Ok(parameters)
    }

    /// Sets the parts of the flash, and the rates of the paths for its data.
    fn flash(&self, parameters: &mut ssd::Parameters) -> Result<(), Wrong> {
        for (key, value, given) in [
            ("read_rate", &mut parameters.read_rate, &self.read_rate),
            ("write_rate", &mut parameters.write_rate, &self.write_rate),
            ("channel_rate", &mut parameters.channel_rate, &self.channel_rate),
        ] {
            let Some(given) = given else { continue };
            *value = given.get_ref().0.0;
            if !RATE_RANGE.contains(&given.get_ref().0.0) {
                let why = format!("expected bytes a second such as 800MB, 1MB to 1000000MB, not {value}");
                return Err(Wrong::at(given, key, why));
            }
        }
        if let Some(page) = &self.page {
            parameters.page = page.get_ref().0.0;
            if !PAGE_RANGE.contains(&parameters.page) || !parameters.page.is_multiple_of(PAGE) {
                let why = format!("expected 4KiB to 1MiB, a multiple of 4KiB, not {}", parameters.page);
                return Err(Wrong::at(page, "page", why));
            }
        }
        let rows = ranged(self.block_rows.as_ref(), "block_rows", 1..=ROWS_MAX)?;
        parameters.block_rows = rows.unwrap_or(parameters.block_rows);
        if let Some(spare) = &self.spare {
            parameters.spare = spare.get_ref().0.0;
            if parameters.spare > SPARE_MAX {
                let why = format!("expected 64TiB at most, not {}", parameters.spare);
                return Err(Wrong::at(spare, "spare", why));
            }
        }
        Ok(())
    }

    /// Whether the SSD was full before, and then whether it was overwritten at random.
    pub(super) fn aged(&self) -> Result<Option<bool>, Wrong> {
        let known = [("new", None), ("in-order", Some(false)), ("at-random", Some(true))];
        let Some(aged) = &self.aged else { return Ok(None) };
        one_of(aged.get_ref(), &known).map_err(|why| Wrong::at(aged, "aged", why))
    }

    /// Size in bytes of an SSD that is loaded alone: its own, unless the file says another.
    pub(super) fn own_capacity(&self, parameters: &mut ssd::Parameters) -> Result<u64, Wrong> {
        let Some(capacity) = &self.capacity else { return Ok(parameters.capacity) };
        let Text(Bytes(bytes)) = *capacity.get_ref();
        if !OWN_CAPACITY_RANGE.contains(&bytes) {
            return Err(Wrong::at(capacity, "capacity", format!("expected 1MiB to 64TiB, not {bytes}")));
        }
        if self.spare.is_none() {
            parameters.spare = bytes / 100 * 7;
        }
        parameters.capacity = bytes;
        Ok(bytes)
    }

    /// Sets the numbers of parts, the sizes, and the warmth.
    fn sizes(&self, parameters: &mut ssd::Parameters) -> Result<(), Wrong> {
        for (key, value, given) in [
            ("channels", &mut parameters.channels, &self.channels),
            ("dies", &mut parameters.dies, &self.dies),
            ("planes", &mut parameters.planes, &self.planes),
        ] {
            *value = ranged(given.as_ref(), key, 1..=PARTS_MAX)?.unwrap_or(*value);
        }
        let percent = ranged(self.reclaim_percent.as_ref(), "reclaim_percent", 0..=PERCENT_MAX)?;
        parameters.reclaim_percent = percent.unwrap_or(parameters.reclaim_percent);
        for (value, given) in [
            (&mut parameters.cache, self.cache),
            (&mut parameters.direct, self.direct),
            (&mut parameters.pause_every, self.pause_every),
        ] {
            *value = given.map_or(*value, |Text(Bytes(bytes))| bytes);
        }
        if let Some(buffer) = &self.buffer {
            let Text(Bytes(bytes)) = *buffer.get_ref();
            if !BUFFER_RANGE.contains(&bytes) {
                return Err(Wrong::at(buffer, "buffer", format!("expected 1MiB to 4GiB, not {bytes}")));
            }
            parameters.buffer = bytes;
        }
        if let Some(thermal) = &self.thermal {
            let percent = ranged(Some(&thermal.throttled_percent), "throttled_percent", 1..=100)?;
            parameters.thermal = Some(ssd::Thermal {
                rise_per_gib: thermal.rise_per_gib,
                half_life: thermal.half_life.0,
                limit: thermal.limit,
                throttled_percent: percent.unwrap_or(100),
            });
        }
        Ok(())
    }

    /// Size of the SSD's namespace in bytes.
    pub(super) fn capacity(&self) -> Result<u64, Wrong> {
        let Some(capacity) = &self.capacity else { return Ok(Setup::NAMESPACE_BYTES) };
        let Text(Bytes(bytes)) = *capacity.get_ref();
        if CAPACITY_RANGE.contains(&bytes) && bytes.is_multiple_of(PAGE) {
            return Ok(bytes);
        }
        Err(Wrong::at(
            capacity,
            "capacity",
            format!("expected 1MiB to 16GiB, a multiple of 4KiB, not {bytes}"),
        ))
    }
}

impl PcieTable {
    /// The model of both links.
    pub(super) fn link(&self) -> Result<pcie_model::Link, Wrong> {
        self.over(pcie_model::Link::GEN2_X4)
    }

    /// The model of the link of a card for RDMA.
    pub(super) fn card_link(&self) -> Result<pcie_model::Link, Wrong> {
        let link = self.over(Card::CONNECTX_3.link)?;
        Ok(pcie_model::Link { payload_size: self.payload_size()?, ..link })
    }

    /// `link` with the settings of the table.
    fn over(&self, mut link: pcie_model::Link) -> Result<pcie_model::Link, Wrong> {
        if let Some(generation) = &self.generation {
            if !(1..=5).contains(generation.get_ref()) {
                return Err(Wrong::at(generation, "generation", "expected 1 to 5"));
            }
            link.generation = *generation.get_ref();
        }
        if let Some(lanes) = &self.lanes {
            if ![1, 2, 4, 8, 16].contains(lanes.get_ref()) {
                return Err(Wrong::at(lanes, "lanes", "expected 1, 2, 4, 8 or 16"));
            }
            link.lanes = *lanes.get_ref();
        }
        Ok(link)
    }

    /// Max_Payload_Size in bytes.
    pub(super) fn payload_size(&self) -> Result<u32, Wrong> {
        power(self.payload.as_ref(), "payload")
    }

    /// Max_Read_Request_Size in bytes.
    pub(super) fn read_request_size(&self) -> Result<u32, Wrong> {
        power(self.read_request.as_ref(), "read_request")
    }
}

/// A number in `range`, if there is one.
fn ranged<T: Copy + PartialOrd + std::fmt::Display>(
    value: Option<&Spanned<T>>,
    key: &str,
    range: std::ops::RangeInclusive<T>,
) -> Result<Option<T>, Wrong> {
    match value {
        Some(value) if !range.contains(value.get_ref()) => {
            let (least, most) = (range.start(), range.end());
            Err(Wrong::at(value, key, format!("expected {least} to {most}, not {}", value.get_ref())))
        }
        value => Ok(value.map(|value| *value.get_ref())),
    }
}

/// A size in bytes that PCIe's registers can hold; 256 without a value.
fn power(value: Option<&Spanned<u32>>, key: &str) -> Result<u32, Wrong> {
    match value {
        None => Ok(256),
        Some(value) if [128, 256, 512].contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => Err(Wrong::at(value, key, "expected 128, 256 or 512")),
    }
}
