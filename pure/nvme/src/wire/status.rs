//! The status of completions: status code type, status code, More and Do Not Retry.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::Bits;

/// Defines [`StatusCode`]. A line has: variant = status code type, status code, whether a retry may
/// succeed on any controller of the subsystem, the specification's name.
macro_rules! status_codes {
    ($($variant:ident = $kind:literal, $code:literal, $retry:ident, $text:literal;)*) => {
        /// A Status Code Type (SCT) and Status Code (SC) under one name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "(u8, u8)", into = "(u8, u8)")]
        pub enum StatusCode {
            $(#[doc = concat!($text, ".")] $variant,)*
            /// Any other pair of type and code.
            Other {
                /// Status Code Type (SCT), less than 8.
                kind: u8,
                /// Status Code (SC) within the type.
                code: u8,
            },
        }

        impl StatusCode {
            /// The variant for a Status Code Type `kind` and a Status Code `code`.
            pub const fn new(kind: u8, code: u8) -> Self {
                match (kind, code) {
                    $(($kind, $code) => Self::$variant,)*
                    _ => Self::Other { kind, code },
                }
            }

            /// The Status Code Type (SCT) of the variant.
            pub const fn kind(self) -> u8 {
                match self {
                    $(Self::$variant => $kind,)*
                    Self::Other { kind, .. } => kind,
                }
            }

            /// The Status Code (SC) of the variant.
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Other { code, .. } => code,
                }
            }

            /// Whether the same command, sent again to any controller of the subsystem, may
            /// succeed. Hosts try another path only then.
            pub const fn may_retry(self) -> bool {
                match self {
                    $(Self::$variant => status_codes!($retry),)*
                    Self::Other { .. } => true,
                }
            }
        }

        impl From<(u8, u8)> for StatusCode {
            fn from((kind, code): (u8, u8)) -> Self {
                Self::new(kind, code)
            }
        }

        impl From<StatusCode> for (u8, u8) {
            fn from(code: StatusCode) -> Self {
                (code.kind(), code.code())
            }
        }

        impl fmt::Display for StatusCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Other { kind, code } => write!(f, "status code {code:02x}h of type {kind}"),
                }
            }
        }
    };
    (retry) => { true };
    (final) => { false };
}

