//! What an agent refuses to do.

use crate::object::Data;
use crate::{Epoch, Name};

/// A demand that an agent refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The store is of an earlier incarnation: it was restored from an old backup.
    Incarnation {
        /// The incarnation of the slice.
        offered: u64,
        /// The incarnation that is durable.
        saved: u64,
    },
    /// The list of hosts of a volume is older than the durable one, or another of the same age.
    Volume {
        /// The volume.
        volume: Name,
        /// The epoch of the slice.
        offered: Epoch,
        /// The epoch that is durable.
        saved: Epoch,
    },
    /// The machine has other data of the name.
    Copy {
        /// The snapshot, or the volume that is to be made from other data.
        data: Data,
        /// The epoch of the slice.
        offered: Epoch,
        /// The epoch that is durable.
        saved: Epoch,
    },
    /// The attachment has a device of another disk, which is to be detached first.
    Attachment {
        /// The attachment.
        attachment: Name,
        /// The volume of the slice, and its owner.
        offered: (Name, Name),
        /// The volume of the device, and its owner.
        saved: (Name, Name),
    },
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const REMEDY: &str = "the store was restored from an old backup: run `farlane fleet recover`";
        match self {
            Self::Incarnation { offered, saved } => {
                write!(f, "a slice has incarnation {offered}, but {saved} is durable here; {REMEDY}")
            }
            Self::Attachment { attachment, offered: (volume, owner), saved: (other, other_owner) } => {
                write!(
                    f,
                    "the attachment {attachment} is for {volume} of {owner}, but it has a device of {other} of \
                     {other_owner} here: detach it, or attach the volume under another name"
                )
            }
            Self::Copy { data, offered, saved } => {
                write!(
                    f,
                    "{data} of epoch {offered} is demanded, but one of {saved} is here; if it stays so, {REMEDY}"
                )
            }
            Self::Volume { volume, offered, saved } => {
                write!(
                    f,
                    "the list of {volume}'s hosts has epoch {offered}, but {saved} is durable here; {REMEDY}"
                )
            }
        }
    }
}
