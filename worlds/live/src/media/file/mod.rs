//! A file or a block device as a medium.

pub(crate) mod kernel;
mod lane;
mod open;
mod resize;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::{Buffer, Pool};
use nvme::media::{Completion, IoId, MediaError, Operation, Request};
use rustix::fs::FallocateFlags;
use tracing::warn;

use kernel::{CALLS_MAX, Call, Kernel};
pub use lane::FileForLane;
use open::{MEMORY_ALIGNMENT, Opened};
pub use open::{Note, OpenCause, OpenError, Options};

/// The longest piece of a read, in bytes: one buffer holds one piece.
const READ_PIECE_MAX: u64 = 256 << 10;
/// The longest piece, in bytes, of a write whose data must be copied to an aligned address.
const COPY_PIECE_MAX: usize = 256 << 10;
/// The longest piece of zeroes, in bytes, that is written where the file system can't make holes.
const ZERO_PIECE_MAX: u64 = 1 << 20;
/// The most bytes of read buffers under way at once; more reads wait their turn.
const READ_BYTES_MAX: u64 = 16 << 20;
/// The most requests under way or waiting at once: every entry of every queue of a controller.
/// While the medium does not answer, hosts may give up their commands and send more: these fail.
const REQUESTS_MAX: usize = 64 * 4096;
/// The most ended calls that one `reap` looks at, so that no medium can keep the reactor to itself.
const REAP_MAX: usize = 256;
/// The most bytes that the pool of buffers keeps for reuse.
const POOL_RETAIN: usize = 8 << 20;
/// How often in a row a call is repeated because the kernel asks for that.
const REPEATS_MAX: u16 = 1_000;

/// A file or a block device that holds a namespace.
///
/// `submit` takes a request, and `reap` hands over the results of requests. Dropping the medium
/// waits for the calls that the kernel has under way. Data that were not flushed may then be lost,
/// as with any disk.
pub struct FileMedium {
    path: PathBuf,
    kernel: Kernel,
    pool: Pool,
    size: u64,
    options: Options,
    regular: bool,
    /// The alignment in bytes of transfers that bypass the page cache; `None` when they don't
    /// bypass it.
    direct: Option<usize>,
    notes: Vec<Note>,
    /// The requests under way, by the name of their current call. There are as many places as there
    /// were calls at once, at most [`CALLS_MAX`].
    jobs: Vec<Option<Job>>,
    /// Names that no call has at present.
    free: Vec<u32>,
    /// Requests that wait for a free name or for memory.
    waiting: VecDeque<Request>,
    /// Requests that have ended without a call.
    ended: VecDeque<(IoId, Result<(), MediaError>)>,
    /// Bytes of the read buffers under way.
    reading: u64,
    /// How deallocated blocks become zeroes: where space is reserved, none of it is given back.
    freeing: Zeroing,
    /// Whether the file system can punch holes, and zero ranges in place, as far as we know.
    can_punch: bool,
    can_zero: bool,
    /// The zeroes that are written where the file system can't make holes, once they were needed.
    zeroes: Option<Buffer>,
}

/// A request under way. A request has one call at a time.
struct Job {
    id: IoId,
    begin: u64,
    /// The offset of the first byte that is not done.
    at: u64,
    left: u64,
    repeats: u16,
    goal: Goal,
}

enum Goal {
    Read,
    Write { data: Buffer, durable: bool },
    Zero { how: Zeroing, durable: bool },
    Sync,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeroing {
    /// Punch a hole, which gives the space back.
    Punch,
    /// Zero the range in place, which keeps the space.
    InPlace,
    /// Write zeroes, which any file system can do.
    ByWriting,
}

/// Opens the file or block device at `path` for this export alone: a second export of it
/// is refused.
///
/// # Errors
/// When the path can't serve as a medium, for one of the reasons of [`OpenCause`].
pub fn open(path: &Path, options: &Options) -> Result<FileMedium, OpenError> {
    survive_size_limits();
    open::open(path, options).map(|opened| FileMedium::new(path, opened, options))
}

/// Makes a write beyond the size that this process may give a file (`ulimit -f`) fail instead of
/// ending the process.
pub(crate) fn survive_size_limits() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // A flag that no code reads replaces the signal's deadly default. If the handler can't be
    // installed, every write within the limit still works.
    ONCE.call_once(|| drop(signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)))));
}

