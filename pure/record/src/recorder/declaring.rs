//! Gap records: losses are counted, and kept until a chunk declares them.

use super::flight::State;
use super::{GAPS_REPORTED_MAX, Recorder};
use crate::format::{Cause, FIRST_SLOT, Gap, HEADER_LENGTH, Header, Kind, Place};

impl Recorder {
    /// Counts a gap, and keeps it until a chunk declares it; or until a trigger, if one is
    /// waited for.
    pub(super) fn declare(&mut self, gap: Gap) {
        if self.hold_gap(gap) {
            return;
        }
        self.streams[gap.stream as usize].lost += gap.bytes;
        self.progress.lost += gap.bytes;
        let last = self.undeclared.iter_mut().rev().find(|last| last.stream == gap.stream);
        if let Some(last) = last.filter(|last| last.goes_on_as(&gap)) {
            last.extend(&gap);
            let reported = self.gaps.iter_mut().rev().find(|last| last.stream == gap.stream);
            if let Some(reported) = reported.filter(|last| last.goes_on_as(&gap)) {
                reported.extend(&gap);
            }
            return;
        }
        self.undeclared.push(gap);
        self.gap_count += 1;
        if self.gaps.len() < GAPS_REPORTED_MAX {
            self.progress.restarts += u64::from(gap.is_restart());
            self.gaps.push(gap);
        }
    }

    /// Declares the bytes of a chunk behind its first `kept` bytes lost at the medium.
    pub(super) fn lose_rest(&mut self, header: &Header, kept: u32, cause: Cause) {
        let (stream, from) = (header.stream, header.offset + u64::from(kept));
        let bytes = u64::from(header.length - kept);
        if bytes > 0 {
            let (when, place) = (self.clock, Place::Disk);
            self.declare(Gap { stream, from, bytes, packets: 0, when, place, cause });
            self.progress.fill -= bytes;
        }
    }

    pub(super) fn lose_flight(&mut self, name: u64, cause: Cause) {
        let Some(flight) = self.flight(name) else { return };
        flight.state = State::Lost;
        let header = flight.data().copied();
        let whole = flight.header;
        let payload = |header: &Header| &flight.buffer[HEADER_LENGTH..][..header.length as usize];
        let is_gaps = |header: &&Header| header.kind == Kind::Gaps && header.slot >= FIRST_SLOT;
        // A later chunk declares the same gaps.
        let gaps = whole.as_ref().filter(is_gaps).map(|header| Gap::parse(payload(header)));
        if whole.is_some_and(|header| header.kind == Kind::Holding) {
            return self.on_holding_lost();
        }
        let is_account =
            whole.is_some_and(|header| !matches!(header.kind, Kind::Data | Kind::Index | Kind::Trigger));
        self.is_damaged |= is_account && gaps.is_none();
        self.undeclared.extend(gaps.into_iter().flatten());
        self.bad += 1;
        if let Some(header) = header {
            self.lose_rest(&header, 0, cause);
        }
    }
}
