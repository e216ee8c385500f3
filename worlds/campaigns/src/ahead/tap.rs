//! Compares the stream from the host's end of a tunnel to the device's with the data that the
//! device could have read by itself.
//!
//! Nothing here uses the engines' code: entries, lists and descriptors are followed anew, from the
//! bytes that were sent.

use std::collections::{BTreeMap, VecDeque};

use memchr::memmem;

use super::memory::{CANARY, Moment, Shared};

const HEADER: usize = 12;
const AHEAD: u8 = 0x13;
const FORGET: u8 = 0x14;
const AHEAD_HEAD: usize = 16;
const ONCE: u8 = 1;
const ENTRY: u64 = 64;
/// The opcode of Create I/O Submission Queue.
const CREATE_SUBMISSION: u8 = 0x01;
/// Number of doorbells by which one address was rung without being sent ahead. With a host that
/// keeps the rules there is at most one.
const RUNG_MAX: usize = 4;
const FAILURES_MAX: usize = 8;
const ANYTHING: (u64, u64) = (0, u64::MAX - 3);

/// A submission queue, as the host's commands have created it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) base: u64,
    pub(super) entries: u32,
    pub(super) tail: u32,
}

/// A doorbell that the host has rung.
#[derive(Clone, Copy, Debug)]
struct Ring {
    id: u16,
    tail: u32,
    since: Moment,
    /// Whether the function could read host memory when the doorbell was rung.
    enabled: bool,
}

/// A submission queue whose creation the host has requested.
#[derive(Clone, Copy, Debug)]
struct Asked {
    id: u16,
    base: u64,
    entries: u32,
    /// Number of doorbells rung before the host saw the completion; `None` while it has not. A
    /// completion that was overwritten is never seen.
    answered: Option<usize>,
}

/// The unknowns once the host has rung its admin queue at random, or has used a command identifier
/// twice: which of the requested queues exist, and from which entry on they are read. Entries of
/// any requested queue that were rung may then be sent ahead.
#[derive(Debug, Default)]
struct Doubt {
    doubted: bool,
    /// The submission queues whose creation the host has requested since it enabled the controller,
    /// and those that entries left in the admin queue request.
    asked: Vec<Asked>,
    rung: Vec<Ring>,
}

impl Doubt {
    /// The queue of the entry at `address` and the moment when it was first rung, if it was rung.
    fn find(&self, address: u64) -> Option<(u16, Moment)> {
        self.asked.iter().find_map(|&Asked { id, base, entries, answered }| {
            let slot = u32::try_from(address.checked_sub(base)? / ENTRY).ok()?;
            let open = answered.filter(|_| !self.doubted).unwrap_or(self.rung.len());
            let rings = || self.rung[..open].iter().filter(|ring| ring.id == id && ring.tail < entries);
            // The entry lies below a tail, or above a tail that was rung before a lower one.
            let below = |ring: &&Ring| ring.enabled && slot < ring.tail;
            let above = |(one, next): (&Ring, &Ring)| {
                next.enabled && next.tail <= one.tail && (one.tail..entries).contains(&slot)
            };
            let first = rings().next()?;
            let rung = rings().any(|ring| below(&ring)) || rings().zip(rings().skip(1)).any(above);
            rung.then_some((id, first.since))
        })
    }
}

/// The memory that a command may still name, after some of it was sent ahead.
#[derive(Debug)]
struct Named {
    /// The moment when the command's doorbell was rung.
    since: Moment,
    /// Number of bytes that were sent ahead.
    bytes: u64,
    /// The first address and the end of each piece of the command's data.
    data: Vec<(u64, u64)>,
    /// Address, length and kind of the next list; true for a list of PRPs.
    list: Option<(u64, u64, bool)>,
    /// Number of bytes of data whose address is not known yet.
    left: u64,
    to_controller: bool,
}

