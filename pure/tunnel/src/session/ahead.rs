//! The frames of lookahead. They are not numbered: memory that a lost connection swallows, the
//! device reads from the host.

use alloc::collections::VecDeque;

use engine::{Buffer, Crc32c, Instant};
use serde::{Deserialize, Serialize};

use super::{Item as Received, Output, Session};
use crate::frame::{
    AHEAD_HEAD, Ahead, AheadKey, FORGET_KEYS_MAX, Frame, FrameKind, HEADER_LENGTH, Keys, Sequence, Tally,
    seal, trailer,
};

const KEY_BYTES: usize = size_of::<AheadKey>();
/// The most keys that may wait. With more, all memory sent ahead is forgotten.
const KEYS_MAX: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
enum Item {
    Memory(Ahead, Buffer),
    /// Forgets the next keys of the queue, as many as this.
    Forget(usize),
}

impl Item {
    fn length(&self) -> usize {
        match self {
            Self::Memory(_, bytes) => HEADER_LENGTH + AHEAD_HEAD + bytes.len(),
            Self::Forget(keys) => HEADER_LENGTH + keys * KEY_BYTES,
        }
    }
}

/// Frames of lookahead that wait for the next segment, in order of arrival.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AheadQueue {
    /// Bytes of memory that the peer keeps; 0 if it takes none.
    window: u32,
    /// Each frame, with the first number that it goes ahead of.
    items: VecDeque<(Sequence, Item)>,
    keys: VecDeque<AheadKey>,
    length: usize,
}

impl AheadQueue {
    pub(super) const fn new(window: u32) -> Self {
        Self { window, items: VecDeque::new(), keys: VecDeque::new(), length: 0 }
    }
    pub(super) const fn window(&self) -> u32 {
        self.window
    }
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// Bytes of all frames, digests included.
    pub(super) fn length_max(&self, digest: Option<Crc32c>) -> usize {
        self.length + self.items.len() * trailer(FrameKind::Ahead, digest)
    }
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.keys.clear();
        self.length = 0;
    }
    /// Queues a piece of memory, or returns false if too much waits already. A host may ring
    /// doorbells faster than the link sends, and goes on ringing without a connection.
    pub(super) fn push(&mut self, next: Sequence, ahead: Ahead, bytes: Buffer) -> bool {
        let item = Item::Memory(ahead, bytes);
        let window = usize::try_from(self.window).unwrap_or(usize::MAX);
        // The window bounds the memory in use. Twice the window has room for forgotten pieces that
        // are unsent, and for headers.
        if self.length + item.length() > window.saturating_mul(2) {
            return false;
        }
        self.length += item.length();
        self.items.push_back((next, item));
        true
    }
    pub(super) fn forget(&mut self, next: Sequence, key: AheadKey) {
        if self.keys.len() >= KEYS_MAX {
            self.clear();
            return self.forget(next, AheadKey::ALL);
        }
        self.keys.push_back(key);
        self.length += KEY_BYTES;
        match self.items.back_mut() {
            Some((_, Item::Forget(keys))) if *keys < FORGET_KEYS_MAX => *keys += 1,
            _ => {
                self.items.push_back((next, Item::Forget(1)));
                self.length += HEADER_LENGTH;
            }
        }
    }
    /// Whether the first queued frame goes before frame `from`. Frame `next` does not exist yet.
    #[inline]
    pub(super) fn is_due(&self, from: Sequence, next: Sequence) -> bool {
        self.items.front().is_some_and(|(before, _)| !before.is_within(from.plus(1), next) || from == next)
    }
    /// Puts the first queued frame into `bytes` if there is room for it, and returns its length.
    pub(super) fn emit(
        &mut self,
        (sequence, acknowledge): (Sequence, Sequence),
        digest: Option<Crc32c>,
        bytes: &mut [u8],
    ) -> Option<usize> {
        let (_, item) = self.items.front()?;
        let length = item.length();
        if length + trailer(FrameKind::Ahead, digest) > bytes.len() {
            return None;
        }
        let emitted = match item {
            Item::Memory(ahead, memory) => Frame::Ahead(*ahead, memory).emit(sequence, acknowledge, bytes),
            &Item::Forget(count) => {
                let mut keys = [0; FORGET_KEYS_MAX * KEY_BYTES];
                let places = keys.as_chunks_mut::<KEY_BYTES>().0;
                for (place, key) in places.iter_mut().zip(self.keys.drain(..count)) {
                    *place = key.0.to_be_bytes();
                }
                Frame::Forget(Keys(&keys[..count * KEY_BYTES])).emit(sequence, acknowledge, bytes)
            }
        };
        self.length -= length;
        self.items.pop_front();
        Some(seal(digest, bytes, emitted))
    }
}

