//! Media that take their time, answer out of order, fail, stall, and survive their node.

use std::collections::{BTreeMap, VecDeque};

use engine::{Buffer, Nanos, Rng};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, IoId, MediaError, MediumId, Operation, Request};

use crate::NodeId;
use crate::schedule::{Key, Slot, Source};
use crate::world::Core;

/// The times and failures of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaProfile {
    /// The least time that a request takes.
    pub latency: Nanos,
    /// The largest random time that a request takes in addition; it lets requests overtake
    /// each other.
    pub jitter: Nanos,
    /// One request in this many fails; 0 means never.
    pub error_one_in: u64,
    /// One write in this many fails silently: it is torn, lost or written elsewhere, or another bit
    /// of the medium rots, and the medium reports success; 0 means never.
    pub lies_one_in: u64,
    /// A request that fails or is lost may have been done in part, in whole units of this
    /// many bytes.
    pub atomic_unit: u32,
}

impl Default for MediaProfile {
    /// The profile of a good flash device.
    fn default() -> Self {
        Self {
            latency: Nanos::from_micros(20),
            jitter: Nanos::from_micros(10),
            error_one_in: 0,
            lies_one_in: 0,
            atomic_unit: 4096,
        }
    }
}

/// The largest number of requests outstanding at one medium.
const PENDING_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Medium {
    node: NodeId,
    number: MediumId,
    disk: RamDisk,
    profile: MediaProfile,
    /// The first profile, which the medium gets again when the world is healed.
    healthy: MediaProfile,
    rng: Rng,
    slot: Slot,
    pending: BTreeMap<Key, Request>,
    /// The answers of the request that is being completed.
    answers: VecDeque<Completion>,
    stalled: bool,
}

impl Medium {
    /// Performs a whole request; its answers wait in `answers`.
    fn perform(&mut self, request: Request) {
        let answers = &mut self.answers;
        self.disk.submit(request, &mut |completion| answers.push_back(completion));
    }

    /// Performs a part of a request, all of it or nothing, without an answer.
    fn perform_part(&mut self, request: Request) {
        let unit = u64::from(self.profile.atomic_unit);
        let part = |length: u64, rng: &mut Rng| match rng.below(3) {
            0 => 0,
            1 => length,
            _ => rng.below(length / unit + 1) * unit,
        };
        let operation = match request.operation {
            Operation::Write { offset, data, durable } => {
                let kept = usize::try_from(part(data.len() as u64, &mut self.rng)).expect("within a buffer");
                Operation::Write { offset, data: data.slice(0..kept), durable }
            }
            Operation::WriteZeroes { offset, length, deallocate, durable } => {
                let length = part(length, &mut self.rng);
                Operation::WriteZeroes { offset, length, deallocate, durable }
            }
            Operation::Deallocate { offset, length } => {
                Operation::Deallocate { offset, length: part(length, &mut self.rng) }
            }
            Operation::Read { .. } | Operation::Flush => return,
        };
        let empty = match &operation {
            Operation::Write { data, .. } => data.is_empty(),
            Operation::WriteZeroes { length, .. } | Operation::Deallocate { length, .. } => *length == 0,
            Operation::Read { .. } | Operation::Flush => true,
        };
        if !empty {
            self.disk.submit(Request { operation, ..request }, &mut |_| ());
        }
    }

    /// Does something other than a write requests, and reports success.
    fn lie(&mut self, request: Request) {
        let (id, unit, size) = (request.id, u64::from(self.profile.atomic_unit), self.disk.bytes());
        match (self.rng.below(4), request) {
            (0, _) => {}
            (1, Request { operation: Operation::Write { data, durable, .. }, medium, .. }) => {
                let places = (size - data.len() as u64) / unit + 1;
                let offset = self.rng.below(places) * unit;
                let operation = Operation::Write { offset, data, durable };
                self.disk.submit(Request { id, medium, operation }, &mut |_| ());
            }
            (2, request) => self.perform_part(request),
            (_, request) => {
                self.disk.submit(request, &mut |_| ());
                self.rot();
            }
        }
        self.answers.push_back(Completion::Done { id, result: Ok(()) });
    }

    /// Flips one bit of the disk.
    fn rot(&mut self) {
        const SECTOR: u32 = 512;
        let at = self.rng.below(self.disk.bytes());
        let (medium, id) = (self.number, IoId(0));
        let mut sector = [0; SECTOR as usize];
        let offset = at / u64::from(SECTOR) * u64::from(SECTOR);
        let operation = Operation::Read { offset, length: SECTOR };
        self.disk.submit(Request { id, medium, operation }, &mut |answer| {
            if let Completion::Data { offset, data, .. } = answer {
                sector[usize::try_from(offset).expect("within a sector")..][..data.len()]
                    .copy_from_slice(&data);
            }
        });
        sector[usize::try_from(at - offset).expect("within a sector")] ^= 1 << self.rng.below(8);
        let data = Buffer::copy_from_slice(&sector);
        self.disk.submit(
            Request { id, medium, operation: Operation::Write { offset, data, durable: false } },
            &mut |_| (),
        );
    }

