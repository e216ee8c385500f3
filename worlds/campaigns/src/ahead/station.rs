//! A host's driver for one controller. It does everything that the specification allows, and reuses
//! memory at once.

use std::collections::BTreeMap;

use engine::{Buffer, Instant, Nanos, Rng};
use nvme::wire::{AdminOpcode, CommandId, NamespaceId, SubmissionQueueEntry};
use pcie::root_complex::RootComplex;
use pcie::wire::Bdf;

use super::buffers::{Buffers, PAGE, Segment};
use super::device::MOMENT_REGISTER;
use super::memory::Shared;
use super::queue::Queue;
use super::tap::Tap;
use crate::campaign::Outcome;
use crate::checker::End;
use crate::workload::{Operation, Phase, Workload};

pub(super) const NAMESPACE: NamespaceId = NamespaceId(1);
/// The largest size of a controller's memory buffer in bytes.
const BUFFER_MAX: u64 = 1 << 20;
pub(super) const DOORBELLS: u64 = 0x1000;
/// The pause after something went wrong.
const REST: Nanos = Nanos::from_millis(5);

/// The parts of the host that a station works with.
pub(super) struct Ground<'a> {
    pub(super) now: Instant,
    pub(super) root: &'a mut RootComplex,
    pub(super) memory: &'a Shared,
    pub(super) tap: &'a mut Tap,
    pub(super) rng: &'a mut Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No controller is there.
    Gone,
    Rest(Instant),
    Disabling,
    Enabling,
    SetUp(u16),
    Up,
}

#[derive(Debug)]
pub(super) enum What {
    Work(Operation),
    /// A command whose completion does not matter.
    Junk,
    SetUp,
    Delete(u16),
    Create(u16),
    /// Deletes a queue that may still be in use.
    Gone(u16),
    /// Creates a queue at any address.
    Made {
        id: u16,
        base: u64,
        entries: u32,
    },
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) what: What,
    pub(super) pages: Vec<u64>,
    pub(super) segments: Vec<Segment>,
    pub(super) sent: Instant,
}

/// The cookie of a station's register access: the station's index in the upper half, a serial
/// number in the lower half.
#[derive(Clone, Copy, Debug)]
pub(super) struct StationCookie(pub(super) u64);

impl StationCookie {
    const fn new(station: usize, serial: u64) -> Self {
        Self((station as u64) << 32 | serial)
    }

    pub(super) fn station(self) -> usize {
        usize::try_from(self.0 >> 32).expect("few stations")
    }
}

/// A host's driver for one controller, with its queues, commands and workload.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) index: usize,
    pub(super) bdf: Option<Bdf>,
    pub(super) bar: u64,
    /// Whether enumeration is to look for the controller again.
    pub(super) lost: bool,
    pub(super) base: u64,
    pub(super) block: u64,
    pub(super) queue_entries: u32,
    pub(super) pairs: u16,
    pub(super) timeout: Nanos,
    pub(super) stage: Stage,
    pub(super) since: Instant,
    pub(super) asked: Option<u64>,
    pub(super) look_at: Instant,
    pub(super) cookies: u64,
    pub(super) queues: Vec<Queue>,
    pub(super) commands: BTreeMap<(u16, u16), Command>,
    pub(super) buffers: Buffers,
    pub(super) workload: Workload,
    pub(super) pending: Option<Operation>,
    pub(super) phase: Phase,
    pub(super) bus_master: bool,
    pub(super) resets: u64,
    /// Why the controller was reset.
    pub(super) events: Vec<String>,
    /// Whether the host keeps no rules.
    pub(super) unruly: bool,
    pub(super) wild_at: Instant,
    /// The port above the function; `bridge_on` is its Bus Master Enable.
    pub(super) bridge_id: Option<Bdf>,
    pub(super) bridge_on: bool,
    /// Outstanding configuration writes that disable reads of memory. Until they complete,
    /// doorbells may overtake them.
    pub(super) forbidding: Vec<u64>,
    /// Offset of the PCI Express capability.
    pub(super) express: Option<u16>,
    /// Whether enumeration is to look again at once, because the function was reset.
    pub(super) rescan: bool,
    /// The address of the controller's memory buffer, if queues may be there.
    pub(super) memory_buffer: Option<u64>,
}

