//! I/O queues that move to lanes of another reactor.

use alloc::vec::Vec;

use engine::{Engine, Entropy, Nanos, Rng};
use nvme::host::Data;
use nvme::rate::Rate;
use nvme::subsystem::Permit;
use nvme::wire::{AdminOpcode, IoOpcode, Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::authentication::{Credentials, Group, Secret};
use nvme_fabrics::target::{Directory, HostTerms};
use nvme_fabrics::wire::{AuthenticationCommand, FabricsCommand, FabricsStatus};
use nvme_tcp::host::Completed;

use super::strangers::prove;
use super::test_bench::{DISK, HOST, KEY, TestBench, directory};
use super::{admin, io};
use crate::target::{Close, Event, Input, Output, ReactorId};

const LANE: ReactorId = ReactorId(1);

/// A home and a reactor that has lanes.
struct Reactors {
    home: TestBench,
    lane: TestBench,
}

/// Where the host's end of a connection is: at home, or at the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Home(usize),
    Lane(usize),
}

impl Place {
    fn at_lane(self) -> usize {
        let Self::Lane(index) = self else { panic!("{self:?} has not moved") };
        index
    }
}

impl Reactors {
    fn new() -> Self {
        Self::of(directory())
    }

    /// Reactors whose host has a secret.
    fn keyed(credentials: &Credentials) -> Self {
        let mut keyed = directory();
        keyed.subsystems[0].terms = Vec::from([(HOST.parse().unwrap(), credentials.clone().into())]);
        Self::of(keyed)
    }

