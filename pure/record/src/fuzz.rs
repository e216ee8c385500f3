//! Fuzz targets: each takes any bytes and must not panic.

use crate::format::{CHUNK_MIN, HEADER_LENGTH, Header, Packets, find_chunk_length};
use crate::scan::Scan;

/// Shows bytes to a scan as a medium of the shortest chunks. Digests are always zero, so that
/// random bytes reach further code.
///
/// # Panics
/// When a header that was parsed is not emitted as it was.
pub fn scan(bytes: &[u8]) {
    let crc = |_, _: &[u8]| 0;
    if let Ok((header, payload)) = Header::parse_chunk(0, bytes, crc) {
        let mut again = [&[0; HEADER_LENGTH], payload].concat();
        header.emit(&mut again, crc);
        assert_eq!(Header::parse_chunk(0, &again, crc), Ok((header, payload)));
    }
    find_chunk_length(bytes, crc);
    let mut scan = Scan::new(CHUNK_MIN, crc);
    // Short pieces, so that few bytes make many chunks.
    for (slot, piece) in (0..).zip(bytes.chunks(HEADER_LENGTH * 2)) {
        scan.on_slot(slot, piece);
    }
    scan.finish().proves();
}

/// Reads bytes as a chunk of packets.
///
/// # Panics
/// When a packet that was parsed is not emitted as it was.
pub fn packets(bytes: &[u8]) {
    let mut packets = Packets::of(bytes);
    let mut again = alloc::vec![0; bytes.len()];
    let mut before = bytes.len();
    while let Some(packet) = packets.next() {
        let end = bytes.len() - packets.rest().len();
        let length = packet.emit(&mut again).expect("a record is as long as it was");
        assert!(length <= before - packets.rest().len(), "a record does not overlap the one before");
        assert_eq!(&again[..length], &bytes[end - length..end]);
        before = packets.rest().len();
    }
}
