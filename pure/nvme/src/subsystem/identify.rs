//! The Identify command.

use alloc::vec::Vec;

use super::config::{BlockSize, Config, PAGE_BYTES};
use super::controller::{ControllerConfig, ControllerKey, FabricsConfig};
use super::controllers::Controllers;
use super::errors::{ERROR_LOG_ENTRIES, Failure, Location};
use super::namespace::Namespace;
use super::namespaces::Namespaces;
use super::{ana, copy, firmware, fused, instance, protection, reservation, sanitize};
use crate::wire::feature::{EVENT_ASYMMETRIC_ACCESS, EVENT_NAMESPACE_ATTRIBUTE};
use crate::wire::identify::{
    IDENTIFY_LENGTH, IdentifyController, IdentifyControllerNvm, IdentifyIndependentNamespace,
    IdentifyNamespace, IdentifyNamespaceNvm, LbaFormat, NamespaceDescriptor, cns,
};
use crate::wire::{
    AdminOpcode, Bits, Guard, NamespaceId, StatusCode, SubmissionQueueEntry, Text, low_u8, low_u16,
};

/// Controller or Namespace Structure (CNS), in CDW10.
const CNS: Bits = Bits::new(7, 0);
/// Controller Identifier (CNTID), in CDW10.
const CONTROLLER_ID: Bits = Bits::new(31, 16);
/// The Command Set Identifier of the NVM command set.
const NVM_COMMAND_SET: u8 = 0;
/// CNTID: the controller that processes the command.
const THIS_CONTROLLER: u32 = 0xffff;

/// Version (VER): 2.0.0.
const VERSION: u32 = 0x0002_0000;
/// Controller Attributes: Host Identifiers of 128 bits.
const LONG_HOST_IDENTIFIERS: u32 = 1 << 0;
/// Controller Attributes: Traffic Based Keep Alive.
const TRAFFIC_KEEP_ALIVE: u32 = 1 << 6;
/// Controller Multi-Path I/O and Namespace Sharing: several ports and several controllers.
const MULTI_PATH: u8 = 1 << 0 | 1 << 1;
/// Controller Multi-Path I/O and Namespace Sharing: Asymmetric Namespace Access Reporting.
const ANA_REPORTING: u8 = 1 << 3;
/// Namespace Multi-path I/O and Namespace Sharing: several controllers may have the namespace
/// attached at once.
const SHARED: u8 = 1 << 0;
/// The unit of capsule sizes in bytes.
const CAPSULE_UNIT: u32 = 16;
/// Fabrics Controller Attributes: the static controller model.
const STATIC_CONTROLLERS: u8 = 1 << 0;
/// Optional Fabric Commands Support: Disconnect.
const DISCONNECT_SUPPORTED: u16 = 1 << 0;
/// Controller Type: an I/O controller.
const IO_CONTROLLER: u8 = 1;
/// Optional Admin Command Support: Format NVM; Firmware Commit and Image Download; Namespace
/// Management and Attachment; Device Self-test.
const FORMAT_SUPPORTED: u16 = 1 << 1;
const FIRMWARE_SUPPORTED: u16 = 1 << 2;
/// Optional Admin Command Support: Doorbell Buffer Config, where the transport executes it.
const DOORBELL_BUFFERS_SUPPORTED: u16 = 1 << 8;
const NAMESPACE_MANAGEMENT_SUPPORTED: u16 = 1 << 3;
const SELF_TEST_SUPPORTED: u16 = 1 << 4;
/// Device Self-test Options: one self-test at a time in the NVM subsystem.
const ONE_SELF_TEST: u8 = 1 << 0;
/// Bytes that an extended self-test is expected to read per minute.
const SELF_TEST_BYTES_PER_MINUTE: u64 = 60 << 30;
/// Log Page Attributes: Commands Supported and Effects; offset and long lengths; Telemetry;
/// Persistent Event; Supported Log Pages and other effects.
const LOG_PAGE_ATTRIBUTES: u8 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
/// Abort Command Limit (ACL), 0's based, as the specification recommends.
const ABORT_LIMIT: u8 = 3;
/// Queue entry sizes of 2^6 and 2^4 bytes, both required and maximum.
const SUBMISSION_ENTRY_SIZE: u8 = 0x66;
const COMPLETION_ENTRY_SIZE: u8 = 0x44;
/// Optional NVM Command Support: Compare, Write Uncorrectable, Dataset Management, Write Zeroes,
/// Save and Select, Timestamp, Verify, Copy.
const OPTIONAL_NVM_COMMANDS: u16 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8;
/// Optional NVM Command Support: reservations.
const RESERVATIONS_SUPPORTED: u16 = 1 << 5;
/// Volatile Write Cache: a cache is present, and Flush may name all namespaces.
const CACHE_PRESENT: u8 = 1 << 0;
const FLUSH_OF_ALL: u8 = 0b11 << 1;
/// Namespace Features: the preferred granularities and alignments are valid (OPTPERF).
const PREFERENCES_VALID: u8 = 1 << 4;
/// Deallocate Logical Block Features: blocks read as zeroes, and Write Zeroes can deallocate.
const READS_ZEROES: u8 = 0b001;
const WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
/// Namespace Attributes: currently write protected.
const WRITE_PROTECTED: u8 = 1 << 0;
/// Metadata Capabilities (MC): metadata in a buffer of its own.
const SEPARATE_METADATA: u8 = 1 << 1;
/// End-to-end Data Protection Capabilities (DPC): Type 1, in the last bytes of the metadata.
const TYPE_1: u8 = 1 << 0;
const LAST_BYTES: u8 = 1 << 4;
/// Controller Attributes: Extended LBA Formats (ELBAS).
const EXTENDED_FORMATS: u32 = 1 << 15;
/// Namespace Status: the namespace is ready.
const READY: u8 = 1 << 0;
/// Relative Performance of an LBA format.
const BEST: u8 = 0;
const GOOD: u8 = 2;
/// The longest that a shutdown should take, in microseconds.
const SHUTDOWN_MICROSECONDS: u32 = 10_000_000;

