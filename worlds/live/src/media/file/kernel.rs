//! Calls on one file that the kernel carries out while this thread goes on, and the buffers that
//! the kernel works on meanwhile.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use engine::{Buffer, BufferMut};
use io_uring::{IoUring, opcode, types};
use rustix::fs::FallocateFlags;

/// The most calls under way at once.
pub(crate) const CALLS_MAX: u32 = 256;
/// The most bytes of a single read or write, below every kernel's own limit.
const CALL_BYTES_MAX: usize = 1 << 30;

/// One system call, with the buffers that it works on.
#[derive(Debug)]
pub(crate) enum Call {
    /// Reads into the part of `buffer` behind the first `filled` bytes, which are there already.
    Read { offset: u64, buffer: BufferMut, filled: usize },
    /// Reads into `length` bytes of `block` from byte `start` on. Other threads may get the
    /// block afterwards.
    Fill { offset: u64, block: Vec<u8>, start: usize, length: usize },
    /// Writes `data`. If `durable`, the data are durable before the call ends.
    Write { offset: u64, data: Buffer, durable: bool },
    /// Changes the space behind a range, as the mode says.
    Allocate { offset: u64, length: u64, mode: FallocateFlags },
    /// Makes everything that was written before durable.
    Sync,
}

/// A call that has ended: its name, the call with its buffers, and the number of bytes moved.
pub(crate) type Ended = (u32, Call, io::Result<usize>);

/// A file and the calls under way on it.
///
/// The kernel works on the buffers of a call from `start` until `next_ended` hands out the call. In
/// between, this structure owns the buffers and no other code touches them.
pub(crate) struct Kernel {
    /// `None` when calls are made one at a time, each within `start`.
    ring: Option<ManuallyDrop<IoUring>>,
    file: Arc<File>,
    /// The calls under way, by name.
    calls: Vec<Option<Call>>,
    /// The number of calls pushed to the ring that the kernel does not know yet.
    unsubmitted: usize,
    /// The number of calls pushed to the ring whose end has not been seen.
    under_way: usize,
    /// Calls that have ended without a ring, with their results.
    ended: VecDeque<(u32, io::Result<usize>)>,
}

impl Kernel {
    /// Prepares calls on `file`: many at a time if `ring` asks for that and the kernel has a ring,
    /// otherwise one at a time. Returns the error when a ring was refused.
    pub(crate) fn new(file: Arc<File>, ring: bool) -> (Self, Option<io::Error>) {
        match ring.then(|| set_up(IoUring::builder())) {
            None => (Self::over(file, None), None),
            Some(Ok(ring)) => (Self::over(file, Some(ring)), None),
            Some(Err(error)) => (Self::over(file, None), Some(error)),
        }
    }

    /// Prepares calls on `file`, many at a time where the kernel has a ring, for a thread that
    /// makes system calls all the time, or sleeps: the kernel does not interrupt it for each call
    /// that has ended.
    pub(crate) fn cooperative(file: File) -> Self {
        let file = Arc::new(file);
        let mut builder = IoUring::builder();
        builder.setup_coop_taskrun();
        // Kernels before 5.19 do not know it.
        let ring = set_up(builder).or_else(|_| set_up(IoUring::builder()));
        Self::over(file, ring.ok())
    }

    fn over(file: Arc<File>, ring: Option<IoUring>) -> Self {
        let ring = ring.map(ManuallyDrop::new);
        Self { ring, file, calls: Vec::new(), unsubmitted: 0, under_way: 0, ended: VecDeque::new() }
    }

    pub(crate) const fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// How many calls were started that the kernel does not know yet.
    pub(crate) const fn unsubmitted(&self) -> usize {
        self.unsubmitted
    }

    /// The descriptor that becomes readable when a call has ended; `None` when every call ends
    /// within `start`.
    pub(crate) fn poll_fd(&self) -> Option<RawFd> {
        self.ring.as_ref().map(|ring| ring.as_raw_fd())
    }

    /// Starts `call` under the free name `name`. With a ring the kernel sees the call in `submit`.
    ///
    /// # Panics
    /// When a call of that name is under way.
    pub(crate) fn start(&mut self, name: u32, call: Call) {
        let index = name as usize;
        if self.calls.len() <= index {
            // Calls are moved: the kernel knows the places of their bytes, not theirs.
            self.calls.resize_with(index + 1, || None);
        }
        let slot = &mut self.calls[index];
        assert!(slot.is_none(), "call {name} is under way already");
        let call = slot.insert(call);
        let Some(ring) = &mut self.ring else {
            let result = carry_out(&self.file, call);
            self.ended.push_back((name, result));
            return;
        };
        let entry = entry_of(types::Fd(self.file.as_raw_fd()), call).user_data(u64::from(name));
        // SAFETY: the buffers that the entry points to belong to the call, which stays in `calls`,
        // untouched, until its completion has been seen; `drop` waits for all completions. Moving a
        // `Buffer`, `BufferMut` or `Vec` moves a pointer to the bytes, not the bytes. The file is
        // open for as long as the ring is there.
        let pushed = unsafe { ring.submission().push(&entry) };
        pushed.expect("the submission queue has an entry for every name");
        self.unsubmitted += 1;
        self.under_way += 1;
    }

