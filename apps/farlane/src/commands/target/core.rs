//! The part of a target that one reactor runs.

use std::io;
use std::path::{Path, PathBuf};

use engine::Instant;
use live::drivers::fabrics::target::{Event, StrangerLimits, TargetDriver};
use live::media::Media;
use live::media::state::Store;
use live::media::state::ssd::{self, Origin};
use live::reactor::{Context, Driver, Sources, Turn};
use live::sys::clock::Clock;
use nvme::subsystem::{Config, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity};
use nvme::wire::NamespaceId;
use nvme_fabrics::target::{Directory, Subsystem, SubsystemKey};
use nvme_fabrics::wire::{ControllerId, Nqn, PortId};

use super::config::{Listed, Source};
use crate::args::{AccessState, Backing};
use crate::commands::served::changes::{self, Opened, open_at_work};
use crate::commands::served::{FAR_PATIENCE, Ssd, check_media, restore, room};
use crate::error::Error;

/// Most commands of one subsystem that may be under way at once, over all hosts. Each host has at
/// least one command that waits for events.
///
/// The rest of the tokens is for commands that lanes hand over.
const COMMANDS_MAX: u32 = nvme::subsystem::COMMANDS_MAX / 8 * 7;

/// Why a request fails whose subsystem is no longer there.
const GONE: &str = "the subsystem is gone";

pub(super) type Target = TargetDriver<fn(Event)>;

/// A subsystem for a reactor to run.
pub(super) struct NewSubsystem {
    pub(super) name: Nqn,
    pub(super) serial: Option<String>,
    /// Where a subsystem of the configuration file keeps its state.
    pub(super) state: Option<PathBuf>,
    pub(super) ana_groups: u32,
    /// The most data in bytes that one command moves.
    pub(super) transfer_bytes_max: u32,
    pub(super) source: Source,
    /// Whether the target has so many subsystems that each has few namespaces.
    pub(super) is_one_of_many: bool,
}

/// From this number of subsystems on, each has room for few namespaces: room takes memory.
pub(super) const MANY_SUBSYSTEMS: usize = 256;
/// The highest identifier of a namespace in one of many subsystems, unless its file has higher
/// ones.
const NAMESPACES_OF_MANY: u32 = 32;

/// The highest identifier that a namespace may have (NN) in a subsystem of this configuration.
fn namespaces_max(is_one_of_many: bool, config: &Config) -> u32 {
    // Hosts may have created namespaces that the state remembers.
    if !is_one_of_many || config.state.is_some() {
        return NAMESPACE_ID_MAX;
    }
    let highest = config.namespaces.iter().map(|one| one.id.0).max().unwrap_or(0);
    highest.next_multiple_of(NAMESPACES_OF_MANY).clamp(NAMESPACES_OF_MANY, NAMESPACE_ID_MAX)
}

/// A subsystem that a reactor has begun to run.
pub(super) struct Added {
    pub(super) serial: String,
    /// Where the subsystem's state is kept.
    pub(super) store: Option<Store>,
}

/// The part of a target that one reactor runs.
pub(super) struct Core {
    clock: Clock,
    pub(super) driver: Target,
}

