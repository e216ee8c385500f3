//! Identify.

use super::admin::{NVM_COMMAND_SET, command_set_of_identify};
use super::config::{BlockSize, PAGE_BYTES};
use super::errors::{Failure, Location};
use super::namespace::Namespace;
use super::{CommandToken, ERROR_LOG_ENTRIES, Handled, Step, Subsystem, copy, firmware, fused, sanitize};
use crate::wire::feature::EVENT_NAMESPACE_ATTRIBUTE;
use crate::wire::identify::{
    IDENTIFY_LENGTH, IdentifyController, IdentifyControllerNvm, IdentifyIndependentNamespace,
    IdentifyNamespace, LbaFormat, NamespaceDescriptor, cns,
};
use crate::wire::{AdminOpcode, Bits, NamespaceId, StatusCode, SubmissionQueueEntry, Text, low_u8, low_u16};

/// Controller or Namespace Structure (CNS), in CDW10.
const CNS: Bits = Bits::new(7, 0);
/// Controller Identifier (CNTID), in CDW10.
const CONTROLLER_ID: Bits = Bits::new(31, 16);
/// CNTID: the controller that processes the command.
const THIS_CONTROLLER: u32 = 0xffff;

/// Version (VER): 2.0.0.
const VERSION: u32 = 0x0002_0000;
/// Controller Attributes: Host Identifiers of 128 bits.
const LONG_HOST_IDENTIFIERS: u32 = 1 << 0;
/// Controller Type: an I/O controller.
const IO_CONTROLLER: u8 = 1;
/// Optional Admin Command Support: Format NVM; Firmware Commit and Image Download; Namespace Management and Attachment; Device Self-test.
const FORMAT_SUPPORTED: u16 = 1 << 1;
const FIRMWARE_SUPPORTED: u16 = 1 << 2;
/// Optional Admin Command Support: Doorbell Buffer Config, where the transport carries it out.
const DOORBELL_BUFFERS_SUPPORTED: u16 = 1 << 8;
const NAMESPACE_MANAGEMENT_SUPPORTED: u16 = 1 << 3;
const SELF_TEST_SUPPORTED: u16 = 1 << 4;
/// Device Self-test Options: one self-test at a time in the NVM subsystem.
const ONE_SELF_TEST: u8 = 1 << 0;
/// Bytes that an extended self-test is expected to read in a minute.
const SELF_TEST_BYTES_PER_MINUTE: u64 = 60 << 30;
/// Log Page Attributes: Commands Supported and Effects; offset and long lengths; Telemetry; Persistent Event; Supported
/// Log Pages and other effects.
const LOG_PAGE_ATTRIBUTES: u8 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
/// Format NVM Attributes (FNA): formats and erasures are of one namespace, no cryptographic erase.
pub(super) const FORMAT_ATTRIBUTES: u8 = 0;
/// Abort Command Limit, 0's based, as the specification recommends.
const ABORT_LIMIT: u8 = 3;
/// Queue entries of 2^6 and 2^4 bytes, required and maximum.
const SUBMISSION_ENTRY_SIZE: u8 = 0x66;
const COMPLETION_ENTRY_SIZE: u8 = 0x44;
/// Optional NVM Command Support: Compare, Write Uncorrectable, Dataset Management, Write Zeroes, Save and Select,
/// Timestamp, Verify, Copy.
const OPTIONAL_NVM_COMMANDS: u16 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8;
/// Volatile Write Cache: present; Flush may name all namespaces.
const CACHE_PRESENT: u8 = 1 << 0;
const FLUSH_OF_ALL: u8 = 0b11 << 1;
/// Namespace Features: the preferred granularities and alignments are valid (OPTPERF).
const PREFERENCES_VALID: u8 = 1 << 4;
/// Deallocate Logical Block Features: blocks read as zeroes, and Write Zeroes can deallocate.
const READS_ZEROES: u8 = 0b001;
const WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
/// Namespace Attributes: currently write protected.
const WRITE_PROTECTED: u8 = 1 << 0;
/// Namespace Status: ready.
const READY: u8 = 1 << 0;
/// Relative Performance of an LBA format.
const BEST: u8 = 0;
const GOOD: u8 = 2;
/// The longest that a shutdown should take, in microseconds.
const SHUTDOWN_MICROSECONDS: u32 = 10_000_000;

