//! What hosts have seen of their commands, and what the health log counts.

use engine::Nanos;
use nvme::host::command;
use nvme::wire::log::LogPage;
use nvme::wire::{IoOpcode, NamespaceId, StatusCode};

use super::director::Step;
use super::{Pending, Sender, World};

/// Offsets in the health log.
const HOST_READS: usize = 64;
const HOST_WRITES: usize = 80;
const ERRORS: usize = 176;

/// What hosts have seen of their commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    reads: u64,
    writes: u64,
    errors: u64,
    pub(super) lost: u64,
    /// The reads, writes and errors that lanes had not reported when they were gone.
    unreported: [u64; 3],
}

impl Tally {
    pub(super) const fn new() -> Self {
        Self { reads: 0, writes: 0, errors: 0, lost: 0, unreported: [0; 3] }
    }

    /// Counts what the health log has to have.
    pub(super) fn count(&mut self, one: &Pending, code: StatusCode) {
        match (code, IoOpcode::from(one.entry.opcode)) {
            (StatusCode::SuccessfulCompletion, _) if one.sender == Sender::Director => (),
            (StatusCode::SuccessfulCompletion, IoOpcode::Read | IoOpcode::Compare) => self.reads += 1,
            (StatusCode::SuccessfulCompletion, IoOpcode::Write) => self.writes += 1,
            (StatusCode::SuccessfulCompletion, _) => (),
            _ => self.errors += 1,
        }
    }

    /// Notes that nothing will report these commands.
    pub(super) fn lose(&mut self, lost: &Self) {
        let counts = [lost.reads, lost.writes, lost.errors];
        self.unreported.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
}

impl World {
    /// Reads the health log.
    pub(super) fn read_health(&mut self, host: usize) {
        let Tally { reads, writes, errors, .. } = self.director.tally;
        self.director.seen_before = [reads, writes, errors];
        let entry = command::get_log_page(NamespaceId::ALL, LogPage::Smart.into(), 0, 512);
        self.take_step(Step::new(host, entry));
    }

    /// Compares the health log with what hosts had seen before it was asked for, and if nothing
    /// else is under way, with what they have seen at all.
    pub(super) fn check_health(&mut self, log: &[u8]) {
        let Some(log) = log.get(..512) else { return };
        let at = |offset: usize| u64::from_le_bytes(log[offset..offset + 8].try_into().expect("8 bytes"));
        let Tally { reads, writes, errors, lost, unreported } = self.director.tally;
        let counted = [at(HOST_READS), at(HOST_WRITES), at(ERRORS)];
        let (least, most) = (self.director.seen_before, [reads + lost, writes + lost, errors + lost]);
        let reported = counted.iter().zip(unreported).map(|(counted, lost)| *counted + lost);
        let too_few = reported.zip(least).any(|(reported, least)| reported < least);
        let too_many = counted.iter().zip(most).any(|(counted, most)| *counted > most);
        if too_few || self.pending.is_empty() && too_many {
            self.fail(format!("the health log counts {counted:?}, not {least:?} to {most:?}"));
        }
    }

    /// Reads the health log when nothing is under way.
    pub(super) fn verify_counts(&mut self) {
        self.read_health(0);
        let until = self.now + Nanos::from_secs(1);
        self.run_until(until, |world| !world.pending.is_empty());
    }
}
