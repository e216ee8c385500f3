//! A box with a seat for each of several hosts.
//!
//! Each seat is a [`Far`]: a session, and a function with a controller of its own. The controllers
//! are of one NVM subsystem, which is at one seat at a time: it goes to the seat that is called.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use engine::{Crc32c, Engine, Entropy, Instant, Watch};
use nvme::subsystem::Subsystem;
use nvme_pcie::controller::SEATS_MAX;
use nvme_pcie::function::{self, Function};
use serde::{Deserialize, Serialize};
use tunnel::downstream::{self, Callers, ConnectionId, Front, Greeted};

use super::{Admitted, Device, Far, Input, Output};
use crate::watch::Port;

/// A box with a seat for each of several hosts.
///
/// A box with one seat is a [`Far`] and nothing else. With several, connections wait at the
/// entrance until their Hello says which seat they are for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "F: Serialize, F::Output: Serialize",
    deserialize = "F: Deserialize<'de>, F::Output: Deserialize<'de>"
))]
pub struct Seats<F: Device = Function> {
    seats: Vec<Far<F>>,
    /// The seat that has what the functions share.
    at: usize,
    /// Seats that may have outputs, one bit each.
    stirred: u64,
    /// The entrance, if there are several seats.
    front: Option<Front>,
    /// The seats of the connections that have passed the entrance.
    places: BTreeMap<ConnectionId, usize>,
    outputs: VecDeque<Output<F::Output>>,
}

impl Seats {
    /// A box with an SSD after power-up at `now`, for `hosts` hosts. See [`Far::new`] for
    /// `entropy`, of which each session gets a part.
    ///
    /// # Panics
    /// When `hosts` is not in 1..=[`SEATS_MAX`].
    pub fn new(
        now: Instant,
        session: tunnel::session::Config,
        function: function::Config,
        entropy: impl Into<Entropy>,
        hosts: u16,
    ) -> Self {
        let mut entropy: Entropy = entropy.into();
        if hosts == 1 {
            return Far::new(now, session, function, entropy).into();
        }
        let front = Front::new(&session);
        let seat = |function| Far::around(now, session.clone(), function, entropy.split());
        let seats: Vec<_> = Function::several(now, &function, hosts).into_iter().map(seat).collect();
        Self { front: Some(front), ..Self::of(seats) }
    }

    /// Applies `change` to the SSD's command core, for changes to its namespaces; the hosts are
    /// notified of them.
    pub fn with_core<T>(&mut self, now: Instant, change: impl FnOnce(&mut Subsystem) -> T) -> T {
        let result = self.seats[self.at].with_core(now, change);
        self.stirred |= bit(self.at);
        result
    }

    /// The SSD's command core.
    pub fn core(&self) -> &Subsystem {
        self.seats[self.at].function().controller().core()
    }
}

impl<F: Device> From<Far<F>> for Seats<F> {
    fn from(far: Far<F>) -> Self {
        Self::of(Vec::from([far]))
    }
}

impl<F: Device> Seats<F> {
    /// Takes the means of a new world, after the state was handed over: its randomness, if the
    /// former world had the system's, and its function for digests.
    pub fn adopt(&mut self, entropy: &Entropy, crc32c: Crc32c) {
        self.seats.iter_mut().for_each(|seat| seat.adopt(entropy, crc32c));
        if let Some(front) = &mut self.front {
            front.adopt(crc32c);
        }
    }

    const fn of(seats: Vec<Far<F>>) -> Self {
        Self { seats, at: 0, stirred: 1, front: None, places: BTreeMap::new(), outputs: VecDeque::new() }
    }

    /// The seats, at least one.
    pub fn seats(&self) -> &[Far<F>] {
        &self.seats
    }

    /// The seat that has what the functions share.
    pub fn present(&self) -> &Far<F> {
        &self.seats[self.at]
    }

    /// Whether a connection carries a session, so that its host has proved all that it must.
    pub fn is_attached(&self, connection: ConnectionId) -> bool {
        self.seat_of(connection).is_some_and(|seat| self.seats[seat].downstream().is_attached(connection))
    }

    /// Whether any connection carries a session.
    pub fn has_host(&self) -> bool {
        self.seats.iter().any(|seat| seat.downstream().has_host())
    }

    /// Counts of the connections that have come.
    pub fn callers(&self) -> Callers {
        self.front.as_ref().map_or_else(|| self.seats[0].downstream().callers(), Front::callers)
    }

    /// Sets the time to `now`; see [`Far::advance`].
    pub fn advance(&mut self, now: Instant) {
        self.seats.iter_mut().filter(|seat| seat.is_timed()).for_each(|seat| seat.advance(now));
    }

    /// Whether durations are measured here; see [`Far::is_timed`].
    pub fn is_timed(&self) -> bool {
        self.seats.iter().any(Far::is_timed)
    }

    /// Says how long segments of a connection may be; see [`Far::set_segment_max`].
    pub fn set_segment_max(&mut self, connection: ConnectionId, bytes: usize) {
        match &mut self.front {
            Some(front) => front.set_segment_max(connection, bytes),
            None => self.seats[0].set_segment_max(connection, bytes),
        }
    }

    /// Has `places` connections wait for their Hello at most; see [`Far::set_waiting_max`].
    pub fn set_waiting_max(&mut self, places: usize) {
        match &mut self.front {
            Some(front) => front.set_waiting_max(places),
            None => self.seats[0].set_waiting_max(places),
        }
    }

    /// Defers the bytes of a connection, if they are for a device; see [`Far::hold_back`].
    pub fn hold_back(&mut self, now: Instant, connection: ConnectionId) -> bool {
        let seat = self.seat_of(connection);
        seat.is_some_and(|seat| self.seats[seat].hold_back(now, connection))
    }

