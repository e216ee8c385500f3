//! One end of a connection: the common part of client and server.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Pool};

use crate::errno::Errno;
use crate::input::Input;
use crate::message;
use crate::peer::Peer;
use crate::pending::{Pending, RequestHead};
use crate::stream::{Message, Piece, Stream};
use crate::wire::{Header, HeaderError};

/// An output that may be a message to the other end.
pub(crate) trait Transmit {
    /// The output that sends `bytes`, a message without descriptors.
    fn transmit(bytes: Buffer) -> Self;
}

/// The other end, its stream, its requests of kind `R`, and the outputs of kind `O`.
#[derive(Debug)]
pub(crate) struct Core<D, R, O> {
    pub(crate) peer: Peer,
    stream: Stream<D>,
    /// Requests by the other end that wait for the world.
    pub(crate) pending: Pending<R>,
    pub(crate) pool: Pool,
    pub(crate) outputs: VecDeque<O>,
}

impl<D, R, O> Default for Core<D, R, O> {
    fn default() -> Self {
        Self {
            peer: Peer::Away,
            stream: Stream::default(),
            pending: Pending::default(),
            pool: Pool::default(),
            outputs: VecDeque::new(),
        }
    }
}

impl<D, R, O: Transmit> Core<D, R, O> {
    /// Sends a message of `header` and the parts that follow it.
    pub(crate) fn send(&mut self, header: &Header, parts: [&[u8]; 2]) {
        let bytes = message::build(&mut self.pool, header, parts);
        self.outputs.push_back(O::transmit(bytes));
    }

    /// Replies to a request, if a reply is wanted.
    pub(crate) fn reply(&mut self, asked: RequestHead, parts: [&[u8]; 2]) {
        let message = message::reply(&mut self.pool, asked, parts);
        self.outputs.extend(message.map(O::transmit));
    }

    /// Replies that a request has failed with `error`, if a reply is wanted.
    pub(crate) fn refuse(&mut self, asked: RequestHead, error: Errno) {
        let message = message::refusal(&mut self.pool, asked, error);
        self.outputs.extend(message.map(O::transmit));
    }

    /// Forgets the other end and its requests.
    pub(crate) fn forget(&mut self) {
        self.peer = Peer::Away;
        self.stream = Stream::default();
        self.pending.clear();
    }
}

/// An end that handles the other end's messages.
pub(crate) trait End<D> {
    /// A request by the other end that waits for the world.
    type Request;
    /// The output of the end.
    type Sent: Transmit;

    fn core(&mut self) -> &mut Core<D, Self::Request, Self::Sent>;
    fn on_connected(&mut self, now: Instant);
    fn on_message(&mut self, now: Instant, message: Message<'_, D>);
    /// Handles a bad header. The start of the next message is unknown, so the connection must end.
    fn on_bad_header(&mut self, error: HeaderError);
    /// Forgets the other end, which has disconnected or is being disconnected.
    fn forget(&mut self);

    fn on_input(&mut self, now: Instant, input: Input<'_, D>) {
        match input {
            Input::Connected => self.on_connected(now),
            Input::Received { bytes, descriptors } => self.on_received(now, bytes, descriptors),
            Input::Disconnected => self.forget(),
        }
    }

    /// Handles all messages in a piece of the stream.
    fn on_received(&mut self, now: Instant, bytes: &[u8], descriptors: Vec<D>) {
        let mut piece = Piece::new(bytes, descriptors);
        // The stream lends out a message while the end works on it.
        let mut stream = core::mem::take(&mut self.core().stream);
        while !self.core().peer.is_away() {
            match stream.next(&mut piece) {
                Ok(Some(message)) => self.on_message(now, message),
                Ok(None) => {
                    self.core().stream = stream;
                    return;
                }
                Err(error) => self.on_bad_header(error),
            }
        }
    }
}
