//! `farlane measure nic send` and `farlane measure nic receive`: packets one by one.

use engine::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use super::measure::BY_DMA;
use super::{Bench, HEADER, packet};
use crate::args::{NicReceiveArgs, NicSendArgs};
use crate::commands::{print, print_json};
use crate::error::Error;
use indicatif::ProgressBar;
use niq::{INLINE_MAX, PACKET_MAX};

/// How long `receive` waits at a time.
const WAIT: Nanos = Nanos::from_secs(1);
/// How long `send` stays, so that a card of its own sends its queued packets.
const LINGER: Nanos = Nanos::from_millis(50);
/// The number of packets after which `send` checks whether the wire's other end is still there.
const PACKETS_A_LOOK: u64 = 1024;
/// Offset of the flags in a packet.
const FLAGS: usize = HEADER + 4;

/// The packets that were sent or received.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct Counted {
    packets: u64,
    bytes: u64,
}

pub(super) fn send(args: &NicSendArgs) -> Result<(), Error> {
    let mut bench = Bench::open(&args.card)?;
    bench.check_sizes("--size", &[args.size])?;
    bench.meet()?;
    let mut counted = Counted::default();
    let result = send_all(&mut bench, args, &mut counted);
    // The packets sent until a signal came are worth a report.
    if !matches!(result, Ok(()) | Err(Error::Interrupted)) {
        return result;
    }
    if args.output.json {
        print_json(&counted)?;
    } else {
        print(&format!("sent {} packets of {} B\n", counted.packets, args.size))?;
    }
    result
}

fn send_all(bench: &mut Bench, args: &NicSendArgs, counted: &mut Counted) -> Result<(), Error> {
    let bar = ProgressBar::new(args.count);
    let source = bench.station.address();
    let mut bytes = vec![0; PACKET_MAX];
    for number in 0..args.count {
        if number % PACKETS_A_LOOK == 0 {
            bar.set_position(number);
            // A card without a link drops its packets, so it always has room.
            bench.meet()?;
        }
        if bench.stop.is_asked_for() {
            return Err(Error::Interrupted);
        }
        // The number wraps around in packets, as it has 4 bytes there.
        let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
        let sent = packet(source, args.size, low, 0);
        let (is_last, mut since) = (number + 1 == args.count, None);
        while !bench.try_send(&sent, is_last, &mut since)? {
            drop_one(bench, &mut bytes)?;
            std::thread::yield_now();
        }
        drop_one(bench, &mut bytes)?;
        counted.packets += 1;
        counted.bytes += args.size as u64;
    }
    bar.finish_and_clear();
    leave(bench, &mut bytes)?;
    let start = bench.station.clock().now();
    while bench.station.clock().now() - start < LINGER {
        drop_one(bench, &mut bytes)?;
        std::thread::yield_now();
    }
    Ok(())
}

/// Waits until all packets are on the wire: those in a card of this process are lost with it, and a
/// card of another process forgets those of a host that goes.
fn leave(bench: &mut Bench, bytes: &mut [u8]) -> Result<(), Error> {
    let (mut since, mut taken) = (None, 0);
    loop {
        let has_left = bench.station.has_left();
        if bench.check(has_left)? {
            return Ok(());
        }
        // An end that is slow is not given up while it still takes packets.
        if bench.station.taken() > taken {
            (since, taken) = (None, bench.station.taken());
        }
        bench.have_patience(&mut since)?;
        drop_one(bench, bytes)?;
        std::thread::yield_now();
    }
}

/// Takes a packet that has come, if any, and forgets it: an end that sends everything back takes
/// nothing more while its packets are not taken.
fn drop_one(bench: &mut Bench, bytes: &mut [u8]) -> Result<(), Error> {
    let polled = bench.station.poll(bytes);
    bench.check(polled).map(|_| ())
}

pub(super) fn receive(args: &NicReceiveArgs) -> Result<(), Error> {
    let mut bench = Bench::open(&args.card)?;
    let mut counted = Counted::default();
    let outcome = follow(&mut bench, args, &mut counted);
    // Being interrupted is how a receiver without a count ends.
    let result = match outcome {
        Err(Error::Interrupted) if args.count.is_none() => Ok(()),
        outcome => outcome,
    };
    if args.output.json {
        print_json(&counted)?;
    } else {
        print(&format!("received {} packets, {} B\n", counted.packets, counted.bytes))?;
    }
    result
}

fn follow(bench: &mut Bench, args: &NicReceiveArgs, counted: &mut Counted) -> Result<(), Error> {
    let mut bytes = vec![0; PACKET_MAX];
    let source = bench.station.address();
    if !args.output.json {
        info!("waiting for packets on {}", bench.place);
    }
    while args.count.is_none_or(|count| counted.packets < count) {
        let deadline = bench.station.clock().now() + WAIT;
        let Some(received) = bench.wait(&mut bytes, deadline)? else { continue };
        counted.packets += 1;
        counted.bytes += received.length as u64;
        if args.echo {
            let echo = &mut bytes[..received.length];
            echo.copy_within(6..12, 0);
            echo[6..12].copy_from_slice(&source);
            let by_dma = echo.get(FLAGS).is_some_and(|flags| flags & BY_DMA != 0);
            bench.station.set_inline_max(if by_dma { 0 } else { INLINE_MAX });
            bench.send(&bytes[..received.length])?;
        }
    }
    Ok(())
}
