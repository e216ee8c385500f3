//! Identify: the values of CNS and the data structures that the command returns.

use super::layout::layout;
use super::{Bits, NamespaceId, Text};

/// Length in bytes of every Identify data structure.
pub const IDENTIFY_LENGTH: usize = 4096;

/// Controller or Namespace Structure (CNS): the values of NVMe Base 2.0 that this controller
/// answers, and those that hosts request from other controllers.
pub mod cns {
    /// Identify Namespace, NVM command set.
    pub const NAMESPACE: u32 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u32 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u32 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u32 = 0x03;
    /// I/O Command Set specific Identify Namespace.
    pub const COMMAND_SET_NAMESPACE: u32 = 0x05;
    /// I/O Command Set specific Identify Controller.
    pub const COMMAND_SET_CONTROLLER: u32 = 0x06;
    /// I/O Command Set specific Active Namespace ID list.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u32 = 0x07;
    /// I/O Command Set Independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: u32 = 0x08;
    /// Allocated Namespace ID list.
    pub const ALLOCATED_NAMESPACES: u32 = 0x10;
    /// Identify Namespace of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: u32 = 0x11;
    /// Controller list of the controllers to which a namespace is attached.
    pub const ATTACHED_CONTROLLERS: u32 = 0x12;
    /// Controller list of the NVM subsystem.
    pub const CONTROLLERS: u32 = 0x13;
    /// UUID List.
    pub const UUID_LIST: u32 = 0x17;
    /// I/O Command Set specific Allocated Namespace ID list.
    pub const COMMAND_SET_ALLOCATED_NAMESPACES: u32 = 0x1a;
    /// I/O Command Set data structure.
    pub const COMMAND_SETS: u32 = 0x1c;
}

layout! {
    /// Power State Descriptor.
    PowerState, 32, {
        /// Maximum Power (MP), in the unit that Max Power Scale in `flags` selects.
        0 maximum_power: u16,
        /// Max Power Scale (MXPS) and Non-Operational State (NOPS).
        3 flags: u8,
        /// Entry Latency (ENLAT) in µs.
        4 entry_latency: u32,
        /// Exit Latency (EXLAT) in µs.
        8 exit_latency: u32,
        /// Relative Read Throughput (RRT).
        12 read_throughput: u8,
        /// Relative Read Latency (RRL).
        13 read_latency: u8,
        /// Relative Write Throughput (RWT).
        14 write_throughput: u8,
        /// Relative Write Latency (RWL).
        15 write_latency: u8,
        /// Idle Power (IDLP), in the unit that `idle_power_scale` selects.
        16 idle_power: u16,
        /// Idle Power Scale (IPS), in bits 7:6.
        18 idle_power_scale: u8,
        /// Active Power (ACTP), in the unit that `active_power_scale` selects.
        20 active_power: u16,
        /// Active Power Workload (APW) in bits 2:0, and Active Power Scale (APS) in bits 7:6.
        22 active_power_scale: u8,
    }
}

