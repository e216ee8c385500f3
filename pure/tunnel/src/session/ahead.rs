//! Lookahead's frames. They are not numbered: what a lost connection swallows, the device reads from the host.

use alloc::collections::VecDeque;

use engine::{Buffer, Instant};

use super::{Item as Received, Output, Session};
use crate::frame::{
    AHEAD_HEAD, Ahead, AheadKey, FORGET_KEYS_MAX, Frame, HEADER_LENGTH, Keys, Sequence, Tally,
};

const KEY_BYTES: usize = size_of::<AheadKey>();

#[derive(Debug)]
enum Item {
    Memory(Ahead, Buffer),
    /// So many keys, the next ones.
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

/// What waits for the next segment, in the order in which it came.
#[derive(Debug)]
pub(super) struct AheadQueue {
    /// Bytes that the peer keeps; 0 if it takes none.
    window: u32,
    items: VecDeque<Item>,
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
    /// Bytes of all frames.
    pub(super) const fn length_max(&self) -> usize {
        self.length
    }
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.keys.clear();
        self.length = 0;
    }
    pub(super) fn push(&mut self, ahead: Ahead, bytes: Buffer) {
        let item = Item::Memory(ahead, bytes);
        self.length += item.length();
        self.items.push_back(item);
    }
    pub(super) fn forget(&mut self, key: AheadKey) {
        self.keys.push_back(key);
        self.length += KEY_BYTES;
        match self.items.back_mut() {
            Some(Item::Forget(keys)) if *keys < FORGET_KEYS_MAX => *keys += 1,
            _ => {
                self.items.push_back(Item::Forget(1));
                self.length += HEADER_LENGTH;
            }
        }
    }
    /// Puts as many frames into `bytes` as there is room for, and returns their length.
    pub(super) fn emit(&mut self, (sequence, acknowledge): (Sequence, Sequence), bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while let Some(item) = self.items.front() {
            let length = item.length();
            if length > bytes.len() - at {
                break;
            }
            let place = &mut bytes[at..];
            at += match item {
                Item::Memory(ahead, memory) => {
                    Frame::Ahead(*ahead, memory).emit(sequence, acknowledge, place)
                }
                &Item::Forget(count) => {
                    let mut keys = [0; FORGET_KEYS_MAX * KEY_BYTES];
                    let places = keys.as_chunks_mut::<KEY_BYTES>().0;
                    for (place, key) in places.iter_mut().zip(self.keys.drain(..count)) {
                        *place = key.0.to_be_bytes();
                    }
                    Frame::Forget(Keys(&keys[..count * KEY_BYTES])).emit(sequence, acknowledge, place)
                }
            };
            self.length -= length;
            self.items.pop_front();
        }
        at
    }
}

impl Session {
    /// How many bytes of memory that is sent ahead the peer keeps; 0 while the link is down, or if it takes none.
    pub fn ahead_window(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.ahead.window())
    }
    /// Sends memory ahead of the packets that are sent from now on, in the next segment. The peer must take such, see
    /// [`Session::ahead_window`], and it is for the caller that it is not more than that.
    pub fn send_ahead(&mut self, ahead: Ahead, bytes: Buffer) {
        if let Some(link) = self.link.as_mut().filter(|link| link.ahead.window() > 0) {
            link.ahead.push(ahead, bytes);
        }
    }
    /// The peer forgets what was sent ahead with `key` before it sees any packet that is sent from now on.
    pub fn forget_ahead(&mut self, key: AheadKey) {
        if let Some(link) = self.link.as_mut().filter(|link| link.ahead.window() > 0) {
            link.ahead.forget(key);
        }
    }

    /// The answer to [`Output::WantsTally`]; goes with the Pong that is due.
    pub(crate) const fn tell_tally(&mut self, tally: Tally) {
        self.tally_due = Some(tally);
    }
    /// What the peer said last of the memory that was sent ahead in this session, if it has said anything; and when it was
    /// asked ([`Session::ping`]): all that was sent before has been counted.
    pub fn tally(&self) -> Option<(Instant, &Tally)> {
        self.link.as_ref()?.tally.as_ref().map(|(asked, tally)| (*asked, tally))
    }
    /// The next thing received, if it is memory that was sent ahead: when it came, and what [`Output::Ahead`] says.
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
