//! Firmware images in Farlane's own format, and the slots that hold them.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::wire::{Text, low_u8};

/// Number of firmware slots. Slot 1 is the program itself and read-only.
pub const FIRMWARE_SLOTS: u8 = 3;
/// The most bytes of a firmware image.
pub const FIRMWARE_BYTES_MAX: u32 = 4 << 20;

/// The first bytes of every image.
const MAGIC: [u8; 8] = *b"FARLANFW";
const FORMAT: u32 = 1;

/// A firmware image: a header of 32 bytes, then the payload.
///
/// | offset | |
/// |---|---|
/// | 0 | `FARLANFW` |
/// | 8 | format, 1 |
/// | 12 | bytes of the payload |
/// | 16 | revision, 8 printable ASCII characters |
/// | 24 | CRC-32 (IEEE 802.3) of the payload |
/// | 28 | zero |
///
/// Numbers are little-endian. Zeroes after the payload fill the last double word; any further
/// padding is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareImage {
    revision: Text<8>,
    bytes: Vec<u8>,
}

impl FirmwareImage {
    /// Length of the header in bytes.
    pub const HEADER_LENGTH: usize = 32;

    /// An image with a revision and a payload.
    ///
    /// # Panics
    /// When the image is longer than [`FIRMWARE_BYTES_MAX`].
    pub fn new(revision: &str, payload: &[u8]) -> Self {
        let revision = Text::padded_with_spaces(revision);
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let most = FIRMWARE_BYTES_MAX as usize - Self::HEADER_LENGTH;
        assert!(payload.len() <= most, "a payload is of {most} B at most");
        let mut bytes = Vec::with_capacity(Self::HEADER_LENGTH + payload.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(revision.bytes());
        bytes.extend_from_slice(&crc32(payload).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Self { revision, bytes }
    }

    /// The image at the start of `bytes`, if it is complete and valid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<{ Self::HEADER_LENGTH }>()?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let payload = rest.get(..usize::try_from(word(12)).ok()?)?;
        let revision: [u8; 8] = header[16..24].try_into().ok()?;
        let printable = revision.iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic());
        let sound = header[..8] == MAGIC && word(8) == FORMAT && printable && word(24) == crc32(payload);
        let text = core::str::from_utf8(&revision).ok()?;
        let mut bytes = bytes[..Self::HEADER_LENGTH + payload.len()].to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        sound.then(|| Self { revision: Text::padded_with_spaces(text), bytes })
    }

    /// The bytes of the whole image: header and payload.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The revision in the image's header.
    pub const fn revision(&self) -> Text<8> {
        self.revision
    }
}

/// The contents of the firmware slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareConfig {
    /// The images of slots 2 and up.
    pub images: [Option<FirmwareImage>; FIRMWARE_SLOTS as usize - 1],
    /// The slot whose revision the controller starts with, from 1. A slot without an image counts
    /// as 1.
    pub active: u8,
}

impl Default for FirmwareConfig {
    /// Slot 1, the program itself, is active, and the other slots are empty.
    fn default() -> Self {
        Self { images: [const { None }; FIRMWARE_SLOTS as usize - 1], active: 1 }
    }
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    let mut start = 0_u32;
    while index < table.len() {
        let mut value = start;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ value >> 1 } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
        start += 1;
    }
    table
};

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| CRC_TABLE[usize::from(low_u8(crc) ^ byte)] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_32_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn images_come_back_and_faults_are_found() {
        let image = FirmwareImage::new("9.9", &[5; 100]);
        let mut bytes = image.bytes().to_vec();
        assert_eq!(FirmwareImage::parse(&bytes), Some(image.clone()));
        bytes.extend_from_slice(&[0; 3]);
        assert_eq!(FirmwareImage::parse(&bytes), Some(image), "padding is left out");
        for at in [0, 8, 12, 15, 16, 24, 40, 131] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x81;
            assert_eq!(FirmwareImage::parse(&bad), None, "byte {at}");
        }
        assert_eq!(FirmwareImage::parse(&bytes[..131]), None);
    }
}