type Page = [u8; IDENTIFY_LENGTH];

impl Subsystem {
    pub(super) fn on_identify(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let mut page = [0; IDENTIFY_LENGTH];
        self.identify(entry, &mut page)?;
        let data = self.pool.copy(&page);
        self.push_all(token, data);
        Ok(Step::Done(0))
    }

    /// Fills `page`, which is all zeroes, with what the command asks for.
    fn identify(&self, entry: &SubmissionQueueEntry, page: &mut Page) -> Result<(), Failure> {
        match CNS.of(entry.cdw10) {
            // What holds for every namespace that may be created.
            cns::NAMESPACE if entry.namespace == NamespaceId::ALL => self.common_structure().emit(page),
            cns::NAMESPACE => {
                if let Some(namespace) = self.valid_namespace(entry)?.filter(|one| one.is_attached()) {
                    self.namespace_structure(namespace).emit(page);
                }
            }
            cns::ALLOCATED_NAMESPACE => {
                if let Some(namespace) = self.valid_namespace(entry)? {
                    self.namespace_structure(namespace).emit(page);
                }
            }
            cns::CONTROLLER => self.controller_structure().emit(page),
            cns::ACTIVE_NAMESPACES => self.namespaces_after(entry, page, true)?,
            cns::ALLOCATED_NAMESPACES => self.namespaces_after(entry, page, false)?,
            cns::NAMESPACE_DESCRIPTORS => self.descriptors(self.active_namespace(entry)?, page),
            cns::COMMAND_SET_NAMESPACE => {
                // Without metadata there is nothing to say: storage tags and extended formats are all of protection.
                self.check_command_set(entry)?;
                if entry.namespace != NamespaceId::ALL {
                    self.valid_namespace(entry)?;
                }
            }
            cns::COMMAND_SET_CONTROLLER => {
                self.check_command_set(entry)?;
                IdentifyControllerNvm::default().emit(page);
            }
            cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                self.check_command_set(entry)?;
                self.namespaces_after(entry, page, true)?;
            }
            cns::COMMAND_SET_ALLOCATED_NAMESPACES => {
                self.check_command_set(entry)?;
                self.namespaces_after(entry, page, false)?;
            }
            cns::INDEPENDENT_NAMESPACE => {
                if let Some(namespace) = self.valid_namespace(entry)?.filter(|one| one.is_attached()) {
                    independent_structure(namespace).emit(page);
                }
            }
            cns::ATTACHED_CONTROLLERS => {
                let missing = Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE);
                if self.namespaces.allocated(entry.namespace).ok_or(missing)?.is_attached() {
                    self.controllers_from(entry, page);
                }
            }
            cns::CONTROLLERS => self.controllers_from(entry, page),
            cns::COMMAND_SETS => self.command_sets(entry, page)?,
            _ => return Err(Failure::field(StatusCode::InvalidField, Location::CDW10)),
        }
        Ok(())
    }

    /// The allocated namespace of the command; none if the identifier is valid and of nothing, which reads as zeroes.
    fn valid_namespace(&self, entry: &SubmissionQueueEntry) -> Result<Option<&Namespace>, Failure> {
        if self.namespaces.is_valid(entry.namespace) {
            Ok(self.namespaces.allocated(entry.namespace))
        } else {
            Err(Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE))
        }
    }

    fn active_namespace(&self, entry: &SubmissionQueueEntry) -> Result<&Namespace, Failure> {
        let missing = Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE);
        self.namespaces.active(entry.namespace).ok_or(missing)
    }

    fn check_command_set(&self, entry: &SubmissionQueueEntry) -> Result<(), Failure> {
        if command_set_of_identify(entry) == NVM_COMMAND_SET {
            Ok(())
        } else {
            Err(Failure::field(StatusCode::InvalidField, Location::at(47, 0)))
        }
    }

    fn controller_structure(&self) -> IdentifyController {
        let config = &self.config;
        let pages = config.transfer_bytes_max / PAGE_BYTES;
        let unallocated = self.pool_config.map_or(0, |pool| self.namespaces.unallocated(&pool));
        IdentifyController {
            vendor: config.vendor,
            subsystem_vendor: config.subsystem_vendor,
            serial_number: Text::padded_with_spaces(&config.serial_number),
            model_number: Text::padded_with_spaces(&config.model_number),
            firmware_revision: self.firmware_revision(),
            ieee_oui: config.ieee_oui,
            maximum_data_transfer_size: low_u8(pages.ilog2()),
            controller_id: self.controller.controller_id,
            version: VERSION,
            rtd3_entry_latency: SHUTDOWN_MICROSECONDS,
            optional_events: EVENT_NAMESPACE_ATTRIBUTE.put(1),
            attributes: LONG_HOST_IDENTIFIERS,
            controller_type: IO_CONTROLLER,
            optional_admin_commands: self.optional_admin_commands(),
            abort_limit: ABORT_LIMIT,
            event_request_limit: self.controller.event_requests_max - 1,
            firmware_updates: firmware::UPDATES,
            firmware_granularity: firmware::GRANULARITY,
            persistent_event_log_size: 1,
            log_page_attributes: LOG_PAGE_ATTRIBUTES,
            error_log_entries: u8::try_from(ERROR_LOG_ENTRIES - 1).expect("at most 256"),
            warning_temperature: config.temperature_warning,
            critical_temperature: config.temperature_critical,
            total_capacity: config.media().map(|(_, bytes)| u128::from(bytes)).sum(),
            unallocated_capacity: unallocated.into(),
            self_test_time: self.self_test_minutes(),
            self_test_options: ONE_SELF_TEST,
            sanitize: sanitize::CAPABILITIES,
            submission_entry_size: SUBMISSION_ENTRY_SIZE,
            completion_entry_size: COMPLETION_ENTRY_SIZE,
            maximum_commands: low_u16(config.commands_max),
            namespaces: self.namespaces.highest(),
            optional_nvm_commands: OPTIONAL_NVM_COMMANDS,
            fused_operations: fused::COMPARE_AND_WRITE,
            // A whole transfer, in blocks of the largest size.
            atomic_compare_and_write: low_u16(pages - 1),
            copy_descriptor_formats: copy::COPY_FORMATS,
            volatile_write_cache: FLUSH_OF_ALL | if config.volatile_write_cache { CACHE_PRESENT } else { 0 },
            sgl_support: self.controller.sgl_support,
            subsystem_name: Text::padded_with_nuls(&config.subsystem_name),
            ..IdentifyController::default()
        }
    }

    /// Optional Admin Command Support (OACS).
    fn optional_admin_commands(&self) -> u16 {
        let doorbell_buffers =
            self.controller.transport_commands().contains(&AdminOpcode::DoorbellBufferConfig);
        FIRMWARE_SUPPORTED
            | FORMAT_SUPPORTED
            | NAMESPACE_MANAGEMENT_SUPPORTED
            | SELF_TEST_SUPPORTED
            | if doorbell_buffers { DOORBELL_BUFFERS_SUPPORTED } else { 0 }
    }

    /// Extended Device Self-test Time (EDSTT).
    fn self_test_minutes(&self) -> u16 {
        let bytes: u64 = self.namespaces.iter().map(|namespace| namespace.bytes).sum();
        u16::try_from(bytes / SELF_TEST_BYTES_PER_MINUTE + 1).unwrap_or(u16::MAX)
    }

    /// What every namespace has in common: formats and capabilities, as one that is to be created will have them.
    fn common_structure(&self) -> IdentifyNamespace {
        let formats = BlockSize::ALL.map(|block| LbaFormat {
            metadata_size: 0,
            data_size: block.shift(),
            relative_performance: if block == BlockSize::Bytes4096 { BEST } else { GOOD },
        });
        let mut lba_formats = [LbaFormat::default(); 64];
        lba_formats[..formats.len()].copy_from_slice(&formats);
        IdentifyNamespace {
            features: PREFERENCES_VALID,
            lba_format_count: u8::try_from(formats.len() - 1).expect("at most 64"),
            deallocate_features: READS_ZEROES | WRITE_ZEROES_DEALLOCATES,
            lba_formats,
            ..IdentifyNamespace::default()
        }
    }

    fn namespace_structure(&self, namespace: &Namespace) -> IdentifyNamespace {
        // Media keep pages of 4 KiB: what is aligned to them needs no read before the write.
        let page = low_u16(PAGE_BYTES / namespace.block.bytes()) - 1;
        let copy_blocks = u32::try_from(copy::COPY_BYTES_MAX >> namespace.block.shift()).unwrap_or(u32::MAX);
        IdentifyNamespace {
            size: namespace.blocks,
            capacity: namespace.blocks,
            utilization: namespace.blocks,
            formatted_lba_size: namespace.block.format(),
            nvm_capacity: (namespace.blocks << namespace.block.shift()).into(),
            preferred_write_granularity: page,
            preferred_write_alignment: page,
            preferred_deallocate_granularity: page,
            preferred_deallocate_alignment: page,
            optimal_write_size: page,
            copy_range_blocks_max: u16::try_from(copy_blocks).unwrap_or(u16::MAX),
            copy_blocks_max: copy_blocks,
            copy_ranges_max: low_u8(copy::COPY_RANGES_MAX - 1),
            attributes: if namespace.read_only { WRITE_PROTECTED } else { 0 },
            nguid: namespace.identity.nguid,
            eui64: namespace.identity.eui64,
            ..self.common_structure()
        }
    }

    /// The identifiers above the command's, ascending: those of active or of all allocated namespaces.
    fn namespaces_after(
        &self,
        entry: &SubmissionQueueEntry,
        page: &mut Page,
        active: bool,
    ) -> Result<(), Failure> {
        if entry.namespace.0 >= NamespaceId::ALL.0 - 1 {
            return Err(Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE));
        }
        let listed = |one: &&Namespace| one.id > entry.namespace && (one.is_attached() || !active);
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

    /// The list of controllers from the command's identifier on: this one or none.
    fn controllers_from(&self, entry: &SubmissionQueueEntry, page: &mut Page) {
        if u32::from(self.controller.controller_id) >= CONTROLLER_ID.of(entry.cdw10) {
            page[0..2].copy_from_slice(&1_u16.to_le_bytes());
            page[2..4].copy_from_slice(&self.controller.controller_id.to_le_bytes());
        }
    }

    /// The combinations of I/O command sets: one, of the NVM command set alone.
    fn command_sets(&self, entry: &SubmissionQueueEntry, page: &mut Page) -> Result<(), Failure> {
        let controller = CONTROLLER_ID.of(entry.cdw10);
        if controller != THIS_CONTROLLER && controller != u32::from(self.controller.controller_id) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(42, 0)));
        }
        page[0] = 1 << NVM_COMMAND_SET;
        Ok(())
    }
}

fn independent_structure(namespace: &Namespace) -> IdentifyIndependentNamespace {
    IdentifyIndependentNamespace {
        attributes: if namespace.read_only { WRITE_PROTECTED } else { 0 },
        status: READY,
        ..IdentifyIndependentNamespace::default()
    }
}
