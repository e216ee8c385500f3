//! The start of a connection: request, reply, and negotiated settings.

use alloc::vec::Vec;

use engine::Instant;
use rdma::{Disconnected, Event, WorkError};

use super::transmit::{FirstMessage, Wake};
use super::{Connection, State};
use crate::PRIVATE_DATA_MAX;
use crate::wire::{Enhanced, Fault, FrameKind, Revision, Shown, Startup, StartupError};

/// An incomplete frame of the peer.
#[derive(Debug)]
pub(super) struct Frame {
    kind: FrameKind,
    /// The bytes received: at most a head and the longest private data.
    bytes: Vec<u8>,
}

impl Frame {
    pub(super) const fn new(kind: FrameKind) -> Self {
        Self { kind, bytes: Vec::new() }
    }

    /// Takes bytes of the frame from `received`, and counts them in `taken`. Returns the head and
    /// the private data once the frame is complete.
    fn take(
        &mut self,
        received: &[u8],
        taken: &mut usize,
    ) -> Result<Option<(Startup, Vec<u8>)>, StartupError> {
        loop {
            let head = self.bytes.first_chunk();
            let head = head.map(|head| Startup::parse(head, self.kind)).transpose()?;
            let length = Startup::LENGTH + head.map_or(0, |head| usize::from(head.length));
            if let Some(head) = head.filter(|_| self.bytes.len() == length) {
                return Ok(Some((head, self.bytes.split_off(Startup::LENGTH))));
            }
            let rest = &received[*taken..];
            if rest.is_empty() {
                return Ok(None);
            }
            let count = rest.len().min(length - self.bytes.len());
            self.bytes.extend_from_slice(&rest[..count]);
            *taken += count;
        }
    }
}

/// The request of a peer, which the user must accept or reject.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    head: Startup,
    enhanced: Option<Enhanced>,
}

/// Splits private data into those of enhanced set-up and those of the user.
fn split(head: Startup, mut private_data: Vec<u8>) -> (Option<Enhanced>, Vec<u8>) {
    match private_data.first_chunk().filter(|_| head.enhanced) {
        Some(part) => {
            let part = Enhanced::parse(*part);
            (Some(part), private_data.split_off(Enhanced::LENGTH))
        }
        None => (None, private_data),
    }
}

impl Connection {
    pub(super) fn send_request(&mut self, private_data: &[u8]) {
        let config = &self.config;
        let part = Enhanced {
            ird: config.reads_answered_max,
            ord: config.reads_outstanding_max,
            peer_to_peer: config.peer_to_peer,
            send: false,
            write: config.peer_to_peer,
            read: config.peer_to_peer && config.reads_outstanding_max > 0,
        };
        let head = self.head(FrameKind::Request, config.revision);
        self.send_frame(head, (config.revision == Revision::Two).then_some(part), private_data);
    }

    const fn head(&self, kind: FrameKind, revision: Revision) -> Startup {
        let crc = self.config.crc;
        Startup { kind, markers: false, crc, reject: false, enhanced: false, revision, length: 0 }
    }

    fn send_frame(&mut self, head: Startup, part: Option<Enhanced>, private_data: &[u8]) {
        let length = private_data.len();
        assert!(
            length <= PRIVATE_DATA_MAX,
            "private data of {length} bytes exceed the limit of {PRIVATE_DATA_MAX}"
        );
        self.outbox.write(&head.emit(part, private_data));
    }

    /// Handles bytes that arrive before the connection is established. Returns how many it took:
    /// all, or those of the peer's frame.
    pub(super) fn on_startup(&mut self, now: Instant, received: &[u8]) -> usize {
        let State::Starting { frame, .. } = &mut self.state else {
            let what = "it sends before its request is answered";
            self.close(Disconnected::PeerFault(what), WorkError::Flushed);
            return received.len();
        };
        let mut taken = 0;
        match (frame.take(received, &mut taken), frame.kind) {
            (Ok(None), _) => {}
            (Ok(Some((head, data))), FrameKind::Request) => self.on_request(head, data),
            (Ok(Some((head, data))), FrameKind::Reply) => self.on_reply(now, head, data),
            // The connecting end is not reading FPDUs yet, so it gets no Terminate message.
            (Err(error), FrameKind::Request) => {
                self.close(Disconnected::PeerFault(error.describe()), WorkError::Flushed);
            }
            (Err(error), FrameKind::Reply) => {
                self.refuse_reply(Fault::INVALID_STARTUP, error.describe());
            }
        }
        taken
    }

