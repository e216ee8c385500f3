//! The machines of a scenario: `[host]`, `[ssd]` and `[pcie]`.

use engine::Nanos;
use pcie::requester::CompletionTimeout;
use serde::Deserialize;
use sim::models::{host, pcie as pcie_model, ssd};
use toml::Spanned;

use super::Wrong;
use super::text::{Bytes, Text};
use crate::test_bench::Setup;

/// Allowed sizes of a namespace in bytes; a table of its pages must fit in memory.
const CAPACITY_RANGE: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 30;
/// Length of a page in bytes.
const PAGE: u64 = 4096;

/// `[host]`: differences from the host of the published time lines.
#[derive(Debug, Default, Deserialize)]
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
        Ok(parameters)
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
        let mut link = pcie_model::Link::GEN2_X4;
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

/// A size in bytes that PCIe's registers can hold; 256 without a value.
fn power(value: Option<&Spanned<u32>>, key: &str) -> Result<u32, Wrong> {
    match value {
        None => Ok(256),
        Some(value) if [128, 256, 512].contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => Err(Wrong::at(value, key, "expected 128, 256 or 512")),
    }
}
