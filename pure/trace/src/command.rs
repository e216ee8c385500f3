//! An NVMe command in a capture: its kind, and its steps.

use alloc::vec::Vec;

use engine::{Instant, Nanos};

use crate::seen::Mark;

/// The kind of a captured command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An admin command with this opcode.
    Admin(u8),
    /// An I/O command with this opcode.
    Io(u8),
    /// A Fabrics command of this type (FCTYPE).
    Fabrics(u8),
    /// The device wrote data to the host: a read, most likely.
    InferredRead,
    /// The device read data from the host: a write, most likely.
    InferredWrite,
}

impl Kind {
    /// Whether it is an Asynchronous Event Request, which waits until an event occurs.
    pub const fn waits_for_events(self) -> bool {
        matches!(self, Self::Admin(0x0c))
    }
}

/// The role of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The submission queue. Of an interrupt and of a head doorbell, the completion queue.
    pub queue: u16,
    /// The kind of command; none for packets that serve several commands, such as doorbells and
    /// fetches of entries.
    pub kind: Option<Kind>,
}

/// A step of a command. The variants are in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The host sends the command's capsule.
    Capsule,
    /// The host rings the submission queue's doorbell.
    Doorbell,
    /// The device requests the entry.
    Fetch,
    /// The entry arrives.
    Entry,
    /// The device requests a list of pages.
    List,
    /// The list arrives.
    Listed,
    /// The controller requests data (R2T).
    ReadyToTransfer,
    /// Data pass, or are requested.
    Data,
    /// The last data that the device requested arrive; of a fabric, those of an H2CData.
    DataArrived,
    /// The device posts the completion.
    Completion,
    /// The device interrupts the host.
    Interrupt,
    /// The host has taken the completion, and rings the completion queue's doorbell.
    HeadDoorbell,
}

impl Step {
    /// All steps, in their order.
    pub const ALL: [Self; 12] = [
        Self::Capsule,
        Self::Doorbell,
        Self::Fetch,
        Self::Entry,
        Self::List,
        Self::Listed,
        Self::ReadyToTransfer,
        Self::Data,
        Self::DataArrived,
        Self::Completion,
        Self::Interrupt,
        Self::HeadDoorbell,
    ];

    /// The step's name for a person.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capsule => "command capsule",
            Self::Doorbell => "doorbell",
            Self::Fetch => "entry fetch",
            Self::Entry => "entry",
            Self::List => "list fetch",
            Self::Listed => "list",
            Self::ReadyToTransfer => "R2T",
            Self::Data => "data",
            Self::DataArrived => "data arrived",
            Self::Completion => "completion",
            Self::Interrupt => "interrupt",
            Self::HeadDoorbell => "head doorbell",
        }
    }
}

/// The packets of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Which step it is.
    pub step: Step,
    /// When the step's first packet passed.
    pub first: Instant,
    /// When the step's last packet passed.
    pub last: Instant,
    /// How many packets the step has.
    pub packets: u32,
}

/// A command, from the first packet that belongs to it to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The kind of command.
    pub kind: Kind,
    /// The submission queue, if it is known.
    pub queue: Option<u16>,
    /// The command identifier, if it is known.
    pub id: Option<u16>,
    /// The namespace, if it is known.
    pub namespace: Option<u32>,
    /// The first logical block, if the command has one and it is known.
    pub lba: Option<u64>,
    /// The number of logical blocks, if it is known.
    pub blocks: Option<u32>,
    /// Bytes of data that passed.
    pub bytes: u64,
    /// Status Field of the completion without the Phase Tag, if the completion was captured.
    pub status: Option<u16>,
    /// The steps, in the order of their first packets.
    pub hops: Vec<Hop>,
    /// The step and the number of each packet, if they are remembered. Of PDUs, the segments with
    /// their first and last bytes count.
    pub members: Vec<(Step, u64)>,
    remembers: bool,
}

impl Command {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            queue: None,
            id: None,
            namespace: None,
            lba: None,
            blocks: None,
            bytes: 0,
            status: None,
            hops: Vec::new(),
            members: Vec::new(),
            remembers: false,
        }
    }

    /// The same, with the numbers of its packets if `remembers` is set.
    pub(crate) const fn remembering(mut self, remembers: bool) -> Self {
        self.remembers = remembers;
        self
    }

    /// The place of a packet of this command, if its queue is known.
    pub(crate) fn place(&self) -> Option<Place> {
        self.queue.map(|queue| Place { queue, kind: Some(self.kind) })
    }

    /// Adds a packet to the step that it belongs to.
    pub(crate) fn step(&mut self, Mark { at, number }: Mark, step: Step) {
        if self.remembers {
            self.members.push((step, number));
        }
        match self.hops.iter_mut().find(|hop| hop.step == step) {
            Some(hop) => {
                hop.last = at;
                hop.packets += 1;
            }
            None => self.hops.push(Hop { step, first: at, last: at, packets: 1 }),
        }
    }

    /// Adds a packet that passed from `first` to `last` to the step that it belongs to.
    pub(crate) fn span(&mut self, first: Mark, last: Mark, step: Step) {
        if self.remembers && first.number != last.number {
            self.members.push((step, first.number));
        }
        self.step(last, step);
        if let Some(hop) = self.hops.iter_mut().find(|hop| hop.step == step) {
            hop.first = hop.first.min(first.at);
        }
    }

    /// When the first packet of the command passed. `None` if it has none.
    pub fn begun(&self) -> Option<Instant> {
        self.hops.iter().map(|hop| hop.first).min()
    }

    /// The time from the first packet of the command to the last.
    pub fn length(&self) -> Nanos {
        let first = self.begun();
        let last = self.hops.iter().map(|hop| hop.last).max();
        first.zip(last).map_or(Nanos::ZERO, |(first, last)| last - first)
    }

    /// The time until the device posted the completion, or until the last packet if no completion
    /// was captured. The host handles the completion later, often together with many others.
    pub fn latency(&self) -> Nanos {
        let first = self.begun();
        let completion = self.hops.iter().find(|hop| hop.step == Step::Completion);
        match first.zip(completion) {
            Some((first, completion)) => completion.last - first,
            None => self.length(),
        }
    }

    /// The number of packets that belong to the command.
    pub fn packets(&self) -> u32 {
        self.hops.iter().map(|hop| hop.packets).sum()
    }

    /// The time between each step's end and the end of the step before it, in the order of their
    /// ends. The times add up to [`Command::length`]: the first step's is the time of its own
    /// packets.
    pub fn chain(&self) -> Vec<(Step, Nanos)> {
        let mut hops = self.hops.clone();
        hops.sort_by_key(|hop| (hop.last, hop.step));
        let mut before = self.begun().unwrap_or(Instant::ZERO);
        let mut chain = Vec::new();
        for hop in hops {
            chain.push((hop.step, hop.last - before));
            before = hop.last;
        }
        chain
    }
}
