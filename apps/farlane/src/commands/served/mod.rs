//! The SSD that `farlane export`, `farlane offer device` and `farlane target` offer.

pub(crate) mod changes;
pub(crate) mod room;
pub(crate) mod running;

use std::path::Path;

use engine::Nanos;
use live::client;
use live::media::remote::{self, Place};
use live::media::state::ssd::{self, Origin, SsdState};
use live::media::state::{Keeper, Store};
use live::media::{FileMedium, MEDIA_MAX, Media, Note, Options, RemoteMedium, nvme as controllers, open};
use live::sys::clock::Clock;
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use nvme::subsystem::{BlockSize, Config, NamespaceIdentity, PAGE_BYTES};
use nvme::wire::NamespaceId;

use crate::args::{Backing, FarSpec, MediumSpec, PoolSpec, Served};
use crate::error::Error;

/// How long another device may take to appear at the start of the process that uses it.
pub(crate) const FAR_PATIENCE: Nanos = Nanos::from_secs(10);

/// An SSD to offer.
pub(crate) struct Ssd {
    pub(crate) config: Config,
    pub(crate) media: Media,
    /// Where the SSD's state is kept.
    pub(crate) store: Option<Store>,
    pub(crate) serial: String,
    /// The namespaces of the SSD, in words.
    pub(crate) summary: String,
    /// The namespaces on files, other devices and memory, in the order in which they were given.
    pub(crate) listed: Vec<Numbered>,
}

/// A namespace that was given by itself, at the start or since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) id: u32,
    pub(crate) backing: Backing,
}

impl Ssd {
    /// Builds the SSD of `served`. `place` says where the SSD is offered, which distinguishes
    /// memory at one place from memory at another.
    pub(crate) fn build(clock: Clock, served: &Served, place: &str) -> Result<Self, Error> {
        if let (Some(PoolSpec::File { path, .. }), None) = (&served.pool, served.state.first()) {
            return Err(Error::PoolWithoutState { path: path.clone() });
        }
        if let [first, second, ..] = served.state.as_slice() {
            return Err(Error::TwoStates { first: first.clone(), second: second.clone() });
        }
        check_media(served.count_media())?;
        let store = served.state.first().map(|path| Store::open(path)).transpose()?;
        let saved = store.as_ref().map(ssd::load).transpose()?.flatten();
        let serial = served.serial.clone().or_else(|| saved.as_ref().map(|state| state.serial().to_owned()));
        let serial = serial.unwrap_or_else(|| serial_of(served, place));
        let transfer_bytes_max = served.max_transfer.unwrap_or_default().0;
        let config = Config { transfer_bytes_max, ..Config::new(&serial) };
        let mut given = Given { config, media: Media::new(), origins: Vec::new() };
        given.add_namespaces(clock, served)?;
        let pool = served.pool.as_ref().map(|pool| given.add_pool(pool)).transpose()?;
        let Given { mut config, mut media, origins } = given;
        let mediums: Vec<_> = config.namespaces.iter().map(|namespace| namespace.medium).collect();
        if let Some(store) = &store {
            let origin = Origin { namespaces: &origins, pool: pool.as_deref(), is_numbered: false };
            config = restore(store, saved, config, &mut media, origin)?;
        }
        let summary = served.count(config.namespaces.len());
        // The state may have given a namespace another identifier, and has left it its medium.
        let id_of = |medium| config.namespaces.iter().find(|one| one.medium == medium).map(|one| one.id.0);
        let listed = served.backings().zip(mediums);
        let listed = listed.filter_map(|(backing, medium)| Some(Numbered { id: id_of(medium)?, backing }));
        let listed = listed.collect();
        Ok(Self { config, media, store, serial, summary, listed })
    }

    /// The device's serial number, derived from the controller's.
    pub(crate) fn device_serial(&self) -> u64 {
        u64::from_be_bytes(NamespaceIdentity::derived(&self.serial).eui64)
    }
}

/// Checks that one SSD may have `count` media, before any is opened: each namespace, pool and state
/// file is one.
///
/// # Errors
/// When there are too many.
pub(crate) fn check_media(count: usize) -> Result<(), Error> {
    if count > MEDIA_MAX { Err(Error::TooManyMedia { count, most: MEDIA_MAX }) } else { Ok(()) }
}