layout! {
    /// Identify Controller data structure (CNS 01h), NVMe Base 2.0 with the fields of the NVM
    /// Command Set.
    IdentifyController, IDENTIFY_LENGTH, {
        /// PCI Vendor ID (VID).
        0 vendor: u16,
        /// PCI Subsystem Vendor ID (SSVID).
        2 subsystem_vendor: u16,
        /// Serial Number (SN).
        4 serial_number: Text<20>,
        /// Model Number (MN).
        24 model_number: Text<40>,
        /// Firmware Revision (FR).
        64 firmware_revision: Text<8>,
        /// Recommended Arbitration Burst (RAB), as a power of two.
        72 recommended_arbitration_burst: u8,
        /// IEEE OUI Identifier (IEEE).
        73 ieee_oui: [u8; 3],
        /// Controller Multi-Path I/O and Namespace Sharing Capabilities (CMIC).
        76 multi_path: u8,
        /// Maximum Data Transfer Size (MDTS), as a power of two of minimum memory pages; 0 for no
        /// limit.
        77 maximum_data_transfer_size: u8,
        /// Controller ID (CNTLID).
        78 controller_id: u16,
        /// Version (VER) of the specification that the controller implements.
        80 version: u32,
        /// RTD3 Resume Latency (RTD3R) in µs.
        84 rtd3_resume_latency: u32,
        /// RTD3 Entry Latency (RTD3E) in µs: the longest that a shutdown should take.
        88 rtd3_entry_latency: u32,
        /// Optional Asynchronous Events Supported (OAES).
        92 optional_events: u32,
        /// Controller Attributes (CTRATT).
        96 attributes: u32,
        /// Read Recovery Levels Supported (RRLS).
        100 read_recovery_levels: u16,
        /// Boot Partition Capabilities (BPCAP).
        102 boot_partitions: u8,
        /// Controller Type (CNTRLTYPE): 1 for an I/O controller.
        111 controller_type: u8,
        /// FRU Globally Unique Identifier (FGUID).
        112 fru_guid: [u8; 16],
        /// Command Retry Delay Times 1 to 3 (CRDT1..3), in units of 100 ms.
        128 command_retry_delays: [u16; 3],
        /// Controller Instance Uniquifier (CIU).
        135 instance_uniquifier: u8,
        /// Controller Instance Random Number (CIRN).
        136 instance_random: u64,
        /// NVM Subsystem Report (NVMSR).
        253 subsystem_report: u8,
        /// VPD Write Cycle Information (VWCI).
        254 vital_data_writes: u8,
        /// Management Endpoint Capabilities (MEC).
        255 management_endpoints: u8,
        /// Optional Admin Command Support (OACS).
        256 optional_admin_commands: u16,
        /// Abort Command Limit (ACL), 0's based.
        258 abort_limit: u8,
        /// Asynchronous Event Request Limit (AERL), 0's based.
        259 event_request_limit: u8,
        /// Firmware Updates (FRMW).
        260 firmware_updates: u8,
        /// Log Page Attributes (LPA).
        261 log_page_attributes: u8,
        /// Error Log Page Entries (ELPE), 0's based.
        262 error_log_entries: u8,
        /// Number of Power States Support (NPSS), 0's based.
        263 power_states: u8,
        /// Admin Vendor Specific Command Configuration (AVSCC).
        264 admin_vendor_specific: u8,
        /// Autonomous Power State Transition Attributes (APSTA).
        265 autonomous_power_transitions: u8,
        /// Warning Composite Temperature Threshold (WCTEMP) in kelvin.
        266 warning_temperature: u16,
        /// Critical Composite Temperature Threshold (CCTEMP) in kelvin.
        268 critical_temperature: u16,
        /// Maximum Time for Firmware Activation (MTFA).
        270 firmware_activation_time: u16,
        /// Host Memory Buffer Preferred Size (HMPRE).
        272 host_memory_preferred: u32,
        /// Host Memory Buffer Minimum Size (HMMIN).
        276 host_memory_minimum: u32,
        /// Total NVM Capacity (TNVMCAP) in bytes.
        280 total_capacity: u128,
        /// Unallocated NVM Capacity (UNVMCAP) in bytes.
        296 unallocated_capacity: u128,
        /// Replay Protected Memory Block Support (RPMBS).
        312 replay_protected_memory: u32,
        /// Extended Device Self-test Time (EDSTT) in minutes.
        316 self_test_time: u16,
        /// Device Self-test Options (DSTO).
        318 self_test_options: u8,
        /// Firmware Update Granularity (FWUG).
        319 firmware_granularity: u8,
        /// Keep Alive Support (KAS): the timer's granularity in units of 100 ms; 0 for no timer.
        320 keep_alive: u16,
        /// Host Controlled Thermal Management Attributes (HCTMA).
        322 thermal_management: u16,
        /// Minimum Thermal Management Temperature (MNTMT) in kelvin.
        324 thermal_minimum: u16,
        /// Maximum Thermal Management Temperature (MXTMT) in kelvin.
        326 thermal_maximum: u16,
        /// Sanitize Capabilities (SANICAP).
        328 sanitize: u32,
        /// Host Memory Buffer Minimum Descriptor Entry Size (HMMINDS) in units of 4 KiB.
        332 host_memory_entry_minimum: u32,
        /// Host Memory Maximum Descriptors Entries (HMMAXD).
        336 host_memory_entries_max: u16,
        /// NVM Set Identifier Maximum (NSETIDMAX).
        338 nvm_sets: u16,
        /// ANA Transition Time (ANATT) in seconds.
        342 ana_transition_time: u8,
        /// Asymmetric Namespace Access Capabilities (ANACAP).
        343 ana_capabilities: u8,
        /// ANA Group Identifier Maximum (ANAGRPMAX).
        344 ana_group_max: u32,
        /// Number of ANA Group Identifiers (NANAGRPID).
        348 ana_groups: u32,
        /// Maximum Endurance Group Identifier (ENDGIDMAX).
        340 endurance_groups: u16,
        /// Persistent Event Log Size (PELS) in units of 64 KiB.
        352 persistent_event_log_size: u32,
        /// Domain Identifier (DOMAINID).
        356 domain: u16,
        /// Maximum Endurance Group Capacity (MEGCAP) in bytes.
        368 endurance_group_capacity: u128,
        /// Command Quiesce Time (CQT) in milliseconds.
        386 command_quiesce_time: u16,
        /// Submission Queue Entry Size (SQES) as powers of two: required in bits 3:0, maximum in
        /// bits 7:4.
        512 submission_entry_size: u8,
        /// Completion Queue Entry Size (CQES) as powers of two: required in bits 3:0, maximum in
        /// bits 7:4.
        513 completion_entry_size: u8,
        /// Maximum Outstanding Commands (MAXCMD) of an I/O queue.
        514 maximum_commands: u16,
        /// Number of Namespaces (NN): the highest namespace identifier.
        516 namespaces: u32,
        /// Optional NVM Command Support (ONCS).
        520 optional_nvm_commands: u16,
        /// Fused Operation Support (FUSES).
        522 fused_operations: u16,
        /// Format NVM Attributes (FNA).
        524 format_attributes: u8,
        /// Volatile Write Cache (VWC).
        525 volatile_write_cache: u8,
        /// Atomic Write Unit Normal (AWUN), 0's based number of blocks.
        526 atomic_write_unit: u16,
        /// Atomic Write Unit Power Fail (AWUPF), 0's based number of blocks.
        528 atomic_write_unit_power_fail: u16,
        /// I/O Command Set Vendor Specific Command Configuration (ICSVSCC).
        530 io_vendor_specific: u8,
        /// Namespace Write Protection Capabilities (NWPC).
        531 write_protection: u8,
        /// Atomic Compare & Write Unit (ACWU), 0's based number of blocks.
        532 atomic_compare_and_write: u16,
        /// Copy Descriptor Formats Supported (CDFS).
        534 copy_descriptor_formats: u16,
        /// SGL Support (SGLS).
        536 sgl_support: u32,
        /// Maximum Number of Allowed Namespaces (MNAN).
        540 maximum_namespaces: u32,
        /// Maximum Domain Namespace Attachments (MAXDNA).
        544 domain_attachments_max: u128,
        /// Maximum I/O Controller Namespace Attachments (MAXCNA).
        560 controller_attachments_max: u32,
        /// NVM Subsystem NVMe Qualified Name (SUBNQN).
        768 subsystem_name: Text<256>,
        /// I/O Queue Command Capsule Supported Size (IOCCSZ) in units of 16 bytes.
        1792 command_capsule_size: u32,
        /// I/O Queue Response Capsule Supported Size (IORCSZ) in units of 16 bytes.
        1796 response_capsule_size: u32,
        /// In Capsule Data Offset (ICDOFF) in units of 16 bytes.
        1800 capsule_data_offset: u16,
        /// Fabrics Controller Attributes (FCATT).
        1802 fabrics_attributes: u8,
        /// Maximum SGL Data Block Descriptors (MSDBD) of a capsule; 0 for no limit.
        1803 data_descriptors_max: u8,
        /// Optional Fabric Commands Support (OFCS).
        1804 optional_fabrics_commands: u16,
        /// Cross-Controller Reset Limit (CCRL): how many resets of other controllers may be under
        /// way at once.
        1807 cross_controller_resets_max: u8,
        /// Power State Descriptors 0 to 31 (PSD0..PSD31).
        2048 power_state_descriptors: [PowerState; 32],
    }
}

