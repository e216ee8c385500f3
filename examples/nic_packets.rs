//! Packets between two processes through low-latency network cards, without a system call for each.
//!
//! The first process waits for a packet and sends it back. The second sends one and waits for it.
//! Each has a card of its own; the wire between them is memory that they share.
//!
//! ```text
//! cargo run --example nic_packets -- /tmp/wire wait &
//! cargo run --example nic_packets -- /tmp/wire send
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use engine::Nanos;
use live::drivers::nic::{Place, Station, WireUrl};
use niq::{HostConfig, PACKET_MAX};

/// Ethernet addresses of the two ends, and the EtherType of experiments.
const WAITER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// How long to wait for the other end, and for a packet.
const PATIENCE: Nanos = Nanos::from_secs(10);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, role] = &arguments[..] else { return Err("usage: nic_packets PATH wait|send".into()) };
    let waits = role == "wait";
    let (own, other) = if waits { (WAITER, SENDER) } else { (SENDER, WAITER) };
    let place = Place::Wire(WireUrl::Shm(path.into()));
    let mut station = Station::open(&place, own, HostConfig::default(), Nanos::from_millis(10))?;
    let deadline = station.clock().now() + PATIENCE;
    while !station.is_up()? {
        if station.clock().now() > deadline {
            return Err("no card appeared at the other end".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = vec![0; PACKET_MAX];
    let packet = [&other[..], &own, &ETHER_TYPE, b"hello"].concat();
    let start = station.clock().now();
    if !waits {
        station.send(&packet)?;
    }
    let received = station.wait(&mut bytes, start + PATIENCE, || false)?.ok_or("no packet came")?;
    let text = String::from_utf8_lossy(&bytes[14..received.length]).into_owned();
    if waits {
        station.send(&packet)?;
        // The card belongs to this process, so it stays until the other end has taken the packet.
        std::thread::sleep(Duration::from_millis(100));
        println!("{text} came and went back");
    } else {
        println!("{text} came back after {}", station.clock().now() - start);
    }
    Ok(())
}
