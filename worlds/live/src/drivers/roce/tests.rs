//! Two devices over the loopback interface.

use engine::{Buffer, Nanos, Pool};
use rdma::{
    Done, Endpoint, Event, Exposure, Inline, Operation, ProtectionDomain, ReceiveRequest, SendRequest,
};

use super::*;
use crate::reactor::{Outcome, Reactor};
use crate::sys::clock::Clock;

const SERVICE: u16 = 4420;

/// Two devices, in one loop.
struct Two([Roce; 2]);

impl Driver for Two {
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

fn open(address: IpAddr, mtu: PathMtu) -> Roce {
    let pool = Rc::new(RefCell::new(Pool::default()));
    let domain = ProtectionDomain::new(16, Rc::clone(&pool), system());
    let config = Config { mtu, ..Config::new(address) };
    Roce::open(config, Rc::new(RefCell::new(domain)), pool).unwrap()
}

/// Runs until `met`.
fn run(reactor: &mut Reactor, two: &mut Two, mut met: impl FnMut() -> bool) {
    let deadline = reactor.clock().now() + Nanos::from_secs(20);
    let outcome = reactor.run_until(two, Some(deadline), |_| met()).unwrap();
    assert_eq!(outcome, Outcome::Met);
}

/// An address of the loopback interface that no other test run has.
fn addresses() -> [IpAddr; 2] {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    [101, 102].map(|net| IpAddr::from([127, net, high, low.max(1)]))
}

#[test]
fn a_connection_over_sockets_moves_messages_writes_and_reads() {
    let addresses = addresses();
    let mut two = Two(addresses.map(|address| open(address, PathMtu::B4096)));
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    for device in &two.0 {
        device.register(reactor.sources()).unwrap();
    }
    let devices = [0, 1].map(|index| Rc::clone(two.0[index].device()));
    devices[1].borrow_mut().listen(SERVICE);
    let mut here = RoceEndpoint::connect(&devices[0], addresses[1], SERVICE, b"hello").unwrap();
    let mut there = None;
    run(&mut reactor, &mut two, || {
        there = RoceEndpoint::next_requested(&devices[1]);
        there.is_some()
    });
    let mut there = there.unwrap();
    assert_eq!(there.peer(), Some(addresses[0]));
    assert!(matches!(there.poll_event(), Some(Event::Requested { .. })));
    there.accept(b"welcome");
    run(&mut reactor, &mut two, || matches!(here.poll_event(), Some(Event::Established { .. })));
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
    let error = Roce::open(config, Rc::new(RefCell::new(domain)), pool).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
}
