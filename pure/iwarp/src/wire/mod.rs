//! Formats of MPA, DDP and RDMAP.

mod fpdu;
mod header;
mod startup;
mod terminate;

pub use fpdu::{CRC_LENGTH, FPDU_LENGTH_MAX, LENGTH_FIELD, ULPDU_LENGTH_MAX, fpdu_length, padding};
pub use header::{Header, HeaderError, Opcode, Queue, ReadRequest};
pub use startup::{
    Enhanced, FrameKind, IRD_ORD_MAX, PRIVATE_DATA_LENGTH_MAX, Revision, Startup, StartupError,
};
pub use terminate::{Fault, Layer, Shown, Terminate};