impl FileMedium {
    fn new(path: &Path, opened: Opened, options: &Options) -> Self {
        let Opened { file, size, regular, direct, mut notes } = opened;
        let (kernel, refused) = Kernel::new(Arc::new(file), options.ring);
        notes.extend(refused.map(|error| Note::OneAtATime(error.to_string())));
        Self {
            path: path.to_owned(),
            kernel,
            pool: Pool::new(POOL_RETAIN),
            size,
            options: *options,
            regular,
            direct,
            notes,
            jobs: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            reading: 0,
            freeing: if options.reserve && regular { Zeroing::InPlace } else { Zeroing::Punch },
            can_punch: true,
            can_zero: true,
            zeroes: None,
        }
    }

    /// The size in bytes, a multiple of the block size.
    pub const fn size(&self) -> u64 {
        self.size
    }
    /// The size of a block in bytes.
    pub const fn block(&self) -> u32 {
        self.options.block
    }
    /// Whether every change is refused.
    pub const fn readonly(&self) -> bool {
        self.options.readonly
    }
    /// In which ways the medium is served less well than it could be; empty when there are none.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
    /// Waits until everything written is durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.options.readonly { Ok(()) } else { self.kernel.file().sync_data() }
    }
    /// The number of requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.jobs.len() - self.free.len() + self.waiting.len() + self.ended.len()
    }
    /// The descriptor that becomes readable when `reap` has something to do. `None` when every call
    /// ends at once, so that there is nothing to wait for after a `reap` that did nothing.
    pub fn poll_fd(&self) -> Option<RawFd> {
        self.kernel.poll_fd()
    }

    /// Takes a request. The kernel may not see it before the next `reap`, so that several requests
    /// cost one system call. With too many requests under way, another one fails.
    pub fn submit(&mut self, request: Request) {
        if self.in_flight() >= REQUESTS_MAX {
            self.ended.push_back((request.id, Err(MediaError::Unreachable)));
        } else if let Some(result) = self.refusal(&request.operation) {
            self.ended.push_back((request.id, result));
        } else if self.waiting.is_empty() && self.has_room(&request.operation) {
            self.begin(request);
        } else {
            self.waiting.push_back(request);
        }
    }

    /// Hands over the results of requests, without waiting. Returns how much was done; 0 means that
    /// there is nothing to do until [`FileMedium::poll_fd`] is readable.
    ///
    /// # Errors
    /// When io_uring itself fails, which a healthy kernel does not.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> io::Result<usize> {
        self.kernel.submit()?;
        let mut done = 0;
        while let Some((id, result)) = self.ended.pop_front() {
            out(Completion::Done { id, result });
            done += 1;
        }
        for _ in 0..REAP_MAX {
            let Some((name, call, result)) = self.kernel.next_ended() else { break };
            self.on_ended(name, call, result, out);
            done += 1;
        }
        while self.waiting.front().is_some_and(|request| self.has_room(&request.operation)) {
            let request = self.waiting.pop_front().expect("there is a front");
            self.begin(request);
            done += 1;
        }
        self.kernel.submit()?;
        Ok(done)
    }

    /// The answer to an operation for which nothing needs to be done, be it an error or success.
    fn refusal(&self, operation: &Operation) -> Option<Result<(), MediaError>> {
        let (offset, length, changes) = match operation {
            Operation::Read { offset, length } => (*offset, u64::from(*length), false),
            Operation::Write { offset, data, .. } => (*offset, length_u64(data.len()), true),
            Operation::WriteZeroes { offset, length, .. } => (*offset, *length, true),
            Operation::Deallocate { offset, length } => (*offset, *length, true),
            // Nothing was ever written to a read-only medium.
            Operation::Flush => return self.options.readonly.then_some(Ok(())),
        };
        if changes && self.options.readonly {
            return Some(Err(MediaError::ReadOnly));
        }
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        if !inside {
            return Some(Err(MediaError::OutOfRange));
        }
        (length == 0).then_some(Ok(()))
    }

    fn has_room(&self, operation: &Operation) -> bool {
        let memory = match operation {
            Operation::Read { length, .. } => {
                self.reading + u64::from(*length).min(READ_PIECE_MAX) <= READ_BYTES_MAX
            }
            _ => true,
        };
        memory && (!self.free.is_empty() || self.jobs.len() < CALLS_MAX as usize)
    }

    fn begin(&mut self, request: Request) {
        self.leave_direct_if_unaligned(&request.operation);
        let (begin, left, goal) = match request.operation {
            Operation::Read { offset, length } => {
                self.reading += u64::from(length).min(READ_PIECE_MAX);
                (offset, u64::from(length), Goal::Read)
            }
            Operation::Write { offset, data, durable } => {
                (offset, length_u64(data.len()), Goal::Write { data, durable })
            }
            Operation::Flush => (0, 0, Goal::Sync),
            Operation::WriteZeroes { offset, length, deallocate, durable } => {
                let how = if deallocate { self.freeing } else { Zeroing::InPlace };
                (offset, length, Goal::Zero { how, durable })
            }
            Operation::Deallocate { offset, length } => {
                (offset, length, Goal::Zero { how: self.freeing, durable: false })
            }
        };
        let name = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            u32::try_from(self.jobs.len() - 1).expect("room was asked for")
        });
        let mut job = Job { id: request.id, begin, at: begin, left, repeats: 0, goal };
        let call = self.next_call(&mut job).expect("a request begins with a call");
        self.jobs[name as usize] = Some(job);
        self.kernel.start(name, call);
    }

    /// The zeroes to write. Most media never need them, and a target may have thousands of media.
    fn zeroes(&mut self) -> &Buffer {
        let Self { zeroes, pool, .. } = self;
        zeroes.get_or_insert_with(|| {
            let mut zeroes = pool.take(memory_length(ZERO_PIECE_MAX));
            zeroes.fill(0);
            zeroes.freeze()
        })
    }

    /// Goes back to the page cache at the first request that direct transfers can't do: hosts may
    /// format a namespace of blocks of 4096 bytes to smaller units.
    fn leave_direct_if_unaligned(&mut self, operation: &Operation) {
        match operation {
            Operation::Read { offset, length } => self.leave_direct_unless_aligned(*offset, (*length).into()),
            Operation::Write { offset, data, .. } => {
                self.leave_direct_unless_aligned(*offset, length_u64(data.len()));
            }
            Operation::WriteZeroes { offset, length, .. } => {
                self.leave_direct_unless_aligned(*offset, *length);
            }
            // Holes need no alignment. Where none can be made, a write of zeroes asks again.
            Operation::Flush | Operation::Deallocate { .. } => {}
        }
    }

    /// Goes back to the page cache if direct transfers can't move these bytes.
    fn leave_direct_unless_aligned(&mut self, offset: u64, length: u64) {
        let Some(alignment) = self.direct.map(|alignment| alignment as u64) else { return };
        if !offset.is_multiple_of(alignment) || !length.is_multiple_of(alignment) {
            // Without the change, the request fails as the kernel sees fit.
            let _ = open::leave_direct(self.kernel.file());
            self.direct = None;
        }
    }

    /// The next call towards the job's goal; `None` when the goal is reached.
    fn next_call(&mut self, job: &mut Job) -> Option<Call> {
        let offset = job.at;
        match &mut job.goal {
            // The job ends with this call.
            Goal::Sync => Some(Call::Sync),
            Goal::Zero { how, .. } if job.left > 0 => {
                if *how == Zeroing::InPlace && !self.can_zero || *how == Zeroing::Punch && !self.can_punch {
                    *how = Zeroing::ByWriting;
                }
                let mode = match how {
                    Zeroing::Punch => FallocateFlags::PUNCH_HOLE,
                    Zeroing::InPlace => FallocateFlags::ZERO_RANGE,
                    Zeroing::ByWriting => {
                        self.leave_direct_unless_aligned(offset, job.left);
                        let length = memory_length(job.left.min(ZERO_PIECE_MAX));
                        return Some(Call::Write {
                            offset,
                            data: self.zeroes().slice(0..length),
                            durable: false,
                        });
                    }
                };
                Some(Call::Allocate { offset, length: job.left, mode: mode | FallocateFlags::KEEP_SIZE })
            }
            Goal::Zero { durable: true, .. } => {
                job.goal = Goal::Sync;
                Some(Call::Sync)
            }
            Goal::Zero { .. } => None,
            _ if job.left == 0 => None,
            Goal::Read => {
                let length = memory_length(job.left.min(READ_PIECE_MAX));
                // A pool aligns blocks of a page or more.
                let mut buffer = self.pool.take(length.max(MEMORY_ALIGNMENT));
                buffer.truncate(length);
                Some(Call::Read { offset, buffer, filled: 0 })
            }
            Goal::Write { data, durable } => {
                let mut rest = data.slice(data.len() - memory_length(job.left)..data.len());
                if self.direct.is_some() && rest.as_ptr().align_offset(MEMORY_ALIGNMENT) != 0 {
                    let length = rest.len().min(COPY_PIECE_MAX);
                    let mut copy = self.pool.take(length.max(MEMORY_ALIGNMENT));
                    copy.truncate(length);
                    copy.copy_from_slice(&rest[..length]);
                    rest = self.pool.seal(copy);
                }
                Some(Call::Write { offset, data: rest, durable: *durable })
            }
        }
    }

    fn on_ended(
        &mut self,
        name: u32,
        call: Call,
        result: io::Result<usize>,
        out: &mut impl FnMut(Completion),
    ) {
        let mut job = self.jobs[name as usize].take().expect("a call belongs to a job");
        let step = match result {
            Ok(moved) => self.on_moved(&mut job, call, moved, out),
            Err(error) => self.on_failed(&mut job, call, &error),
        };
        let result = match step {
            Step::Repeat(call) => return self.go_on(name, job, call),
            Step::Next => match self.next_call(&mut job) {
                Some(call) => return self.go_on(name, job, call),
                None => Ok(()),
            },
            Step::End(result) => result,
        };
        if matches!(job.goal, Goal::Read) {
            self.reading -= (job.at - job.begin + job.left).min(READ_PIECE_MAX);
        }
        self.free.push(name);
        out(Completion::Done { id: job.id, result });
    }

    fn go_on(&mut self, name: u32, job: Job, call: Call) {
        self.jobs[name as usize] = Some(job);
        self.kernel.start(name, call);
    }

    /// Takes note that a call has moved `moved` bytes. Fewer bytes than asked for are no error
    /// by themselves.
    fn on_moved(
        &mut self,
        job: &mut Job,
        call: Call,
        moved: usize,
        out: &mut impl FnMut(Completion),
    ) -> Step {
        match call {
            Call::Sync if self.is_truncated(self.size) => Step::End(Err(MediaError::OutOfRange)),
            Call::Sync => Step::End(Ok(())),
            Call::Fill { .. } => unreachable!("a medium reads into buffers"),
            Call::Allocate { .. } => {
                job.advance(job.left);
                Step::Next
            }
            Call::Write { data, .. } => match self.whole(moved, data.len()) {
                0 => Step::End(Err(MediaError::Write)),
                moved => {
                    job.advance(length_u64(moved));
                    Step::Next
                }
            },
            Call::Read { offset, buffer, filled } => {
                let missing = buffer.len() - filled;
                if moved >= missing {
                    let data = self.pool.seal(buffer);
                    let length = length_u64(data.len());
                    let offset = u32::try_from(job.at - job.begin).expect("a read's length is 32 bits");
                    out(Completion::Data { id: job.id, offset, data });
                    job.advance(length);
                    return Step::Next;
                }
                match self.whole(moved, missing) {
                    _ if self.is_truncated(offset + length_u64(missing)) => {
                        Step::End(Err(MediaError::OutOfRange))
                    }
                    0 => Step::End(Err(MediaError::Read)),
                    moved => Step::Repeat(Call::Read {
                        offset: offset + length_u64(moved),
                        buffer,
                        filled: filled + moved,
                    }),
                }
            }
        }
    }

    /// A call has failed. Chooses between trying again, another way, and ending the request with
    /// the error as a medium reports it.
    fn on_failed(&mut self, job: &mut Job, call: Call, error: &io::Error) -> Step {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        if matches!(errno, libc::EAGAIN | libc::EINTR) && job.repeats < REPEATS_MAX {
            job.repeats += 1;
            return Step::Repeat(call);
        }
        let unsupported = matches!(errno, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::ENODEV);
        let meaning = match (&call, errno) {
            (Call::Allocate { mode, .. }, _) if unsupported => {
                if let Goal::Zero { how, .. } = &mut job.goal {
                    *how = Zeroing::ByWriting;
                }
                match mode.contains(FallocateFlags::PUNCH_HOLE) {
                    // It is about this range: a block device takes whole blocks of its own only.
                    _ if errno == libc::EINVAL => {}
                    true => self.can_punch = false,
                    false => self.can_zero = false,
                }
                return Step::Next;
            }
            (Call::Read { offset, buffer, .. }, _) => {
                match self.is_truncated(offset + length_u64(buffer.len())) {
                    true => MediaError::OutOfRange,
                    false => MediaError::Read,
                }
            }
            (_, libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                let path = self.path.display();
                warn!(
                    "{path}: there is no space left for a write, which fails with Capacity Exceeded; make room"
                );
                MediaError::NoSpace
            }
            (_, libc::EROFS | libc::EPERM | libc::EBADF) => MediaError::ReadOnly,
            _ => MediaError::Write,
        };
        Step::End(Err(meaning))
    }

    /// How many bytes of a short transfer are kept: a direct transfer can only go on at an
    /// aligned offset.
    fn whole(&self, moved: usize, asked: usize) -> usize {
        if moved >= asked {
            return asked;
        }
        self.direct.map_or(moved, |alignment| moved - moved % alignment)
    }

    /// Whether the file now ends before `end`.
    fn is_truncated(&self, end: u64) -> bool {
        self.regular && self.kernel.file().metadata().is_ok_and(|metadata| metadata.len() < end)
    }
}

impl Job {
    fn advance(&mut self, bytes: u64) {
        self.at += bytes;
        self.left -= bytes;
        self.repeats = 0;
    }
}

/// The next step after a call that has ended.
enum Step {
    /// This call follows, again or for the rest of its bytes.
    Repeat(Call),
    /// The next call towards the goal follows, if the goal is not reached.
    Next,
    /// The request has ended.
    End(Result<(), MediaError>),
}

fn length_u64(length: usize) -> u64 {
    u64::try_from(length).expect("memory is smaller than 2^64 bytes")
}

/// Converts the length of a piece, which its limit keeps within memory.
fn memory_length(length: u64) -> usize {
    usize::try_from(length).expect("a piece fits memory")
}
