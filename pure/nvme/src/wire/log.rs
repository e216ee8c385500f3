//! Log pages: their identifiers and contents.

use super::Text;
use super::layout::layout;

/// Log Page Identifier (LID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogPage {
    /// Supported Log Pages (00h).
    SupportedLogPages,
    /// Error Information (01h).
    ErrorInformation,
    /// SMART / Health Information (02h).
    Smart,
    /// Firmware Slot Information (03h).
    FirmwareSlot,
    /// Changed Namespace List (04h).
    ChangedNamespaces,
    /// Commands Supported and Effects (05h).
    CommandEffects,
    /// Device Self-test (06h).
    DeviceSelfTest,
    /// Telemetry Host-Initiated (07h).
    TelemetryHost,
    /// Telemetry Controller-Initiated (08h).
    TelemetryController,
    /// Asymmetric Namespace Access (0Ch).
    AsymmetricAccess,
    /// Persistent Event (0Dh).
    PersistentEvent,
    /// Feature Identifiers Supported and Effects (12h).
    FeatureEffects,
    /// NVMe-MI Commands Supported and Effects (13h).
    ManagementEffects,
    /// Cross-Controller Reset (1Eh).
    CrossControllerReset,
    /// Reservation Notification (80h).
    ReservationNotification,
    /// Sanitize Status (81h).
    SanitizeStatus,
    /// A page without a name here.
    Other(u8),
}

impl LogPage {
    /// Every page that has a name.
    pub const ALL: [Self; 16] = [
        Self::SupportedLogPages,
        Self::ErrorInformation,
        Self::Smart,
        Self::FirmwareSlot,
        Self::ChangedNamespaces,
        Self::CommandEffects,
        Self::DeviceSelfTest,
        Self::TelemetryHost,
        Self::TelemetryController,
        Self::AsymmetricAccess,
        Self::PersistentEvent,
        Self::FeatureEffects,
        Self::ManagementEffects,
        Self::CrossControllerReset,
        Self::ReservationNotification,
        Self::SanitizeStatus,
    ];
}

impl From<LogPage> for u8 {
    fn from(page: LogPage) -> Self {
        match page {
            LogPage::SupportedLogPages => 0x00,
            LogPage::ErrorInformation => 0x01,
            LogPage::Smart => 0x02,
            LogPage::FirmwareSlot => 0x03,
            LogPage::ChangedNamespaces => 0x04,
            LogPage::CommandEffects => 0x05,
            LogPage::DeviceSelfTest => 0x06,
            LogPage::TelemetryHost => 0x07,
            LogPage::TelemetryController => 0x08,
            LogPage::AsymmetricAccess => 0x0c,
            LogPage::PersistentEvent => 0x0d,
            LogPage::FeatureEffects => 0x12,
            LogPage::ManagementEffects => 0x13,
            LogPage::CrossControllerReset => 0x1e,
            LogPage::ReservationNotification => 0x80,
            LogPage::SanitizeStatus => 0x81,
            LogPage::Other(identifier) => identifier,
        }
    }
}

impl From<u8> for LogPage {
    fn from(identifier: u8) -> Self {
        Self::ALL.into_iter().find(|page| u8::from(*page) == identifier).unwrap_or(Self::Other(identifier))
    }
}

layout! {
    /// An entry of the Error Information log (01h); all zeroes is an entry that was never used.
    ErrorEntry, 64, {
        /// Error Count: unique, counting up.
        0 error_count: u64,
        /// Submission Queue ID; FFFFh if the error is of no command.
        8 submission_queue: u16,
        /// Command ID; FFFFh if the error is of no command.
        10 command_id: u16,
        /// Status Field in bits 15:1, Phase Tag in bit 0.
        12 status: u16,
        /// Parameter Error Location: byte in bits 7:0, bit in bits 10:8; FFFFh if it is not of one parameter.
        14 parameter_location: u16,
        /// First LBA that failed.
        16 lba: u64,
        /// Namespace.
        24 namespace: u32,
        /// Vendor Specific Information Available.
        28 vendor_log_page: u8,
        /// Transport Type (TRTYPE).
        29 transport_type: u8,
        /// Command Specific Information.
        32 command_specific: u64,
        /// Transport Type Specific Information.
        40 transport_specific: u16,
    }
}

layout! {
    /// Header of the Asymmetric Namespace Access log (0Ch); descriptors of groups follow.
    AnaLogHeader, 16, {
        /// Change Count of the log.
        0 change_count: u64,
        /// Number of ANA Group Descriptors.
        8 groups: u16,
    }
}

