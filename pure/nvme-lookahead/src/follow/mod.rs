//! Follows the NVMe functions below one port: their registers, queues, namespaces and interrupts,
//! learnt from passing packets.
//!
//! Lookahead and the [DMA rule](crate::dma) share this state. State that only one of them needs is
//! not here.

pub(crate) mod controller;
pub(crate) mod function;
pub(crate) mod layout;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pcie::wire::{Bdf, Kind, MemoryOperation, Packet, Tag};

use controller::{Ended, SubmissionQueue};
use function::{BUFFER_LOCATION, BUS_MASTER, CAPABILITIES_HIGH, CLASS, COMMAND, Function, STATUS, Seen};

/// The most NVMe functions that are remembered.
const FUNCTIONS_MAX: usize = 16;
/// The most functions of other classes that are remembered.
const PLAIN_MAX: usize = 64;
/// Maximum number of reads by the host whose answers are awaited.
const QUESTIONS_MAX: usize = 64;

/// The meaning of a packet that goes down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Down {
    Nothing,
    /// Memory sent ahead for a function is obsolete.
    Forget(Bdf),
    /// A submission queue's doorbell, with the queue as it was before if lookahead can follow it.
    Doorbell {
        function: Bdf,
        queue: u16,
        tail: u32,
        before: Option<SubmissionQueue>,
    },
}

/// A read by the host whose answer is of use here, too.
#[derive(Clone, Copy, Debug)]
enum Question {
    Class,
    /// CAP, from this offset on.
    Capabilities(u64),
    /// Properties from this offset on, CSTS among them.
    Status(u64),
    /// Properties from this offset on, CMBLOC among them.
    MemoryBuffer(u64),
    /// A double word of the configuration space, with the requested bytes.
    Config(u16, u8),
}

#[derive(Debug)]
struct PendingRead {
    requester: Bdf,
    tag: Tag,
    function: Bdf,
    question: Question,
}

/// A function that is no NVMe controller.
#[derive(Debug)]
struct Plain {
    id: Bdf,
    bus_master: bool,
}

/// The known state of the functions below a port.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    pub(crate) functions: Vec<Function>,
    plain: Vec<Plain>,
    asked: VecDeque<PendingRead>,
}

impl Follower {
    #[inline]
    pub(crate) fn function(&mut self, id: Bdf) -> Option<&mut Function> {
        self.functions.iter_mut().find(|function| function.id == id)
    }

    /// Whether a function is known not to be an NVMe controller and is a bus master.
    pub(crate) fn is_plain_master(&self, id: Bdf) -> bool {
        self.plain.iter().any(|plain| plain.id == id && plain.bus_master)
    }

    /// Handles a reset of all functions.
    pub(crate) fn reset(&mut self) {
        self.functions.iter_mut().for_each(Function::reset);
        self.plain.iter_mut().for_each(|plain| plain.bus_master = false);
        self.asked.clear();
    }

    /// Examines a packet that goes down.
    pub(crate) fn on_down(&mut self, packet: &Packet) -> Down {
        let header = &packet.header;
        match &header.kind {
            Kind::Config(request) if request.write => {
                let value = packet.payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                let target = request.target;
                if request.offset == COMMAND
                    && request.enables & 1 != 0
                    && let Some(plain) = self.plain.iter_mut().find(|plain| plain.id == target)
                {
                    plain.bus_master = value & BUS_MASTER != 0;
                }
                match self.function(target).map(|function| function.on_config(request, value)) {
                    Some(Seen::Reset) => Down::Forget(target),
                    _ => Down::Nothing,
                }
            }
            Kind::Config(request) => {
                let (offset, enables, target) = (request.offset, request.enables, request.target);
                if offset == CLASS {
                    self.ask(request.requester, request.tag, target, Question::Class);
                } else if self.function(target).is_some_and(|function| function.layout.wants(offset)) {
                    self.ask(request.requester, request.tag, target, Question::Config(offset, enables));
                }
                Down::Nothing
            }
            Kind::Memory(request) => {
                if request.operation == MemoryOperation::Write {
                    self.on_interrupts(request.address, packet);
                }
                let below = self.functions.iter_mut().filter_map(|function| {
                    function.offset_of(request.address).map(|offset| (offset, function))
                });
                // The address belongs to the nearest function below it, if to any.
                let Some((offset, function)) = below.min_by_key(|(offset, _)| *offset) else {
                    return Down::Nothing;
                };
                let id = function.id;
                if request.operation == MemoryOperation::Write {
                    let offset = offset + u64::from(header.lead());
                    return match function.on_write(offset, packet.data_bytes()) {
                        Seen::Nothing => Down::Nothing,
                        Seen::Reset => Down::Forget(id),
                        Seen::Doorbell(queue, tail) => {
                            let before =
                                function.controller.as_mut().and_then(|known| known.ring(queue, tail));
                            Down::Doorbell { function: id, queue, tail, before }
                        }
                    };
                }
                let end = offset + u64::from(header.length) * 4;
                let reads = |at: u64| offset <= at && end >= at + 4;
                if reads(CAPABILITIES_HIGH) {
                    self.ask(request.requester, request.tag, id, Question::Capabilities(offset));
                } else if reads(BUFFER_LOCATION) {
                    self.ask(request.requester, request.tag, id, Question::MemoryBuffer(offset));
                } else if reads(STATUS) && function.is_closing() {
                    self.ask(request.requester, request.tag, id, Question::Status(offset));
                }
                Down::Nothing
            }
            _ => Down::Nothing,
        }
    }

