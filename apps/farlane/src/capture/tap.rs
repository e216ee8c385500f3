//! A watcher that copies the packets of a port into a queue.

use std::collections::HashMap;
use std::sync::Arc;

use assemblies::watch::{self, Connection, Ends, Port, Seen};
use engine::{Instant, Watcher};
use live::sys::clock::Clock;
use pcie::wire::{Head as PacketHead, Packet};
use trace::Direction;

use super::queue::{Head, Queue, Streamed};

/// The content of a capture: the packets of PCIe, or the bytes of a fabric's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Each TLP that passes the port.
    Packets,
    /// Each piece of a connection's stream.
    Streams,
}

/// Makes the taps of a capture, on any thread.
#[derive(Clone)]
pub(crate) struct Taps {
    pub(super) queue: Arc<Queue>,
    pub(super) what: What,
    /// The most bytes that are kept of a packet's data, or of a piece of a stream.
    pub(super) snap: usize,
    /// The queues whose connections are wanted; all, if there are none.
    pub(super) queues: Arc<[u16]>,
    /// The clock that is read for each packet. Without it, times are those of the engines, for
    /// which all that happens in a turn of the loop may happen at once.
    pub(super) clock: Option<Clock>,
}

impl Taps {
    /// A watcher for a port of this number, whose packets are written from now on.
    pub(crate) fn tap(&self, port: u8) -> Tap {
        self.queue.enter();
        Tap { of: self.clone(), port, streams: HashMap::new() }
    }
}

/// Copies the packets of a port into the queue of a capture.
pub(crate) struct Tap {
    of: Taps,
    port: u8,
    /// The ends of each connection, and the numbers of the next bytes: of the host's, and of
    /// the controller's.
    streams: HashMap<Connection, (Ends, [u32; 2])>,
}

impl Tap {
    fn head(
        &self,
        (at, direction): (Instant, Direction),
        is_stream: bool,
        (kept, original): (usize, usize),
    ) -> Head {
        let length = |of| u32::try_from(of).unwrap_or(u32::MAX);
        Head { at, direction, port: self.port, is_stream, kept: length(kept), original: length(original) }
    }

    fn packet(&self, at: Instant, direction: Direction, packet: &Packet) {
        let mut head = [0; PacketHead::LENGTH_MAX];
        let length = packet.head().emit(&mut head);
        let kept = packet.payload.len().min(self.of.snap);
        let trailer = packet.trailer().filter(|_| kept == packet.payload.len());
        let trailer = trailer.as_ref().map_or(&[][..], |trailer| trailer);
        let pieces = [&head[..length], &packet.payload[..kept], trailer];
        let (kept, original) = (length + kept + trailer.len(), packet.encoded_len());
        let head = self.head((at, direction), false, (kept, original));
        self.of.queue.put(head, None, &pieces);
    }

    /// Whether a connection is wanted. Its queue is not known before its Connect.
    fn wants(&self, ends: &Ends) -> bool {
        let wanted = &self.of.queues;
        wanted.is_empty() || ends.queue.is_none_or(|queue| wanted.contains(&queue.0))
    }

    fn bytes(&mut self, at: Instant, direction: Direction, of: (Connection, Ends), bytes: &[u8]) {
        let (connection, ends) = of;
        // The name of a connection that is gone may be another one's. A stream begins with 1.
        let fresh = || (ends, [1; 2]);
        let is_same = |known: &Ends| (known.host, known.controller) == (ends.host, ends.controller);
        let (known, next) = self.streams.entry(connection).or_insert_with(fresh);
        if !is_same(known) {
            (*known, *next) = fresh();
        }
        let side = usize::from(direction == Direction::Up);
        let stream = Some(Streamed { ends, sequence: next[side], acknowledged: next[1 - side] });
        // Sequence numbers count modulo 2^32.
        let length = u32::try_from(bytes.len() % (1 << 32)).unwrap_or(0);
        next[side] = next[side].wrapping_add(length);
        let kept = bytes.len().min(self.of.snap);
        let head = self.head((at, direction), true, (kept, bytes.len()));
        self.of.queue.put(head, stream, &[&bytes[..kept]]);
    }
}

impl Watcher<Port> for Tap {
    fn on_seen(&mut self, now: Instant, seen: Seen<'_>) {
        let read = self.of.clock.map(|clock| clock.now());
        let now = read.unwrap_or(now);
        match (self.of.what, seen) {
            (What::Packets, Seen::Packet { direction, packet, arrival }) => {
                let at = arrival.filter(|_| read.is_none()).map_or(now, |arrival| arrival.at);
                self.packet(at, way(direction), packet);
            }
            (What::Streams, Seen::Bytes { direction, connection, ends: Some(ends), bytes })
                if self.wants(&ends) =>
            {
                self.bytes(now, way(direction), (connection, ends), bytes);
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        self.of.queue.is_over()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.of.queue.leave();
    }
}

/// The direction as captures have it.
const fn way(direction: watch::Direction) -> Direction {
    match direction {
        watch::Direction::Down => Direction::Down,
        watch::Direction::Up => Direction::Up,
    }
}
