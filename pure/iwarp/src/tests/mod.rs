//! Tests of whole sessions: two ends, or one end and hand-made bytes.

mod faults;
mod flips;
mod placing;
mod session;
mod startup;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Entropy, Instant, Rng};
use rdma::{
    Done, Endpoint, Event, Inline, Key, Operation, ProtectionDomain, QueuePairId, ReceiveRequest, Remote,
    SendRequest, SharedPool, WorkError,
};

use crate::wire::{CRC_LENGTH, Header, LENGTH_FIELD, Opcode, Terminate, fpdu_length, padding};
use crate::{Config, Connection, Input};

const NOW: Instant = Instant::ZERO;

/// Settings of an end with memory of its own. `seed` determines its keys.
fn config(seed: u64) -> Config {
    let pool = SharedPool::default();
    let domain = ProtectionDomain::new(8, Rc::clone(&pool), Entropy::Seeded(Rng::from_seed(seed)));
    Config::new(Rc::new(RefCell::new(domain)), pool, QueuePairId(7))
}

/// Takes all bytes that an end has to send, and reports them sent.
fn take(end: &mut Connection) -> Vec<u8> {
    let bytes: Vec<u8> = end.outbox().slices().flatten().copied().collect();
    end.sent(bytes.len());
    bytes
}

fn give(end: &mut Connection, bytes: &[u8]) {
    end.handle_input(NOW, Input::Received(Buffer::copy_from_slice(bytes)));
}

/// Carries bytes between the ends until neither sends any more.
fn carry(one: &mut Connection, other: &mut Connection) {
    loop {
        let (there, back) = (take(one), take(other));
        if there.is_empty() && back.is_empty() {
            return;
        }
        give(other, &there);
        give(one, &back);
    }
}

fn events(end: &mut Connection) -> Vec<Event> {
    core::iter::from_fn(|| end.poll_event()).collect()
}

type Results = Vec<(u64, Result<Done, WorkError>)>;

fn completions(end: &mut Connection) -> Results {
    core::iter::from_fn(|| end.poll_completion()).map(|one| (one.id, one.result)).collect()
}

/// Two connected ends.
fn connected(near: Config, far: Config) -> (Connection, Connection) {
    let mut near = Connection::connect(NOW, near, b"near");
    let mut far = Connection::accept(NOW, far);
    carry(&mut near, &mut far);
    assert_eq!(events(&mut far), [Event::Requested { private_data: b"near".to_vec() }]);
    far.accept(b"far");
    carry(&mut near, &mut far);
    assert_eq!(events(&mut near), [Event::Established { private_data: b"far".to_vec() }]);
    assert_eq!(events(&mut far), [Event::Established { private_data: Vec::new() }]);
    (near, far)
}

fn send_of(inline: &[u8], data: &[u8], invalidate: Option<Key>) -> Operation {
    let (inline, data) = (Inline::new(inline), Buffer::copy_from_slice(data));
    Operation::Send { inline, data, invalidate, immediate: None }
}

fn post(end: &mut Connection, id: u64, operation: Operation) {
    end.post_send(SendRequest { id, operation, signalled: true }).unwrap();
}

fn receive(end: &mut Connection, id: u64, length_max: u32) {
    end.post_receive(ReceiveRequest { id, length_max }).unwrap();
}

fn received(data: &[u8]) -> Result<Done, WorkError> {
    Ok(Done::Received { data: Buffer::copy_from_slice(data), invalidated: None, immediate: None })
}

fn part(remote: Remote, offset: u64, length: u32) -> Remote {
    Remote { address: remote.address.wrapping_add(offset), length, ..remote }
}

/// A hand-made FPDU with a valid CRC.
fn fpdu(header: Header, data: &[u8]) -> Vec<u8> {
    raw_fpdu(&[&header.emit()[..header.length()], data].concat())
}

pub(crate) fn raw_fpdu(segment: &[u8]) -> Vec<u8> {
    let length = u16::try_from(segment.len()).unwrap();
    let mut bytes = Vec::from(length.to_be_bytes());
    bytes.extend_from_slice(segment);
    bytes.resize(bytes.len() + padding(length), 0);
    let crc = engine::crc32c(0, &bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The segments in `bytes`: header and data of each.
fn segments(mut bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = u16::from_be_bytes([bytes[0], bytes[1]]);
        let (fpdu, rest) = bytes.split_at(fpdu_length(length));
        let (covered, crc) = fpdu.split_at(fpdu.len() - CRC_LENGTH);
        assert_eq!(engine::crc32c(0, covered).to_le_bytes(), *crc);
        let segment = &fpdu[LENGTH_FIELD..LENGTH_FIELD + usize::from(length)];
        let header = Header::parse(segment).unwrap();
        all.push((header, segment[header.length()..].to_vec()));
        bytes = rest;
    }
    all
}

/// The latest Terminate message of an end, with the headers that it includes.
fn terminate_of(end: &mut Connection) -> Option<(Terminate, Vec<u8>)> {
    let all = segments(&take(end));
    let (header, data) = all.last()?;
    let Header::Untagged { opcode: Opcode::Terminate, last: true, number: 1, offset: 0, .. } = header else {
        return None;
    };
    Some((Terminate::parse(data).unwrap(), data[Terminate::LENGTH - 2..].to_vec()))
}
