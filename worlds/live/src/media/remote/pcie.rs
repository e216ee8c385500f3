//! The way to a far PCIe device.

use std::io;
use std::os::fd::RawFd;

use engine::{Nanos, Pool};
use machine::near::{self, ControllerIndex, Event};
use nvme::host::Data as Moved;
use nvme::wire::SubmissionQueueEntry;
use nvme_pcie::host::{Data, Origin, QueueId, Submission, SubmitError};

use super::way::{Device, Ended, Happened};
use super::{OpenError, PIECES_MAX, POOL_RETAIN};
use crate::carrier::route::Transport;
use crate::drivers::attach::{AttachError, Attachment, Options};
use crate::media::commands::{Abilities, PIECE_BYTES, Refused};
use crate::reactor::Turn;

/// The only I/O queue pair that is used.
const QUEUE: QueueId = QueueId(1);
/// Bytes of host memory besides those for the data of commands.
const QUEUE_BYTES: u64 = 8 << 20;
/// The longest time between two attempts to reach the far end.
const REDIAL: Nanos = Nanos::from_millis(250);

/// An attached far device, through which the medium submits its commands.
pub(super) struct Pcie {
    attachment: Attachment,
    controller: ControllerIndex,
    pool: Pool,
}

/// How to use a far end, where commands wait at most `hold` while it is absent.
fn options(hold: Nanos, timeout: Nanos) -> Options {
    let data = u64::from(PIECES_MAX) * u64::from(PIECE_BYTES);
    let mut near = near::Config { arena_bytes: QUEUE_BYTES + data, ..near::Config::default() };
    // One entry of a queue always stays free.
    near.driver.queue_entries = (PIECES_MAX + 1).next_power_of_two();
    near.driver.transfer_bytes_max = PIECE_BYTES;
    // A connection is held for the first half, and the place of a lost device for the second half.
    let half = Nanos::new(hold.get() / 2);
    near.driver.hold = half;
    let identity = tunnel::frame::Identity {
        name: format!("farlane process {}", std::process::id()),
        vendor: "Farlane".to_owned(),
        device: "target".to_owned(),
        ..tunnel::frame::Identity::default()
    };
    let mut session = tunnel::session::Config { identity, ..tunnel::session::Config::default() };
    session.redial.1 = REDIAL;
    session.hold = half;
    session.lookahead = true;
    Options { near, session, transport: Transport::default(), spin: Nanos::ZERO, timeout }
}

impl Pcie {
    /// Begins to dial the far end at `authority` (`HOST:PORT`), whose first controller will be
    /// used.
    pub(super) fn begin(authority: &str, hold: Nanos) -> Result<Self, OpenError> {
        let options = options(hold, Nanos::ZERO);
        let attachment =
            Attachment::over_tcp(&[authority.to_owned()], &options).map_err(OpenError::Attach)?;
        Ok(Self { attachment, controller: ControllerIndex(0), pool: Pool::new(POOL_RETAIN) })
    }

    /// Waits until the controller is there.
    pub(super) fn wait(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        self.controller = self.attachment.wait_ready(timeout)?;
        Ok(())
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

    pub(super) fn next(&mut self) -> Option<Happened> {
        use tunnel::Event as Link;
        loop {
            return Some(match self.attachment.poll_event()? {
                Event::Completed { completed, .. } => {
                    let piece = u32::try_from(completed.cookie).unwrap_or(u32::MAX);
                    let result = match completed.status {
                        status if status.is_success() => Ok(engine::Buffer::EMPTY),
                        status => Err(status),
                    };
                    Happened::Ended(Ended { piece, result, is_unheard: completed.origin == Origin::Host })
                }
                Event::Ready { controller } => {
                    self.controller = controller;
                    Happened::Here
                }
                Event::Resetting { reason, .. } => Happened::Away(format!("the device is reset: {reason}")),
                Event::Link { event: event @ (Link::LinkDown { .. } | Link::Interrupted { .. }), .. } => {
                    Happened::Away(event.to_string())
                }
                Event::Link { event: Link::Resumed, .. } => Happened::Here,
                Event::Failed(failure) => Happened::Lost(failure.to_string()),
                _ => continue,
            });
        }
    }

    fn slot(&self, piece: u32) -> Option<u64> {
        let region = self.attachment.near().driver(self.controller)?.data_region();
        let offset = u64::from(piece) * u64::from(PIECE_BYTES);
        (offset + u64::from(PIECE_BYTES) <= region.length).then_some(region.base + offset)
    }

    pub(super) fn submit(
        &mut self,
        piece: u32,
        entry: SubmissionQueueEntry,
        data: &Moved,
    ) -> Result<(), Refused> {
        let address = self.slot(piece).ok_or(Refused::Lost)?;
        let now = self.attachment.now();
        let near = self.attachment.near_mut();
        let length = match data {
            Moved::None => 0,
            Moved::Read(length) => *length,
            Moved::Write(bytes) => {
                let place = near.memory_mut().slice_mut(address, bytes.len());
                place.map_err(|_| Refused::Impossible)?.copy_from_slice(bytes);
                u32::try_from(bytes.len()).map_err(|_| Refused::Impossible)?
            }
        };
        let data = (length > 0).then_some(Data { address, length });
        let submission = Submission { queue: QUEUE, entry, data, cookie: u64::from(piece) };
        match near.submit(now, self.controller, submission) {
            Ok(_) => Ok(()),
            Err(SubmitError::Busy) => Err(Refused::Busy),
            Err(SubmitError::NotReady | SubmitError::NoSuchQueue(_)) => Err(Refused::Lost),
            Err(_) => Err(Refused::Impossible),
        }
    }

    /// The bytes that the command named `piece` has read.
    pub(super) fn read(&mut self, piece: u32, length: u32) -> Option<engine::Buffer> {
        let address = self.slot(piece)?;
        let bytes = self.attachment.near().memory().slice(address, length as usize).ok()?;
        Some(self.pool.copy(bytes))
    }

    pub(super) fn device(&self) -> Option<Device> {
        let driver = self.attachment.near().driver(self.controller)?;
        let identity = driver.identity()?;
        Some(Device {
            serial: identity.controller.serial_number.to_string(),
            namespaces: identity.namespaces.clone(),
            abilities: Abilities::new(&identity.controller, identity.transfer_bytes_max),
        })
    }
}