    fn on_request(&mut self, head: Startup, data: Vec<u8>) {
        let (enhanced, private_data) = split(head, data);
        self.state = State::Deciding(Request { head, enhanced });
        if head.reject {
            self.close(Disconnected::PeerFault("its request says that it rejects"), WorkError::Flushed);
        } else if head.markers {
            self.send_reply(Request { head, enhanced }, &[], false);
            self.close(Disconnected::PeerFault("it asks for markers"), WorkError::Flushed);
        } else {
            self.events.push_back(Event::Requested { private_data });
        }
    }

    /// Accepts or rejects for the user.
    pub(super) fn answer(&mut self, private_data: &[u8], accepts: bool) {
        let State::Deciding(request) = self.state else { return };
        self.send_reply(request, private_data, accepts);
        if accepts {
            self.establish(Vec::new());
            self.pump();
        } else {
            self.end(None, WorkError::Flushed);
        }
    }

    /// Sends the reply, and applies the negotiated settings.
    fn send_reply(&mut self, request: Request, private_data: &[u8], accepts: bool) {
        let Request { head, enhanced } = request;
        self.crc = self.config.crc || head.crc;
        let reply = enhanced.map(|asked| {
            let ird = self.config.reads_answered_max.min(asked.ord);
            let ord = self.config.reads_outstanding_max.min(asked.ird);
            self.reads_answered_max = ird.into();
            self.reads_outstanding_max = ord.into();
            // An empty Write is the cheapest. If the peer offers neither, this end proposes it.
            let read = asked.read && !asked.write;
            let wants = asked.peer_to_peer;
            Enhanced {
                ird,
                ord,
                peer_to_peer: wants,
                send: false,
                write: wants && !read,
                read: wants && read,
            }
        });
        let mut answer = self.head(FrameKind::Reply, head.revision);
        answer.crc = self.crc;
        answer.reject = !accepts;
        self.send_frame(answer, reply, private_data);
    }

    fn on_reply(&mut self, now: Instant, head: Startup, data: Vec<u8>) {
        let (enhanced, private_data) = split(head, data);
        if head.reject {
            self.end(Some(Event::Rejected { private_data }), WorkError::Flushed);
            return;
        }
        if head.markers {
            self.refuse_reply(Fault::INVALID_STARTUP, "it asks for markers");
            return;
        }
        if head.revision > self.config.revision {
            self.refuse_reply(Fault::INVALID_STARTUP, "its reply has a later revision than the request");
            return;
        }
        self.crc = self.config.crc || head.crc;
        let mut first = None;
        if let Some(reply) = enhanced {
            if reply.ord > self.config.reads_answered_max {
                self.refuse_reply(Fault::INSUFFICIENT_IRD, Fault::INSUFFICIENT_IRD.describe());
                return;
            }
            self.reads_outstanding_max = self.config.reads_outstanding_max.min(reply.ird).into();
            if self.config.peer_to_peer {
                first = match reply {
                    Enhanced { write: true, .. } => Some(FirstMessage::Write),
                    Enhanced { read: true, .. } if self.config.reads_outstanding_max > 0 => {
                        Some(FirstMessage::Read)
                    }
                    _ => {
                        self.refuse_reply(Fault::NO_MATCHING_RTR, Fault::NO_MATCHING_RTR.describe());
                        return;
                    }
                };
            }
        }
        self.may_send = true;
        self.send_first(first);
        self.wake = Some(Wake::first(now));
        self.establish(private_data);
    }

    fn refuse_reply(&mut self, fault: Fault, what: &'static str) {
        self.terminate(fault, Shown::Nothing, Disconnected::PeerFault(what), WorkError::Flushed);
    }

    fn establish(&mut self, private_data: Vec<u8>) {
        for state in [rdma::State::ReadyToReceive, rdma::State::ReadyToSend] {
            self.pair.modify(state).expect("an initialised queue pair becomes ready");
        }
        self.state = State::Ready;
        self.events.push_back(Event::Established { private_data });
    }
}
