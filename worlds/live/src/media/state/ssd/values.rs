//! The values of an SSD's section, and their conversion from and to those of a controller.

use engine::Nanos;
use nvme::subsystem::{
    BlockSize, Counters, FIRMWARE_SLOTS, FeatureKey, FirmwareConfig, FirmwareImage, NamespaceConfig,
    NamespaceIdentity, Registrant, ReservationRecord, ReservationType, SanitizeRecord, SanitizeStatus,
    SavedFeature, WriteProtection,
};
use nvme::wire::NamespaceId;
use nvme::wire::feature::FeatureId;
use nvme::wire::log::SelfTestResult;
use serde::{Deserialize, Serialize};

use crate::media::state::hex::Hex;

/// The largest integer that TOML has.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// A namespace, either given or created in the pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Namespace {
    pub(super) id: u32,
    /// Where the namespace's bytes are: a file, memory, another controller, or the pool.
    pub(super) origin: String,
    /// The size of a block in bytes, with its metadata.
    pub(super) block: u32,
    /// Whether the block has metadata that are no protection information.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) unprotected: bool,
    pub(super) attached: bool,
    #[serde(default, skip_serializing_if = "Protection::is_none")]
    pub(super) write_protection: Protection,
    pub(super) eui64: Hex,
    pub(super) nguid: Hex,
    pub(super) uuid: Hex,
    /// Where the namespace starts in the pool, and how long it is, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
}

/// Whether blocks have metadata that are no protection information.
const fn is_unprotected(block: BlockSize) -> bool {
    block.has_metadata() && block.guard().is_none()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Namespace {
    pub(super) fn new(config: &NamespaceConfig, origin: &str, extent: Option<(u64, u64)>) -> Self {
        Self {
            id: config.id.0,
            origin: origin.to_owned(),
            block: config.block.extended_bytes(),
            unprotected: is_unprotected(config.block),
            attached: config.attached,
            write_protection: config.write_protection.into(),
            eui64: config.identity.eui64.into(),
            nguid: config.identity.nguid.into(),
            uuid: config.identity.uuid.into(),
            offset: extent.map(|(offset, _)| offset),
            bytes: extent.map(|(_, bytes)| bytes),
        }
    }

    /// The format of the namespace's blocks, if one is like that.
    pub(super) fn format(&self) -> Option<BlockSize> {
        let found = |protected| BlockSize::from_extended_bytes(self.block, protected);
        let plain = found(false).filter(|block| block.has_metadata() == self.unprotected);
        if self.unprotected { plain } else { found(true).or(plain) }
    }

    /// Remembers another format of the namespace's blocks.
    pub(super) fn set_format(&mut self, block: BlockSize) {
        (self.block, self.unprotected) = (block.extended_bytes(), is_unprotected(block));
    }

    /// The identity of the namespace. The error has the key of a malformed value and the number of
    /// digits that it should have.
    pub(super) fn identity(&self) -> Result<NamespaceIdentity, (&'static str, usize)> {
        Ok(NamespaceIdentity {
            eui64: self.eui64.array().ok_or(("eui64", 16))?,
            nguid: self.nguid.array().ok_or(("nguid", 32))?,
            uuid: self.uuid.array().ok_or(("uuid", 32))?,
        })
    }
}

/// The part of a namespace's write protection that lasts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Protection {
    #[default]
    None,
    // Earlier versions let hosts choose permanent protection; it no longer exists.
    #[serde(alias = "permanent")]
    Protected,
}

impl Protection {
    const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl From<WriteProtection> for Protection {
    fn from(protection: WriteProtection) -> Self {
        match protection {
            WriteProtection::None => Self::None,
            WriteProtection::Protected => Self::Protected,
        }
    }
}

impl From<Protection> for WriteProtection {
    fn from(state: Protection) -> Self {
        match state {
            Protection::None => Self::None,
            Protection::Protected => Self::Protected,
        }
    }
}

/// The counters of the health log. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CountersState {
    bytes_read: u64,
    bytes_written: u64,
    host_reads: u64,
    host_writes: u64,
    busy: u64,
    pub(super) power_cycles: u64,
    power_on: u64,
    pub(super) unsafe_shutdowns: u64,
    media_errors: u64,
    error_entries: u64,
    warning_temperature: u64,
    critical_temperature: u64,
}

