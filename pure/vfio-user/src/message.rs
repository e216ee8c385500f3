//! Builds messages in reusable buffers.

use engine::{Buffer, Pool};

use crate::errno::Errno;
use crate::pending::RequestHead;
use crate::wire::{HEADER_LENGTH, Header};

/// Builds a message from `header` and the parts that follow it, in one buffer.
///
/// # Panics
/// When the header gives another size.
pub(crate) fn build(pool: &mut Pool, header: &Header, parts: [&[u8]; 2]) -> Buffer {
    let length = HEADER_LENGTH + parts[0].len() + parts[1].len();
    assert_eq!(length, header.size as usize, "a message's header gives its size");
    let fill = |bytes: &mut [u8]| {
        let (head, rest) = bytes.split_at_mut(HEADER_LENGTH);
        let (fixed, data) = rest.split_at_mut(parts[0].len());
        head.copy_from_slice(&header.emit());
        fixed.copy_from_slice(parts[0]);
        data.copy_from_slice(parts[1]);
    };
    if length > Pool::LENGTH_MAX {
        let mut buffer = Buffer::zeroed(length);
        fill(buffer.try_mut().expect("a new buffer has one holder"));
        return buffer;
    }
    let mut buffer = pool.take(length);
    fill(&mut buffer);
    pool.seal(buffer)
}

/// Builds the reply to a request, if one is wanted.
pub(crate) fn reply(pool: &mut Pool, asked: RequestHead, parts: [&[u8]; 2]) -> Option<Buffer> {
    let header = || Header::reply(asked.id, asked.command, parts[0].len() + parts[1].len());
    (!asked.no_reply).then(|| build(pool, &header(), parts))
}

/// Builds the reply that a request has failed with `error`, if one is wanted.
pub(crate) fn refusal(pool: &mut Pool, asked: RequestHead, error: Errno) -> Option<Buffer> {
    let header = || Header::error(asked.id, asked.command, error);
    (!asked.no_reply).then(|| build(pool, &header(), [&[], &[]]))
}
