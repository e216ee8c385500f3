//! The configuration of a subsystem: identity, limits and namespaces.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::firmware_image::FirmwareConfig;
use super::record::{
    Counters, PersistentEvent, ReservationRecord, SanitizeRecord, SavedFeature, UnreadableBlocks,
    WriteProtection,
};
use crate::media::MediumId;
use crate::wire::log::SelfTestResult;
use crate::wire::{Guard, NamespaceId};

/// The highest namespace identifier (NN) that a configuration may use.
pub const NAMESPACE_ID_MAX: u32 = 1024;
/// The most ANA groups that a subsystem may have.
pub const ANA_GROUPS_MAX: u32 = 128;
/// The most commands that may be in flight at once, including Asynchronous Event Requests.
pub const COMMANDS_MAX: u32 = 65_528;
/// The highest namespace identifier that [`Config::with_pool`] makes room for, unless configured
/// namespaces have higher ones.
pub const POOL_NAMESPACES: u32 = 32;
/// The most bytes that one command may transfer: the capacity of a pool's largest buffer.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The smallest memory page in bytes, and the unit of the Maximum Data Transfer Size (MDTS) and
/// similar fields.
pub const PAGE_BYTES: u32 = 4096;

/// The format of a logical block: its length, and the metadata that accompany it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockSize {
    /// 512 bytes, LBA format 0.
    #[default]
    Bytes512,
    /// 4,096 bytes, LBA format 1.
    Bytes4096,
    /// 4,096 bytes with 8 bytes of protection information (16b Guard), LBA format 2.
    Guarded16,
    /// 4,096 bytes with 16 bytes of protection information (64b Guard), LBA format 3.
    Guarded64,
    /// 4,096 bytes with 8 bytes of metadata that the controller does not interpret, LBA format 2.
    Tagged8,
    /// 4,096 bytes with 16 bytes of metadata that the controller does not interpret, LBA format 3.
    Tagged16,
}

impl BlockSize {
    /// Every block format.
    pub const ALL: [Self; 6] =
        [Self::Bytes512, Self::Bytes4096, Self::Guarded16, Self::Guarded64, Self::Tagged8, Self::Tagged16];
    /// One block format for each LBA format, in the order of their indices: where there are
    /// metadata, the one in which they are protection information.
    pub const BY_INDEX: [Self; 4] = [Self::Bytes512, Self::Bytes4096, Self::Guarded16, Self::Guarded64];

    /// The length of a block in bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// The binary logarithm of the block size: LBA Data Size (LBADS).
    pub const fn shift(self) -> u8 {
        match self {
            Self::Bytes512 => 9,
            Self::Bytes4096 | Self::Guarded16 | Self::Guarded64 | Self::Tagged8 | Self::Tagged16 => 12,
        }
    }

    /// The index of the LBA format that has this block size.
    pub const fn format(self) -> u8 {
        match self {
            Self::Bytes512 => 0,
            Self::Bytes4096 => 1,
            Self::Guarded16 | Self::Tagged8 => 2,
            Self::Guarded64 | Self::Tagged16 => 3,
        }
    }

    /// The guard of the protection information that each block carries, if it does.
    #[inline]
    pub const fn guard(self) -> Option<Guard> {
        match self {
            Self::Bytes512 | Self::Bytes4096 | Self::Tagged8 | Self::Tagged16 => None,
            Self::Guarded16 => Some(Guard::Bits16),
            Self::Guarded64 => Some(Guard::Bits64),
        }
    }

    /// Bytes of metadata that accompany each block.
    #[inline]
    pub const fn metadata(self) -> u32 {
        match self {
            Self::Bytes512 | Self::Bytes4096 => 0,
            Self::Guarded16 | Self::Tagged8 => 8,
            Self::Guarded64 | Self::Tagged16 => 16,
        }
    }

    /// Whether metadata accompany each block.
    #[inline]
    pub const fn has_metadata(self) -> bool {
        self.metadata() > 0
    }

    /// Bytes of a medium that a block occupies. With metadata, this is one sector of 512 bytes more
    /// than its data, so that requests stay aligned.
    #[inline]
    pub const fn stored(self) -> u32 {
        self.bytes() + if self.has_metadata() { 512 } else { 0 }
    }

    /// The alignment in bytes of requests to a medium of such blocks.
    pub const fn alignment(self) -> u32 {
        match self {
            Self::Bytes4096 => 4096,
            _ => 512,
        }
    }

    /// Length of a block with its metadata in bytes, which differs for every LBA format.
    pub const fn extended_bytes(self) -> u32 {
        self.bytes() + self.metadata()
    }

