//! A machine: its disk, its target, its devices, and the agent that drives them.

use std::collections::{BTreeMap, BTreeSet};

use engine::{Instant, Nanos};
use fleet::agent::{Observation, SavedAttachment, Served, State};
use fleet::object::{Data, Mode};
use fleet::{Agent, Epoch, Name};

use super::Plant;
use super::copies::{Content, Making};

/// A write on its way through a target.
#[derive(Clone, Debug)]
pub(super) struct Write {
    /// The number of the write.
    pub(super) id: u64,
    pub(super) volume: Name,
    pub(super) attachment: Name,
    pub(super) epoch: Epoch,
    pub(super) mode: Mode,
}

/// A device of an attachment.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) attachment: SavedAttachment,
    pub(super) connected: bool,
}

/// A machine.
#[derive(Debug)]
pub(super) struct Machine {
    /// The agent, while it runs.
    pub(super) agent: Option<Agent>,
    /// Number of starts, by which late answers to an earlier agent are known.
    pub(super) life: u64,
    /// What the agent has made durable.
    pub(super) disk: State,
    /// Whether the agent is of the version before this one, which knows no transports, until it is
    /// replaced.
    pub(super) is_old: bool,
    /// The name of the machine and of its pool, and whether files there share blocks.
    pub(super) name: Name,
    pub(super) shares: bool,
    /// The volumes whose data is on the disk.
    pub(super) data: BTreeMap<Name, Content>,
    /// The snapshots that are on the disk.
    pub(super) snapshots: BTreeMap<Name, (Epoch, Content)>,
    /// The snapshots and clones that were made, and are on the disk.
    pub(super) made: BTreeSet<(Data, Epoch)>,
    /// Those that are being made, and the number of the agent's latest list of them.
    pub(super) making: BTreeMap<Data, Making>,
    pub(super) copies_number: u64,
    /// What the target's file says, and what the target does.
    pub(super) file: Vec<Served>,
    pub(super) serving: Vec<Served>,
    /// The number of the latest request of the agent that was carried out.
    pub(super) served: u64,
    /// Writes that the target has taken and not executed.
    pub(super) in_progress: BTreeMap<u64, Write>,
    /// The devices, which outlive the agent.
    pub(super) devices: BTreeMap<Name, Device>,
    /// Until when nothing of the machine runs.
    pub(super) stopped: Instant,
    /// How far its clock has jumped ahead.
    pub(super) ahead: Nanos,
    /// Whether the machine has lost its power.
    pub(super) is_down: bool,
}

impl Machine {
    /// A machine that has never run.
    pub(super) fn new(name: Name, shares: bool, is_old: bool) -> Self {
        Self {
            agent: None,
            life: 0,
            disk: State::default(),
            is_old,
            name,
            shares,
            data: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            made: BTreeSet::new(),
            making: BTreeMap::new(),
            copies_number: 0,
            file: Vec::new(),
            serving: Vec::new(),
            served: 0,
            in_progress: BTreeMap::new(),
            devices: BTreeMap::new(),
            stopped: Instant::ZERO,
            ahead: Nanos::ZERO,
            is_down: false,
        }
    }

    /// What an agent sees of the machine.
    pub(super) fn observe(&self, plant: Option<Plant>) -> Observation {
        let in_progress = self.in_progress.values();
        Observation {
            number: self.served,
            served: self.serving.clone(),
            associations: in_progress.map(|one| (one.volume.clone(), one.attachment.clone())).collect(),
            present: self.data.keys().cloned().collect(),
            devices: self.devices.iter().map(|(name, one)| (name.clone(), one.connected)).collect(),
            copies: self.copies(plant),
        }
    }

    /// Whether the target lets a host in, in an epoch.
    pub(super) fn lets_in(&self, volume: &Name, attachment: &Name, epoch: Epoch) -> Option<Mode> {
        let served = self.serving.iter().find(|served| served.name == *volume)?;
        let found = served.admitted.iter().find(|one| one.attachment == *attachment && one.epoch == epoch)?;
        Some(found.mode)
    }
}
