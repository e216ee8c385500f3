//! The function below: found, set up, reset, gone and back.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Engine, Instant, Nanos, Step};
use pcie::config::{CONFIG_SPACE_SIZE, ClassCode};
use pcie::requester::RequestError;
use pcie::root_complex::{self, EnumerationError, Function, Space, Topology};
use vfio_user::server::{CloseReason, InterruptConfig, RegionConfig, Server, Token};
use vfio_user::{Area, Errno, InterruptIndex, RegionIndex, server};

use super::access::Table;
use super::event::{Event, Offer};
use super::interrupts::Vectors;
use super::remembered::Remembered;
use super::setup::{self, Answer, Ended, Question, RegisterWrite, Running, Steps, Target};
use super::shadow::Shadow;
use super::timeouts::was_late;
use super::{Config, Doorbells, Guest, Output, Phase, Timer};

/// How long to leave a function alone that could not be set up.
const RETRY: Nanos = Nanos::from_secs(1);
/// This bit marks the cookies of a script's requests. Cookies of accesses do not have it.
pub(super) const SCRIPT: u64 = 1 << 62;
/// Cookies: the name of the access or the script above this bit, the number of a double word below.
pub(super) const NAME_SHIFT: u32 = 12;
/// Cookies: the number of a double word.
pub(super) const NUMBER_MASK: u64 = (1 << NAME_SHIFT) - 1;
/// Bytes of the configuration space of a function without PCI Express.
const CONVENTIONAL_SIZE: u64 = 256;

/// Where NVMe controllers have their doorbells, and how many there can be in the page
/// that is offered.
const DOORBELLS: u64 = 0x1000;
const PAGE: u64 = 0x1000;
const DOORBELLS_MAX: u16 = 1024;

/// The purpose of a script.
#[derive(Debug)]
pub(super) enum Purpose {
    /// To set up this function, which enumeration has found.
    Find(Box<Function>),
    /// To reset the function. A client may wait for the reset: its token, and since when.
    Reset(Option<(Token, Instant)>),
}

impl Purpose {
    /// Since when a client waits for the end of the script.
    pub(super) fn since(&self) -> Option<Instant> {
        match self {
            Self::Reset(Some((_, since))) => Some(*since),
            _ => None,
        }
    }
}

/// The function that is offered, and the state that the guest has given it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) target: Target,
    pub(super) shadow: Shadow,
    pub(super) vectors: Vectors,
    pub(super) table: Option<Table>,
    /// The client does not know of MSI-X: interrupts are messages to the guest's addresses.
    pub(super) interrupts_by_message: bool,
    /// Last known registers of an NVMe controller; `None` for other functions.
    pub(super) remembered: Option<Remembered>,
    /// Another function that has taken the place of `target`. The client, which knows `target`, is
    /// no longer served.
    pub(super) replaced: Option<Target>,
}

impl Slot {
    fn new(target: Target, interrupts_by_message: bool) -> Self {
        let function = &target.function;
        Self {
            shadow: Shadow::new(function, &target.space),
            vectors: Vectors::new(vectors_of(function)),
            table: Table::of(function),
            interrupts_by_message,
            remembered: (function.class == ClassCode::NVME).then(Remembered::default),
            replaced: None,
            target,
        }
    }

    pub(super) fn offer(&self) -> Offer {
        offer(&self.target.function)
    }

    /// Address of region `index`, if the region is a BAR with an address.
    pub(super) fn address(&self, index: RegionIndex) -> Option<u64> {
        self.target.function.bar(u8::try_from(index.bar()?).ok()?)?.address
    }

    fn forget(&mut self) {
        self.remembered = self.remembered.take().map(|_| Remembered::default());
    }

    fn reset(&mut self) {
        self.forget();
        self.shadow.reset();
        self.vectors.reset();
        if self.interrupts_by_message {
            self.vectors = Vectors::new(vectors_of(&self.target.function));
        }
        if let Some(table) = &mut self.table {
            table.reset();
        }
    }
}

fn offer(function: &Function) -> Offer {
    let Function { bdf, vendor, device, class, .. } = *function;
    Offer { bdf, vendor, device, class, vectors: vectors_of(function) }
}

fn vectors_of(function: &Function) -> u16 {
    function.msix.map_or(0, |msix| msix.vectors)
}

