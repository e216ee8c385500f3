//! Features: their identifiers, the Select values of Get Features, and the fields of their values.

use super::Bits;
use super::code::codes;

codes! {
    /// Feature Identifier (FID), NVMe Base 2.0.
    #[derive(PartialOrd, Ord)]
    FeatureId, "feature", {
        Arbitration = 0x01, "Arbitration";
        PowerManagement = 0x02, "Power Management";
        TemperatureThreshold = 0x04, "Temperature Threshold";
        ErrorRecovery = 0x05, "Error Recovery";
        VolatileWriteCache = 0x06, "Volatile Write Cache";
        NumberOfQueues = 0x07, "Number of Queues";
        InterruptCoalescing = 0x08, "Interrupt Coalescing";
        InterruptVectorConfiguration = 0x09, "Interrupt Vector Configuration";
        WriteAtomicity = 0x0a, "Write Atomicity Normal";
        AsynchronousEventConfiguration = 0x0b, "Asynchronous Event Configuration";
        Timestamp = 0x0e, "Timestamp";
        KeepAliveTimer = 0x0f, "Keep Alive Timer";
        HostBehavior = 0x16, "Host Behavior Support";
        HostIdentifier = 0x81, "Host Identifier";
        ReservationMask = 0x82, "Reservation Notification Mask";
        ReservationPersistence = 0x83, "Reservation Persistence";
        WriteProtection = 0x84, "Namespace Write Protection Config";
    }
}

impl FeatureId {
    /// Whether values of the feature belong to namespaces rather than to the controller.
    pub const fn is_namespace_specific(self) -> bool {
        matches!(
            self,
            Self::ErrorRecovery
                | Self::ReservationMask
                | Self::ReservationPersistence
                | Self::WriteProtection
        )
    }
}

/// Feature Identifier (FID) in CDW10 of Get and Set Features.
pub const FID: Bits = Bits::new(7, 0);
/// Select (SEL) in CDW10 of Get Features.
pub const SELECT: Bits = Bits::new(10, 8);
/// Save (SV) in CDW10 of Set Features.
pub const SAVE: Bits = Bits::bit(31);

/// Arbitration Burst (AB), as a power of two commands, or [`ARBITRATION_UNLIMITED`].
pub const ARBITRATION_BURST: Bits = Bits::new(2, 0);
/// The value of the Arbitration Burst for no limit.
pub const ARBITRATION_UNLIMITED: u32 = 0b111;
/// Low Priority Weight (LPW), 0's based number of commands.
pub const LOW_WEIGHT: Bits = Bits::new(15, 8);
/// Medium Priority Weight (MPW), 0's based number of commands.
pub const MEDIUM_WEIGHT: Bits = Bits::new(23, 16);
/// High Priority Weight (HPW), 0's based number of commands.
pub const HIGH_WEIGHT: Bits = Bits::new(31, 24);
/// Power State (PS) of Power Management.
pub const POWER_STATE: Bits = Bits::new(4, 0);
/// Temperature Threshold (TMPTH) in kelvin.
pub const TEMPERATURE: Bits = Bits::new(15, 0);
/// Threshold Temperature Select (TMPSEL): 0 for the composite temperature, 1..=8 for a sensor, Fh
/// for all.
pub const TEMPERATURE_SELECT: Bits = Bits::new(19, 16);
/// Threshold Type Select (THSEL): 0 for the over, 1 for the under temperature threshold.
pub const THRESHOLD_TYPE: Bits = Bits::new(21, 20);
/// Time Limited Error Recovery (TLER) in units of 100 ms.
pub const TIME_LIMITED_RECOVERY: Bits = Bits::new(15, 0);
/// Deallocated or Unwritten Logical Block Error Enable (DULBE).
pub const DEALLOCATED_ERROR_ENABLE: Bits = Bits::bit(16);
/// Volatile Write Cache Enable (WCE).
pub const WRITE_CACHE_ENABLE: Bits = Bits::bit(0);
/// Number of I/O Submission Queues, 0's based (NSQR, NSQA).
pub const SUBMISSION_QUEUES: Bits = Bits::new(15, 0);
/// Number of I/O Completion Queues, 0's based (NCQR, NCQA).
pub const COMPLETION_QUEUES: Bits = Bits::new(31, 16);
/// Aggregation Threshold (THR), 0's based number of completions.
pub const AGGREGATION_THRESHOLD: Bits = Bits::new(7, 0);
/// Aggregation Time (TIME) in units of 100 µs.
pub const AGGREGATION_TIME: Bits = Bits::new(15, 8);
/// Interrupt Vector (IV) of Interrupt Vector Configuration.
pub const INTERRUPT_VECTOR: Bits = Bits::new(15, 0);
/// Coalescing Disable (CD).
pub const COALESCING_DISABLE: Bits = Bits::bit(16);
/// Disable Normal (DN) of Write Atomicity.
pub const DISABLE_NORMAL: Bits = Bits::bit(0);
/// SMART / Health Critical Warnings in the Asynchronous Event Configuration.
pub const EVENT_CRITICAL_WARNINGS: Bits = Bits::new(7, 0);
/// Namespace Attribute Notices in the Asynchronous Event Configuration and in OAES.
pub const EVENT_NAMESPACE_ATTRIBUTE: Bits = Bits::bit(8);
/// Telemetry Log Notices in the Asynchronous Event Configuration.
pub const EVENT_TELEMETRY: Bits = Bits::bit(10);
/// Asymmetric Namespace Access Change Notices in the Asynchronous Event Configuration and in OAES.
pub const EVENT_ASYMMETRIC_ACCESS: Bits = Bits::bit(11);
/// Reservation Notification Mask bits for registration preempted, reservation released and
/// reservation preempted.
pub const RESERVATION_NOTIFICATIONS: Bits = Bits::new(3, 1);
/// Persist Through Power Loss (PTPL) of Reservation Persistence.
pub const PERSIST_THROUGH_POWER_LOSS: Bits = Bits::bit(0);
/// Write Protection State (WPS) of Namespace Write Protection Config.
pub const WRITE_PROTECTION_STATE: Bits = Bits::new(2, 0);
/// Enable Extended Host Identifier (EXHID): the identifier has 16 bytes rather than 8.
pub const EXTENDED_HOST_IDENTIFIER: Bits = Bits::bit(0);

/// Capability bits of the word that Get Features returns for Select = supported capabilities.
pub mod capability {
    /// The value can be saved.
    pub const SAVEABLE: u32 = 1 << 0;
    /// Each namespace has its own value.
    pub const NAMESPACE_SPECIFIC: u32 = 1 << 1;
    /// The value can be changed.
    pub const CHANGEABLE: u32 = 1 << 2;
}