impl Core {
    pub(super) fn new(clock: Clock, memory_max: u64, strangers: StrangerLimits) -> Self {
        let mut driver = TargetDriver::new(clock.now(), Directory::default(), report as fn(Event));
        driver.set_memory_max(memory_max);
        driver.limit_strangers(strangers);
        Self { clock, driver }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Opens the media of a subsystem, and runs the subsystem from now on.
    pub(super) fn add_subsystem(&mut self, key: SubsystemKey, new: NewSubsystem) -> Result<Added, Error> {
        let mut groups = Vec::new();
        let (mut core, media, added) = match new.source {
            Source::Given(served) => {
                let ssd = Ssd::build(self.clock, &served, new.name.as_str())?;
                (ssd.config, ssd.media, Added { serial: ssd.serial, store: ssd.store })
            }
            Source::Listed(listed) => {
                groups.extend(listed.iter().map(|one| (one.id, one.ana_group)));
                self.build(&new.name, new.serial, new.state.as_deref(), &listed)?
            }
        };
        core.subsystem_name = new.name.to_string();
        core.commands_max = COMMANDS_MAX;
        core.namespaces_max = namespaces_max(new.is_one_of_many, &core);
        core.ana_groups = new.ana_groups;
        core.transfer_bytes_max = new.transfer_bytes_max;
        self.driver.add_subsystem(self.now(), key, core, media);
        for (id, group) in groups {
            self.put_into_group(key, id, group);
        }
        Ok(added)
    }

    /// Builds a subsystem of the configuration file, as it was before if its state is kept.
    fn build(
        &self,
        name: &Nqn,
        serial: Option<String>,
        state: Option<&Path>,
        listed: &[Listed],
    ) -> Result<(Config, Media, Added), Error> {
        check_media(listed.len() + usize::from(state.is_some()))?;
        room::check(listed.iter().map(|one| one.backing.memory()).sum())?;
        let store = state.map(Store::open).transpose()?;
        let saved = store.as_ref().map(ssd::load).transpose()?.flatten();
        // The serial number follows from the subsystem's name alone, not from its namespaces.
        let derived =
            || format!("FL{:016X}", u64::from_be_bytes(NamespaceIdentity::derived(name.as_str()).eui64));
        let serial = serial.or_else(|| saved.as_ref().map(|saved| saved.serial().to_owned()));
        let serial = serial.unwrap_or_else(derived);
        let (mut core, mut media, mut origins) = (Config::new(&serial), Media::new(), Vec::new());
        for one in listed {
            let opened = Opened::open(self.clock, &one.backing, FAR_PATIENCE)?;
            let namespace = opened.describe(one.id, &serial);
            let medium = media.add(opened.medium)?;
            core.namespaces.push(NamespaceConfig { medium, ..namespace });
            origins.push(opened.origin);
        }
        if let Some(store) = &store {
            let origin = Origin { namespaces: &origins, pool: None, is_numbered: true };
            core = restore(store, saved, core, &mut media, origin)?;
        }
        Ok((core, media, Added { serial, store }))
    }

    pub(super) fn set_active_reactors(&mut self, count: usize) {
        let now = self.now();
        self.driver.set_active_reactors(now, count);
    }

    pub(super) fn namespace_count(&self, key: SubsystemKey) -> usize {
        self.driver.target().subsystem(key).map_or(0, |core| core.namespaces().count())
    }

    /// Adds a namespace as `id`, or as the first free identifier. Returns the identifier.
    pub(super) fn add_namespace(
        &mut self,
        key: SubsystemKey,
        id: Option<u32>,
        ana_group: u32,
        backing: &Backing,
        serial: &str,
    ) -> Result<u32, String> {
        let (opened, now) = (open_at_work(self.clock, backing)?, self.now());
        let added = self
            .driver
            .with_namespaces(now, key, |core, media| changes::add(now, core, media, id, opened, serial));
        let id = added.ok_or(GONE)??;
        self.put_into_group(key, id, ana_group);
        Ok(id)
    }

    pub(super) fn remove_namespace(&mut self, key: SubsystemKey, id: u32) -> Result<(), String> {
        let now = self.now();
        let removed =
            self.driver.with_namespaces(now, key, |core, media| changes::remove(now, core, media, id));
        removed.ok_or(GONE)?
    }

    /// Makes a namespace `size` bytes long or, without `size`, as long as its file is by now.
    /// Returns its length in bytes.
    pub(super) fn resize_namespace(
        &mut self,
        key: SubsystemKey,
        id: u32,
        size: Option<u64>,
    ) -> Result<u64, String> {
        let now = self.now();
        let resized =
            self.driver.with_namespaces(now, key, |core, media| changes::resize(now, core, media, id, size));
        resized.ok_or(GONE)?
    }

    pub(super) fn namespace(&self, key: SubsystemKey, id: u32) -> Option<NamespaceConfig> {
        changes::find(self.driver.target().subsystem(key)?, id)
    }

    /// Puts a namespace into its ANA group, where the subsystem has groups.
    pub(super) fn put_into_group(&mut self, key: SubsystemKey, id: u32, group: u32) {
        let now = self.now();
        self.driver.with_namespaces(now, key, |core, _| {
            if core.config().ana_groups > 0 {
                // The namespace was there a moment ago.
                let _ = core.set_ana_group(now, NamespaceId(id), group);
            }
        });
    }

    /// Sets the ANA state in which each port reaches each group.
    pub(super) fn set_access(&mut self, key: SubsystemKey, states: &[(PortId, u32, AccessState)]) {
        for (port, group, state) in states {
            self.driver.set_port_access(self.now(), key, *port, *group, (*state).into());
        }
    }

    /// Sets the ANA state in which one controller reaches a group. Returns whether there is such
    /// a controller.
    pub(super) fn set_controller_access(
        &mut self,
        key: SubsystemKey,
        controller: u16,
        group: u32,
        state: AccessState,
    ) -> bool {
        let now = self.now();
        self.driver.set_controller_access(now, key, ControllerId(controller), group, state.into())
    }

    pub(super) fn put_subsystem(&mut self, subsystem: Subsystem) {
        self.driver.put_subsystem(self.now(), subsystem);
    }

    pub(super) fn remove_subsystem(&mut self, key: SubsystemKey) {
        self.driver.remove_subsystem(self.now(), key);
    }

    pub(super) fn set_directory(&mut self, directory: Directory) {
        self.driver.set_directory(self.now(), directory);
    }
}

impl Driver for Core {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.driver.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        self.driver.turn(context)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.driver.poll_timeout()
    }

    fn on_stop(&mut self, now: Instant) {
        self.driver.on_stop(now);
    }
}

/// Logs an event on standard error.
fn report(event: Event) {
    match event {
        Event::Target(event) => info!("{event}"),
        Event::NotEncrypted { peer, why } => warn!(%peer, "{peer} was refused: {why}"),
        Event::AcceptFailed(error) => warn!("a connection could not be accepted: {error}"),
        Event::PortFailed(address, error) => {
            warn!(%address, "the port of RoCE at {address} has failed, is tried again: {error}");
        }
        Event::PortRestored(address) => info!(%address, "the port of RoCE at {address} works again"),
        Event::State(_, notice) => warn!("the state: {notice}"),
        Event::Notify(..) => {}
    }
}
