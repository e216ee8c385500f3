//! The commands of a capture: a row each, with its steps and its packets packed behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{Instant, Nanos};
use trace::{Command, Hop, Step};

use super::pack::{put, take};

/// The most commands that get a row.
const ROWS_MAX: usize = 1 << 24;
/// The most bytes of all steps and packets. Beyond it, commands have rows without packets.
const PACKED_MAX: usize = 1 << 30;
/// The value that stands for an unknown one.
const UNKNOWN: u32 = u32::MAX;

/// A command, as lists show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// When its first packet passed.
    pub(crate) begun: Instant,
    pub(crate) latency: Nanos,
    pub(crate) whole: Nanos,
    pub(crate) bytes: u64,
    pub(crate) packets: u32,
    /// The number of its kind among the capture's.
    pub(crate) kind: u16,
    lba: u64,
    blocks: u32,
    namespace: u32,
    queue: u32,
    id: u32,
    status: u32,
    /// Where its steps are.
    steps: u64,
}

const fn known(value: u32) -> Option<u32> {
    if value == UNKNOWN { None } else { Some(value) }
}

impl Row {
    pub(crate) const fn queue(&self) -> Option<u32> {
        known(self.queue)
    }
    pub(crate) const fn id(&self) -> Option<u32> {
        known(self.id)
    }
    pub(crate) const fn namespace(&self) -> Option<u32> {
        known(self.namespace)
    }
    pub(crate) const fn blocks(&self) -> Option<u32> {
        known(self.blocks)
    }
    /// Status Field without the Phase Tag.
    pub(crate) const fn status(&self) -> Option<u32> {
        known(self.status)
    }
    pub(crate) const fn lba(&self) -> Option<u64> {
        if self.lba == u64::MAX { None } else { Some(self.lba) }
    }
    /// Whether it completed with something else than success.
    pub(crate) fn is_failed(&self) -> bool {
        self.status().is_some_and(|status| status & 0x7ff != 0)
    }
}

/// The steps of a command and, where they were remembered, its packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    pub(crate) hops: Vec<Hop>,
    /// The numbers of its frames in their order, each with its step.
    pub(crate) members: Vec<(u64, Step)>,
}

/// The key by which commands are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The order in which they ended.
    Number,
    Begun,
    Kind,
    Queue,
    Lba,
    Bytes,
    Packets,
    Latency,
    Whole,
}

impl Key {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Number,
        Self::Begun,
        Self::Kind,
        Self::Queue,
        Self::Lba,
        Self::Bytes,
        Self::Packets,
        Self::Latency,
        Self::Whole,
    ];

    /// The name in requests.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Begun => "begun",
            Self::Kind => "kind",
            Self::Queue => "queue",
            Self::Lba => "lba",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Latency => "latency",
            Self::Whole => "whole",
        }
    }

    fn of(self, row: &Row) -> u64 {
        match self {
            Self::Number => 0,
            Self::Begun => row.begun.as_nanos(),
            Self::Kind => row.kind.into(),
            Self::Queue => row.queue.into(),
            Self::Lba => row.lba,
            Self::Bytes => row.bytes,
            Self::Packets => row.packets.into(),
            Self::Latency => row.latency.get(),
            Self::Whole => row.whole.get(),
        }
    }
}

/// All commands.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
    packed: Vec<u8>,
    /// Commands without room for a row, and those without room for their packets.
    unlisted: u64,
    bare: u64,
    orders: Mutex<HashMap<Key, Arc<[u32]>>>,
}

impl Table {
    /// Adds the next command, which is of this kind.
    pub(super) fn add(&mut self, kind: u16, command: &Command) {
        if self.rows.len() >= ROWS_MAX {
            self.unlisted += 1;
            return;
        }
        let begun = command.begun().unwrap_or(Instant::ZERO);
        let or_unknown = |value: Option<u16>| value.map_or(UNKNOWN, u32::from);
        self.rows.push(Row {
            begun,
            latency: command.latency(),
            whole: command.length(),
            bytes: command.bytes,
            packets: command.packets(),
            kind,
            lba: command.lba.unwrap_or(u64::MAX),
            blocks: command.blocks.unwrap_or(UNKNOWN),
            namespace: command.namespace.unwrap_or(UNKNOWN),
            queue: or_unknown(command.queue),
            id: or_unknown(command.id),
            status: or_unknown(command.status),
            steps: self.packed.len() as u64,
        });
        self.pack(begun, command);
    }

    fn pack(&mut self, begun: Instant, command: &Command) {
        let index = |step: Step| Step::ALL.iter().position(|one| *one == step).unwrap_or(0) as u64;
        let packed = &mut self.packed;
        put(packed, command.hops.len() as u64);
        for hop in &command.hops {
            put(packed, index(hop.step));
            put(packed, (hop.first - begun).get());
            put(packed, (hop.last - hop.first).get());
            put(packed, hop.packets.into());
        }
        let has_room = packed.len() < PACKED_MAX;
        self.bare += u64::from(!has_room);
        let mut members: Vec<(u64, Step)> = match has_room {
            true => command.members.iter().map(|(step, number)| (*number, *step)).collect(),
            false => Vec::new(),
        };
        members.sort_unstable();
        members.dedup();
        put(packed, members.len() as u64);
        let mut before = 0;
        for (number, step) in members {
            put(packed, (number - before) * 16 + index(step));
            before = number;
        }
    }

    /// The steps and packets of a row.
    pub(crate) fn steps_of(&self, row: &Row) -> Steps {
        self.unpack(row).unwrap_or_default()
    }

    fn unpack(&self, row: &Row) -> Option<Steps> {
        let mut bytes = self.packed.get(usize::try_from(row.steps).ok()?..)?;
        let step = |index: u64| Step::ALL.get(usize::try_from(index).ok()?).copied();
        let mut steps = Steps::default();
        for _ in 0..take(&mut bytes)? {
            let (step, after, length) = (step(take(&mut bytes)?)?, take(&mut bytes)?, take(&mut bytes)?);
            let first = row.begun + Nanos::new(after);
            let packets = u32::try_from(take(&mut bytes)?).ok()?;
            steps.hops.push(Hop { step, first, last: first + Nanos::new(length), packets });
        }
        let mut number = 0;
        for _ in 0..take(&mut bytes)? {
            let value = take(&mut bytes)?;
            number += value / 16;
            steps.members.push((number, step(value % 16)?));
        }
        Some(steps)
    }

    /// The rows, in the order in which the commands ended.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The number of commands that have no row, and of those whose packets are not known.
    pub(crate) const fn left_out(&self) -> (u64, u64) {
        (self.unlisted, self.bare)
    }

    /// The places of all rows in the order of `key`; equal ones in the order of their ends. None
    /// for the order that they have anyway. An order is made once.
    pub(crate) fn order(&self, key: Key) -> Option<Arc<[u32]>> {
        if key == Key::Number {
            return None;
        }
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let order = orders.entry(key).or_insert_with(|| {
            let keys = self.rows.iter().map(|row| key.of(row));
            let mut keys: Vec<(u64, u32)> = keys.zip(0..).collect();
            keys.sort_unstable();
            keys.into_iter().map(|(_, place)| place).collect()
        });
        Some(order.clone())
    }
}
