//! The worked example of `protocol.md`, checked against the bytes that the sessions
//! send.

use std::string::String;
use std::vec::Vec;

use engine::{Buffer, Instant, Nanos, Rng};
use pcie::wire::{Bdf, Packet, Tag};

use crate::frame::{Identity, InstanceId};
use crate::session::{Config, Input, Output, Session};
use engine::Engine;

const DOCUMENT: &str = include_str!("../protocol.md");

/// The bytes of each fenced block marked `hex`: the part of each line to the left of the `|`.
fn examples() -> Vec<Vec<u8>> {
    let mut examples = Vec::new();
    let mut inside = false;
    for line in DOCUMENT.lines() {
        match line {
            "```hex" => {
                inside = true;
                examples.push(Vec::new());
            }
            "```" => inside = false,
            _ if inside => {
                let bytes = line.split('|').next().unwrap().split_whitespace();
                let bytes = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap());
                examples.last_mut().unwrap().extend(bytes);
            }
            _ => (),
        }
    }
    examples
}

/// Settings of either end. The device's end wants stamps, the host's end wants digests.
fn config(name: &str, instance: u8, stamps: bool) -> Config {
    let identity = Identity {
        instance: InstanceId([instance; 16]),
        name: name.into(),
        vendor: String::new(),
        device: String::new(),
    };
    Config { identity, stamps, digests: !stamps, ahead: 0, ..Config::default() }
}

const fn at(microseconds: u64) -> Instant {
    Instant::from_nanos(microseconds * 1_000)
}

/// Everything that `session` transmits now.
fn said(session: &mut Session) -> Buffer {
    let outputs = core::iter::from_fn(|| session.poll_output());
    let said = outputs.filter_map(|output| match output {
        Output::Transmit(bytes) => Some(bytes),
        _ => None,
    });
    Buffer::from(said.flat_map(|bytes| bytes.to_vec()).collect::<Vec<_>>())
}

fn hear(session: &mut Session, now: Instant, bytes: &Buffer) {
    session.handle_input(now, Input::Received(bytes.clone()));
}

/// The segments of the document's conversation, in order.
fn conversation() -> Vec<Vec<u8>> {
    let mut host = Session::upstream(config("host", 0x11, false), Rng::from_seed(1));
    let mut device = Session::downstream(config("ssd", 0x22, true), Rng::from_seed(2));
    let mut segments = Vec::new();
    host.handle_timeout(at(0));
    said(&mut host);
    host.handle_input(at(0), Input::Connected);
    device.handle_input(at(0), Input::Connected);
    let hello = said(&mut host);
    hear(&mut device, at(0), &hello);
    let welcome = said(&mut device);
    hear(&mut host, at(0), &welcome);
    segments.extend([hello, welcome]);

    host.handle_timeout(at(100));
    let ping = said(&mut host);
    hear(&mut device, at(150), &ping);
    let pong = said(&mut device);
    hear(&mut host, at(200), &pong);
    segments.extend([ping, pong]);

    let read = Packet::memory_read(Bdf::new(0, 0, 0), Tag::new(7), 0xfebf_0000, 4);
    host.send(at(300), read.clone());
    let request = said(&mut host);
    hear(&mut device, at(350), &request);
    let data = Buffer::copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
    said(&mut device);
    device.send(at(360), Packet::completion_with_data(Bdf::new(3, 0, 0), &read.header, 0, data));
    let completion = said(&mut device);
    hear(&mut host, at(410), &completion);
    said(&mut host);
    host.handle_timeout(at(410) + Nanos::from_millis(5));
    let mut credit = said(&mut host);
    // A Ping was due as well, but the document shows the Credit alone.
    credit = credit.slice(0..40);
    segments.extend([request, completion, credit]);
    host.close(at(9_000), "bye");
    segments.push(said(&mut host));
    segments.into_iter().map(|segment| segment.to_vec()).collect()
}

/// The first bytes of a path in either direction.
fn path() -> [Vec<u8>; 2] {
    use crate::paths::{GroupId, Input, Output, PathIndex, Paths, Token};
    let (group, path) = (GroupId([0x33; 16]), PathIndex(1));
    let said = |paths: &mut Paths| {
        let outputs = core::iter::from_fn(|| paths.poll_output());
        let said = outputs.filter_map(|output| match output {
            Output::Transmit(_, bytes) => Some(bytes),
            _ => None,
        });
        Buffer::from(said.flat_map(|bytes| bytes.to_vec()).collect::<Vec<_>>())
    };
    let (mut host, mut device) =
        (Paths::dialling(group), Paths::accepting(group, Token(0x4444_4444_4444_4444)));
    host.handle_input(at(0), Input::Joined(path));
    host.send(at(0), Buffer::copy_from_slice(b"hello"));
    let first = said(&mut host);
    device.handle_input(at(10), Input::Joined(path));
    let records = first.slice(crate::paths::PREAMBLE_LENGTH..first.len());
    device.handle_input(at(10), Input::Received(path, records));
    device.send(at(10), Buffer::copy_from_slice(b"welcome"));
    [first.to_vec(), said(&mut device).to_vec()]
}

#[test]
fn the_worked_example_is_what_sessions_say() {
    let (examples, mut conversation) = (examples(), conversation());
    conversation.extend(path());
    assert_eq!(examples.len(), conversation.len(), "{conversation:02x?}");
    for (number, (example, said)) in examples.iter().zip(&conversation).enumerate() {
        assert_eq!(example, said, "example {}", number + 1);
    }
}
