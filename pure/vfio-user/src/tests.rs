//! Both ends in memory: the stream is divided anywhere, answers are in any order, both ends send
//! requests at once, and descriptors are counted.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Engine as _, Instant};
use proptest::prelude::*;

use crate::client::{self, Answer, Client, RequestId};
use crate::server::{self, Cookie, InterruptConfig, RegionConfig, Server};
use crate::test_bench::{Counted, Counter};
use crate::wire::{DmaMap, DmaUnmap, RegionAccess, SingleWrite};
use crate::{Area, Errno, InterruptAction, InterruptData, InterruptIndex, RegionIndex, Token};

const NOW: Instant = Instant::ZERO;
const PAGE: u64 = 4096;
const VECTORS: u32 = 40;

/// One direction of a socket: each send with its descriptors, as Linux keeps it.
#[derive(Default)]
struct Pipe(VecDeque<(Vec<u8>, Vec<Counted>)>);

impl Pipe {
    /// Reads like Linux: across several sends, but not beyond one with descriptors.
    fn read(&mut self, length: usize) -> Option<(Vec<u8>, Vec<Counted>)> {
        let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
        while bytes.len() < length && descriptors.is_empty() {
            let Some((sent, attached)) = self.0.front_mut() else { break };
            let taken = sent.len().min(length - bytes.len());
            bytes.extend(sent.drain(..taken));
            descriptors.append(attached);
            if sent.is_empty() {
                self.0.pop_front();
            }
        }
        (!bytes.is_empty()).then_some((bytes, descriptors))
    }
}

/// The byte at a place of a region or of memory.
fn byte_at(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16).to_le_bytes()[0]
}
fn bytes_at(at: u64, length: usize) -> Vec<u8> {
    (at..).take(length).map(byte_at).collect()
}

#[derive(Clone, Debug)]
enum Operation {
    /// A request by the client.
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        length: usize,
        posted: bool,
    },
    WriteMultiple {
        offset: u64,
        count: usize,
    },
    Map {
        page: u64,
        pages: u64,
        shared: bool,
    },
    Unmap {
        page: u64,
        pages: u64,
    },
    UnmapAll,
    SetInterrupts {
        start: u32,
        count: usize,
    },
    TearDown,
    RegionInfo,
    Reset,
    /// A request by the server.
    DmaRead {
        address: u64,
        length: usize,
    },
    DmaWrite {
        address: u64,
        length: usize,
    },
    /// This many bytes cross to the other end.
    ToServer(usize),
    ToClient(usize),
    /// One of the waiting requests is answered.
    ServerAnswers(usize),
    ClientAnswers(usize),
    Reconnect,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        3 => (0..5000_u64, 1..5000_u32).prop_map(|(offset, length)| Read { offset, length }),
        3 => (0..5000_u64, 1..5000_usize, any::<bool>())
            .prop_map(|(offset, length, posted)| Write { offset, length, posted }),
        1 => (0..4000_u64, 1..40_usize).prop_map(|(offset, count)| WriteMultiple { offset, count }),
        3 => (0..16_u64, 1..5_u64, any::<bool>()).prop_map(|(page, pages, shared)| Map { page, pages, shared }),
        2 => (0..16_u64, 1..5_u64).prop_map(|(page, pages)| Unmap { page, pages }),
        1 => Just(UnmapAll),
        2 => (0..VECTORS + 2, 0..18_usize).prop_map(|(start, count)| SetInterrupts { start, count }),
        1 => Just(TearDown),
        1 => Just(RegionInfo),
        1 => Just(Reset),
        4 => (0..16 * PAGE, 0..10_000_usize).prop_map(|(address, length)| DmaRead { address, length }),
        4 => (0..16 * PAGE, 0..10_000_usize).prop_map(|(address, length)| DmaWrite { address, length }),
        12 => prop_oneof![1..40_usize, 1..20_000_usize].prop_map(ToServer),
        12 => prop_oneof![1..40_usize, 1..20_000_usize].prop_map(ToClient),
        8 => any::<usize>().prop_map(ServerAnswers),
        8 => any::<usize>().prop_map(ClientAnswers),
        1 => prop_oneof![9 => Just(ToClient(7)), 1 => Just(Reconnect)],
    ]
}