    /// Submits all calls started since the last time to the kernel, with one system call, or none
    /// if there are no such calls.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        if self.unsubmitted == 0 {
            return Ok(());
        }
        let Some(ring) = &self.ring else { return Ok(()) };
        match ring.submit() {
            Ok(count) => self.unsubmitted = self.unsubmitted.saturating_sub(count),
            // The entries stay in the queue; the next submission tries again.
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The next call that has ended, with its buffers.
    pub(crate) fn next_ended(&mut self) -> Option<Ended> {
        let (name, result) = match &mut self.ring {
            None => self.ended.pop_front()?,
            Some(ring) => {
                let entry = ring.completion().next()?;
                self.under_way -= 1;
                let result = usize::try_from(entry.result())
                    .map_err(|_| io::Error::from_raw_os_error(entry.result().saturating_neg()));
                (u32::try_from(entry.user_data()).expect("names are 32 bits"), result)
            }
        };
        let call = self.calls[name as usize].take().expect("a call ends once");
        Some((name, call, result))
    }
}

impl Kernel {
    /// Waits until every call that was started has ended, and the kernel has let go of every
    /// buffer. No call may be started any more.
    pub(crate) fn finish(&mut self) {
        let Some(mut ring) = self.ring.take() else { return };
        while self.under_way > 0 {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(_) => {
                    // The kernel may still write to the buffers: never free them or the ring.
                    std::mem::forget(std::mem::take(&mut self.calls));
                    return;
                }
            }
            self.under_way -= ring.completion().count();
        }
        drop(ManuallyDrop::into_inner(ring));
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Whether the reason for a ring's refusal goes away by itself.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// Sets up a ring, if the kernel has one with every operation that we use.
///
/// The file is not registered with the ring. The kernel takes a ring apart some time after its
/// process has ended, up to a minute later, and a registered file would keep its lock until then.
/// An unregistered file is kept only by the calls under way, for which the lock is to wait.
fn set_up(builder: io_uring::Builder) -> io::Result<IoUring> {
    let ring = builder.build(CALLS_MAX)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
    if !needed.into_iter().all(|code| probe.is_supported(code)) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(ring)
}

fn entry_of(file: types::Fd, call: &mut Call) -> io_uring::squeue::Entry {
    match call {
        Call::Read { offset, buffer, filled } => {
            let rest = &mut buffer[*filled..];
            opcode::Read::new(file, rest.as_mut_ptr(), call_length(rest.len())).offset(*offset).build()
        }
        Call::Fill { offset, block, start, length } => {
            let place = &mut block[*start..*start + *length];
            opcode::Read::new(file, place.as_mut_ptr(), call_length(place.len())).offset(*offset).build()
        }
        Call::Write { offset, data, durable } => {
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            opcode::Write::new(file, data.as_ptr(), call_length(data.len()))
                .offset(*offset)
                .rw_flags(flags)
                .build()
        }
        Call::Allocate { offset, length, mode } => {
            opcode::Fallocate::new(file, *length).offset(*offset).mode(mode.bits().cast_signed()).build()
        }
        Call::Sync => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
    }
}

fn call_length(length: usize) -> u32 {
    u32::try_from(length.min(CALL_BYTES_MAX)).expect("the limit fits 32 bits")
}

/// Makes `call` now and waits for it.
fn carry_out(file: &File, call: &mut Call) -> io::Result<usize> {
    match call {
        Call::Read { offset, buffer, filled } => file.read_at(&mut buffer[*filled..], *offset),
        Call::Fill { offset, block, start, length } => {
            file.read_at(&mut block[*start..*start + *length], *offset)
        }
        Call::Write { offset, data, durable } => {
            let written = file.write_at(data, *offset)?;
            if *durable {
                file.sync_data()?;
            }
            Ok(written)
        }
        Call::Allocate { offset, length, mode } => allocate(file, *offset, *length, *mode).map(|()| 0),
        Call::Sync => file.sync_data().map(|()| 0),
    }
}

/// `fallocate(2)`.
pub(crate) fn allocate(file: &File, offset: u64, length: u64, mode: FallocateFlags) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, mode, offset, length)?)
}