layout! {
    /// LBA Format (LBAF), NVM Command Set 1.0.
    LbaFormat, 4, {
        /// Metadata Size (MS) in bytes.
        0 metadata_size: u16,
        /// LBA Data Size (LBADS), as a power of two of bytes.
        2 data_size: u8,
        /// Relative Performance (RP), from 0 (best) to 3 (degraded).
        3 relative_performance: u8,
    }
}

layout! {
    /// Identify Namespace data structure (CNS 00h), NVM Command Set 1.0.
    IdentifyNamespace, IDENTIFY_LENGTH, {
        /// Namespace Size (NSZE) in blocks.
        0 size: u64,
        /// Namespace Capacity (NCAP) in blocks.
        8 capacity: u64,
        /// Namespace Utilization (NUSE) in blocks.
        16 utilization: u64,
        /// Namespace Features (NSFEAT).
        24 features: u8,
        /// Number of LBA Formats (NLBAF), 0's based.
        25 lba_format_count: u8,
        /// Formatted LBA Size (FLBAS): the index of the format in use.
        26 formatted_lba_size: u8,
        /// Metadata Capabilities (MC).
        27 metadata_capabilities: u8,
        /// End-to-end Data Protection Capabilities (DPC).
        28 protection_capabilities: u8,
        /// End-to-end Data Protection Type Settings (DPS).
        29 protection_settings: u8,
        /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC).
        30 sharing: u8,
        /// Reservation Capabilities (RESCAP).
        31 reservations: u8,
        /// Format Progress Indicator (FPI): the percentage of a format that remains.
        32 format_progress: u8,
        /// Deallocate Logical Block Features (DLFEAT).
        33 deallocate_features: u8,
        /// Namespace Atomic Write Unit Normal (NAWUN), 0's based number of blocks.
        34 atomic_write_unit: u16,
        /// Namespace Atomic Write Unit Power Fail (NAWUPF), 0's based number of blocks.
        36 atomic_write_unit_power_fail: u16,
        /// Namespace Atomic Compare & Write Unit (NACWU), 0's based number of blocks.
        38 atomic_compare_and_write: u16,
        /// Namespace Atomic Boundary Size Normal (NABSN), 0's based number of blocks.
        40 atomic_boundary: u16,
        /// Namespace Atomic Boundary Offset (NABO): the block of the first atomic boundary.
        42 atomic_boundary_offset: u16,
        /// Namespace Atomic Boundary Size Power Fail (NABSPF), 0's based number of blocks.
        44 atomic_boundary_power_fail: u16,
        /// Namespace Optimal I/O Boundary (NOIOB) in blocks.
        46 optimal_io_boundary: u16,
        /// NVM Capacity (NVMCAP) in bytes.
        48 nvm_capacity: u128,
        /// Namespace Preferred Write Granularity (NPWG), 0's based number of blocks.
        64 preferred_write_granularity: u16,
        /// Namespace Preferred Write Alignment (NPWA), 0's based number of blocks.
        66 preferred_write_alignment: u16,
        /// Namespace Preferred Deallocate Granularity (NPDG), 0's based number of blocks.
        68 preferred_deallocate_granularity: u16,
        /// Namespace Preferred Deallocate Alignment (NPDA), 0's based number of blocks.
        70 preferred_deallocate_alignment: u16,
        /// Namespace Optimal Write Size (NOWS), 0's based number of blocks.
        72 optimal_write_size: u16,
        /// Maximum Single Source Range Length (MSSRL) of Copy, in blocks.
        74 copy_range_blocks_max: u16,
        /// Maximum Copy Length (MCL) in blocks.
        76 copy_blocks_max: u32,
        /// Maximum Source Range Count (MSRC) of Copy, 0's based number of ranges.
        80 copy_ranges_max: u8,
        /// Number of Unique Attribute LBA Formats (NULBAF).
        82 unique_format_count: u8,
        /// ANA Group Identifier (ANAGRPID).
        92 ana_group: u32,
        /// Namespace Attributes (NSATTR).
        99 attributes: u8,
        /// NVM Set Identifier (NVMSETID).
        100 nvm_set: u16,
        /// Endurance Group Identifier (ENDGID).
        102 endurance_group: u16,
        /// Namespace Globally Unique Identifier (NGUID).
        104 nguid: [u8; 16],
        /// IEEE Extended Unique Identifier (EUI64).
        120 eui64: [u8; 8],
        /// LBA Format Support (LBAF0..LBAF63): the supported LBA formats.
        128 lba_formats: [LbaFormat; 64],
    }
}

