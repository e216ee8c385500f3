//! The chain of components, and packets returned by the other side: no PCIe, no TCP.

use engine::{Buffer, Instant, Nanos, Rng};
use network_models::stage::{Settings, Stage};
use network_models::{AnyHop, Class, Frame, Hop, Path, tcp};

use super::super::{Kind, Report, decimal, mean};
use super::{Box, DOWNSTREAM, FAKE_ETHERNET, Middle, UPSTREAM, row};

/// Number of packets of each measurement; 10,000 or more were published.
const PACKETS: u64 = 10_000;
/// Lengths of the smallest and the largest packet in bytes.
const SIZES: [u32; 2] = [68, 1_518];
/// The rate of the packet generators in bits a second.
const LINE_RATE: u64 = 1_000_000;

/// A process on the processor that sends a packet and gets it back: `ps_pl_ps_round_trip` without
/// both passages of the DMA interface.
const PROCESS: Settings = Settings::between(Nanos::new(25_468), Nanos::new(28_360));
/// The kernel that returns a packet: `pl_ps_pl_round_trip` without both passages of the DMA
/// interface.
const KERNEL: Settings = Settings::between(Nanos::new(20_868), Nanos::new(23_460));

fn micros(time: Nanos) -> f64 {
    decimal(time.get()) / 1e3
}

pub(super) fn rows(report: &mut Report, seed: u64) {
    components(report);
    loops(report, seed);
    pings(report, seed);
}

fn components(report: &mut Report) {
    let mut add = |name: &str, published: f64, ours: Nanos| {
        let source = "the published component itself";
        row(report, name, Some(published), micros(ours), "us", Kind::Calibrated, source);
    };
    let npap = |size| tcp::Parameters::NPAP.transmit.of(size);
    let both = |settings: Settings, size| settings.of(size) + FAKE_ETHERNET.of(size) * 2;
    add("npap_tcp_stack 68 B", 0.256, npap(68));
    add("npap_tcp_stack 1518 B", 3.616, npap(1_518));
    add("fake_ethernet 68 B", 0.816, FAKE_ETHERNET.of(68));
    add("fake_ethernet 1518 B", 2.320, FAKE_ETHERNET.of(1_518));
    add("pl_ps_pl_round_trip 68 B", 22.5, both(KERNEL, 68));
    add("pl_ps_pl_round_trip 1518 B", 28.1, both(KERNEL, 1_518));
    add("ps_pl_ps_round_trip 68 B", 27.1, both(PROCESS, 68));
    add("ps_pl_ps_round_trip 1518 B", 33.0, both(PROCESS, 1_518));
    for (name, place, [iptables, usb]) in
        [("upstream", &UPSTREAM, [10.2, 36.2]), ("downstream", &DOWNSTREAM, [11.0, 23.9])]
    {
        add(&format!("linux_iptables {name}"), iptables, place.iptables.of(68));
        add(&format!("linux_usb_stack {name}"), usb, place.usb.of(68));
    }
}

/// Round-trip times of `count` packets of `size` bytes over `there` and `back`. Packets are sent
/// one at a time, at least `interval` apart.
fn round_trips(mut there: Path, mut back: Path, size: u32, count: u64, interval: Nanos) -> Vec<Nanos> {
    let mut now = Instant::ZERO;
    let mut times = Vec::new();
    for id in 0..count {
        let begin = now;
        let frame = || Frame::new(id, size, Class::BEST_EFFORT, Buffer::EMPTY);
        let there = pass(&mut there, now, frame());
        let end = there.and_then(|at| pass(&mut back, at, frame()));
        // Lost packets do not count, as in the publication.
        let end = end.inspect(|end| times.push(*end - begin)).unwrap_or(begin + interval);
        now = end.max(begin + interval) + Nanos::new(1);
    }
    times
}

/// When a frame that enters a path at `now` leaves it; `None` if the frame is lost.
fn pass(path: &mut Path, now: Instant, frame: Frame) -> Option<Instant> {
    path.enter(now, frame);
    while let Some(at) = path.next() {
        if path.poll(at).is_some() {
            return Some(at);
        }
    }
    None
}

/// A path from one box's processor to the other's, which passes neither logic nor routing.
fn between_processors(middle: Middle, from: &Box, to: &Box, rng: &Rng) -> Path {
    let mut hops = vec![AnyHop::from(Stage::new(from.usb))];
    hops.extend(middle.hops(rng));
    hops.push(Stage::new(to.usb).into());
    Path::new(hops)
}

fn loops(report: &mut Report, seed: u64) {
    for (name, middle, in_logic, published) in [
        ("pl_to_pl_gbe", Middle::Gigabit, true, [165.7, 196.4]),
        ("pl_to_pl_5g", Middle::Radio, true, [20_254.0, 32_987.0]),
        ("ps_to_ps_gbe", Middle::Gigabit, false, [156.0, 212.6]),
        ("ps_to_ps_5g", Middle::Radio, false, [14_998.0, 22_597.0]),
    ] {
        for (size, published) in SIZES.into_iter().zip(published) {
            let rng = Rng::from_seed(seed).fork(name);
            let path = |from: &Box, to: &Box, rng: &Rng| match in_logic {
                true => middle.path(from, to, rng),
                false => between_processors(middle, from, to, rng),
            };
            let there = path(&UPSTREAM, &DOWNSTREAM, &rng.fork("there"));
            let back = path(&DOWNSTREAM, &UPSTREAM, &rng.fork("back"));
            let interval = Nanos::new(u64::from(size) * 8 * 1_000_000_000 / LINE_RATE);
            let times = round_trips(there, back, size, PACKETS, interval);
            // A loop between processors has a process at either end.
            let processes = if in_logic { 0.0 } else { 2.0 * micros(PROCESS.of(size)) };
            let ours = mean(&times) / 1e3 + processes;
            let source = "the published components; the radio as for register reads";
            let name = format!("{name} {size} B");
            row(report, &name, Some(published), ours, "us", Kind::Predicted, source);
        }
    }
}

/// Pings from the upstream box's processor through its modem to the core network, one each second.
fn pings(report: &mut Report, seed: u64) {
    let rng = Rng::from_seed(seed).fork("ping");
    let cell = network_models::nr5g::Cell::CAMPUS;
    let up = network_models::nr5g::Uplink::new(cell, rng.fork("up"));
    let core = network_models::nr5g::Core::new(network_models::nr5g::CoreSettings::CAMPUS, rng.fork("core"));
    let there = Path::new([Stage::new(UPSTREAM.usb).into(), AnyHop::from(up), core.into()]);
    let down = network_models::nr5g::Downlink::new(cell, rng.fork("down"));
    let back = Path::new([AnyHop::from(down), Stage::new(UPSTREAM.usb).into()]);
    // The interval is not a multiple of the slot pattern, so that pings hit all parts of it.
    let times = round_trips(there, back, 98, PACKETS, Nanos::new(1_000_370_000));
    let ours = mean(&times) / 1e3 + micros(PROCESS.of(98));
    let source = "the station's time and k2, from this row; the core network as for register reads";
    row(report, "icmp_ping_to_core", Some(11_700.0), ours, "us", Kind::Calibrated, source);
    let source = "requests and grants as standardised; the core network as for register reads";
    row(report, "icmp_ping_to_vm", Some(11_600.0), ours, "us", Kind::Predicted, source);
    row(report, "tcp_ping_to_vm", Some(14_100.0), ours, "us", Kind::Predicted, source);
}