    /// The watchers of the packets of a seat's device, and of the bytes of its connections.
    ///
    /// # Panics
    /// When there is no such seat.
    pub fn watch(&mut self, seat: usize) -> &mut Watch<Port> {
        self.seats[seat].watch()
    }

    /// Admits from now on the hosts with these keys, or every host if there is no list; see
    /// [`Far::admit`].
    pub fn admit(&mut self, now: Instant, admitted: Option<Vec<Admitted>>) {
        for seat in 0..self.seats.len() {
            self.call(now, seat).admit(now, admitted.clone());
        }
    }

    /// Ends all sessions, sends the hosts `text` as the reason, and takes no further session.
    pub fn close(&mut self, now: Instant, text: &str) {
        for seat in 0..self.seats.len() {
            self.call(now, seat).close(now, text);
        }
    }

    /// The seat of a connection that has passed the entrance.
    fn seat_of(&self, connection: ConnectionId) -> Option<usize> {
        if self.front.is_none() { Some(0) } else { self.places.get(&connection).copied() }
    }

    /// A seat, which gets what the functions share, and may then have outputs.
    fn call(&mut self, now: Instant, seat: usize) -> &mut Far<F> {
        self.stirred |= bit(seat);
        if let Ok([here, from]) = self.seats.get_disjoint_mut([seat, self.at]) {
            here.take_shared(now.max(from.now), from);
        }
        self.at = seat;
        &mut self.seats[seat]
    }

    fn on_network(&mut self, now: Instant, input: downstream::Input) {
        use downstream::Input as Of;
        let Some(front) = &mut self.front else {
            return self.call(now, 0).handle_input(now, Input::Network(input));
        };
        let (Of::Accepted(id, _) | Of::Identified(id, _) | Of::Received(id, _) | Of::Disconnected(id)) =
            input;
        if let Some(seat) = self.places.get(&id).copied() {
            if matches!(input, Of::Disconnected(_)) {
                self.places.remove(&id);
            }
            return self.call(now, seat).handle_input(now, Input::Network(input));
        }
        match input {
            Of::Accepted(id, address) => front.accept(now, id, address),
            Of::Identified(id, key) => front.identify(id, key),
            Of::Disconnected(id) => front.disconnect(id),
            Of::Received(id, piece) => {
                if let Some(greeted) = front.receive(id, &piece) {
                    self.on_greeted(now, id, greeted);
                }
            }
        }
        self.take_refusals();
    }

    fn on_greeted(&mut self, now: Instant, id: ConnectionId, greeted: Greeted) {
        let Some(front) = &mut self.front else { return };
        let sessions = self.seats.iter().map(Far::downstream);
        if let Some(seat) = front.choose(&greeted, sessions) {
            self.places.insert(id, seat);
            self.call(now, seat).welcome(now, greeted);
        }
    }

    /// Moves what the entrance has to say.
    fn take_refusals(&mut self) {
        let Some(front) = &mut self.front else { return };
        while let Some(output) = front.poll_output() {
            self.outputs.push_back(match output {
                downstream::Output::Transmit { connection, bytes } => Output::Transmit(connection, bytes),
                downstream::Output::Close { connection } => Output::Close(connection),
                downstream::Output::Event { connection, event } => Output::Event(connection, event),
                downstream::Output::Tlp { .. } | downstream::Output::DeviceReset => {
                    unreachable!("the entrance has no device")
                }
            });
        }
    }

    /// The next output of the seats that may have any.
    fn poll_seats(&mut self) -> Option<Output<F::Output>> {
        // The seat that has what they share goes first: its outputs are in the cache.
        while self.stirred != 0 {
            let here = self.stirred & bit(self.at) != 0;
            let seat = if here { self.at } else { self.stirred.trailing_zeros() as usize };
            let now = self.seats[seat].now.max(self.seats[self.at].now);
            let far = self.call(now, seat);
            let output = far.poll_output();
            let called = far.function.take_called();
            self.stirred |= called;
            match output {
                None => self.stirred &= !bit(seat) | called,
                Some(output) => {
                    if let Output::Close(id) = &output {
                        self.places.remove(id);
                    }
                    return Some(output);
                }
            }
        }
        None
    }
}

const _: () = assert!(SEATS_MAX as u32 <= u64::BITS);

/// The set with one seat.
const fn bit(seat: usize) -> u64 {
    1 << seat
}

impl<F: Device> Engine for Seats<F> {
    type Input<'a> = Input<F::Input>;
    type Output = Output<F::Output>;

    fn handle_input(&mut self, now: Instant, input: Input<F::Input>) {
        match input {
            Input::Network(input) => self.on_network(now, input),
            Input::Device(input) => {
                let seat = self.seats[self.at].function.recipient(&input).unwrap_or(self.at);
                self.call(now, seat).handle_input(now, Input::Device(input));
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(front) = &mut self.front {
            front.handle_timeout(now);
            self.take_refusals();
        }
        for seat in 0..self.seats.len() {
            if self.seats.len() == 1 || self.seats[seat].poll_timeout().is_some_and(|at| at <= now) {
                self.call(now, seat).handle_timeout(now);
            }
        }
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output<F::Output>> {
        if self.front.is_none() {
            return self.seats[0].poll_output();
        }
        engine::pop(&mut self.outputs).or_else(|| self.poll_seats())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let front = self.front.as_ref().and_then(Front::poll_timeout);
        self.seats.iter().fold(front, |earliest, seat| Instant::earlier(earliest, seat.poll_timeout()))
    }
}