/// A request that waits for an answer from a world.
enum Owed {
    Map(Token, u64),
    Unmap(Token),
    Read(Token, u64, u32),
    Write(Token),
    Reset(Token),
}

struct Pair {
    server: Server<Counted>,
    client: Client<Counted>,
    counter: Counter,
    to_server: Pipe,
    to_client: Pipe,
    /// The descriptors that the server's world holds: for memory by address, for interrupts by
    /// vector.
    mapped: BTreeMap<u64, (Token, Option<Counted>)>,
    vectors: BTreeMap<u32, Counted>,
    owed_by_server: Vec<Owed>,
    owed_by_client: Vec<(Token, u64, Option<u32>)>,
    /// Requests and accesses that are not answered yet.
    asked: BTreeMap<RequestId, Option<(u64, u32)>>,
    accesses: BTreeMap<Cookie, (u64, usize, bool)>,
    arrived: BTreeMap<Cookie, Vec<u8>>,
    posted: usize,
    next_cookie: u64,
    answered: usize,
}

impl Pair {
    fn new() -> Self {
        let mut config = server::Config::default();
        config.regions[0] =
            RegionConfig { areas: vec![Area { offset: 4096, length: 4096 }], ..RegionConfig::new(8192) };
        config.interrupts[2] = InterruptConfig { count: VECTORS, all_at_once: false };
        let mut pair = Self {
            server: Server::new(config),
            client: Client::new(client::Config::default()),
            counter: Counter::default(),
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            mapped: BTreeMap::new(),
            vectors: BTreeMap::new(),
            owed_by_server: Vec::new(),
            owed_by_client: Vec::new(),
            asked: BTreeMap::new(),
            accesses: BTreeMap::new(),
            arrived: BTreeMap::new(),
            posted: 0,
            next_cookie: 0,
            answered: 0,
        };
        pair.connect();
        pair
    }

    fn connect(&mut self) {
        self.server.handle_input(NOW, server::Input::Connected);
        self.client.handle_input(NOW, client::Input::Connected);
        self.drain();
    }

    /// Breaks the connection. Afterwards neither end keeps any of it.
    fn disconnect(&mut self) {
        self.to_server = Pipe::default();
        self.to_client = Pipe::default();
        self.server.handle_input(NOW, server::Input::Disconnected);
        self.client.handle_input(NOW, client::Input::Disconnected);
        self.drain();
        assert!(self.mapped.is_empty() && self.vectors.is_empty() && self.asked.is_empty());
        assert!(self.accesses.is_empty(), "{:?}", self.accesses);
        assert_eq!(self.counter.count(), 0, "a descriptor leaked");
    }

    fn drain(&mut self) {
        while let Some(output) = self.server.poll_output() {
            self.on_server(output);
        }
        while let Some(output) = self.client.poll_output() {
            self.on_client(output);
        }
    }

