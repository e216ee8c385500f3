//! The functions below one port, and unanswered writes to them.

use alloc::vec::Vec;

use pcie::wire::{
    AddressType, Bdf, Completion, CompletionStatus, ConfigRequest, ConfigType, Kind, MemoryOperation, Packet,
    Tag,
};

use super::function::{Effect, Function};
use super::patience::Patience;
use crate::frame::Registers;

/// The most writes that may wait for their answers. With more, nothing is known of the function any
/// more.
const WRITES_MAX: usize = 64;
/// The most double words that are answered at once: CAP and VS.
const DWORDS_MAX: u16 = 3;

/// The contents of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// The function that answers.
    pub(super) id: Bdf,
    /// Double words of the answer, from the first on.
    pub(super) values: [u32; 3],
}

/// A configuration write that has not been answered.
#[derive(Debug)]
struct Write {
    requester: Bdf,
    tag: Tag,
    target: Bdf,
    offset: u16,
    enables: u8,
    value: u32,
    effect: Effect,
}

/// The functions below a port, and unanswered writes to them.
#[derive(Debug)]
pub(super) struct Port {
    answers: bool,
    functions: Vec<Function>,
    writes: Vec<Write>,
    pub(super) patience: Patience,
}

impl Port {
    pub(super) fn new(answers: bool) -> Self {
        Self { answers, functions: Vec::new(), writes: Vec::new(), patience: Patience::default() }
    }

    pub(super) const fn answers(&self) -> bool {
        self.answers
    }
    /// The completer that a function answers as.
    pub(super) fn id(&self, function: u8) -> Bdf {
        self.function(function).map_or(Bdf::default(), |function| function.id)
    }

    pub(super) fn forget(&mut self) {
        self.functions.clear();
        self.writes.clear();
        self.patience.reset();
    }

    fn function(&self, number: u8) -> Option<&Function> {
        self.functions.iter().find(|function| function.number == number)
    }
    fn function_mut(&mut self, number: u8) -> &mut Function {
        match self.functions.iter().position(|function| function.number == number) {
            Some(index) => &mut self.functions[index],
            None => {
                // A device has eight functions.
                self.functions.push(Function::new(number));
                self.functions.last_mut().expect("one was pushed")
            }
        }
    }

    pub(super) fn on_registers(&mut self, registers: Registers) {
        if self.answers {
            self.function_mut(registers.function).show(registers);
        }
    }

    /// Notes a request that goes down. An earlier write with the same name will not be answered any
    /// more.
    pub(super) fn on_request(&mut self, packet: &Packet) {
        let name = (packet.requester(), packet.tag());
        self.patience.forget(name.0, name.1);
        if let Some(index) = self.writes.iter().position(|write| (write.requester, write.tag) == name) {
            let write = self.writes.remove(index);
            self.doubt(&write);
        }
    }

    fn doubt(&mut self, write: &Write) {
        let function = self.function_mut(write.target.function());
        match write.effect {
            Effect::Register => function.doubt(write.offset),
            Effect::Anything | Effect::Reset => function.forget(),
        }
    }

    /// Notes a configuration write that goes down.
    pub(super) fn on_write(&mut self, packet: &Packet, request: &ConfigRequest) {
        if !self.answers || request.routing != ConfigType::Type0 {
            return;
        }
        self.on_request(packet);
        let value = packet.payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let full = self.writes.len() == WRITES_MAX;
        let ConfigRequest { requester, tag, target, offset, enables, .. } = *request;
        let function = self.function_mut(target.function());
        let effect = function.effect(offset, enables, value);
        let resets = function.resets(offset, enables, value);
        if effect == Effect::Reset || full {
            function.forget();
            // The reset undoes earlier writes.
            let same = |write: &&mut Write| write.target.function() == target.function();
            self.writes.iter_mut().filter(same).for_each(|write| write.effect = Effect::Reset);
        }
        self.patience.on_request(request, resets);
        if !full {
            self.writes.push(Write { requester, tag, target, offset, enables, value, effect });
        }
    }

    /// Notes a read of configuration space that goes to the far end.
    pub(super) fn on_far_read(&mut self, request: &ConfigRequest) {
        if self.answers {
            self.patience.on_request(request, false);
        }
    }

    /// Handles an answer that comes up.
    #[inline]
    pub(super) fn on_completion(&mut self, completion: &Completion) {
        self.patience.on_completion(completion);
        if self.writes.is_empty() {
            return;
        }
        let name = (completion.requester, completion.tag);
        let Some(index) = self.writes.iter().position(|write| (write.requester, write.tag) == name) else {
            return;
        };
        let write = self.writes.remove(index);
        match completion.status {
            CompletionStatus::Success => {
                let function = self.function_mut(write.target.function());
                function.id = write.target;
                if write.effect != Effect::Reset {
                    function.on_written(write.offset, write.enables, write.value);
                }
            }
            // The device did not execute the write.
            CompletionStatus::ConfigRequestRetry => {}
            _ => self.doubt(&write),
        }
    }

    /// Whether a pending write to `function` may change the double word at `offset`, or any double
    /// word without an `offset`, or the completer that the function answers as.
    fn is_changing(&self, function: &Function, offset: Option<u16>) -> bool {
        self.writes.iter().any(|write| {
            let here = write.effect != Effect::Register
                || write.target != function.id
                || offset.is_none_or(|offset| offset == write.offset);
            write.target.function() == function.number && here
        })
    }

    /// The answer to a read of configuration space, if it is known.
    pub(super) fn read(&self, packet: &Packet, request: &ConfigRequest) -> Option<Answer> {
        let function = self.function(request.target.function())?;
        let direct = request.routing == ConfigType::Type0 && is_simple(packet);
        if !direct || self.is_changing(function, Some(request.offset)) {
            return None;
        }
        let value = function.read(request.offset, request.enables)?;
        Some(Answer { id: function.id, values: [value, 0, 0] })
    }

    /// The answer to a read of memory that holds known properties.
    pub(super) fn read_properties(&self, packet: &Packet) -> Option<Answer> {
        let Kind::Memory(request) = &packet.header.kind else { return None };
        let (address, length) = (request.address, packet.header.length);
        let whole = request.operation == MemoryOperation::Read
            && length <= DWORDS_MAX
            && is_simple(packet)
            && packet.header.byte_length() > 0;
        if !whole {
            return None;
        }
        let mut claims = self.functions.iter().map(|function| Some((function, function.find(address)?)));
        // Exactly one BAR must have the address.
        let (mut found, mut total) = (None, 0);
        for claim in &mut claims {
            let (function, (count, offset)) = claim?;
            total += count;
            found = found.or(offset.map(|offset| (function, offset)));
        }
        let (function, offset) = found.filter(|_| total == 1)?;
        if self.is_changing(function, None) {
            return None;
        }
        let values = function.properties(offset, length)?;
        Some(Answer { id: function.id, values })
    }
}

/// Whether a request has no attribute that only the device can interpret.
fn is_simple(packet: &Packet) -> bool {
    let traits = packet.header.traits;
    !traits.is_poisoned()
        && !traits.is_hinted()
        && traits.address_type() == AddressType::Untranslated
        && packet.digest.is_none()
        && packet.prefixes == pcie::wire::Prefixes::default()
}