    /// The format whose block has this length with its metadata, with protection information or
    /// without, if one exists.
    pub fn from_extended_bytes(bytes: u32, protected: bool) -> Option<Self> {
        let is_it = |it: &Self| it.extended_bytes() == bytes && it.guard().is_some() == protected;
        Self::ALL.into_iter().find(is_it)
    }

    /// The block format of the LBA format with this index, with protection information or without,
    /// if one exists.
    pub fn from_format(format: u32, protected: bool) -> Option<Self> {
        let is_it = |it: &Self| u32::from(it.format()) == format && it.guard().is_some() == protected;
        Self::ALL.into_iter().find(is_it)
    }

    /// The format without metadata whose block has this length in bytes, if one exists.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() == bytes)
    }
}

/// The globally unique, permanent names of a namespace. A name of all zeroes means that the
/// namespace does not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamespaceIdentity {
    /// IEEE Extended Unique Identifier (EUI64), most significant byte first.
    pub eui64: [u8; 8],
    /// Namespace Globally Unique Identifier (NGUID), most significant byte first.
    pub nguid: [u8; 16],
    /// Namespace UUID (RFC 9562), most significant byte first.
    pub uuid: [u8; 16],
}

impl NamespaceIdentity {
    /// An identity computed from `name` (a path, a serial number): the same name always gives the
    /// same identity. The UUID has version 8, and the EUI64 is locally administered.
    pub fn derived(name: &str) -> Self {
        // FNV-1a with 128 bits is enough: names are configuration, not input of an attacker.
        let hash = |salt: u8| {
            name.bytes().chain([salt]).fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
                (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            })
        };
        let mut uuid = hash(1).to_be_bytes();
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let nguid = hash(2).to_be_bytes();
        let [mut first, b, c, d, e, f, g, h, ..] = hash(3).to_be_bytes();
        first = first & 0xfc | 0x02;
        Self { eui64: [first, b, c, d, e, f, g, h], nguid, uuid }
    }
}

/// A namespace of the subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceConfig {
    /// Namespace identifier, 1..=[`NAMESPACE_ID_MAX`].
    pub id: NamespaceId,
    /// The medium that holds the namespace's bytes.
    pub medium: MediumId,
    /// Byte offset of the namespace in its medium; in the pool a multiple of [`PAGE_BYTES`].
    pub offset: u64,
    /// Length in bytes of the namespace's part of the medium. A remainder that does not fill a
    /// block is unused.
    pub bytes: u64,
    /// The logical block size, which Format NVM changes.
    pub block: BlockSize,
    /// Whether the namespace is read-only regardless of the settings of hosts.
    pub read_only: bool,
    /// The write protection that hosts have set, as
    /// [`Notification::NamespaceProtected`](super::Notification::NamespaceProtected) last reported
    /// it.
    pub write_protection: WriteProtection,
    /// Whether the namespace is attached to each controller that is added: active rather than only
    /// allocated.
    pub attached: bool,
    /// The namespace's permanent names.
    pub identity: NamespaceIdentity,
}

impl NamespaceConfig {
    /// A namespace of `bytes` bytes at the beginning of `medium`. Hosts may write it, and it is
    /// attached to each controller.
    pub const fn new(
        id: NamespaceId,
        medium: MediumId,
        bytes: u64,
        block: BlockSize,
        identity: NamespaceIdentity,
    ) -> Self {
        let (offset, read_only, attached) = (0, false, true);
        let write_protection = WriteProtection::None;
        Self { id, medium, offset, bytes, block, read_only, write_protection, attached, identity }
    }
}

/// A medium from which Namespace Management takes the space of new namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolConfig {
    /// The medium. Every namespace on this medium has an extent of the pool.
    pub medium: MediumId,
    /// Length of the medium in bytes.
    pub bytes: u64,
    /// The highest identifier that a new namespace may get, 1..=[`NAMESPACE_ID_MAX`].
    pub namespaces_max: u32,
    /// How many namespaces were ever created, as
    /// [`Notification::NamespaceCreated`](super::Notification::NamespaceCreated) last reported it.
    /// The count keeps the identities of namespaces unique.
    pub created: u64,
}

