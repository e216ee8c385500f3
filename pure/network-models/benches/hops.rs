//! Frames per second that pass the models on one core: `cargo bench -p farlane-network-models`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

use std::time::{Duration, Instant as Stopwatch};

use engine::{Buffer, Instant, Nanos, Rng};
use farlane_network_models::ethernet::medium::PortLatency;
use farlane_network_models::ethernet::{Port, PortSettings};
use farlane_network_models::faults::{Behaviour, Faults};
use farlane_network_models::tsn::gates::{GateEntry, GateSchedule, GateStates};
use farlane_network_models::tsn::preemption::Preemption;
use farlane_network_models::tsn::traffic::{Pattern, Source};
use farlane_network_models::{AnyHop, Chance, Class, Frame, Hop, Path, Rate, Wire};

const RUN: Duration = Duration::from_millis(500);

/// Sends a frame every microsecond and takes out what arrives; prints frames per second.
fn measure(name: &str, mut path: Path) {
    let payload = Buffer::copy_from_slice(&[0; 64]);
    let start = Stopwatch::now();
    let (mut sent, mut arrived) = (0_u64, 0_u64);
    while sent % 1_024 != 0 || start.elapsed() < RUN {
        let now = Instant::from_nanos(sent * 1_000);
        while let Some(at) = path.next().filter(|at| *at <= now) {
            arrived += u64::from(path.poll(at).is_some());
        }
        path.enter(now, Frame::new(sent, 96, Class::HIGHEST, payload.clone()));
        sent += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = sent as f64 / seconds / 1e6;
    println!("{name:<40} {rate:>7.2} million frames/s ({arrived} of {sent} arrived)");
}

fn main() {
    let rng = Rng::from_seed(1);
    let rate = Rate::from_gigabits(1);
    let settings = || PortSettings { latency: PortLatency::FPGA_1G, ..PortSettings::new(rate) };
    let port = |settings: PortSettings| AnyHop::from(Port::new(settings, &rng));
    let entry =
        |bits, micros| GateEntry { states: GateStates::from_bits(bits), length: Nanos::from_micros(micros) };
    let gates = GateSchedule::new(Instant::ZERO, [entry(0x80, 50), entry(0xff, 50)]).unwrap();
    let express = Preemption { express: GateStates::of([7]), additional: 0 };
    let others = Source {
        class: Class::BEST_EFFORT,
        length: 1518,
        pattern: Pattern::Random { mean: Nanos::from_micros(50) },
    };
    let behaviour = Behaviour { loss: Chance::percent(1), ..Behaviour::default() };

    measure("latency and a rate", Path::new([Wire::new(Nanos::from_micros(10), Some(rate)).into()]));
    measure("a port", Path::new([port(settings())]));
    measure(
        "three ports and 1 % of loss",
        Path::new([
            port(settings()),
            port(settings()),
            port(settings()),
            Faults::new(behaviour, rng.fork("faults")).into(),
        ]),
    );
    let busy = PortSettings {
        gates: Some(gates),
        preemption: Some(express),
        background: vec![others],
        ..settings()
    };
    measure("a port with gates, preemption and others", Path::new([port(busy)]));
}