status_codes! {
    SuccessfulCompletion = 0, 0x00, retry, "Successful Completion";
    InvalidCommandOpcode = 0, 0x01, final, "Invalid Command Opcode";
    InvalidField = 0, 0x02, final, "Invalid Field in Command";
    CommandIdConflict = 0, 0x03, final, "Command ID Conflict";
    DataTransferError = 0, 0x04, retry, "Data Transfer Error";
    AbortedPowerLoss = 0, 0x05, retry, "Commands Aborted due to Power Loss Notification";
    InternalError = 0, 0x06, retry, "Internal Error";
    CommandAbortRequested = 0, 0x07, retry, "Command Abort Requested";
    AbortedSubmissionQueueDeletion = 0, 0x08, retry, "Command Aborted due to SQ Deletion";
    AbortedFailedFused = 0, 0x09, retry, "Command Aborted due to Failed Fused Command";
    AbortedMissingFused = 0, 0x0a, retry, "Command Aborted due to Missing Fused Command";
    InvalidNamespaceOrFormat = 0, 0x0b, final, "Invalid Namespace or Format";
    CommandSequenceError = 0, 0x0c, final, "Command Sequence Error";
    InvalidSglSegmentDescriptor = 0, 0x0d, final, "Invalid SGL Segment Descriptor";
    InvalidSglDescriptorCount = 0, 0x0e, final, "Invalid Number of SGL Descriptors";
    DataSglLengthInvalid = 0, 0x0f, final, "Data SGL Length Invalid";
    MetadataSglLengthInvalid = 0, 0x10, final, "Metadata SGL Length Invalid";
    SglDescriptorTypeInvalid = 0, 0x11, final, "SGL Descriptor Type Invalid";
    InvalidControllerMemoryBufferUse = 0, 0x12, retry, "Invalid Use of Controller Memory Buffer";
    PrpOffsetInvalid = 0, 0x13, final, "PRP Offset Invalid";
    AtomicWriteUnitExceeded = 0, 0x14, final, "Atomic Write Unit Exceeded";
    OperationDenied = 0, 0x15, final, "Operation Denied";
    SglOffsetInvalid = 0, 0x16, final, "SGL Offset Invalid";
    HostIdentifierInconsistentFormat = 0, 0x18, final, "Host Identifier Inconsistent Format";
    KeepAliveTimerExpired = 0, 0x19, retry, "Keep Alive Timer Expired";
    KeepAliveTimeoutInvalid = 0, 0x1a, final, "Keep Alive Timeout Invalid";
    AbortedPreempt = 0, 0x1b, retry, "Command Aborted due to Preempt and Abort";
    SanitizeFailed = 0, 0x1c, final, "Sanitize Failed";
    SanitizeInProgress = 0, 0x1d, retry, "Sanitize In Progress";
    SglDataBlockGranularityInvalid = 0, 0x1e, final, "SGL Data Block Granularity Invalid";
    CommandNotSupportedForQueueInCmb = 0, 0x1f, retry, "Command Not Supported for Queue in CMB";
    NamespaceWriteProtected = 0, 0x20, final, "Namespace is Write Protected";
    CommandInterrupted = 0, 0x21, retry, "Command Interrupted";
    TransientTransportError = 0, 0x22, retry, "Transient Transport Error";
    ProhibitedByLockdown = 0, 0x23, final, "Command Prohibited by Command and Feature Lockdown";
    AdminCommandMediaNotReady = 0, 0x24, retry, "Admin Command Media Not Ready";
    LbaOutOfRange = 0, 0x80, final, "LBA Out of Range";
    CapacityExceeded = 0, 0x81, retry, "Capacity Exceeded";
    NamespaceNotReady = 0, 0x82, retry, "Namespace Not Ready";
    ReservationConflict = 0, 0x83, final, "Reservation Conflict";
    FormatInProgress = 0, 0x84, retry, "Format In Progress";
    CompletionQueueInvalid = 1, 0x00, final, "Completion Queue Invalid";
    InvalidQueueIdentifier = 1, 0x01, final, "Invalid Queue Identifier";
    InvalidQueueSize = 1, 0x02, final, "Invalid Queue Size";
    AbortCommandLimitExceeded = 1, 0x03, retry, "Abort Command Limit Exceeded";
    AsynchronousEventRequestLimitExceeded = 1, 0x05, retry, "Asynchronous Event Request Limit Exceeded";
    InvalidFirmwareSlot = 1, 0x06, final, "Invalid Firmware Slot";
    InvalidFirmwareImage = 1, 0x07, final, "Invalid Firmware Image";
    InvalidInterruptVector = 1, 0x08, final, "Invalid Interrupt Vector";
    InvalidLogPage = 1, 0x09, final, "Invalid Log Page";
    InvalidFormat = 1, 0x0a, final, "Invalid Format";
    FirmwareActivationRequiresConventionalReset = 1, 0x0b, final, "Firmware Activation Requires Conventional Reset";
    InvalidQueueDeletion = 1, 0x0c, final, "Invalid Queue Deletion";
    FeatureNotSaveable = 1, 0x0d, final, "Feature Identifier Not Saveable";
    FeatureNotChangeable = 1, 0x0e, final, "Feature Not Changeable";
    FeatureNotNamespaceSpecific = 1, 0x0f, final, "Feature Not Namespace Specific";
    FirmwareActivationRequiresSubsystemReset = 1, 0x10, final, "Firmware Activation Requires NVM Subsystem Reset";
    FirmwareActivationRequiresControllerLevelReset = 1, 0x11, final, "Firmware Activation Requires Controller Level Reset";
    FirmwareActivationRequiresMaximumTimeViolation = 1, 0x12, final, "Firmware Activation Requires Maximum Time Violation";
    FirmwareActivationProhibited = 1, 0x13, final, "Firmware Activation Prohibited";
    OverlappingRange = 1, 0x14, final, "Overlapping Range";
    NamespaceInsufficientCapacity = 1, 0x15, final, "Namespace Insufficient Capacity";
    NamespaceIdentifierUnavailable = 1, 0x16, final, "Namespace Identifier Unavailable";
    NamespaceAlreadyAttached = 1, 0x18, final, "Namespace Already Attached";
    NamespaceIsPrivate = 1, 0x19, final, "Namespace Is Private";
    NamespaceNotAttached = 1, 0x1a, final, "Namespace Not Attached";
    ThinProvisioningNotSupported = 1, 0x1b, final, "Thin Provisioning Not Supported";
    ControllerListInvalid = 1, 0x1c, final, "Controller List Invalid";
    DeviceSelfTestInProgress = 1, 0x1d, retry, "Device Self-test In Progress";
    BootPartitionWriteProhibited = 1, 0x1e, final, "Boot Partition Write Prohibited";
    InvalidControllerIdentifier = 1, 0x1f, final, "Invalid Controller Identifier";
    InvalidSecondaryControllerState = 1, 0x20, final, "Invalid Secondary Controller State";
    InvalidNumberOfControllerResources = 1, 0x21, final, "Invalid Number of Controller Resources";
    InvalidResourceIdentifier = 1, 0x22, final, "Invalid Resource Identifier";
    SanitizeProhibited = 1, 0x23, final, "Sanitize Prohibited While Persistent Memory Region is Enabled";
    AnaGroupIdentifierInvalid = 1, 0x24, final, "ANA Group Identifier Invalid";
    AnaAttachFailed = 1, 0x25, final, "ANA Attach Failed";
    InsufficientCapacity = 1, 0x26, final, "Insufficient Capacity";
    NamespaceAttachmentLimitExceeded = 1, 0x27, final, "Namespace Attachment Limit Exceeded";
    ProhibitionNotSupported = 1, 0x28, final, "Prohibition of Command Execution Not Supported";
    IoCommandSetNotSupported = 1, 0x29, final, "I/O Command Set Not Supported";
    IoCommandSetNotEnabled = 1, 0x2a, final, "I/O Command Set Not Enabled";
    IoCommandSetCombinationRejected = 1, 0x2b, final, "I/O Command Set Combination Rejected";
    InvalidIoCommandSet = 1, 0x2c, final, "Invalid I/O Command Set";
    IdentifierUnavailable = 1, 0x2d, final, "Identifier Unavailable";
    ConflictingAttributes = 1, 0x80, final, "Conflicting Attributes";
    InvalidProtectionInformation = 1, 0x81, final, "Invalid Protection Information";
    WriteToReadOnlyRange = 1, 0x82, final, "Attempted Write to Read Only Range";
    CommandSizeLimitExceeded = 1, 0x83, final, "Command Size Limit Exceeded";
    WriteFault = 2, 0x80, retry, "Write Fault";
    UnrecoveredReadError = 2, 0x81, retry, "Unrecovered Read Error";
    GuardCheckError = 2, 0x82, final, "End-to-end Guard Check Error";
    ApplicationTagCheckError = 2, 0x83, final, "End-to-end Application Tag Check Error";
    ReferenceTagCheckError = 2, 0x84, final, "End-to-end Reference Tag Check Error";
    CompareFailure = 2, 0x85, retry, "Compare Failure";
    AccessDenied = 2, 0x86, final, "Access Denied";
    DeallocatedOrUnwrittenBlock = 2, 0x87, final, "Deallocated or Unwritten Logical Block";
    StorageTagCheckError = 2, 0x88, final, "End-to-End Storage Tag Check Error";
    InternalPathError = 3, 0x00, retry, "Internal Path Error";
    AsymmetricAccessPersistentLoss = 3, 0x01, retry, "Asymmetric Access Persistent Loss";
    AsymmetricAccessInaccessible = 3, 0x02, retry, "Asymmetric Access Inaccessible";
    AsymmetricAccessTransition = 3, 0x03, retry, "Asymmetric Access Transition";
    ControllerPathingError = 3, 0x60, retry, "Controller Pathing Error";
    HostPathingError = 3, 0x70, retry, "Host Pathing Error";
    CommandAbortedByHost = 3, 0x71, retry, "Command Aborted By Host";
}

