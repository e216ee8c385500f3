//! CRC32C digests and checks, which detect bits of a frame that were flipped on the way.

use engine::Crc32c;

use super::hello::CHECK_OFFSET;
use super::{FrameKind, HEADER_LENGTH};

/// Bytes of a digest.
pub const DIGEST_LENGTH: usize = 4;

/// Where the check of a Refuse is in its header: the place of Acknowledge, which a Refuse does not
/// need.
const OF_REFUSE: usize = 8;

/// Bytes that follow the body of a frame of this kind, if the connection uses `digest`.
pub(crate) const fn trailer(kind: FrameKind, digest: Option<Crc32c>) -> usize {
    if digest.is_none() || kind.is_greeting() { 0 } else { DIGEST_LENGTH }
}

/// Puts the digest, if any, behind a frame, which is the first `length` of `bytes`. Returns the
/// length including the digest.
#[inline]
pub(crate) fn seal(digest: Option<Crc32c>, bytes: &mut [u8], length: usize) -> usize {
    let Some(crc32c) = digest else { return length };
    let (frame, rest) = bytes.split_at_mut(length);
    rest[..DIGEST_LENGTH].copy_from_slice(&crc32c(0, frame).to_be_bytes());
    length + DIGEST_LENGTH
}

/// Whether `found` is the digest of a frame.
#[inline]
pub(crate) fn is_of(crc32c: Crc32c, found: &[u8], head: &[u8], body: &[u8]) -> bool {
    found == crc32c(crc32c(0, head), body).to_be_bytes()
}

/// Where a handshake frame has its check, counted from the start of the frame.
const fn place(kind: FrameKind) -> Option<usize> {
    match kind {
        FrameKind::Hello | FrameKind::Welcome => Some(HEADER_LENGTH + CHECK_OFFSET),
        FrameKind::Refuse => Some(OF_REFUSE),
        _ => None,
    }
}

/// CRC32C of a whole frame. `before` and `behind` are its parts around the check.
fn check(crc32c: Crc32c, before: [&[u8]; 2], behind: [&[u8]; 2]) -> [u8; DIGEST_LENGTH] {
    let zeros = [0; DIGEST_LENGTH];
    let parts = before.into_iter().chain([&zeros[..]]).chain(behind);
    parts.fold(0, crc32c).to_be_bytes()
}

/// Puts the check into a whole `frame` of the handshake: the CRC32C of the frame with zeros in
/// place of the check. Other frames stay as they are.
pub fn sign(crc32c: Crc32c, frame: &mut [u8]) {
    let kind = frame.first().and_then(|octet| FrameKind::parse(*octet).ok());
    if let Some(place) = kind.and_then(place)
        && let Some((before, rest)) = frame.split_at_mut_checked(place)
        && let Some((found, behind)) = rest.split_first_chunk_mut()
    {
        *found = check(crc32c, [before, &[]], [behind, &[]]);
    }
}

/// Whether a handshake frame is as it was signed. A Refuse without a check is of another version,
/// and is accepted.
pub(crate) fn is_signed(crc32c: Crc32c, kind: FrameKind, head: &[u8; HEADER_LENGTH], body: &[u8]) -> bool {
    let Some(place) = place(kind) else { return false };
    let in_body = place.checked_sub(HEADER_LENGTH);
    let Some((before, rest)) = in_body.map_or(&head[..], |_| body).split_at_checked(in_body.unwrap_or(place))
    else {
        return false;
    };
    let Some((found, behind)) = rest.split_first_chunk::<DIGEST_LENGTH>() else { return false };
    if in_body.is_some() {
        return *found == check(crc32c, [head, before], [behind, &[]]);
    }
    *found == [0; DIGEST_LENGTH] || *found == check(crc32c, [before, &[]], [behind, body])
}
