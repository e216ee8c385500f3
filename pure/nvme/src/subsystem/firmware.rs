//! Firmware Image Download and Firmware Commit: images in slots, one of which determines the
//! firmware revision.
//!
//! A controller that is a program does not run an image. It keeps images in Farlane's own format,
//! and reports their revisions. From the reset after an activation, the controller reports the
//! activated image's revision as its own. A notification informs the outside world, which may act
//! on it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::event_log::FirmwareChange;
use super::firmware_image::{FIRMWARE_BYTES_MAX, FIRMWARE_SLOTS, FirmwareConfig, FirmwareImage};
use super::flow::{Flow, Handled, Step};
use super::slots::HostDataFor;
use super::types::{CommandToken, Notification};
use crate::wire::log::FirmwareSlotLog;
use crate::wire::{Bits, StatusCode, SubmissionQueueEntry, Text, low_u8};

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

/// The firmware slots, and the image being downloaded.
#[derive(Debug, Serialize, Deserialize)]
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

    /// Handles a reset: drops the image that the controller's host has downloaded, and returns the
    /// slot that the reset activates, if any.
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

/// The commands.
impl Firmware {
    pub(super) fn on_download(
        flow: &mut Flow,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        transfer_bytes_max: u32,
    ) -> Handled {
        let length = u64::from(entry.cdw10).saturating_add(1) * 4;
        let offset = u64::from(entry.cdw11) * 4;
        let within = length <= u64::from(transfer_bytes_max);
        let length = u32::try_from(length).ok().filter(|_| within);
        let length = length.ok_or(Failure::field(StatusCode::InvalidField, Location::CDW10))?;
        if offset + u64::from(length) > u64::from(FIRMWARE_BYTES_MAX) {
            return Err(Failure::field(StatusCode::InvalidField, Location::CDW11));
        }
        Ok(flow.pull(token, length, HostDataFor::FirmwareImage))
    }

    pub(super) fn on_piece(
        &mut self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        data: &[u8],
    ) -> Handled {
        let offset = usize::try_from(u64::from(entry.cdw11) * 4).unwrap_or(usize::MAX);
        self.downloader = Some(controller);
        match self.put(offset, data) {
            Ok(()) => Ok(Step::Done(0)),
            Err(code) => Err(Failure::field(code, Location::CDW11)),
        }
    }

    /// Executes a Firmware Commit. Returns the change that it made.
    pub(super) fn commit(
        &mut self,
        flow: &mut Flow,
        entry: &SubmissionQueueEntry,
    ) -> Result<FirmwareChange, Failure> {
        let action = ACTION.of(entry.cdw10);
        let asked = low_u8(SLOT.of(entry.cdw10));
        let no_slot = Failure::field(StatusCode::InvalidFirmwareSlot, Location::CDW10);
        let slot = match action {
            STORE | STORE_AND_ACTIVATE => self.store(flow, asked, no_slot)?,
            ACTIVATE => self.revision_of(asked).map(|_| asked).ok_or(no_slot)?,
            // Activation without a reset is not supported, nor are boot partitions.
            _ => return Err(Failure::field(StatusCode::InvalidField, Location::CDW10)),
        };
        if action != STORE {
            self.next = Some(slot);
            flow.notify(Notification::FirmwareSelected { slot });
        }
        let before = self.revision();
        let after = self.revision_of(slot).unwrap_or(before);
        Ok(FirmwareChange { before, after, action: low_u8(action), slot })
    }

    /// Stores the downloaded image in the slot `asked`; for 0, in a slot that is not active.
    fn store(&mut self, flow: &mut Flow, asked: u8, no_slot: Failure) -> Result<u8, Failure> {
        let slot = match asked {
            0 if self.active == 2 => 3,
            0 => 2,
            2..=FIRMWARE_SLOTS => asked,
            _ => return Err(no_slot),
        };
        let invalid = Failure::new(StatusCode::InvalidFirmwareImage);
        let image = self.take_image().ok_or(invalid)?;
        flow.notify(Notification::FirmwareStored { slot, image: Box::new(image.clone()) });
        self.images[usize::from(slot) - 2] = Some(image);
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
