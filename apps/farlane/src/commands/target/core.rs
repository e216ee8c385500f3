//! The part of a target that one reactor runs.

use std::io;
use std::path::{Path, PathBuf};

use engine::{Instant, Nanos};
use live::drivers::fabrics::target::{Event, TargetDriver};
use live::media::state::Store;
use live::media::state::ssd::{self, Origin};
use live::media::{Media, Medium};
use live::reactor::{Context, Driver, Turn};
use live::sys::clock::Clock;
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use nvme::subsystem::{BlockSize, Config, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity};
use nvme::wire::NamespaceId;
use nvme_fabrics::target::{Directory, SubsystemKey};
use nvme_fabrics::wire::{ControllerId, Nqn, PortId};

use super::config::{Backing, Listed, Source};
use crate::args::AccessState;
use crate::commands::served::{FAR_PATIENCE, Ssd, far_origin, file_origin, open_far, open_file, restore};
use crate::error::Error;

/// Most commands of one subsystem that may be under way at once, over all hosts.
const COMMANDS_MAX: u32 = 16 << 10;

/// How long another device may take to appear when its namespace is added to a running target:
/// hosts of other namespaces wait meanwhile.
const PATIENCE_AT_WORK: Nanos = Nanos::from_secs(3);

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
    pub(super) source: Source,
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
    pub(super) fn new(clock: Clock, memory_max: u64) -> Self {
        let mut driver = TargetDriver::new(clock.now(), Directory::default(), report as fn(Event));
        driver.set_memory_max(memory_max);
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
        core.namespaces_max = NAMESPACE_ID_MAX;
        core.ana_groups = new.ana_groups;
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
        let store = state.map(Store::open).transpose()?;
        let saved = store.as_ref().map(ssd::load).transpose()?.flatten();
        // The serial number follows from the subsystem's name, whatever its namespaces are.
        let derived =
            || format!("FL{:016X}", u64::from_be_bytes(NamespaceIdentity::derived(name.as_str()).eui64));
        let serial = serial.or_else(|| saved.as_ref().map(|saved| saved.serial().to_owned()));
        let serial = serial.unwrap_or_else(derived);
        let (mut core, mut media, mut origins) = (Config::new(&serial), Media::new(), Vec::new());
        for one in listed {
            let opened = open_backing(self.clock, &one.backing, FAR_PATIENCE)?;
            let namespace = opened.describe(one.id, &serial);
            let medium = media.add(opened.medium);
            core.namespaces.push(NamespaceConfig { medium, ..namespace });
            origins.push(opened.origin);
        }
        if let Some(store) = &store {
            let origin = Origin { namespaces: &origins, pool: None, is_numbered: true };
            core = restore(store, saved, core, &mut media, origin)?;
        }
        Ok((core, media, Added { serial, store }))
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
        let core = self.driver.target().subsystem(key);
        let taken: Vec<_> = core.into_iter().flat_map(|core| core.namespaces()).map(|one| one.id.0).collect();
        let free = || (1..=NAMESPACE_ID_MAX).find(|id| !taken.contains(id));
        let id = id.or_else(free).ok_or("no identifier is free")?;
        let opened =
            open_backing(self.clock, backing, PATIENCE_AT_WORK).map_err(|error| error.to_string())?;
        let namespace = opened.describe(id, serial);
        let medium = self.driver.add_medium(key, opened.medium);
        let medium = medium.ok_or("the subsystem is gone, or has too many namespaces")?;
        let (now, namespace) = (self.now(), NamespaceConfig { medium, ..namespace });
        let added = self.driver.with_subsystem(now, key, |core| core.add_namespace(now, &namespace));
        if let Err(error) = added.ok_or(GONE)? {
            self.driver.remove_medium(key, medium);
            return Err(error.to_string());
        }
        if let Some(media) = self.driver.media_of(key) {
            media.note_added(&namespace, &opened.origin);
        }
        self.put_into_group(key, id, ana_group);
        Ok(id)
    }

    pub(super) fn remove_namespace(&mut self, key: SubsystemKey, id: u32) -> Result<(), String> {
        let now = self.now();
        let medium = self.namespace(key, id).map(|one| one.medium);
        let removed =
            self.driver.with_subsystem(now, key, |core| core.remove_namespace(now, NamespaceId(id)));
        removed.ok_or(GONE)?.map_err(|error| error.to_string())?;
        if let Some(media) = self.driver.media_of(key) {
            media.note_removed(NamespaceId(id));
        }
        // Namespaces of a controller of this machine share one medium.
        let core = self.driver.target().subsystem(key);
        let is_used = core.is_some_and(|core| core.namespaces().any(|one| Some(one.medium) == medium));
        if let Some(medium) = medium.filter(|_| !is_used) {
            self.driver.remove_medium(key, medium);
        }
        Ok(())
    }

    /// Makes a namespace `size` bytes long or, without `size`, as long as its file is by now.
    /// Returns its length in bytes.
    pub(super) fn resize_namespace(
        &mut self,
        key: SubsystemKey,
        id: u32,
        size: Option<u64>,
    ) -> Result<u64, String> {
        let namespace = self.namespace(key, id).ok_or(format!("there is no namespace {id}"))?;
        let core = self.driver.target().subsystem(key).ok_or(GONE)?;
        if core.config().pool.is_some_and(|pool| pool.medium == namespace.medium) {
            return Err("hosts alone say how long a namespace of the pool is".to_owned());
        }
        let block = u64::from(namespace.block.stored());
        let is_wrong = |size: u64| match namespace.block.guard() {
            None => size == 0 || !size.is_multiple_of(block),
            Some(_) => size < block,
        };
        if let Some(size) = size.filter(|size| is_wrong(*size)) {
            return Err(format!("{size} B is not a positive multiple of the block size, {block} B"));
        }
        let resized = self.driver.resize_medium(key, namespace.medium, size);
        let (bytes, now) = (resized.map_err(|error| error.to_string())?, self.now());
        self.driver.with_subsystem(now, key, |core| core.resize_namespace(now, namespace.id, bytes));
        Ok(bytes)
    }

    pub(super) fn namespace(&self, key: SubsystemKey, id: u32) -> Option<NamespaceConfig> {
        self.driver.target().subsystem(key)?.namespaces().find(|one| one.id.0 == id)
    }

    /// Puts a namespace into its ANA group, where the subsystem has groups.
    pub(super) fn put_into_group(&mut self, key: SubsystemKey, id: u32, group: u32) {
        let now = self.now();
        self.driver.with_subsystem(now, key, |core| {
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

    pub(super) fn set_directory(&mut self, directory: Directory) {
        self.driver.set_directory(self.now(), directory);
    }
}

impl Driver for Core {
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

/// A medium that has been opened, and what is known of it.
struct Opened {
    medium: Medium,
    /// Where the medium's bytes are, in words that mean the same at the next start.
    origin: String,
    bytes: u64,
    block: BlockSize,
    read_only: bool,
}

impl Opened {
    fn describe(&self, id: u32, serial: &str) -> NamespaceConfig {
        let identity = NamespaceIdentity::derived(&format!("{serial}/{id}"));
        let config = NamespaceConfig::new(NamespaceId(id), MediumId(0), self.bytes, self.block, identity);
        NamespaceConfig { read_only: self.read_only, ..config }
    }
}

fn open_backing(clock: Clock, backing: &Backing, patience: Nanos) -> Result<Opened, Error> {
    match backing {
        Backing::Far(spec) => {
            let far = open_far(clock, spec, patience)?;
            let (bytes, read_only) = (far.size(), spec.readonly);
            let block = BlockSize::from_bytes(far.block()).unwrap_or_default();
            let origin = far_origin(spec, &far);
            Ok(Opened { medium: far.into(), origin, bytes, block, read_only })
        }
        Backing::Ram(spec) => {
            let medium = RamDisk::new(spec.size).into();
            let origin = format!("ram {}", spec.size);
            Ok(Opened { medium, origin, bytes: spec.size, block: spec.block, read_only: false })
        }
        Backing::File(spec) => {
            let file = open_file(&spec.path, spec.size, spec.block, spec.readonly)?;
            let bytes = file.size();
            let (origin, read_only) = (file_origin(&spec.path), spec.readonly);
            Ok(Opened { medium: file.into(), origin, bytes, block: spec.block, read_only })
        }
    }
}

/// Tells a person about an event, on standard error.
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