    fn on_server(&mut self, output: server::Output<Counted>) {
        use server::Output as Out;
        match output {
            Out::Transmit { bytes, shared } => {
                let descriptors = shared.map(|_| self.counter.open()).into_iter().collect();
                self.to_client.0.push_back((bytes.to_vec(), descriptors));
            }
            Out::Negotiated(_) => {}
            Out::Map { token, map: DmaMap { address, length, .. }, descriptor } => {
                assert!(length > 0);
                assert!(self.mapped.insert(address, (token, descriptor)).is_none(), "mapped twice");
                self.owed_by_server.push(Owed::Map(token, address));
            }
            Out::Unmap { token, address, .. } => {
                self.mapped.remove(&address).expect("unmapped memory was mapped");
                self.owed_by_server.extend(token.map(Owed::Unmap));
            }
            Out::RegionRead { token, region, offset, length } => {
                assert_eq!(region, RegionIndex::BAR0);
                assert!(offset + u64::from(length) <= 8192);
                self.owed_by_server.push(Owed::Read(token, offset, length));
            }
            Out::RegionWrite { token, offset, data, .. } => {
                assert_eq!(*data, bytes_at(offset, data.len()));
                match token {
                    Some(token) => self.owed_by_server.push(Owed::Write(token)),
                    None => self.posted -= 1,
                }
            }
            Out::SetInterrupts { index, start, count, data, .. } => {
                assert_eq!(index, InterruptIndex::Msix);
                match data {
                    InterruptData::None => self.vectors.clear(),
                    InterruptData::Bools(_) => unreachable!("not sent here"),
                    InterruptData::Descriptors(descriptors) => {
                        for vector in start..start + count {
                            self.vectors.remove(&vector);
                        }
                        self.vectors.extend((start..).zip(descriptors));
                    }
                }
            }
            Out::Reset { token } => self.owed_by_server.push(Owed::Reset(token)),
            Out::DmaData { cookie, offset, data, last } => {
                let (address, length, _) = self.accesses[&cookie];
                assert_eq!(*data, bytes_at(address + offset as u64, data.len()));
                let arrived = self.arrived.entry(cookie).or_default();
                arrived.resize(length, 0);
                arrived[offset..][..data.len()].copy_from_slice(&data);
                if last {
                    assert_eq!(self.arrived.remove(&cookie), Some(bytes_at(address, length)));
                    self.accesses.remove(&cookie);
                }
            }
            Out::DmaWritten { cookie } => {
                assert_eq!(self.accesses.remove(&cookie).map(|access| access.2), Some(true))
            }
            Out::DmaFailed { cookie, error } => {
                assert!(self.accesses.remove(&cookie).is_some());
                self.arrived.remove(&cookie);
                assert!(error != Errno::ETIMEDOUT);
            }
            Out::Close { reason } => panic!("{reason}"),
        }
    }

    fn on_client(&mut self, output: client::Output<Counted>) {
        use client::Output as Out;
        match output {
            Out::Transmit { bytes, descriptors } => self.to_server.0.push_back((bytes.to_vec(), descriptors)),
            Out::Negotiated(_) => {}
            Out::Answered { request, result } => {
                self.answered += 1;
                let read = self.asked.remove(&request).expect("an answer to a request");
                if let (Some((offset, length)), Ok(Answer::Data(data))) = (read, &result) {
                    assert_eq!(**data, bytes_at(offset, length as usize));
                }
                if let Ok(Answer::Region { info, descriptors }) = result {
                    assert_eq!((info.areas.len(), descriptors.len()), (1, 1));
                }
            }
            Out::DmaRead { token, address, length } => {
                self.owed_by_client.push((token, address, Some(length)))
            }
            Out::DmaWrite { token, address, data } => {
                assert_eq!(*data, bytes_at(address, data.len()));
                self.owed_by_client.push((token.unwrap(), address, None));
            }
            Out::Close { reason } => panic!("{reason}"),
        }
    }

    fn asks(&mut self, request: RequestId) {
        self.asked.insert(request, None);
    }

