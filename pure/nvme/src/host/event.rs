//! Asynchronous events, as a host receives them.

use serde::{Deserialize, Serialize};

/// An asynchronous event, from DW0 of the completion of an Asynchronous Event Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsynchronousEvent {
    /// Asynchronous Event Type (0 error, 1 SMART / health, 2 notice, 6 I/O command set).
    pub kind: u8,
    /// Asynchronous Event Information, a code within the type.
    pub information: u8,
    /// Log Page Identifier of the page with details.
    pub log_page: u8,
}

impl AsynchronousEvent {
    /// The event that DW0 reports.
    pub const fn from_dw0(dw0: u32) -> Self {
        let [kind, information, log_page, _] = dw0.to_le_bytes();
        Self { kind: kind & 0b111, information, log_page }
    }
}
