//! NVMe over Fabrics in the place of the distributed switch: `[fabric]`.

use engine::Nanos;
use sim::models::hca::{Card, Driver, Encapsulation};
use toml::Spanned;

use serde::Deserialize;

use super::link::Link;
use super::machine::PcieTable;
use super::text::{Bytes, Text, one_of};
use super::{Wrong, within};
use crate::fabric_bench::{Medium, Setup, Software, Transport};

/// Allowed numbers of commands of a queue.
const QUEUE_RANGE: std::ops::RangeInclusive<u16> = 1..=1024;
/// The usual number of commands of a queue.
const QUEUE: u16 = 128;
/// Allowed data of a capsule in bytes.
const CAPSULE_RANGE: std::ops::RangeInclusive<u64> = 0..=8 << 10;
/// The usual data of a capsule of NVMe/RDMA in bytes, as Linux's controller has.
const CAPSULE_RDMA: u64 = 4 << 10;
/// Path MTUs in bytes.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// Bytes of a frame's payload around that of RoCEv2: IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4.
const ROCE_HEADERS: u32 = 60;
/// Allowed lengths of a message that goes with its request.
const INLINE_RANGE: std::ops::RangeInclusive<u64> = 0..=1024;
/// Each step of the software above the transport: block layer and driver of the host on the way out
/// and back, controller and block layer behind it on the way in and out. Fitted to the row of nvmf
/// ([`published`](crate::published)) that is polled.
pub(crate) const SOFTWARE: Nanos = Nanos::new(377);
/// From a completion in memory to the software that was asleep. Fitted to nvmf's row with
/// interrupts.
pub(crate) const INTERRUPT: Nanos = Nanos::new(2_550);

/// The software of one end.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EndTable {
    polled: Option<bool>,
    poll: Option<Text<Nanos>>,
    interrupt: Option<Text<Nanos>>,
    post: Option<Text<Nanos>>,
    reap: Option<Text<Nanos>>,
    register: Option<Text<Nanos>>,
}

impl EndTable {
    /// The driver of this end, with the settings of `own` in addition.
    fn driver(self, own: Option<Self>) -> Driver {
        let own = own.unwrap_or_default();
        let of = |own: Option<Text<Nanos>>, both: Option<Text<Nanos>>, usual| {
            own.or(both).map_or(usual, |Text(time)| time)
        };
        let usual = Driver::POLLING;
        let poll = match own.polled.or(self.polled) {
            Some(true) => Nanos::MAX,
            _ => of(own.poll, self.poll, Nanos::ZERO),
        };
        Driver {
            poll,
            look: usual.look,
            interrupt: of(own.interrupt, self.interrupt, INTERRUPT),
            post: of(own.post, self.post, usual.post),
            reap: of(own.reap, self.reap, usual.reap),
            register: of(own.register, self.register, usual.register),
        }
    }
}

/// `[fabric]`: the carrier of the commands, and both machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FabricTable {
    kind: Spanned<String>,
    medium: Option<Spanned<String>>,
    queue: Option<Spanned<u16>>,
    capsule_data: Option<Spanned<Text<Bytes>>>,
    software: Option<Text<Nanos>>,
    polled: Option<bool>,
    poll: Option<Text<Nanos>>,
    interrupt: Option<Text<Nanos>>,
    post: Option<Text<Nanos>>,
    reap: Option<Text<Nanos>>,
    register: Option<Text<Nanos>>,
    host: Option<EndTable>,
    controller: Option<EndTable>,
    card: Option<Spanned<CardTable>>,
}

/// `[fabric.card]`: differences from the card of the published prototypes, at both ends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CardTable {
    inline: Option<Spanned<Text<Bytes>>>,
    mtu: Option<Spanned<u32>>,
    store: Option<Text<Nanos>>,
    memory_read: Option<Text<Nanos>>,
    memory_write: Option<Text<Nanos>>,
    logic: Option<Text<Nanos>>,
    occupancy: Option<Text<Nanos>>,
    retry: Option<Text<Nanos>>,
    #[serde(default)]
    data_in_response: bool,
}

