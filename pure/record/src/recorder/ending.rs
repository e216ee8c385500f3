//! The end of a recording: the last writes, the last gap records, the certificate.

use alloc::vec::Vec;

use super::ring::{Ring, Taken};
use super::{Fault, LOST_IN_A_ROW_MAX, Recorder};
use crate::format::{CERTIFICATE_SLOT, Certificate, GAP_SLOT, Gap, Kind, Reason, StreamTotals, capacity};

/// How far a recording's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Bytes come.
    Recording,
    /// The received bytes are being written.
    Draining,
    /// Index and last gap records are written.
    Closing,
    /// All of this is made durable.
    Syncing,
    /// The certificate is written.
    Certifying,
    /// The certificate is made durable.
    Sealing,
    /// It is over.
    Ended,
}

impl Recorder {
    /// Takes the steps that have become possible.
    pub(super) fn go_on(&mut self) {
        self.retire();
        while self.launch_waiting() {
            self.retire();
        }
        self.sync_holding();
        if self.phase == Phase::Recording {
            return self.write_accounts(false);
        }
        self.search();
        self.retire();
        self.sync_holding();
        let is_busy = !self.flights.is_empty() || !self.waiting.is_over() || !self.digesting.is_over();
        if is_busy || self.wants_sync || self.syncing.is_some() {
            return;
        }
        match self.phase {
            Phase::Draining => {
                self.phase = Phase::Closing;
                self.write_last_accounts();
                self.go_on();
            }
            Phase::Closing => {
                // A chunk of gap records that the medium did not take has come back. In a ring,
                // each of them may overwrite something.
                if !self.writes_again() && (self.is_damaged || !self.write_holding()) {
                    self.is_certified = self.undeclared.is_empty();
                    self.phase = Phase::Syncing;
                    self.wants_sync = true;
                }
            }
            Phase::Certifying => {
                self.phase = Phase::Sealing;
                self.wants_sync = true;
            }
            Phase::Recording | Phase::Syncing | Phase::Sealing | Phase::Ended => {}
        }
    }

    /// Writes gap records that came back, while the medium takes anything. Returns whether a write
    /// is under way.
    fn writes_again(&mut self) -> bool {
        if !self.undeclared.is_empty() && self.lost_in_a_row < LOST_IN_A_ROW_MAX {
            self.write_last_accounts();
        }
        !self.flights.is_empty()
    }

    /// Writes the rest of the index and of the gap records. A full medium takes no index.
    fn write_last_accounts(&mut self) {
        let has_room = !matches!(self.reason, Reason::Full | Reason::Failed);
        if has_room {
            while !self.unindexed.is_empty() {
                let before = self.unindexed.len();
                self.write_index();
                if self.unindexed.len() == before {
                    break;
                }
            }
        }
        let most = Gap::most(capacity(self.config.chunk));
        if has_room && self.undeclared.len() > most {
            self.write_accounts(true);
        }
        // The slot of the last gap records has room for one chunk of them.
        let most = if self.is_gap_slot_used { 0 } else { most };
        if has_room && most == 0 {
            self.write_accounts(true);
        }
        let gaps: Vec<_> = self.undeclared.drain(..most.min(self.undeclared.len())).collect();
        if !gaps.is_empty() {
            self.is_gap_slot_used = true;
            let time = self.time();
            let taken = Taken { slot: GAP_SLOT, overwrote: None };
            self.control(Kind::Gaps, taken, time, |payload| Gap::emit(&gaps, payload));
        }
    }

    pub(super) fn on_synced(&mut self, result: Result<(), Fault>) {
        let Some(stored) = self.syncing.take() else { return };
        self.on_sync_ends();
        match result {
            // A failed sync may have dropped bytes that it was to keep: a later one proves nothing.
            // Without its start, a recording is not found.
            Ok(()) if self.is_forgetful || self.is_damaged => {}
            Ok(()) => self.progress.acknowledged = stored,
            Err(_) => {
                self.is_forgetful = true;
                self.finish(Reason::Failed);
            }
        }
        match self.phase {
            Phase::Syncing => {
                self.phase = Phase::Certifying;
                let (certificate, time) = (self.certificate(), self.time());
                let taken = Taken { slot: CERTIFICATE_SLOT, overwrote: None };
                self.control(Kind::Certificate, taken, time, |payload| certificate.emit(payload));
            }
            Phase::Sealing => {
                self.phase = Phase::Ended;
                self.ended = Some(self.certificate());
            }
            _ => {}
        }
    }

    fn certificate(&self) -> Certificate {
        let algorithm = self.config.algorithm;
        let account = |(number, stream): (u32, &super::Stream)| match &self.ring {
            Some(ring) => ring.account(number, stream.bytes_in, algorithm),
            None => StreamTotals {
                bytes_in: stream.bytes_in,
                stored: stream.stored,
                lost: stream.lost,
                overwritten: 0,
                digest: stream.digest.value(),
            },
        };
        let streams: Vec<_> = (0..).zip(&self.streams).map(account).collect();
        let digests: Vec<_> = streams.iter().map(|stream| stream.digest).collect();
        Certificate {
            reason: self.reason,
            algorithm,
            slots: self.ring.as_ref().map_or(self.next_slot, Ring::end),
            gaps: self.gap_count,
            bad: self.bad,
            high_water: self.progress.high_water,
            index: self.last_index,
            digest: algorithm.digest_of_all(&digests),
            streams,
            rules: Vec::new(),
            signature: None,
        }
    }
}
