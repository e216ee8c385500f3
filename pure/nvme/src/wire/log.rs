//! Log pages: their identifiers and contents.

use super::Text;
use super::code::codes;
use super::layout::layout;

codes! {
    /// Log Page Identifier (LID).
    LogPage, "log page", {
        SupportedLogPages = 0x00, "Supported Log Pages";
        ErrorInformation = 0x01, "Error Information";
        Smart = 0x02, "SMART / Health Information";
        FirmwareSlot = 0x03, "Firmware Slot Information";
        ChangedNamespaces = 0x04, "Changed Namespace List";
        CommandEffects = 0x05, "Commands Supported and Effects";
        DeviceSelfTest = 0x06, "Device Self-test";
        TelemetryHost = 0x07, "Telemetry Host-Initiated";
        TelemetryController = 0x08, "Telemetry Controller-Initiated";
        AsymmetricAccess = 0x0c, "Asymmetric Namespace Access";
        PersistentEvent = 0x0d, "Persistent Event";
        FeatureEffects = 0x12, "Feature Identifiers Supported and Effects";
        ManagementEffects = 0x13, "NVMe-MI Commands Supported and Effects";
        CrossControllerReset = 0x1e, "Cross-Controller Reset";
        ReservationNotification = 0x80, "Reservation Notification";
        SanitizeStatus = 0x81, "Sanitize Status";
    }
}

layout! {
    /// An entry of the Error Information log (01h). An entry of all zeroes was never used.
    ErrorEntry, 64, {
        /// Error Count: a unique number that counts up from 1.
        0 error_count: u64,
        /// Submission Queue ID; FFFFh if the error belongs to no command.
        8 submission_queue: u16,
        /// Command ID; FFFFh if the error belongs to no command.
        10 command_id: u16,
        /// Status Field in bits 15:1, and Phase Tag in bit 0.
        12 status: u16,
        /// Parameter Error Location: byte in bits 7:0, bit in bits 10:8; FFFFh if no single
        /// parameter is to blame.
        14 parameter_location: u16,
        /// First LBA that the error affects.
        16 lba: u64,
        /// Namespace Identifier of the command.
        24 namespace: u32,
        /// Vendor Specific Information Available: a log page with more information; 0 for none.
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
    /// Header of the Asymmetric Namespace Access log (0Ch), which the descriptors of groups follow.
    AnaLogHeader, 16, {
        /// Change Count of the whole log.
        0 change_count: u64,
        /// Number of ANA Group Descriptors after the header.
        8 groups: u16,
    }
}

layout! {
    /// ANA Group Descriptor, which the identifiers of the group's namespaces follow in ascending
    /// order.
    AnaGroupDescriptor, 32, {
        /// ANA Group ID (ANAGRPID).
        0 group: u32,
        /// Number of NSID Values after the descriptor.
        4 namespaces: u32,
        /// Change Count of this group.
        8 change_count: u64,
        /// Asymmetric Namespace Access State, in bits 3:0.
        16 state: u8,
    }
}

layout! {
    /// SMART / Health Information log page (02h).
    SmartLog, 512, {
        /// Critical Warning, with the bits of [`critical_warning`].
        0 critical_warning: u8,
        /// Composite Temperature in kelvin.
        1 temperature: u16,
        /// Available Spare in percent.
        3 available_spare: u8,
        /// Available Spare Threshold in percent.
        4 available_spare_threshold: u8,
        /// Percentage Used of the device's endurance; may exceed 100.
        5 percentage_used: u8,
        /// Endurance Group Critical Warning Summary.
        6 endurance_group_warning: u8,
        /// Data Units Read, in thousands of 512 byte units.
        32 data_units_read: u128,
        /// Data Units Written, in thousands of 512 byte units.
        48 data_units_written: u128,
        /// Number of Host Read Commands completed.
        64 host_reads: u128,
        /// Number of Host Write Commands completed.
        80 host_writes: u128,
        /// Controller Busy Time in minutes.
        96 controller_busy_minutes: u128,
        /// Number of Power Cycles.
        112 power_cycles: u128,
        /// Power On Hours.
        128 power_on_hours: u128,
        /// Number of Unsafe Shutdowns: power losses without a shutdown.
        144 unsafe_shutdowns: u128,
        /// Number of Media and Data Integrity Errors.
        160 media_errors: u128,
        /// Number of Error Information Log Entries over the controller's life.
        176 error_entries: u128,
        /// Warning Composite Temperature Time in minutes.
        192 warning_temperature_minutes: u32,
        /// Critical Composite Temperature Time in minutes.
        196 critical_temperature_minutes: u32,
        /// Temperature Sensors 1 to 8 in kelvin; 0 for a sensor that does not exist.
        200 temperature_sensors: [u16; 8],
        /// Number of transitions to Thermal Management Temperature 1 and 2.
        216 thermal_transitions: [u32; 2],
        /// Total Time For Thermal Management Temperature 1 and 2, in seconds.
        224 thermal_seconds: [u32; 2],
    }
}

/// Bits of Critical Warning. The same bits in the Asynchronous Event Configuration enable the
/// events.
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
    /// Firmware Slot Information log page (03h).
    FirmwareSlotLog, 512, {
        /// Active Firmware Info (AFI): the active slot in bits 2:0, and the slot to activate at the
        /// next reset in bits 6:4.
        0 active: u8,
        /// Firmware Revision for Slots 1 to 7 (FRS1..FRS7).
        8 revisions: [Text<8>; 7],
    }
}

