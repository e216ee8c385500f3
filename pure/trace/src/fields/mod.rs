//! The fields of a network frame's content: PDUs of NVMe/TCP and frames of iWARP in a segment, the
//! headers of a datagram of RoCEv2.
//!
//! A segment is examined on its own, so a unit that began in the previous one is skipped: a chain
//! of PDUs or frames begins at the first byte, or where the wanted command is found.

mod chain;
mod frames;
mod packets;
mod pdus;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};

use crate::command::Step;
use crate::fabric::{Datagram, Segment};

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, with the abbreviation of its specification.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Which bytes have it, counted from the first one of the segment or datagram.
    pub place: Range<usize>,
}

/// A queue entry that a capsule carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A command.
    Submission(SubmissionQueueEntry),
    /// A response.
    Completion(CompletionQueueEntry),
}

/// The command of which something is looked for in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The part of it.
    pub step: Step,
    /// Its identifier (CID).
    pub id: u16,
}

/// The content of a segment or a datagram, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The fields of each PDU or frame, one after another.
    pub fields: Vec<Field>,
    /// The names of these, in their order, such as `C2HData`.
    pub names: Vec<&'static str>,
    /// The queue entry of the wanted command.
    pub entry: Option<Entry>,
    /// Number of PDUs or frames beyond the requested ones.
    pub untold: usize,
}

impl Held {
    fn field(&mut self, name: &'static str, value: impl ToString, place: Range<usize>) {
        self.fields.push(Field { name, value: value.to_string(), place });
    }
}

/// The content of a segment, up to `most` PDUs or frames; of the command `wanted`, if there is one.
pub fn of_segment(segment: &Segment<'_>, wanted: Option<Wanted>, most: usize) -> Held {
    let bytes = segment.bytes;
    let mut held = Held::default();
    let mut show = |starts: &[usize], describe: fn(&mut Held, &[u8], usize, Option<Wanted>)| {
        for start in starts.iter().take(most) {
            describe(&mut held, bytes, *start, wanted);
        }
        held.untold = starts.len().saturating_sub(most);
    };
    if let Some(starts) = chain::of::<pdus::Pdu>(bytes, wanted) {
        show(&starts, pdus::describe);
    } else if let Some(starts) = chain::of::<frames::Frame>(bytes, wanted) {
        show(&starts, frames::describe);
    }
    held
}

/// The content of a datagram; of the command `wanted`, if there is one.
pub fn of_datagram(datagram: &Datagram<'_>, wanted: Option<Wanted>) -> Held {
    let mut held = Held::default();
    packets::describe(&mut held, datagram.bytes, wanted);
    held
}

/// The queue entry that begins a message of RDMA, if it is that of the wanted command.
fn entry_of(payload: &[u8], wanted: Option<Wanted>) -> Option<Entry> {
    let Wanted { step, id } = wanted?;
    match step {
        Step::Capsule => {
            let entry = SubmissionQueueEntry::parse(payload.first_chunk()?);
            (entry.command_id.0 == id).then_some(Entry::Submission(entry))
        }
        Step::Completion => {
            let entry = CompletionQueueEntry::parse(payload.first_chunk()?);
            (entry.command_id.0 == id).then_some(Entry::Completion(entry))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
