//! A queue pair of a device, with its completion queue and its memory (libibverbs).

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;

use super::channel::{CmId, Reads, set_nonblocking};
use super::library::Library;
use super::memory::{Block, Memory, Use};
use super::{abi, checked};

/// Bytes that go into a send request itself: a queue entry of NVMe. `rdma_rxe` and `siw` take as
/// many, and so do cards.
const INLINE_BYTES: u32 = 64;
/// Reads that either end has under way at a time, where the device can do as many. Linux's NVMe
/// host and target ask for as many as the device has.
const READS_MAX: c_int = 16;
/// Completions that are taken at a time.
const BATCH: usize = 16;
const BATCH_MAX: c_int = 16;
const _: () = assert!(BATCH == BATCH_MAX.unsigned_abs() as usize);

/// Requests that a queue pair takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    pub(crate) send: u16,
    pub(crate) receive: u16,
}

/// How a request has ended (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was done.
    Done,
    /// A message was longer than the receive request.
    LocalLength,
    /// The queue pair had ended before.
    Flushed,
    /// The peer has answered without a request.
    BadResponse,
    /// The peer found the request invalid.
    RemoteInvalidRequest,
    /// The peer refuses the key, the address or the right.
    RemoteAccess,
    /// The peer could not do the request.
    RemoteOperation,
    /// The peer does not answer.
    RetryExceeded,
    /// The peer had no receive request.
    ReceiverNotReady,
    /// This end or its device is at fault.
    Local,
}

impl Ended {
    const fn of(status: c_int) -> Self {
        match status {
            abi::STATUS_SUCCESS => Self::Done,
            abi::STATUS_LOCAL_LENGTH => Self::LocalLength,
            abi::STATUS_FLUSHED => Self::Flushed,
            abi::STATUS_BAD_RESPONSE => Self::BadResponse,
            abi::STATUS_REMOTE_INVALID_REQUEST => Self::RemoteInvalidRequest,
            abi::STATUS_REMOTE_ACCESS => Self::RemoteAccess,
            abi::STATUS_REMOTE_OPERATION => Self::RemoteOperation,
            abi::STATUS_RETRY_EXCEEDED => Self::RetryExceeded,
            abi::STATUS_RECEIVER_NOT_READY => Self::ReceiverNotReady,
            _ => Self::Local,
        }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The identifier of the request.
    pub(crate) id: u64,
    pub(crate) ended: Ended,
    /// Bytes of a message that has come.
    pub(crate) length: u32,
    /// The immediate data of such a message.
    pub(crate) immediate: Option<u32>,
    /// The key that such a message has invalidated.
    pub(crate) invalidated: Option<u32>,
}

impl From<abi::WorkCompletion> for Completion {
    fn from(completions: abi::WorkCompletion) -> Self {
        let ended = Ended::of(completions.status);
        let has = |flag| ended == Ended::Done && completions.flags & flag != 0;
        Self {
            id: completions.id,
            ended,
            length: completions.length,
            immediate: has(abi::WC_IMMEDIATE).then(|| u32::from_be(completions.word)),
            invalidated: has(abi::WC_INVALIDATED).then_some(completions.word),
        }
    }
}

/// The operation of a send request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Sends the bytes as a message.
    Send { immediate: Option<u32>, invalidate: Option<u32> },
    /// Writes the bytes to memory of the peer.
    Write { address: u64, key: u32 },
    /// Reads memory of the peer to the place of the bytes.
    Read { address: u64, key: u32 },
}

/// The bytes of a send request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'a> {
    /// At most [`Pair::inline_max`] bytes, which are copied into the request.
    Inline(&'a [u8]),
    /// The first bytes of a block.
    In(&'a Block, u32),
}

/// A queue pair, its connection, and the memory that its device may reach.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The queue pair is the connection's until [`Drop`].
    id: CmId,
    library: &'static Library,
    queue_pair: NonNull<abi::QueuePair>,
    completions: NonNull<abi::CompletionQueue>,
    channel: NonNull<abi::CompletionChannel>,
    domain: NonNull<abi::ProtectionDomain>,
    memory: Option<Memory>,
    calls: Calls,
    inline_max: usize,
    reads: Reads,
    can_invalidate: bool,
    is_iwarp: bool,
}