/// The Status Field of a completion: 15 bits, without the Phase Tag.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Status(u16);

const STATUS_CODE: Bits = Bits::new(7, 0);
const STATUS_CODE_TYPE: Bits = Bits::new(10, 8);
const MORE: Bits = Bits::bit(13);
const DO_NOT_RETRY: Bits = Bits::bit(14);
const FIELD: Bits = Bits::new(14, 0);

impl Status {
    /// Successful Completion, without further bits.
    pub const SUCCESS: Self = Self(0);

    /// The status of `code`, with Do Not Retry set if a retry cannot succeed.
    #[inline]
    pub const fn new(code: StatusCode) -> Self {
        let word = STATUS_CODE.put(code.code() as u32)
            | STATUS_CODE_TYPE.put(code.kind() as u32)
            | DO_NOT_RETRY.put(!code.may_retry() as u32);
        Self(super::bits::low_u16(word))
    }

    /// A status from the field's 15 bits. Bit 15 of `raw` is dropped.
    pub const fn from_raw(raw: u16) -> Self {
        Self(super::bits::low_u16(FIELD.of(raw as u32)))
    }

    /// The field's 15 bits.
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        STATUS_CODE_TYPE.of(self.0 as u32) == 0 && STATUS_CODE.of(self.0 as u32) == 0
    }

    /// The Status Code Type (SCT) and Status Code (SC).
    pub const fn code(self) -> StatusCode {
        StatusCode::new(
            super::bits::low_u8(STATUS_CODE_TYPE.of(self.0 as u32)),
            super::bits::low_u8(STATUS_CODE.of(self.0 as u32)),
        )
    }

    /// Whether More (M) is set: the Error Information log has an entry for the command.
    pub const fn has_more(self) -> bool {
        MORE.is_set(self.0 as u32)
    }

    /// Whether Do Not Retry (DNR) is set: the same command, sent again, is expected to fail.
    pub const fn do_not_retry(self) -> bool {
        DO_NOT_RETRY.is_set(self.0 as u32)
    }

    /// The status with More (M) set.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(super::bits::low_u16(MORE.replace(self.0 as u32, 1)))
    }

    /// The status with Do Not Retry (DNR) set or clear.
    #[must_use]
    pub const fn with_do_not_retry(self, set: bool) -> Self {
        Self(super::bits::low_u16(DO_NOT_RETRY.replace(self.0 as u32, set as u32)))
    }
}