/// Watches a tunnel's stream, and compares the memory sent ahead with the data that the device
/// could have read.
#[derive(Debug)]
pub(super) struct Tap {
    memory: Shared,
    /// Length of a block of the disk in bytes.
    block: u64,
    /// Number of bytes that the other end keeps.
    window: u64,
    /// Whether the host's commands may name unused memory.
    unruly: bool,
    stream: Vec<u8>,
    queues: BTreeMap<u16, Queue>,
    /// Entries that were rung and not sent ahead, by address: each with its queue and the moment
    /// when it was rung.
    rung: BTreeMap<u64, VecDeque<(u16, Moment)>>,
    /// Entries that were rung while the function could not read memory. The function may read them
    /// once it can.
    held: Vec<(u64, u16, Moment)>,
    named: BTreeMap<u32, Named>,
    /// The unknowns of the controller since it was last enabled, and of the time before.
    doubts: [Doubt; 2],
    /// The first key on this connection whose entry was seen. The entries of earlier keys may be
    /// lost.
    first: Option<u32>,
    out: u64,
    /// Number of pieces that were sent ahead.
    pub(super) pieces: u64,
    pub(super) failures: Vec<String>,
}

impl Tap {
    pub(super) fn new(memory: Shared, block: u64, window: u32, unruly: bool) -> Self {
        Self {
            memory,
            block,
            window: window.into(),
            unruly,
            stream: Vec::new(),
            queues: BTreeMap::new(),
            rung: BTreeMap::new(),
            held: Vec::new(),
            named: BTreeMap::new(),
            doubts: [Doubt::default(), Doubt::default()],
            first: None,
            out: 0,
            pieces: 0,
            failures: Vec::new(),
        }
    }