layout! {
    /// ANA Group Descriptor; the identifiers of its namespaces follow, ascending.
    AnaGroupDescriptor, 32, {
        /// ANA Group ID.
        0 group: u32,
        /// Number of NSID Values.
        4 namespaces: u32,
        /// Change Count of the group.
        8 change_count: u64,
        /// Asymmetric Namespace Access State, in bits 3:0.
        16 state: u8,
    }
}

layout! {
    /// SMART / Health Information (02h).
    SmartLog, 512, {
        /// Critical Warning.
        0 critical_warning: u8,
        /// Composite Temperature in kelvin.
        1 temperature: u16,
        /// Available Spare in percent.
        3 available_spare: u8,
        /// Available Spare Threshold in percent.
        4 available_spare_threshold: u8,
        /// Percentage Used; may exceed 100.
        5 percentage_used: u8,
        /// Endurance Group Critical Warning Summary.
        6 endurance_group_warning: u8,
        /// Data Units Read, in thousands of 512 byte units.
        32 data_units_read: u128,
        /// Data Units Written, in thousands of 512 byte units.
        48 data_units_written: u128,
        /// Host Read Commands.
        64 host_reads: u128,
        /// Host Write Commands.
        80 host_writes: u128,
        /// Controller Busy Time in minutes.
        96 controller_busy_minutes: u128,
        /// Power Cycles.
        112 power_cycles: u128,
        /// Power On Hours.
        128 power_on_hours: u128,
        /// Unsafe Shutdowns.
        144 unsafe_shutdowns: u128,
        /// Media and Data Integrity Errors.
        160 media_errors: u128,
        /// Number of Error Information Log Entries.
        176 error_entries: u128,
        /// Warning Composite Temperature Time in minutes.
        192 warning_temperature_minutes: u32,
        /// Critical Composite Temperature Time in minutes.
        196 critical_temperature_minutes: u32,
        /// Temperature Sensors 1 to 8 in kelvin; 0 where there is none.
        200 temperature_sensors: [u16; 8],
        /// Thermal Management Temperature 1 and 2 Transition Count.
        216 thermal_transitions: [u32; 2],
        /// Total Time For Thermal Management Temperature 1 and 2, in seconds.
        224 thermal_seconds: [u32; 2],
    }
}

/// Bits of Critical Warning, which are also those of the Asynchronous Event Configuration that enable them.
pub mod critical_warning {
    /// Available Spare is below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// A temperature is beyond a threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// NVM subsystem reliability is degraded.
    pub const RELIABILITY: u8 = 1 << 2;
    /// All media are read-only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// The volatile memory backup device has failed.
    pub const BACKUP: u8 = 1 << 4;
}

layout! {
    /// Firmware Slot Information (03h).
    FirmwareSlotLog, 512, {
        /// Active Firmware Info (AFI): the slot in use in bits 2:0.
        0 active: u8,
        /// Firmware Revision for Slots 1 to 7 (FRS1..FRS7).
        8 revisions: [Text<8>; 7],
    }
}

/// Changed Namespace List (04h): identifiers that it holds before it says "too many" with FFFFFFFFh.
pub const CHANGED_NAMESPACES_MAX: usize = 1024;

/// Results that the Device Self-test log keeps.
pub const SELF_TEST_RESULTS: usize = 20;

layout! {
    /// Self-test Result of the Device Self-test log.
    SelfTestResult, 28, {
        /// Self-test Code in bits 7:4, result in bits 3:0; [`SelfTestResult::UNUSED`] where there is none.
        0 status: u8,
        /// Segment Number: the part that failed, where the result says so.
        1 segment: u8,
        /// Valid Diagnostic Information: NSID, failing LBA, status code type, status code, from bit 0 on.
        2 valid: u8,
        /// Power On Hours (POH) when it ended.
        4 power_on_hours: u64,
        /// Namespace Identifier.
        12 namespace: u32,
        /// Failing LBA.
        16 failing_lba: u64,
        /// Status Code Type.
        24 status_code_type: u8,
        /// Status Code.
        25 status_code: u8,
    }
}

impl SelfTestResult {
    /// The status of an entry that was never used.
    pub const UNUSED: u8 = 0xf;
    /// All Diagnostic Information is valid.
    pub const ALL_VALID: u8 = 0b1111;
}

layout! {
    /// Device Self-test (06h).
    SelfTestLog, 564, {
        /// Current Device Self-test Operation: 0 none, 1 short, 2 extended.
        0 current_operation: u8,
        /// Current Device Self-test Completion in percent.
        1 current_completion: u8,
        /// Newest Self-test Result Data Structure, and those before it.
        4 results: [SelfTestResult; SELF_TEST_RESULTS],
    }
}