    /// Notes a write to a table of interrupts.
    #[inline]
    fn on_interrupts(&mut self, address: u64, packet: &Packet) {
        for function in &mut self.functions {
            if function.layout.has_table_at(address) {
                function.layout.on_write(address + u64::from(packet.header.lead()), packet.data_bytes());
            }
        }
    }

    fn ask(&mut self, requester: Bdf, tag: Tag, function: Bdf, question: Question) {
        self.asked.retain(|asked| (asked.requester, asked.tag) != (requester, tag));
        if self.asked.len() == QUESTIONS_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(PendingRead { requester, tag, function, question });
    }

    /// Examines a packet that comes up, a write with its bytes. Passes every end to `ended`.
    #[inline]
    pub(crate) fn on_up(&mut self, packet: &Packet, bytes: &[u8], ended: &mut impl FnMut(Ended)) {
        match &packet.header.kind {
            Kind::Completion(completion) if !self.asked.is_empty() => {
                let (requester, tag) = (completion.requester, completion.tag);
                let found =
                    self.asked.iter().position(|asked| (asked.requester, asked.tag) == (requester, tag));
                if let Some(asked) = found.and_then(|index| self.asked.remove(index)) {
                    self.on_answer(&asked, &packet.payload);
                }
            }
            Kind::Memory(request) if request.operation == MemoryOperation::Write => {
                let function = self.function(request.requester);
                let Some(controller) = function.and_then(|function| function.controller.as_mut()) else {
                    return;
                };
                let address = request.address + u64::from(packet.header.lead());
                controller.on_write(address, bytes, ended);
            }
            _ => {}
        }
    }

    fn on_answer(&mut self, asked: &PendingRead, payload: &[u8]) {
        let dword = |at: u64| {
            let rest = usize::try_from(at).ok().and_then(|at| payload.get(at..))?;
            rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
        };
        let id = asked.function;
        match asked.question {
            Question::Class => {
                let Some(class) = dword(0) else { return };
                if !Function::is_nvme(class) {
                    self.functions.retain(|function| function.id != id);
                    if !self.plain.iter().any(|plain| plain.id == id) && self.plain.len() < PLAIN_MAX {
                        self.plain.push(Plain { id, bus_master: false });
                    }
                    return;
                }
                self.plain.retain(|plain| plain.id != id);
                if self.function(id).is_none() && self.functions.len() < FUNCTIONS_MAX {
                    self.functions.push(Function::new(id));
                }
            }
            Question::Capabilities(offset) => {
                if let (Some(high), Some(function)) = (dword(CAPABILITIES_HIGH - offset), self.function(id)) {
                    function.on_capabilities(high);
                }
            }
            Question::Status(offset) => {
                if let (Some(status), Some(function)) = (dword(STATUS - offset), self.function(id)) {
                    function.on_status(status);
                }
            }
            Question::MemoryBuffer(offset) => {
                if let (Some(value), Some(function)) = (dword(BUFFER_LOCATION - offset), self.function(id)) {
                    function.on_buffer_location(value);
                }
            }
            Question::Config(offset, enables) => {
                if let (Some(value), Some(function)) = (dword(0), self.function(id)) {
                    function.layout.on_answer(offset, enables, value);
                }
            }
        }
    }
}