/// The results of the controller's enumeration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) bdf: Bdf,
    pub(super) bar: u64,
    pub(super) memory_buffer: Option<u64>,
    pub(super) bridge: Bdf,
    pub(super) express: Option<u16>,
}

/// The parameters of a station.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) index: usize,
    /// Where the station's part of memory begins.
    pub(super) base: u64,
    pub(super) block: u64,
    pub(super) queue_entries: u32,
    pub(super) pairs: u16,
    pub(super) timeout: Nanos,
    pub(super) unruly: bool,
}

/// Number of pages for a station's queues; [`DATA_PAGES`] for data follow.
pub(super) const QUEUE_PAGES: u64 = 40;
pub(super) const DATA_PAGES: u64 = 160;
/// Number of pages of a station's part of memory; the last ones are unused.
pub(super) const PAGES: u64 = QUEUE_PAGES + DATA_PAGES + 16;

impl Station {
    pub(super) fn new(settings: Settings, workload: Workload) -> Self {
        let Settings { index, base, block, queue_entries, pairs, timeout, unruly } = settings;
        Self {
            index,
            bdf: None,
            bar: 0,
            lost: true,
            base,
            block,
            queue_entries,
            pairs,
            timeout,
            stage: Stage::Gone,
            since: Instant::ZERO,
            asked: None,
            look_at: Instant::ZERO,
            cookies: 0,
            queues: Vec::new(),
            commands: BTreeMap::new(),
            buffers: Buffers::new(base + QUEUE_PAGES * PAGE, DATA_PAGES),
            workload,
            pending: None,
            phase: Phase::Chaos,
            bus_master: false,
            resets: 0,
            events: Vec::new(),
            unruly,
            wild_at: Instant::ZERO,
            bridge_id: None,
            bridge_on: true,
            forbidding: Vec::new(),
            express: None,
            rescan: false,
            memory_buffer: None,
        }
    }

    /// The controller is gone: ends all commands and forgets the queues.
    pub(super) fn lose(&mut self, tap: &mut Tap) {
        self.stage = Stage::Gone;
        self.lost = true;
        self.asked = None;
        self.forbidding.clear();
        self.give_up(|_| true);
        tap.delete_all();
    }

    /// Enumeration has found the controller.
    pub(super) fn found(&mut self, now: Instant, found: Found) {
        let Found { bdf, bar, memory_buffer, bridge, express } = found;
        (self.bdf, self.bar, self.lost, self.bus_master) = (Some(bdf), bar, false, true);
        (self.memory_buffer, self.express) = (memory_buffer, express);
        // Enumeration has set Bus Master Enable everywhere.
        (self.bridge_id, self.bridge_on) = (Some(bridge), true);
        self.stage = Stage::Rest(now);
    }

    /// Whether the function may read host memory, now or when a doorbell reaches it that is rung
    /// now.
    pub(super) const fn may_read(&self) -> bool {
        self.bus_master && self.bridge_on || !self.forbidding.is_empty()
    }
    /// Sets or clears Bus Master Enable in the Command register of `bdf`, and sets Memory Space
    /// Enable. Returns whether the write was sent.
    pub(super) fn set_master(&mut self, ground: &mut Ground<'_>, bdf: Bdf, on: bool) -> bool {
        let cookie = self.cookie();
        let value = if on { 6 } else { 2 };
        let done = ground.root.config_write(ground.now, cookie, bdf, 4, 1, value).is_ok();
        match on {
            true if done => ground.tap.allow(),
            false if done => self.forbidding.push(cookie),
            _ => {}
        }
        done
    }
    pub(super) const fn cookie(&mut self) -> u64 {
        self.cookies += 1;
        StationCookie::new(self.index, self.cookies).0
    }

