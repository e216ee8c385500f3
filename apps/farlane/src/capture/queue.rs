//! Packets of a port, on their way from the loop that moves data to the thread that writes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assemblies::watch::Ends;
use captures::Tally;
use engine::Instant;
use trace::Direction;

/// The most bytes that wait to be written, of packets and of their descriptions. Packets that pass
/// meanwhile are counted and not written.
pub(crate) const WAITING_MAX: usize = 8 << 20;
/// This many waiting bytes are written at once; fewer wait for a moment.
const BATCH: usize = 256 << 10;
/// How long less than a batch waits, so that a busy port does not wake the writer for each packet.
const MOMENT: Duration = Duration::from_millis(10);

/// The known facts about a packet, or about a piece of a connection's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// When it passed.
    pub(super) at: Instant,
    pub(super) direction: Direction,
    /// Number of the port.
    pub(super) port: u8,
    /// Whether it is a piece of a connection's bytes.
    pub(super) is_stream: bool,
    /// Bytes that are kept of it, and bytes that it has.
    pub(super) kept: u32,
    pub(super) original: u32,
}

/// Which bytes of a connection a piece has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streamed {
    pub(super) ends: Ends,
    /// The number of the first byte of the piece, and of the next one of the opposite direction.
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
}

/// Packets that wait, in the order in which they passed.
#[derive(Default)]
pub(super) struct Batch {
    heads: Vec<Head>,
    /// Of each piece of a connection's bytes: where it goes.
    streams: Vec<Streamed>,
    bytes: Vec<u8>,
}

impl Batch {
    fn size(&self) -> usize {
        self.bytes.len() + self.heads.len() * size_of::<Head>() + self.streams.len() * size_of::<Streamed>()
    }

    /// The packets: where a stream's piece goes, and the bytes that are kept.
    pub(super) fn packets(&self) -> impl Iterator<Item = (&Head, Option<&Streamed>, &[u8])> {
        let (mut rest, mut streams) = (&self.bytes[..], self.streams.iter());
        self.heads.iter().map(move |head| {
            let (bytes, after) = rest.split_at(head.kept as usize);
            rest = after;
            (head, head.is_stream.then(|| streams.next()).flatten(), bytes)
        })
    }

    fn clear(&mut self) {
        self.heads.clear();
        self.streams.clear();
        self.bytes.clear();
    }
}

#[derive(Default)]
struct State {
    waiting: Batch,
    tally: Tally,
    /// How many taps still put packets here.
    taps: usize,
}

/// A queue of packets with a bound.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    news: Condvar,
    /// No further packet is wanted. It is set while the state is held, and looked at for
    /// each packet.
    is_over: AtomicBool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left counts and bytes that fit each other, because no change
        // is half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more puts packets here.
    pub(super) fn enter(&self) {
        self.state().taps += 1;
    }

    /// A tap puts no further packets here. When none is left, the writer ends.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.taps -= 1;
        if state.taps == 0 {
            self.is_over.store(true, Ordering::Release);
            self.news.notify_one();
        }
    }

    /// Ends the capture: waiting packets are still written.
    pub(crate) fn stop(&self) {
        let state = self.state();
        self.is_over.store(true, Ordering::Release);
        self.news.notify_one();
        drop(state);
    }

    /// Whether the capture has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The counts of the packets that have passed so far.
    pub(crate) fn tally(&self) -> Tally {
        self.state().tally
    }

    /// Puts a packet whose kept bytes are `pieces`, if there is room; a piece of a connection's
    /// bytes with where it goes.
    pub(super) fn put(&self, head: Head, stream: Option<Streamed>, pieces: &[&[u8]]) {
        let mut state = self.state();
        state.tally.seen += 1;
        let before = state.waiting.size();
        let more = head.kept as usize + size_of::<Head>() + stream.map_or(0, |_| size_of::<Streamed>());
        if before + more > WAITING_MAX {
            state.tally.lost += 1;
            return;
        }
        state.waiting.heads.push(head);
        state.waiting.streams.extend(stream);
        pieces.iter().for_each(|piece| state.waiting.bytes.extend_from_slice(piece));
        debug_assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), head.kept as usize);
        if before == 0 || (before < BATCH && before + more >= BATCH) {
            self.news.notify_one();
        }
    }

    /// Waits for packets, and takes all that wait into `batch`, whose memory is used again. Returns
    /// false when there are none and will be none.
    pub(super) fn take(&self, batch: &mut Batch) -> bool {
        batch.clear();
        let mut state = self.state();
        while state.waiting.heads.is_empty() {
            if self.is_over() {
                return false;
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.waiting.size() < BATCH && !self.is_over() {
            let waited = self.news.wait_timeout(state, MOMENT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut state.waiting, batch);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kept: u32) -> Head {
        Head { at: Instant::ZERO, direction: Direction::Up, port: 0, is_stream: false, kept, original: kept }
    }

    #[test]
    fn packets_come_out_as_they_went_in_and_what_finds_no_room_is_counted() {
        let queue = Queue::default();
        queue.enter();
        queue.put(head(3), None, &[&[1], &[2, 3]]);
        queue.put(head(0), None, &[]);
        queue.put(head(1), None, &[&[4]]);
        let mut batch = Batch::default();
        assert!(queue.take(&mut batch));
        let packets: Vec<_> = batch.packets().map(|(.., bytes)| bytes.to_vec()).collect();
        assert_eq!(packets, [vec![1, 2, 3], vec![], vec![4]]);
        let large = vec![0; WAITING_MAX / 3];
        for _ in 0..4 {
            queue.put(head(u32::try_from(large.len()).unwrap()), None, &[&large]);
        }
        assert_eq!(queue.tally(), Tally { seen: 7, lost: 2 });
        queue.leave();
        assert!(queue.is_over() && queue.take(&mut batch));
        assert_eq!(batch.packets().count(), 2);
        assert!(!queue.take(&mut batch));
    }

    #[test]
    fn a_writer_that_waits_is_woken_by_a_packet_and_by_the_end() {
        let queue = Queue::default();
        queue.enter();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut batch, mut count) = (Batch::default(), 0);
                while queue.take(&mut batch) {
                    count += batch.packets().count();
                }
                count
            });
            queue.put(head(0), None, &[]);
            std::thread::yield_now();
            queue.put(head(0), None, &[]);
            queue.leave();
            assert_eq!(writer.join().unwrap(), 2);
        });
    }
}