pub(super) type Page = [u8; IDENTIFY_LENGTH];

/// The parts of the subsystem that the data structures of Identify describe.
pub(super) struct Identify<'a> {
    pub(super) config: &'a Config,
    pub(super) controllers: &'a Controllers,
    pub(super) namespaces: &'a Namespaces,
    /// The firmware revision that runs.
    pub(super) revision: Text<8>,
}

impl Identify<'_> {
    /// Fills `page`, which is all zeros, with the data structure that the command requests.
    pub(super) fn fill(
        &self,
        key: ControllerKey,
        entry: &SubmissionQueueEntry,
        page: &mut Page,
    ) -> Result<(), Failure> {
        match CNS.of(entry.cdw10) {
            // Capabilities common to all namespaces that may be created.
            cns::NAMESPACE if entry.namespace == NamespaceId::ALL => self.common_structure(key).emit(page),
            cns::NAMESPACE => {
                if let Some(namespace) =
                    self.valid_namespace(entry)?.filter(|one| self.namespaces.is_active(key, one))
                {
                    self.namespace_structure(key, namespace).emit(page);
                }
            }
            cns::ALLOCATED_NAMESPACE => {
                let shown = |one: &&Namespace| self.namespaces.permit(key).shows(one.id);
                if let Some(namespace) = self.valid_namespace(entry)?.filter(shown) {
                    self.namespace_structure(key, namespace).emit(page);
                }
            }
            cns::CONTROLLER => self.controller_structure(key).emit(page),
            cns::ACTIVE_NAMESPACES => self.namespaces_after(key, entry, page, true)?,
            cns::ALLOCATED_NAMESPACES => self.namespaces_after(key, entry, page, false)?,
            cns::NAMESPACE_DESCRIPTORS => self.descriptors(self.active_namespace(key, entry)?, page),
            cns::COMMAND_SET_NAMESPACE => {
                self.check_command_set(entry)?;
                if entry.namespace != NamespaceId::ALL {
                    self.valid_namespace(entry)?;
                }
                let mut formats = [0; 64];
                for (format, block) in formats.iter_mut().zip(BlockSize::BY_INDEX) {
                    *format = block.guard().map_or(0, Guard::format);
                }
                IdentifyNamespaceNvm { extended_formats: formats }.emit(page);
            }
            cns::COMMAND_SET_CONTROLLER => {
                self.check_command_set(entry)?;
                IdentifyControllerNvm::default().emit(page);
            }
            cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                self.check_command_set(entry)?;
                self.namespaces_after(key, entry, page, true)?;
            }
            cns::COMMAND_SET_ALLOCATED_NAMESPACES => {
                self.check_command_set(entry)?;
                self.namespaces_after(key, entry, page, false)?;
            }
            cns::INDEPENDENT_NAMESPACE => {
                if let Some(namespace) =
                    self.valid_namespace(entry)?.filter(|one| self.namespaces.is_active(key, one))
                {
                    self.independent_structure(key, namespace).emit(page);
                }
            }
            cns::ATTACHED_CONTROLLERS => {
                let missing = Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE);
                let namespace = self.namespaces.allocated(entry.namespace).ok_or(missing)?;
                if !self.namespaces.permit(key).shows(namespace.id) {
                    return Err(missing);
                }
                self.controllers_from(entry, page, |key| namespace.is_attached_to(key));
            }
            cns::CONTROLLERS => self.controllers_from(entry, page, |_| true),
            cns::COMMAND_SETS => self.command_sets(key, entry, page)?,
            _ => return Err(Failure::field(StatusCode::InvalidField, Location::CDW10)),
        }
        Ok(())
    }

    /// The allocated namespace of the command; `None` if the identifier is valid but not in use,
    /// which reads as zeroes.
    fn valid_namespace(&self, entry: &SubmissionQueueEntry) -> Result<Option<&Namespace>, Failure> {
        if self.namespaces.is_valid(entry.namespace) {
            Ok(self.namespaces.allocated(entry.namespace))
        } else {
            Err(Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE))
        }
    }

    fn active_namespace(
        &self,
        key: ControllerKey,
        entry: &SubmissionQueueEntry,
    ) -> Result<&Namespace, Failure> {
        let missing = Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE);
        self.namespaces.active(key, entry.namespace).ok_or(missing)
    }

    fn check_command_set(&self, entry: &SubmissionQueueEntry) -> Result<(), Failure> {
        if command_set_of_identify(entry) == NVM_COMMAND_SET {
            Ok(())
        } else {
            Err(Failure::field(StatusCode::InvalidField, Location::at(47, 0)))
        }
    }

    fn controller_structure(&self, key: ControllerKey) -> IdentifyController {
        let config = &self.config;
        let controller = &self.controllers.of(key).config;
        let fabrics = controller.of_fabrics();
        let life = self.controllers.of(key).instance;
        let ana = self.controllers.has_ana(key, self.config);
        let pages = config.transfer_bytes_max / PAGE_BYTES;
        let unallocated = self.namespaces.unallocated();
        IdentifyController {
            vendor: config.vendor,
            subsystem_vendor: config.subsystem_vendor,
            serial_number: Text::padded_with_spaces(&config.serial_number),
            model_number: Text::padded_with_spaces(&config.model_number),
            firmware_revision: self.revision,
            ieee_oui: config.ieee_oui,
            maximum_data_transfer_size: low_u8(pages.ilog2()),
            controller_id: controller.controller_id,
            version: VERSION,
            rtd3_entry_latency: SHUTDOWN_MICROSECONDS,
            optional_events: EVENT_NAMESPACE_ATTRIBUTE.put(1) | EVENT_ASYMMETRIC_ACCESS.put(ana.into()),
            attributes: LONG_HOST_IDENTIFIERS
                | EXTENDED_FORMATS
                | if fabrics.is_some_and(|one| one.traffic_keep_alive) { TRAFFIC_KEEP_ALIVE } else { 0 },
            multi_path: if controller.has_others() { MULTI_PATH } else { 0 }
                | if ana { ANA_REPORTING } else { 0 },
            ana_transition_time: if ana { ana::TRANSITION_SECONDS } else { 0 },
            ana_capabilities: if ana { ana::CAPABILITIES } else { 0 },
            ana_group_max: if ana { config.ana_groups } else { 0 },
            ana_groups: if ana { config.ana_groups } else { 0 },
            maximum_namespaces: if ana { self.namespaces.highest() } else { 0 },
            keep_alive: fabrics.map_or(0, |fabrics| fabrics.keep_alive_granularity),
            controller_type: IO_CONTROLLER,
            optional_admin_commands: optional_admin_commands(controller),
            abort_limit: ABORT_LIMIT,
            event_request_limit: controller.event_requests_max - 1,
            firmware_updates: firmware::UPDATES,
            firmware_granularity: firmware::GRANULARITY,
            persistent_event_log_size: 1,
            log_page_attributes: LOG_PAGE_ATTRIBUTES,
            error_log_entries: u8::try_from(ERROR_LOG_ENTRIES - 1).expect("at most 256"),
            warning_temperature: config.temperature_warning,
            critical_temperature: config.temperature_critical,
            total_capacity: self.namespaces.media().iter().map(|(_, _, bytes)| u128::from(*bytes)).sum(),
            unallocated_capacity: unallocated.into(),
            self_test_time: self.self_test_minutes(),
            self_test_options: ONE_SELF_TEST,
            sanitize: sanitize::CAPABILITIES,
            submission_entry_size: SUBMISSION_ENTRY_SIZE,
            completion_entry_size: COMPLETION_ENTRY_SIZE,
            maximum_commands: fabrics.map_or(low_u16(config.commands_max), |fabrics| fabrics.commands_max),
            namespaces: self.namespaces.highest(),
            optional_nvm_commands: OPTIONAL_NVM_COMMANDS
                | if fabrics.is_some() { RESERVATIONS_SUPPORTED } else { 0 },
            fused_operations: fused::COMPARE_AND_WRITE,
            // A whole transfer, in blocks of the largest size.
            atomic_compare_and_write: low_u16(pages - 1),
            write_protection: protection::CAPABILITIES,
            copy_descriptor_formats: copy::COPY_FORMATS,
            volatile_write_cache: FLUSH_OF_ALL | if config.volatile_write_cache { CACHE_PRESENT } else { 0 },
            sgl_support: controller.sgl_support,
            instance_uniquifier: life.map_or(0, |life| life.uniquifier),
            instance_random: life.map_or(0, |life| life.random),
            cross_controller_resets_max: if life.is_some() { instance::RESETS_MAX } else { 0 },
            command_quiesce_time: if life.is_some() { instance::QUIESCE_MILLISECONDS } else { 0 },
            subsystem_name: Text::padded_with_nuls(&config.subsystem_name),
            ..fabrics.map_or_else(IdentifyController::default, fabrics_fields)
        }
    }

    /// Extended Device Self-test Time (EDSTT) in minutes.
    fn self_test_minutes(&self) -> u16 {
        let bytes: u64 = self.namespaces.iter().map(|namespace| namespace.bytes).sum();
        u16::try_from(bytes / SELF_TEST_BYTES_PER_MINUTE + 1).unwrap_or(u16::MAX)
    }

    /// The fields common to all namespaces: the formats and capabilities that a new namespace will
    /// have.
    fn common_structure(&self, key: ControllerKey) -> IdentifyNamespace {
        let formats = BlockSize::BY_INDEX.map(|block| LbaFormat {
            metadata_size: low_u16(block.metadata()),
            data_size: block.shift(),
            relative_performance: if block == BlockSize::Bytes4096 { BEST } else { GOOD },
        });
        let mut lba_formats = [LbaFormat::default(); 64];
        lba_formats[..formats.len()].copy_from_slice(&formats);
        IdentifyNamespace {
            features: PREFERENCES_VALID,
            lba_format_count: u8::try_from(formats.len() - 1).expect("at most 64"),
            metadata_capabilities: SEPARATE_METADATA,
            protection_capabilities: TYPE_1 | LAST_BYTES,
            sharing: self.sharing(key),
            reservations: self.reservation_capabilities(key),
            deallocate_features: READS_ZEROES | WRITE_ZEROES_DEALLOCATES,
            lba_formats,
            ..IdentifyNamespace::default()
        }
    }

    fn namespace_structure(&self, key: ControllerKey, namespace: &Namespace) -> IdentifyNamespace {
        // Media keep pages of 4 KiB, and a write aligned to them needs no read first.
        let page = low_u16(PAGE_BYTES / namespace.block.bytes()) - 1;
        // Copy does not support metadata.
        let copy_bytes = if namespace.block.has_metadata() { 0 } else { copy::COPY_BYTES_MAX };
        let copy_blocks = u32::try_from(copy_bytes >> namespace.block.shift()).unwrap_or(u32::MAX);
        IdentifyNamespace {
            size: namespace.blocks,
            capacity: namespace.blocks,
            utilization: namespace.blocks,
            formatted_lba_size: namespace.block.format(),
            protection_settings: u8::from(namespace.block.guard().is_some()),
            nvm_capacity: (namespace.blocks << namespace.block.shift()).into(),
            preferred_write_granularity: page,
            preferred_write_alignment: page,
            preferred_deallocate_granularity: page,
            preferred_deallocate_alignment: page,
            optimal_write_size: page,
            copy_range_blocks_max: u16::try_from(copy_blocks).unwrap_or(u16::MAX),
            copy_blocks_max: copy_blocks,
            copy_ranges_max: low_u8(copy::COPY_RANGES_MAX - 1),
            ana_group: if self.controllers.has_ana(key, self.config) { namespace.ana_group } else { 0 },
            attributes: if self.is_read_only(key, namespace) { WRITE_PROTECTED } else { 0 },
            nguid: namespace.identity.nguid,
            eui64: namespace.identity.eui64,
            ..self.common_structure(key)
        }
    }

    /// Whether the controller's host can't write to the namespace.
    fn is_read_only(&self, key: ControllerKey, namespace: &Namespace) -> bool {
        namespace.is_write_protected() || self.namespaces.permit(key).read_only
    }

    /// The identifiers above the command's in ascending order, of the active or of all allocated
    /// namespaces that exist for the controller's host.
    fn namespaces_after(
        &self,
        key: ControllerKey,
        entry: &SubmissionQueueEntry,
        page: &mut Page,
        active: bool,
    ) -> Result<(), Failure> {
        if entry.namespace.0 >= NamespaceId::ALL.0 - 1 {
            return Err(Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE));
        }
        let listed = |one: &&Namespace| {
            one.id > entry.namespace
                && self.namespaces.permit(key).shows(one.id)
                && (!active || one.is_attached_to(key))
        };
        let above = self.namespaces.iter().filter(listed);
        for (place, namespace) in page.as_chunks_mut::<4>().0.iter_mut().zip(above) {
            *place = namespace.id.0.to_le_bytes();
        }
        Ok(())
    }

    fn descriptors(&self, namespace: &Namespace, page: &mut Page) {
        let identity = &namespace.identity;
        let names = [
            (identity.eui64 != [0; 8]).then_some(NamespaceDescriptor::Eui64(identity.eui64)),
            (identity.nguid != [0; 16]).then_some(NamespaceDescriptor::Nguid(identity.nguid)),
            (identity.uuid != [0; 16]).then_some(NamespaceDescriptor::Uuid(identity.uuid)),
            Some(NamespaceDescriptor::CommandSet(NVM_COMMAND_SET)),
        ];
        let mut end = 0;
        for name in names.into_iter().flatten() {
            end += name.emit(&mut page[end..]);
        }
    }

    fn independent_structure(
        &self,
        key: ControllerKey,
        namespace: &Namespace,
    ) -> IdentifyIndependentNamespace {
        IdentifyIndependentNamespace {
            sharing: self.sharing(key),
            reservations: self.reservation_capabilities(key),
            ana_group: if self.controllers.has_ana(key, self.config) { namespace.ana_group } else { 0 },
            attributes: if self.is_read_only(key, namespace) { WRITE_PROTECTED } else { 0 },
            status: READY,
            ..IdentifyIndependentNamespace::default()
        }
    }

    /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC): namespaces can be shared
    /// where the subsystem may have several controllers.
    fn sharing(&self, key: ControllerKey) -> u8 {
        if self.controllers.of(key).config.has_others() { SHARED } else { 0 }
    }

    /// Reservation Capabilities (RESCAP).
    fn reservation_capabilities(&self, key: ControllerKey) -> u8 {
        if self.controllers.has_reservations(key) { reservation::CAPABILITIES } else { 0 }
    }

    /// The Controller List of the controllers that `listed` accepts, ascending from the command's
    /// identifier.
    fn controllers_from(
        &self,
        entry: &SubmissionQueueEntry,
        page: &mut Page,
        listed: impl Fn(ControllerKey) -> bool,
    ) {
        let mut ids: Vec<u16> = self
            .controllers
            .iter()
            .filter(|(key, _)| listed(*key))
            .map(|(_, controller)| controller.config.controller_id)
            .filter(|id| u32::from(*id) >= CONTROLLER_ID.of(entry.cdw10))
            .collect();
        ids.sort_unstable();
        let (count, places) = page.as_chunks_mut::<2>().0.split_at_mut(1);
        let listed = places.iter_mut().zip(&ids).map(|(place, id)| *place = id.to_le_bytes()).count();
        count[0] = u16::try_from(listed).expect("a page holds 2,047").to_le_bytes();
    }

    /// The combinations of I/O command sets: only one, the NVM command set alone.
    fn command_sets(
        &self,
        key: ControllerKey,
        entry: &SubmissionQueueEntry,
        page: &mut Page,
    ) -> Result<(), Failure> {
        let controller = CONTROLLER_ID.of(entry.cdw10);
        let this = u32::from(self.controllers.of(key).config.controller_id);
        if controller != THIS_CONTROLLER && controller != this {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(42, 0)));
        }
        page[0] = 1 << NVM_COMMAND_SET;
        Ok(())
    }
}

