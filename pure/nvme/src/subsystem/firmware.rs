//! Firmware Image Download and Firmware Commit: images in slots, one of which determines the
//! firmware revision.
//!
//! A controller that is a program runs no image. It keeps images in Farlane's own format, and
//! reports their revisions. From the reset after an activation, the controller reports the
//! activated image's revision as its own. A notification tells the outside world, which may act on
//! it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::slots::HostDataFor;
use super::{CommandToken, Handled, Notification, Step, Subsystem};
use crate::wire::log::FirmwareSlotLog;
use crate::wire::{Bits, StatusCode, SubmissionQueueEntry, Text, low_u8};

/// Number of firmware slots. Slot 1 is the program itself and read-only.
pub const FIRMWARE_SLOTS: u8 = 3;
/// The most bytes of a firmware image.
pub const FIRMWARE_BYTES_MAX: u32 = 4 << 20;
/// The most separate pieces of an image that may have been downloaded so far.
const PIECES_MAX: usize = 1024;

/// Firmware Updates (FRMW): the number of slots, and a first slot that is read-only.
pub(super) const UPDATES: u8 = 1 | FIRMWARE_SLOTS << 1;
/// Firmware Update Granularity (FWUG): no restriction beyond double words.
pub(super) const GRANULARITY: u8 = 0xff;

/// Firmware Slot (FS), in CDW10 of Firmware Commit.
const SLOT: Bits = Bits::new(2, 0);
/// Commit Action (CA), in CDW10 of Firmware Commit.
const ACTION: Bits = Bits::new(5, 3);
const STORE: u32 = 0b000;
const STORE_AND_ACTIVATE: u32 = 0b001;
const ACTIVATE: u32 = 0b010;

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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The firmware slots, and the image being downloaded.
#[derive(Debug)]
pub(super) struct Firmware {
    /// The revision of slot 1.
    own: Text<8>,
    images: [Option<FirmwareImage>; FIRMWARE_SLOTS as usize - 1],
    active: u8,
    /// The running revision: that of the active slot at the time of its activation.
    revision: Text<8>,
    /// The slot that the next reset activates.
    next: Option<u8>,
    /// The image that was downloaded and not committed.
    download: Vec<u8>,
    /// The controller whose host downloaded the image.
    downloader: Option<ControllerKey>,
    /// The downloaded parts of the image as (start, end), in order, not touching.
    pieces: Vec<(usize, usize)>,
}

impl Firmware {
    pub(super) fn new(own: &str, config: &FirmwareConfig) -> Self {
        let own = Text::padded_with_spaces(own);
        let mut firmware = Self {
            own,
            images: config.images.clone(),
            active: 1,
            revision: own,
            next: None,
            download: Vec::new(),
            downloader: None,
            pieces: Vec::new(),
        };
        if let Some(revision) = firmware.revision_of(config.active) {
            (firmware.active, firmware.revision) = (config.active, revision);
        }
        firmware
    }

    /// The running revision.
    pub(super) const fn revision(&self) -> Text<8> {
        self.revision
    }

    /// Whether the next reset activates another image.
    pub(super) const fn is_activation_pending(&self) -> bool {
        self.next.is_some()
    }

    fn revision_of(&self, slot: u8) -> Option<Text<8>> {
        match slot {
            0 => None,
            1 => Some(self.own),
            _ => self.images.get(usize::from(slot) - 2)?.as_ref().map(FirmwareImage::revision),
        }
    }

    /// Handles a reset: drops what the controller's host has downloaded, and returns the slot that
    /// the reset activates, if any.
    pub(super) fn reset(&mut self, controller: ControllerKey) -> Option<u8> {
        if self.downloader == Some(controller) {
            self.discard();
        }
        let slot = self.next.take()?;
        (self.active, self.revision) = (slot, self.revision_of(slot)?);
        Some(slot)
    }

    fn discard(&mut self) {
        self.download = Vec::new();
        self.pieces.clear();
    }

    /// Stores a piece of an image. A piece at offset 0 begins a new image.
    fn put(&mut self, offset: usize, data: &[u8]) -> Result<(), StatusCode> {
        if offset == 0 {
            self.discard();
        }
        let end = offset + data.len();
        let at = self.pieces.partition_point(|(start, _)| *start < offset);
        let before = at.checked_sub(1).and_then(|index| self.pieces.get(index)).copied();
        let after = self.pieces.get(at).copied();
        if before.is_some_and(|(_, before)| before > offset) || after.is_some_and(|(after, _)| after < end) {
            return Err(StatusCode::OverlappingRange);
        }
        let joins_before = before.is_some_and(|(_, before)| before == offset);
        if !joins_before && self.pieces.len() >= PIECES_MAX {
            return Err(StatusCode::InvalidField);
        }
        if self.download.len() < end {
            self.download.resize(end, 0);
        }
        self.download[offset..end].copy_from_slice(data);
        if joins_before {
            self.pieces[at - 1].1 = end;
        } else {
            self.pieces.insert(at, (offset, end));
        }
        let index = if joins_before { at - 1 } else { at };
        if let Some((_, rest)) = after.filter(|(after, _)| *after == end) {
            self.pieces[index].1 = rest;
            self.pieces.remove(index + 1);
        }
        Ok(())
    }