impl From<&Counters> for CountersState {
    fn from(counters: &Counters) -> Self {
        let number = |value: u64| value.min(NUMBER_MAX);
        let time = |value: Nanos| value.get().min(NUMBER_MAX);
        Self {
            bytes_read: number(counters.bytes_read),
            bytes_written: number(counters.bytes_written),
            host_reads: number(counters.host_reads),
            host_writes: number(counters.host_writes),
            busy: time(counters.busy),
            power_cycles: number(counters.power_cycles),
            power_on: time(counters.power_on),
            unsafe_shutdowns: number(counters.unsafe_shutdowns),
            media_errors: number(counters.media_errors),
            error_entries: number(counters.error_entries),
            warning_temperature: time(counters.warning_temperature),
            critical_temperature: time(counters.critical_temperature),
        }
    }
}

impl From<&CountersState> for Counters {
    fn from(state: &CountersState) -> Self {
        Self {
            bytes_read: state.bytes_read,
            bytes_written: state.bytes_written,
            host_reads: state.host_reads,
            host_writes: state.host_writes,
            busy: Nanos::new(state.busy),
            power_cycles: state.power_cycles,
            power_on: Nanos::new(state.power_on),
            unsafe_shutdowns: state.unsafe_shutdowns,
            media_errors: state.media_errors,
            // Counted anew with each start: there may be space by then.
            space_errors: 0,
            error_entries: state.error_entries,
            warning_temperature: Nanos::new(state.warning_temperature),
            critical_temperature: Nanos::new(state.critical_temperature),
        }
    }
}

/// A saved value of a feature.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Feature {
    /// The feature's identifier.
    feature: u8,
    /// The namespace to which the value belongs; 0 for the controller.
    pub(super) namespace: u32,
    /// The index of the value, for a feature that has several.
    index: u16,
    /// The value as Command Dword 11 has it.
    value: u32,
}

impl Feature {
    pub(super) const fn is_same_as(&self, other: &Self) -> bool {
        self.feature == other.feature && self.namespace == other.namespace && self.index == other.index
    }
}

impl From<SavedFeature> for Feature {
    fn from(saved: SavedFeature) -> Self {
        let key = saved.key;
        let (namespace, index) = (key.namespace.0, key.index);
        Self { feature: key.feature.into(), namespace, index, value: saved.value }
    }
}

impl From<Feature> for SavedFeature {
    fn from(feature: Feature) -> Self {
        let (namespace, index) = (NamespaceId(feature.namespace), feature.index);
        let key = FeatureKey { feature: FeatureId::from(feature.feature), namespace, index };
        Self { key, value: feature.value }
    }
}

/// A run of blocks that Write Uncorrectable made unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Unreadable {
    pub(super) namespace: u32,
    pub(super) first: u64,
    pub(super) count: u64,
}

/// A namespace's registrants and reservation, which outlive a power loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Reservation {
    pub(super) namespace: u32,
    /// How often registrants have changed.
    generation: u32,
    /// Reservation Type (RTYPE), where there is a reservation, and the Host Identifier of its
    /// holder.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<Hex>,
    #[serde(default)]
    registrant: Vec<RegistrantState>,
}

/// A host that is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RegistrantState {
    /// Host Identifier of the registered host.
    host: Hex,
    /// Reservation Key, most significant byte first.
    key: Hex,
}

impl From<&ReservationRecord> for Reservation {
    fn from(record: &ReservationRecord) -> Self {
        let registrant =
            |one: &Registrant| RegistrantState { host: one.host.into(), key: one.key.to_be_bytes().into() };
        Self {
            namespace: record.namespace.0,
            generation: record.generation,
            kind: record.reservation.map(|(kind, _)| kind.value()),
            holder: record.reservation.map(|(_, holder)| holder.into()),
            registrant: record.registrants.iter().map(registrant).collect(),
        }
    }
}

