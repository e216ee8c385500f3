//! A device as a thread that serves it has it: queues of requests.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};
use rustix::mm::ProtFlags;

use super::abi::{COMMIT_AND_FETCH, DEPTH_MAX, DESCRIPTION, FETCH, Info, Request, data_position, of_queue};
use super::control::{Error, open};
use crate::sys::pages::Pages;
use crate::sys::volatile;

/// The most commands that are passed to the kernel in one call.
const BATCH_MAX: u32 = 1024;
/// The size of a page.
const PAGE: usize = 4096;

/// The file of a device that this process serves. The kernel lets one process open it, once: the
/// threads that serve the device's queues share it.
#[derive(Clone, Debug)]
pub struct DeviceFile(Arc<File>);

impl DeviceFile {
    /// Opens the file of the device that `info` describes.
    ///
    /// # Errors
    /// When the device can't be opened.
    pub fn open(info: &Info) -> Result<Self, Error> {
        Ok(Self(Arc::new(File::from(open(&format!("/dev/ublkc{}", info.device))?))))
    }
}

/// Queues of a device, which one thread of this process serves.
///
/// The kernel has a command of this thread for each request that it may bring. When a request
/// comes, the command ends; the answer is the next command.
pub struct Device {
    ring: IoUring,
    file: DeviceFile,
    /// The descriptions of the requests of each queue.
    descriptions: Vec<Pages>,
    info: Info,
    queues: Range<u16>,
    /// Commands that the kernel does not know yet.
    waiting: VecDeque<(u32, u32, i32)>,
    /// Commands pushed to the ring since the last submission.
    unsubmitted: usize,
    /// Commands that the kernel has.
    outstanding: usize,
    /// Why a command was refused, the first time.
    refused: Option<io::Error>,
}

impl Device {
    /// Asks the kernel for the requests of these `queues` of the device that `info` describes. They
    /// come when all queues have a server and the device was started
    /// ([`Control::begin_service`](super::Control)). Only this thread may serve these queues.
    ///
    /// # Errors
    /// When the process has no descriptors or memory left.
    pub fn serve(file: &DeviceFile, info: Info, queues: Range<u16>) -> Result<Self, Error> {
        // The kernel may free memory by writing to this device: for this thread's work, it must not
        // wait for that. A process without the right goes on without.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let file = file.clone();
        // Each queue has room for the longest one there can be.
        let room = (usize::from(DEPTH_MAX) * DESCRIPTION).next_multiple_of(PAGE);
        let length = (usize::from(info.depth) * DESCRIPTION).next_multiple_of(PAGE);
        let pages =
            |queue| Pages::of_file(&file.0, (usize::from(queue) * room) as u64, length, ProtFlags::READ);
        let descriptions = queues.clone().map(pages).collect::<io::Result<_>>()?;
        let names = names(&info, &queues);
        let ring =
            IoUring::builder().setup_cqsize(names.next_power_of_two().max(2)).build(names.min(BATCH_MAX))?;
        let waiting = (0..names).map(|name| (FETCH, name, 0)).collect();
        let (unsubmitted, outstanding, refused) = (0, 0, None);
        let mut device =
            Self { ring, file, descriptions, info, queues, waiting, unsubmitted, outstanding, refused };
        device.submit()?;
        Ok(device)
    }

    /// The description of the device.
    pub const fn info(&self) -> &Info {
        &self.info
    }

    /// The most requests under way at once; their names are the numbers below it.
    pub fn names(&self) -> u32 {
        names(&self.info, &self.queues)
    }

    /// The descriptor that becomes readable when a request has come.
    pub fn poll_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Whether no request can come any more, because the device was stopped.
    pub fn is_over(&self) -> bool {
        self.outstanding == 0 && self.waiting.is_empty()
    }

    /// Why the kernel has refused a command, if it has. It is returned once.
    pub fn refusal(&mut self) -> Option<io::Error> {
        self.refused.take()
    }

    /// The next request that has come.
    pub fn next_request(&mut self) -> Option<Request> {
        loop {
            let entry = self.ring.completion().next()?;
            self.outstanding -= 1;
            let name = u32::try_from(entry.user_data()).expect("names are 32 bits");
            match -entry.result() {
                0 => return Some(self.description(name)),
                // The device was stopped, or this server is given up.
                libc::ENODEV | libc::ECANCELED => {}
                error => {
                    self.refused.get_or_insert(io::Error::from_raw_os_error(error));
                }
            }
        }
    }

    fn description(&self, name: u32) -> Request {
        let (queue, tag) = self.place(name);
        let descriptions = &self.descriptions[usize::from(queue - self.queues.start)];
        let place = descriptions.place(usize::from(tag) * DESCRIPTION, DESCRIPTION);
        let mut bytes = [0; DESCRIPTION];
        // SAFETY: the place lies within a mapping that `self` owns, and is only read, here.
        unsafe { volatile::read(place.expect("each tag has a description"), &mut bytes) };
        Request::parse(name, &bytes)
    }

    /// The queue of a request, and its tag there.
    fn place(&self, name: u32) -> (u16, u16) {
        let depth = u32::from(self.info.depth);
        let fits = |number: u32| u16::try_from(number).expect("queues and tags are 16 bits");
        (self.queues.start + fits(name / depth), fits(name % depth))
    }

    /// Reads the data of the write `name` from byte `offset` on.
    ///
    /// # Errors
    /// When the request is under way no more, such as when the device was stopped.
    pub fn get(&self, name: u32, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
        let (queue, tag) = self.place(name);
        self.file.0.read_exact_at(bytes, data_position(queue, tag, offset))
    }

    /// Writes data of the read `name` from byte `offset` on.
    ///
    /// # Errors
    /// When the request is under way no more, such as when the device was stopped.
    pub fn put(&self, name: u32, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let (queue, tag) = self.place(name);
        self.file.0.write_all_at(bytes, data_position(queue, tag, offset))
    }

    /// Answers a request: with the number of bytes, or with an error number. The kernel sees the
    /// answer after [`Device::submit`].
    pub fn answer(&mut self, name: u32, result: Result<u32, i32>) {
        let result = result.map_or_else(|error| -error, |bytes| i32::try_from(bytes).unwrap_or(i32::MAX));
        self.waiting.push_back((COMMIT_AND_FETCH, name, result));
    }

    /// Passes all answers to the kernel.
    ///
    /// # Errors
    /// When io_uring itself fails.
    pub fn submit(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() || self.unsubmitted > 0 {
            while let Some(command) = self.waiting.front().copied() {
                if !self.push(command) {
                    break;
                }
                self.waiting.pop_front();
            }
            match self.ring.submit() {
                Ok(count) => self.unsubmitted = self.unsubmitted.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The next call tries again.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn push(&mut self, (operation, name, result): (u32, u32, i32)) -> bool {
        let (queue, tag) = self.place(name);
        let file = types::Fd(self.file.0.as_raw_fd());
        let command = opcode::UringCmd16::new(file, operation).cmd(of_queue(queue, tag, result));
        let entry = command.build().user_data(name.into());
        // SAFETY: the command names no memory. The file is open as long as the ring.
        let is_pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        self.unsubmitted += usize::from(is_pushed);
        self.outstanding += usize::from(is_pushed);
        is_pushed
    }
}

/// The most requests of these queues under way at once.
fn names(info: &Info, queues: &Range<u16>) -> u32 {
    u32::try_from(queues.len()).expect("queues are 16 bits") * u32::from(info.depth)
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("info", &self.info)
            .field("queues", &self.queues)
            .field("outstanding", &self.outstanding)
            .finish_non_exhaustive()
    }
}
