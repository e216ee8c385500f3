//! A card for RDMA (host channel adapter) with its PCIe link, and the driver that uses it.
//!
//! The times of a message: the driver posts the request and rings the doorbell; the card fetches
//! the request and its data from host memory, unless both came with the doorbell; its logic makes
//! packets; the other card writes their data and a completion to memory, and the driver there finds
//! the completion by polling or after an interrupt. [`rdma`](crate::rdma) combines these times.

use engine::Nanos;

use super::pcie::{Credits, Link};

/// How packets of RDMA are put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// InfiniBand: LRH 8, BTH 12, invariant and variant CRC 6 bytes.
    InfiniBand,
    /// RoCEv2: Ethernet 14 and 4, IPv4 20, UDP 8, BTH 12, invariant CRC 4 bytes.
    RoceV2,
}

impl Encapsulation {
    /// Bytes around the payload of a packet, without extended headers.
    pub const fn header(self) -> u32 {
        match self {
            Self::InfiniBand => 26,
            Self::RoceV2 => 62,
        }
    }
}

/// The times and sizes of a card, and those of the memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// The PCIe link between host and card.
    pub link: Link,
    /// Time of the CPU's store until it is on the PCIe link: a write-combined line and its fence,
    /// or a doorbell.
    pub store: Nanos,
    /// Time from a read's arrival at the root complex to the start of its completion.
    pub memory_read: Nanos,
    /// Time from a write's arrival at the root complex until a CPU that polls has the line.
    pub memory_write: Nanos,
    /// The longest request and message in bytes that go with the doorbell (BlueFlame, inline data),
    /// so that the card fetches neither. With 0, it fetches both.
    pub inline_max: u32,
    /// Time in the card's logic of a message that is sent, and of a packet that is received.
    pub logic: (Nanos, Nanos),
    /// How long a message occupies the card's logic: the reciprocal of its rate of messages.
    pub occupancy: Nanos,
    /// Payload of the longest packet in bytes (path MTU): 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// How packets are put on the wire.
    pub encapsulation: Encapsulation,
    /// Time without an acknowledgement after which packets are sent again: 4.096 µs times a power
    /// of two, by default 2^14.
    pub retry: Nanos,
    /// Time after which a message is sent again for which the peer had no receive request.
    pub receiver_not_ready: Nanos,
    /// Whether data that are written travel in the message that follows them. NVMe over Fabrics
    /// had such responses in a draft: read data within the response capsule. The receiver's CPU
    /// copies them.
    pub data_in_response: bool,
    /// Bytes a second of a copy by the CPU.
    pub copy_rate: u64,
}

impl Card {
    /// A ConnectX-3 at FDR in a machine with a Haswell processor, as the published prototypes had
    /// (published-figures, nvmf). No time of this card was fitted to a row.
    ///
    /// - `link`: PCIe Gen3 x8 (data sheet), payloads of 256 B. Physical layers as in
    ///   [`Link::GEN2_X4`].
    /// - `store`: half of a configuration read's round trip (published-figures, nvme-tsn: 280 ns),
    ///   less the link's 50 ns.
    /// - `memory_read`: assumed. A read of 64 B takes 0.5 to 1 µs on hosts of these years
    ///   (Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM
    ///   2018); 547 ns is near the lower end, as a Haswell server's should be, and 127 ns of it are
    ///   on the link. The range is 370 to 870 ns.
    /// - `memory_write`: niq's `pcie_write_rx` 280 ns, less 60 ns on the link.
    /// - `logic`: niq's `nic_logic` 150 ns each way.
    /// - `occupancy`: assumed, 35 million messages a second. Cards of the generation take 20 to 50
    ///   ns a message. One command at a time never waits for it.
    /// - `inline_max`: 0, because Linux's driver for NVMe over RDMA sends capsules from memory.
    /// - `copy_rate`: 10 GB/s, an estimate for memory that is in no cache.
    pub const CONNECTX_3: Self = Self {
        link: Link {
            generation: 3,
            lanes: 8,
            credits: [
                Credits { headers: 64, data: 1024 },
                Credits { headers: 64, data: 64 },
                Credits::INFINITE,
            ],
            ..Link::GEN2_X4
        },
        store: Nanos::new(90),
        memory_read: Nanos::new(420),
        memory_write: Nanos::new(220),
        inline_max: 0,
        logic: (Nanos::new(150), Nanos::new(150)),
        occupancy: Nanos::new(29),
        mtu: 4096,
        encapsulation: Encapsulation::InfiniBand,
        retry: Nanos::new(67_108_864),
        receiver_not_ready: Nanos::from_micros(10),
        data_in_response: false,
        copy_rate: 10_000_000_000,
    };
}

/// The times of the software that uses a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Time to post a request.
    pub post: Nanos,
    /// Time to take a completion.
    pub reap: Nanos,
    /// Time to lend memory to the peer (a fast registration), where that is needed.
    pub register: Nanos,
    /// Mean time between a completion's arrival and the look of a CPU that polls.
    pub look: Nanos,
    /// How long the software polls before it sleeps: none for interrupts only.
    pub poll: Nanos,
    /// Time from a completion's arrival until sleeping software takes it: the interrupt, its
    /// handler, and the wake-up of the waiting thread.
    pub interrupt: Nanos,
}

impl Driver {
    /// A driver that polls for ever. The times of requests are estimates of a few cache lines.
    pub const POLLING: Self = Self {
        post: Nanos::new(100),
        reap: Nanos::new(100),
        register: Nanos::new(100),
        look: Nanos::new(50),
        poll: Nanos::MAX,
        interrupt: Nanos::ZERO,
    };
}