/// The functions that the device implements itself.
#[derive(Clone, Copy, Debug)]
struct Calls {
    poll: abi::PollCq,
    notify: abi::RequestNotifyCq,
    send: abi::PostSend,
    receive: abi::PostReceive,
}

/// The objects that are made before a queue pair, and removed in the opposite order if something
/// fails.
struct Parts {
    library: &'static Library,
    domain: *mut abi::ProtectionDomain,
    channel: *mut abi::CompletionChannel,
    completions: *mut abi::CompletionQueue,
}

impl Parts {
    /// # Safety
    /// `context` must be an open device's, which stays open.
    unsafe fn make(
        library: &'static Library,
        context: *mut abi::Context,
        entries: c_int,
    ) -> io::Result<Self> {
        let (domain, channel, completions) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let mut parts = Self { library, domain, channel, completions };
        let verbs = &library.verbs;
        // SAFETY: the caller vouches for the device. The objects made so far exist.
        unsafe {
            parts.domain = (verbs.ibv_alloc_pd)(context);
            made(parts.domain)?;
            parts.channel = (verbs.ibv_create_comp_channel)(context);
            set_nonblocking(BorrowedFd::borrow_raw(made(parts.channel)?.as_ref().fd))?;
            parts.completions =
                (verbs.ibv_create_cq)(context, entries, std::ptr::null_mut(), parts.channel, 0);
            made(parts.completions)?;
        }
        Ok(parts)
    }
}

/// The object that a call of the library has made.
fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

impl Drop for Parts {
    fn drop(&mut self) {
        let verbs = &self.library.verbs;
        // SAFETY: each was made by the library and is undone once; nothing uses it any more.
        unsafe {
            if !self.completions.is_null() {
                (verbs.ibv_destroy_cq)(self.completions);
            }
            if !self.channel.is_null() {
                (verbs.ibv_destroy_comp_channel)(self.channel);
            }
            if !self.domain.is_null() {
                (verbs.ibv_dealloc_pd)(self.domain);
            }
        }
    }
}

impl Pair {
    /// Gives the connection `id` a queue pair, on the device that its address has led to.
    ///
    /// # Errors
    /// When the device has no room, or too little for these depths.
    pub(crate) fn new(id: CmId, depths: Depths) -> io::Result<Self> {
        let library = id.library();
        // SAFETY: the identifier exists; the library does not close devices that it has opened.
        let context = made(unsafe { (*id.as_ptr()).verbs })?;
        // SAFETY: the device is open, and fills the attributes in. They have no invalid values.
        let attributes = unsafe {
            let mut attributes = std::mem::zeroed::<abi::DeviceAttributes>();
            checked((library.verbs.ibv_query_device)(context.as_ptr(), &raw mut attributes))?;
            attributes
        };
        let wanted = c_int::from(depths.send.max(depths.receive));
        let entries = c_int::from(depths.send) + c_int::from(depths.receive);
        if attributes.max_qp_wr < wanted || attributes.max_cqe < entries {
            let why = format!(
                "the RDMA device takes {} requests for a queue pair and {} completions; expected {wanted} and {entries}",
                attributes.max_qp_wr, attributes.max_cqe
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the device is open, and stays so.
        let (parts, operations, device) = unsafe {
            let parts = Parts::make(library, context.as_ptr(), entries)?;
            (parts, &context.as_ref().operations, made(context.as_ref().device)?.as_ref())
        };
        let missing = || io::Error::new(io::ErrorKind::Unsupported, "the RDMA device's library lacks a verb");
        let calls = Calls {
            poll: operations.poll_cq.ok_or_else(missing)?,
            notify: operations.request_notify_cq.ok_or_else(missing)?,
            send: operations.post_send.ok_or_else(missing)?,
            receive: operations.post_receive.ok_or_else(missing)?,
        };
        let inline_max = create(&id, &parts, depths)?;
        let reads = |most: c_int| u8::try_from(most.clamp(0, READS_MAX)).unwrap_or(0);
        let (queue_pair, domain) = (made(queue_pair_of(&id))?, made(parts.domain)?);
        let pair = Self {
            library,
            queue_pair,
            completions: made(parts.completions)?,
            channel: made(parts.channel)?,
            domain,
            memory: Some(Memory::new(library, domain)),
            calls,
            inline_max,
            reads: Reads {
                served: reads(attributes.max_qp_rd_atom),
                asked: reads(attributes.max_qp_init_rd_atom),
            },
            can_invalidate: attributes.capabilities & abi::CAN_INVALIDATE != 0,
            is_iwarp: device.transport_type == abi::TRANSPORT_IWARP,
            id,
        };
        // The queue pair undoes them.
        std::mem::forget(parts);
        Ok(pair)
    }

    /// The connection.
    pub(crate) const fn id(&self) -> &CmId {
        &self.id
    }

    /// Whether messages of this end can invalidate a key of the peer.
    pub(crate) const fn can_invalidate(&self) -> bool {
        self.can_invalidate
    }

    /// How many bytes a request carries itself, if it is a message that invalidates a key, or not.
    pub(crate) const fn inline_max(&self, invalidates: bool) -> usize {
        // Linux's siw refuses messages that do both, although it does each.
        if self.is_iwarp && invalidates { 0 } else { self.inline_max }
    }

    /// Whether the device speaks iWARP.
    pub(crate) const fn is_iwarp(&self) -> bool {
        self.is_iwarp
    }

    /// The use of the memory that read data go to: iWARP announces this memory to the peer.
    pub(crate) const fn place_of_reads(&self) -> Use {
        if self.is_iwarp { Use::LentToWrite } else { Use::Own }
    }

    /// Asks the peer for the connection.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn connect(&self, private_data: &[u8]) -> io::Result<()> {
        self.id.connect(private_data, self.reads)
    }

    /// Accepts the connection of a peer that requests these `reads`.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn accept(&self, private_data: &[u8], reads: Reads) -> io::Result<()> {
        let agreed =
            Reads { served: self.reads.served.min(reads.served), asked: self.reads.asked.min(reads.asked) };
        self.id.accept(private_data, agreed)
    }

