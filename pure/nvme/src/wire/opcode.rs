//! Opcodes of the admin commands and of the NVM command set.

/// Defines an enum of opcodes with total conversions from and to the byte on the wire.
macro_rules! opcodes {
    ($(#[$meta:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$item])* $variant,)*
            /// An opcode without a name here.
            Other(u8),
        }

        impl From<u8> for $name {
            #[inline]
            fn from(opcode: u8) -> Self {
                match opcode {
                    $($value => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl From<$name> for u8 {
            #[inline]
            fn from(opcode: $name) -> u8 {
                match opcode {
                    $($name::$variant => $value,)*
                    $name::Other(other) => other,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Other(other) => write!(f, "opcode {other:02x}h"),
                }
            }
        }
    };
}

opcodes! {
    /// Opcodes of the Admin Command Set, NVMe Base 2.0.
    AdminOpcode {
        /// Delete I/O Submission Queue.
        DeleteIoSubmissionQueue = 0x00, "Delete I/O Submission Queue";
        /// Create I/O Submission Queue.
        CreateIoSubmissionQueue = 0x01, "Create I/O Submission Queue";
        /// Get Log Page.
        GetLogPage = 0x02, "Get Log Page";
        /// Delete I/O Completion Queue.
        DeleteIoCompletionQueue = 0x04, "Delete I/O Completion Queue";
        /// Create I/O Completion Queue.
        CreateIoCompletionQueue = 0x05, "Create I/O Completion Queue";
        /// Identify.
        Identify = 0x06, "Identify";
        /// Abort.
        Abort = 0x08, "Abort";
        /// Set Features.
        SetFeatures = 0x09, "Set Features";
        /// Get Features.
        GetFeatures = 0x0a, "Get Features";
        /// Asynchronous Event Request.
        AsynchronousEventRequest = 0x0c, "Asynchronous Event Request";
        /// Namespace Management.
        NamespaceManagement = 0x0d, "Namespace Management";
        /// Firmware Commit.
        FirmwareCommit = 0x10, "Firmware Commit";
        /// Firmware Image Download.
        FirmwareImageDownload = 0x11, "Firmware Image Download";
        /// Device Self-test.
        DeviceSelfTest = 0x14, "Device Self-test";
        /// Namespace Attachment.
        NamespaceAttachment = 0x15, "Namespace Attachment";
        /// Keep Alive.
        KeepAlive = 0x18, "Keep Alive";
        /// Directive Send.
        DirectiveSend = 0x19, "Directive Send";
        /// Directive Receive.
        DirectiveReceive = 0x1a, "Directive Receive";
        /// Virtualization Management.
        VirtualizationManagement = 0x1c, "Virtualization Management";
        /// NVMe-MI Send.
        ManagementInterfaceSend = 0x1d, "NVMe-MI Send";
        /// NVMe-MI Receive.
        ManagementInterfaceReceive = 0x1e, "NVMe-MI Receive";
        /// Capacity Management.
        CapacityManagement = 0x20, "Capacity Management";
        /// Lockdown.
        Lockdown = 0x24, "Lockdown";
        /// Cross-Controller Reset.
        CrossControllerReset = 0x38, "Cross-Controller Reset";
        /// Doorbell Buffer Config.
        DoorbellBufferConfig = 0x7c, "Doorbell Buffer Config";
        /// Fabrics commands.
        Fabrics = 0x7f, "Fabrics";
        /// Format NVM.
        FormatNvm = 0x80, "Format NVM";
        /// Security Send.
        SecuritySend = 0x81, "Security Send";
        /// Security Receive.
        SecurityReceive = 0x82, "Security Receive";
        /// Sanitize.
        Sanitize = 0x84, "Sanitize";
        /// Get LBA Status.
        GetLbaStatus = 0x86, "Get LBA Status";
    }
}

opcodes! {
    /// Opcodes of the I/O commands of the NVM Command Set 1.0.
    IoOpcode {
        /// Flush.
        Flush = 0x00, "Flush";
        /// Write.
        Write = 0x01, "Write";
        /// Read.
        Read = 0x02, "Read";
        /// Write Uncorrectable.
        WriteUncorrectable = 0x04, "Write Uncorrectable";
        /// Compare.
        Compare = 0x05, "Compare";
        /// Write Zeroes.
        WriteZeroes = 0x08, "Write Zeroes";
        /// Dataset Management.
        DatasetManagement = 0x09, "Dataset Management";
        /// Verify.
        Verify = 0x0c, "Verify";
        /// Reservation Register.
        ReservationRegister = 0x0d, "Reservation Register";
        /// Reservation Report.
        ReservationReport = 0x0e, "Reservation Report";
        /// Reservation Acquire.
        ReservationAcquire = 0x11, "Reservation Acquire";
        /// Reservation Release.
        ReservationRelease = 0x15, "Reservation Release";
        /// Copy.
        Copy = 0x19, "Copy";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_an_opcode_and_comes_back() {
        for byte in 0..=u8::MAX {
            assert_eq!(u8::from(AdminOpcode::from(byte)), byte);
            assert_eq!(u8::from(IoOpcode::from(byte)), byte);
        }
    }
}