/// Optional Admin Command Support (OACS).
fn optional_admin_commands(controller: &ControllerConfig) -> u16 {
    let doorbell_buffers = controller.transport_commands().contains(&AdminOpcode::DoorbellBufferConfig);
    FIRMWARE_SUPPORTED
        | FORMAT_SUPPORTED
        | NAMESPACE_MANAGEMENT_SUPPORTED
        | SELF_TEST_SUPPORTED
        | if doorbell_buffers { DOORBELL_BUFFERS_SUPPORTED } else { 0 }
}

/// The fabrics fields of Identify Controller.
fn fabrics_fields(fabrics: &FabricsConfig) -> IdentifyController {
    IdentifyController {
        command_capsule_size: fabrics.command_capsule_bytes / CAPSULE_UNIT,
        response_capsule_size: fabrics.response_capsule_bytes / CAPSULE_UNIT,
        capsule_data_offset: fabrics.capsule_data_offset,
        fabrics_attributes: if fabrics.dynamic { 0 } else { STATIC_CONTROLLERS },
        data_descriptors_max: fabrics.data_descriptors_max,
        optional_fabrics_commands: if fabrics.disconnect { DISCONNECT_SUPPORTED } else { 0 },
        ..IdentifyController::default()
    }
}

/// Command Set Identifier (CSI), in CDW11 of Identify.
fn command_set_of_identify(entry: &SubmissionQueueEntry) -> u8 {
    low_u8(Bits::new(31, 24).of(entry.cdw11))
}
