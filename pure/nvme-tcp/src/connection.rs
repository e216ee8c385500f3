//! The common part of both ends of a connection: a state, received PDUs, bytes to send, and the
//! answer to a fault.

use core::fmt;
use core::ops::Range;

use engine::{Buffer, Instant, Nanos};

use crate::Outbox;
use crate::emit::Sender;
use crate::reader::{Digest, Reader, Span, Step};
use crate::wire::{
    ALIGNMENT_MAX, Agreement, CommonHeader, Crc32c, Fault, Flags, Framing, PduKind, Receiver,
    TerminateRequest,
};

/// An input of an end of a connection.
#[derive(Debug)]
pub enum Input {
    /// Bytes from the other end, in order. The block is held as long as data in it are in use.
    Received(Buffer),
}

/// The parameters that both ends have agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Whether digests follow headers.
    pub header_digest: bool,
    /// Whether digests follow data.
    pub data_digest: bool,
    /// Alignment of data towards the host (HPDA), in bytes.
    pub host_alignment: u8,
    /// Alignment of data towards the controller (CPDA), in bytes.
    pub controller_alignment: u8,
}

impl fmt::Display for Parameters {
    /// Names the digests that are used.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.header_digest, self.data_digest) {
            (false, false) => "no digests",
            (true, false) => "header digests",
            (false, true) => "data digests",
            (true, true) => "header and data digests",
        })
    }
}

impl Parameters {
    /// The agreement for PDUs towards `receiver`.
    const fn towards(self, receiver: Receiver) -> Agreement {
        let Self { header_digest, data_digest, host_alignment, controller_alignment } = self;
        let alignment = match receiver {
            Receiver::Controller => controller_alignment,
            Receiver::Host => host_alignment,
        };
        Agreement { header_digest, data_digest, alignment }
    }
}

/// Asserts that an end's settings name a legal alignment of data.
pub(crate) fn check_alignment(alignment: u8) {
    let legal = alignment.is_multiple_of(4) && (4..=ALIGNMENT_MAX).contains(&alignment);
    assert!(legal, "an alignment of 4 to 128 bytes, in double words");
}

/// The place of a PDU's data that arrive in parts, and the other types of an end.
pub(crate) trait Target {
    /// Why a connection is over.
    type Why: Copy;
    /// An output of the end for its owner.
    type Output;
    /// The commands of the end.
    type Slots;

    /// The bytes in `range` of the block in which the data are assembled.
    fn place<'a>(&'a mut self, slots: &'a mut Self::Slots, range: Range<usize>) -> Option<&'a mut [u8]>;
}

/// Data of a PDU that are still coming.
#[derive(Debug)]
struct Arrival<T> {
    target: T,
    span: Span,
}

/// The progress of a connection. `Why` is the reason for its end.
#[derive(Clone, Copy, Debug)]
enum State<Why> {
    /// The ICReq or ICResp of the other end has not arrived.
    Initialising {
        deadline: Instant,
    },
    Ready,
    /// The end is reported to the owner next; then the connection is over.
    Closing(Why),
    Over,
}

/// One end of a connection, without the commands.
#[derive(Debug)]
pub(crate) struct Core<T: Target> {
    receiver: Receiver,
    state: State<T::Why>,
    pub(crate) reader: Reader,
    arrival: Option<Arrival<T>>,
    sender: Sender,
    pub(crate) outbox: Outbox,
}

impl<T: Target> Core<T> {
    /// The end of `receiver`, which waits for the other end to initialise the connection.
    pub(crate) fn new(receiver: Receiver, crc32c: Crc32c, now: Instant, timeout: Nanos) -> Self {
        Self {
            receiver,
            state: State::Initialising { deadline: now + timeout },
            reader: Reader::new(receiver, crc32c),
            arrival: None,
            sender: Sender { agreement: Agreement::NONE, crc32c },
            outbox: Outbox::default(),
        }
    }

