//! The chain of components, and packets returned by the other side: no PCIe, no TCP.

use engine::{Buffer, Instant, Nanos, Rng};
use network_models::nr5g::{Core, Downlink, Uplink};
use network_models::stage::Stage;
use network_models::{AnyHop, Class, Frame, Hop, Path};

use super::super::constants::Constants;
use super::super::{Measure, Report, decimal, mean};
use super::{Experiment, Middle, Place, row};

/// Number of packets of each measurement; 10,000 or more were published.
const PACKETS: u64 = 10_000;
/// Lengths of the smallest and the largest packet in bytes.
const SIZES: [u32; 2] = [68, 1_518];
/// The rate to which the packet generators were held, in bits a second.
const LINE_RATE: u64 = 1_000_000;

fn micros(time: Nanos) -> f64 {
    decimal(time.get()) / 1e3
}

pub(super) fn rows(report: &mut Report, experiment: Experiment<'_>) {
    components(report, experiment.constants);
    loops(report, experiment);
    pings(report, experiment);
}

fn components(report: &mut Report, constants: &Constants) {
    let mut add = |name: &str, published: f64, ours: Nanos| {
        let source = "the published component itself";
        report.rows.push(row(name, Some(published), micros(ours), "us", Measure::Phase, source));
    };
    let of = |times, size| Constants::stage(times).of(size);
    let Constants { dma, kernel, process, .. } = *constants;
    let both = |times, size| of(times, size) + of(dma, size) * 2;
    let npap = constants.tcp().transmit;
    for (size, [stack, interface, kernel_loop, process_loop]) in
        SIZES.into_iter().zip([[0.256, 0.816, 22.5, 27.1], [3.616, 2.320, 28.1, 33.0]])
    {
        add(&format!("npap_tcp_stack {size} B"), stack, npap.of(size));
        add(&format!("fake_ethernet {size} B"), interface, of(dma, size));
        add(&format!("pl_ps_pl_round_trip {size} B"), kernel_loop, both(kernel, size));
        add(&format!("ps_pl_ps_round_trip {size} B"), process_loop, both(process, size));
    }
    for (name, place, [iptables, usb]) in
        [("upstream", Place::Upstream, [10.2, 36.2]), ("downstream", Place::Downstream, [11.0, 23.9])]
    {
        add(&format!("linux_iptables {name}"), iptables, place.routing(constants).of(68));
        add(&format!("linux_usb_stack {name}"), usb, place.usb(constants).of(68));
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

/// Round-trip times of `count` packets of `size` bytes over `there` and `back`. A packet is sent
/// each `interval`, whether or not earlier ones have returned.
fn streamed(mut there: Path, mut back: Path, size: u32, count: u64, interval: Nanos) -> Vec<Nanos> {
    let frame = |id| Frame::new(id, size, Class::BEST_EFFORT, Buffer::EMPTY);
    let sent = |id: u64| Instant::ZERO + interval * id;
    let (mut id, mut times) = (0, Vec::new());
    loop {
        let due = (id < count).then(|| sent(id));
        let Some(now) = [due, there.next(), back.next()].into_iter().flatten().min() else { return times };
        while let Some(frame) = back.poll(now) {
            times.push(now - sent(frame.id));
        }
        while let Some(arrived) = there.poll(now) {
            back.enter(now, frame(arrived.id));
        }
        if due == Some(now) {
            there.enter(now, frame(id));
            id += 1;
        }
    }
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
fn between_processors(middle: Middle, constants: &Constants, [from, to]: [Place; 2], rng: &Rng) -> Path {
    let mut hops = vec![AnyHop::from(Stage::new(from.usb(constants)))];
    hops.extend(middle.hops(constants, rng));
    hops.push(Stage::new(to.usb(constants)).into());
    Path::new(hops)
}

fn loops(report: &mut Report, Experiment { constants, effort, seed }: Experiment<'_>) {
    let process = Constants::stage(constants.process);
    for (name, middle, in_logic, published) in [
        ("pl_to_pl_gbe", Middle::Gigabit, true, [165.7, 196.4]),
        ("pl_to_pl_5g", Middle::Radio, true, [20_254.0, 32_987.0]),
        ("ps_to_ps_gbe", Middle::Gigabit, false, [156.0, 212.6]),
        ("ps_to_ps_5g", Middle::Radio, false, [14_998.0, 22_597.0]),
    ] {
        for (size, published) in SIZES.into_iter().zip(published) {
            let rng = Rng::from_seed(seed).fork(name);
            let path = |places, rng: &Rng| match in_logic {
                true => middle.path(constants, places, rng),
                false => between_processors(middle, constants, places, rng),
            };
            let there = path([Place::Upstream, Place::Downstream], &rng.fork("there"));
            let back = path([Place::Downstream, Place::Upstream], &rng.fork("back"));
            let interval = Nanos::new(u64::from(size) * 8 * 1_000_000_000 / LINE_RATE);
            // The generator in logic holds its rate. A process waits for its packet.
            let round_trips = if in_logic { streamed } else { round_trips };
            let times = round_trips(there, back, size, effort.of(PACKETS), interval);
            // A loop between processors has a process at either end.
            let processes = if in_logic { 0.0 } else { 2.0 * micros(process.of(size)) };
            let ours = mean(&times) / 1e3 + processes;
            let source = "the published components; the radio as for register reads";
            let name = format!("{name} {size} B");
            report.rows.push(row(&name, Some(published), ours, "us", Measure::Total, source));
        }
    }
}

/// Pings from the upstream box's processor through its modem to the core network, one each second.
fn pings(report: &mut Report, Experiment { constants, effort, seed }: Experiment<'_>) {
    let rng = Rng::from_seed(seed).fork("ping");
    let usb = || AnyHop::from(Stage::new(Place::Upstream.usb(constants)));
    let up = Uplink::new(constants.cell, rng.fork("up"));
    let core = Core::new(constants.core, rng.fork("core"));
    let there = Path::new([usb(), up.into(), core.into()]);
    let down = Downlink::new(constants.cell, rng.fork("down"));
    let back = Path::new([down.into(), usb()]);
    // The interval is not a multiple of the slot pattern, so that pings hit all parts of it.
    let times = round_trips(there, back, 98, effort.of(PACKETS), Nanos::new(1_000_370_000));
    let ours = mean(&times) / 1e3 + micros(Constants::stage(constants.process).of(98));
    let own = "the station's time and k2, from this row; the core network as for register reads";
    let others = "requests and grants as standardised; the core network as for register reads";
    for (name, published, source) in [
        ("icmp_ping_to_core", 11_700.0, own),
        ("icmp_ping_to_vm", 11_600.0, others),
        ("tcp_ping_to_vm", 14_100.0, others),
    ] {
        report.rows.push(row(name, Some(published), ours, "us", Measure::Total, source));
    }
}