/// Format Index in FLBAS, low bits.
const FORMAT_INDEX_LOW: Bits = Bits::new(3, 0);
/// Format Index in FLBAS, high bits, which matter if there are more than 16 formats.
const FORMAT_INDEX_HIGH: Bits = Bits::new(6, 5);

impl IdentifyNamespace {
    /// The LBA format that the namespace is formatted with.
    pub fn formatted(&self) -> LbaFormat {
        self.lba_formats[usize::from(self.formatted_index())]
    }

    /// The index of the LBA format with which the namespace is formatted (FLBAS).
    pub fn formatted_index(&self) -> u8 {
        let flbas = u32::from(self.formatted_lba_size);
        let high = if self.lba_format_count >= 16 { FORMAT_INDEX_HIGH.of(flbas) } else { 0 };
        super::bits::low_u8(high << 4 | FORMAT_INDEX_LOW.of(flbas))
    }

    /// Length of a logical block in bytes, if the structure names a valid one (512 B to 64 KiB).
    pub fn block_bytes(&self) -> Option<u32> {
        let shift = self.formatted().data_size;
        (9..=16).contains(&shift).then(|| 1 << shift)
    }
}

layout! {
    /// I/O Command Set Independent Identify Namespace data structure (CNS 08h).
    IdentifyIndependentNamespace, IDENTIFY_LENGTH, {
        /// Common Namespace Features (NSFEAT).
        0 features: u8,
        /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC).
        1 sharing: u8,
        /// Reservation Capabilities (RESCAP).
        2 reservations: u8,
        /// Format Progress Indicator (FPI): the percentage of a format that remains.
        3 format_progress: u8,
        /// ANA Group Identifier (ANAGRPID).
        4 ana_group: u32,
        /// Namespace Attributes (NSATTR).
        8 attributes: u8,
        /// NVM Set Identifier (NVMSETID).
        10 nvm_set: u16,
        /// Endurance Group Identifier (ENDGID).
        12 endurance_group: u16,
        /// Namespace Status (NSTAT): bit 0 is Namespace Ready.
        14 status: u8,
    }
}