    fn run(&mut self, operation: Operation) {
        let (bar, msix, trigger) = (RegionIndex::BAR0, InterruptIndex::Msix, InterruptAction::Trigger);
        let client = &mut self.client;
        match operation {
            Operation::Read { offset, length } => {
                let request = client.read(NOW, bar, offset, length);
                self.asked.insert(request, Some((offset, length)));
            }
            Operation::Write { offset, length, posted: false } => {
                let request = client.write(NOW, bar, offset, &bytes_at(offset, length));
                self.asks(request);
            }
            Operation::Write { offset, length, posted: true } => {
                // A write beyond the end is dropped silently.
                let fits = client.negotiated().is_some() && offset + length as u64 <= 8192;
                self.posted += usize::from(fits);
                client.post(bar, offset, &bytes_at(offset, length));
            }
            Operation::WriteMultiple { offset, count } => {
                let writes: Vec<_> = (offset..)
                    .take(count)
                    .map(|offset| {
                        let access = RegionAccess { offset, region: 0, count: 8 };
                        SingleWrite { access, data: bytes_at(offset, 8).try_into().unwrap() }
                    })
                    .collect();
                let request = client.write_multiple(NOW, &writes);
                self.asks(request);
            }
            Operation::Map { page, pages, shared } => {
                let (address, length) = (page * PAGE, pages * PAGE);
                let map = DmaMap { readable: true, writable: page % 3 > 0, offset: 0, address, length };
                let descriptor = shared.then(|| self.counter.open());
                let request = client.map(NOW, map, descriptor);
                self.asks(request);
            }
            Operation::Unmap { page, pages } => {
                let request = client.unmap(NOW, DmaUnmap::one(page * PAGE, pages * PAGE));
                self.asks(request);
            }
            Operation::UnmapAll => {
                let request = client.unmap(NOW, DmaUnmap::all());
                self.asks(request);
            }
            Operation::SetInterrupts { start, count } => {
                let data = InterruptData::Descriptors((0..count).map(|_| self.counter.open()).collect());
                let range = (start, u32::try_from(count).unwrap());
                let request = client.set_interrupts(NOW, msix, trigger, range, data);
                self.asks(request);
            }
            Operation::TearDown => {
                let request = client.set_interrupts(NOW, msix, trigger, (0, 0), InterruptData::None);
                self.asks(request);
            }
            Operation::RegionInfo => {
                let request = client.region_info(NOW, bar);
                self.asks(request);
            }
            Operation::Reset => {
                let request = client.reset(NOW);
                self.asks(request);
            }
            Operation::DmaRead { address, length } => {
                let cookie = self.next_cookie(address, length, false);
                self.server.dma_read(NOW, cookie, address, length);
            }
            Operation::DmaWrite { address, length } => {
                let cookie = self.next_cookie(address, length, true);
                self.server.dma_write(NOW, cookie, address, Buffer::from(bytes_at(address, length)));
            }
            Operation::ToServer(length) => self.deliver_to_server(length),
            Operation::ToClient(length) => self.deliver_to_client(length),
            Operation::ServerAnswers(which) => self.server_answers(which),
            Operation::ClientAnswers(which) => self.client_answers(which),
            Operation::Reconnect => {
                self.disconnect();
                self.posted = 0;
                self.connect();
            }
        }
        self.drain();
    }

    fn next_cookie(&mut self, address: u64, length: usize, write: bool) -> Cookie {
        self.next_cookie += 1;
        let cookie = Cookie(self.next_cookie);
        self.accesses.insert(cookie, (address, length, write));
        cookie
    }

    fn deliver_to_server(&mut self, length: usize) {
        if let Some((bytes, descriptors)) = self.to_server.read(length) {
            self.server.handle_input(NOW, server::Input::Received { bytes: &bytes, descriptors });
        }
    }
    fn deliver_to_client(&mut self, length: usize) {
        if let Some((bytes, descriptors)) = self.to_client.read(length) {
            self.client.handle_input(NOW, client::Input::Received { bytes: &bytes, descriptors });
        }
    }

