//! Cycles through the circuit, which its document shows.

use engine::{Buffer, Engine, Instant, Rng};
use pcie::wire::{Bdf, Packet};
use tunnel::frame::Role;
use tunnel::session::{Config, Input, Output};

use super::super::{Pace, Port};

/// Hands both ends each other's bytes until they are quiet.
fn exchange(ends: &mut [Port; 2]) {
    let mut quiet = 0;
    while quiet < 2 {
        quiet += 1;
        for from in [0, 1] {
            while let Some(output) = ends[from].poll_output() {
                quiet = 0;
                match output {
                    Output::Connect => {
                        ends[1].handle_input(Instant::ZERO, Input::Connected);
                        ends[0].handle_input(Instant::ZERO, Input::Connected);
                    }
                    Output::Transmit(bytes) => {
                        ends[1 - from].handle_input(Instant::ZERO, Input::Received(bytes))
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Cycles until `seen` of the outputs, beginning with the cycle in which the input is taken.
fn cycles_until(port: &mut Port, seen: impl Fn(&Port) -> bool) -> u64 {
    let began = port.pins.cycles();
    while !seen(port) {
        port.pins.cycle(true);
        assert!(port.pins.cycles() - began < 1_000, "{}", port.describe());
    }
    port.pins.cycles() - began - 1
}

#[test]
fn cycles_are_those_of_the_document() {
    let mut ends = [Role::Upstream, Role::Downstream].map(|role| {
        let config = Config { digests: true, ..Config::default() };
        Port::new(role, &config, Rng::from_seed(role as u64), Pace::none())
    });
    ends[0].handle_timeout(Instant::ZERO);
    ends[1].handle_timeout(Instant::ZERO);
    exchange(&mut ends);
    let document = include_str!("../../../../../gateware/rtl/tunnel/README.md");
    let mut wrong = false;
    for length in [4, 64, 256] {
        let write = Packet::memory_write(Bdf::new(0, 0, 0), 0x1000, Buffer::zeroed(length));
        let [host, device] = &mut ends;
        host.pins.push_tlp(&write);
        let out = cycles_until(host, |port| port.pins.outputs().m_net_tvalid);
        host.handle_timeout(Instant::ZERO);
        while let Some(output) = host.poll_output() {
            if let Output::Transmit(bytes) = output {
                device.pins.push_bytes(&bytes);
            }
        }
        let back = cycles_until(device, |port| port.pins.outputs().m_tlp_tvalid);
        device.handle_timeout(Instant::ZERO);
        let row = format!("| a write of {length} B | {out} | {back} |");
        println!("{row}");
        wrong |= !document.contains(&row);
    }
    assert!(!wrong, "rows above are not in gateware/rtl/tunnel/README.md");
}