/// The doorbells of `function`, if it is an NVMe controller and no other register lies in the
/// pages of its doorbells.
pub(super) fn doorbells_of(function: &Function) -> Option<Doorbells> {
    let bar = function.bar(0).filter(|bar| function.class == ClassCode::NVME && bar.address.is_some())?;
    let place = Doorbells { offset: DOORBELLS, length: PAGE, region_length: bar.size, count: DOORBELLS_MAX };
    let within = place.offset + place.length <= bar.size;
    // Clients must not write an MSI-X table in the same page.
    let apart = function.msix.is_none_or(|msix| {
        msix.table_bar != 0 || u64::from(msix.table_offset) >= place.offset + place.length
    });
    (within && apart).then_some(place)
}

/// A client's view of `function`.
fn server_config(function: &Function, settings: &Config) -> server::Config {
    let mut config = server::Config::default();
    for bar in &function.bars {
        if bar.address.is_some()
            && bar.space != Space::Io
            && let Some(region) = config.regions.get_mut(usize::from(bar.index))
        {
            *region = RegionConfig::new(bar.size);
        }
    }
    if let Some(place) = doorbells_of(function).filter(|_| settings.doorbells) {
        config.regions[0].areas = [Area { offset: place.offset, length: place.length }].into();
    }
    let express = function.express.is_some();
    let space = if express { u64::from(CONFIG_SPACE_SIZE) } else { CONVENTIONAL_SIZE };
    let index = usize::try_from(RegionIndex::CONFIG.0).unwrap_or(0);
    config.regions[index] = RegionConfig::new(space);
    let one_by_one = |count| InterruptConfig { count, all_at_once: false };
    if !settings.hot_plug {
        config.interrupts[InterruptIndex::Msix.slot()] = one_by_one(u32::from(vectors_of(function)));
    }
    // Monitors ask for this interrupt. It is never signalled: monitors would stop the whole guest.
    config.interrupts[InterruptIndex::Error.slot()] = one_by_one(1);
    config
}

/// Whether a client that knows `one` may be served `other`.
fn is_like(one: &Function, other: &Function) -> bool {
    let identity = |function: &Function| {
        (
            (function.vendor, function.device, function.class, function.revision),
            (function.subsystem_vendor, function.subsystem, function.serial_number, function.msix),
        )
    };
    identity(one) == identity(other)
        && one
            .bars
            .iter()
            .map(|bar| (bar.index, bar.size))
            .eq(other.bars.iter().map(|bar| (bar.index, bar.size)))
}

