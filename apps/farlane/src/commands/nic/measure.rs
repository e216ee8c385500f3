//! `farlane measure nic ping` and `farlane measure nic bench`: latency and rate by the size of
//! packets.

use std::path::PathBuf;
use std::time::Duration;

use distribution::Distribution;
use engine::{Instant, Nanos};
use indicatif::ProgressBar;
use live::drivers::nic::floor;
use niq::{INLINE_MAX, PACKET_MAX};
use schemars::JsonSchema;
use serde::Serialize;
use tracing::warn;

use super::latency::{Floor, Latency};
use super::{Bench, crossover, packet};
use crate::args::{NicMeasureArgs, NicPingArgs};
use crate::commands::{print, print_json};
use crate::drawing::Form;
use crate::error::Error;

/// Flag in a packet: send it back by DMA, at any length.
pub(super) const BY_DMA: u8 = 1;
/// Packets that warm up before the measured packets.
const WARM_UP: u32 = 200;
/// Most round trips of the floors, which take as long as the measured round trips.
const FLOOR_MAX: u32 = 10_000;
/// Bytes of the datagrams of the kernel's own floor.
const FLOOR_BYTES: usize = 60;
/// Packets under way of `bench`: fewer than a card has slots, lines or buffers.
const WINDOW: u32 = 32;
/// A packet that does not come back within this time is lost.
const LOST: Nanos = Nanos::from_secs(1);

/// The latency of packets by their size, inline and by DMA, beside the floor of the same run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Pings {
    card: String,
    floor: Floor,
    sizes: Vec<Latency>,
    /// Whether the user ended the measurement before its end.
    interrupted: bool,
}

/// The rate of packets of one size.
#[derive(Serialize, JsonSchema)]
struct Rate {
    /// Bytes of a packet.
    size: usize,
    /// How the packets left their hosts: `inline` or `dma`.
    path: &'static str,
    packets: u64,
    elapsed_s: f64,
    packets_s: f64,
    mib_s: f64,
}

/// How many packets pass in a second, by their size, inline and by DMA.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Rates {
    card: String,
    /// The most packets under way.
    window: u32,
    sizes: Vec<Rate>,
    /// Whether the user ended the measurement before its end.
    interrupted: bool,
}

/// The sizes with the ways in which each travels.
fn cases(sizes: &[usize]) -> impl Iterator<Item = (usize, bool)> {
    sizes.iter().flat_map(|size| {
        let is_small = *size <= INLINE_MAX;
        is_small.then_some((*size, false)).into_iter().chain([(*size, true)])
    })
}

const fn name(by_dma: bool) -> &'static str {
    if by_dma { "dma" } else { "inline" }
}

fn halved(round_trips: &[Nanos]) -> Distribution {
    round_trips.iter().map(|length| *length / 2).collect()
}

fn measure_floor(count: u32, interval: Duration) -> Result<Floor, Error> {
    let failed = |error| Error::Child { what: "the measurement of the floor", error };
    let count = count.min(FLOOR_MAX);
    let crossings = floor::crossings(count).map_err(failed)?;
    let kernel = floor::kernel_udp(FLOOR_BYTES, count).map_err(failed)?;
    let wakes = (!interval.is_zero()).then(|| floor::wakes(count, interval)).transpose().map_err(failed)?;
    Ok(Floor {
        crossing_ns: halved(&crossings),
        round_trip_ns: crossings.into_iter().collect(),
        kernel_udp_one_way_ns: halved(&kernel),
        wake_ns: wakes.map(|wakes| wakes.into_iter().collect()),
    })
}

