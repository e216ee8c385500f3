//! A link whose packets are spread over several sessions, each with a connection of its own, so that what one of them loses
//! stops only a part.
//!
//! The first strand is the link: what is not known to belong elsewhere goes there, and stays in order with everything. The
//! others come and go with it and carry what needs no order among each other: what belongs to different queues of
//! an NVMe controller. `docs/tunnel-protocol.md` has the rules.

mod courses;
pub(crate) mod fuzz;
mod message;
mod order;
mod others;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Entropy, Instant};
use pcie::wire::Packet;

use crate::frame::{Ahead, AheadKey, InstanceId, Member, Registers, Role, Secret};
use crate::session::{self, Arrival, Config, Output, Session};
use message::Message;
use others::{Other, Others};

/// Strands of a link, at most.
pub const STRANDS_MAX: usize = 8;

/// A strand of a link; the main one is 0.
pub(crate) type Strand = usize;

/// See the module. With one strand it is that session and nothing else.
#[derive(Debug)]
pub(crate) struct Bundle {
    main: Session,
    others: Option<Box<Others>>,
}

impl Bundle {
    /// The end towards the root complex, with as many strands as `config` says.
    pub(crate) fn upstream(mut config: Config, entropy: impl Into<Entropy>) -> Self {
        let mut entropy = entropy.into();
        let count = usize::from(config.strands).clamp(1, STRANDS_MAX);
        if count == 1 {
            return Self { main: Session::upstream(config, entropy), others: None };
        }
        name(&mut config, &mut entropy);
        // What is told of the link, or shown of the device, comes on the main one.
        let of_others = Config { tally: false, shadow: false, ..config.clone() };
        let others = (1..count).map(|strand| {
            let mut session =
                Session::upstream(of_others.clone(), entropy.fork(&alloc::format!("strand {strand}")));
            // It is dialled when the main one is up.
            session.close(Instant::ZERO, "");
            Other { session, open: false }
        });
        let others = Others::new(Role::Upstream, config.clone(), others.collect(), entropy.fork("others"));
        Self { main: Session::upstream(config, entropy), others: Some(Box::new(others)) }
    }

    /// The end towards the device. It takes as many strands as `config` says.
    pub(crate) fn downstream(mut config: Config, entropy: impl Into<Entropy>) -> Self {
        let mut entropy = entropy.into();
        name(&mut config, &mut entropy);
        Self { main: Session::downstream(config, entropy), others: None }
    }

