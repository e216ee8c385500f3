//! The constants of the published experiments, and where each comes from.
//!
//! [`Constants`] holds their values, so that an experiment can be repeated with other values.
//! [`ALL`] lists them: a [`Constant`] names its [`Source`], and the rows of the publication that
//! its value was taken from. The class of a row ([`Class`](super::Class)) follows from this list.

mod list;
mod quantity;

use engine::Nanos;
use network_models::ethernet::FifoStage;
use network_models::ethernet::medium::PortLatency;
use network_models::nr5g::{Cell, CoreSettings};
use network_models::stage::{self, Settings};
use network_models::tcp;
use sim::models::hca::{Card, Driver};
use sim::models::{host, nic, pcie, ssd};

pub use list::ALL;
pub use quantity::Quantity;

use crate::file::fabric::{INTERRUPT, SOFTWARE};

/// Number of bytes in a mebibyte.
const MIB: u64 = 1 << 20;

/// Where a constant's value comes from. Rows are those of the constant's own experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The value is the figure of these rows, less steps that are known from elsewhere. No other
    /// constant taken from rows changes them.
    Figure(&'static [&'static str]),
    /// The value was chosen so that these rows come out, on which other such constants act, too.
    Fitted(&'static [&'static str]),
    /// The value is from another publication, a standard, a data sheet, or the description of the
    /// set-up.
    Elsewhere(&'static str),
    /// Nothing that was published determines the value; the text gives the reasoning.
    Estimate(&'static str),
}

impl Source {
    /// The rows that the value was taken from.
    pub const fn rows(&self) -> &'static [&'static str] {
        match self {
            Self::Figure(rows) | Self::Fitted(rows) => rows,
            Self::Elsewhere(_) | Self::Estimate(_) => &[],
        }
    }

    /// The name of the kind of source, as it is printed.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Figure(_) => "figure",
            Self::Fitted(_) => "fitted",
            Self::Elsewhere(_) => "elsewhere",
            Self::Estimate(_) => "estimate",
        }
    }
}

/// A constant of the experiments.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// The name of the constant.
    pub name: &'static str,
    /// The experiment whose rows [`Constant::source`] names.
    pub experiment: &'static str,
    /// The other experiments that use the constant.
    pub shared: &'static [&'static str],
    /// Where the value comes from.
    pub source: Source,
    /// The place of the value.
    pub place: fn(&mut Constants) -> Quantity<'_>,
}

impl Constant {
    /// The experiments that use the constant.
    pub fn experiments(&self) -> impl Iterator<Item = &'static str> {
        core::iter::once(self.experiment).chain(self.shared.iter().copied())
    }

    /// Whether the value was taken from the row called `row` of `experiment`.
    pub fn is_from(&self, experiment: &str, row: &str) -> bool {
        self.experiment == experiment && self.source.rows().contains(&row)
    }

    /// Whether the value was taken from rows at all.
    pub const fn is_taken(&self) -> bool {
        !self.source.rows().is_empty()
    }
}

/// The constants of the fast cells and paths of the recorded SSD.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    /// Start and end of a session, beside the commands.
    pub(super) session: Nanos,
    /// A read session of n chunks begins by this time divided by n² later; of unknown cause.
    pub(super) read_wait: Nanos,
    /// Rate of the path of writes in bytes a second.
    pub(super) write_rate: u64,
    /// Rate of the path of reads in bytes a second.
    pub(super) read_rate: u64,
    /// Size of the write buffer in bytes.
    pub(super) buffer: u64,
    /// Number of bytes of fast cells that are left.
    pub(super) cache: u64,
    /// Rate into fast cells in bytes a second.
    pub(super) cache_rate: u64,
    /// Rate into dense cells in bytes a second.
    pub(super) rate: u64,
}

