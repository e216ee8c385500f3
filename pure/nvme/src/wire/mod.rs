//! The data structures of NVM Express in bytes: queue entries, Identify structures, features and
//! log pages.

mod ana;
pub(crate) mod bits;
mod code;
mod copy;
mod dataset;
mod entry;
pub mod feature;
pub mod identify;
mod layout;
pub mod log;
mod opcode;
mod protection_information;
mod status;
mod text;

pub use ana::AnaState;
pub use bits::Bits;
pub use copy::{CopyRange, LongCopyRange};
pub use dataset::DatasetRange;
pub use entry::{
    CommandId, CompletionQueueEntry, DataTransfer, FusedOperation, NamespaceId, QueueId, SubmissionQueueEntry,
};
pub use opcode::{AdminOpcode, IoOpcode};
pub(crate) use protection_information::{CHECK_GUARD, CHECK_REFERENCE_TAG, PROTECTION_ACTION};
pub use protection_information::{Guard, ProtectionInformation};
pub use status::{Status, StatusCode};
pub use text::Text;

pub(crate) use bits::{join_u64, low_u8, low_u16};
