//! An administrator of a far SSD, for admin commands that `farlane` itself does not offer.

use std::time::Duration;

use engine::Nanos;
use live::drivers::attach::{Attachment, Options};
use machine::near::{self, ControllerIndex, Event};
use nvme::wire::{AdminOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_pcie::host::{Data, QueueId, Submission};

/// How long anything may take.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// A host that is attached to a far end.
pub(crate) struct Admin {
    attachment: Attachment,
    controller: ControllerIndex,
}

impl Admin {
    /// Attaches a host to the far end at `address`; none if the far end has gone.
    pub(crate) fn attach(address: &str) -> Option<Self> {
        let near = near::Config { arena_bytes: 16 << 20, ..near::Config::default() };
        let session = tunnel::session::Config::default();
        let spin = Nanos::from(Duration::from_micros(100));
        let transport = live::carrier::route::Transport::default();
        let options = Options { near, session, transport, spin, timeout: PATIENCE };
        let mut attachment = Attachment::over_tcp(&[address.to_owned()], &options).ok()?;
        let controller = attachment.wait_ready(PATIENCE).ok()?;
        Some(Self { attachment, controller })
    }

    /// Executes an admin command that sends `data`. Returns DW0 of its completion, or why it
    /// failed.
    pub(crate) fn send(&mut self, entry: SubmissionQueueEntry, data: &[u8]) -> Result<u32, String> {
        let near = self.attachment.near_mut();
        let base = near.driver(self.controller).ok_or("no driver")?.data_region().base;
        let place = (!data.is_empty()).then(|| {
            near.memory_mut().slice_mut(base, data.len()).unwrap().copy_from_slice(data);
            Data { address: base, length: u32::try_from(data.len()).unwrap() }
        });
        self.execute(Submission { queue: QueueId::ADMIN, entry, data: place, cookie: 0 })
    }

    fn execute(&mut self, submission: Submission) -> Result<u32, String> {
        let now = self.attachment.now();
        let near = self.attachment.near_mut();
        near.submit(now, self.controller, submission).map_err(|error| error.to_string())?;
        loop {
            match self.attachment.next_event(Some(now + PATIENCE)) {
                Ok(Some(Event::Completed { completed, .. })) if completed.status.is_success() => {
                    return Ok(completed.dw0);
                }
                Ok(Some(Event::Completed { completed, .. })) => return Err(completed.status.to_string()),
                Ok(Some(Event::Failed(failure))) => return Err(failure.to_string()),
                Ok(Some(_)) => {}
                Ok(None) => return Err("no answer".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
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
        let near = self.attachment.near_mut();
        let address = near.driver(self.controller).unwrap().data_region().base;
        let data = Some(Data { address, length: 4096 });
        self.execute(Submission { queue: QueueId::ADMIN, entry, data, cookie: 0 }).unwrap();
        self.attachment.near().memory().slice(address, 4096).unwrap().to_vec()
    }

    /// Ends the session in an orderly way.
    pub(crate) fn close(self) {
        self.attachment.close().unwrap();
    }
}

/// An admin command for a namespace, with `cdw10`.
pub(crate) fn entry(opcode: AdminOpcode, namespace: u32, cdw10: u32) -> SubmissionQueueEntry {
    let namespace = NamespaceId(namespace);
    SubmissionQueueEntry { opcode: opcode.into(), namespace, cdw10, ..SubmissionQueueEntry::default() }
}
