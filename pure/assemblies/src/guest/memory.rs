//! Guest memory that can be reached by message only, and the order in which the function writes it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use engine::{Buffer, BufferMut, Pool};
use pcie::root_complex::MemoryReadToken;
use vfio_user::server::Cookie;

/// Accesses that the vfio-user server has at a time: as many as it takes.
const SENT_MAX: usize = vfio_user::DMA_MAX;
/// Limits on what waits until the server takes more, in bytes and in messages and signals. Beyond
/// either, nothing more is taken from the function.
const WAITING_BYTES_MAX: usize = 64 << 20;
const WAITING_MAX: usize = 1 << 16;
/// This bit marks the cookies of writes.
const WRITE: u64 = 1 << 63;

/// A read that waits for the client.
#[derive(Debug)]
struct Read {
    token: MemoryReadToken,
    bytes: BufferMut,
}

/// A message to the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Read this many bytes at this address.
    Read(Cookie, u64, usize),
    /// Write these bytes to this address.
    Write(Cookie, u64, Buffer),
    /// Write this message signaled interrupt to this address, where there is no memory.
    Interrupt(Cookie, u64, Buffer),
}

impl Message {
    /// Bytes of memory that the message is about.
    fn bytes(&self) -> usize {
        match self {
            Self::Read(_, _, length) => *length,
            Self::Write(_, _, data) | Self::Interrupt(_, _, data) => data.len(),
        }
    }
}

/// The meaning of a client's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A read has ended: with its bytes, or without if it failed.
    Read(MemoryReadToken, Option<Buffer>),
    /// A write has ended: [`ByMessage::poll_signal`] may have a vector now.
    Written,
    /// Either more data is to come, or the cookie is unknown.
    Nothing,
}

/// Guest memory that is reached by message: its regions, and the accesses in flight.
#[derive(Debug, Default)]
pub(super) struct ByMessage {
    /// First and last address of each region, in rising order.
    regions: Vec<(u64, u64)>,
    reads: BTreeMap<u64, Read>,
    /// Serial number of the latest read or write.
    serial: u64,
    /// Number of messages the server has, and the messages that wait until it takes more.
    sent: usize,
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
    /// Serial numbers of the writes in their order, and whether each has ended.
    writes: VecDeque<(u64, bool)>,
    /// Vectors that wait for earlier writes, each with the serial number of the last of these.
    signals: VecDeque<(u64, usize)>,
}

impl ByMessage {
    /// Whether there is any such memory.
    pub(super) const fn is_any(&self) -> bool {
        !self.regions.is_empty()
    }

    /// From now on the memory at `address` can be reached by message.
    pub(super) fn add(&mut self, address: u64, length: u64) {
        let region = (address, address + (length - 1));
        let at = self.regions.partition_point(|other| *other < region);
        self.regions.insert(at, region);
    }

