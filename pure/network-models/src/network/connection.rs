//! A connection: two ends, and the bytes between them.

use engine::{Buffer, Instant};

use super::stream::{BUFFERS_MAX, Stream};
use super::{Config, ConnectionId, Output, Side};
use crate::tcp::{Endpoint, Event, Gone, Segment};

/// One side of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) endpoint: Endpoint,
    /// Bytes that this side's application sent and that were not handed over at the other side yet.
    stream: Stream,
    /// Number of bytes that were handed to this side's application.
    delivered: u64,
    /// Whether the application found too little room, so that the connection must report when there
    /// is more.
    blocked: bool,
    reported_finished: bool,
    reported_gone: bool,
    /// Whether the end waits for its turn to send.
    pub(super) queued: bool,
}

impl End {
    fn new(config: &Config, side: Side) -> Self {
        Self {
            endpoint: Endpoint::new(config.tcp[side.index()], config.mtu),
            stream: Stream::default(),
            delivered: 0,
            blocked: false,
            reported_finished: false,
            reported_gone: false,
            queued: false,
        }
    }

    fn room(&self) -> usize {
        if self.reported_gone || self.stream.buffers() >= BUFFERS_MAX {
            return 0;
        }
        self.endpoint.room() as usize
    }
}

/// A connection with its two ends.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) ends: [End; 2],
    /// The earliest deadline of either end, as known to the network.
    pub(super) wake: Option<Instant>,
}

impl Connection {
    pub(super) fn new(id: ConnectionId, config: &Config) -> Self {
        Self { id, ends: Side::BOTH.map(|side| End::new(config, side)), wake: None }
    }

    pub(super) fn room(&mut self, side: Side, wanted: usize) -> usize {
        let end = &mut self.ends[side.index()];
        let room = end.room();
        end.blocked |= room < wanted;
        room
    }

    pub(super) fn send(&mut self, side: Side, data: Buffer) {
        let end = &mut self.ends[side.index()];
        if end.endpoint.is_gone() {
            return;
        }
        let bytes = u32::try_from(data.len()).expect("a buffer is smaller than 4 GiB");
        end.endpoint.write(bytes);
        end.stream.push(data);
    }

    pub(super) fn consume(&mut self, side: Side, bytes: usize) {
        let end = &mut self.ends[side.index()];
        end.endpoint.consume(u32::try_from(bytes).expect("fewer bytes than a window"));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.ends.iter().filter_map(|end| end.endpoint.poll_timeout()).min()
    }

    /// Takes a segment that has arrived at `side`.
    pub(super) fn on_segment(&mut self, now: Instant, side: Side, segment: &Segment) {
        self.ends[side.index()].endpoint.on_segment(now, segment);
    }

    /// Reports changes of its end to the application at `side`.
    pub(super) fn report(&mut self, side: Side, mut output: impl FnMut(Output)) {
        let (connection, there) = (self.id, side.other().index());
        while let Some(event) = self.ends[side.index()].endpoint.poll_event() {
            match event {
                Event::Asked => output(Output::Incoming { connection, side }),
                Event::Opened => output(Output::Opened { connection, side }),
                Event::Gone(why) => {
                    self.ends[side.index()].reported_gone = true;
                    output(Output::Closed { connection, side, why });
                }
            }
        }
        if self.ends[side.index()].reported_gone {
            return;
        }
        loop {
            let end = &self.ends[side.index()];
            let ready = end.endpoint.arrived() - end.delivered;
            if ready == 0 {
                break;
            }
            let most = usize::try_from(ready).unwrap_or(usize::MAX);
            let data = self.ends[there].stream.take(most);
            assert!(!data.is_empty(), "bytes have arrived that were never sent");
            self.ends[side.index()].delivered += data.len() as u64;
            output(Output::Data { connection, side, data });
        }
        let end = &mut self.ends[side.index()];
        if end.endpoint.is_finished() && !end.reported_finished {
            end.reported_finished = true;
            output(Output::Finished { connection, side });
        }
        if end.blocked && end.room() > 0 {
            end.blocked = false;
            output(Output::Writable { connection, side });
        }
        if end.endpoint.is_closed() {
            end.reported_gone = true;
            output(Output::Closed { connection, side, why: Gone::Closed });
        }
    }

    /// The application at `side` gives up the connection, and gets no further reports.
    pub(super) fn reset(&mut self, side: Side) {
        let end = &mut self.ends[side.index()];
        end.endpoint.reset();
        end.reported_gone = true;
    }

    /// Whether both sides are done with the connection, or one is and the other has never heard of
    /// it.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().any(|end| end.reported_gone)
            && self.ends.iter().all(|end| {
                (end.reported_gone && !end.endpoint.has_last_word()) || end.endpoint.is_listening()
            })
    }
}