layout! {
    /// NVM Command Set specific Identify Controller data structure (CNS 06h, CSI 00h).
    IdentifyControllerNvm, IDENTIFY_LENGTH, {
        /// Verify Size Limit (VSL), in the unit of MDTS; 0 for no limit.
        0 verify_size_limit: u8,
        /// Write Zeroes Size Limit (WZSL), in the unit of MDTS; 0 for no limit.
        1 write_zeroes_size_limit: u8,
        /// Write Uncorrectable Size Limit (WUSL), in the unit of MDTS; 0 for no limit.
        2 write_uncorrectable_size_limit: u8,
        /// Dataset Management Ranges Limit (DMRL); 0 for no limit.
        3 deallocate_ranges_limit: u8,
        /// Dataset Management Range Size Limit (DMRSL) in blocks; 0 for no limit.
        4 deallocate_range_blocks_limit: u32,
        /// Dataset Management Size Limit (DMSL) in blocks; 0 for no limit.
        8 deallocate_blocks_limit: u64,
    }
}

layout! {
    /// NVM Command Set specific Identify Namespace data structure (CNS 05h, CSI 00h).
    IdentifyNamespaceNvm, IDENTIFY_LENGTH, {
        /// Extended LBA Format (ELBAF0..ELBAF63): Storage Tag Size (STS) in bits 6:0, Protection
        /// Information Format (PIF) in bits 8:7.
        12 extended_formats: [u32; 64],
    }
}

/// A descriptor in the Namespace Identification Descriptor list (CNS 03h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceDescriptor {
    /// IEEE Extended Unique Identifier (NIDT 1h).
    Eui64([u8; 8]),
    /// Namespace Globally Unique Identifier (NIDT 2h).
    Nguid([u8; 16]),
    /// Namespace UUID (NIDT 3h).
    Uuid([u8; 16]),
    /// Command Set Identifier (NIDT 4h).
    CommandSet(u8),
}

