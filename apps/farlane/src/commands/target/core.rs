//! What one reactor of the target carries out.

use engine::Instant;
use live::clock::Clock;
use live::fabrics::target::{Event, TargetDriver};
use live::media::{Media, Medium};
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use nvme::subsystem::{
    BlockSize, Config, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity, WriteProtection,
};
use nvme::wire::NamespaceId;
use nvme_fabrics::target::{Directory, SubsystemKey};
use nvme_fabrics::wire::{ControllerId, Nqn, PortId};

use super::config::{Backing, Source};
use crate::args::AccessState;
use crate::commands::served::{Ssd, open_file};
use crate::error::Error;

/// Commands of a subsystem that may be under way at once, of all hosts together.
const COMMANDS_MAX: u32 = 16 << 10;

/// The subsystem is no longer there.
const GONE: &str = "the subsystem is gone";

pub(super) type Target = TargetDriver<fn(Event)>;

/// See the module.
pub(super) struct Core {
    clock: Clock,
    pub(super) driver: Target,
}

impl Core {
    pub(super) fn new(clock: Clock) -> Self {
        let driver = TargetDriver::new(clock.now(), Directory::default(), report as fn(Event));
        Self { clock, driver }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Opens what a subsystem is kept on, and carries it out from now on; its serial number.
    pub(super) fn add_subsystem(
        &mut self,
        key: SubsystemKey,
        name: &Nqn,
        serial: Option<String>,
        ana_groups: u32,
        source: Source,
    ) -> Result<String, Error> {
        let mut groups = Vec::new();
        let (mut core, media, serial) = match source {
            Source::Given(served) => {
                let Ssd { config, media, serial, .. } = Ssd::build(self.clock, &served, name.as_str())?;
                (config, media, serial)
            }
            Source::Listed(listed) => {
                // Whatever its namespaces are, the subsystem is the one of this name.
                let derived = u64::from_be_bytes(NamespaceIdentity::derived(name.as_str()).eui64);
                let serial = serial.unwrap_or_else(|| format!("FL{derived:016X}"));
                let mut core = Config::new(&serial);
                let mut media = Media::new();
                for one in &listed {
                    let opened = open_backing(&one.backing)?;
                    let namespace = opened.describe(one.id, &serial);
                    let medium = media.add(opened.medium);
                    core.namespaces.push(NamespaceConfig { medium, ..namespace });
                    groups.push((one.id, one.ana_group));
                }
                (core, media, serial)
            }
        };
        core.subsystem_name = name.to_string();
        core.commands_max = COMMANDS_MAX;
        core.namespaces_max = NAMESPACE_ID_MAX;
        core.ana_groups = ana_groups;
        self.driver.add_subsystem(self.now(), key, core, media);
        for (id, group) in groups {
            self.put_into_group(key, id, group);
        }
        Ok(serial)
    }

    pub(super) fn namespace_count(&self, key: SubsystemKey) -> usize {
        self.driver.target().subsystem(key).map_or(0, |core| core.namespaces().count())
    }

    /// Adds a namespace as `id`, or as the first that is free; which.
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
        let opened = open_backing(backing).map_err(|error| error.to_string())?;
        let namespace = opened.describe(id, serial);
        let medium = self.driver.add_medium(key, opened.medium);
        let medium = medium.ok_or("the subsystem is gone, or has too many namespaces")?;
        let (now, namespace) = (self.now(), NamespaceConfig { medium, ..namespace });
        let added = self.driver.with_subsystem(now, key, |core| core.add_namespace(now, &namespace));
        if let Err(error) = added.ok_or(GONE)? {
            self.driver.remove_medium(key, medium);
            return Err(error.to_string());
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
        // Those of a controller of this machine are on one medium.
        let core = self.driver.target().subsystem(key);
        let is_used = core.is_some_and(|core| core.namespaces().any(|one| Some(one.medium) == medium));
        if let Some(medium) = medium.filter(|_| !is_used) {
            self.driver.remove_medium(key, medium);
        }
        Ok(())
    }

    /// Makes a namespace `size` bytes long, or as long as its file is by now; how long.
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
        let block = u64::from(namespace.block.bytes());
        if let Some(size) = size.filter(|size| *size == 0 || !size.is_multiple_of(block)) {
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

    /// Puts a namespace into its group, where there are any.
    pub(super) fn put_into_group(&mut self, key: SubsystemKey, id: u32, group: u32) {
        let now = self.now();
        self.driver.with_subsystem(now, key, |core| {
            if core.config().ana_groups > 0 {
                // It was there a moment ago.
                let _ = core.set_ana_group(now, NamespaceId(id), group);
            }
        });
    }

    /// Sets how ports reach groups.
    pub(super) fn set_access(&mut self, key: SubsystemKey, ways: &[(PortId, u32, AccessState)]) {
        for (port, group, state) in ways {
            self.driver.set_port_access(self.now(), key, *port, *group, (*state).into());
        }
    }

    /// Sets how one controller reaches a group; whether there is such a controller.
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

/// A medium that was opened, and what is known of it.
struct Opened {
    medium: Medium,
    bytes: u64,
    block: u32,
    read_only: bool,
}

impl Opened {
    fn describe(&self, id: u32, serial: &str) -> NamespaceConfig {
        let block = if self.block == 4096 { BlockSize::Bytes4096 } else { BlockSize::Bytes512 };
        NamespaceConfig {
            id: NamespaceId(id),
            medium: MediumId(0),
            offset: 0,
            bytes: self.bytes,
            block,
            read_only: self.read_only,
            attached: true,
            write_protection: WriteProtection::None,
            identity: NamespaceIdentity::derived(&format!("{serial}/{id}")),
        }
    }
}

fn open_backing(backing: &Backing) -> Result<Opened, Error> {
    match backing {
        Backing::Ram(spec) => {
            let medium = RamDisk::new(spec.size).into();
            Ok(Opened { medium, bytes: spec.size, block: spec.block, read_only: false })
        }
        Backing::File(spec) => {
            let file = open_file(&spec.path, spec.size, spec.block, spec.readonly)?;
            let bytes = file.size();
            Ok(Opened { medium: file.into(), bytes, block: spec.block, read_only: spec.readonly })
        }
    }
}

/// Tells a person what happens, on standard error.
fn report(event: Event) {
    match event {
        Event::Target(event) => eprintln!("farlane: {event}"),
        Event::AcceptFailed(error) => eprintln!("farlane: a connection could not be accepted: {error}"),
        Event::State(_, notice) => eprintln!("farlane: the state: {notice}"),
        Event::Notify(..) => {}
    }
}