    /// The memory at `address` can no longer be reached by message. Returns whether it could.
    pub(super) fn remove(&mut self, address: u64, length: u64) -> bool {
        let region = (address, address.wrapping_add(length.wrapping_sub(1)));
        match self.regions.binary_search(&region) {
            Ok(at) => {
                self.regions.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether all of the access lies in one region that can be reached by message.
    pub(super) fn covers(&self, address: u64, length: u64) -> bool {
        if self.regions.is_empty() {
            return false;
        }
        let Some(last) = address.checked_add(length.saturating_sub(1)) else { return false };
        let at = self.regions.partition_point(|(first, _)| *first <= address);
        at.checked_sub(1).is_some_and(|at| self.regions[at].1 >= last)
    }

    /// The function reads `length` bytes.
    pub(super) fn read(&mut self, token: MemoryReadToken, address: u64, length: usize, pool: &mut Pool) {
        self.serial += 1;
        self.reads.insert(self.serial, Read { token, bytes: pool.take(length) });
        self.wait(Message::Read(Cookie(self.serial), address, length));
    }

    /// The function writes `data`.
    pub(super) fn write(&mut self, address: u64, data: Buffer) {
        self.serial += 1;
        self.writes.push_back((self.serial, false));
        self.wait(Message::Write(Cookie(WRITE | self.serial), address, data));
    }

    /// The function writes an interrupt, behind all earlier writes.
    pub(super) fn interrupt(&mut self, address: u64, data: Buffer) {
        self.serial += 1;
        self.writes.push_back((self.serial, false));
        self.wait(Message::Interrupt(Cookie(WRITE | self.serial), address, data));
    }

    fn wait(&mut self, message: Message) {
        self.waiting_bytes += message.bytes();
        self.waiting.push_back(message);
    }

    /// Whether more of the function's reads and writes may be taken.
    pub(super) fn has_room(&self) -> bool {
        let count = self.waiting.len().max(self.signals.len());
        self.waiting_bytes < WAITING_BYTES_MAX && count < WAITING_MAX
    }

    /// The next message to send, in the order in which the function asked.
    pub(super) fn poll_message(&mut self) -> Option<Message> {
        if self.sent >= SENT_MAX {
            return None;
        }
        let message = self.waiting.pop_front()?;
        self.waiting_bytes -= message.bytes();
        self.sent += 1;
        Some(message)
    }

    /// Part of a read has come.
    pub(super) fn on_data(
        &mut self,
        cookie: Cookie,
        offset: usize,
        data: &[u8],
        last: bool,
        pool: &mut Pool,
    ) -> Answer {
        self.sent = self.sent.saturating_sub(usize::from(last));
        let Some(read) = self.reads.get_mut(&cookie.0) else { return Answer::Nothing };
        if let Some(place) = read.bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..data.len())) {
            place.copy_from_slice(data);
        }
        if !last {
            return Answer::Nothing;
        }
        match self.reads.remove(&cookie.0) {
            Some(read) => Answer::Read(read.token, Some(pool.seal(read.bytes))),
            None => Answer::Nothing,
        }
    }

    /// A read or a write has ended without data.
    pub(super) fn on_end(&mut self, cookie: Cookie) -> Answer {
        self.sent = self.sent.saturating_sub(1);
        if cookie.0 & WRITE == 0 {
            return match self.reads.remove(&cookie.0) {
                Some(read) => Answer::Read(read.token, None),
                None => Answer::Nothing,
            };
        }
        let serial = cookie.0 & !WRITE;
        if let Ok(at) = self.writes.binary_search_by_key(&serial, |write| write.0) {
            self.writes[at].1 = true;
        }
        while self.writes.front().is_some_and(|write| write.1) {
            self.writes.pop_front();
        }
        Answer::Written
    }

    /// Whether a signal for `vector` must wait for writes. If so, the signal is kept.
    pub(super) fn holds_back(&mut self, vector: usize) -> bool {
        let waits = !self.writes.is_empty();
        // One signal of a vector is enough where nothing was written in between.
        let mut latest = self.signals.iter().rev().take_while(|(after, _)| *after == self.serial);
        if waits && latest.all(|(_, kept)| *kept != vector) {
            self.signals.push_back((self.serial, vector));
        }
        waits
    }

    /// A vector whose writes have all ended.
    pub(super) fn poll_signal(&mut self) -> Option<usize> {
        let (after, _) = self.signals.front()?;
        if self.writes.front().is_some_and(|(serial, _)| serial <= after) {
            return None;
        }
        self.signals.pop_front().map(|(_, vector)| vector)
    }

    /// The client has gone, or the function was reset: kept signals mean nothing any more.
    pub(super) fn forget_signals(&mut self) {
        self.signals.clear();
    }

    /// The client has gone. Returns the reads that will never be answered.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = MemoryReadToken> + use<> {
        self.regions.clear();
        self.waiting.clear();
        (self.waiting_bytes, self.sent) = (0, 0);
        self.writes.clear();
        self.signals.clear();
        core::mem::take(&mut self.reads).into_values().map(|read| read.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_must_lie_in_one_region() {
        let mut memory = ByMessage::default();
        assert!(!memory.covers(0, 4));
        memory.add(0x2000, 0x1000);
        memory.add(0x1000, 0x800);
        memory.add(u64::MAX - 0xfff, 0x1000);
        for (address, length, covered) in [
            (0x1000, 0x800, true),
            (0x17ff, 2, false),
            (0xfff, 2, false),
            (0x2ffc, 4, true),
            (0x2ffd, 4, false),
            (u64::MAX - 3, 4, true),
            (u64::MAX - 3, 5, false),
        ] {
            assert_eq!(memory.covers(address, length), covered, "{address:#x}..+{length}");
        }
        assert!(memory.remove(0x2000, 0x1000) && !memory.remove(0x2000, 0x1000));
        assert!(!memory.covers(0x2000, 4));
    }

    fn sent(memory: &mut ByMessage) -> Cookie {
        match memory.poll_message().expect("something is to be sent") {
            Message::Read(cookie, ..) | Message::Write(cookie, ..) | Message::Interrupt(cookie, ..) => cookie,
        }
    }

    #[test]
    fn a_signal_waits_for_the_writes_before_it_and_for_no_others() {
        let mut memory = ByMessage::default();
        let write = |memory: &mut ByMessage| {
            memory.write(0, Buffer::zeroed(4));
            sent(memory)
        };
        assert!(!memory.holds_back(0));
        let (first, second) = (write(&mut memory), write(&mut memory));
        assert!(memory.holds_back(3));
        let third = write(&mut memory);
        assert_eq!(memory.on_end(second), Answer::Written);
        assert_eq!(memory.poll_signal(), None);
        memory.on_end(first);
        assert_eq!((memory.poll_signal(), memory.poll_signal()), (Some(3), None));
        memory.on_end(third);
        assert!(!memory.holds_back(0));
    }

    #[test]
    fn vectors_that_take_turns_wait_once_each() {
        let mut memory = ByMessage::default();
        memory.write(0, Buffer::zeroed(4));
        let write = sent(&mut memory);
        for round in 0..6 {
            assert!(memory.holds_back(round % 2));
        }
        memory.on_end(write);
        let signals: Vec<_> = core::iter::from_fn(|| memory.poll_signal()).collect();
        assert_eq!(signals, [0, 1]);
    }

    #[test]
    fn a_read_is_put_together_from_its_parts() {
        let (mut memory, mut pool) = (ByMessage::default(), Pool::default());
        memory.read(MemoryReadToken(7), 0x1000, 8, &mut pool);
        let cookie = sent(&mut memory);
        assert_eq!(memory.on_data(cookie, 4, &[5, 6, 7, 8], false, &mut pool), Answer::Nothing);
        // A part that does not fit must not panic.
        assert_eq!(memory.on_data(cookie, 6, &[0; 4], false, &mut pool), Answer::Nothing);
        let Answer::Read(MemoryReadToken(7), Some(bytes)) =
            memory.on_data(cookie, 0, &[1, 2, 3, 4], true, &mut pool)
        else {
            panic!("the read has ended")
        };
        assert_eq!(*bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(memory.on_end(cookie), Answer::Nothing);
    }

    #[test]
    fn what_the_server_does_not_take_waits_and_keeps_its_order() {
        let mut memory = ByMessage::default();
        for index in 0..=SENT_MAX as u64 {
            memory.write(index * 4, Buffer::zeroed(4));
        }
        let cookies: Vec<_> = (0..SENT_MAX).map(|_| sent(&mut memory)).collect();
        assert_eq!(memory.poll_message(), None);
        memory.on_end(cookies[5]);
        let Some(Message::Write(_, address, _)) = memory.poll_message() else { panic!("there is room") };
        assert_eq!(address, SENT_MAX as u64 * 4);
    }

    #[test]
    fn what_waits_has_a_limit() {
        let mut memory = ByMessage::default();
        let mut count = 0;
        while memory.has_room() {
            memory.write(0, Buffer::zeroed(WAITING_BYTES_MAX / 8));
            count += 1;
        }
        assert_eq!(count, 8);
        let first = sent(&mut memory);
        assert!(memory.has_room());
        memory.write(0, Buffer::zeroed(WAITING_BYTES_MAX / 8));
        assert!(!memory.has_room());
        memory.on_end(first);
        assert_eq!(memory.clear().count(), 0);
        assert!(memory.has_room());
    }
}
