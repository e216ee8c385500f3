//! The restrictions that an owner sets on the host of a controller.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::rate::Rate;
use crate::wire::{AdminOpcode, NamespaceId};

/// The permissions of the host of a controller.
///
/// A host with restrictions cannot change anything that other hosts share either: no formats,
/// namespaces, firmware, self-tests or sanitize operations, nor the volatile write cache. It gets
/// *Operation Denied*.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// The namespaces that exist for the host; `None` for all.
    pub namespaces: Option<Vec<NamespaceId>>,
    /// Whether the host may only read.
    pub read_only: bool,
    /// The ceiling on the host's rate, which the transport keeps.
    pub rate: Rate,
}

impl Permit {
    /// Whether the host has all permissions, at any rate.
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

/// The admin commands that alter state that other hosts share.
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