pub(super) fn ping(args: &NicPingArgs) -> Result<(), Error> {
    let NicPingArgs { measure: args, interval, draw: draw_to } = args;
    // A name that no picture has is found out before the work.
    draw_to.as_deref().map(Form::of).transpose()?;
    // No thread polls yet, and this process may still use every processor.
    let floor = measure_floor(args.count, *interval)?;
    let mut bench = Bench::open(&args.card)?;
    bench.check_sizes("--sizes", &args.sizes)?;
    bench.meet()?;
    let cases: Vec<_> = cases(&args.sizes).collect();
    let bar = ProgressBar::new(cases.len() as u64 * u64::from(args.count));
    let mut pings = Pings { card: bench.place.clone(), floor, sizes: Vec::new(), interrupted: false };
    let mut result = Ok(());
    for (size, by_dma) in cases {
        match round_trips(&mut bench, (size, by_dma), (args.count, *interval), &bar) {
            Ok(latency) => pings.sizes.push(latency),
            // The results until now are worth a report.
            Err(error) if !pings.sizes.is_empty() => {
                pings.interrupted = matches!(error, Error::Interrupted);
                result = Err(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    bar.finish_and_clear();
    let draw = |path: &PathBuf| crossover::drawing(&pings.sizes, &pings.floor).write(path);
    let drawn = draw_to.as_ref().map_or(Ok(()), draw);
    if args.output.json {
        print_json(&pings)?;
    } else {
        print(&crossover::text(&pings.card, &pings.sizes, &pings.floor))?;
    }
    match (result, drawn) {
        // The measurement's is the error that the command ends with.
        (Err(error), Err(not_drawn)) => {
            warn!("there is no picture: {not_drawn}");
            Err(error)
        }
        (result, drawn) => result.and(drawn),
    }
}

fn round_trips(
    bench: &mut Bench,
    (size, by_dma): (usize, bool),
    (count, interval): (u32, Duration),
    bar: &ProgressBar,
) -> Result<Latency, Error> {
    bench.station.set_inline_max(if by_dma { 0 } else { INLINE_MAX });
    let (source, flags) = (bench.station.address(), u8::from(by_dma) * BY_DMA);
    let mut bytes = vec![0; PACKET_MAX];
    let (mut round_trips, mut lost) = (Vec::with_capacity(count.min(1 << 20) as usize), 0);
    // How long nothing has come back.
    let mut silence = Nanos::ZERO;
    let clock = bench.station.clock();
    for number in 0..WARM_UP + count {
        let sent = packet(source, size, number, flags);
        if !interval.is_zero() {
            std::thread::sleep(interval);
        }
        let start = clock.now();
        bench.send(&sent)?;
        let came = comes_back(bench, &mut bytes, &sent, start + LOST)?;
        let length = clock.now() - start;
        silence = if came { Nanos::ZERO } else { silence + LOST };
        if !came {
            if number == 0 || silence > bench.patience {
                return Err(
                    bench.failed("no packet came back; does farlane measure nic receive --echo run there?")
                );
            }
            lost += u64::from(number >= WARM_UP);
        } else if number >= WARM_UP {
            round_trips.push(length);
        }
        if number % 1_024 == 0 {
            bar.inc(1_024);
        }
    }
    let one_way_ns = halved(&round_trips);
    let round_trip_ns = round_trips.into_iter().collect();
    Ok(Latency { size, path: name(by_dma), one_way_ns, round_trip_ns, lost })
}

/// Waits for the packet `sent`; returns whether it comes back by `deadline`.
fn comes_back(bench: &mut Bench, bytes: &mut [u8], sent: &[u8], deadline: Instant) -> Result<bool, Error> {
    while let Some(received) = bench.wait(bytes, deadline)? {
        // A packet that was given up may come late.
        if is_answer(&bytes[..received.length], sent) {
            return Ok(true);
        }
        // Where packets come all the time, the wait itself never sees that its time is over.
        if bench.station.clock().now() >= deadline {
            break;
        }
    }
    Ok(false)
}

/// Whether `bytes` are the packet `sent`, but for its addresses, and for zeros behind it: an
/// adapter for Ethernet makes short frames longer.
fn is_answer(bytes: &[u8], sent: &[u8]) -> bool {
    let padding = |padding: &[u8]| padding.iter().all(|byte| *byte == 0);
    bytes
        .split_at_checked(sent.len())
        .is_some_and(|(packet, rest)| packet[12..] == sent[12..] && padding(rest))
}

pub(super) fn bench(args: &NicMeasureArgs) -> Result<(), Error> {
    let mut bench = Bench::open(&args.card)?;
    bench.check_sizes("--sizes", &args.sizes)?;
    bench.meet()?;
    let mut rates =
        Rates { card: bench.place.clone(), window: WINDOW, sizes: Vec::new(), interrupted: false };
    let cases: Vec<_> = cases(&args.sizes).collect();
    let bar = ProgressBar::new(cases.len() as u64);
    let mut result = Ok(());
    for (size, by_dma) in cases {
        let rate = match packets(&mut bench, (size, by_dma), args.count) {
            Ok(rate) => rate,
            // The results until now are worth a report.
            Err(error) if !rates.sizes.is_empty() => {
                rates.interrupted = matches!(error, Error::Interrupted);
                result = Err(error);
                break;
            }
            Err(error) => return Err(error),
        };
        bar.inc(1);
        if !args.output.json {
            if rates.sizes.is_empty() {
                print("   bytes  path       packets/s      MiB/s\n")?;
            }
            print(&format!("{size:>8}  {:<6} {:>12.0} {:>10.1}\n", rate.path, rate.packets_s, rate.mib_s))?;
        }
        rates.sizes.push(rate);
    }
    bar.finish_and_clear();
    if args.output.json {
        print_json(&rates)?;
    }
    result
}

/// Sends `count` packets and takes them back, some under way at a time.
fn packets(bench: &mut Bench, (size, by_dma): (usize, bool), count: u32) -> Result<Rate, Error> {
    bench.station.set_inline_max(if by_dma { 0 } else { INLINE_MAX });
    let flags = u8::from(by_dma) * BY_DMA;
    let sent = packet(bench.station.address(), size, 0, flags);
    let mut bytes = vec![0; PACKET_MAX];
    let start = bench.station.clock().now();
    let (mut out, mut back) = (0, 0);
    while back < count {
        while out < count && out - back < WINDOW {
            bench.send(&sent)?;
            out += 1;
        }
        let deadline = bench.station.clock().now() + bench.patience;
        if !comes_back(bench, &mut bytes, &sent, deadline)? {
            return Err(bench.failed(format!(
                "{back} of {out} packets came back; does farlane measure nic receive --echo run there?"
            )));
        }
        back += 1;
    }
    let elapsed_s = Duration::from(bench.station.clock().now() - start).as_secs_f64().max(1e-9);
    let packets_s = f64::from(count) / elapsed_s;
    let bytes = u32::try_from(size).map_or(0.0, f64::from);
    let mib_s = packets_s * bytes / f64::from(1 << 20);
    Ok(Rate { size, path: name(by_dma), packets: count.into(), elapsed_s, packets_s, mib_s })
}
