//! The media that the subsystem and its lanes share, with one list of ranges.

use engine::{Nanos, Rng};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, IoId, MediaError, Operation, Ranges, Request};
use nvme::subsystem::ControllerKey;

use super::rules::{BLOCKS, NAMESPACES};
use super::{BLOCK, Event, Place, Plant, World};

/// The name of a request among those of all threads.
type Name = (Place, IoId);

/// A request at a medium.
#[derive(Debug)]
pub(super) struct Entry {
    name: Name,
    request: Request,
}

/// All media.
#[derive(Debug)]
pub(super) struct Medium {
    disks: Vec<RamDisk>,
    ranges: Ranges<Name, ControllerKey>,
    /// Requests that have entered and that no medium has executed.
    /// With the controller, if a command of it changes blocks.
    outstanding: Vec<(Name, Option<ControllerKey>)>,
    rng: Rng,
    /// One in how many requests fails; 0 for none.
    failing: u64,
    /// One in how many requests takes much longer.
    slow: u64,
}

impl Medium {
    pub(super) fn new(rng: Rng, world: &mut Rng) -> Self {
        Self {
            disks: (0..NAMESPACES).map(|_| RamDisk::new(BLOCKS * BLOCK as u64)).collect(),
            ranges: Ranges::default(),
            outstanding: Vec::new(),
            rng,
            failing: if world.one_in(4) { 100 } else { 0 },
            slow: if world.one_in(2) { 30 } else { 0 },
        }
    }

    /// Ends all faults.
    pub(super) const fn heal(&mut self) {
        (self.failing, self.slow) = (0, 0);
    }

    /// Whether nothing is left.
    pub(super) fn is_idle(&self) -> bool {
        self.ranges.is_empty() && self.outstanding.is_empty()
    }

    pub(super) const fn may_fail(&self) -> bool {
        self.failing > 0
    }

    /// Whether media have requests of a thread.
    pub(super) fn has_of(&self, place: Place) -> bool {
        self.outstanding.iter().any(|((of, _), _)| *of == place)
    }

    /// The changes of a controller that media have not executed.
    pub(super) fn changes_of(&self, key: ControllerKey) -> Vec<Name> {
        self.outstanding.iter().filter(|(_, of)| *of == Some(key)).map(|(name, _)| *name).collect()
    }

    /// Notes that a controller was removed. What media have of it precedes all that follows, and
    /// the next controller with its key is another one.
    pub(super) fn remove_controller(&mut self, key: ControllerKey) {
        self.outstanding.iter_mut().for_each(|(_, of)| *of = of.filter(|one| *one != key));
    }

    /// The requests of lanes that media have not executed.
    pub(super) fn of_lanes(&self) -> usize {
        self.outstanding.iter().filter(|((place, _), _)| *place != Place::Subsystem).count()
    }

    fn delay(&mut self) -> Nanos {
        let rare = if self.rng.one_in(self.slow) { 900 } else { 0 };
        Nanos::from_micros(1 + self.rng.below(60) + rare)
    }
}

impl World {
    /// Takes a request that a thread sends; `owner` is its controller, if a command sends it.
    pub(super) fn enter(&mut self, place: Place, owner: Option<ControllerKey>, request: Request) {
        let name = (place, request.id);
        let changes = !matches!(request.operation, Operation::Read { .. } | Operation::Flush);
        self.medium.outstanding.push((name, owner.filter(|_| changes)));
        let begun = match owner {
            Some(owner) => self.medium.ranges.enter(name, owner, request),
            None => Some(request),
        };
        if let Some(request) = begun {
            let delay = self.medium.delay();
            self.after(delay, Event::Execute(Entry { name, request }));
        }
    }

    /// Notes that the command of a request has ended.
    pub(super) fn disown(&mut self, place: Place, id: IoId) {
        if self.medium.ranges.disown((place, id)) {
            self.medium.outstanding.retain(|(one, _)| *one != (place, id));
            let done = Completion::Done { id, result: Err(MediaError::Unreachable) };
            self.answer(place, vec![done]);
            self.begin_waiting();
        }
    }

    /// A medium executes a request, or fails to.
    pub(super) fn on_execution(&mut self, Entry { name, request }: Entry) {
        let (place, id) = name;
        self.medium.outstanding.retain(|(one, _)| *one != name);
        self.bury(place);
        let mut completions = Vec::new();
        let fails = self.medium.rng.one_in(self.medium.failing);
        if fails {
            let error = if self.medium.rng.one_in(2) { MediaError::Write } else { MediaError::NoSpace };
            completions.push(Completion::Done { id, result: Err(error) });
        } else {
            let index = usize::try_from(request.medium.0).expect("few media");
            self.medium.disks[index].submit(request, &mut |completion| completions.push(completion));
        }
        self.answer(place, completions);
        let lost = self.plant == Some(Plant::LostRange) && !self.planted && place != Place::Subsystem;
        if lost && self.medium.rng.one_in(50) {
            self.planted = true;
        } else {
            self.medium.ranges.end(name);
        }
        self.begin_waiting();
    }

    /// A thread is gone: media go on with what they have begun for it.
    pub(super) fn disown_all(&mut self, place: Place) {
        let dropped = self.medium.ranges.disown_where(|(of, _)| of == place);
        self.medium.outstanding.retain(|(one, _)| !dropped.contains(one));
        self.begin_waiting();
    }

    fn begin_waiting(&mut self) {
        while let Some((name, request)) = self.medium.ranges.begin_next() {
            let delay = self.medium.delay();
            self.after(delay, Event::Execute(Entry { name, request }));
        }
    }

    fn answer(&mut self, place: Place, completions: Vec<Completion>) {
        let delay = Nanos::from_micros(self.rng.below(20));
        self.after(delay, Event::Answer(place, completions));
    }
}
