//! A session's connection over datagrams that get lost, doubled and late: `datagrams` in the
//! virtual world.

use std::collections::VecDeque;

use datagrams::{Endpoint, Id};
use engine::{Buffer, Entropy, Instant, Nanos, Rng};
use sim::Context;
use sim::direct::PortId;
use tunnel::session::Input;

/// The longest datagram that the network passes, and the longest that is tried.
const MTU: usize = 1472;
const TRIED: usize = 9000;
/// How long the weather stays as it is, at most.
const SPELL_MAX: Nanos = Nanos::from_millis(150);
/// How late a datagram is that others overtake, at most.
const LATE_MAX: Nanos = Nanos::from_millis(3);

/// What happens to datagrams for a while: each is one in so many.
#[derive(Clone, Copy, Debug)]
struct Weather {
    until: Instant,
    is_out: bool,
    lost: u64,
    doubled: u64,
    late: u64,
    cut: u64,
}

/// One end of a session's connection over a lossy network.
#[derive(Debug)]
pub(crate) struct Lossy {
    /// The port towards the other end.
    port: PortId,
    is_dialling: bool,
    endpoint: Endpoint<()>,
    id: Option<Id>,
    is_connected: bool,
    rng: Rng,
    weather: Weather,
    /// Whether faults may happen.
    is_fair: bool,
    /// Inputs for the session.
    inputs: VecDeque<Input>,
    room: Vec<u8>,
}

impl Lossy {
    pub(crate) fn new(port: PortId, is_dialling: bool, rng: Rng) -> Self {
        let weather = Weather { until: Instant::ZERO, is_out: false, lost: 0, doubled: 0, late: 0, cut: 0 };
        Self {
            port,
            is_dialling,
            endpoint: Endpoint::new(Entropy::from(rng.fork("names")), TRIED, !is_dialling),
            id: None,
            is_connected: false,
            rng,
            weather,
            is_fair: false,
            inputs: VecDeque::new(),
            room: Vec::new(),
        }
    }

    /// The port towards the other end.
    pub(crate) const fn port(&self) -> PortId {
        self.port
    }

    /// From now on little goes wrong.
    pub(crate) const fn clear_up(&mut self) {
        self.is_fair = true;
        self.weather.until = Instant::ZERO;
    }

    pub(crate) fn poll_input(&mut self) -> Option<Input> {
        self.inputs.pop_front()
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        self.leave();
        assert!(self.is_dialling, "only the upstream end dials");
        self.id = Some(self.endpoint.connect(now, ()));
    }

    pub(crate) fn send(&mut self, bytes: Buffer) {
        if let Some(connection) = self.id.and_then(|id| self.endpoint.get(id)) {
            connection.send(bytes);
        }
    }

    /// Ends the connection after sending what the network takes at once; the rest is lost.
    pub(crate) fn close(&mut self, context: &mut Context<'_, Vec<u8>>) {
        self.transmit(context);
        if let Some(connection) = self.id.and_then(|id| self.endpoint.get(id)) {
            connection.end();
        }
        self.transmit(context);
        self.leave();
    }

    fn leave(&mut self) {
        if let Some(id) = self.id.take() {
            self.endpoint.remove(id);
        }
        self.is_connected = false;
        self.inputs.clear();
    }

    pub(crate) fn handle(&mut self, now: Instant, datagram: &[u8]) {
        self.endpoint.handle_datagram(now, (), datagram);
    }

    /// Does what is due, and returns when the next thing is due.
    pub(crate) fn settle(&mut self, context: &mut Context<'_, Vec<u8>>) -> Option<Instant> {
        let now = context.now();
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some((id, ())) = self.endpoint.accept() {
            // A new connection takes the place of the old one.
            let was_connected = self.is_connected;
            self.leave();
            if was_connected {
                self.inputs.push_back(Input::Disconnected);
            }
            self.id = Some(id);
        }
        self.look();
        self.transmit(context);
        self.endpoint.poll_timeout()
    }

    /// Tells the session what has become of the connection.
    fn look(&mut self) {
        let Some(id) = self.id else { return };
        let Some(connection) = self.endpoint.get(id) else { return };
        if connection.is_established() && !std::mem::replace(&mut self.is_connected, true) {
            self.inputs.push_back(Input::Connected);
        }
        while let Some(bytes) = connection.receive() {
            self.inputs.push_back(Input::Received(bytes));
        }
        if connection.ended().is_some() {
            self.endpoint.remove(id);
            (self.id, self.is_connected) = (None, false);
            self.inputs.push_back(Input::Disconnected);
        }
    }

    fn transmit(&mut self, context: &mut Context<'_, Vec<u8>>) {
        let now = context.now();
        let mut room = std::mem::take(&mut self.room);
        while self.endpoint.poll_transmit(now, &mut room).is_some() {
            self.pass(context, &room);
            room.clear();
        }
        self.room = room;
    }

    /// Does to a datagram what the weather does.
    fn pass(&mut self, context: &mut Context<'_, Vec<u8>>, bytes: &[u8]) {
        let now = context.now();
        if now >= self.weather.until {
            self.weather = self.draw(now);
        }
        let Weather { is_out, lost, doubled, late, cut, .. } = self.weather;
        if is_out || bytes.len() > MTU || self.rng.one_in(lost) {
            return;
        }
        let is_cut = self.rng.one_in(cut);
        let length = if is_cut { self.rng.below(bytes.len() as u64) } else { bytes.len() as u64 };
        let bytes = &bytes[..usize::try_from(length).expect("less than a datagram")];
        for _ in 0..=u64::from(self.rng.one_in(doubled)) {
            let delay = if self.rng.one_in(late) { self.rng.below(LATE_MAX.get()) } else { 0 };
            context.send_packet_at(self.port, bytes.to_vec(), now + Nanos::new(delay));
        }
    }

    fn draw(&mut self, now: Instant) -> Weather {
        let until = now + Nanos::new(1 + self.rng.below(SPELL_MAX.get()));
        if self.is_fair {
            return Weather { until, is_out: false, lost: 100, doubled: 100, late: 100, cut: 0 };
        }
        let is_out = self.rng.one_in(6);
        let mut one_in = |most| if self.rng.one_in(2) { 0 } else { 3 + self.rng.below(most) };
        let [lost, doubled, late, cut] = [one_in(60), one_in(60), one_in(30), one_in(200)];
        Weather { until, is_out, lost, doubled, late, cut }
    }
}