impl CardTable {
    fn apply(&self, card: &mut Card, link: &Link) -> Result<(), Wrong> {
        let set = |value: &mut Nanos, new: Option<Text<Nanos>>| {
            *value = new.map_or(*value, |Text(new)| new);
        };
        set(&mut card.store, self.store);
        set(&mut card.memory_read, self.memory_read);
        set(&mut card.memory_write, self.memory_write);
        set(&mut card.logic.0, self.logic);
        set(&mut card.logic.1, self.logic);
        set(&mut card.occupancy, self.occupancy);
        set(&mut card.retry, self.retry);
        card.data_in_response = self.data_in_response;
        if let Some(mtu) = &self.mtu {
            if !MTUS.contains(mtu.get_ref()) {
                let why = format!("expected 256, 512, 1024, 2048 or 4096, not {}", mtu.get_ref());
                return Err(Wrong::at(mtu, "mtu", why));
            }
            let most = longest(link);
            if card.encapsulation == Encapsulation::RoceV2 && *mtu.get_ref() > most {
                let frame = link.config().mtu;
                let why = format!("expected {most} at most: the frames of [link] carry {frame} bytes (mtu)");
                return Err(Wrong::at(mtu, "mtu", why));
            }
            card.mtu = *mtu.get_ref();
        }
        if let Some(inline) = &self.inline {
            card.inline_max = bytes(inline, "inline", &INLINE_RANGE)?;
        }
        Ok(())
    }
}

/// The longest payload of a packet of RoCEv2 over `link`: the path MTU that fits into a frame.
fn longest(link: &Link) -> u32 {
    let fits = |mtu: &u32| mtu + ROCE_HEADERS <= link.config().mtu;
    MTUS.into_iter().rev().find(fits).unwrap_or(MTUS[0])
}

/// A size in bytes in `range`.
fn bytes(
    place: &Spanned<Text<Bytes>>,
    key: &str,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<u32, Wrong> {
    let Text(Bytes(value)) = *place.get_ref();
    let fits = u32::try_from(value).ok().filter(|_| range.contains(&value));
    fits.ok_or_else(|| {
        let why = format!("expected {} to {} bytes, not {value}", range.start(), range.end());
        Wrong::at(place, key, why)
    })
}

impl FabricTable {
    /// The bench that the table describes, over `link`, with an SSD where it does not say memory.
    pub(super) fn setup(
        &self,
        link: &Link,
        ssd: sim::models::ssd::Parameters,
        pcie: &PcieTable,
        namespace_bytes: u64,
    ) -> Result<Setup, Wrong> {
        let kinds = [("rdma", true), ("tcp", false)];
        let is_rdma =
            one_of(self.kind.get_ref(), &kinds).map_err(|why| Wrong::at(&self.kind, "kind", why))?;
        let mut card = Card { link: pcie.card_link()?, ..Card::CONNECTX_3 };
        if !link.is_infiniband() {
            card.encapsulation = Encapsulation::RoceV2;
            card.mtu = card.mtu.min(longest(link));
        }
        if let Some(table) = &self.card {
            if !is_rdma {
                return Err(Wrong::at(table, "card", "expected no card, because NVMe/TCP has none"));
            }
            table.get_ref().apply(&mut card, link)?;
        }
        let usual = if is_rdma { CAPSULE_RDMA } else { *CAPSULE_RANGE.end() };
        let capsule_data_max = match &self.capsule_data {
            None => u32::try_from(usual).unwrap_or(u32::MAX),
            Some(given) => bytes(given, "capsule_data", &CAPSULE_RANGE)?,
        };
        let media = [("ssd", true), ("memory", false)];
        let has_ssd = self.medium.as_ref().map_or(Ok(true), |medium| {
            one_of(medium.get_ref(), &media).map_err(|why| Wrong::at(medium, "medium", why))
        })?;
        let step = self.software.map_or(SOFTWARE, |Text(time)| time);
        let Self { polled, poll, interrupt, post, reap, register, .. } = *self;
        let both = EndTable { polled, poll, interrupt, post, reap, register };
        let line = link.config().line;
        Ok(Setup {
            seed: 0,
            transport: match is_rdma {
                true => Transport::Rdma([card; 2], line),
                false => Transport::Tcp(*link.config()),
            },
            drivers: [both.driver(self.host), both.driver(self.controller)],
            software: Software { submit: step, complete: step, command: step, respond: step },
            medium: match has_ssd {
                true => Medium::Ssd(Box::new(ssd)),
                false => Medium::Memory { rate: Card::CONNECTX_3.copy_rate },
            },
            namespace_bytes,
            queue_size: within(self.queue.as_ref(), QUEUE, "queue", &QUEUE_RANGE)?,
            capsule_data_max,
        })
    }
}
