//! Protection information as a host generates and checks it (Type 1).

use core::fmt;

use crate::wire::bits::{high_u32, low_u16, low_u32};
use crate::wire::identify::{IDENTIFY_LENGTH, IdentifyNamespace, IdentifyNamespaceNvm};
use crate::wire::{
    CHECK_GUARD, CHECK_REFERENCE_TAG, Guard, PROTECTION_ACTION, ProtectionInformation, SubmissionQueueEntry,
};

/// Protection information of Type 1 (PIT), in DPS.
const TYPE: u8 = 0b111;
const TYPE_1: u8 = 1;
/// Whether metadata is at the end of each block's data, in FLBAS.
const EXTENDED: u8 = 1 << 4;

/// The protection of a namespace: Type 1, with metadata that holds the information and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The guard of each block.
    pub guard: Guard,
    /// Length of a block in bytes, without metadata.
    pub block_bytes: u32,
}

/// How the protection information of a block that was read is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The index of the block among those of the command.
    pub block: u32,
    /// The fault.
    pub what: Wrong,
}

/// The part of protection information that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The checksum is not that of the data.
    Guard,
    /// The reference tag is not that of the block.
    ReferenceTag,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guard => "the guard is not that of the data",
            Self::ReferenceTag => "the reference tag is another block's",
        })
    }
}

impl Protection {
    /// The protection of the namespace that `page` (CNS 00h) describes, if a host can use it.
    /// `formats` is the namespace's structure of the NVM command set (CNS 05h), if it has one. If
    /// data and metadata share a buffer, the controller must generate and strip the metadata.
    pub fn of(page: &[u8; IDENTIFY_LENGTH], formats: Option<&[u8; IDENTIFY_LENGTH]>) -> Option<Self> {
        let namespace = IdentifyNamespace::parse(page);
        if namespace.protection_settings & TYPE != TYPE_1 {
            return None;
        }
        let at = usize::from(namespace.formatted_index());
        let extended = formats.map(IdentifyNamespaceNvm::parse);
        let format = extended.and_then(|formats| formats.extended_formats.get(at).copied()).unwrap_or(0);
        let guard = Guard::of_format(format)?;
        let is_all = usize::from(namespace.formatted().metadata_size) == guard.length();
        is_all.then_some(Self { guard, block_bytes: namespace.block_bytes()? })
    }

    /// Whether the namespace that `page` describes has its metadata in a buffer of its own.
    pub fn is_separate(page: &[u8; IDENTIFY_LENGTH]) -> bool {
        IdentifyNamespace::parse(page).formatted_lba_size & EXTENDED == 0
    }

    /// The length in bytes of the information of `blocks` blocks.
    pub const fn bytes(&self, blocks: u32) -> u32 {
        // The length is 8 or 16.
        #[expect(clippy::cast_possible_truncation, reason = "8 or 16")]
        let one = self.guard.length() as u32;
        blocks * one
    }

    /// Sets up `entry`, a Read or Write, so that the controller generates and strips the protection
    /// information, and checks it on the medium.
    pub fn by_controller(&self, entry: SubmissionQueueEntry) -> SubmissionQueueEntry {
        let entry = self.checked(entry);
        SubmissionQueueEntry { cdw12: entry.cdw12 | PROTECTION_ACTION.put(1), ..entry }
    }

    /// Sets up `entry`, a Read or Write, with its protection information at `address` in host
    /// memory. The controller checks that information too.
    pub fn by_host(&self, entry: SubmissionQueueEntry, address: u64) -> SubmissionQueueEntry {
        SubmissionQueueEntry { metadata_pointer: address, ..self.checked(entry) }
    }

    fn checked(&self, entry: SubmissionQueueEntry) -> SubmissionQueueEntry {
        let tag = entry.starting_lba() & self.guard.reference_mask();
        SubmissionQueueEntry {
            cdw12: entry.cdw12 | CHECK_GUARD.put(1) | CHECK_REFERENCE_TAG.put(1),
            // Initial or Expected Initial Logical Block Reference Tag (ILBRT, EILBRT).
            cdw14: low_u32(tag),
            cdw3: u32::from(low_u16(high_u32(tag))),
            ..entry
        }
    }

    /// Writes the information of `data`, whole blocks from `lba` on, to `metadata`.
    pub fn generate(&self, lba: u64, data: &[u8], metadata: &mut [u8]) {
        let blocks = data.chunks_exact(self.block()).zip(metadata.chunks_exact_mut(self.guard.length()));
        for (lba, (block, bytes)) in (lba..).zip(blocks) {
            let reference_tag = lba & self.guard.reference_mask();
            let information =
                ProtectionInformation { guard: self.guard.of(block), application_tag: 0, reference_tag };
            information.emit(self.guard, bytes);
        }
    }

    /// Checks `metadata` against `data`, which are whole blocks from `lba` on.
    ///
    /// # Errors
    /// The first block with invalid information.
    pub fn check(&self, lba: u64, data: &[u8], metadata: &[u8]) -> Result<(), Mismatch> {
        let blocks = data.chunks_exact(self.block()).zip(metadata.chunks_exact(self.guard.length()));
        for ((block, lba), (data, bytes)) in (0..).zip(lba..).zip(blocks) {
            let Some(found) = ProtectionInformation::parse(self.guard, bytes) else { break };
            let what = match found {
                _ if found.is_unchecked() => continue,
                _ if found.guard != self.guard.of(data) => Wrong::Guard,
                _ if found.reference_tag != lba & self.guard.reference_mask() => Wrong::ReferenceTag,
                _ => continue,
            };
            return Err(Mismatch { block, what });
        }
        Ok(())
    }

    const fn block(&self) -> usize {
        self.block_bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn each_change_of_a_block_or_its_place_is_found() {
        for guard in [Guard::Bits16, Guard::Bits64] {
            let protection = Protection { guard, block_bytes: 4096 };
            let mut data = vec![0x5a; 3 * 4096];
            let mut metadata = vec![0; protection.bytes(3) as usize];
            let lba = 0x1_0000_0007;
            protection.generate(lba, &data, &mut metadata);
            assert_eq!(protection.check(lba, &data, &metadata), Ok(()));
            let elsewhere = protection.check(lba + 1, &data, &metadata);
            assert_eq!(elsewhere, Err(Mismatch { block: 0, what: Wrong::ReferenceTag }));
            for at in [4096, 8191] {
                data[at] ^= 1;
                let found = protection.check(lba, &data, &metadata);
                assert_eq!(found, Err(Mismatch { block: 1, what: Wrong::Guard }));
                data[at] ^= 1;
            }
            metadata[2 * guard.length()] ^= 1;
            let found = protection.check(lba, &data, &metadata);
            assert_eq!(found, Err(Mismatch { block: 2, what: Wrong::Guard }));
        }
    }
}
