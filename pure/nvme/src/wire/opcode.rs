//! Opcodes of the admin commands and of the NVM command set.

use super::code::codes;

codes! {
    /// Opcodes of the Admin Command Set, NVMe Base 2.0.
    AdminOpcode, "opcode", {
        DeleteIoSubmissionQueue = 0x00, "Delete I/O Submission Queue";
        CreateIoSubmissionQueue = 0x01, "Create I/O Submission Queue";
        GetLogPage = 0x02, "Get Log Page";
        DeleteIoCompletionQueue = 0x04, "Delete I/O Completion Queue";
        CreateIoCompletionQueue = 0x05, "Create I/O Completion Queue";
        Identify = 0x06, "Identify";
        Abort = 0x08, "Abort";
        SetFeatures = 0x09, "Set Features";
        GetFeatures = 0x0a, "Get Features";
        AsynchronousEventRequest = 0x0c, "Asynchronous Event Request";
        NamespaceManagement = 0x0d, "Namespace Management";
        FirmwareCommit = 0x10, "Firmware Commit";
        FirmwareImageDownload = 0x11, "Firmware Image Download";
        DeviceSelfTest = 0x14, "Device Self-test";
        NamespaceAttachment = 0x15, "Namespace Attachment";
        KeepAlive = 0x18, "Keep Alive";
        DirectiveSend = 0x19, "Directive Send";
        DirectiveReceive = 0x1a, "Directive Receive";
        VirtualizationManagement = 0x1c, "Virtualization Management";
        ManagementInterfaceSend = 0x1d, "NVMe-MI Send";
        ManagementInterfaceReceive = 0x1e, "NVMe-MI Receive";
        CapacityManagement = 0x20, "Capacity Management";
        Lockdown = 0x24, "Lockdown";
        CrossControllerReset = 0x38, "Cross-Controller Reset";
        DoorbellBufferConfig = 0x7c, "Doorbell Buffer Config";
        Fabrics = 0x7f, "Fabrics";
        FormatNvm = 0x80, "Format NVM";
        SecuritySend = 0x81, "Security Send";
        SecurityReceive = 0x82, "Security Receive";
        Sanitize = 0x84, "Sanitize";
        GetLbaStatus = 0x86, "Get LBA Status";
    }
}

codes! {
    /// Opcodes of the I/O commands of the NVM Command Set 1.0.
    IoOpcode, "opcode", {
        Flush = 0x00, "Flush";
        Write = 0x01, "Write";
        Read = 0x02, "Read";
        WriteUncorrectable = 0x04, "Write Uncorrectable";
        Compare = 0x05, "Compare";
        WriteZeroes = 0x08, "Write Zeroes";
        DatasetManagement = 0x09, "Dataset Management";
        Verify = 0x0c, "Verify";
        ReservationRegister = 0x0d, "Reservation Register";
        ReservationReport = 0x0e, "Reservation Report";
        ReservationAcquire = 0x11, "Reservation Acquire";
        ReservationRelease = 0x15, "Reservation Release";
        Copy = 0x19, "Copy";
    }
}
