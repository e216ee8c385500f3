//! Datagrams without a container: their bytes lie one behind the other, across chunks.

use engine::Instant;
use record::format::Place;
use record::sequence::Loss;
use record::{Missed, RawRecorder};

use super::super::real_time;
use super::{BATCH_MAX, Datagrams, RECEIVING, TURNS, TURNS_AT_END, each, time_of};

/// Declares packets lost. They take their place if their bytes are known.
fn miss(recorder: &mut RawRecorder, Loss { packets, bytes }: Loss, when: u64, place: Place) {
    recorder.miss(Missed { packets, bytes, when, place });
}

/// Records the bytes of a datagram. What has no room is lost.
fn put(recorder: &mut RawRecorder, now: Instant, mut bytes: &[u8], when: u64) {
    while !bytes.is_empty() {
        let Some(room) = recorder.room(now) else {
            return miss(recorder, Loss { packets: 1, bytes: bytes.len() as u64 }, when, Place::Ring);
        };
        let (first, rest) = bytes.split_at(room.len().min(bytes.len()));
        room[..first.len()].copy_from_slice(first);
        recorder.filled(first.len());
        bytes = rest;
    }
}

impl Datagrams {
    /// Takes what has come, at most about `left` bytes. Returns whether there was anything.
    pub(in super::super) fn take_raw(
        &mut self,
        now: Instant,
        recorder: &mut RawRecorder,
        left: Option<u64>,
    ) -> bool {
        let mut has_moved = false;
        let end = left.map(|left| recorder.progress().bytes_in.saturating_add(left));
        for _ in 0..TURNS {
            let is_over = end.is_some_and(|end| recorder.progress().bytes_in >= end);
            let count = if is_over { 0 } else { self.receive_raw(now, recorder) };
            has_moved |= count > 0;
            if count < BATCH_MAX / 2 {
                break;
            }
        }
        has_moved
    }

    /// The recording ends: with `drain`, what has come is taken, and what is missing is lost.
    pub(in super::super) fn finish_raw(&mut self, now: Instant, recorder: &mut RawRecorder, drain: bool) {
        let turns = if drain { TURNS_AT_END } else { 0 };
        let _ = (0..turns).find(|_| self.receive_raw(now, recorder) == 0);
        let when = real_time().nanos;
        if let Some(loss) = self.dropped_behind() {
            miss(recorder, loss, when, Place::Socket);
        }
        let missing = self.ledger.finish();
        if missing.packets > 0 {
            miss(recorder, missing, when, Place::Wire);
        }
    }

    /// Receives once. A datagram that was counted as lost, or has come before, has no place any
    /// more, and is left out. Returns the number of datagrams.
    fn receive_raw(&mut self, now: Instant, recorder: &mut RawRecorder) -> usize {
        let slot = self.length;
        let mut spare = std::mem::take(&mut self.spare);
        spare.resize(slot * BATCH_MAX, 0);
        let arrived = self.batch.receive(&self.socket, &mut spare, 0, slot);
        let arrived = arrived.map(<[_]>::to_vec);
        self.failing.on_result(RECEIVING, &arrived);
        let arrived = arrived.unwrap_or_default();
        for (at, one) in arrived.iter().enumerate() {
            let (when, place) = (time_of(one.stamp).nanos, &spare[at * slot..(at + 1) * slot]);
            let long = (one.length > slot).then(|| self.whole(at, one, place));
            let bytes = long.as_deref().unwrap_or_else(|| &place[..one.length]);
            let losses = self.account(one, bytes);
            each(&losses).for_each(|(loss, place)| miss(recorder, loss, when, place));
            if !losses.is_old {
                put(recorder, now, bytes, when);
            }
        }
        self.spare = spare;
        self.length = arrived.iter().map(|one| one.length).fold(slot, usize::max);
        self.datagrams += arrived.len() as u64;
        if arrived.is_empty()
            && let Some(loss) = self.dropped_behind()
        {
            miss(recorder, loss, real_time().nanos, Place::Socket);
        }
        arrived.len()
    }
}