impl From<StatusCode> for Status {
    fn from(code: StatusCode) -> Self {
        Self::new(code)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = if self.do_not_retry() { ", do not retry" } else { "" };
        write!(f, "{} (type {}, code {:02x}h{retry})", self.code(), self.code().kind(), self.code().code())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:?}, {:04x}h)", self.code(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_pattern_comes_back_but_bit_15() {
        for raw in 0..=u16::MAX {
            let status = Status::from_raw(raw);
            assert_eq!(status.raw(), raw & 0x7fff);
            assert_eq!(StatusCode::new(status.code().kind(), status.code().code()), status.code());
        }
    }

    #[test]
    fn bits_stand_where_linux_prints_them() {
        // As `nvme` prints them: 0x4002 is Invalid Field with DNR, 0x281 is Unrecovered Read Error.
        assert_eq!(Status::from(StatusCode::InvalidField).raw(), 0x4002);
        assert_eq!(Status::from(StatusCode::UnrecoveredReadError).raw(), 0x0281);
        assert_eq!(Status::from(StatusCode::UnrecoveredReadError).with_more().raw(), 0x2281);
        assert!(Status::from_raw(0x2000).is_success());
        // Another path may work where one is lost: Linux and SPDK fail over only without DNR.
        for code in [0, 1, 2, 3, 0x60, 0x70, 0x71].map(|code| StatusCode::new(3, code)) {
            assert!(!Status::from(code).do_not_retry(), "{code}");
        }
        assert_eq!(
            Status::from(StatusCode::LbaOutOfRange).to_string(),
            "LBA Out of Range (type 0, code 80h, do not retry)"
        );
    }
}