impl<D: 'static> Guest<D> {
    pub(super) fn enumerate(&mut self) {
        self.timers.disarm(Timer::Retry);
        self.phase = Phase::Enumerating;
        self.port.root_mut().enumerate(self.now, self.config.plan);
    }

    fn try_again(&mut self) {
        self.phase = Phase::Absent;
        self.timers.arm(Timer::Retry, self.now + RETRY);
    }

    /// Handles an event of the tunnel's link.
    pub(super) fn on_link(&mut self, event: tunnel::Event) {
        match &event {
            tunnel::Event::Interrupted { .. } => self.held = true,
            tunnel::Event::Resumed => self.held = false,
            _ => {}
        }
        match &event {
            tunnel::Event::LinkUp { .. } => {
                (self.link_up, self.held) = (true, false);
                self.event(Event::Link(event));
                self.enumerate();
            }
            tunnel::Event::LinkDown { .. } => {
                (self.link_up, self.held) = (false, false);
                self.event(Event::Link(event));
                self.on_link_down();
            }
            _ => self.event(Event::Link(event)),
        }
    }

    fn on_link_down(&mut self) {
        self.timers.disarm(Timer::Retry);
        let phase = core::mem::replace(&mut self.phase, Phase::Absent);
        // A function that was gone needs no further reset.
        (self.reset_due, self.is_unreset) = (false, false);
        if let Phase::Scripted(_, Purpose::Reset(Some((token, _)))) = phase {
            self.reset_done(token, Ok(()));
        }
        if self.slot.is_some() && self.client {
            self.event(Event::Gone);
        }
        self.port.root_mut().handle_input(self.now, root_complex::Input::LinkDown);
        self.by_message.forget_signals();
        if let Some(slot) = &mut self.slot {
            slot.forget();
            // The next client waits until the function is known again.
            slot.replaced = None;
        }
        self.fail_accesses();
    }

    pub(super) fn on_enumerated(&mut self, result: Result<Topology, EnumerationError>) {
        if !matches!(self.phase, Phase::Enumerating) {
            return;
        }
        let topology = match result {
            Ok(topology) => topology,
            Err(EnumerationError::LinkDown) => return self.phase = Phase::Absent,
            Err(error) => {
                self.event(Event::Enumeration(error));
                return self.try_again();
            }
        };
        let late = was_late(&topology);
        let endpoints = endpoints_of(&topology);
        let found = match self.config.function {
            Some(index) => endpoints.get(index),
            None => endpoints.iter().find(|function| function.class == ClassCode::NVME),
        };
        match found {
            Some(function) if function.enabled => {
                let function = (*function).clone();
                let bus_master = self.slot.as_ref().is_some_and(|slot| slot.shadow.bus_master());
                let target = Target { function: function.clone(), space: Vec::new() };
                let (script, step) = setup::find(target, bus_master && self.client);
                self.run_script(script, step, Purpose::Find(Box::new(function)));
            }
            Some(_) if late && self.is_empty_from_now_on() => {}
            Some(_) => {
                self.event(Event::Unready(RequestError::UnsupportedRequest));
                self.try_again();
            }
            None if late && self.is_empty_from_now_on() => {}
            None => {
                let endpoints = endpoints.len();
                self.phase = Phase::Absent;
                self.event(Event::NoFunction { endpoints, wanted: self.config.function });
            }
        }
    }

    /// Resets the function. The client that waits for the reset, if any, is `waiting`.
    pub(super) fn start_reset(&mut self, waiting: Option<Token>) {
        let Some(slot) = &mut self.slot else { return };
        slot.reset();
        if self.config.doorbells {
            self.outputs.push_back(Output::ClearDoorbells);
        }
        self.by_message.forget_signals();
        let target = slot.target.clone();
        let (script, step) = setup::reset(target, false);
        let purpose = Purpose::Reset(waiting.map(|token| (token, self.now)));
        self.run_script(script, step, purpose);
    }

    fn run_script(&mut self, script: Steps, step: Step<Question, Ended>, purpose: Purpose) {
        let bdf = match (&purpose, &self.slot) {
            (Purpose::Find(function), _) => function.bdf,
            (Purpose::Reset(_), Some(slot)) => slot.target.function.bdf,
            (Purpose::Reset(_), None) => return,
        };
        self.phase = Phase::Scripted(Box::new(Running::new(script, bdf)), purpose);
        self.on_step(step);
    }

    fn on_step(&mut self, mut step: Step<Question, Ended>) {
        loop {
            let question = match step {
                Step::Done(result) => return self.on_script_end(result),
                Step::Ask(question) => question,
            };
            self.script_serial += 1;
            if !self.ask(question) {
                return;
            }
            let Phase::Scripted(running, _) = &mut self.phase else { return };
            step = running.script.answer(Answer::new());
        }
    }

    /// Begins the operation that a script asks for. Returns whether it is done already.
    fn ask(&mut self, question: Question) -> bool {
        let Phase::Scripted(running, purpose) = &mut self.phase else { return false };
        let name = SCRIPT | self.script_serial << NAME_SHIFT;
        let none = Err(RequestError::LinkDown);
        let asks = matches!(question, Question::Read(_) | Question::Write(_));
        self.statistics.reset_trips += u64::from(asks && purpose.since().is_some());
        match question {
            Question::Wait(length) => {
                running.wake = Some(self.now + length);
                false
            }
            Question::Memory(writes) => {
                for (address, data) in writes {
                    self.port.root_mut().write(address, &data);
                }
                true
            }
            Question::Read(offsets) => {
                running.expect(alloc::vec![none; offsets.len()]);
                for (cookie, offset) in (name..).zip(&offsets) {
                    let sent = self.port.root_mut().config_read(self.now, cookie, running.bdf, *offset);
                    sent.expect("accesses leave room for the requests of a script");
                }
                offsets.is_empty()
            }
            Question::Write(writes) => {
                running.expect(alloc::vec![none; writes.len()]);
                for (cookie, write) in (name..).zip(&writes) {
                    let RegisterWrite { offset, enables, value } = *write;
                    let (bdf, now) = (running.bdf, self.now);
                    let sent = self.port.root_mut().config_write(now, cookie, bdf, offset, enables, value);
                    sent.expect("accesses leave room for the requests of a script");
                }
                writes.is_empty()
            }
        }
    }

    /// A request of a script has been answered.
    pub(super) fn on_script_answer(&mut self, cookie: u64, result: Result<u32, RequestError>) {
        let Phase::Scripted(running, _) = &mut self.phase else { return };
        if (cookie & !SCRIPT) >> NAME_SHIFT != self.script_serial {
            return;
        }
        let Some(answers) = running.on_answer(cookie & NUMBER_MASK, result) else { return };
        let step = running.script.answer(answers);
        self.on_step(step);
    }

    /// Continues a script whose wait has ended.
    pub(super) fn wake_script(&mut self) {
        let Phase::Scripted(running, _) = &mut self.phase else { return };
        if running.wake.take_if(|at| *at <= self.now).is_some() {
            let step = running.script.answer(Answer::new());
            self.on_step(step);
        }
    }

    fn on_script_end(&mut self, result: Ended) {
        let Phase::Scripted(_, purpose) = core::mem::replace(&mut self.phase, Phase::Absent) else { return };
        match (purpose, result) {
            (Purpose::Find(function), Ok(space)) => self.on_found(Target { function: *function, space }),
            (Purpose::Reset(waiting), Ok(_)) => {
                self.phase = Phase::Present;
                self.is_unreset = false;
                if let Some((token, _)) = waiting {
                    self.reset_done(token, Ok(()));
                }
                self.reset_if_due();
            }
            // The link itself reports its end.
            (Purpose::Find(_), Err(RequestError::LinkDown)) => {}
            (Purpose::Find(_), Err(RequestError::Timeout)) if self.is_empty_from_now_on() => {}
            (Purpose::Find(_), Err(error)) => {
                self.event(Event::Unready(error));
                self.try_again();
            }
            (Purpose::Reset(waiting), Err(error)) => {
                if let Some((token, _)) = waiting {
                    self.reset_done(token, Err(Errno::EIO));
                }
                if error != RequestError::LinkDown {
                    // Requests that a client has left behind must not reach the next one.
                    self.reset_due |= !self.client;
                    self.is_unreset = true;
                    self.event(Event::Unready(error));
                    self.try_again();
                }
            }
        }
    }

    fn on_found(&mut self, target: Target) {
        let offer = offer(&target.function);
        match &mut self.slot {
            Some(slot) if is_like(&slot.target.function, &target.function) => {
                slot.target = target;
                slot.replaced = None;
                self.event(Event::Back(offer));
            }
            Some(slot) if self.client => {
                slot.replaced = Some(target);
                return self.event(Event::Changed(offer));
            }
            // The client began with an empty slot and keeps the empty slot.
            None if self.client => {
                self.phase = Phase::Empty;
                return self.event(Event::Changed(offer));
            }
            _ => {
                self.offer_new(target);
                self.event(Event::Offered(offer));
            }
        }
        self.phase = Phase::Present;
        self.reset_if_due();
    }

    fn offer_new(&mut self, target: Target) {
        self.server = Some(Server::new(server_config(&target.function, &self.config)));
        self.slot = Some(Box::new(Slot::new(target, self.config.hot_plug)));
    }

    fn reset_if_due(&mut self) {
        if matches!(self.phase, Phase::Present) && core::mem::take(&mut self.reset_due) {
            self.start_reset(None);
        }
    }

    /// The client has gone: nothing of its state stays behind.
    pub(super) fn on_client_gone(&mut self, reason: Option<CloseReason>) {
        if !core::mem::take(&mut self.client) {
            return;
        }
        self.accesses.clear();
        for token in self.by_message.clear() {
            self.port.root_mut().memory_read_done(token, None);
        }
        self.event(Event::ClientGone(reason));
        let Some(slot) = &mut self.slot else { return self.look_again() };
        slot.reset();
        match slot.replaced.take() {
            Some(target) => {
                self.offer_new(target);
                self.phase = Phase::Present;
                if let Some(offer) = self.offer() {
                    self.event(Event::Offered(offer));
                }
            }
            None => {
                let is_there = !matches!(self.phase, Phase::Absent | Phase::Enumerating);
                self.reset_due = is_there || self.is_unreset;
                self.reset_if_due();
            }
        }
    }

    /// Gives up resets and accesses that have waited for too long.
    pub(super) fn give_up_late(&mut self) {
        let Some(since) = self.now.as_nanos().checked_sub(self.config.patience.get()) else { return };
        let since = Instant::from_nanos(since);
        if let Phase::Scripted(_, Purpose::Reset(waiting)) = &mut self.phase
            && let Some((token, _)) = waiting.take_if(|(_, asked)| *asked <= since)
        {
            self.reset_done(token, Err(Errno::ETIMEDOUT));
        }
        self.give_up_accesses(since);
    }

    pub(super) fn reset_done(&mut self, token: Token, result: Result<(), Errno>) {
        if let Some(server) = &mut self.server {
            server.reset_done(token, result);
        }
    }
}

/// The functions that are not bridges.
fn endpoints_of(topology: &Topology) -> Vec<&Function> {
    topology.functions().filter(|function| function.layout == 0).collect()
}
