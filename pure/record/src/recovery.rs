//! The writes by which recovery makes the recording on a medium prove itself.

use alloc::vec::Vec;
use alloc::{collections::BTreeSet, vec};

use engine::Crc32c;

use crate::format::{
    CERTIFICATE_SLOT, Cause, Certificate, FIRST_SLOT, Gap, HEADER_LENGTH, HOLDING_SLOTS, Header, Kind, Place,
    Reason, Time, capacity,
};
use crate::scan::{Hole, Survey};

/// A chunk to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The slot.
    pub slot: u64,
    /// All bytes of the slot.
    pub bytes: Vec<u8>,
}

/// The writes that make a recording whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The writes, in steps. Each step is to be durable before the next one.
    pub steps: Vec<Vec<Patch>>,
    /// The gaps that are declared now.
    pub gaps: Vec<Gap>,
    /// Behind this many slots, the medium is empty.
    pub slots: u64,
}

impl Survey {
    /// The writes that make the recording on a medium of `slots` slots whole: gap records for each
    /// hole, and a certificate. `digests` are those of the streams' stored bytes, by
    /// [`Survey::algorithm`]. No byte of a stream and no gap record that the survey has found is
    /// written over. The caller reads the result again: [`Survey::doubt`] shows whether it is true.
    pub fn recover(&mut self, digests: &[[u8; 32]], slots: u64, now: Time, crc: Crc32c) -> Recovery {
        // A certificate may speak of more slots than there are.
        self.end = self.end.min(slots);
        let (gaps, mut certificate) = self.mend(digests, now.nanos);
        let mut steps = Vec::new();
        if let Some(ring) = self.ring.clone() {
            let other = HOLDING_SLOTS[usize::from(ring.next == HOLDING_SLOTS[0])];
            // An account of the held bytes may lie where gap records will. Where no higher sequence
            // number is left, both slots say the same.
            let last = (self.sequence == u64::MAX).then_some(other);
            for slot in [ring.next].into_iter().chain(last) {
                let holding = |payload: &mut [u8]| ring.holding.emit(payload);
                steps.push(vec![self.patch(Kind::Holding, slot, now, crc, holding)]);
            }
        }
        let pieces = gaps.chunks(Gap::most(capacity(self.chunk)));
        let mut declared = Vec::new();
        for (some, slot) in pieces.clone().zip(self.free_slots(pieces.len())) {
            declared.push(self.patch(Kind::Gaps, slot, now, crc, |payload| Gap::emit(some, payload)));
            certificate.slots = certificate.slots.max(slot + 1);
        }
        steps.push(declared);
        // An overwritten slot is no longer bad.
        let patched = steps.iter().flatten().map(|patch| patch.slot);
        let patched: BTreeSet<_> = patched.chain([CERTIFICATE_SLOT]).collect();
        certificate.bad = self.bad.iter().filter(|bad| !patched.contains(&bad.slot)).count() as u64;
        let emit = |payload: &mut [u8]| certificate.emit(payload);
        steps.push(vec![self.patch(Kind::Certificate, CERTIFICATE_SLOT, now, crc, emit)]);
        let slots = self.filled.max(certificate.slots).max(FIRST_SLOT);
        self.certificate = Some(certificate);
        Recovery { steps, gaps, slots }
    }

    /// A chunk that is no stream's.
    pub fn patch(
        &mut self,
        kind: Kind,
        slot: u64,
        time: Time,
        crc: Crc32c,
        emit: impl FnOnce(&mut [u8]) -> usize,
    ) -> Patch {
        let mut bytes = vec![0; self.chunk as usize];
        let length = u32::try_from(emit(&mut bytes[HEADER_LENGTH..])).unwrap_or(u32::MAX);
        let header = Header {
            kind,
            recording: self.recording.unwrap_or_default(),
            slot,
            sequence: self.sequence,
            chunk: self.chunk,
            stream: 0,
            offset: 0,
            length,
            time,
            overwrote: None,
        };
        self.sequence = self.sequence.saturating_add(1);
        header.emit(&mut bytes, crc);
        Patch { slot, bytes }
    }

    /// Declares each hole as a gap, found at `when`. Returns the new gaps and the certificate.
    fn mend(&mut self, digests: &[[u8; 32]], when: u64) -> (Vec<Gap>, Certificate) {
        let declare = |hole: &Hole| Gap {
            stream: hole.stream,
            from: hole.from,
            bytes: hole.bytes,
            packets: 0,
            when,
            place: Place::Disk,
            cause: Cause::Missing,
        };
        let new: Vec<_> = self.holes.drain(..).map(|hole| declare(&hole)).collect();
        self.gaps.extend(&new);
        self.gaps.sort_by_key(|gap| (gap.stream, gap.from));
        let (streams, algorithm) = (self.accounts(digests), self.algorithm());
        let old = self.certificate.take();
        let all: Vec<_> = streams.iter().map(|stream| stream.digest).collect();
        let certificate = Certificate {
            reason: Reason::Recovered,
            algorithm,
            slots: self.end,
            gaps: self.gaps.len() as u64,
            bad: self.bad.len() as u64,
            high_water: old.map_or(0, |old| old.high_water),
            index: 0,
            digest: algorithm.digest_of_all(&all),
            streams,
            rules: Vec::new(),
            signature: None,
        };
        (new, certificate)
    }
}