    /// A block of at least `length` bytes with unspecified contents.
    ///
    /// # Errors
    /// When the queue pair has as much memory as it may have, or the system refuses more.
    pub(crate) fn take(&mut self, purpose: Use, length: usize) -> io::Result<Block> {
        self.memory.as_mut().ok_or(io::ErrorKind::NotConnected)?.take(purpose, length)
    }

    /// Takes a block back.
    pub(crate) fn give(&mut self, block: Block) {
        if let Some(memory) = &mut self.memory {
            memory.give(block);
        }
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// When the device does not take it; nothing has happened then.
    pub(crate) fn post_send(
        &self,
        id: u64,
        work: Work,
        bytes: Bytes<'_>,
        is_signalled: bool,
    ) -> io::Result<()> {
        let mut flags = if is_signalled { abi::SEND_SIGNALLED } else { 0 };
        let mut piece = match bytes {
            Bytes::Inline(bytes) => {
                flags |= if bytes.is_empty() { 0 } else { abi::SEND_INLINE };
                let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
                abi::Piece { address: bytes.as_ptr().addr() as u64, length, local_key: 0 }
            }
            Bytes::In(block, length) => {
                assert!(length as usize <= block.len(), "{length} B of a block of {} B", block.len());
                abi::Piece { address: block.address(), length, local_key: block.local_key }
            }
        };
        let (opcode, word, remote) = match work {
            Work::Send { immediate: Some(word), .. } => (abi::WR_SEND_IMMEDIATE, word.to_be(), (0, 0)),
            // rdma-core's library for siw takes the key from where writes have theirs.
            Work::Send { invalidate: Some(key), .. } => (abi::WR_SEND_INVALIDATE, key, (0, key)),
            Work::Send { .. } => (abi::WR_SEND, 0, (0, 0)),
            Work::Write { address, key } => (abi::WR_WRITE, 0, (address, key)),
            Work::Read { address, key } => (abi::WR_READ, 0, (address, key)),
        };
        let mut request = abi::SendRequest::new(id, opcode, flags);
        (request.word, (request.remote_address, request.remote_key)) = (word, remote);
        request.pieces = &raw mut piece;
        // Linux's siw takes the length of a read from the first piece, even if there is none. For
        // some cards, a piece of no bytes has 2 GiB.
        let has_piece = piece.length > 0 || self.is_iwarp && matches!(work, Work::Read { .. });
        request.count = c_int::from(has_piece);
        let mut refused = std::ptr::null_mut();
        // SAFETY: the queue pair exists; the device copies the request, its piece, and inline bytes
        // during the call. The memory of the piece stays mapped as long as the queue pair exists.
        checked(unsafe { (self.calls.send)(self.queue_pair.as_ptr(), &raw mut request, &raw mut refused) })
    }

    /// Posts a receive request for a message of up to `length` bytes, which comes into `block`.
    ///
    /// # Errors
    /// When the device does not take it; nothing has happened then.
    pub(crate) fn post_receive(&self, id: u64, block: &Block, length: u32) -> io::Result<()> {
        assert!(length as usize <= block.len(), "{length} B of a block of {} B", block.len());
        let mut piece = abi::Piece { address: block.address(), length, local_key: block.local_key };
        let (next, pieces, count) = (std::ptr::null_mut(), &raw mut piece, c_int::from(length > 0));
        let mut request = abi::ReceiveRequest { id, next, pieces, count };
        let mut refused = std::ptr::null_mut();
        // SAFETY: as above.
        checked(unsafe { (self.calls.receive)(self.queue_pair.as_ptr(), &raw mut request, &raw mut refused) })
    }

    /// Takes completions that have come, some at a time; none if there are no more.
    ///
    /// # Errors
    /// When the completion queue is broken.
    pub(crate) fn poll(&self) -> io::Result<impl ExactSizeIterator<Item = Completion> + use<>> {
        let mut completions = [abi::WorkCompletion::default(); BATCH];
        // SAFETY: the completion queue exists, and writes no more completions than there is room.
        let count =
            unsafe { (self.calls.poll)(self.completions.as_ptr(), BATCH_MAX, completions.as_mut_ptr()) };
        let count = usize::try_from(count)
            .map_err(|_| io::Error::other("the completion queue of an RDMA device is broken"))?;
        Ok(completions.into_iter().take(count).map(Completion::from))
    }

    /// Has the next completion end a sleep over [`AsRawFd`], after former reports are dropped.
    /// Completions that have come meanwhile are not reported: poll afterwards.
    ///
    /// # Errors
    /// When the device refuses.
    pub(crate) fn arm(&self) -> io::Result<()> {
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let verbs = &self.library.verbs;
        // SAFETY: the channel exists, and does not block. Each event is acknowledged once.
        unsafe {
            while (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut context) == 0 {
                (verbs.ibv_ack_cq_events)(queue, 1);
            }
            checked((self.calls.notify)(self.completions.as_ptr(), 0))
        }
    }
}

/// Makes the queue pair of a connection. Returns how many bytes a request carries itself.
fn create(id: &CmId, parts: &Parts, depths: Depths) -> io::Result<usize> {
    let mut refused = None;
    // Some devices carry nothing in requests.
    for max_inline_data in [INLINE_BYTES, 0] {
        let mut attributes = abi::QueuePairAttributes {
            qp_context: std::ptr::null_mut(),
            send_cq: parts.completions,
            recv_cq: parts.completions,
            srq: std::ptr::null_mut(),
            capacities: abi::Capacities {
                max_send_wr: depths.send.into(),
                max_recv_wr: depths.receive.into(),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data,
            },
            qp_type: abi::QP_RELIABLE,
            signal_all: 0,
        };
        let make = parts.library.cm.rdma_create_qp;
        // SAFETY: identifier, domain and completion queue exist and are of one device.
        match checked(unsafe { make(id.as_ptr(), parts.domain, &raw mut attributes) }) {
            // The library says how much the device really takes; no more than was asked for
            // is used.
            Ok(()) => return Ok(attributes.capacities.max_inline_data.min(max_inline_data) as usize),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

/// The queue pair of a connection.
fn queue_pair_of(id: &CmId) -> *mut abi::QueuePair {
    // SAFETY: the identifier exists.
    unsafe { (*id.as_ptr()).queue_pair }
}

impl AsRawFd for Pair {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel exists, and its descriptor does not change.
        unsafe { self.channel.as_ref().fd }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: the queue pair exists, and goes before the objects that it uses.
        unsafe { (self.library.cm.rdma_destroy_qp)(self.id.as_ptr()) };
        self.memory = None;
        drop(Parts {
            library: self.library,
            domain: self.domain.as_ptr(),
            channel: self.channel.as_ptr(),
            completions: self.completions.as_ptr(),
        });
    }
}