    /// Restarts the station, as a new process would.
    pub(super) fn restart(&mut self) {
        self.stage = Stage::Gone;
        self.lost = true;
        self.asked = None;
        self.forbidding.clear();
        self.commands.clear();
        self.queues.clear();
        self.buffers = Buffers::new(self.base + QUEUE_PAGES * PAGE, DATA_PAGES);
        self.pending = None;
        self.workload.abandon();
    }

    /// Ends all commands, or those of one queue, with unknown results. The controller, which is
    /// still there, no longer accesses their memory, so the memory may be reused.
    pub(super) fn end_all(&mut self, ground: &mut Ground<'_>, queue: Option<u16>) {
        let is_over = |id: u16| queue.is_none_or(|queue| queue == id);
        for queue in self.queues.iter().filter(|queue| is_over(queue.id)) {
            if ground.rng.one_in(2) {
                let mut bytes = vec![0; queue.entries as usize * 64];
                ground.rng.fill(&mut bytes);
                ground.memory.borrow_mut().write(queue.base, &bytes);
            }
        }
        for pages in self.give_up(is_over) {
            self.buffers.reuse(&pages, ground.memory, ground.rng);
        }
    }

    /// Ends commands with unknown results, and returns their pages.
    fn give_up(&mut self, is_over: impl Fn(u16) -> bool) -> Vec<Vec<u64>> {
        let keys: Vec<_> = self.commands.keys().copied().filter(|key| is_over(key.0)).collect();
        let commands: Vec<_> = keys.iter().filter_map(|key| self.commands.remove(key)).collect();
        commands
            .into_iter()
            .map(|command| {
                let pages = command.pages.clone();
                self.abandon(command);
                pages
            })
            .collect()
    }

    fn abandon(&mut self, command: Command) {
        self.buffers.give(&command.pages);
        if let What::Work(operation) = command.what {
            self.workload.end(operation.id, End::Failed);
        }
    }

    pub(super) fn write(&self, ground: &mut Ground<'_>, offset: u64, bytes: &[u8]) {
        ground.root.write(self.bar + offset, &Buffer::copy_from_slice(bytes));
    }

    pub(super) fn rest(&mut self, now: Instant) {
        self.events.push(format!("{}: {:?} came to nothing", now - Instant::ZERO, self.stage));
        self.asked = None;
        self.stage = Stage::Rest(now + REST);
    }

    pub(super) fn admin(
        &self,
        opcode: AdminOpcode,
        [cdw10, cdw11]: [u32; 2],
        address: u64,
    ) -> SubmissionQueueEntry {
        let data_pointer = [address, 0];
        let opcode = opcode.into();
        SubmissionQueueEntry {
            opcode,
            namespace: NAMESPACE,
            data_pointer,
            cdw10,
            cdw11,
            ..Default::default()
        }
    }

    /// Puts an entry into queue `id`, which must have room.
    pub(super) fn submit(
        &mut self,
        ground: &mut Ground<'_>,
        id: u16,
        mut entry: SubmissionQueueEntry,
        command: Command,
    ) {
        let queue = self.queues.iter_mut().find(|queue| queue.id == id).expect("a queue that is there");
        let name = queue.free.pop().expect("the queue has room");
        entry.command_id = CommandId(name);
        let address = queue.base + u64::from(queue.tail) * 64;
        let within = |place: u64| (place..place + BUFFER_MAX).contains(&queue.base);
        if self.memory_buffer.is_some_and(within) {
            ground.root.write(address, &Buffer::copy_from_slice(&entry.emit()));
        } else {
            ground.memory.borrow_mut().write(address, &entry.emit());
        }
        queue.tail = (queue.tail + 1) % queue.entries;
        if queue.ring_at.is_none() {
            let wait = if ground.rng.one_in(2) { 0 } else { ground.rng.below(100_000) };
            queue.ring_at = Some(ground.now + Nanos::new(wait));
        }
        if let Some(lost) = self.commands.insert((id, name), command) {
            // Only a host that keeps no rules uses an identifier twice.
            ground.tap.doubt();
            self.abandon(lost);
        }
    }

