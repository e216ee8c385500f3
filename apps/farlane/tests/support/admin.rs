//! An administrator of a far SSD, for admin commands that `farlane` itself does not offer.

use engine::{Buffer, Nanos};
use live::client::{Controller, Options, Url};
use nvme::host::Data;
use nvme::wire::{AdminOpcode, NamespaceId, SubmissionQueueEntry};

/// How long anything may take.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// A host that is attached to a far end.
pub(crate) struct Admin {
    controller: Controller,
}

impl Admin {
    /// Attaches a host to the far end at `address`; none if the far end has gone.
    pub(crate) fn attach(address: &str) -> Option<Self> {
        let url: Url = format!("tcp://{address}").parse().ok()?;
        let options = Options { spin: Nanos::from_micros(100), ..Options::new("host") };
        let mut controller = Controller::open(&url.resolve().ok()?, &options).ok()?;
        controller.wait_ready(PATIENCE).ok()?;
        Some(Self { controller })
    }

    /// Executes an admin command that sends `data`. Returns DW0 of its completion, or why it
    /// failed.
    pub(crate) fn send(&mut self, entry: SubmissionQueueEntry, data: &[u8]) -> Result<u32, String> {
        let data = if data.is_empty() { Data::None } else { Data::Write(Buffer::copy_from_slice(data)) };
        let completed = self.controller.admin(entry, data);
        completed.map(|completed| completed.dw0).map_err(|error| error.to_string())
    }

    /// Creates a namespace with `blocks` blocks of LBA format `format`. Returns its identifier.
    pub(crate) fn create(&mut self, blocks: u64, format: u8) -> Result<u32, String> {
        let mut wanted = [0; 4096];
        wanted[0..8].copy_from_slice(&blocks.to_le_bytes());
        wanted[8..16].copy_from_slice(&blocks.to_le_bytes());
        wanted[26] = format;
        self.send(entry(AdminOpcode::NamespaceManagement, 0, 0), &wanted)
    }

    /// Deletes a namespace.
    pub(crate) fn delete(&mut self, namespace: u32) -> Result<u32, String> {
        self.send(entry(AdminOpcode::NamespaceManagement, namespace, 1), &[])
    }

    /// Attaches a namespace to the only controller.
    pub(crate) fn attach_namespace(&mut self, namespace: u32) -> Result<u32, String> {
        let mut list = [0; 4096];
        list[..4].copy_from_slice(&[1, 0, 1, 0]);
        self.send(entry(AdminOpcode::NamespaceAttachment, namespace, 0), &list)
    }

    /// Identifiers of all namespaces, attached or not.
    pub(crate) fn allocated(&mut self) -> Vec<u32> {
        let page = self.read(entry(AdminOpcode::Identify, 0, 0x10));
        let ids = page.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap()));
        ids.take_while(|id| *id != 0).collect()
    }

    /// The 4 KiB of data that an admin command returns.
    pub(crate) fn read(&mut self, entry: SubmissionQueueEntry) -> Vec<u8> {
        self.controller.admin(entry, Data::Read(4096)).unwrap().data.to_vec()
    }

    /// Ends the session in an orderly way.
    pub(crate) fn close(self) {
        self.controller.close().unwrap();
    }
}

/// An admin command for a namespace, with `cdw10`.
pub(crate) fn entry(opcode: AdminOpcode, namespace: u32, cdw10: u32) -> SubmissionQueueEntry {
    let namespace = NamespaceId(namespace);
    SubmissionQueueEntry { opcode: opcode.into(), namespace, cdw10, ..SubmissionQueueEntry::default() }
}
