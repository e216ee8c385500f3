//! Measures what a session costs for each TLP: one at a time, as in a ping-pong, and many in a
//! segment. Results are medians, less the cost of reading the clock.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use engine::{Buffer, Engine, Instant, Pool, Rng};
use farlane_tunnel::session::{Config, Input, Output, Session};
use pcie::wire::{Bdf, Packet, Tag};

const ROUNDS: u32 = 200_000;

fn joined(stamps: bool) -> [Session; 2] {
    let config = Config { stamps, ..Config::default() };
    let mut up = Session::upstream(config.clone(), Rng::from_seed(1));
    let mut down = Session::downstream(config, Rng::from_seed(2));
    up.handle_timeout(Instant::ZERO);
    for session in [&mut up, &mut down] {
        while session.poll_output().is_some() {}
        session.handle_input(Instant::ZERO, Input::Connected);
    }
    for _ in 0..4 {
        pass(&mut up, &mut down);
        pass(&mut down, &mut up);
    }
    [up, down]
}

fn pass(from: &mut Session, to: &mut Session) {
    while let Some(output) = from.poll_output() {
        if let Output::Transmit(bytes) = output {
            to.handle_input(Instant::ZERO, Input::Received(bytes));
        }
    }
}

/// Sends `batch` packets one way and lets one come back. Returns the time at the sender and at the
/// receiver.
fn round(
    now: Instant,
    [one, other]: [&mut Session; 2],
    packet: &Packet,
    batch: u32,
    pool: &mut Pool,
) -> [Duration; 2] {
    let start = Clock::now();
    for _ in 0..batch {
        one.send(now, packet.clone());
    }
    let mut segment = None;
    while let Some(output) = one.poll_output() {
        if let Output::Transmit(bytes) = output {
            segment = Some(bytes);
        }
    }
    let sent = start.elapsed();
    // As in a world, arriving bytes are in a block of the receiver.
    let arrived: Buffer = pool.copy(&segment.unwrap());
    let start = Clock::now();
    other.handle_input(now, Input::Received(arrived));
    while let Some(output) = other.poll_output() {
        black_box(output);
    }
    [sent, start.elapsed()]
}

fn measure(name: &str, packet: &Packet, batch: u32, stamps: bool) {
    let [mut up, mut down] = joined(stamps);
    let mut pool = Pool::default();
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..ROUNDS / batch {
        let now = Instant::from_nanos(u64::from(number) * 1_000);
        let round_times = round(now, [&mut up, &mut down], packet, batch, &mut pool);
        round(now, [&mut down, &mut up], packet, 1, &mut pool);
        times.iter_mut().zip(round_times).for_each(|(times, time)| times.push(time));
    }
    let [send, receive] = times.map(|times| median(times).saturating_sub(clock_cost()).as_nanos());
    let (send, receive) = (send / u128::from(batch), receive / u128::from(batch));
    println!("{name:<26} send {send:>4} ns   receive {receive:>4} ns");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The measured time when nothing is done.
fn clock_cost() -> Duration {
    median((0..10_001).map(|_| Clock::now().elapsed()).collect())
}

fn main() {
    let requester = Bdf::new(1, 0, 0);
    let read = Packet::memory_read(requester, Tag::new(5), 0x1000, 4);
    let doorbell = Packet::memory_write(requester, 0x1000, Buffer::copy_from_slice(&[1; 4]));
    let page = Packet::memory_write(requester, 0x1000, Buffer::zeroed(4096));
    measure("read, alone", &read, 1, false);
    measure("4 B write, alone", &doorbell, 1, false);
    measure("4 B write, alone, stamped", &doorbell, 1, true);
    measure("read, 32 a segment", &read, 32, false);
    measure("4 B write, 32 a segment", &doorbell, 32, false);
    measure("4 KiB write, 8 a segment", &page, 8, false);
}