impl Reservation {
    /// The record as a subsystem has it; `None` if the values are invalid.
    pub(super) fn record(&self) -> Option<ReservationRecord> {
        let registrant = |one: &RegistrantState| {
            Some(Registrant { host: one.host.array()?, key: u64::from_be_bytes(one.key.array()?) })
        };
        let reservation = match (self.kind, &self.holder) {
            (None, None) => None,
            (Some(kind), Some(holder)) => Some((ReservationType::from_value(kind)?, holder.array()?)),
            _ => return None,
        };
        Some(ReservationRecord {
            namespace: NamespaceId(self.namespace),
            persistent: true,
            generation: self.generation,
            registrants: self.registrant.iter().map(registrant).collect::<Option<_>>()?,
            reservation,
        })
    }
}

/// The most recent sanitize operation.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Sanitize {
    status: Status,
    /// Command Dwords 10 and 11 of the command.
    cdw10: u32,
    cdw11: u32,
    passes: u8,
    data_erased: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    #[default]
    Never,
    InProgress,
    Completed,
    Failed,
    FailureExited,
}

impl From<SanitizeRecord> for Sanitize {
    fn from(record: SanitizeRecord) -> Self {
        let status = match record.status {
            SanitizeStatus::Never => Status::Never,
            SanitizeStatus::InProgress => Status::InProgress,
            SanitizeStatus::Completed => Status::Completed,
            SanitizeStatus::Failed => Status::Failed,
            SanitizeStatus::FailureExited => Status::FailureExited,
        };
        let SanitizeRecord { cdw10, cdw11, passes, data_erased, .. } = record;
        Self { status, cdw10, cdw11, passes, data_erased }
    }
}

impl From<Sanitize> for SanitizeRecord {
    fn from(state: Sanitize) -> Self {
        let status = match state.status {
            Status::Never => SanitizeStatus::Never,
            Status::InProgress => SanitizeStatus::InProgress,
            Status::Completed => SanitizeStatus::Completed,
            Status::Failed => SanitizeStatus::Failed,
            Status::FailureExited => SanitizeStatus::FailureExited,
        };
        let Sanitize { cdw10, cdw11, passes, data_erased, .. } = state;
        Self { status, cdw10, cdw11, passes, data_erased }
    }
}

/// The results of self-tests, and the one that has not ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SelfTests {
    /// The namespace of an extended self-test that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extended: Option<u32>,
    /// Self-test Result Data Structures, newest first.
    pub(super) results: Vec<Hex>,
}

pub(super) fn self_test(result: &SelfTestResult) -> Hex {
    let mut bytes = [0; SelfTestResult::LENGTH];
    result.emit(&mut bytes);
    bytes.into()
}

/// The firmware slots.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Firmware {
    pub(super) active: u8,
    /// The images of slots 2 and 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    slot_2: Option<Hex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot_3: Option<Hex>,
}

const _: () = assert!(FIRMWARE_SLOTS == 3, "each slot has its key");

impl Default for Firmware {
    fn default() -> Self {
        Self { active: 1, slot_2: None, slot_3: None }
    }
}

impl Firmware {
    pub(super) fn store(&mut self, slot: u8, image: &FirmwareImage) {
        let place = if slot == 2 { &mut self.slot_2 } else { &mut self.slot_3 };
        *place = Some(Hex(image.bytes().to_vec()));
    }

    /// The slots as a controller has them. The error is the key of an invalid value.
    pub(super) fn config(&self) -> Result<FirmwareConfig, &'static str> {
        let image = |place: &Option<Hex>, key| match place {
            None => Ok(None),
            Some(hex) => FirmwareImage::parse(&hex.0).map(Some).ok_or(key),
        };
        let images = [image(&self.slot_2, "slot-2")?, image(&self.slot_3, "slot-3")?];
        if !(1..=FIRMWARE_SLOTS).contains(&self.active) {
            return Err("active");
        }
        Ok(FirmwareConfig { images, active: self.active })
    }
}
