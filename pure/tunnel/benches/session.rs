//! What a session costs for each TLP: one at a time, as in a ping-pong, and 32 in a segment.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use engine::{Buffer, Engine, Instant, Pool, Rng};
use pcie::wire::{Bdf, Packet, Tag};
use tunnel::session::{Config, Input, Output, Session};

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

/// Sends `batch` packets one way and lets one come back. Returns the time at the sender and at the receiver.
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
    // As a world does: what arrives is in a block of the receiver's.
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
    let (mut send, mut receive) = (Duration::ZERO, Duration::ZERO);
    for number in 0..ROUNDS / batch {
        let now = Instant::from_nanos(u64::from(number) * 1_000);
        let [sent, received] = round(now, [&mut up, &mut down], packet, batch, &mut pool);
        round(now, [&mut down, &mut up], packet, 1, &mut pool);
        send += sent;
        receive += received;
    }
    let count = ROUNDS / batch * batch;
    println!("{name:<34} send {:>4} ns   receive {:>4} ns", each(send, count), each(receive, count));
}

fn each(total: Duration, count: u32) -> u128 {
    total.as_nanos() / u128::from(count)
}

fn main() {
    let requester = Bdf::new(1, 0, 0);
    let read = Packet::memory_read(requester, Tag::new(5), 0x1000, 4);
    let doorbell = Packet::memory_write(requester, 0x1000, Buffer::copy_from_slice(&[1; 4]));
    let page = Packet::memory_write(requester, 0x1000, Buffer::zeroed(4096));
    measure("read, alone (clock reads included)", &read, 1, false);
    measure("4 B write, alone", &doorbell, 1, false);
    measure("4 B write, alone, stamped", &doorbell, 1, true);
    measure("read, 32 a segment", &read, 32, false);
    measure("4 B write, 32 a segment", &doorbell, 32, false);
    measure("4 KiB write, 8 a segment", &page, 8, false);
}