    fn fail(&mut self, request: Request) {
        let error = match request.operation {
            Operation::Read { .. } => MediaError::Read,
            _ if self.rng.one_in(2) => MediaError::NoSpace,
            _ => MediaError::Write,
        };
        let id = request.id;
        self.perform_part(request);
        self.answers.push_back(Completion::Done { id, result: Err(error) });
    }
}

/// Whether an operation leaves bytes on the medium.
const fn is_write(operation: &Operation) -> bool {
    matches!(operation, Operation::Write { .. } | Operation::WriteZeroes { .. })
}

impl<P> Core<P> {
    pub(crate) fn add_medium(&mut self, node: NodeId, bytes: u64, profile: MediaProfile) -> MediumId {
        let count = self.media.iter().filter(|medium| medium.node == node).count();
        let number = MediumId(u32::try_from(count).expect("few media"));
        let slot = self.schedule.add(Source::Medium(self.media.len()));
        self.media.push(Medium {
            node,
            number,
            disk: RamDisk::new(bytes),
            profile,
            healthy: profile,
            rng: self.rng.fork(&format!("medium {}-{}", node.0, number.0)),
            slot,
            pending: BTreeMap::new(),
            answers: VecDeque::new(),
            stalled: false,
        });
        number
    }

    pub(crate) fn submit(&mut self, node: NodeId, request: Request) {
        let number = request.medium;
        let found = self.media.iter_mut().find(|medium| medium.node == node && medium.number == number);
        let medium = found.unwrap_or_else(|| panic!("{node:?} has no {number:?}"));
        assert!(medium.pending.len() < PENDING_MAX, "{PENDING_MAX} requests are outstanding at {number:?}");
        let jitter = Nanos::new(medium.rng.below(medium.profile.jitter.get() + 1));
        let key = self.schedule.key(self.now + medium.profile.latency + jitter);
        medium.pending.insert(key, request);
        medium.show(&mut self.schedule);
    }

    pub(crate) fn set_media_profile(&mut self, node: NodeId, profile: MediaProfile) {
        self.media
            .iter_mut()
            .filter(|medium| medium.node == node)
            .for_each(|medium| medium.profile = profile);
    }

    /// Stops or resumes the media of a node. Outstanding requests stay outstanding while the media
    /// are stopped.
    pub(crate) fn stall_media(&mut self, node: NodeId, stalled: bool) {
        for medium in self.media.iter_mut().filter(|medium| medium.node == node) {
            if medium.stalled && !stalled {
                // Requests that became due meanwhile are done now, in any order.
                for (key, request) in std::mem::take(&mut medium.pending) {
                    let jitter = Nanos::new(medium.rng.below(medium.profile.jitter.get() + 1));
                    let late = key.at < self.now;
                    let key = if late { self.schedule.key(self.now + jitter) } else { key };
                    medium.pending.insert(key, request);
                }
            }
            medium.stalled = stalled;
            medium.show(&mut self.schedule);
        }
    }

    pub(crate) fn heal_media(&mut self, node: NodeId) {
        for medium in self.media.iter_mut().filter(|medium| medium.node == node) {
            medium.profile = medium.healthy;
        }
        self.stall_media(node, false);
    }

    /// The node was killed: each outstanding request is done, in part or not at all.
    pub(crate) fn abandon_media(&mut self, node: NodeId) {
        for medium in self.media.iter_mut().filter(|medium| medium.node == node) {
            for (_, request) in std::mem::take(&mut medium.pending) {
                medium.perform_part(request);
            }
            medium.answers.clear();
            medium.show(&mut self.schedule);
        }
    }

    pub(crate) fn medium_node(&self, index: usize) -> NodeId {
        self.media[index].node
    }

    /// The next due answer of a medium. The answers of a request are returned one by one at one
    /// instant.
    pub(crate) fn pop_completion(&mut self, index: usize) -> Option<Completion> {
        let medium = &mut self.media[index];
        if medium.answers.is_empty()
            && let Some((_, request)) = medium.pending.pop_first()
        {
            if medium.rng.one_in(medium.profile.error_one_in) {
                medium.fail(request);
            } else if is_write(&request.operation) && medium.rng.one_in(medium.profile.lies_one_in) {
                medium.lie(request);
            } else {
                medium.perform(request);
            }
        }
        let answer = medium.answers.pop_front();
        if medium.answers.is_empty() {
            medium.show(&mut self.schedule);
        }
        answer
    }
}

impl Medium {
    fn show(&self, schedule: &mut crate::schedule::Schedule) {
        let first = self.pending.first_key_value().map(|(key, _)| *key);
        schedule.show(self.slot, first.filter(|_| !self.stalled));
    }
}