/// The most identifiers in the Changed Namespace List (04h). A longer list is the single value
/// FFFFFFFFh.
pub const CHANGED_NAMESPACES_MAX: usize = 1024;

/// Number of results that the Device Self-test log keeps.
pub const SELF_TEST_RESULTS: usize = 20;

layout! {
    /// Self-test Result data structure of the Device Self-test log.
    SelfTestResult, 28, {
        /// Self-test Code in bits 7:4 and result in bits 3:0; [`SelfTestResult::UNUSED`] for an
        /// unused entry.
        0 status: u8,
        /// Segment Number: the segment that failed, if the result reports a failed segment.
        1 segment: u8,
        /// Valid Diagnostic Information, one bit each from bit 0: NSID, failing LBA, status code
        /// type, status code.
        2 valid: u8,
        /// Power On Hours (POH) at the end of the self-test.
        4 power_on_hours: u64,
        /// Namespace Identifier of the namespace with the failing LBA.
        12 namespace: u32,
        /// Failing LBA: one logical block at which the self-test failed.
        16 failing_lba: u64,
        /// Status Code Type of the failure.
        24 status_code_type: u8,
        /// Status Code of the failure.
        25 status_code: u8,
    }
}

impl SelfTestResult {
    /// The status of an entry that was never used.
    pub const UNUSED: u8 = 0xf;
    /// Valid Diagnostic Information with all four bits set.
    pub const ALL_VALID: u8 = 0b1111;
}

layout! {
    /// Device Self-test log page (06h).
    SelfTestLog, 564, {
        /// Current Device Self-test Operation: 0 none, 1 short, 2 extended.
        0 current_operation: u8,
        /// Current Device Self-test Completion in percent.
        1 current_completion: u8,
        /// Self-test Result Data Structures, newest first.
        4 results: [SelfTestResult; SELF_TEST_RESULTS],
    }
}

/// Log Page Identifier of the Endurance Group Information log, which this controller does not have.
pub const ENDURANCE_GROUP_PAGE: u8 = 0x09;

layout! {
    /// Endurance Group Information log page (09h). Its units are thousands of millions of bytes.
    EnduranceGroupLog, 512, {
        /// Critical Warning.
        0 critical_warning: u8,
        /// Endurance Group Features.
        1 features: u8,
        /// Available Spare in percent.
        3 available_spare: u8,
        /// Available Spare Threshold in percent.
        4 available_spare_threshold: u8,
        /// Percentage Used of the group's endurance; may exceed 100.
        5 percentage_used: u8,
        /// Domain Identifier.
        6 domain: u16,
        /// Endurance Estimate: the amount that may be written to the group over its life.
        32 endurance_estimate: u128,
        /// Data Units Read.
        48 data_units_read: u128,
        /// Data Units Written.
        64 data_units_written: u128,
        /// Media Units Written.
        80 media_units_written: u128,
        /// Number of Host Read Commands completed.
        96 host_reads: u128,
        /// Number of Host Write Commands completed.
        112 host_writes: u128,
        /// Number of Media and Data Integrity Errors.
        128 media_errors: u128,
        /// Number of Error Information Log Entries over the group's life.
        144 error_entries: u128,
        /// Total Endurance Group Capacity (TEGCAP) in bytes.
        160 total_capacity: u128,
        /// Unallocated Endurance Group Capacity (UEGCAP) in bytes.
        176 unallocated_capacity: u128,
    }
}

layout! {
    /// Sanitize Status log page (81h).
    SanitizeLog, 512, {
        /// Sanitize Progress (SPROG) in units of 1/65,536; FFFFh when no operation is in progress.
        0 progress: u16,
        /// Sanitize Status (SSTAT), with the fields of [`sanitize_status`].
        2 status: u16,
        /// Sanitize Command Dword 10 Information (SCDW10): CDW10 of the latest Sanitize command.
        4 command_dword_10: u32,
        /// Estimated Time For Overwrite in seconds; FFFFFFFFh for no estimate.
        8 overwrite_time: u32,
        /// Estimated Time For Block Erase in seconds; FFFFFFFFh for no estimate.
        12 block_erase_time: u32,
        /// Estimated Time For Crypto Erase in seconds; FFFFFFFFh for no estimate.
        16 crypto_erase_time: u32,
        /// Estimated Time For Overwrite With No-Deallocate Media Modification in seconds; FFFFFFFFh
        /// for no estimate.
        20 overwrite_no_deallocate_time: u32,
        /// Estimated Time For Block Erase With No-Deallocate Media Modification in seconds;
        /// FFFFFFFFh for no estimate.
        24 block_erase_no_deallocate_time: u32,
        /// Estimated Time For Crypto Erase With No-Deallocate Media Modification in seconds;
        /// FFFFFFFFh for no estimate.
        28 crypto_erase_no_deallocate_time: u32,
    }
}