impl NamespaceDescriptor {
    /// Length in bytes of a descriptor's header: type, length and two reserved bytes.
    const HEADER: usize = 4;

    /// Writes the descriptor at the start of `bytes` and returns its length in bytes.
    pub(crate) fn emit(&self, bytes: &mut [u8]) -> usize {
        let command_set;
        let (kind, name): (u8, &[u8]) = match self {
            Self::Eui64(name) => (1, name),
            Self::Nguid(name) => (2, name),
            Self::Uuid(name) => (3, name),
            Self::CommandSet(identifier) => {
                command_set = [*identifier];
                (4, &command_set)
            }
        };
        bytes[0] = kind;
        bytes[1] = u8::try_from(name.len()).expect("no name is longer than 16 bytes");
        bytes[Self::HEADER..Self::HEADER + name.len()].copy_from_slice(name);
        Self::HEADER + name.len()
    }

    /// The descriptors of a list, up to its end. Descriptors of unknown types are skipped.
    pub fn list(mut bytes: &[u8]) -> impl Iterator<Item = Self> {
        core::iter::from_fn(move || {
            loop {
                let [kind, length, _, _, rest @ ..] = bytes else { return None };
                if *length == 0 {
                    return None;
                }
                let (name, rest) = rest.split_at_checked(usize::from(*length))?;
                bytes = rest;
                let descriptor = match kind {
                    1 => name.try_into().ok().map(Self::Eui64),
                    2 => name.try_into().ok().map(Self::Nguid),
                    3 => name.try_into().ok().map(Self::Uuid),
                    4 => name.first().copied().map(Self::CommandSet),
                    _ => None,
                };
                if descriptor.is_some() {
                    return descriptor;
                }
            }
        })
    }
}

/// Length in bytes of a Controller List: the number of identifiers, then the identifiers.
pub const CONTROLLER_LIST_LENGTH: usize = 4096;

/// The identifiers of a Controller List; `None` if the list claims more identifiers than it has
/// room for.
pub fn controller_list(bytes: &[u8]) -> Option<impl Iterator<Item = u16>> {
    let (words, _) = bytes.as_chunks::<2>();
    let (count, identifiers) = words.split_first()?;
    let identifiers = identifiers.get(..usize::from(u16::from_le_bytes(*count)))?;
    Some(identifiers.iter().map(|raw| u16::from_le_bytes(*raw)))
}

/// The entries of a UUID List (CNS 17h), up to its end: Identifier Association, and UUID.
pub fn uuid_list(bytes: &[u8]) -> impl Iterator<Item = (u8, [u8; 16])> {
    /// Identifier Association, in the header of an entry.
    const ASSOCIATION: u8 = 0b11;
    // The first entry is reserved: an index of 0 stands for no UUID.
    let entries = bytes.as_chunks::<32>().0.iter().skip(1);
    let parsed = entries.map(|entry| {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&entry[16..]);
        (entry[0] & ASSOCIATION, uuid)
    });
    parsed.take_while(|(_, uuid)| *uuid != [0; 16])
}

/// The identifiers of a Namespace ID list, up to its end.
pub fn namespace_list(bytes: &[u8]) -> impl Iterator<Item = NamespaceId> {
    let word =
        |chunk: &[u8]| chunk.try_into().map_or(NamespaceId::NONE, |raw| NamespaceId(u32::from_le_bytes(raw)));
    bytes.chunks_exact(4).map(word).take_while(|id| *id != NamespaceId::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_list_begins_behind_its_reserved_entry_and_ends_at_zeroes() {
        let mut page = [0; IDENTIFY_LENGTH];
        assert_eq!(uuid_list(&page).count(), 0);
        (page[32], page[48], page[95]) = (0b101, 0xaa, 0xbb);
        page[128 + 16] = 1;
        let mut second = [0; 16];
        second[15] = 0xbb;
        let mut first = [0; 16];
        first[0] = 0xaa;
        assert!(uuid_list(&page).eq([(0b01, first), (0, second)]), "zeros end the list");
        assert_eq!(uuid_list(&page[..48]).count(), 0);
    }
}