/// Waits until the state of every served SSD is saved. All writers of the state have ended before.
pub(crate) fn finish(stores: impl IntoIterator<Item = Store>) -> Result<(), Error> {
    stores.into_iter().map(|store| store.finish().map_err(Error::NotSaved)).fold(Ok(()), Result::and)
}

/// Keeps the SSD's state in `store` from now on. Returns the configuration to build its
/// controller from.
pub(crate) fn restore(
    store: &Store,
    saved: Option<SsdState>,
    config: Config,
    media: &mut Media,
    origin: Origin<'_>,
) -> Result<Config, Error> {
    let restored = ssd::restore(store, saved, config, origin)?;
    for note in &restored.notes {
        note!("state {}: {note}", store.path().display());
    }
    // A state that can't be kept is an error before a host relies on it.
    store.wait(store.put(ssd::SECTION, &restored.state))?;
    let keeper = Keeper::new(store.clone(), restored.state).map_err(Error::Output)?;
    Ok(Config { state: Some(media.add(keeper)?), ..restored.config })
}

/// The controller's configuration and media, as far as they have been put together.
struct Given {
    config: Config,
    media: Media,
    /// Where the bytes of each namespace are, in words.
    origins: Vec<String>,
}

impl Given {
    /// Adds the controller's namespaces: files and namespaces of other devices, then memory, then
    /// the namespaces of this machine's own controllers.
    fn add_namespaces(&mut self, clock: Clock, served: &Served) -> Result<(), Error> {
        for spec in &served.namespace {
            let spec = match spec {
                MediumSpec::File(spec) => spec,
                MediumSpec::Far(spec) => {
                    let far = open_far(clock, spec, FAR_PATIENCE)?;
                    let (bytes, origin) = (far.size(), far_origin(spec, &far));
                    let block = BlockSize::from_bytes(far.block()).unwrap_or_default();
                    let medium = self.media.add(far)?;
                    self.add(medium, (0, bytes), block, spec.readonly, origin);
                    continue;
                }
            };
            let file = open_file(&spec.path, spec.size, spec.block, spec.readonly)?;
            let bytes = file.size();
            let medium = self.media.add(file)?;
            self.add(medium, (0, bytes), spec.block, spec.readonly, file_origin(&spec.path));
        }
        for spec in &served.ram {
            let medium = self.media.add(RamDisk::new(spec.size))?;
            self.add(medium, (0, spec.size), spec.block, false, format!("ram {}", spec.size));
        }
        for address in &served.vfio {
            let controller = controllers::open(clock, *address, report_controller)
                .map_err(|error| Error::Vfio { error })?;
            info!("{address} was taken by {}", controller.way());
            let extents = controller.extents().to_vec();
            let medium = self.media.add(controller)?;
            for (index, extent) in (1..).zip(extents) {
                let place = (extent.offset, extent.bytes);
                let block = BlockSize::from_bytes(extent.block).unwrap_or_default();
                self.add(medium, place, block, false, format!("vfio {address} {index}"));
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        medium: MediumId,
        (offset, bytes): (u64, u64),
        block: BlockSize,
        read_only: bool,
        origin: String,
    ) {
        let config = std::mem::replace(&mut self.config, Config::new(""));
        self.config = config.with_namespace(medium, bytes);
        if let Some(namespace) = self.config.namespaces.last_mut() {
            namespace.offset = offset;
            namespace.block = block;
            namespace.read_only = read_only;
        }
        self.origins.push(origin);
    }

    /// Adds the pool in which hosts create namespaces. Returns where the pool's bytes are,
    /// in words.
    fn add_pool(&mut self, pool: &PoolSpec) -> Result<String, Error> {
        let (medium, bytes, origin) = match pool {
            PoolSpec::Ram { size } => (self.media.add(RamDisk::new(*size))?, *size, format!("ram {size}")),
            PoolSpec::File { path, size } => {
                // Namespaces in the pool may have blocks of either size.
                let file = open_file(path, *size, BlockSize::Bytes512, false)?;
                let page = u64::from(PAGE_BYTES);
                let bytes = file.size() / page * page;
                if bytes == 0 {
                    let expected = format!("at least {page} B");
                    return Err(Error::Range { what: "the pool's size", value: file.size(), expected });
                }
                (self.media.add(file)?, bytes, file_origin(path))
            }
        };
        let config = std::mem::replace(&mut self.config, Config::new(""));
        self.config = config.with_pool(medium, bytes);
        Ok(origin)
    }
}

pub(crate) fn open_file(
    path: &Path,
    size: Option<u64>,
    block: BlockSize,
    readonly: bool,
) -> Result<FileMedium, Error> {
    let file = open(path, &Options { size, block: block.alignment(), readonly, ..Options::default() })?;
    for note in file.notes() {
        match note {
            Note::Thin { .. } => warn!("{}: {note}", path.display()),
            note => note!("{}: {note}", path.display()),
        }
    }
    Ok(file)
}

/// Reaches a namespace of another device within `patience`. At the start, `patience` is to cover
/// the time for which the device may be held for a process of ours that was killed.
pub(crate) fn open_far(clock: Clock, spec: &FarSpec, patience: Nanos) -> Result<RemoteMedium, Error> {
    let place = Place {
        name: spec.url.to_string(),
        address: spec.url.resolve()?,
        namespace: spec.namespace.map(NamespaceId),
        hold: spec.url.hold(spec.hold.into()),
        refused_retry: remote::REFUSED_RETRY,
        options: controller_options(),
        deallocates_as_hint: false,
    };
    let opened = remote::open(clock, place, patience, |what| warn!("{what}"));
    opened.map_err(|error| match error {
        remote::OpenError::Attach(error) => error.into(),
        remote::OpenError::Namespace(why) => Error::FarNamespace { why },
        remote::OpenError::Io(error) => Error::Output(error),
    })
}

/// How a target uses the devices behind it.
fn controller_options() -> client::Options {
    let mut options = client::Options::new("target");
    options.session.lookahead = true;
    options
}

pub(crate) fn far_origin(spec: &FarSpec, far: &RemoteMedium) -> String {
    format!("far {} {}", spec.url, far.namespace())
}

pub(crate) fn file_origin(path: &Path) -> String {
    // A file that has yet to be made has a place all the same.
    let there = std::fs::canonicalize(path).or_else(|_| {
        let path = std::path::absolute(path)?;
        let folder = path.parent().unwrap_or(&path).canonicalize()?;
        Ok::<_, std::io::Error>(folder.join(path.file_name().unwrap_or_default()))
    });
    format!("file {}", there.as_deref().unwrap_or(path).display())
}

/// A serial number that is the same for the same namespaces of the same machine, so that a host
/// recognizes the SSD. `place` distinguishes memory from other memory.
fn serial_of(served: &Served, place: &str) -> String {
    let mut name = machine();
    let mut add = |part: String| name.extend(["\n", &part]);
    for spec in &served.namespace {
        add(match spec {
            MediumSpec::File(spec) => file_origin(&spec.path),
            MediumSpec::Far(spec) => format!("far {}", spec.url),
        });
    }
    for address in &served.vfio {
        add(format!("vfio {address}"));
    }
    for spec in &served.ram {
        add(format!("ram {} {} {place}", spec.size, spec.block.extended_bytes()));
    }
    match &served.pool {
        Some(PoolSpec::Ram { size }) => add(format!("pool {size} {place}")),
        Some(PoolSpec::File { path, .. }) => add(format!("pool {}", file_origin(path))),
        None => {}
    }
    let [a, b, c, d, e, f, g, h, ..] = NamespaceIdentity::derived(&name).nguid;
    format!("FL{:016X}", u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// The identity that distinguishes this machine from others: its machine identifier, or else its
/// host name.
fn machine() -> String {
    let known = ["/etc/machine-id", "/proc/sys/kernel/hostname"].map(std::fs::read_to_string);
    known
        .into_iter()
        .flatten()
        .map(|text| text.trim().to_owned())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// Logs the report of a controller of this machine.
fn report_controller(notice: controllers::Notice) {
    warn!("the SSD: {notice}");
}