/// Fields of Sanitize Status (SSTAT), and values of its operation status.
pub mod sanitize_status {
    use crate::wire::Bits;
    /// Status of the most recent sanitize operation.
    pub const OPERATION: Bits = Bits::new(2, 0);
    /// Number of completed passes of an overwrite.
    pub const PASSES: Bits = Bits::new(7, 3);
    /// Global Data Erased: there was no write since the last successful operation.
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
        /// Log Page Identifier of the log itself.
        0 log_page: u8,
        /// Total Number of Events (TNEV).
        4 events: u32,
        /// Total Log Length (TLL) in bytes, including this header.
        8 length: u64,
        /// Log Revision of the header's format.
        16 revision: u8,
        /// Log Header Length: bytes of this header after this field.
        18 header_length: u16,
        /// Timestamp of the log, as a Timestamp data structure.
        20 timestamp: u64,
        /// Power On Hours (POH) at the establishment of the reporting context.
        28 power_on_hours: u128,
        /// Power Cycle Count over the device's life.
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
        /// Generation Number, which differs in each reporting context.
        372 generation: u16,
        /// Reporting Context Information (RCI).
        374 context: u32,
        /// Supported Events Bitmap: one bit for each event type.
        480 supported: [u8; 32],
    }
}

codes! {
    /// Event Type of an event in the Persistent Event log.
    PersistentEventKind, "event type", {
        SmartHealth = 0x01, "SMART/Health Event";
        FirmwareCommit = 0x02, "Firmware Commit Event";
        Timestamp = 0x03, "Timestamp Event";
        PowerOnOrReset = 0x04, "Power-on or Reset Event";
        HardwareError = 0x05, "NVM Subsystem Hardware Error Event";
        ChangeNamespace = 0x06, "Change Namespace Event";
        FormatStart = 0x07, "Format NVM Start Event";
        FormatCompletion = 0x08, "Format NVM Completion Event";
        SanitizeStart = 0x09, "Sanitize Start Event";
        SanitizeCompletion = 0x0a, "Sanitize Completion Event";
        SetFeature = 0x0b, "Set Feature Event";
        TelemetryCreated = 0x0c, "Telemetry Log Create Event";
        ThermalExcursion = 0x0d, "Thermal Excursion Event";
        VendorSpecific = 0xde, "Vendor Specific Event";
        TcgDefined = 0xdf, "TCG Defined Event";
    }
}

layout! {
    /// Header of an event in the Persistent Event log, in the format of NVMe Base 2.0.
    PersistentEventHeader, 24, {
        /// Event Type, which determines the format of the event's data.
        0 kind: u8,
        /// Event Type Revision of the data's format.
        1 revision: u8,
        /// Event Header Length: bytes of this header after this field.
        2 header_length: u8,
        /// Event Header Additional Info: whether the event is associated with a port.
        3 additional: u8,
        /// Controller Identifier of the controller that recorded the event.
        4 controller: u16,
        /// Event Timestamp, as a Timestamp data structure.
        6 timestamp: u64,
        /// Port Identifier of the event's port.
        14 port: u16,
        /// Vendor Specific Information Length in bytes.
        20 vendor_length: u16,
        /// Event Length: bytes after this header.
        22 length: u16,
    }
}

layout! {
    /// Header of a Telemetry log, Host-Initiated (07h) or Controller-Initiated (08h).
    TelemetryHeader, TELEMETRY_BLOCK, {
        /// Log Page Identifier of the log itself.
        0 log_page: u8,
        /// IEEE OUI Identifier of the vendor that defines the contents of the data areas.
        5 ieee_oui: [u8; 3],
        /// Last block of Data Areas 1, 2 and 3. Each area includes those before it, and block 0 is
        /// this header.
        8 last_blocks: [u16; 3],
        /// Last block of Data Area 4; 0 if the area is absent.
        16 last_block_4: u32,
        /// Telemetry Host-Initiated Data Generation Number; in a Controller-Initiated log, the
        /// scope.
        381 host_generation: u8,
        /// Telemetry Controller-Initiated Data Available: 1 if the host has not yet read the data.
        382 controller_available: u8,
        /// Telemetry Controller-Initiated Data Generation Number.
        383 controller_generation: u8,
        /// Reason Identifier: the reason for the snapshot.
        384 reason: Text<128>,
    }
}

/// Length in bytes of a block of a Telemetry log.
pub const TELEMETRY_BLOCK: usize = 512;
