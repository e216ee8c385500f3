//! The bytes of NVM Express: what a queue entry, an identify structure, a feature and a log page look like.

mod bits;
mod entry;
mod opcode;
mod status;

pub use bits::Bits;
pub use entry::{
    CommandId, CompletionQueueEntry, DataTransfer, FusedOperation, NamespaceId, SubmissionQueueEntry,
    SubmissionQueueId,
};
pub use opcode::{AdminOpcode, IoOpcode};
pub use status::{Status, StatusCode};
