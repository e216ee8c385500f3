//! I/O queues that move to lanes of another reactor.

use engine::{Engine, Nanos};
use nvme::host::Data;
use nvme::rate::Rate;
use nvme::subsystem::Permit;
use nvme::wire::IoOpcode;
use nvme_fabrics::target::HostTerms;

use super::io;
use super::test_bench::{DISK, KEY, TestBench, directory};
use crate::target::{Close, Event, Input, Output, ReactorId};

const LANE: ReactorId = ReactorId(1);

/// A home and a reactor that has lanes.
struct Reactors {
    home: TestBench,
    lane: TestBench,
}

impl Reactors {
    fn new() -> Self {
        let mut home = TestBench::new(directory());
        home.target.allow_lanes(KEY);
        home.target.set_next_lane(Some(LANE));
        let mut elsewhere = directory();
        elsewhere.subsystems[0].is_here = false;
        Self { home, lane: TestBench::new(elsewhere) }
    }

    /// Moves messages until there are none.
    fn run(&mut self) {
        loop {
            self.home.run();
            self.lane.run();
            let (home, lane) = (core::mem::take(&mut self.home.mail), core::mem::take(&mut self.lane.mail));
            if home.is_empty() && lane.is_empty() {
                return;
            }
            for mail in home {
                let Output::ToLane { subsystem, reactor, message } = mail else { panic!("{mail:?}") };
                assert_eq!(reactor, LANE);
                self.lane.target.handle_input(self.lane.now, Input::FromHome { subsystem, message });
            }
            for mail in lane {
                let Output::ToHome { subsystem, message } = mail else { panic!("{mail:?}") };
                let reactor = LANE;
                self.home.target.handle_input(self.home.now, Input::FromLane { subsystem, reactor, message });
            }
        }
    }

    /// A controller with its Admin Queue, enabled.
    fn controller(&mut self) -> (usize, u16) {
        let admin = self.home.connection();
        let controller = self.home.connect(admin, DISK, 0, 0xffff).unwrap();
        self.home.enable(admin);
        self.run();
        (admin, u16::try_from(controller & 0xffff).unwrap())
    }

    /// Connects an I/O queue, which moves. Returns its connection at the lane.
    fn queue(&mut self, queue: u16, controller: u16) -> usize {
        let host = self.home.connection();
        let cookie = self.home.send_connect(host, DISK, queue, controller);
        self.run();
        let moved = self.home.moved.take().expect("the queue moves");
        assert!(moved.ticket.is_some());
        self.run();
        let index = self.lane.hosts_count();
        self.lane.adopt(&mut self.home, host, moved);
        self.run();
        let done = self.lane.completed(index, cookie).expect("the Connect ends");
        assert!(done.entry.status().is_success(), "{:?}", done.entry);
        index
    }

    fn pass(&mut self, time: Nanos) {
        (self.home.now, self.lane.now) = (self.home.now + time, self.lane.now + time);
        self.run();
    }

    fn write_and_read(&mut self, host: usize, fill: u8) {
        let data = engine::Buffer::copy_from_slice(&[fill; 4096]);
        let done = self.lane.ask(host, io(IoOpcode::Write, 7, 8), Data::Write(data));
        assert!(done.entry.status().is_success(), "{:?}", done.entry);
        let done = self.lane.ask(host, io(IoOpcode::Read, 7, 8), Data::Read(4096));
        assert_eq!(*done.data, [fill; 4096]);
        self.run();
    }

    fn gone(&self) -> Vec<(u16, Close)> {
        let of = |event: &Event| match event {
            Event::QueueGone { queue, why, .. } => Some((queue.0, why.clone())),
            _ => None,
        };
        self.home.events.iter().filter_map(of).collect()
    }
}

