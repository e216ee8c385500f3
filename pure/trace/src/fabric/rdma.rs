//! The meaning of RDMA messages for commands: capsules are Sends, data pass by keys of the host's
//! memory that entries have named (NVMe RDMA Transport Specification 1.0).

use alloc::collections::{BTreeMap, VecDeque};

use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};

use super::{COMMANDS_MAX, Event};
use crate::seen::Mark;

/// The type of a descriptor of data with a key, in the upper half of its last byte.
const KEYED: u64 = 4;

/// A message, or a part of one, that is whole.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// A command capsule with `bytes` bytes of data.
    Command { entry: SubmissionQueueEntry, bytes: u64 },
    /// A response capsule.
    Completion(CompletionQueueEntry),
    /// Data are written to the memory that a key names.
    Write { key: u32, bytes: u32 },
    /// A request for data: from the memory that `key` names, to the key and address of `sink`.
    Read { key: u32, sink: (u32, u64), bytes: u32 },
    /// Requested data.
    Response { key: u32, address: u64, bytes: u32 },
    /// Something else, or the rest of a Send.
    Other,
}

impl Message {
    /// The message of a Send of `bytes` bytes, of which `payload` is the beginning.
    pub(super) fn sent(payload: &[u8], bytes: u32) -> Self {
        const COMMAND: u32 = 64;
        const RESPONSE: u32 = 16;
        const _: () = assert!(SubmissionQueueEntry::LENGTH == 64 && CompletionQueueEntry::LENGTH == 16);
        match (bytes, payload.first_chunk(), payload.first_chunk()) {
            (RESPONSE, _, Some(entry)) => Self::Completion(CompletionQueueEntry::parse(entry)),
            (COMMAND.., Some(entry), _) => {
                let entry = SubmissionQueueEntry::parse(entry);
                Self::Command { entry, bytes: u64::from(bytes - COMMAND) }
            }
            _ => Self::Other,
        }
    }
}

/// The keys and reads of a connection.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The command whose data a key names.
    commands: BTreeMap<u32, u16>,
    /// Outstanding reads: the sink's key and first address, bytes, and the command.
    reads: VecDeque<(u32, u64, u32, u16)>,
}

impl Keys {
    /// Whether a command's data are named by this key.
    pub(super) fn has(&self, key: u32) -> bool {
        self.commands.contains_key(&key)
    }

    /// The meaning of a message that passed from `begun` to `ended`; none if its command is
    /// unknown.
    pub(super) fn event(&mut self, message: Message, begun: Mark, ended: Mark) -> Option<Event> {
        Some(match message {
            Message::Other => Event::Nothing,
            Message::Command { entry, bytes } => {
                let [_, second] = entry.data_pointer;
                // The key is in bytes 11 to 14 of the descriptor.
                let key = u32::try_from(second >> 24 & u64::from(u32::MAX)).unwrap_or(0);
                if second >> 60 == KEYED && self.commands.len() < COMMANDS_MAX {
                    self.commands.insert(key, entry.command_id.0);
                }
                Event::Begins { entry, bytes, begun, ended }
            }
            Message::Completion(entry) => {
                let id = entry.command_id.0;
                self.commands.retain(|_, of| *of != id);
                self.reads.retain(|(.., of)| *of != id);
                Event::Ends { entry, at: ended }
            }
            Message::Write { key, bytes } => {
                let id = *self.commands.get(&key)?;
                Event::Data { id, is_sent: false, bytes: bytes.into(), begun, ended, completes: false }
            }
            Message::Read { key, sink: (sink, address), bytes } => {
                let id = *self.commands.get(&key)?;
                if self.reads.len() >= COMMANDS_MAX {
                    self.reads.pop_front();
                }
                self.reads.push_back((sink, address, bytes, id));
                Event::Asks { id, at: ended }
            }
            Message::Response { key, address, bytes } => {
                let holds = |(sink, first, length, _): &&(u32, u64, u32, u16)| {
                    *sink == key && (*first..first.saturating_add(u64::from(*length))).contains(&address)
                };
                let (.., id) = *self.reads.iter().rev().find(holds)?;
                Event::Data { id, is_sent: true, bytes: bytes.into(), begun, ended, completes: false }
            }
        })
    }
}
