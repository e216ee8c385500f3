//! Two devices over the loopback interface.

use engine::{Buffer, Nanos, Pool};
use rdma::{
    Done, Endpoint, Event, Exposure, Inline, Operation, ProtectionDomain, ReceiveRequest, SendRequest,
};

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use socket2::{Domain, Socket, Type};

use super::*;
use crate::reactor::{Outcome, Reactor};
use crate::sys::clock::Clock;
use crate::sys::precedence::Precedence;

const SERVICE: u16 = 4420;

/// Two devices, in one loop.
struct Two([Roce; 2]);

impl Driver for Two {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.0.iter_mut().try_for_each(|device| device.start(sources))
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let mut turn = Turn::Idle;
        for device in &mut self.0 {
            if device.turn(context)? == Turn::Busy {
                turn = Turn::Busy;
            }
        }
        Ok(turn)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(Roce::poll_timeout).min()
    }

    fn on_stop(&mut self, _now: Instant) {}
}

impl Two {
    fn devices(&self) -> [SharedDevice; 2] {
        [0, 1].map(|index| Rc::clone(self.0[index].device()))
    }
}

/// A connection from the first device to the second.
fn connect(reactor: &mut Reactor, two: &mut Two) -> [RoceEndpoint; 2] {
    let devices = two.devices();
    let peer = two.0[1].address().ip();
    devices[1].borrow_mut().listen(SERVICE);
    let mut here = RoceEndpoint::connect(&devices[0], peer, SERVICE, b"hello").unwrap();
    let mut there = None;
    run(reactor, two, || {
        there = RoceEndpoint::next_requested(&devices[1]);
        there.is_some()
    });
    let mut there: RoceEndpoint = there.unwrap();
    assert!(matches!(there.poll_event(), Some(Event::Requested { .. })));
    there.accept(b"welcome");
    run(reactor, two, || matches!(here.poll_event(), Some(Event::Established { .. })));
    [here, there]
}

fn message(length: usize) -> SendRequest {
    let (inline, data) = (Inline::EMPTY, Buffer::zeroed(length));
    let operation = Operation::Send { inline, data, invalidate: None, immediate: None };
    SendRequest { id: 1, operation, signalled: true }
}

fn open(address: IpAddr, mtu: PathMtu) -> Roce {
    let pool = Rc::new(RefCell::new(Pool::default()));
    let domain = ProtectionDomain::new(16, Rc::clone(&pool), system());
    let config = Config { mtu, ..Config::new(address) };
    Roce::open(config, 0, Precedence::default(), Rc::new(RefCell::new(domain)), pool).unwrap()
}

/// Runs until `met`.
fn run(reactor: &mut Reactor, two: &mut Two, mut met: impl FnMut() -> bool) {
    let deadline = reactor.clock().now() + Nanos::from_secs(20);
    let outcome = reactor.run_until(two, Some(deadline), |_| met()).unwrap();
    assert_eq!(outcome, Outcome::Met);
}

/// Addresses of the loopback interface that no other test has.
fn addresses() -> [IpAddr; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(64);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(2, Ordering::Relaxed);
    [next, next + 1].map(|net| IpAddr::from([127, net, high, low.max(1)]))
}

