//! Fuzz targets: each takes any bytes and must not panic.

use crate::format::{CHUNK_MIN, HEADER_LENGTH, Header, find_chunk_length};
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