/// The configuration of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Serial Number (SN), at most 20 ASCII characters.
    pub serial_number: String,
    /// Model Number (MN), at most 40 ASCII characters.
    pub model_number: String,
    /// Firmware Revision (FR) of slot 1, at most 8 ASCII characters.
    pub firmware_revision: String,
    /// NVM Subsystem NVMe Qualified Name (SUBNQN), at most 223 bytes.
    pub subsystem_name: String,
    /// PCI Vendor ID (VID); 0 where the transport has none.
    pub vendor: u16,
    /// PCI Subsystem Vendor ID (SSVID); 0 where the transport has none.
    pub subsystem_vendor: u16,
    /// IEEE OUI Identifier (IEEE), least significant byte first.
    pub ieee_oui: [u8; 3],
    /// The namespaces. Each has its own medium, a part of a medium, or an extent of the pool.
    pub namespaces: Vec<NamespaceConfig>,
    /// The medium from which Namespace Management takes space. Without a pool, there is no free
    /// space.
    pub pool: Option<PoolConfig>,

    /// The medium that keeps the state reported by [`Notification`](super::Notification)s, if there
    /// is one. The core only flushes this medium: a notification sent before the flush is durable
    /// once the flush has ended, and a command that changed lasting state completes only then.
    pub state: Option<MediumId>,
    /// The highest identifier that [`Subsystem::add_namespace`](super::Subsystem::add_namespace)
    /// may use, unless configured namespaces have higher ones; at most [`NAMESPACE_ID_MAX`].
    pub namespaces_max: u32,

    /// Number of ANA groups that controllers over fabrics report, at most [`ANA_GROUPS_MAX`]; 0 for
    /// no Asymmetric Namespace Access. Every namespace starts in group 1, and every group starts
    /// optimized;
    /// [`Subsystem::set_ana_state`](super::Subsystem::set_ana_state) changes a group's state.
    pub ana_groups: u32,
    /// Number of commands that may be in flight at once over all controllers, at most
    /// [`COMMANDS_MAX`]. Command tokens are less than this number.
    pub commands_max: u32,
    /// Maximum Data Transfer Size (MDTS) in bytes: a power of two,
    /// [`PAGE_BYTES`]..=[`TRANSFER_BYTES_MAX`].
    pub transfer_bytes_max: u32,
    /// Whether the media have a volatile write cache, which makes Flush and FUA matter.
    pub volatile_write_cache: bool,
    /// The composite temperature at the start, in kelvin, until
    /// [`Subsystem::set_temperature`](super::Subsystem::set_temperature) changes it.
    pub temperature: u16,
    /// Warning Composite Temperature Threshold (WCTEMP), in kelvin.
    pub temperature_warning: u16,
    /// Critical Composite Temperature Threshold (CCTEMP), in kelvin.
    pub temperature_critical: u16,
    /// The start values of the health log's counters: the device's life so far.
    pub counters: Counters,
    /// Blocks that Write Uncorrectable made unreadable and that were not written since, at most
    /// 65,536 per namespace.
    pub unreadable_blocks: Vec<UnreadableBlocks>,
    /// Registrants and reservations that persist through power loss, as
    /// [`Notification::ReservationsChanged`](super::Notification::ReservationsChanged) last
    /// reported them.
    pub reservations: Vec<ReservationRecord>,
    /// The most recent sanitize operation. An operation that was in progress starts again from its
    /// beginning.
    pub sanitize: SanitizeRecord,
    /// Results of self-tests, newest first. The log holds 20.
    pub self_test_results: Vec<SelfTestResult>,
    /// The namespace (or the identifier for all or none) of an extended self-test that a power loss
    /// interrupted.
    pub extended_self_test: Option<NamespaceId>,
    /// Events of the Persistent Event log, newest first, within
    /// [`EVENT_LOG_BYTES_MAX`](super::EVENT_LOG_BYTES_MAX) bytes.
    pub events: Vec<PersistentEvent>,
    /// The contents of the firmware slots.
    pub firmware: FirmwareConfig,
    /// Feature values that were saved in an earlier life, as
    /// [`Notification::FeatureSaved`](super::Notification::FeatureSaved) reported them.
    pub saved_features: Vec<SavedFeature>,
}

impl Config {
    /// A subsystem with serial number `serial_number`, the usual limits and no namespaces.
    pub fn new(serial_number: &str) -> Self {
        Self {
            serial_number: serial_number.to_string(),
            model_number: "Farlane NVMe".to_string(),
            firmware_revision: env!("CARGO_PKG_VERSION").to_string(),
            subsystem_name: format!("nqn.2026-01.io.farlane:{serial_number}"),
            vendor: 0,
            subsystem_vendor: 0,
            ieee_oui: [0; 3],
            namespaces: Vec::new(),
            pool: None,
            state: None,
            namespaces_max: 0,
            ana_groups: 0,
            commands_max: 1024,
            transfer_bytes_max: 128 << 10,
            volatile_write_cache: true,
            temperature: 300,
            temperature_warning: 343,
            temperature_critical: 353,
            counters: Counters::default(),
            unreadable_blocks: Vec::new(),
            reservations: Vec::new(),
            sanitize: SanitizeRecord::default(),
            self_test_results: Vec::new(),
            extended_self_test: None,
            events: Vec::new(),
            firmware: FirmwareConfig::default(),
            saved_features: Vec::new(),
        }
    }

