//! End-to-end protection information: the guards and tags that accompany a logical block.

use super::bits::Bits;
use crc::{CRC_16_T10_DIF, CRC_64_NVME, Crc, Table};

/// The guard of a logical block format: Protection Information Format (PIF).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// 16b Guard Protection Information, 8 bytes: CRC-16 T10-DIF.
    Bits16,
    /// 64b Guard Protection Information, 16 bytes: CRC-64 NVMe, with a Storage Tag Size of 0.
    Bits64,
}

static GUARD_16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_T10_DIF);
static GUARD_64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// Protection Information Action (PRACT), in CDW12 of a command.
pub(crate) const PROTECTION_ACTION: Bits = Bits::bit(29);
/// The checks (PRCHK) of the guard and of the reference tag, in CDW12 of a command.
pub(crate) const CHECK_GUARD: Bits = Bits::bit(28);
pub(crate) const CHECK_REFERENCE_TAG: Bits = Bits::bit(26);

/// Storage Tag Size (STS) and Protection Information Format (PIF) of an extended LBA format.
const STORAGE_TAG_SIZE: Bits = Bits::new(6, 0);
const FORMAT: Bits = Bits::new(8, 7);

impl Guard {
    /// The extended LBA format (ELBAF) of such blocks: PIF, with a Storage Tag Size of 0.
    pub const fn format(self) -> u32 {
        match self {
            Self::Bits16 => 0,
            Self::Bits64 => 0b10 << 7,
        }
    }

    /// The guard of an extended LBA format (ELBAF), if it is one of these without a storage tag.
    pub fn of_format(format: u32) -> Option<Self> {
        match (FORMAT.of(format), STORAGE_TAG_SIZE.of(format)) {
            (0, 0) => Some(Self::Bits16),
            (0b10, 0) => Some(Self::Bits64),
            _ => None,
        }
    }

    /// Length in bytes of the protection information of a block.
    pub const fn length(self) -> usize {
        match self {
            Self::Bits16 => 8,
            Self::Bits64 => 16,
        }
    }

    /// The guard of `data`: CRC-16 T10-DIF in the low 16 bits, or CRC-64 NVMe.
    pub fn of(self, data: &[u8]) -> u64 {
        match self {
            Self::Bits16 => GUARD_16.checksum(data).into(),
            Self::Bits64 => GUARD_64.checksum(data),
        }
    }

    /// The bits of a reference tag that the format stores: 32 or 48.
    pub const fn reference_mask(self) -> u64 {
        match self {
            Self::Bits16 => 0xffff_ffff,
            Self::Bits64 => 0xffff_ffff_ffff,
        }
    }
}

/// The protection information of one logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionInformation {
    /// Guard: the checksum of the block's data.
    pub guard: u64,
    /// Logical Block Application Tag (LBAT).
    pub application_tag: u16,
    /// Logical Block Reference Tag (LBRT), within [`Guard::reference_mask`].
    pub reference_tag: u64,
}

impl ProtectionInformation {
    /// Decodes the first [`Guard::length`] bytes; `None` if there are fewer.
    pub fn parse(format: Guard, bytes: &[u8]) -> Option<Self> {
        match format {
            Guard::Bits16 => {
                let [a, b, c, d, tag @ ..] = *bytes.first_chunk::<8>()?;
                Some(Self {
                    guard: u16::from_be_bytes([a, b]).into(),
                    application_tag: u16::from_be_bytes([c, d]),
                    reference_tag: u32::from_be_bytes(tag).into(),
                })
            }
            Guard::Bits64 => {
                let guard = u64::from_be_bytes(*bytes.first_chunk()?);
                let tags = u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
                let [a, b, ..] = tags.to_be_bytes();
                let reference_tag = tags & format.reference_mask();
                Some(Self { guard, application_tag: u16::from_be_bytes([a, b]), reference_tag })
            }
        }
    }

    /// Whether the block is exempt from checks: with Type 1, it has the application tag FFFFh.
    pub const fn is_unchecked(&self) -> bool {
        self.application_tag == u16::MAX
    }

    /// Encodes the information at the start of `bytes`.
    ///
    /// # Panics
    /// When `bytes` are fewer than [`Guard::length`].
    pub fn emit(&self, format: Guard, bytes: &mut [u8]) {
        let [.., g, h] = self.guard.to_be_bytes();
        let tag = (self.reference_tag & format.reference_mask()).to_be_bytes();
        let application = self.application_tag.to_be_bytes();
        match format {
            Guard::Bits16 => {
                bytes[..2].copy_from_slice(&[g, h]);
                bytes[2..4].copy_from_slice(&application);
                bytes[4..8].copy_from_slice(&tag[4..]);
            }
            Guard::Bits64 => {
                bytes[..8].copy_from_slice(&self.guard.to_be_bytes());
                bytes[8..10].copy_from_slice(&application);
                bytes[10..16].copy_from_slice(&tag[2..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn guards_have_published_values() {
        // The check values of CRC-16/T10-DIF and CRC-64/NVME for "123456789".
        assert_eq!(Guard::Bits16.of(b"123456789"), 0xd0db);
        assert_eq!(Guard::Bits64.of(b"123456789"), 0xae8b_1486_0a79_9888);
        // NVM Command Set Specification, 64b CRC test cases.
        assert_eq!(Guard::Bits64.of(&[0; 4096]), 0x6482_d367_eb22_b64e);
        assert_eq!(Guard::Bits64.of(&[0xff; 4096]), 0xc0dd_ba73_02ec_a3ac);
        let rising: Vec<u8> = (0..=255).cycle().take(4096).collect();
        assert_eq!(Guard::Bits64.of(&rising), 0x3e72_9f5f_6750_449c);
        assert_eq!(Guard::Bits16.of(&[0; 4096]), 0);
    }

    #[test]
    fn information_comes_back_big_endian() {
        let info =
            ProtectionInformation { guard: 0x1234, application_tag: 0x5678, reference_tag: 0x9abc_def0 };
        let mut bytes = [0; 16];
        info.emit(Guard::Bits16, &mut bytes);
        assert_eq!(bytes[..8], [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0]);
        assert_eq!(ProtectionInformation::parse(Guard::Bits16, &bytes), Some(info));
        info.emit(Guard::Bits64, &mut bytes);
        assert_eq!(bytes[8..], [0x56, 0x78, 0, 0, 0x9a, 0xbc, 0xde, 0xf0]);
        assert_eq!(ProtectionInformation::parse(Guard::Bits64, &bytes), Some(info));
        assert_eq!(ProtectionInformation::parse(Guard::Bits64, &bytes[..15]), None);
    }
}
