//! Message Codes.

/// Unlock: the end of a locked sequence.
pub const UNLOCK: u8 = 0x00;
/// Latency Tolerance Reporting (LTR).
pub const LATENCY_TOLERANCE: u8 = 0x10;
/// Optimized Buffer Flush/Fill (OBFF).
pub const BUFFER_FLUSH_FILL: u8 = 0x12;
/// PM_Active_State_Nak: a request to enter ASPM L1 is rejected.
pub const PM_ACTIVE_STATE_NAK: u8 = 0x14;
/// PM_PME: a power management event of a function.
pub const PM_PME: u8 = 0x18;
/// PME_Turn_Off: power is about to be removed.
pub const PME_TURN_OFF: u8 = 0x19;
/// PME_TO_Ack: the answer to PME_Turn_Off.
pub const PME_TO_ACK: u8 = 0x1b;
/// Assert_INTA. The codes for INTB, INTC and INTD follow.
pub const ASSERT_INTA: u8 = 0x20;
/// Deassert_INTA. The codes for INTB, INTC and INTD follow.
pub const DEASSERT_INTA: u8 = 0x24;
/// Deassert_INTD, the last of the INTx codes.
pub const DEASSERT_INTD: u8 = 0x27;
/// ERR_COR: a correctable error.
pub const ERR_COR: u8 = 0x30;
/// ERR_NONFATAL: an uncorrectable, non-fatal error.
pub const ERR_NONFATAL: u8 = 0x31;
/// ERR_FATAL: an uncorrectable, fatal error.
pub const ERR_FATAL: u8 = 0x33;
/// Set_Slot_Power_Limit: the power limit of the slot.
pub const SET_SLOT_POWER_LIMIT: u8 = 0x50;
/// PTM Request, of Precision Time Measurement.
pub const PTM_REQUEST: u8 = 0x52;
/// PTM Response of Precision Time Measurement; with data, PTM ResponseD.
pub const PTM_RESPONSE: u8 = 0x53;
/// Vendor_Defined Type 0. A receiver that does not know the vendor handles it as Unsupported
/// Request.
pub const VENDOR_DEFINED_0: u8 = 0x7e;
/// Vendor_Defined Type 1. A receiver that does not know the vendor drops it.
pub const VENDOR_DEFINED_1: u8 = 0x7f;

/// Whether receivers must check that a message with this code uses traffic class 0.
pub(super) const fn needs_default_class(code: u8) -> bool {
    matches!(
        code,
        UNLOCK
            | LATENCY_TOLERANCE
            | BUFFER_FLUSH_FILL
            | PM_ACTIVE_STATE_NAK
            | PM_PME
            | PME_TURN_OFF
            | PME_TO_ACK
            | ASSERT_INTA
            ..=DEASSERT_INTD
                | ERR_COR
                | ERR_NONFATAL
                | ERR_FATAL
                | SET_SLOT_POWER_LIMIT
                | PTM_REQUEST
                | PTM_RESPONSE
    )
}

/// The specification's name of a Message Code; `None` for an unknown code.
pub const fn name(code: u8) -> Option<&'static str> {
    Some(match code {
        UNLOCK => "Unlock",
        LATENCY_TOLERANCE => "LTR",
        BUFFER_FLUSH_FILL => "OBFF",
        PM_ACTIVE_STATE_NAK => "PM_Active_State_Nak",
        PM_PME => "PM_PME",
        PME_TURN_OFF => "PME_Turn_Off",
        PME_TO_ACK => "PME_TO_Ack",
        0x20 => "Assert_INTA",
        0x21 => "Assert_INTB",
        0x22 => "Assert_INTC",
        0x23 => "Assert_INTD",
        0x24 => "Deassert_INTA",
        0x25 => "Deassert_INTB",
        0x26 => "Deassert_INTC",
        0x27 => "Deassert_INTD",
        ERR_COR => "ERR_COR",
        ERR_NONFATAL => "ERR_NONFATAL",
        ERR_FATAL => "ERR_FATAL",
        SET_SLOT_POWER_LIMIT => "Set_Slot_Power_Limit",
        PTM_REQUEST => "PTM_Request",
        PTM_RESPONSE => "PTM_Response",
        VENDOR_DEFINED_0 => "Vendor_Defined_0",
        VENDOR_DEFINED_1 => "Vendor_Defined_1",
        _ => return None,
    })
}
