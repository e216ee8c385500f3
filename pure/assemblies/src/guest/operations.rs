//! The client's requests: to the configuration space, to registers and memory, to interrupts, and
//! for a reset.

use alloc::vec::Vec;

use engine::{Buffer, Instant};
use pcie::requester::RequestError;
use vfio_user::server::{self, InterruptAction, InterruptData, Token};
use vfio_user::{Errno, InterruptIndex, RegionIndex};

use super::access::{Operation, Purpose};
use super::function::{NAME_SHIFT, NUMBER_MASK, SCRIPT};
use super::hot_plug::hide_capabilities;
use super::{Event, Guest, Output, Phase, setup};

/// The answers of an absent function.
const ALL_ONES: u8 = 0xff;
/// Bytes of a double word.
const DWORD: u64 = 4;

impl<D: 'static> Guest<D> {
    pub(super) fn on_server(&mut self, output: server::Output<D>) {
        use server::Output as From;
        match output {
            From::Transmit { bytes, shared } => self.outputs.push_back(Output::Reply { bytes, shared }),
            From::Negotiated(agreed) => self.event(Event::Client(agreed)),
            From::Map { token, map, descriptor } => {
                self.statistics.maps += 1;
                match descriptor {
                    Some(descriptor) => {
                        self.outputs.push_back(Output::Map { token, map, descriptor });
                    }
                    None => {
                        self.by_message.add(map.address, map.length);
                        self.map_done(token, Ok(()));
                    }
                }
            }
            From::Unmap { token, address, length } => {
                if !self.by_message.remove(address, length) {
                    self.outputs.push_back(Output::Unmap { address, length });
                }
                // Outputs are carried out in order, so the reply leaves after the memory is no
                // longer used.
                if let (Some(token), Some(server)) = (token, &mut self.server) {
                    server.unmap_done(token);
                }
            }
            From::RegionRead { token, region, offset, length } => {
                self.accesses.push(self.now, Operation::Read { token, region, offset, length });
            }
            From::RegionWrite { token, region, offset, data } => {
                self.accesses.push(self.now, Operation::Write { token, region, offset, data });
            }
            From::Reset { token } => self.accesses.push(self.now, Operation::Reset { token }),
            From::SetInterrupts { index, action, start, count, data } => {
                self.on_interrupts(index, action, start, count, data);
            }
            From::DmaData { cookie, offset, data, last } => {
                let answer = self.by_message.on_data(cookie, offset, &data, last, &mut self.pool);
                self.on_answer(answer);
            }
            From::DmaWritten { cookie } => {
                let answer = self.by_message.on_end(cookie);
                self.on_answer(answer);
            }
            From::DmaFailed { cookie, .. } => {
                let answer = self.by_message.on_end(cookie);
                self.on_answer(answer);
            }
            From::Close { reason } => {
                self.outputs.push_back(Output::CloseClient);
                self.on_client_gone(Some(reason));
            }
        }
    }

    fn on_interrupts(
        &mut self,
        index: InterruptIndex,
        action: InterruptAction,
        start: u32,
        count: u32,
        data: InterruptData<D>,
    ) {
        // Descriptors for other interrupt kinds are dropped here, which closes them: nothing is
        // ever signalled by them.
        let is_msix = index == InterruptIndex::Msix && !self.config.hot_plug;
        let Some(slot) = self.slot.as_mut().filter(|_| is_msix) else { return };
        let vectors = &mut slot.vectors;
        let all = vectors.count();
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(all);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(all - start);
        match (action, data) {
            (InterruptAction::Trigger, InterruptData::Descriptors(descriptors))
                if !descriptors.is_empty() =>
            {
                for (vector, descriptor) in (start..start + count).zip(descriptors) {
                    self.outputs.push_back(Output::Vector { vector, descriptor: Some(descriptor) });
                    if vectors.want(vector, true) {
                        self.statistics.signals += 1;
                        self.outputs.push_back(Output::Signal { vector });
                    }
                }
            }
            (InterruptAction::Trigger, InterruptData::Descriptors(_)) => {
                (start..start + count).for_each(|vector| Self::forget(vectors, &mut self.outputs, vector));
            }
            (InterruptAction::Trigger, InterruptData::None) if count == 0 => {
                (0..all).for_each(|vector| Self::forget(vectors, &mut self.outputs, vector));
            }
            (InterruptAction::Trigger, data) => {
                let chosen = |vector: usize| match &data {
                    InterruptData::Bools(bools) => bools.get(vector - start).copied().unwrap_or(false),
                    InterruptData::None | InterruptData::Descriptors(_) => true,
                };
                for vector in (start..start + count).filter(|vector| chosen(*vector)) {
                    if vectors.is_wanted(vector) {
                        self.statistics.signals += 1;
                        self.outputs.push_back(Output::Signal { vector });
                    }
                }
            }
            // Vectors are masked in the MSI-X table, which monitors keep themselves.
            (InterruptAction::Mask | InterruptAction::Unmask, _) => {}
        }
    }

    fn forget(
        vectors: &mut super::interrupts::Vectors,
        outputs: &mut alloc::collections::VecDeque<Output<D>>,
        vector: usize,
    ) {
        if vectors.is_wanted(vector) {
            vectors.want(vector, false);
            outputs.push_back(Output::Vector { vector, descriptor: None });
        }
    }

    /// Begins the client's waiting operations as far as possible. Returns whether any was begun.
    pub(super) fn run_operations(&mut self) -> bool {
        let mut done = false;
        while self.accesses.is_waiting() {
            match self.phase {
                Phase::Present if !self.accesses.may_begin(self.requests) => return done,
                Phase::Present => {
                    let Some(operation) = self.accesses.pop() else { return done };
                    self.begin(operation);
                }
                // A script that sets up or resets the function must be alone with it.
                Phase::Scripted(..) | Phase::Enumerating => return done,
                Phase::Absent | Phase::Empty => {
                    let Some(operation) = self.accesses.pop() else { return done };
                    self.refuse(operation);
                }
            }
            done = true;
        }
        done
    }

    fn begin(&mut self, operation: Operation) {
        match operation {
            Operation::Read { token, region: RegionIndex::CONFIG, offset, length } => {
                self.statistics.config_accesses += 1;
                self.read_config(token, offset, length);
            }
            Operation::Read { token, region, offset, length } => {
                self.statistics.bar_accesses += 1;
                self.read_memory(token, region, offset, length);
            }
            Operation::Write { token, region: RegionIndex::CONFIG, offset, data } => {
                self.statistics.config_accesses += 1;
                self.write_config(token, offset, &data);
            }
            Operation::Write { token, region, offset, data } => {
                self.statistics.bar_accesses += 1;
                self.write_memory(region, offset, &data);
                self.write_done(token, Ok(()));
            }
            Operation::Reset { token } => {
                self.event(Event::Reset);
                self.start_reset(Some(token));
            }
        }
    }

    fn read_config(&mut self, token: Token, offset: u64, length: u32) {
        let Some(slot) = &self.slot else { return };
        let length = usize::try_from(length).expect("32 bits fit");
        let mut bytes = self.pool.take(length);
        let dwords = dwords_of(offset, length);
        let mut live = 0;
        for index in dwords.clone() {
            place(&mut bytes, offset, index, slot.shadow.recall(index));
            live += usize::from(slot.shadow.read(index).is_none());
        }
        if live == 0 {
            return self.end(Purpose::Read { token, region: RegionIndex::CONFIG, offset, bytes });
        }
        let missing = u32::try_from(live).expect("a configuration space has 1024 double words");
        let region = RegionIndex::CONFIG;
        let purpose = Purpose::Read { token, region, offset, bytes };
        let name = self.accesses.start(self.now, missing, purpose);
        self.statistics.waited += 1;
        self.requests += live;
        let bdf = slot.target.function.bdf;
        for index in dwords.filter(|index| slot.shadow.read(*index).is_none()) {
            let cookie = name << NAME_SHIFT | index as u64;
            let register = u16::try_from(index * 4).expect("a configuration space has 4096 bytes");
            let sent = self.port.root_mut().config_read(self.now, cookie, bdf, register);
            sent.expect("accesses have their share of the requests");
        }
    }

    fn write_config(&mut self, token: Option<Token>, offset: u64, data: &Buffer) {
        let Some(slot) = &mut self.slot else { return };
        let (mut reset, mut forwards, mut due) = (false, Vec::new(), Vec::new());
        for index in dwords_of(offset, data.len()) {
            let (enables, value) = lanes(offset, data, index);
            let effect = slot.shadow.write(index, enables, value);
            let register = u16::try_from(index * 4).expect("a configuration space has 4096 bytes");
            if let Some((enables, value)) = effect.forward {
                forwards.push(setup::RegisterWrite { offset: register, enables, value });
            }
            if effect.bus_master_changed {
                forwards.push(setup::command(slot.shadow.bus_master()));
            }
            due.extend(slot.follow_table());
            if effect.msix_changed {
                slot.vectors.set_enabled(slot.shadow.msix_enabled());
            }
            reset |= effect.reset;
        }
        if reset {
            // The guest itself waits after a reset. Its next accesses are done when the function is
            // back.
            self.write_done(token, Ok(()));
            self.event(Event::Reset);
            return self.start_reset(None);
        }
        let bdf = slot.target.function.bdf;
        due.into_iter().for_each(|vector| self.signal(vector));
        if forwards.is_empty() {
            return self.write_done(token, Ok(()));
        }
        let missing = u32::try_from(forwards.len()).expect("a configuration space has 1024 double words");
        self.statistics.waited += u64::from(token.is_some());
        let name = self.accesses.start(self.now, missing, Purpose::Write { token });
        self.requests += forwards.len();
        for write in forwards {
            let setup::RegisterWrite { offset, enables, value } = write;
            let sent =
                self.port.root_mut().config_write(self.now, name << NAME_SHIFT, bdf, offset, enables, value);
            sent.expect("accesses have their share of the requests");
        }
    }

    fn read_memory(&mut self, token: Token, region: RegionIndex, offset: u64, length: u32) {
        let Some(slot) = &self.slot else { return };
        let mut bytes = self.pool.take(usize::try_from(length).expect("32 bits fit"));
        let table = slot.table.as_ref().filter(|table| table.overlaps(region, offset, bytes.len()));
        match (slot.address(region).filter(|_| !slot.shadow.is_asleep()), table) {
            (Some(_), Some(table)) => {
                table.read(offset, &mut bytes);
                self.read_done(token, &bytes);
            }
            (Some(base), None) => {
                bytes.fill(ALL_ONES);
                let known = slot.remembered.as_ref();
                let known = known.is_some_and(|known| known.recall(region, offset, &mut bytes));
                if known && self.held {
                    return self.read_done(token, &bytes);
                }
                let purpose = Purpose::Read { token, region, offset, bytes };
                let name = self.accesses.start(self.now, 1, purpose);
                self.statistics.waited += 1;
                self.requests += 1;
                let sent = self.port.root_mut().read(self.now, name << NAME_SHIFT, base + offset, length);
                sent.expect("accesses have their share of the requests");
            }
            (None, _) => {
                bytes.fill(ALL_ONES);
                self.read_done(token, &bytes);
            }
        }
    }

    pub(super) fn write_memory(&mut self, region: RegionIndex, offset: u64, data: &Buffer) {
        let Some(slot) = &mut self.slot else { return };
        let Some(base) = slot.address(region).filter(|_| !slot.shadow.is_asleep()) else { return };
        match slot.table.as_mut().filter(|table| table.overlaps(region, offset, data.len())) {
            Some(table) => {
                table.write(offset, data);
                let due = slot.follow_table();
                due.into_iter().for_each(|vector| self.signal(vector));
            }
            None => {
                self.port.root_mut().write(base + offset, data);
                if let Some(remembered) = &mut slot.remembered {
                    remembered.on_write(region, offset, data);
                }
            }
        }
    }

    /// An answer to an access has come from the function.
    pub(super) fn on_register(&mut self, cookie: u64, result: Result<u32, RequestError>) {
        if cookie & SCRIPT != 0 {
            return self.on_script_answer(cookie, result);
        }
        self.requests -= 1;
        let name = cookie >> NAME_SHIFT;
        let index = usize::try_from(cookie & NUMBER_MASK).expect("a few bits");
        if let (Some((offset, bytes)), Some(slot)) = (self.accesses.bytes(name), &mut self.slot) {
            place(bytes, offset, index, slot.shadow.merge(index, result.ok()));
        }
        self.on_answered(name, result.is_ok());
    }

    /// Bytes of the function's registers or memory have come, or will not come.
    pub(super) fn on_data(&mut self, cookie: u64, data: Option<(u32, Buffer)>, last: bool) {
        self.requests -= usize::from(last);
        let name = cookie >> NAME_SHIFT;
        let answered = data.is_some();
        if let Some((_, bytes)) = self.accesses.bytes(name) {
            match data {
                Some((offset, data)) => {
                    let offset = usize::try_from(offset).expect("32 bits fit");
                    bytes[offset..offset + data.len()].copy_from_slice(&data);
                }
                None => bytes.fill(ALL_ONES),
            }
        }
        if last {
            self.on_answered(name, answered);
        }
    }

    fn on_answered(&mut self, name: u64, well: bool) {
        let Some(purpose) = self.accesses.answered(name) else { return };
        if let Purpose::Read { region, offset, bytes, .. } = &purpose
            && well
            && let Some(remembered) = self.slot.as_mut().and_then(|slot| slot.remembered.as_mut())
        {
            remembered.on_read(*region, *offset, bytes);
        }
        self.end(purpose);
    }

    fn end(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Read { token, region, offset, mut bytes } => {
                if self.config.hot_plug && region == RegionIndex::CONFIG {
                    hide_capabilities(offset, &mut bytes);
                }
                self.read_done(token, &bytes);
            }
            Purpose::Write { token } => self.write_done(token, Ok(())),
        }
    }

    /// Ends an access to a function that is gone, as a root complex does: reads return all ones.
    fn end_gone(&mut self, mut purpose: Purpose) {
        if let Purpose::Read { bytes, .. } = &mut purpose {
            bytes.fill(ALL_ONES);
        }
        self.end(purpose);
    }

    /// Answers an operation on a function that is absent.
    fn refuse(&mut self, operation: Operation) {
        match operation {
            Operation::Read { token, region, offset, length } => {
                let mut bytes = self.pool.take(usize::try_from(length).expect("32 bits fit"));
                match (&self.phase, region) {
                    (Phase::Empty, RegionIndex::CONFIG) => super::timeouts::nothing(offset, &mut bytes),
                    _ => bytes.fill(ALL_ONES),
                }
                self.read_done(token, &bytes);
            }
            Operation::Write { token, .. } => self.write_done(token, Ok(())),
            Operation::Reset { token } => self.reset_done(token, Ok(())),
        }
    }

    /// The function is gone: ends the accesses under way. Waiting operations are answered in their
    /// turn.
    pub(super) fn fail_accesses(&mut self) {
        while let Some(purpose) = self.accesses.give_up(self.now) {
            self.end_gone(purpose);
        }
    }

    /// Ends accesses that were asked for at or before `since`.
    pub(super) fn give_up_accesses(&mut self, since: Instant) {
        while let Some(purpose) = self.accesses.give_up(since) {
            self.statistics.given_up += 1;
            self.end(purpose);
        }
        while let Some(operation) = self.accesses.give_up_waiting(since) {
            self.statistics.given_up += 1;
            self.refuse(operation);
        }
    }

    fn read_done(&mut self, token: Token, bytes: &[u8]) {
        if let Some(server) = &mut self.server {
            server.read_done(token, Ok(bytes));
        }
    }
    fn write_done(&mut self, token: Option<Token>, result: Result<(), Errno>) {
        if let (Some(token), Some(server)) = (token, &mut self.server) {
            server.write_done(token, result);
        }
    }
}