    /// The main strand.
    pub(crate) const fn main(&self) -> &Session {
        &self.main
    }
    pub(crate) const fn main_mut(&mut self) -> &mut Session {
        &mut self.main
    }
    fn now(&self) -> Instant {
        self.sessions().map(Session::now).max().unwrap_or_default()
    }
    fn session(&mut self, strand: Strand) -> Option<&mut Session> {
        match (strand, &mut self.others) {
            (0, _) => Some(&mut self.main),
            (_, Some(others)) => others.others.get_mut(strand - 1).map(|other| &mut other.session),
            _ => None,
        }
    }
    /// All strands, the main one first.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Session> {
        let others = self.others.iter().flat_map(|others| &others.others);
        core::iter::once(&self.main).chain(others.map(|other| &other.session))
    }

    /// How many strands there could be.
    pub(crate) fn count(&self) -> usize {
        1 + self.others.as_ref().map_or(0, |others| others.others.len())
    }
    /// The strand of a queue, 1 being the first: of those that are there, else the main one.
    pub(crate) fn strand_of_queue(&self, queue: u16) -> Strand {
        let Some(others) = self.others.as_ref().filter(|others| others.active) else { return 0 };
        let strand = match usize::from(queue).checked_sub(1) {
            Some(queue) => 1 + queue % others.others.len().max(1),
            None => 0,
        };
        if others.is_open(strand) { strand } else { 0 }
    }
    /// At the device's end: the strand of what the device sends.
    #[inline]
    pub(crate) fn strand_of(&self, packet: &Packet) -> Strand {
        match &self.others {
            Some(others) if others.active => usize::from(others.courses.strand_of(packet)),
            _ => 0,
        }
    }
    /// Whether there are several strands now.
    #[inline]
    pub(crate) fn is_spread(&self) -> bool {
        self.others.as_ref().is_some_and(|others| others.active)
    }

    /// Whether what comes needs no looking at.
    #[inline]
    fn is_direct(&self) -> bool {
        match &self.others {
            None => true,
            Some(others) => !others.active && others.ready.is_empty(),
        }
    }

    /// Sends a packet on the main strand.
    #[inline]
    pub(crate) fn send(&mut self, now: Instant, packet: Packet) {
        self.send_on(now, 0, packet);
    }
    /// Sends a packet on a strand, or on the main one where that is not there.
    #[inline]
    pub(crate) fn send_on(&mut self, now: Instant, strand: Strand, packet: Packet) {
        match &mut self.others {
            Some(others) if others.active => others.send_on(&mut self.main, now, strand, packet),
            // A link of several strands that nobody knows of yet: what goes there would not be counted.
            _ if self.main.strands() > 1 => self.main.count_dropped(),
            _ => self.main.send(now, packet),
        }
    }
    /// See [`Session::show`]: on the main strand, as all that has to do with configuration.
    pub(crate) fn show(&mut self, registers: Registers) {
        self.main.show(registers);
    }
    /// Whether the device's end is known to have all posted requests that were sent, on whichever strand. Then it has passed them
    /// on, too: nothing that they could wait for is still to come.
    pub(crate) fn is_flushed(&self) -> bool {
        let others = self.others.iter().flat_map(|others| &others.others);
        self.main.is_flushed() && others.filter(|other| other.open).all(|other| other.session.is_flushed())
    }
    /// See [`Session::send_ahead`].
    #[inline]
    pub(crate) fn send_ahead_on(&mut self, strand: Strand, ahead: Ahead, bytes: Buffer) -> bool {
        match &mut self.others {
            Some(others) if others.is_open(strand) => {
                others.others[strand - 1].session.send_ahead(ahead, bytes)
            }
            _ => self.main.send_ahead(ahead, bytes),
        }
    }
    /// The device's end forgets what it knows by `key`, before it sees any packet that is sent from now on.
    #[inline]
    pub(crate) fn forget_ahead(&mut self, key: AheadKey) {
        let now = self.now();
        if let Some(others) = &mut self.others
            && others.active
        {
            for strand in 1..=others.others.len() {
                if others.is_open(strand) {
                    others.forget(&mut self.main, now, strand, key);
                }
            }
            return others.forget(&mut self.main, now, 0, key);
        }
        self.main.forget_ahead(key);
    }
    /// What the device writes to `ranges` needs no order but that of `strand`, until `key` is forgotten.
    /// It is told so on the strand `via`.
    pub(crate) fn lay(
        &mut self,
        now: Instant,
        (via, strand): (Strand, Strand),
        key: AheadKey,
        ranges: &[(u64, u32)],
    ) {
        let Some(others) = self.others.as_mut().filter(|others| others.is_open(strand)) else { return };
        let via = if others.is_open(via) { via } else { 0 };
        let number = u8::try_from(strand).expect("there are few strands");
        for ranges in ranges.chunks(message::RANGES_MAX) {
            let message = Message::Courses { key, strand: number, ranges: ranges.to_vec() };
            others.tell(&mut self.main, now, via, &message);
        }
    }

    /// See [`Session::reset`]. The other strands begin anew after it.
    pub(crate) fn reset(&mut self, now: Instant) {
        if let Some(others) = &mut self.others {
            while others.take_in(&mut self.main, now) {}
            // What was shown before it is true no longer.
            others.ready.retain(|(_, output)| !matches!(output, Output::Registers(_)));
            others.end_all(now, "reset");
            others.begin(&mut self.main);
            others.resetting = others.active;
        }
        self.main.reset(now);
    }
    /// See [`Session::close`].
    pub(crate) fn close(&mut self, now: Instant, text: &str) {
        if let Some(others) = &mut self.others {
            others.end_all(now, text);
        }
        self.main.close(now, text);
    }
    /// Tells the time; see [`Session::advance`].
    pub(crate) fn advance(&mut self, now: Instant) {
        self.main.advance(now);
        for other in self.others.iter_mut().flat_map(|others| &mut others.others) {
            other.session.advance(now);
        }
    }
    pub(crate) fn has_received(&self) -> bool {
        self.others.as_ref().is_some_and(|others| !others.ready.is_empty())
            || self.sessions().any(Session::has_received)
    }
    pub(crate) fn queued_bytes(&self) -> usize {
        self.sessions().map(Session::queued_bytes).sum()
    }
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.others {
            None => self.main.poll_timeout(),
            Some(_) => self.poll_timeout_of_all(),
        }
    }
    #[inline(never)]
    fn poll_timeout_of_all(&self) -> Option<Instant> {
        self.sessions().filter_map(Session::poll_timeout).min()
    }
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.main.handle_timeout(now);
        for other in self.others.iter_mut().flat_map(|others| &mut others.others) {
            other.session.handle_timeout(now);
        }
    }
    pub(crate) fn handle_input(&mut self, now: Instant, strand: Strand, input: session::Input) {
        if let Some(session) = self.session(strand) {
            session.handle_input(now, input);
        }
    }
    /// See [`Session::poll_packet`]; several strands have all that they have as outputs.
    #[inline]
    pub(crate) fn poll_packet(&mut self, packet: &mut Packet) -> Option<Arrival> {
        if self.is_direct() { self.main.poll_packet(packet) } else { None }
    }
    /// As [`Session::poll_ahead`].
    #[inline]
    pub(crate) fn poll_ahead(&mut self) -> Option<(Instant, Ahead, Buffer)> {
        if self.is_direct() { self.main.poll_ahead() } else { None }
    }
    /// What is next, and of which strand.
    #[inline]
    pub(crate) fn poll_output(&mut self) -> Option<(Strand, Output)> {
        if self.others.is_some() {
            return self.poll_spread();
        }
        let output = self.main.poll_output()?;
        if matches!(output, Output::LinkUp { .. }) && self.main.strands() > 1 {
            self.spread();
        }
        Some((0, output))
    }

    /// At the device's end: the link that has come up has several strands.
    #[cold]
    fn spread(&mut self) {
        let (config, entropy) = (self.main.config().clone(), self.main.fork("strands"));
        let mut others = Others::new(Role::Downstream, config, Vec::new(), entropy);
        others.active = true;
        others.link = self.main.id();
        self.others = Some(Box::new(others));
    }

    /// As [`Bundle::poll_output`], apart from it, so that what has one strand is as fast as a session.
    #[inline(never)]
    fn poll_spread(&mut self) -> Option<(Strand, Output)> {
        let now = self.now();
        let others = self.others.as_mut()?;
        loop {
            if let Some(output) = others.ready.pop_front() {
                return Some(output);
            }
            if !others.take_in(&mut self.main, now) {
                return None;
            }
        }
    }

    /// At the device's end: a connection for a strand besides the main one says Hello. Whether it belongs to the link, whose
    /// secret it has to show.
    pub(crate) fn admits(&self, instance: InstanceId, member: Member, secret: Option<Secret>) -> bool {
        self.is_spread()
            && self.main.knows(secret)
            && (1..self.main.strands()).contains(&usize::from(member.strand))
            && self.main.id() == Some(member.session)
            && self.main.peer().is_some_and(|peer| peer.instance == instance)
    }
    /// At the device's end: there is a connection for this strand, which was admitted.
    pub(crate) fn connect(&mut self, now: Instant, strand: Strand) {
        if strand == 0 {
            return self.main.handle_input(now, session::Input::Connected);
        }
        let Some(others) = &mut self.others else { return };
        while others.others.len() < strand {
            others.add();
        }
        if others.others[strand - 1].session.is_stopped() {
            others.others[strand - 1] = others.make();
        }
        others.others[strand - 1].session.handle_input(now, session::Input::Connected);
    }
}

/// All strands are of one instance.
fn name(config: &mut Config, entropy: &mut Entropy) {
    if config.identity.instance == InstanceId::default() {
        entropy.fill(&mut config.identity.instance.0);
    }
}
