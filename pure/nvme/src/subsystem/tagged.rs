//! The stored form of blocks with metadata that the controller does not interpret.
//!
//! A block is one unit of a medium: the data, then a sector with the metadata, a checksum behind
//! them, and zeros. The checksum detects a unit that a power loss left partly new and partly old. A
//! unit of zeros is a block without contents.

use super::config::BlockSize;
use crate::wire::Guard;

/// The range of the checksum in the sector behind the data.
const CHECKSUM: core::ops::Range<usize> = 16..24;

/// The checksum of a block, which is never 0: that is the one of a block without contents.
fn checksum(data: &[u8], metadata: &[u8]) -> [u8; 8] {
    let sum = Guard::Bits64.of(data) ^ Guard::Bits64.of(metadata).rotate_left(32);
    if sum == 0 { 1 } else { sum }.to_le_bytes()
}

/// Makes the stored form of the host's blocks: `host` has the data, and then the metadata.
pub(super) fn store(block: BlockSize, host: &[u8], stored: &mut [u8]) {
    let (bytes, length) = (block.bytes() as usize, block.metadata() as usize);
    let units = stored.chunks_exact_mut(block.stored() as usize);
    let (data, metadata) = host.split_at(units.len() * bytes);
    for ((unit, data), metadata) in units.zip(data.chunks_exact(bytes)).zip(metadata.chunks_exact(length)) {
        let (kept, sector) = unit.split_at_mut(bytes);
        kept.copy_from_slice(data);
        sector.fill(0);
        sector[..length].copy_from_slice(metadata);
        sector[CHECKSUM].copy_from_slice(&checksum(data, metadata));
    }
}

/// Copies the host's part of `stored`: the data, and then the metadata.
pub(super) fn load(block: BlockSize, stored: &[u8], host: &mut [u8]) {
    let (bytes, length) = (block.bytes() as usize, block.metadata() as usize);
    let units = stored.chunks_exact(block.stored() as usize);
    let (data, metadata) = host.split_at_mut(units.len() * bytes);
    for ((unit, data), metadata) in
        units.zip(data.chunks_exact_mut(bytes)).zip(metadata.chunks_exact_mut(length))
    {
        data.copy_from_slice(&unit[..bytes]);
        metadata.copy_from_slice(&unit[bytes..][..length]);
    }
}

/// The index of the first block in `stored` that was never written as it is.
pub(super) fn first_torn(block: BlockSize, stored: &[u8]) -> Option<u64> {
    let (bytes, length) = (block.bytes() as usize, block.metadata() as usize);
    let is_torn = |unit: &[u8]| {
        let (data, sector) = unit.split_at(bytes);
        let is_blank = || unit.iter().all(|byte| *byte == 0);
        sector[CHECKSUM] != checksum(data, &sector[..length]) && !is_blank()
    };
    let torn = stored.chunks_exact(block.stored() as usize).position(is_torn)?;
    u64::try_from(torn).ok()
}