impl Session {
    /// How many bytes of memory sent ahead the peer keeps. 0 while the link is down or if the peer
    /// takes none.
    pub fn ahead_window(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.ahead.window())
    }
    /// Sends memory ahead of the packets that are sent from now on, in the next segment. The peer
    /// must take memory ahead ([`Session::ahead_window`]), and the caller keeps to the peer's
    /// limit. False if the memory is not sent, because there is no link or too much waits for it.
    pub fn send_ahead(&mut self, ahead: Ahead, bytes: Buffer) -> bool {
        let link = self.link.as_mut().filter(|link| link.ahead.window() > 0);
        link.is_some_and(|link| link.ahead.push(link.next(), ahead, bytes))
    }
    /// Makes the peer forget the memory sent ahead with `key` before it sees any packet that is
    /// sent from now on.
    pub fn forget_ahead(&mut self, key: AheadKey) {
        if let Some(link) = self.link.as_mut().filter(|link| link.ahead.window() > 0) {
            link.ahead.forget(link.next(), key);
        }
    }

    /// Answers [`Output::WantsTally`]. The tally goes with the Pong that is due. If none is due any
    /// more, the link that asked is down, and the next one may want no tally.
    pub(crate) fn report_tally(&mut self, tally: Tally) {
        let is_wanted = self.pong_due.is_some() && self.link.as_ref().is_some_and(|link| link.tallied);
        self.tally_due = is_wanted.then_some(tally);
    }
    /// The peer's latest tally of memory sent ahead in this session, if any, and when the Ping was
    /// sent that asked for it ([`Session::ping`]). The tally counts all memory sent before that
    /// Ping.
    pub fn tally(&self) -> Option<(Instant, &Tally)> {
        self.link.as_ref()?.tally.as_ref().map(|(asked, tally)| (*asked, tally))
    }
    /// The next received item, if it is memory sent ahead: when it came, and the contents of
    /// [`Output::Ahead`].
    #[inline]
    pub(crate) fn poll_ahead(&mut self) -> Option<(Instant, Ahead, Buffer)> {
        if !matches!(self.items.front()?, Received::Output(Output::Ahead(..))) {
            return None;
        }
        match self.items.pop_front() {
            Some(Received::Output(Output::Ahead(ahead, bytes))) => Some((self.now, ahead, bytes)),
            _ => unreachable!("the first item was looked at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcie::wire::Bdf;

    #[test]
    fn who_cannot_send_gathers_no_more_than_twice_the_window() {
        let mut queue = AheadQueue::new(4096);
        let mut sent = 0;
        for number in 1..100_000_u32 {
            let key = AheadKey(number);
            let ahead =
                Ahead { address: 0x1000, key, completer: Bdf::new(0, 0, 0), payload_size: 128, once: true };
            let before = queue.length_max(None);
            let pushed = queue.push(Sequence::FIRST, ahead, Buffer::zeroed(64));
            assert_eq!(pushed, queue.length_max(None) > before, "a sender learns what is not sent");
            sent += u32::from(pushed);
            queue.forget(Sequence::FIRST, key);
            let keys = KEYS_MAX * (KEY_BYTES + HEADER_LENGTH);
            assert!(queue.length_max(None) <= 2 * 4096 + keys, "{} B wait", queue.length_max(None));
        }
        assert!((1..100_000).contains(&sent), "{sent} pieces were sent");
        // Dropped pieces are forgotten by the key that stands for all.
        let mut bytes = [0; 1 << 16];
        let sequence = (Sequence::FIRST, Sequence::FIRST);
        let mut length = 0;
        while let Some(more) = queue.emit(sequence, None, &mut bytes[length..]) {
            length += more;
        }
        assert_eq!((bytes[0], &bytes[HEADER_LENGTH..HEADER_LENGTH + KEY_BYTES]), (0x14, &[0; 4][..]));
        assert!(queue.is_empty() && queue.length_max(None) == 0 && length > 0);
    }
}
