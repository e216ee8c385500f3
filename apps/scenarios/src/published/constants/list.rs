//! Every constant of the experiments.

use engine::Nanos;
use network_models::nr5g::{Cell, Grants, Harq, Proactive, RoundTrip};

use super::Quantity::{Chance, Count, Number, Time};
use super::Source::{Elsewhere, Estimate, Figure, Fitted};
use super::{Constant, Constants, Quantity, Source};

/// The grants without a request of the campus cell.
fn proactive(cell: &mut Cell) -> &mut Proactive {
    match &mut cell.grants {
        Grants::Dynamic { proactive: Some(proactive), .. } => proactive,
        other => unreachable!("the campus cell gives grants without a request: {other:?}"),
    }
}

/// The slots between two requests of the campus cell.
fn request_period(cell: &mut Cell) -> &mut u32 {
    match &mut cell.grants {
        Grants::Dynamic { request_period, .. } => request_period,
        other => unreachable!("devices of the campus cell send requests: {other:?}"),
    }
}

/// The time from one attempt to the next in the campus cell.
fn fixed(harq: &mut Harq) -> &mut Nanos {
    match &mut harq.round_trip {
        RoundTrip::Fixed(time) => time,
        RoundTrip::Scheduled => unreachable!("the campus cell repeats after a fixed time"),
    }
}

/// A constant of one experiment.
const fn own(
    experiment: &'static str,
    name: &'static str,
    source: Source,
    place: fn(&mut Constants) -> Quantity<'_>,
) -> Constant {
    Constant { name, experiment, shared: &[], source, place }
}

impl Constant {
    /// The same constant, used by the experiments `shared`, too.
    const fn shared_with(self, shared: &'static [&'static str]) -> Self {
        Self { shared, ..self }
    }
}

const TSN: &str = "nvme-tsn";
const RADIO: &str = "nvme-5g";
const FABRICS: &str = "nvmf";
const CARD: &str = "niq";
const RECORDER: &str = "streamer";