#[test]
fn a_connection_over_sockets_moves_messages_writes_and_reads() {
    let addresses = addresses();
    let mut two = Two(addresses.map(|address| open(address, PathMtu::B4096)));
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    let devices = two.devices();
    let [mut here, mut there] = connect(&mut reactor, &mut two);
    assert_eq!(there.peer(), Some(addresses[0]));
    let data: Vec<u8> =
        (0..1_000_003_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let data = Buffer::from(data);
    let lent = there.register(Exposure::Read(data.clone())).unwrap();
    let room = there.register(Exposure::Write(1_000_003)).unwrap();
    there.post_receive(ReceiveRequest { id: 1, length_max: 64 }).unwrap();
    let send = Operation::Send {
        inline: Inline::new(b"all is there"),
        data: Buffer::EMPTY,
        invalidate: Some(room.key),
        immediate: None,
    };
    let operations =
        [Operation::Read { remote: lent }, Operation::Write { data: data.clone(), remote: room }, send];
    for (id, operation) in (0..).zip(operations) {
        here.post_send(SendRequest { id, operation, signalled: true }).unwrap();
    }
    let mut done = Vec::new();
    run(&mut reactor, &mut two, || {
        done.extend(here.poll_completion());
        done.len() == 3
    });
    assert_eq!(done[0].result, Ok(Done::Read(data.clone())));
    let came = there.poll_completion().unwrap();
    assert!(
        matches!(&came.result, Ok(Done::Received { data, .. }) if data[..] == *b"all is there"),
        "{came:?}"
    );
    assert_eq!(there.deregister(room.key).unwrap(), data);
    let counters = devices.map(|device| device.borrow().counters());
    assert!(counters.iter().all(|one| one.corrupt == 0 && one.dropped == 0), "{counters:?}");
    here.disconnect();
    let mut is_over = [false; 2];
    run(&mut reactor, &mut two, || {
        is_over[0] |= matches!(here.poll_event(), Some(Event::Disconnected(_)));
        is_over[1] |= matches!(there.poll_event(), Some(Event::Disconnected(_)));
        is_over == [true; 2]
    });
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let pool = Rc::new(RefCell::new(Pool::default()));
    let domain = ProtectionDomain::new(1, Rc::clone(&pool), system());
    let config = Config::new("192.0.2.1".parse().unwrap());
    let error =
        Roce::open(config, 0, Precedence::default(), Rc::new(RefCell::new(domain)), pool).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
}

#[test]
fn marks_of_the_network_are_reported_to_the_sender() {
    for is_ipv6 in [false, true] {
        let address: IpAddr = if is_ipv6 { "::1" } else { "127.0.0.1" }.parse().unwrap();
        let receiver = Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM, None).unwrap();
        receiver.bind(&SocketAddr::new(address, 0).into()).unwrap();
        marked::enable(&receiver, is_ipv6, marked::CAPABLE).unwrap();
        let to = receiver.local_addr().unwrap();
        let sender = Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM, None).unwrap();
        let mut arrived = Vec::new();
        for mark in [0, marked::CAPABLE, 3, 0] {
            marked::enable(&sender, is_ipv6, mark).unwrap();
            sender.send_to(&[7; 100], &to).unwrap();
        }
        let mut places = [[0_u8; 64], [0; 64], [0; 64], [0; 64], [0; 64]].map(Vec::from);
        marked::receive(&receiver, &mut places, &mut arrived).unwrap();
        let marks: Vec<_> = arrived.iter().map(|one| (one.length, one.from.ip(), one.is_marked)).collect();
        let expected = [false, false, true, false].map(|is_marked| (64, address, is_marked));
        assert_eq!(marks, expected);
        let nothing = marked::receive(&receiver, &mut places, &mut arrived).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }
    let mut two = Two(addresses().map(|address| open(address, PathMtu::B4096)));
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    let [mut here, mut there] = connect(&mut reactor, &mut two);
    let counters = |two: &Two| two.devices().map(|device| device.borrow().counters());
    assert!(counters(&two).iter().all(|one| (one.marked, one.notified) == (0, 0)));
    // All datagrams of the first device pass a congested network.
    let Some(socket) = two.0[0].line.socket() else { panic!("{:?}", two.0[0]) };
    marked::enable(socket, false, 3).unwrap();
    there.post_receive(ReceiveRequest { id: 1, length_max: 20_000 }).unwrap();
    here.post_send(message(20_000)).unwrap();
    run(&mut reactor, &mut two, || here.poll_completion().is_some());
    let [sender, receiver] = counters(&two);
    assert!(receiver.marked >= 5 && sender.notified >= 1, "{sender:?} {receiver:?}");
}

#[test]
fn a_socket_that_fails_ends_its_connections_and_is_opened_again() {
    let mut two = Two(addresses().map(|address| open(address, PathMtu::B4096)));
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    let [mut here, mut there] = connect(&mut reactor, &mut two);
    // A socket of another kind refuses every datagram.
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    two.0[0].line = Line::new(socket);
    here.post_send(message(100)).unwrap();
    let mut event = None;
    run(&mut reactor, &mut two, || {
        event = here.poll_event();
        event.is_some()
    });
    assert_eq!(event, Some(Event::Disconnected(rdma::Disconnected::NetworkFailed)));
    assert!(here.poll_completion().is_some_and(|one| one.result == Err(rdma::WorkError::Flushed)));
    assert!(matches!(two.0[0].take_change(), Some(Change::Failed(_))));
    assert!(two.0[0].failure().is_some());
    // A request made meanwhile is repeated.
    let [mut here, mut again] = connect(&mut reactor, &mut two);
    assert!(matches!(two.0[0].take_change(), Some(Change::Restored)));
    again.post_receive(ReceiveRequest { id: 1, length_max: 100 }).unwrap();
    here.post_send(message(100)).unwrap();
    run(&mut reactor, &mut two, || again.poll_completion().is_some());
    there.disconnect();
}
