//! What the host of a controller may do, where its owner has said so.

use alloc::vec::Vec;

use crate::rate::Rate;
use crate::wire::{AdminOpcode, NamespaceId};

/// What the host of a controller may do.
///
/// A host that may not do everything can change nothing that other hosts share either: no formats,
/// namespaces, firmware, self-tests or sanitize operations, nor the volatile write cache. It gets
/// *Operation Denied*.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// The namespaces that exist for the host; `None` for all.
    pub namespaces: Option<Vec<NamespaceId>>,
    /// Whether the host may only read.
    pub read_only: bool,
    /// The ceiling on the host's rate, which the transport keeps.
    pub rate: Rate,
}

impl Permit {
    /// Whether the host may do everything, at whatever rate.
    pub const fn is_whole(&self) -> bool {
        self.namespaces.is_none() && !self.read_only
    }

    /// Whether the namespace exists for the host.
    pub(super) fn shows(&self, id: NamespaceId) -> bool {
        self.namespaces.as_ref().is_none_or(|shown| shown.contains(&id))
    }

    /// Whether the host may use the admin command.
    pub(super) fn allows(&self, opcode: AdminOpcode) -> bool {
        self.is_whole() || !ALTERING.contains(&opcode)
    }
}

/// The admin commands that alter what other hosts share.
const ALTERING: [AdminOpcode; 7] = [
    AdminOpcode::FirmwareCommit,
    AdminOpcode::FirmwareImageDownload,
    // There is one self-test at a time, which reads the namespaces of all hosts.
    AdminOpcode::DeviceSelfTest,
    AdminOpcode::Sanitize,
    AdminOpcode::NamespaceManagement,
    AdminOpcode::NamespaceAttachment,
    AdminOpcode::FormatNvm,
];