    fn of(directory: Directory) -> Self {
        let mut elsewhere = directory.clone();
        let mut home = TestBench::new(directory);
        home.target.allow_lanes(KEY);
        home.target.set_next_lane(Some(LANE));
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

    /// Sends a command on a connection, which may move before the command ends.
    fn ask(&mut self, place: &mut Place, entry: SubmissionQueueEntry, data: Data) -> Completed {
        let cookie = match *place {
            Place::Home(index) => self.home.submit(index, entry, data),
            Place::Lane(index) => self.lane.submit(index, entry, data),
        };
        self.run();
        if let (Place::Home(index), Some(moved)) = (*place, self.home.moved.take()) {
            *place = Place::Lane(self.lane.hosts_count());
            self.lane.adopt(&mut self.home, index, moved);
            self.run();
        }
        let done = match *place {
            Place::Home(index) => self.home.completed(index, cookie),
            Place::Lane(index) => self.lane.completed(index, cookie),
        };
        done.expect("the command ends")
    }

    fn prove(&mut self, place: &mut Place, credentials: &Credentials) -> bool {
        prove(DISK, credentials.clone(), |entry, data| self.ask(place, entry, data))
    }

    /// A controller with its Admin Queue, enabled, of a host that authenticates.
    fn proven_controller(&mut self, credentials: &Credentials) -> u16 {
        let admin = self.home.connection();
        let controller = self.home.connect(admin, DISK, 0, 0xffff).unwrap();
        assert!(self.prove(&mut Place::Home(admin), credentials));
        self.home.enable(admin);
        self.run();
        u16::try_from(controller & 0xffff).unwrap()
    }

    /// Connects an I/O queue that is not the host's before the host has authenticated.
    fn claim(&mut self, queue: u16, controller: u16) -> Place {
        let host = self.home.connection();
        let cookie = self.home.send_connect(host, DISK, queue, controller);
        self.run();
        assert!(self.home.moved.is_none(), "a stranger's queue stays at home");
        assert!(self.home.completed(host, cookie).unwrap().entry.status().is_success());
        Place::Home(host)
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
fn a_reactor_that_can_serve_no_lane_gets_no_further_queue_for_some_time() {
    let mut both = Reactors::new();
    let (admin_queue, controller) = both.controller();
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
    both.home.drop_connection(again);
    // Later the home tries again, at first after ten seconds, and then after twice as long.
    let wait = |both: &mut Reactors, seconds: u64| {
        for _ in 0..seconds {
            both.pass(Nanos::from_secs(1));
            both.home.ask(admin_queue, admin(AdminOpcode::KeepAlive, 0, 0), Data::None);
        }
    };
    wait(&mut both, 11);
    let queue = both.queue(1, controller);
    both.write_and_read(queue, 5);
    let now = both.lane.now;
    both.lane.target.give_up_lane(now, KEY);
    both.run();
    assert!(both.lane.is_closed(queue));
    wait(&mut both, 11);
    let again = both.home.io_queue(DISK, 1, controller).unwrap();
    assert!(both.home.moved.is_none());
    both.home.drop_connection(again);
    // A reactor that is back is used at once.
    both.home.target.reactor_is_back(LANE);
    let queue = both.queue(1, controller);
    both.write_and_read(queue, 6);
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
    limited.subsystems[0].terms.push((HOST.parse().unwrap(), terms));
    let now = both.home.now;
    both.home.target.set_directory(now, limited);
    both.run();
    assert!(both.lane.is_closed(queue));
    both.home.io_queue(DISK, 1, controller).unwrap();
}

fn credentials(seed: u64, group: Group, both: bool) -> Credentials {
    let mut entropy = Entropy::from(Rng::from_seed(seed));
    let host = Secret::generate(None, &mut entropy);
    let controller = both.then(|| Secret::generate(None, &mut entropy));
    Credentials { groups: Vec::from([group]), controller, ..Credentials::new(host) }
}

/// The credentials of tests: with and without a group, of one side and of both.
fn all_credentials() -> impl Iterator<Item = Credentials> {
    let kinds = [(Group::Null, false), (Group::Null, true), (Group::Ffdhe2048, true)];
    kinds.into_iter().map(|(group, both)| credentials(1, group, both))
}

#[test]
fn a_queue_whose_host_has_authenticated_moves_to_a_lane() {
    for (one, outside) in all_credentials().flat_map(|one| [(one.clone(), false), (one, true)]) {
        let mut both = Reactors::keyed(&one);
        if outside {
            both.home.target.work_outside(1000);
        }
        let controller = both.proven_controller(&one);
        for queue in 1..3 {
            let mut place = both.claim(queue, controller);
            assert!(both.prove(&mut place, &one), "{one:?}");
            let at_lane = place.at_lane();
            both.write_and_read(at_lane, u8::try_from(queue).unwrap());
            let key = both.home.target.strangers();
            assert_eq!(key.count, 0, "{key:?}");
        }
        assert_eq!((both.home.target.io_queues(), both.lane.target.io_queues()), (0, 2));
    }
}

#[test]
fn a_host_authenticates_again_on_a_queue_of_a_lane() {
    for (one, outside) in all_credentials().flat_map(|one| [(one.clone(), false), (one, true)]) {
        let mut both = Reactors::keyed(&one);
        if outside {
            both.home.target.work_outside(1000);
        }
        let controller = both.proven_controller(&one);
        let mut place = both.claim(1, controller);
        assert!(both.prove(&mut place, &one));
        for fill in 1..4 {
            assert!(both.prove(&mut place, &one), "the home answers each step");
            both.write_and_read(place.at_lane(), fill);
        }
        // The wrong secret ends the queue.
        let wrong = credentials(2, one.groups[0], false);
        assert!(!both.prove(&mut place, &wrong));
        assert!(both.lane.is_closed(place.at_lane()));
        assert!(matches!(*both.gone(), [(1, Close::Unauthenticated(_))]), "{:?}", both.gone());
        assert_eq!((both.home.target.io_queues(), both.lane.target.io_queues()), (0, 0));
        let mut again = both.claim(1, controller);
        assert!(both.prove(&mut again, &one));
        both.write_and_read(again.at_lane(), 9);
    }
}

#[test]
fn a_queue_that_need_not_be_proved_takes_no_authentication_at_a_lane() {
    let mut both = Reactors::new();
    let (_, controller) = both.controller();
    let mut place = Place::Lane(both.queue(1, controller));
    let entry = FabricsCommand::AuthenticationReceive(AuthenticationCommand::in_band(4096)).emit();
    let done = both.ask(&mut place, entry, Data::Read(4096));
    assert_eq!(done.entry.status(), Status::from(StatusCode::InvalidCommandOpcode));
    both.write_and_read(place.at_lane(), 1);
}

#[test]
fn a_queue_that_a_lane_has_is_its_hosts_even_if_another_connects_it() {
    let one = credentials(1, Group::Null, false);
    let mut both = Reactors::keyed(&one);
    let controller = both.proven_controller(&one);
    let mut own = both.claim(1, controller);
    assert!(both.prove(&mut own, &one));
    let mut other = both.claim(1, controller);
    assert!(!both.prove(&mut other, &credentials(2, Group::Null, false)));
    both.write_and_read(own.at_lane(), 1);
    // The host connects the queue again, as after a loss that the target has not noticed: it goes
    // where it was, even if the world wants it elsewhere.
    both.home.target.set_next_lane(None);
    let mut again = both.claim(1, controller);
    assert!(both.prove(&mut again, &one));
    assert!(both.lane.is_closed(own.at_lane()));
    assert_eq!(both.gone(), [(1, Close::Replaced)]);
    both.write_and_read(again.at_lane(), 2);
    assert_eq!((both.home.target.io_queues(), both.lane.target.io_queues()), (0, 1));
}

#[test]
fn a_queue_on_which_another_command_came_first_stays_at_home() {
    let one = credentials(1, Group::Null, false);
    let mut both = Reactors::keyed(&one);
    let controller = both.proven_controller(&one);
    let early = |both: &mut Reactors, place: &mut Place| {
        let read = both.ask(place, io(IoOpcode::Read, 0, 8), Data::Read(4096)).entry.status();
        assert_eq!(read, FabricsStatus::AuthenticationRequired.into());
        both.prove(place, &one)
    };
    let mut place = both.claim(1, controller);
    assert!(early(&mut both, &mut place));
    let Place::Home(index) = place else { panic!("{place:?}") };
    let read = both.home.ask(index, io(IoOpcode::Read, 0, 8), Data::Read(4096));
    assert!(read.entry.status().is_success());
    // One that a lane has does not come home: its lane closes it first.
    let mut at_lane = both.claim(2, controller);
    assert!(both.prove(&mut at_lane, &one));
    let mut again = both.claim(2, controller);
    early(&mut both, &mut again);
    let Place::Home(index) = again else { panic!("{again:?}") };
    assert!(both.home.is_closed(index) && both.lane.is_closed(at_lane.at_lane()));
    let mut last = both.claim(2, controller);
    assert!(both.prove(&mut last, &one));
    both.write_and_read(last.at_lane(), 3);
}