    fn fail(&mut self, what: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(what);
        }
    }

    /// Begins a new connection.
    pub(super) fn on_connection(&mut self) {
        self.stream.clear();
        (self.out, self.first) = (0, None);
        for named in self.named.values_mut() {
            named.bytes = 0;
            if named.list.is_some() {
                // The list may have been lost with the old connection.
                named.data.push(ANYTHING);
            }
        }
    }

    /// Begins anew with keys, as the link has come up or gone down.
    pub(super) fn on_link(&mut self) {
        self.named.clear();
        (self.out, self.first) = (0, None);
    }

    /// Begins anew, as the host was restarted.
    pub(super) fn restart(&mut self) {
        self.on_connection();
        self.named.clear();
        self.queues.clear();
        self.rung.clear();
        self.held.clear();
    }

    /// Notes that the host enables its controller.
    pub(super) fn enable(&mut self) {
        self.doubts.swap(0, 1);
        self.doubts[0] = Doubt::default();
    }

    /// Notes that the host requests a submission queue.
    pub(super) fn ask(&mut self, id: u16, base: u64, entries: u32) {
        self.doubts[0].asked.push(Asked { id, base, entries, answered: None });
    }

    /// Notes that the host has seen the completion of a request for a submission queue.
    pub(super) fn answer(&mut self, id: u16, base: u64) {
        let Doubt { asked, rung, .. } = &mut self.doubts[0];
        for asked in asked.iter_mut().filter(|asked| (asked.id, asked.base) == (id, base)) {
            asked.answered.get_or_insert(rung.len());
        }
    }

    /// Notes that the entries that the controller finds in the admin queue are unknown.
    pub(super) fn doubt(&mut self) {
        self.doubts[0].doubted = true;
        let Some(&Queue { base, entries, .. }) = self.queues.get(&0) else { return };
        let memory = self.memory.borrow();
        for slot in 0..u64::from(entries) {
            let entry = memory.slice(base + slot * ENTRY, 64).expect("the admin queue is in memory");
            let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            if entry[0] == CREATE_SUBMISSION {
                let base = u64::from_le_bytes(*entry[24..].first_chunk().expect("8 bytes"));
                let (id, entries) = (half(40), u32::from(half(42)) + 1);
                self.doubts[0].asked.push(Asked { id, base, entries, answered: Some(0) });
            }
        }
    }

    /// Notes that a queue exists from now on.
    pub(super) fn create(&mut self, id: u16, base: u64, entries: u32) {
        self.queues.insert(id, Queue { base, entries, tail: 0 });
    }

    /// Notes that a queue no longer exists. Entries that were rung before may still be sent ahead.
    pub(super) fn delete(&mut self, id: u16) {
        self.queues.remove(&id);
    }

    /// Notes that no queue exists any more.
    pub(super) fn delete_all(&mut self) {
        self.queues.clear();
    }

    /// Notes that the host rings a doorbell. `enabled` says whether the function and all ports
    /// above it may read host memory.
    pub(super) fn ring(&mut self, id: u16, tail: u32, enabled: bool) {
        let since = self.memory.borrow().moment();
        self.doubts[0].rung.push(Ring { id, tail, since, enabled });
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if tail >= queue.entries {
            return;
        }
        while queue.tail != tail {
            let address = queue.base.wrapping_add(u64::from(queue.tail) * ENTRY);
            self.held.push((address, id, since));
            queue.tail = (queue.tail + 1) % queue.entries;
        }
        if enabled {
            self.allow();
        }
    }

    /// Notes that the function may read memory from now on, entries that were rung earlier
    /// included.
    pub(super) fn allow(&mut self) {
        self.doubts[0].rung.iter_mut().for_each(|ring| ring.enabled = true);
        for (address, id, since) in self.held.drain(..) {
            let rung = self.rung.entry(address).or_default();
            rung.push_back((id, since));
            if rung.len() > RUNG_MAX {
                rung.pop_front();
            }
        }
    }

    /// Takes the next bytes of the stream to the device.
    pub(super) fn scan(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
        let stream = std::mem::take(&mut self.stream);
        let mut rest = &stream[..];
        while rest.len() >= HEADER {
            let length = HEADER + usize::from(u16::from_be_bytes([rest[2], rest[3]]));
            if rest.len() < length {
                break;
            }
            let (frame, after) = rest.split_at(length);
            rest = after;
            match frame[0] {
                AHEAD => self.on_ahead(&frame[HEADER..]),
                FORGET => self.on_forget(&frame[HEADER..]),
                _ => {}
            }
            if frame[0] == AHEAD && !self.unruly && memmem::find(frame, &CANARY).is_some() {
                self.fail("unused memory went ahead".into());
            }
        }
        self.stream = rest.to_vec();
    }

    fn on_forget(&mut self, keys: &[u8]) {
        for key in keys.as_chunks::<4>().0 {
            match u32::from_be_bytes(*key) {
                0 => {
                    self.named.clear();
                    self.out = 0;
                }
                key => {
                    let named = self.named.remove(&key);
                    self.out -= named.map_or(0, |named| named.bytes);
                }
            }
        }
    }

    fn on_ahead(&mut self, body: &[u8]) {
        let (head, bytes) = body.split_at(AHEAD_HEAD);
        let quad = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let address = quad(0);
        let key = u32::from_be_bytes(head[8..12].try_into().expect("4 bytes"));
        let once = head[15] & ONCE != 0;
        self.pieces += 1;
        self.out += bytes.len() as u64;
        if self.out > self.window {
            self.fail(format!("{} B are out, where {} fit", self.out, self.window));
        }
        if self.memory.borrow().slice(address, bytes.len()).is_none() {
            return self.fail(format!("data were sent ahead for {address:#x}, which is no memory"));
        }
        if !self.named.contains_key(&key) && !once && self.first.is_none_or(|first| key < first) {
            // The command's entry was on a connection that was lost.
            let since = Moment(0);
            let data = vec![ANYTHING];
            let named = Named { since, bytes: 0, data, list: None, left: 0, to_controller: true };
            self.named.insert(key, named);
        }
        if !self.named.contains_key(&key) {
            self.first = self.first.or(Some(key));
            let rung = self.rung.get_mut(&address).and_then(|rung| {
                // Where an I/O queue overlaps the admin queue, the host's ring does not say which
                // of them is meant.
                let index = rung.iter().position(|&(queue, _)| queue != 0).unwrap_or(0);
                rung.remove(index)
            });
            let rung = rung.or_else(|| self.doubts.iter().find_map(|doubt| doubt.find(address)));
            let Some((queue, since)) = rung.filter(|_| once && bytes.len() == 64) else {
                return self.fail(format!("{} B at {address:#x} are of no doorbell", bytes.len()));
            };
            let named = self.begin(queue, since, bytes);
            self.named.insert(key, named);
        } else if once {
            return self.fail(format!("a second entry at {address:#x} with key {key}"));
        } else if !self.is_named(key, address, bytes) {
            let named = &self.named[&key];
            return self.fail(format!("{} B at {address:#x} are not named: {named:x?}", bytes.len()));
        }
        let named = self.named.get_mut(&key).expect("it was found");
        named.bytes += bytes.len() as u64;
        let since = named.since;
        let judged = self.memory.borrow().judge(since, address, bytes);
        if let Err(at) = judged {
            self.fail(format!(
                "byte {at} of the data sent ahead for {address:#x} was not there since the doorbell"
            ));
        }
    }

    /// Whether the command with `key` names this piece; follows the command's lists.
    fn is_named(&mut self, key: u32, address: u64, bytes: &[u8]) -> bool {
        let Some(named) = self.named.get_mut(&key) else { return false };
        let end = address + bytes.len() as u64;
        let covers = |&(first, last): &(u64, u64)| first & !3 <= address && end <= last.next_multiple_of(4);
        if named.data.iter().any(covers) {
            return true;
        }
        match named.list {
            Some((at, length, of_prps)) if at == address && length >= bytes.len() as u64 => {
                named.list = None;
                if of_prps {
                    named.on_prps(bytes)
                } else {
                    named.on_descriptors(bytes)
                }
                true
            }
            _ => false,
        }
    }

    fn begin(&self, queue: u16, since: Moment, entry: &[u8]) -> Named {
        let quad = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("4 bytes"));
        let blocks = u64::from(word(48) & 0xffff) + 1;
        let (left, to_controller) = match entry[0] {
            _ if queue == 0 => (0, false),
            0x01 | 0x05 => (blocks * self.block, true),
            0x02 => (blocks * self.block, false),
            0x09 => ((u64::from(word(40) & 0xff) + 1) * 16, true),
            0x19 => ((u64::from(word(48) & 0xff) + 1) * 32, true),
            0x0d | 0x11 => (16, true),
            0x15 => (8, true),
            _ => (0, false),
        };
        let mut named = Named { since, bytes: 0, data: Vec::new(), list: None, left, to_controller };
        let (first, second) = (quad(24), quad(32));
        if entry[1] >> 6 == 0 {
            named.data(first, 4096 - first % 4096);
            if named.left > 4096 {
                let entries = (4096 - second % 4096) / 8;
                named.list = Some((second, 8 * entries, true));
            } else if named.left > 0 {
                named.data(second, 4096);
            }
        } else {
            named.on_descriptors(&entry[24..40]);
        }
        named
    }
}

impl Named {
    fn data(&mut self, address: u64, most: u64) {
        let length = self.left.min(most);
        if self.to_controller && length > 0 && address.checked_add(length + 3).is_some() {
            self.data.push((address, address + length));
        }
        self.left -= length;
    }

    fn on_prps(&mut self, bytes: &[u8]) {
        let entries = bytes.as_chunks::<8>().0;
        for (index, entry) in entries.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            if index + 1 == entries.len() && self.left > 4096 {
                self.list = Some((entry, 4096 - entry % 4096, true));
            } else {
                self.data(entry, 4096);
            }
        }
    }

    fn on_descriptors(&mut self, bytes: &[u8]) {
        for descriptor in bytes.as_chunks::<16>().0 {
            let address = u64::from_le_bytes(*descriptor.first_chunk().expect("8 bytes"));
            let length = u32::from_le_bytes(descriptor[8..12].try_into().expect("4 bytes"));
            match descriptor[15] {
                0x00 => self.data(address, length.into()),
                0x20 | 0x30 => self.list = Some((address, length.into(), false)),
                _ => {}
            }
        }
    }
}
