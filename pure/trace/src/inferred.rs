//! Commands inferred from the sizes and addresses of a device's packets, if its queues are unknown.
//!
//! A device writes the data of a read to the host, and reads the data of a write from the host.
//! Both move through memory in order, a page at a time. So a run of packets of one kind belongs to
//! one command as long as each packet begins where the last one ended, or at the start of another
//! page after the last one ended its page. A completion queue entry is a write of 16 bytes, and a
//! submission queue entry is a read of 64 bytes at a multiple of 64: neither is data.

use engine::{Instant, Nanos};
use pcie::wire::{Bdf, Kind as PacketKind};

use super::command::{Command, Kind, Step};
use super::seen::{Direction, Seen};

/// Bytes of a page, within which data are contiguous.
const PAGE: u64 = 4096;
/// A device that pauses for longer has begun another command.
const PAUSE_MAX: Nanos = Nanos::from_millis(10);
/// Bytes of a completion queue entry.
const COMPLETION_BYTES: u32 = 16;
/// Bytes of a submission queue entry.
const ENTRY_BYTES: u32 = 64;
/// Maximum number of devices whose runs are followed.
const DEVICES_MAX: usize = 256;

/// The run of a device's packets.
struct Run {
    device: Bdf,
    command: Command,
    /// Where the last packet ended.
    next: u64,
    last: Instant,
    /// Number of bytes that the device has requested and that have not arrived.
    awaited: u64,
}

/// The runs of all devices.
#[derive(Default)]
pub struct Inferred {
    runs: alloc::vec::Vec<Run>,
    dropped: u64,
    /// Whether commands remember their packets.
    remembers: bool,
}

impl core::fmt::Debug for Inferred {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Inferred").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl Inferred {
    /// From now on, commands remember their packets.
    pub(crate) const fn remember(&mut self) {
        self.remembers = true;
    }

    /// Shows a packet. Returns whether it fits a command, and the command that ended before it.
    pub fn see(&mut self, seen: &Seen<'_>) -> (bool, Option<Command>) {
        if let PacketKind::Completion(completion) = seen.header.kind {
            return (self.arrive(seen, completion.requester), None);
        }
        if seen.direction != Direction::Up {
            return (false, None);
        }
        let device = seen.header.requester();
        match (seen.write(), seen.read()) {
            (Some((_, COMPLETION_BYTES)), _) => {
                let run = self.runs.iter().position(|run| run.device == device);
                let Some(mut run) = run.map(|index| self.runs.swap_remove(index)) else {
                    return (false, None);
                };
                run.command.step(seen.mark(), Step::Completion);
                (true, Some(run.command))
            }
            (_, Some((address, ENTRY_BYTES))) if address.is_multiple_of(u64::from(ENTRY_BYTES)) => {
                (false, None)
            }
            (Some((address, bytes)), _) if bytes > COMPLETION_BYTES => {
                self.data(seen, device, Kind::InferredRead, (address, bytes))
            }
            (_, Some((address, bytes))) => self.data(seen, device, Kind::InferredWrite, (address, bytes)),
            _ => (false, None),
        }
    }

    fn data(
        &mut self,
        seen: &Seen<'_>,
        device: Bdf,
        kind: Kind,
        (address, bytes): (u64, u32),
    ) -> (bool, Option<Command>) {
        let end = address.wrapping_add(u64::from(bytes));
        let goes_on = |run: &Run| {
            let follows = address == run.next;
            let next_page = run.next.is_multiple_of(PAGE) && address.is_multiple_of(PAGE);
            run.command.kind == kind && (follows || next_page) && seen.at - run.last <= PAUSE_MAX
        };
        let index = self.runs.iter().position(|run| run.device == device);
        let mut ended = None;
        let index = match index {
            Some(index) if goes_on(&self.runs[index]) => index,
            found => {
                ended = found.map(|index| self.runs.swap_remove(index).command);
                if self.runs.len() >= DEVICES_MAX {
                    self.dropped += 1;
                    return (false, ended);
                }
                let command = Command::new(kind).remembering(self.remembers);
                self.runs.push(Run { device, command, next: address, last: seen.at, awaited: 0 });
                self.runs.len() - 1
            }
        };
        let run = &mut self.runs[index];
        run.command.step(seen.mark(), Step::Data);
        run.command.bytes += u64::from(bytes);
        if kind == Kind::InferredWrite {
            run.awaited += u64::from(bytes);
        }
        (run.next, run.last) = (end, seen.at);
        (true, ended)
    }

    /// Counts a completion of data that a device has requested.
    fn arrive(&mut self, seen: &Seen<'_>, device: Bdf) -> bool {
        let Some(run) = self.runs.iter_mut().find(|run| run.device == device && run.awaited > 0) else {
            return false;
        };
        run.awaited = run.awaited.saturating_sub(u64::from(seen.header.length) * 4);
        run.command.step(seen.mark(), Step::DataArrived);
        run.last = seen.at;
        true
    }

    /// The commands whose runs ended with the capture.
    pub fn finish(&mut self) -> impl Iterator<Item = Command> {
        core::mem::take(&mut self.runs).into_iter().map(|run| run.command)
    }

    /// The number of packets without room.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}
