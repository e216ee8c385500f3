//! The way to a subsystem of NVMe over Fabrics.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use engine::Nanos;
use machine::initiator::Output;
use nvme::host::{Data, Origin};
use nvme::wire::SubmissionQueueEntry;
use nvme_fabrics::host::multipath::{PathIndex, Request, SubmitError};

use super::OpenError;
use super::way::{Device, Ended, Happened};
use crate::drivers::fabrics::initiator::{AttachError, Attachment, Options};
use crate::media::commands::{Abilities, Refused};
use crate::reactor::Turn;

/// An attached subsystem, through which the medium submits its commands.
pub(super) struct Fabrics {
    attachment: Attachment,
    /// The I/O queue of the latest command; the queues take turns.
    queue: u16,
    /// A connection was made since digests were last checked.
    is_new: bool,
    /// The owner was told that digests are missing.
    is_told: bool,
}

impl Fabrics {
    /// Begins to connect to a subsystem by `paths`.
    pub(super) fn begin(paths: Vec<Vec<SocketAddr>>, options: &Options) -> Result<Self, OpenError> {
        let attachment = Attachment::connect(paths, options).map_err(OpenError::Fabrics)?;
        Ok(Self { attachment, queue: 0, is_new: true, is_told: false })
    }

    /// Waits until the subsystem takes commands.
    pub(super) fn wait(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        self.attachment.wait_ready(timeout)
    }

    pub(super) fn poll_fd(&self) -> RawFd {
        self.attachment.poll_fd()
    }

    pub(super) fn wake_in(&self) -> Option<Nanos> {
        self.attachment.wake_in()
    }

    pub(super) fn step(&mut self) -> io::Result<bool> {
        Ok(self.attachment.step()? != Turn::Idle)
    }

    /// A note on the digests that a path lacks, returned only once.
    fn missing_digests(&mut self) -> Option<Happened> {
        self.is_new = false;
        let initiator = self.attachment.initiator();
        let paths = (0..).map(PathIndex).take(initiator.multipath().paths().count());
        let mut missing = paths.filter_map(|path| initiator.missing_digests(path));
        let what = missing.next().filter(|_| !self.is_told)?;
        self.is_told = true;
        Some(Happened::Note(format!("has no {what}: a bit that flips in transit may go unnoticed")))
    }

    pub(super) fn next(&mut self) -> Option<Happened> {
        if self.is_new
            && let Some(note) = self.missing_digests()
        {
            return Some(note);
        }
        loop {
            return Some(match self.attachment.poll_event()? {
                Output::Completed(completed) => {
                    let status = completed.entry.status();
                    let result = if status.is_success() { Ok(completed.data) } else { Err(status) };
                    let piece = u32::try_from(completed.cookie).unwrap_or(u32::MAX);
                    Happened::Ended(Ended { piece, result, is_unheard: completed.origin == Origin::Host })
                }
                Output::PathUp(_) => {
                    self.is_new = true;
                    Happened::Here
                }
                Output::PathLost(_, why) if !self.attachment.initiator().multipath().is_live() => {
                    Happened::Away(why.to_string())
                }
                Output::PathEnded(_, Some(failure)) if self.attachment.initiator().multipath().is_over() => {
                    Happened::Lost(failure.to_string())
                }
                _ => continue,
            });
        }
    }

    pub(super) fn submit(
        &mut self,
        piece: u32,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<(), Refused> {
        let queues = self.attachment.identity().map_or(1, |identity| identity.io_queues.max(1));
        self.queue = (self.queue + 1) % queues;
        let request = Request { cookie: u64::from(piece), entry, data, queue: self.queue };
        let now = self.attachment.now();
        self.attachment.submit(now, request).map_err(|error| match error {
            SubmitError::Busy => Refused::Busy,
            SubmitError::NoPath => Refused::Lost,
            SubmitError::Length { .. } => Refused::Impossible,
        })
    }

    pub(super) fn device(&self) -> Option<Device> {
        let identity = self.attachment.identity()?;
        let controller = &identity.controller;
        Some(Device {
            serial: controller.serial_number.to_string(),
            namespaces: identity.namespaces.clone(),
            abilities: Abilities::new(controller, identity.transfer_bytes_max),
        })
    }
}