/// The values of all constants.
///
/// A value of two sizes of packets is an array: that of the smallest packet, 68 B, and of the
/// largest, 1518 B. A value of two places is one as well: at the host, and at the device.
#[derive(Clone, Debug)]
pub struct Constants {
    pub(super) host: host::Parameters,
    pub(super) ssd: ssd::Parameters,
    pub(super) link: pcie::Link,
    /// The time that a packet takes in either end of the switch.
    pub(super) pipeline: Nanos,
    pub(super) port: PortLatency,
    pub(super) tsn_mac: FifoStage,
    /// The hardware TCP stack, for both sizes.
    pub(super) stack: [Nanos; 2],
    /// The DMA interface between logic and processor, for both sizes.
    pub(super) dma: [Nanos; 2],
    /// The kernel that returns a packet, for both sizes.
    pub(super) kernel: [Nanos; 2],
    /// A process that sends a packet and gets it back, for both sizes.
    pub(super) process: [Nanos; 2],
    /// Routing, in both places.
    pub(super) routing: [Nanos; 2],
    /// The USB stack, in both places.
    pub(super) usb: [Nanos; 2],
    pub(super) core: CoreSettings,
    pub(super) cell: Cell,
    /// Each of four steps of the software above NVMe over Fabrics.
    pub(super) software: Nanos,
    /// From a completion in memory to software that was asleep.
    pub(super) interrupt: Nanos,
    pub(super) card: Card,
    pub(super) driver: Driver,
    pub(super) nic: nic::Parameters,
    pub(super) recorder: Recorder,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            host: host::Parameters::RYZEN_3200G,
            // Published time lines have one write each, without a spread.
            ssd: ssd::Parameters { accept_spread: Nanos::ZERO, ..ssd::Parameters::SAMSUNG_970_PRO },
            link: pcie::Link::GEN2_X4,
            pipeline: super::PIPELINE,
            port: PortLatency::FPGA_1G,
            tsn_mac: FifoStage::TSN_MAC,
            stack: [Nanos::new(256), Nanos::new(3_616)],
            dma: [Nanos::new(816), Nanos::new(2_320)],
            kernel: [Nanos::new(20_868), Nanos::new(23_460)],
            process: [Nanos::new(25_468), Nanos::new(28_360)],
            routing: [Settings::ROUTING_UPSTREAM.latency, Settings::ROUTING_DOWNSTREAM.latency],
            usb: [Settings::USB_UPSTREAM.latency, Settings::USB_DOWNSTREAM.latency],
            core: CoreSettings::CAMPUS,
            cell: Cell::CAMPUS,
            software: SOFTWARE,
            interrupt: INTERRUPT,
            card: Card::CONNECTX_3,
            driver: Driver::POLLING,
            nic: nic::Parameters::NIQ,
            recorder: Recorder {
                session: Nanos::from_micros(147),
                read_wait: Nanos::from_micros(54_200),
                write_rate: 1_481 * MIB,
                read_rate: 1_908 * MIB,
                buffer: 22 * MIB,
                cache: 2_234 * MIB,
                cache_rate: 327 * MIB,
                rate: 2_012 * MIB / 10,
            },
        }
    }
}

impl Constants {
    /// A stage that takes these times for the smallest and the largest packet.
    pub(super) fn stage([shortest, longest]: [Nanos; 2]) -> Settings {
        let slope = Settings::slope(shortest, longest).unwrap_or(0);
        Settings { picoseconds_per_byte: slope, ..Settings::pipeline(shortest) }
    }

    /// The hardware TCP stack.
    pub(super) fn tcp(&self) -> tcp::Parameters {
        let stage::Settings { latency, picoseconds_per_byte, .. } = Self::stage(self.stack);
        let transmit = tcp::Processing { fixed: latency, picoseconds_per_byte };
        tcp::Parameters { transmit, ..tcp::Parameters::NPAP }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_is_that_of_the_network_models() {
        assert_eq!(Constants::default().tcp(), tcp::Parameters::NPAP);
        assert_eq!(Constants::stage(Constants::default().dma), Settings::DMA);
    }

    #[test]
    fn names_are_unique_and_each_place_is_its_own() {
        let mut names: Vec<_> = ALL.iter().map(|constant| constant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for (index, constant) in ALL.iter().enumerate() {
            let mut changed = Constants::default();
            (constant.place)(&mut changed).shift(10);
            for (other, place) in ALL.iter().enumerate() {
                let before = (place.place)(&mut Constants::default()).get();
                let after = (place.place)(&mut changed).get();
                assert_eq!(before != after, index == other, "{} and {}", constant.name, place.name);
            }
        }
    }
}