    pub(crate) const fn is_initialising(&self) -> bool {
        matches!(self.state, State::Initialising { .. })
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Closing(_) | State::Over)
    }

    /// The connection is initialised, with these parameters.
    pub(crate) const fn begin(&mut self, parameters: Parameters) {
        self.reader.agreement = parameters.towards(self.receiver);
        self.sender.agreement = parameters.towards(self.receiver.peer());
        self.state = State::Ready;
    }

    #[inline]
    pub(crate) fn on_received(&mut self, bytes: Buffer) {
        if !self.is_over() {
            self.reader.inbound.push(bytes);
        }
    }

    /// Ends the connection because of `why` if the other end has not initialised it in time.
    pub(crate) fn on_timeout(&mut self, now: Instant, why: T::Why) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.close(why);
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Initialising { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// Why the connection is over. Returned once.
    pub(crate) const fn take_closed(&mut self) -> Option<T::Why> {
        let State::Closing(why) = self.state else { return None };
        self.state = State::Over;
        Some(why)
    }

    /// Where the next received bytes belong, if they are data that are being assembled.
    pub(crate) fn landing<'a>(&'a mut self, slots: &'a mut T::Slots) -> Option<&'a mut [u8]> {
        if !self.reader.inbound.is_empty() {
            return None;
        }
        let Arrival { target, span } = self.arrival.as_mut()?;
        target.place(slots, span.rest()).filter(|place| !place.is_empty())
    }

    /// The first `count` bytes of [`Self::landing`] were received.
    pub(crate) fn landed(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.arrival.as_mut().expect("bytes land only where a place was named").span.advance(count);
    }

    /// Whether the next bytes are data of a PDU whose header was processed.
    #[inline]
    pub(crate) const fn has_arrival(&self) -> bool {
        self.arrival.is_some()
    }

    /// From now on, receives the data of a PDU, which belong in `range` of the block of `target`.
    pub(crate) fn expect(&mut self, target: T, range: Range<usize>, framing: Framing) {
        self.arrival = Some(Arrival { target, span: Span::new(range, framing) });
    }

    /// Takes data of a PDU whose header was processed. Returns their place and the digest behind
    /// them once all have arrived.
    pub(crate) fn receive_data(&mut self, slots: &mut T::Slots) -> Option<(T, Range<usize>, Digest)> {
        let mut arrival = self.arrival.take()?;
        let place = arrival.target.place(slots, arrival.span.rest());
        let Some(digest) = self.reader.fill(&mut arrival.span, place) else {
            self.arrival = Some(arrival);
            return None;
        };
        Some((arrival.target, arrival.span.range(), digest))
    }

    /// Sends a PDU of `kind` with `data`. `header` makes the whole header from the common header.
    #[inline]
    pub(crate) fn send<const N: usize>(
        &mut self,
        kind: PduKind,
        flags: Flags,
        data: Buffer,
        header: impl FnOnce(&CommonHeader) -> [u8; N],
    ) {
        self.sender.send(&mut self.outbox, kind, flags, data, header);
    }

    /// Sends a PDU of `kind` with data in pieces, `length` bytes in all.
    #[inline]
    pub(crate) fn send_pieces<const N: usize>(
        &mut self,
        kind: PduKind,
        flags: Flags,
        data: (u32, impl Iterator<Item = Buffer>),
        header: impl FnOnce(&CommonHeader) -> [u8; N],
    ) {
        self.sender.send_pieces(&mut self.outbox, kind, flags, data, header);
    }

    /// Ends the connection for the reason `why`. Reports it to the other end as `fault` of a PDU,
    /// with the first `shown` bytes of the PDU.
    pub(crate) fn fail(&mut self, fault: Fault, shown: usize, why: T::Why) {
        if self.is_over() {
            return;
        }
        let header = self.reader.inbound.head(shown).unwrap_or_default();
        let (bytes, length) = TerminateRequest { fault }.emit(self.receiver.peer(), header);
        self.outbox.write(&bytes[..length]);
        self.close(why);
    }

    /// Ends the connection for the reason `why`, without a report to the other end.
    pub(crate) fn close(&mut self, why: T::Why) {
        self.forget(State::Closing(why));
    }

    /// Ends the connection at once, without a report to the owner or the other end, and drops the
    /// contents of the outbox.
    pub(crate) fn give_up(&mut self) {
        self.forget(State::Over);
        self.outbox = Outbox::default();
    }

    fn forget(&mut self, state: State<T::Why>) {
        self.state = state;
        self.reader.inbound.clear();
        self.arrival = None;
    }
}

type WhyOf<E> = <<E as End>::Target as Target>::Why;
type OutputOf<E> = <<E as End>::Target as Target>::Output;

/// An end of a connection, with its commands.
pub(crate) trait End {
    type Target: Target;

    fn core(&mut self) -> &mut Core<Self::Target>;
    /// Whether a PDU of `kind` may be processed now.
    #[inline]
    fn takes(&self, _kind: PduKind) -> bool {
        true
    }
    /// Processes a PDU whose part before the data has arrived completely.
    fn on_pdu(&mut self, header: CommonHeader, framing: Framing) -> Result<Step<OutputOf<Self>>, Fault>;
    /// Takes data of a PDU whose header was processed.
    fn receive_data(&mut self) -> Step<OutputOf<Self>>;
    /// Answers a malformed PDU, of whose header `shown` bytes have arrived, and ends the
    /// connection.
    fn fail(&mut self, fault: Fault, shown: usize);
    /// Answers a broken common header, and ends the connection.
    fn fail_header(&mut self, fault: Fault) {
        self.fail(fault, CommonHeader::LENGTH);
    }
    /// The output that reports the end of the connection to the owner.
    fn closed(why: WhyOf<Self>) -> OutputOf<Self>;

    #[inline]
    fn poll(&mut self) -> Option<OutputOf<Self>> {
        while !self.core().is_over() {
            match self.receive() {
                Step::Output(output) => return Some(output),
                Step::Again => {}
                Step::Idle => return None,
            }
        }
        self.core().take_closed().map(Self::closed)
    }

    /// Processes the next received bytes.
    #[inline]
    fn receive(&mut self) -> Step<OutputOf<Self>> {
        if self.core().has_arrival() {
            return self.receive_data();
        }
        let is_first = self.core().is_initialising();
        let (header, framing) = match self.core().reader.next(is_first) {
            Ok(Some(next)) => next,
            Ok(None) => return Step::Idle,
            Err(fault) => {
                self.fail_header(fault);
                return Step::Again;
            }
        };
        if !self.takes(header.kind) {
            return Step::Idle;
        }
        let step = match self.core().reader.has_head(framing) {
            Ok(true) => self.on_pdu(header, framing),
            Ok(false) => return Step::Idle,
            Err(fault) => Err(fault),
        };
        step.unwrap_or_else(|fault| {
            self.fail(fault, framing.header_length.into());
            Step::Again
        })
    }
}
