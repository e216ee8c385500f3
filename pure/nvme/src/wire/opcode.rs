//! Opcodes of the admin commands and of the NVM command set.

/// Defines an enum of opcodes that converts from and to any byte on the wire.
macro_rules! opcodes {
    ($(#[$meta:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$item])* $variant,)*
            /// Any other opcode.
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
        /// Delete I/O Submission Queue (00h).
        DeleteIoSubmissionQueue = 0x00, "Delete I/O Submission Queue";
        /// Create I/O Submission Queue (01h).
        CreateIoSubmissionQueue = 0x01, "Create I/O Submission Queue";
        /// Get Log Page (02h).
        GetLogPage = 0x02, "Get Log Page";
        /// Delete I/O Completion Queue (04h).
        DeleteIoCompletionQueue = 0x04, "Delete I/O Completion Queue";
        /// Create I/O Completion Queue (05h).
        CreateIoCompletionQueue = 0x05, "Create I/O Completion Queue";
        /// Identify (06h).
        Identify = 0x06, "Identify";
        /// Abort (08h).
        Abort = 0x08, "Abort";
        /// Set Features (09h).
        SetFeatures = 0x09, "Set Features";
        /// Get Features (0Ah).
        GetFeatures = 0x0a, "Get Features";
        /// Asynchronous Event Request (0Ch).
        AsynchronousEventRequest = 0x0c, "Asynchronous Event Request";
        /// Namespace Management (0Dh).
        NamespaceManagement = 0x0d, "Namespace Management";
        /// Firmware Commit (10h).
        FirmwareCommit = 0x10, "Firmware Commit";
        /// Firmware Image Download (11h).
        FirmwareImageDownload = 0x11, "Firmware Image Download";
        /// Device Self-test (14h).
        DeviceSelfTest = 0x14, "Device Self-test";
        /// Namespace Attachment (15h).
        NamespaceAttachment = 0x15, "Namespace Attachment";
        /// Keep Alive (18h).
        KeepAlive = 0x18, "Keep Alive";
        /// Directive Send (19h).
        DirectiveSend = 0x19, "Directive Send";
        /// Directive Receive (1Ah).
        DirectiveReceive = 0x1a, "Directive Receive";
        /// Virtualization Management (1Ch).
        VirtualizationManagement = 0x1c, "Virtualization Management";
        /// NVMe-MI Send (1Dh).
        ManagementInterfaceSend = 0x1d, "NVMe-MI Send";
        /// NVMe-MI Receive (1Eh).
        ManagementInterfaceReceive = 0x1e, "NVMe-MI Receive";
        /// Capacity Management (20h).
        CapacityManagement = 0x20, "Capacity Management";
        /// Lockdown (24h).
        Lockdown = 0x24, "Lockdown";
        /// Cross-Controller Reset (38h).
        CrossControllerReset = 0x38, "Cross-Controller Reset";
        /// Doorbell Buffer Config (7Ch).
        DoorbellBufferConfig = 0x7c, "Doorbell Buffer Config";
        /// Fabrics commands (7Fh).
        Fabrics = 0x7f, "Fabrics";
        /// Format NVM (80h).
        FormatNvm = 0x80, "Format NVM";
        /// Security Send (81h).
        SecuritySend = 0x81, "Security Send";
        /// Security Receive (82h).
        SecurityReceive = 0x82, "Security Receive";
        /// Sanitize (84h).
        Sanitize = 0x84, "Sanitize";
        /// Get LBA Status (86h).
        GetLbaStatus = 0x86, "Get LBA Status";
    }
}

opcodes! {
    /// Opcodes of the I/O commands of the NVM Command Set 1.0.
    IoOpcode {
        /// Flush (00h).
        Flush = 0x00, "Flush";
        /// Write (01h).
        Write = 0x01, "Write";
        /// Read (02h).
        Read = 0x02, "Read";
        /// Write Uncorrectable (04h).
        WriteUncorrectable = 0x04, "Write Uncorrectable";
        /// Compare (05h).
        Compare = 0x05, "Compare";
        /// Write Zeroes (08h).
        WriteZeroes = 0x08, "Write Zeroes";
        /// Dataset Management (09h).
        DatasetManagement = 0x09, "Dataset Management";
        /// Verify (0Ch).
        Verify = 0x0c, "Verify";
        /// Reservation Register (0Dh).
        ReservationRegister = 0x0d, "Reservation Register";
        /// Reservation Report (0Eh).
        ReservationReport = 0x0e, "Reservation Report";
        /// Reservation Acquire (11h).
        ReservationAcquire = 0x11, "Reservation Acquire";
        /// Reservation Release (15h).
        ReservationRelease = 0x15, "Reservation Release";
        /// Copy (19h).
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