    /// Takes the downloaded image, if it is complete and valid.
    fn take_image(&mut self) -> Option<FirmwareImage> {
        let whole = matches!(self.pieces[..], [(0, _)]);
        let image = FirmwareImage::parse(&self.download).filter(|_| whole);
        self.discard();
        image
    }

    /// The Firmware Slot Information log page.
    pub(super) fn log(&self) -> FirmwareSlotLog {
        let active = self.active | self.next.unwrap_or(0) << 4;
        let mut log = FirmwareSlotLog { active, ..FirmwareSlotLog::default() };
        for (slot, place) in (1..=FIRMWARE_SLOTS).zip(&mut log.revisions) {
            if let Some(revision) = self.revision_of(slot) {
                *place = revision;
            }
        }
        log
    }
}

impl Subsystem {
    pub(super) fn on_firmware_download(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let length = u64::from(entry.cdw10).saturating_add(1) * 4;
        let offset = u64::from(entry.cdw11) * 4;
        let within = length <= u64::from(self.config.transfer_bytes_max);
        let length = u32::try_from(length).ok().filter(|_| within);
        let length = length.ok_or(Failure::field(StatusCode::InvalidField, Location::CDW10))?;
        if offset + u64::from(length) > u64::from(FIRMWARE_BYTES_MAX) {
            return Err(Failure::field(StatusCode::InvalidField, Location::CDW11));
        }
        Ok(self.pull(token, length, HostDataFor::FirmwareImage))
    }

    pub(super) fn on_firmware_piece(
        &mut self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        data: &[u8],
    ) -> Handled {
        let offset = usize::try_from(u64::from(entry.cdw11) * 4).unwrap_or(usize::MAX);
        self.firmware.downloader = Some(controller);
        match self.firmware.put(offset, data) {
            Ok(()) => Ok(Step::Done(0)),
            Err(code) => Err(Failure::field(code, Location::CDW11)),
        }
    }

    pub(super) fn on_firmware_commit(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let action = ACTION.of(entry.cdw10);
        let asked = low_u8(SLOT.of(entry.cdw10));
        let no_slot = Failure::field(StatusCode::InvalidFirmwareSlot, Location::CDW10);
        let slot = match action {
            STORE | STORE_AND_ACTIVATE => self.store_firmware(asked, no_slot)?,
            ACTIVATE => self.firmware.revision_of(asked).map(|_| asked).ok_or(no_slot)?,
            // Activation without a reset is not supported, nor are boot partitions.
            _ => return Err(Failure::field(StatusCode::InvalidField, Location::CDW10)),
        };
        if action != STORE {
            self.firmware.next = Some(slot);
            self.notify(Notification::FirmwareSelected { slot });
        }
        let before = self.firmware.revision();
        let after = self.firmware.revision_of(slot).unwrap_or(before);
        let controller = self.slots.of(token).controller;
        self.record_firmware(controller, before, after, low_u8(action), slot);
        Ok(Step::Done(0))
    }

    /// Stores the downloaded image in the slot `asked`; for 0, in a slot that is not active.
    fn store_firmware(&mut self, asked: u8, no_slot: Failure) -> Result<u8, Failure> {
        let slot = match asked {
            0 if self.firmware.active == 2 => 3,
            0 => 2,
            2..=FIRMWARE_SLOTS => asked,
            _ => return Err(no_slot),
        };
        let invalid = Failure::new(StatusCode::InvalidFirmwareImage);
        let image = self.firmware.take_image().ok_or(invalid)?;
        self.notify(Notification::FirmwareStored { slot, image: Box::new(image.clone()) });
        self.firmware.images[usize::from(slot) - 2] = Some(image);
        Ok(slot)
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
    use proptest::prelude::*;

    #[test]
    fn crc_32_is_that_of_everybody() {
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

    proptest! {
        #[test]
        fn pieces_in_any_order_make_an_image_unless_they_overlap(
            cuts in prop::collection::btree_set(1..99_usize, 0..8), order in any::<u64>(), twice in any::<bool>(),
        ) {
            let mut firmware = Firmware::new("1", &FirmwareConfig::default());
            let image = FirmwareImage::new("2", &[7; 68]);
            let mut ends: Vec<usize> = cuts.into_iter().collect();
            ends.push(100);
            let mut pieces: Vec<_> =
                core::iter::once(0).chain(ends.clone()).zip(ends).collect();
            // The piece at offset 0 comes first, the others in any order.
            let mut state = order;
            for index in (2..pieces.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(index, 1 + usize::try_from(state >> 33).unwrap() % index);
            }
            for &(start, end) in &pieces {
                prop_assert_eq!(firmware.put(start, &image.bytes()[start..end]), Ok(()));
            }
            prop_assert_eq!(firmware.put(50, &[0; 4]), Err(StatusCode::OverlappingRange));
            if twice {
                prop_assert_eq!(firmware.put(200, &[0; 4]), Ok(()));
            }
            prop_assert_eq!(firmware.take_image(), (!twice).then_some(image));
        }
    }
}