/// The double words that an access touches.
fn dwords_of(offset: u64, length: usize) -> core::ops::Range<usize> {
    let first = offset / DWORD;
    let end = (offset + length as u64).div_ceil(DWORD);
    let index = |dword| usize::try_from(dword).unwrap_or(usize::MAX);
    index(first)..index(end)
}

/// Copies those bytes of double word `index` that belong to an access at `offset` into `bytes`.
fn place(bytes: &mut [u8], offset: u64, index: usize, value: u32) {
    for (at, byte) in (index as u64 * DWORD..).zip(value.to_le_bytes()) {
        let position = at.checked_sub(offset).and_then(|position| usize::try_from(position).ok());
        if let Some(place) = position.and_then(|position| bytes.get_mut(position)) {
            *place = byte;
        }
    }
}

/// The part of a write of `data` at `offset` that goes to double word `index`: byte enables and
/// value.
fn lanes(offset: u64, data: &[u8], index: usize) -> (u8, u32) {
    let mut bytes = [0; 4];
    let mut enables = 0;
    for (lane, at) in (index as u64 * DWORD..).take(4).enumerate() {
        let position = at.checked_sub(offset).and_then(|position| usize::try_from(position).ok());
        if let Some(byte) = position.and_then(|position| data.get(position)) {
            bytes[lane] = *byte;
            enables |= 1 << lane;
        }
    }
    (enables, u32::from_le_bytes(bytes))
}