    fn server_answers(&mut self, which: usize) {
        if self.owed_by_server.is_empty() {
            return;
        }
        match self.owed_by_server.swap_remove(which % self.owed_by_server.len()) {
            // Some memory cannot be mapped.
            Owed::Map(token, address) if address == 5 * PAGE => {
                self.server.map_done(token, Err(Errno::ENODEV));
                if self.mapped.get(&address).is_some_and(|(mapped, _)| *mapped == token) {
                    self.mapped.remove(&address);
                }
            }
            Owed::Map(token, _) => self.server.map_done(token, Ok(())),
            Owed::Unmap(token) => self.server.unmap_done(token),
            Owed::Read(token, offset, length) => {
                self.server.read_done(token, Ok(&bytes_at(offset, length as usize)));
            }
            Owed::Write(token) => self.server.write_done(token, Ok(())),
            Owed::Reset(token) => self.server.reset_done(token, Ok(())),
        }
    }

    fn client_answers(&mut self, which: usize) {
        if self.owed_by_client.is_empty() {
            return;
        }
        let (token, address, read) = self.owed_by_client.swap_remove(which % self.owed_by_client.len());
        match read {
            Some(length) => self.client.dma_read_done(token, Ok(&bytes_at(address, length as usize))),
            None => self.client.dma_write_done(token, Ok(())),
        }
    }

    /// Lets everything cross and be answered.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            let before = (self.to_server.0.len(), self.to_client.0.len());
            if before == (0, 0) && self.owed_by_server.is_empty() && self.owed_by_client.is_empty() {
                return;
            }
            self.run(Operation::ToServer(1 << 20));
            self.run(Operation::ToClient(1 << 20));
            self.run(Operation::ServerAnswers(0));
            self.run(Operation::ClientAnswers(0));
        }
        panic!("the ends do not become idle");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn all_requests_are_answered_and_no_descriptor_is_lost(
        operations in proptest::collection::vec(operation(), 1..200)
    ) {
        let mut pair = Pair::new();
        for operation in operations {
            pair.run(operation);
        }
        pair.settle();
        prop_assert!(pair.asked.is_empty() && pair.accesses.is_empty() && pair.posted == 0);
        let held = pair.mapped.values().filter(|(_, descriptor)| descriptor.is_some()).count() + pair.vectors.len();
        prop_assert_eq!(pair.counter.count(), held);
        pair.disconnect();
    }
}

#[test]
fn both_ends_ask_at_once_and_neither_waits_for_the_other() {
    let mut pair = Pair::new();
    pair.settle();
    pair.run(Operation::Map { page: 1, pages: 4, shared: false });
    pair.settle();
    // Each end sends all allowed requests before any of them arrives. Answers to one end cross
    // requests by the other.
    for number in 0..200 {
        pair.run(Operation::DmaRead { address: PAGE, length: 10_000 });
        pair.run(Operation::Read { offset: number, length: 4 });
        pair.run(Operation::DmaWrite { address: PAGE, length: 5_000 });
        pair.run(Operation::Write { offset: number, length: 4, posted: number % 2 == 0 });
    }
    pair.settle();
    assert!(pair.asked.is_empty() && pair.accesses.is_empty());
    assert_eq!(pair.answered, 1 + 200 + 100);
}

#[test]
fn the_longest_data_crosses_in_one_message_either_way() {
    let config = {
        let mut config = server::Config::default();
        config.regions[0] = RegionConfig::new(1 << 21);
        config
    };
    let mut pair = Pair::new();
    pair.disconnect();
    pair.server = Server::new(config);
    pair.connect();
    pair.settle();
    let data = bytes_at(0, crate::DATA_MAX as usize);
    let request = pair.client.write(NOW, RegionIndex::BAR0, 0, &data);
    pair.asks(request);
    pair.drain();
    pair.settle();
    assert!(pair.asked.is_empty());
    let request = pair.client.map(
        NOW,
        DmaMap { readable: true, writable: true, offset: 0, address: 0, length: 1 << 22 },
        None,
    );
    pair.asks(request);
    pair.drain();
    pair.settle();
    pair.run(Operation::DmaRead { address: 0, length: 3 << 20 });
    pair.run(Operation::DmaWrite { address: 0, length: 3 << 20 });
    pair.settle();
    assert!(pair.accesses.is_empty());
}
