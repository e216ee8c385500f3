//! Namespaces that are added, removed and resized while hosts use others.

use engine::{Instant, Nanos};
use live::media::{Media, Medium};
use live::sys::clock::Clock;
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use nvme::subsystem::{BlockSize, NAMESPACE_ID_MAX, NamespaceConfig, NamespaceIdentity, Subsystem};
use nvme::wire::NamespaceId;

use super::{far_origin, file_origin, open_far, open_file, room};
use crate::args::{Backing, MediumSpec};
use crate::error::Error;

/// How long another device may take to appear when its namespace is added to a running process:
/// hosts of other namespaces wait meanwhile.
pub(crate) const PATIENCE_AT_WORK: Nanos = Nanos::from_secs(3);

/// An opened medium with its properties.
pub(crate) struct Opened {
    pub(crate) medium: Medium,
    /// Where the medium's bytes are, in words that mean the same at the next start.
    pub(crate) origin: String,
    bytes: u64,
    block: BlockSize,
    read_only: bool,
}

impl Opened {
    /// Opens the medium with a namespace's data. Another device has to appear within `patience`.
    pub(crate) fn open(clock: Clock, backing: &Backing, patience: Nanos) -> Result<Self, Error> {
        match backing {
            Backing::Medium(MediumSpec::Far(spec)) => {
                let far = open_far(clock, spec, patience)?;
                let (bytes, read_only) = (far.size(), spec.readonly);
                let block = BlockSize::from_bytes(far.block()).unwrap_or_default();
                let origin = far_origin(spec, &far);
                Ok(Self { medium: far.into(), origin, bytes, block, read_only })
            }
            Backing::Ram(spec) => {
                let medium = RamDisk::new(spec.size).into();
                let origin = format!("ram {}", spec.size);
                Ok(Self { medium, origin, bytes: spec.size, block: spec.block, read_only: false })
            }
            Backing::Medium(MediumSpec::File(spec)) => {
                let file = open_file(&spec.path, spec.size, spec.block, spec.readonly)?;
                let bytes = file.size();
                let (origin, read_only) = (file_origin(&spec.path), spec.readonly);
                Ok(Self { medium: file.into(), origin, bytes, block: spec.block, read_only })
            }
        }
    }

    /// The namespace `id` of the SSD with this serial number, on a medium that has no name yet.
    pub(crate) fn describe(&self, id: u32, serial: &str) -> NamespaceConfig {
        let identity = NamespaceIdentity::derived(&format!("{serial}/{id}"));
        let config = NamespaceConfig::new(NamespaceId(id), MediumId(0), self.bytes, self.block, identity);
        NamespaceConfig { read_only: self.read_only, ..config }
    }
}

/// Opens the backing that a request names at run time. The process waits only briefly for another
/// device then.
pub(crate) fn open_at_work(clock: Clock, backing: &Backing) -> Result<Opened, String> {
    let room = room::check(backing.memory());
    let opened = room.and_then(|()| Opened::open(clock, backing, PATIENCE_AT_WORK));
    let opened = opened.map_err(|error| error.to_string());
    opened.map_err(|error| beyond_reach(backing, error))
}

/// Adds to `error` the remedy for a file that this process has put out of its own reach.
fn beyond_reach(backing: &Backing, error: String) -> String {
    let Backing::Medium(MediumSpec::File(spec)) = backing else { return error };
    match std::fs::File::open(&spec.path) {
        Err(cause) if cause.kind() == std::io::ErrorKind::PermissionDenied => format!(
            "{error}; a running process reaches only the folders of its options at the start: name this folder there with --allow-path"
        ),
        _ => error,
    }
}

/// Adds a namespace as `id`, or as the first free identifier. Returns the identifier.
///
/// # Errors
/// When the identifier is taken or none is free, or when there are too many media.
pub(crate) fn add(
    now: Instant,
    core: &mut Subsystem,
    media: &mut Media,
    id: Option<u32>,
    opened: Opened,
    serial: &str,
) -> Result<u32, String> {
    let taken: Vec<_> = core.namespaces().map(|one| one.id.0).collect();
    let free = || (1..=NAMESPACE_ID_MAX).find(|id| !taken.contains(id));
    let id = id.or_else(free).ok_or("no identifier is free")?;
    let namespace = opened.describe(id, serial);
    let medium = media.add(opened.medium).map_err(|error| error.to_string())?;
    let namespace = NamespaceConfig { medium, ..namespace };
    if let Err(error) = core.add_namespace(now, &namespace) {
        media.remove(namespace.medium);
        return Err(error.to_string());
    }
    media.note_added(&namespace, &opened.origin);
    Ok(id)
}

/// Removes a namespace. Its commands under way end first; its medium is then closed.
///
/// # Errors
/// When there is no such namespace, or it is one of the pool.
pub(crate) fn remove(now: Instant, core: &mut Subsystem, media: &mut Media, id: u32) -> Result<(), String> {
    let medium = find(core, id).map(|one| one.medium);
    core.remove_namespace(now, NamespaceId(id)).map_err(|error| error.to_string())?;
    media.note_removed(NamespaceId(id));
    // Namespaces of a controller of this machine share one medium.
    let is_used = core.namespaces().any(|one| Some(one.medium) == medium);
    if let Some(medium) = medium.filter(|_| !is_used) {
        media.remove(medium);
    }
    Ok(())
}

/// Makes a namespace `size` bytes long or, without `size`, as long as its file is by now. Returns
/// its length in bytes.
///
/// # Errors
/// When there is no such namespace, or it can't have this length.
pub(crate) fn resize(
    now: Instant,
    core: &mut Subsystem,
    media: &mut Media,
    id: u32,
    size: Option<u64>,
) -> Result<u64, String> {
    let namespace = find(core, id).ok_or(format!("there is no namespace {id}"))?;
    if core.config().pool.is_some_and(|pool| pool.medium == namespace.medium) {
        return Err("only hosts choose the size of a namespace of the pool".to_owned());
    }
    let block = u64::from(namespace.block.stored());
    let is_wrong = |size: u64| match namespace.block.has_metadata() {
        false => size == 0 || !size.is_multiple_of(block),
        true => size < block,
    };
    if let Some(size) = size.filter(|size| is_wrong(*size)) {
        return Err(format!("{size} B is not a positive multiple of the block size, {block} B"));
    }
    let bytes = media.resize(namespace.medium, size).map_err(|error| error.to_string())?;
    core.resize_namespace(now, namespace.id, bytes);
    Ok(bytes)
}

/// The namespace `id`, as it is now.
pub(crate) fn find(core: &Subsystem, id: u32) -> Option<NamespaceConfig> {
    core.namespaces().find(|one| one.id.0 == id)
}

/// The size to give a namespace if nothing but its size has changed; none if anything else has. An
/// inner `None` stands for the length that its file has.
pub(crate) fn resized(before: &Backing, now: &Backing) -> Option<Option<u64>> {
    match (before, now) {
        (Backing::Ram(before), Backing::Ram(now)) => (before.block == now.block).then_some(Some(now.size)),
        (Backing::Medium(MediumSpec::File(before)), Backing::Medium(MediumSpec::File(now))) => {
            let same = (&before.path, before.block, before.readonly) == (&now.path, now.block, now.readonly);
            same.then_some(now.size)
        }
        _ => None,
    }
}