    /// Adds a namespace with the next identifier, 512 B blocks, write access, and an identity
    /// derived from the serial number and the identifier.
    #[must_use]
    pub fn with_namespace(mut self, medium: MediumId, bytes: u64) -> Self {
        let id = NamespaceId(self.namespaces.iter().map(|namespace| namespace.id.0).max().unwrap_or(0) + 1);
        let identity = NamespaceIdentity::derived(&format!("{}/{id}", self.serial_number));
        let block = BlockSize::default();
        self.namespaces.push(NamespaceConfig::new(id, medium, bytes, block, identity));
        self
    }

    /// Adds a pool: a medium from which Namespace Management creates namespaces.
    #[must_use]
    pub const fn with_pool(mut self, medium: MediumId, bytes: u64) -> Self {
        self.pool = Some(PoolConfig { medium, bytes, namespaces_max: POOL_NAMESPACES, created: 0 });
        self
    }

    /// The highest valid namespace identifier (NN).
    pub(super) fn namespace_id_max(&self) -> u32 {
        let configured = self.namespaces.iter().map(|namespace| namespace.id.0).max().unwrap_or(0);
        let pool = self.pool.map_or(0, |pool| pool.namespaces_max);
        configured.max(pool).max(self.namespaces_max)
    }

    /// Every medium once with its length: the pool's and those of the namespaces.
    #[cfg(test)]
    pub(super) fn media(&self) -> impl Iterator<Item = (MediumId, u64)> {
        let pool = self.pool.iter().map(|pool| (pool.medium, pool.bytes));
        let parts = self.namespaces.iter().map(|one| (one.medium, one.offset + one.bytes));
        let mut media = alloc::collections::BTreeMap::new();
        for (medium, end) in pool.chain(parts) {
            let length = media.entry(medium).or_insert(end);
            *length = end.max(*length);
        }
        media.into_iter()
    }

    /// Checks the limits that only the configuration can violate.
    ///
    /// # Panics
    /// When a limit is exceeded, when two namespaces have the same identifier, or when their parts
    /// of a medium overlap.
    pub(super) fn check(&self) {
        assert!((1..=COMMANDS_MAX).contains(&self.commands_max), "commands_max is 1..={COMMANDS_MAX}");
        assert!(
            self.transfer_bytes_max.is_power_of_two()
                && (PAGE_BYTES..=TRANSFER_BYTES_MAX).contains(&self.transfer_bytes_max),
            "transfer_bytes_max is a power of two, {PAGE_BYTES}..={TRANSFER_BYTES_MAX}"
        );
        assert!(self.ana_groups <= ANA_GROUPS_MAX, "ana_groups is 0..={ANA_GROUPS_MAX}");
        assert!(self.namespaces_max <= NAMESPACE_ID_MAX, "namespaces_max is 0..={NAMESPACE_ID_MAX}");
        for (index, namespace) in self.namespaces.iter().enumerate() {
            let id = namespace.id.0;
            assert!((1..=NAMESPACE_ID_MAX).contains(&id), "namespace {id} is not in 1..={NAMESPACE_ID_MAX}");
            let twice = self.namespaces[..index].iter().any(|other| other.id == namespace.id);
            assert!(!twice, "namespace {id} is configured twice");
            self.check_extent(index, namespace);
        }
        if let Some(pool) = &self.pool {
            let most = pool.namespaces_max;
            assert!((1..=NAMESPACE_ID_MAX).contains(&most), "namespaces_max is 1..={NAMESPACE_ID_MAX}");
        }
    }

    fn check_extent(&self, index: usize, namespace: &NamespaceConfig) {
        let id = namespace.id;
        let end = namespace.offset.checked_add(namespace.bytes);
        let pool = self.pool.filter(|pool| pool.medium == namespace.medium);
        let room = pool.map_or(u64::MAX, |pool| pool.bytes);
        assert!(end.is_some_and(|end| end <= room), "namespace {id} is beyond its medium's {room} B");
        let apart = self.namespaces[..index].iter().all(|other| {
            other.medium != namespace.medium
                || end.is_some_and(|end| end <= other.offset)
                || other.offset + other.bytes <= namespace.offset
        });
        assert!(apart, "namespace {id} overlaps another in its medium");
    }
}