    pub(super) fn bare(&self, sent: Instant, what: What) -> Command {
        Command { what, pages: Vec::new(), segments: Vec::new(), sent }
    }

    /// Does all work that is due now.
    pub(super) fn poll(&mut self, ground: &mut Ground<'_>) {
        match self.stage {
            Stage::Gone => return,
            Stage::Rest(until) if until <= ground.now => self.disable(ground),
            Stage::Rest(_) => return,
            _ => {}
        }
        if matches!(self.stage, Stage::Disabling | Stage::Enabling) {
            return self.look(ground);
        }
        let late = |command: &&Command| ground.now - command.sent >= self.timeout;
        if let Some(command) = self.commands.values().find(late) {
            self.events.push(format!("{}: {:?} took too long", ground.now - Instant::ZERO, command.what));
            return self.disable(ground);
        }
        if self.stage == Stage::Up {
            self.wild(ground);
        }
        if self.stage == Stage::Up {
            self.work(ground);
        }
        if matches!(self.stage, Stage::SetUp(_) | Stage::Up) {
            self.ring(ground);
        }
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let pause = match self.stage {
            Stage::Gone => return None,
            Stage::Rest(until) => return Some(until),
            Stage::Disabling | Stage::Enabling => return self.asked.is_none().then_some(self.look_at),
            Stage::SetUp(_) | Stage::Up => self.workload.poll_timeout(now),
        };
        let rings = self.queues.iter().filter_map(|queue| queue.ring_at);
        let deadlines = self.commands.values().map(|command| command.sent + self.timeout);
        rings.chain(deadlines).chain(pause).chain(self.wild_timeout()).min()
    }

    /// Rings the doorbells that are due. Before each ring, the device gets the current moment of
    /// memory.
    pub(super) fn ring(&mut self, ground: &mut Ground<'_>) {
        let enabled = self.may_read();
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            if queue.ring_at.is_none_or(|at| at > ground.now) {
                continue;
            }
            queue.ring_at = None;
            let id = queue.id;
            let (tail, head) = (queue.tail, queue.completion_head);
            let submitted = std::mem::replace(&mut queue.rung, tail) != tail;
            let completed = std::mem::replace(&mut queue.completion_rung, head) != head;
            let moment = ground.memory.borrow().moment();
            self.write(ground, MOMENT_REGISTER, &moment.0.to_le_bytes());
            let at = DOORBELLS + u64::from(id) * 8;
            if completed {
                self.write(ground, at + 4, &head.to_le_bytes());
            }
            if submitted {
                ground.tap.ring(id, tail, enabled);
                self.write(ground, at, &tail.to_le_bytes());
            }
        }
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        if !self.unruly {
            self.workload.enter(phase);
        }
    }

    pub(super) fn is_busy(&self, phase: Phase) -> bool {
        !self.unruly && self.workload.is_busy(phase)
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        if self.unruly {
            // An unruly host's data are not checked.
            outcome.counts.done += self.workload.counts().done;
            outcome.counts.failed += self.workload.counts().failed;
        } else {
            let before = outcome.failures.len();
            self.workload.report(outcome);
            if outcome.failures.len() > before {
                outcome.failures.extend(self.events.iter().rev().take(4).cloned());
            }
        }
    }

    pub(super) fn describe(&self) -> String {
        let Self { index, stage, asked, bar, bus_master, pending, resets, .. } = self;
        let commands: Vec<_> =
            self.commands.iter().take(8).map(|(key, command)| (key, &command.what)).collect();
        format!(
            "station {index}: {stage:?}, asked {asked:?}, bar {bar:#x}, bus master {bus_master}, pending {pending:?}, \
             {resets} resets, {} commands: {commands:?}, {:?}",
            self.commands.len(),
            self.queues
        )
    }
}
