//! Fuzz target for the config cache.

use pcie::wire::{Bdf, ConfigRequest, ConfigType, Header, Kind, Packet, Tag};

use engine::{Instant, Nanos};

use super::ConfigCache;
use crate::frame::{FrameHeader, FrameKind, HEADER_LENGTH, Registers};

/// Feeds a cache with steps of a first byte, a length, and that many bytes: registers that are
/// shown, or requests and answers that pass.
pub fn config_cache(bytes: &[u8]) {
    let mut cache = ConfigCache::new(&[true]);
    let mut now = Instant::ZERO;
    let mut rest = bytes;
    while let [kind, length, stream @ ..] = rest {
        let (piece, after) = stream.split_at(usize::from(*length).min(stream.len()));
        rest = after;
        now = now + Nanos::from_millis(1);
        while cache.give_up(now).is_some() {}
        match kind & 3 {
            0 => show(&mut cache, piece),
            1 => {
                if let Ok(packet) = Packet::parse(&engine::Buffer::copy_from_slice(piece)) {
                    cache.on_answer(0, &packet);
                    down(&mut cache, now, kind & LOST != 0, packet);
                }
            }
            2 => {
                let [enables, high, low, ..] = piece else { continue };
                let request = Kind::Config(ConfigRequest {
                    write: false,
                    routing: ConfigType::Type0,
                    requester: Bdf::default(),
                    tag: Tag::new(0),
                    enables: enables & 0xf,
                    target: Bdf::new(1, 0, enables >> 5),
                    offset: u16::from_be_bytes([high & 0xf, low & 0xfc]),
                });
                let packet = Packet::new(Header::new(request, 1), engine::Buffer::EMPTY);
                down(&mut cache, now, kind & LOST != 0, packet);
            }
            _ if kind & LOST != 0 => while cache.take_waiting(0).is_some() {},
            _ => cache.forget(0),
        }
    }
}

/// Bit of the first byte: the connection is lost.
const LOST: u8 = 4;

fn down(cache: &mut ConfigCache, now: Instant, lost: bool, mut packet: Packet) {
    if !lost || !cache.wait(now, 0, &mut packet) {
        let _ = cache.answer(0, &packet, || true);
    }
}

fn show(cache: &mut ConfigCache, body: &[u8]) {
    let Ok(length) = u16::try_from(body.len()) else { return };
    let [high, low] = length.to_be_bytes();
    let mut head = [0; HEADER_LENGTH];
    (head[0], head[2], head[3]) = (FrameKind::Registers as u8, high, low);
    if let Ok(header) = FrameHeader::parse(&head)
        && let Ok(registers) = Registers::parse(&header, body)
    {
        cache.on_registers(0, registers);
    }
}