/// All constants, grouped by the experiment that gives their values.
pub static ALL: &[Constant] = &[
    own(TSN, "link: propagation", Estimate("only its sum with the device's answer was measured"), |c| {
        Time(&mut c.link.propagation)
    })
    .shared_with(&[RADIO]),
    own(TSN, "link: time to an acknowledgement", Fitted(&["read_4k direct", "write_4k direct"]), |c| {
        Time(&mut c.link.acknowledge)
    }),
    own(TSN, "host: memory, page read before", Figure(&["write timeline: sqe_fetch_rtt"]), |c| {
        Time(&mut c.host.memory_read)
    })
    .shared_with(&[RADIO]),
    own(TSN, "host: memory, first read of a page", Figure(&["write timeline: data_first_cpld_after"]), |c| {
        Time(&mut c.host.memory_read_first)
    })
    .shared_with(&[RADIO]),
    own(TSN, "host: completion of a read", Fitted(&["read timeline: cq_head_doorbell"]), |c| {
        Time(&mut c.host.complete_read)
    })
    .shared_with(&[RADIO]),
    own(TSN, "host: completion of a write", Fitted(&["write timeline: cq_head_doorbell"]), |c| {
        Time(&mut c.host.complete_write)
    })
    .shared_with(&[RADIO]),
    own(
        TSN,
        "host: submission",
        Estimate("a system call with direct I/O; the time lines begin after it"),
        |c| Time(&mut c.host.submit),
    )
    .shared_with(&[RADIO]),
    own(TSN, "SSD: answer to a configuration read", Figure(&["config_read_rtt direct"]), |c| {
        Time(&mut c.ssd.config_response)
    })
    .shared_with(&[RADIO]),
    own(TSN, "SSD: fetch of an entry", Figure(&["write timeline: sqe_fetch_mrd"]), |c| {
        Time(&mut c.ssd.fetch)
    })
    .shared_with(&[RADIO]),
    own(TSN, "SSD: firmware", Fitted(&["write timeline: data_first_mrd"]), |c| Time(&mut c.ssd.firmware))
        .shared_with(&[RADIO]),
    own(TSN, "SSD: array", Fitted(&["read timeline: data_first_mwr"]), |c| Time(&mut c.ssd.array_read))
        .shared_with(&[RADIO]),
    own(
        TSN,
        "SSD: spread of the array",
        Elsewhere("the set-up: tens of microseconds from read to read"),
        |c| Time(&mut c.ssd.array_spread),
    )
    .shared_with(&[RADIO]),
    own(TSN, "SSD: rate of a channel", Figure(&["read timeline: data_phase_length"]), |c| {
        Number(&mut c.ssd.channel_rate)
    })
    .shared_with(&[RADIO]),
    own(TSN, "SSD: completion", Fitted(&["write timeline: msix_interrupt"]), |c| Time(&mut c.ssd.completion))
        .shared_with(&[RADIO]),
    own(TSN, "switch: pipeline of an end", Fitted(&["config_read_rtt tcp_1g"]), |c| Time(&mut c.pipeline))
        .shared_with(&[RADIO]),
    own(TSN, "TSN MAC: latency", Fitted(&["config_read_rtt tsn_1g"]), |c| Time(&mut c.tsn_mac.latency)),
    own(TSN, "TSN MAC: threshold", Fitted(&["config_read_rtt tsn_1g"]), |c| Count(&mut c.tsn_mac.threshold)),
    own(TSN, "Gigabit port: MAC out", Elsewhere("AMD PG138 8.0, theoretical latency values"), |c| {
        Time(&mut c.port.mac_transmit)
    })
    .shared_with(&[RADIO]),
    own(TSN, "Gigabit port: PHY out", Elsewhere("AMD PG138 8.0, theoretical latency values"), |c| {
        Time(&mut c.port.phy_transmit)
    })
    .shared_with(&[RADIO]),
    own(TSN, "Gigabit port: PHY in", Elsewhere("AMD PG138 8.0, theoretical latency values"), |c| {
        Time(&mut c.port.phy_receive)
    })
    .shared_with(&[RADIO]),
    own(TSN, "Gigabit port: MAC in", Elsewhere("AMD PG138 8.0, theoretical latency values"), |c| {
        Time(&mut c.port.mac_receive)
    })
    .shared_with(&[RADIO]),
    own(RADIO, "TCP stack in logic, 68 B", Figure(&["npap_tcp_stack 68 B"]), |c| Time(&mut c.stack[0]))
        .shared_with(&[TSN]),
    own(RADIO, "TCP stack in logic, 1518 B", Figure(&["npap_tcp_stack 1518 B"]), |c| Time(&mut c.stack[1]))
        .shared_with(&[TSN]),
    own(RADIO, "DMA interface, 68 B", Figure(&["fake_ethernet 68 B"]), |c| Time(&mut c.dma[0])),
    own(RADIO, "kernel that returns a packet, 68 B", Fitted(&["pl_ps_pl_round_trip 68 B"]), |c| {
        Time(&mut c.kernel[0])
    }),
    own(RADIO, "process, 68 B", Fitted(&["ps_pl_ps_round_trip 68 B"]), |c| Time(&mut c.process[0])),
    own(RADIO, "DMA interface, 1518 B", Figure(&["fake_ethernet 1518 B"]), |c| Time(&mut c.dma[1])),
    own(RADIO, "kernel that returns a packet, 1518 B", Fitted(&["pl_ps_pl_round_trip 1518 B"]), |c| {
        Time(&mut c.kernel[1])
    }),
    own(RADIO, "process, 1518 B", Fitted(&["ps_pl_ps_round_trip 1518 B"]), |c| Time(&mut c.process[1])),
    own(RADIO, "routing, upstream", Figure(&["linux_iptables upstream"]), |c| Time(&mut c.routing[0])),
    own(RADIO, "USB stack, upstream", Figure(&["linux_usb_stack upstream"]), |c| Time(&mut c.usb[0])),
    own(RADIO, "routing, downstream", Figure(&["linux_iptables downstream"]), |c| Time(&mut c.routing[1])),
    own(RADIO, "USB stack, downstream", Figure(&["linux_usb_stack downstream"]), |c| Time(&mut c.usb[1])),
    own(RADIO, "core: least delay", Fitted(&["pcie_bar0_read_5g"]), |c| Time(&mut c.core.delay)),
    own(RADIO, "core: spread", Fitted(&["pcie_bar0_read_5g_stddev"]), |c| Time(&mut c.core.spread)),
    own(RADIO, "core: coherence", Estimate("frames of one slot meet the same load"), |c| {
        Time(&mut c.core.coherence)
    }),
    own(RADIO, "core: loss", Fitted(&["tail_over_200_ms_share"]), |c| Chance(&mut c.core.loss)),
    own(RADIO, "cell: station", Fitted(&["icmp_ping_to_core"]), |c| Time(&mut c.cell.station)),
    own(RADIO, "cell: k2", Fitted(&["icmp_ping_to_core"]), |c| Count(&mut c.cell.k2)),
    own(
        RADIO,
        "cell: bytes granted without a request",
        Fitted(&["icmp_ping_to_core", "pcie_bar0_read_5g"]),
        |c| Count(&mut proactive(&mut c.cell).bytes),
    ),
    own(
        RADIO,
        "cell: time of grants without a request",
        Fitted(&["icmp_ping_to_core", "pcie_bar0_read_5g"]),
        |c| Time(&mut proactive(&mut c.cell).lasts),
    ),
    own(
        RADIO,
        "cell: period of requests",
        Estimate("a common setting of TS 38.331, schedulingRequestPeriodicity"),
        |c| Count(request_period(&mut c.cell)),
    ),
    own(RADIO, "cell: N1", Elsewhere("TS 38.214, table 5.3-1"), |c| Count(&mut c.cell.n1)),
    own(RADIO, "cell: N2", Elsewhere("TS 38.214, table 6.4-1"), |c| Count(&mut c.cell.n2)),
    own(
        RADIO,
        "cell: bytes of an uplink slot",
        Elsewhere("air_bandwidth_mbit_s: the middle of 50 to 70"),
        |c| Count(&mut c.cell.up_bytes),
    ),
    own(RADIO, "cell: bytes of a downlink slot", Estimate("about 600 Mbit/s in 100 MHz"), |c| {
        Count(&mut c.cell.down_bytes)
    }),
    own(
        RADIO,
        "HARQ up: failures of first attempts",
        Elsewhere("the usual aim of link adaptation, one in ten"),
        |c| Chance(&mut c.cell.harq_up.first),
    ),
    own(RADIO, "HARQ up: failures of later attempts", Estimate("combined attempts rarely fail"), |c| {
        Chance(&mut c.cell.harq_up.later)
    }),
    own(RADIO, "HARQ up: round trip", Estimate("a period of the pattern"), |c| {
        Time(fixed(&mut c.cell.harq_up))
    }),
    own(RADIO, "HARQ up: recovery by RLC", Estimate("a common t-PollRetransmit"), |c| {
        Time(&mut c.cell.harq_up.recovery)
    }),
    own(
        RADIO,
        "HARQ down: failures of first attempts",
        Elsewhere("the usual aim of link adaptation, one in ten"),
        |c| Chance(&mut c.cell.harq_down.first),
    ),
    own(RADIO, "HARQ down: failures of later attempts", Estimate("combined attempts rarely fail"), |c| {
        Chance(&mut c.cell.harq_down.later)
    }),
    own(RADIO, "HARQ down: round trip", Estimate("a period of the pattern"), |c| {
        Time(fixed(&mut c.cell.harq_down))
    }),
    own(RADIO, "HARQ down: recovery by RLC", Estimate("a common t-PollRetransmit"), |c| {
        Time(&mut c.cell.harq_down.recovery)
    }),
    own(FABRICS, "software: each of four steps", Fitted(&["read 4 KiB, polled"]), |c| Time(&mut c.software)),
    own(FABRICS, "software: interrupt and wake-up", Fitted(&["read 4 KiB, interrupts"]), |c| {
        Time(&mut c.interrupt)
    }),
    own(FABRICS, "card: store", Fitted(&["read 4 KiB, polled"]), |c| Time(&mut c.card.store)),
    own(FABRICS, "card: write to memory", Fitted(&["read 4 KiB, polled"]), |c| {
        Time(&mut c.card.memory_write)
    }),
    own(FABRICS, "card: read of memory", Elsewhere("pcie-bench, Haswell"), |c| Time(&mut c.card.memory_read)),
    own(FABRICS, "card: logic of a message out", Elsewhere("niq, nic_logic_tx"), |c| {
        Time(&mut c.card.logic.0)
    }),
    own(FABRICS, "card: logic of a packet in", Elsewhere("niq, nic_logic_rx"), |c| Time(&mut c.card.logic.1)),
    own(FABRICS, "card: time between messages", Elsewhere("the card's data sheet"), |c| {
        Time(&mut c.card.occupancy)
    }),
    own(FABRICS, "card: propagation of its link", Estimate("as the link of nvme-tsn"), |c| {
        Time(&mut c.card.link.propagation)
    }),
    own(FABRICS, "memory: rate of a copy", Estimate("memory that is in no cache"), |c| {
        Number(&mut c.card.copy_rate)
    }),
    own(FABRICS, "driver: post", Estimate("a few cache lines"), |c| Time(&mut c.driver.post)),
    own(FABRICS, "driver: reap", Estimate("a few cache lines"), |c| Time(&mut c.driver.reap)),
    own(FABRICS, "driver: register", Estimate("a few cache lines"), |c| Time(&mut c.driver.register)),
    own(FABRICS, "driver: look", Estimate("a few cache lines"), |c| Time(&mut c.driver.look)),
    own(CARD, "passes of a packet", Fitted(&["one_way_64b_dma: PCIe read"]), |c| Number(&mut c.nic.passes)),
    own(CARD, "store", Fitted(&["one_way_60b_inline: PCIe write", "one_way_64b_dma: PCIe write"]), |c| {
        Number(&mut c.nic.store)
    }),
    own(CARD, "inbound", Fitted(&["one_way_60b_inline: PCIe reply"]), |c| Number(&mut c.nic.inbound)),
    own(CARD, "read", Fitted(&["pcie_4b_read cpu_idle: mean"]), |c| Number(&mut c.nic.read)),
    own(
        CARD,
        "logic, inline",
        Figure(&["one_way_60b_inline: NIC logic, transmit", "one_way_60b_inline: NIC logic, receive"]),
        |c| Number(&mut c.nic.logic_inline),
    ),
    own(CARD, "logic, DMA out", Figure(&["one_way_64b_dma: NIC logic, transmit"]), |c| {
        Number(&mut c.nic.logic_dma.0)
    }),
    own(CARD, "logic, DMA in", Figure(&["one_way_64b_dma: NIC logic, receive"]), |c| {
        Number(&mut c.nic.logic_dma.1)
    }),
    own(
        CARD,
        "MAC out",
        Figure(&["one_way_60b_inline: MAC, transmit", "one_way_64b_dma: MAC, transmit"]),
        |c| Number(&mut c.nic.mac_out),
    ),
    own(
        CARD,
        "MAC in",
        Figure(&["one_way_60b_inline: MAC, receive", "one_way_64b_dma: MAC, receive"]),
        |c| Number(&mut c.nic.mac_in_femtos),
    ),
    own(
        CARD,
        "PHY",
        Figure(&[
            "one_way_60b_inline: PHY, transmit",
            "one_way_60b_inline: PHY, receive",
            "one_way_64b_dma: PHY, transmit",
            "one_way_64b_dma: PHY, receive",
        ]),
        |c| Number(&mut c.nic.phy),
    ),
    own(CARD, "metres of cable", Figure(&["one_way_60b_inline: cable", "one_way_64b_dma: cable"]), |c| {
        Number(&mut c.nic.metres)
    }),
    own(CARD, "cache miss", Figure(&["one_way_64b_dma: cache misses"]), |c| Number(&mut c.nic.cache_miss)),
    own(CARD, "line that follows", Estimate("64 B at 10 GB/s"), |c| Number(&mut c.nic.next_line)),
    own(
        CARD,
        "reads that meet another access: one in",
        Estimate("rare enough to leave the means equal"),
        |c| Number(&mut c.nic.caches.meets_one_in),
    ),
    own(CARD, "wait beside an idle processor", Fitted(&["pcie_4b_read cpu_idle: max"]), |c| {
        Number(&mut c.nic.caches.wait_idle)
    }),
    own(CARD, "wait beside a reading processor", Fitted(&["pcie_4b_read cpu_read: max"]), |c| {
        Number(&mut c.nic.caches.wait_read)
    }),
    own(CARD, "head start of an owned line", Fitted(&["pcie_4b_read cpu_write: mean"]), |c| {
        Number(&mut c.nic.caches.owned_earlier)
    }),
    own(CARD, "period of stores", Fitted(&["pcie_4b_read cpu_write: deviation"]), |c| {
        Number(&mut c.nic.caches.store_period)
    }),
    own(RECORDER, "session", Figure(&["write: 1 chunk a session"]), |c| Time(&mut c.recorder.session)),
    own(RECORDER, "wait of short read sessions", Fitted(&["read: 4 chunks a session"]), |c| {
        Time(&mut c.recorder.read_wait)
    }),
    own(RECORDER, "rate of the write path", Fitted(&["write: 128 chunks a session"]), |c| {
        Number(&mut c.recorder.write_rate)
    }),
    own(
        RECORDER,
        "rate of the read path",
        Figure(&[
            "read: 128 chunks a session",
            "read: 256 chunks a session",
            "read: 512 chunks a session",
            "read: 1024 chunks a session",
            "read: 32768 chunks a session",
            "read: full disk",
        ]),
        |c| Number(&mut c.recorder.read_rate),
    ),
    own(RECORDER, "write buffer", Fitted(&["write: 256 chunks a session"]), |c| {
        Number(&mut c.recorder.buffer)
    }),
    own(RECORDER, "rate into fast cells", Fitted(&["write: 1024 chunks a session"]), |c| {
        Number(&mut c.recorder.cache_rate)
    }),
    own(RECORDER, "fast cells left", Fitted(&["write: 32768 chunks a session"]), |c| {
        Number(&mut c.recorder.cache)
    }),
    own(RECORDER, "rate into dense cells", Fitted(&["write: full disk"]), |c| Number(&mut c.recorder.rate)),
];
