//! The worked example of the protocol's page, byte for byte, with either end as a circuit.

use engine::{Buffer, Engine, Entropy, Instant, Nanos, Rng};
use pcie::wire::{Bdf, Packet, Tag};
use tunnel::frame::{Identity, InstanceId, Role};
use tunnel::session::{Config, Input, Output};

use super::super::*;

const DOCUMENT: &str = include_str!("../../../../../pure/tunnel/protocol.md");

/// The bytes of each fenced block marked `hex`: the part of each line to the left of the `|`.
fn examples() -> Vec<Vec<u8>> {
    let blocks = DOCUMENT.split("```hex\n").skip(1).map(|block| block.split("```").next().unwrap());
    let bytes = |line: &'static str| {
        let bytes = line.split('|').next().unwrap().split_whitespace();
        bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap())
    };
    blocks.map(|block| block.lines().flat_map(bytes).collect()).collect()
}

fn config(name: &str, instance: u8, stamps: bool) -> Config {
    let identity =
        Identity { instance: InstanceId([instance; 16]), name: name.into(), ..Identity::default() };
    Config { identity, stamps, digests: !stamps, ahead: 0, ..Config::default() }
}

const fn at(microseconds: u64) -> Instant {
    Instant::from_nanos(microseconds * 1_000)
}

/// Everything that `port` transmits now.
fn said(port: &mut Port) -> Vec<u8> {
    let outputs = std::iter::from_fn(|| port.poll_output());
    let said = outputs.filter_map(|output| match output {
        Output::Transmit(bytes) => Some(bytes.to_vec()),
        _ => None,
    });
    said.flatten().collect()
}

fn hear(port: &mut Port, now: Instant, bytes: &[u8]) {
    port.handle_input(now, Input::Received(Buffer::copy_from_slice(bytes)));
}

#[test]
fn the_host_of_the_worked_example_is_this_circuit() {
    let examples = examples();
    let config = config("host", 0x11, false);
    let mut host = Port::with_window(
        Role::Upstream,
        &config,
        Rng::from_seed(1),
        Pace::none(),
        window_of(&Config::default()),
    );
    host.handle_timeout(at(0));
    assert_eq!(host.poll_output(), Some(Output::Connect));
    host.handle_input(at(0), Input::Connected);
    assert_eq!(said(&mut host), examples[0], "the Hello");
    hear(&mut host, at(100), &examples[1]);
    assert!(host.is_up(), "{}", host.describe());
    assert_eq!(said(&mut host), examples[2], "the Ping");
    hear(&mut host, at(200), &examples[3]);
    assert_eq!(host.round_trip(), Nanos::from_micros(100));
    host.send(at(300), &Packet::memory_read(Bdf::new(0, 0, 0), Tag::new(7), 0xfebf_0000, 4));
    assert_eq!(said(&mut host), examples[4], "the read");
    hear(&mut host, at(410), &examples[5]);
    let Some(Output::Tlp { packet, .. }) = host.poll_output() else { panic!("no completion") };
    assert_eq!(*packet.payload, [0xde, 0xad, 0xbe, 0xef]);
    let wake = host.poll_timeout().unwrap();
    assert_eq!(wake, at(410) + Nanos::from_millis(5));
    host.handle_timeout(wake);
    assert_eq!(said(&mut host), examples[6], "the Credit");
    host.close(at(9_000));
    assert_eq!(said(&mut host), examples[7], "the Close");
    assert!(!host.is_up());
}

/// Splits a stream into its frames, those behind the handshake with digests if `digests`.
fn frames(mut bytes: &[u8], digests: bool) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let [kind, _, high, low, ..] = bytes {
        let trailer = if digests && *kind > 3 { 4 } else { 0 };
        let length = 12 + usize::from(u16::from_be_bytes([*high, *low])) + trailer;
        frames.push(&bytes[..length]);
        bytes = &bytes[length..];
    }
    frames
}

/// The device of the example has its session's name and secret from a source of its own: so the
/// circuit gets them as its entropy.
fn entropy_of(welcome: &[u8]) -> [u8; 24] {
    let mut entropy = [0; 24];
    entropy[..8].copy_from_slice(&welcome[28..36]);
    entropy[8..].copy_from_slice(&welcome[120..136]);
    // The circuit has the first byte in its most significant bits.
    entropy[..8].reverse();
    entropy[8..].reverse();
    entropy
}

#[test]
fn the_device_of_the_worked_example_is_this_circuit() {
    static WELCOME: std::sync::OnceLock<[u8; 24]> = std::sync::OnceLock::new();
    let examples = examples();
    WELCOME.set(entropy_of(&examples[1])).unwrap();
    let entropy = Entropy::System(|bytes| {
        let source = WELCOME.get().unwrap();
        bytes.iter_mut().zip(source).for_each(|(byte, source)| *byte = *source);
    });
    let mut device = Port::with_window(
        Role::Downstream,
        &config("ssd", 0x22, true),
        entropy,
        Pace::none(),
        window_of(&Config::default()),
    );
    device.handle_timeout(at(0));
    assert_eq!(device.poll_output(), None);
    device.handle_input(at(0), Input::Connected);
    hear(&mut device, at(0), &examples[0]);
    let bytes = said(&mut device);
    // Its own first Ping follows, which the example leaves out.
    assert_eq!(frames(&bytes, true)[0], examples[1], "the Welcome");
    hear(&mut device, at(150), &examples[2]);
    assert_eq!(said(&mut device), examples[3], "the Pong");
    hear(&mut device, at(350), &examples[4]);
    let Some(Output::Tlp { packet: read, .. }) = device.poll_output() else { panic!("no read") };
    assert_eq!(read.tag(), Tag::new(7));
    let data = Buffer::copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
    device.send(at(360), &Packet::completion_with_data(Bdf::new(3, 0, 0), &read.header, 0, data));
    assert_eq!(said(&mut device), examples[5], "the completion");
    hear(&mut device, at(5_410), &examples[6]);
    hear(&mut device, at(9_000), &examples[7]);
    let mut outputs = std::iter::from_fn(|| device.poll_output());
    assert!(outputs.any(|output| output == Output::CloseConnection));
    assert!(!device.is_up());
}