layout! {
    /// Sanitize Status (81h).
    SanitizeLog, 512, {
        /// Sanitize Progress (SPROG) in 65,536ths; FFFFh when none is in progress.
        0 progress: u16,
        /// Sanitize Status (SSTAT): see [`sanitize_status`].
        2 status: u16,
        /// Sanitize Command Dword 10 Information (SCDW10).
        4 command_dword_10: u32,
        /// Estimated Time For Overwrite in seconds; FFFFFFFFh where none is given, here as below.
        8 overwrite_time: u32,
        /// Estimated Time For Block Erase.
        12 block_erase_time: u32,
        /// Estimated Time For Crypto Erase.
        16 crypto_erase_time: u32,
        /// Estimated Time For Overwrite With No-Deallocate Media Modification.
        20 overwrite_no_deallocate_time: u32,
        /// Estimated Time For Block Erase With No-Deallocate Media Modification.
        24 block_erase_no_deallocate_time: u32,
        /// Estimated Time For Crypto Erase With No-Deallocate Media Modification.
        28 crypto_erase_no_deallocate_time: u32,
    }
}

/// Fields of Sanitize Status (SSTAT).
pub mod sanitize_status {
    use crate::wire::Bits;
    /// Status of the most recent operation.
    pub const OPERATION: Bits = Bits::new(2, 0);
    /// Completed passes of an overwrite.
    pub const PASSES: Bits = Bits::new(7, 3);
    /// Global Data Erased: nothing was written since.
    pub const DATA_ERASED: Bits = Bits::bit(8);
    /// The media were never sanitized.
    pub const NEVER: u32 = 0;
    /// The most recent operation succeeded.
    pub const COMPLETED: u32 = 1;
    /// An operation is in progress.
    pub const IN_PROGRESS: u32 = 2;
    /// The most recent operation failed.
    pub const FAILED: u32 = 3;
}

layout! {
    /// Header of the Persistent Event log (0Dh), revision 2.
    PersistentEventLogHeader, 512, {
        /// Log Page Identifier.
        0 log_page: u8,
        /// Total Number of Events (TNEV).
        4 events: u32,
        /// Total Log Length (TLL) in bytes, this header included.
        8 length: u64,
        /// Log Revision.
        16 revision: u8,
        /// Log Header Length: bytes of this header behind this field.
        18 header_length: u16,
        /// Timestamp, as the feature's data structure has it.
        20 timestamp: u64,
        /// Power on Hours (POH).
        28 power_on_hours: u128,
        /// Power Cycle Count.
        44 power_cycles: u64,
        /// PCI Vendor ID (VID).
        52 vendor: u16,
        /// PCI Subsystem Vendor ID (SSVID).
        54 subsystem_vendor: u16,
        /// Serial Number (SN).
        56 serial_number: Text<20>,
        /// Model Number (MN).
        76 model_number: Text<40>,
        /// NVM Subsystem NVMe Qualified Name (SUBNQN).
        116 subsystem_name: Text<256>,
        /// Generation Number: another one with each reporting context.
        372 generation: u16,
        /// Reporting Context Information (RCI).
        374 context: u32,
        /// Supported Events Bitmap: a bit for each event type.
        480 supported: [u8; 32],
    }
}

layout! {
    /// Header of an event in the Persistent Event log, format of NVMe Base 2.0.
    PersistentEventHeader, 24, {
        /// Event Type.
        0 kind: u8,
        /// Event Type Revision.
        1 revision: u8,
        /// Event Header Length: bytes of this header behind this field.
        2 header_length: u8,
        /// Event Header Additional Info.
        3 additional: u8,
        /// Controller Identifier.
        4 controller: u16,
        /// Event Timestamp, as the feature's data structure has it.
        6 timestamp: u64,
        /// Port Identifier.
        14 port: u16,
        /// Vendor Specific Information Length.
        20 vendor_length: u16,
        /// Event Length: bytes behind this header.
        22 length: u16,
    }
}

layout! {
    /// Header of a Telemetry log: Host-Initiated (07h) or Controller-Initiated (08h).
    TelemetryHeader, TELEMETRY_BLOCK, {
        /// Log Page Identifier.
        0 log_page: u8,
        /// IEEE OUI Identifier of who knows what the data areas mean.
        5 ieee_oui: [u8; 3],
        /// Last block of Data Areas 1, 2 and 3; each holds those before it, and block 0 is this header.
        8 last_blocks: [u16; 3],
        /// Last block of Data Area 4; 0 where it is absent.
        16 last_block_4: u32,
        /// Telemetry Host-Initiated Data Generation Number; the scope in a Controller-Initiated log.
        381 host_generation: u8,
        /// Telemetry Controller-Initiated Data Available.
        382 controller_available: u8,
        /// Telemetry Controller-Initiated Data Generation Number.
        383 controller_generation: u8,
        /// Reason Identifier.
        384 reason: Text<128>,
    }
}

/// Bytes of a block of a Telemetry log.
pub const TELEMETRY_BLOCK: usize = 512;
