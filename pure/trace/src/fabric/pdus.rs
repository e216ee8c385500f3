//! PDUs of NVMe/TCP in a stream of bytes (NVMe TCP Transport Specification 1.0, 3.6).

use alloc::vec::Vec;

use nvme_tcp::wire::{CommonHeader, HEADER_LENGTH_MAX, PduKind};

use crate::seen::Mark;

/// The longest plausible PDU: no controller accepts a longer one.
const PDU_MAX: u32 = 64 << 20;

/// A PDU that is whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pdu<'a> {
    pub(super) common: CommonHeader,
    /// The whole header.
    pub(super) header: &'a [u8],
    /// When its first and its last byte passed.
    pub(super) begun: Mark,
    pub(super) ended: Mark,
}

/// Cuts a stream into PDUs. Their data are skipped.
#[derive(Debug, Default)]
pub(super) struct Pdus {
    /// The bytes so far of the header of the next PDU, and when the first of them passed.
    header: Vec<u8>,
    begun: Mark,
    /// Number of bytes of the PDU behind its header that have not arrived.
    left: u32,
    /// Whether a PDU was invalid. The rest of the stream is lost.
    is_lost: bool,
}

/// Parses a common header, if it is plausible.
pub(crate) fn plausible(bytes: &[u8]) -> Option<CommonHeader> {
    let [kind, flags, header_length, data_offset, length @ ..] = *bytes.first_chunk::<8>()?;
    let kind = PduKind::from_raw(kind)?;
    let length = u32::from_le_bytes(length);
    let fits = usize::from(header_length) == kind.header_length()
        && length >= u32::from(header_length)
        && length <= PDU_MAX
        && u32::from(data_offset) <= length;
    fits.then_some(CommonHeader {
        kind,
        flags: nvme_tcp::wire::Flags(flags),
        header_length,
        data_offset,
        length,
    })
}

impl Pdus {
    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Shows to `show` the PDUs that end within `bytes`, which passed at `at`.
    pub(super) fn take(&mut self, at: Mark, mut bytes: &[u8], mut show: impl FnMut(Pdu<'_>)) {
        while !bytes.is_empty() && !self.is_lost {
            if self.header.is_empty() {
                self.begun = at;
            }
            let wanted = self.header_length();
            let (more, rest) = bytes.split_at(bytes.len().min(wanted - self.header.len()));
            self.header.extend_from_slice(more);
            bytes = rest;
            if self.header.len() == CommonHeader::LENGTH && wanted == CommonHeader::LENGTH {
                match plausible(&self.header) {
                    Some(common) => self.left = common.length - u32::from(common.header_length),
                    None => self.is_lost = true,
                }
                continue;
            }
            if self.header.len() < wanted {
                return;
            }
            let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            bytes = &bytes[skipped..];
            self.left -= u32::try_from(skipped).unwrap_or(0);
            if self.left > 0 {
                return;
            }
            self.end(at, &mut show);
        }
    }

    /// Skips bytes that were not captured. Returns false if they are not all data of one PDU, so
    /// that the start of the next one is unknown.
    pub(super) fn skip(&mut self, at: Mark, bytes: u32, mut show: impl FnMut(Pdu<'_>)) -> bool {
        let is_data = self.header.len() > CommonHeader::LENGTH && self.header.len() == self.header_length();
        if !is_data || self.left < bytes {
            return false;
        }
        self.left -= bytes;
        if self.left == 0 {
            self.end(at, &mut show);
        }
        true
    }

    /// The PDU is whole.
    fn end(&mut self, at: Mark, show: &mut impl FnMut(Pdu<'_>)) {
        if let Some(common) = plausible(&self.header) {
            show(Pdu { common, header: &self.header, begun: self.begun, ended: at });
        }
        self.header.clear();
    }

    /// Length of the header, as far as it is known.
    fn header_length(&self) -> usize {
        let known = plausible(&self.header).map(|common| usize::from(common.header_length));
        known.unwrap_or(CommonHeader::LENGTH).min(HEADER_LENGTH_MAX)
    }
}