#[test]
fn an_io_queue_moves_to_a_lane_and_its_host_notices_nothing() {
    let mut both = Reactors::new();
    let (admin, controller) = both.controller();
    let queues = [both.queue(1, controller), both.queue(2, controller)];
    for (fill, queue) in (1..).zip(queues) {
        both.write_and_read(queue, fill);
    }
    assert_eq!(both.home.target.lanes_of(KEY).collect::<Vec<_>>(), [LANE]);
    let (guests, _) = both.lane.target.guests_from(0, usize::MAX);
    assert_eq!((guests.len(), guests[0].controller.0), (1, controller));
    assert_eq!(guests[0].connections.iter().map(|one| one.queue.0).collect::<Vec<_>>(), [1, 2]);
    // The host leaves one of them, and may connect it again.
    both.lane.drop_connection(queues[0]);
    both.run();
    assert_eq!(both.gone(), [(1, Close::Lost)]);
    let again = both.queue(1, controller);
    both.write_and_read(again, 3);
    // The end of the Admin Queue is the end of all.
    both.home.drop_connection(admin);
    both.run();
    assert!(both.lane.is_closed(queues[1]) && both.lane.is_closed(again));
    assert!(both.lane.target.guests_from(0, usize::MAX).0.is_empty());
    assert_eq!((both.home.target.io_queues(), both.lane.target.io_queues()), (0, 0));
}

#[test]
fn a_reset_closes_the_queues_of_lanes() {
    let mut both = Reactors::new();
    let (admin, controller) = both.controller();
    let queue = both.queue(1, controller);
    both.home.set_configuration(admin, 0x0046_0000);
    both.run();
    assert!(both.lane.is_closed(queue));
    both.home.enable(admin);
    let again = both.queue(1, controller);
    both.write_and_read(again, 2);
}

#[test]
fn commands_of_a_lane_keep_their_host_alive() {
    let mut both = Reactors::new();
    let (admin, controller) = both.controller();
    let queue = both.queue(1, controller);
    for fill in 0..5 {
        both.pass(Nanos::from_secs(3));
        both.write_and_read(queue, fill);
    }
    assert!(!both.home.is_closed(admin));
    both.pass(Nanos::from_secs(6));
    assert!(both.home.is_closed(admin) && both.lane.is_closed(queue));
}

#[test]
fn lanes_end_with_their_home() {
    let mut both = Reactors::new();
    let (_, controller) = both.controller();
    let queue = both.queue(1, controller);
    assert!(!both.home.target.is_without_lanes() && !both.lane.target.is_without_lanes());
    let now = both.home.now;
    both.home.target.shut_down(now);
    both.run();
    assert!(both.lane.is_closed(queue));
    assert!(both.home.target.is_without_lanes() && both.lane.target.is_without_lanes());
}

#[test]
fn a_reactor_that_can_serve_no_lane_gets_no_further_queue() {
    let mut both = Reactors::new();
    let (_, controller) = both.controller();
    let queue = both.queue(1, controller);
    let now = both.lane.now;
    both.lane.target.give_up_lane(now, KEY);
    both.run();
    assert!(both.lane.is_closed(queue));
    assert_eq!(both.gone().len(), 1);
    let again = both.home.io_queue(DISK, 1, controller).unwrap();
    let done = both.home.ask(again, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    assert!(done.entry.status().is_success());
    assert!(both.home.moved.is_none());
}

#[test]
fn a_host_with_a_limit_has_its_queues_at_home() {
    let mut both = Reactors::new();
    let (_, controller) = both.controller();
    let queue = both.queue(1, controller);
    let mut limited = directory();
    let rate = Rate { operations: Some(1000), ..Rate::default() };
    let permit = Permit { rate, ..Permit::default() };
    let terms = HostTerms { permit, ..HostTerms::default() };
    limited.subsystems[0].terms.push((super::test_bench::HOST.parse().unwrap(), terms));
    let now = both.home.now;
    both.home.target.set_directory(now, limited);
    both.run();
    assert!(both.lane.is_closed(queue));
    both.home.io_queue(DISK, 1, controller).unwrap();
}
