//! A link whose packets are spread over several sessions, each with its own connection, so that a
//! loss on one connection stops only a part of the link.
//!
//! The first strand is the link. Packets that are not known to belong elsewhere go there, and stay
//! in order with everything. The further strands come and go with the link. They carry packets that
//! need no order among each other, because they belong to different queues of the device.
//! `protocol.md` specifies the rules.

mod courses;
mod far_link;
mod further;
pub(crate) mod fuzz;
mod message;
mod order;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Buffer, Crc32c, Engine, Entropy, Instant};
use pcie::switch::{Ahead, Strand};
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};

use crate::frame::{InstanceId, Member, Registers, Role, Secret};
use crate::session::{self, Arrival, Config, Output, Session};
use further::{FurtherStrand, FurtherStrands};

/// The most strands of a link.
pub const STRANDS_MAX: usize = 8;

/// One end of a link that may be spread over several sessions. With one strand, it is a session and
/// nothing else.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LinkEnd {
    main: Session,
    further: Option<Box<FurtherStrands>>,
}

impl LinkEnd {
    /// Takes the means of a new world, after the state was handed over: its randomness, if the
    /// former world had the system's, and its function for digests.
    pub(crate) fn adopt(&mut self, entropy: &Entropy, crc32c: Crc32c) {
        self.main.adopt(entropy, crc32c);
        if let Some(further) = &mut self.further {
            further.adopt(entropy, crc32c);
        }
    }

    /// Creates the end towards the root complex, with as many strands as `config` says.
    pub(crate) fn upstream(mut config: Config, entropy: impl Into<Entropy>) -> Self {
        let mut entropy = entropy.into();
        let count = usize::from(config.strands).clamp(1, STRANDS_MAX);
        if count == 1 {
            return Self { main: Session::upstream(config, entropy), further: None };
        }
        name(&mut config, &mut entropy);
        // Information about the link and registers of the device come over the main strand.
        let of_further = Config { tally: false, config_cache: false, ..config.clone() };
        let further = (1..count).map(|strand| {
            let mut session =
                Session::upstream(of_further.clone(), entropy.fork(&alloc::format!("strand {strand}")));
            // The strand is dialled when the main one is up.
            session.close(Instant::ZERO, "");
            FurtherStrand { session, open: false }
        });
        let further =
            FurtherStrands::new(Role::Upstream, config.clone(), further.collect(), entropy.fork("others"));
        Self { main: Session::upstream(config, entropy), further: Some(Box::new(further)) }
    }

    /// Creates the end towards the device, which takes as many strands as `config` says.
    pub(crate) fn downstream(mut config: Config, entropy: impl Into<Entropy>) -> Self {
        let mut entropy = entropy.into();
        name(&mut config, &mut entropy);
        Self { main: Session::downstream(config, entropy), further: None }
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
        match &mut self.further {
            _ if strand.is_main() => Some(&mut self.main),
            Some(further) if strand.index() <= further.strands.len() => {
                Some(further.of(&mut self.main, strand))
            }
            _ => None,
        }
    }
    /// The sessions of all strands, the main one first.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Session> {
        let further = self.further.iter().flat_map(|further| &further.strands);
        core::iter::once(&self.main).chain(further.map(|one| &one.session))
    }

    /// How many strands there can be.
    pub(crate) fn count(&self) -> usize {
        1 + self.further.as_ref().map_or(0, |further| further.strands.len())
    }
    /// At the device's end: the strand for a packet that the device sends.
    #[inline]
    pub(crate) fn strand_of(&self, packet: &Packet) -> Strand {
        match &self.further {
            Some(further) if further.active => further.courses.strand_of(packet),
            _ => Strand::MAIN,
        }
    }
    /// Whether the link has several strands now.
    #[inline]
    pub(crate) fn is_spread(&self) -> bool {
        self.further.as_ref().is_some_and(|further| further.active)
    }

    /// Says how long a segment may be on the connection of a strand, as
    /// [`Session::set_segment_max`] does.
    pub(crate) fn set_segment_max(&mut self, strand: Strand, bytes: usize) {
        if let Some(session) = self.session(strand) {
            session.set_segment_max(bytes);
        }
    }

    /// Whether received items can be passed on without examining them.
    #[inline]
    fn is_direct(&self) -> bool {
        match &self.further {
            None => true,
            Some(further) => !further.active && further.ready.is_empty(),
        }
    }

    /// Sends a packet on a strand, or on the main one if that strand is not open.
    #[inline]
    pub(crate) fn send_on(&mut self, now: Instant, strand: Strand, packet: Packet) {
        match &mut self.further {
            Some(further) if further.active => further.send_on(&mut self.main, now, strand, packet),
            // The link has several strands, but its `LinkUp` has not been polled yet. A packet sent
            // now would not be counted in the order.
            _ if self.main.strands() > 1 => self.main.count_dropped(),
            _ => self.main.send(now, packet),
        }
    }
    /// Shows registers on the main strand, like everything that concerns configuration; see
    /// [`Session::show`].
    pub(crate) fn show(&mut self, registers: Registers) {
        self.main.show(registers);
    }

    /// Resets the device; see [`Session::reset`]. The further strands begin anew afterwards.
    pub(crate) fn reset(&mut self, now: Instant) {
        if let Some(further) = &mut self.further {
            while further.take_in(&mut self.main, now) {}
            // Registers shown before the reset are no longer valid.
            further.ready.retain(|(_, output)| !matches!(output, Output::Registers(_)));
            further.end_all(now, "reset");
            further.begin(&mut self.main);
            further.resetting = further.active;
        }
        self.main.reset(now);
    }
    /// Closes all strands; see [`Session::close`].
    pub(crate) fn close(&mut self, now: Instant, text: &str) {
        if let Some(further) = &mut self.further {
            further.end_all(now, text);
        }
        self.main.close(now, text);
    }
    /// Advances the time of all strands; see [`Session::advance`].
    pub(crate) fn advance(&mut self, now: Instant) {
        self.main.advance(now);
        for one in self.further.iter_mut().flat_map(|further| &mut further.strands) {
            one.session.advance(now);
        }
    }
    pub(crate) fn has_received(&self) -> bool {
        self.further.as_ref().is_some_and(|further| !further.ready.is_empty())
            || self.sessions().any(Session::has_received)
    }
    pub(crate) fn queued_bytes(&self) -> usize {
        self.sessions().map(Session::queued_bytes).sum()
    }
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.further {
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
        for one in self.further.iter_mut().flat_map(|further| &mut further.strands) {
            one.session.handle_timeout(now);
        }
    }
    pub(crate) fn handle_input(&mut self, now: Instant, strand: Strand, input: session::Input) {
        if let Some(session) = self.session(strand) {
            session.handle_input(now, input);
        }
    }
    /// Defers the bytes of a strand's connection; see [`Session::hold_back`].
    pub(crate) fn hold_back(&mut self, now: Instant, strand: Strand) -> bool {
        self.session(strand).is_some_and(|session| session.hold_back(now))
    }
    /// The next packet of a link with one strand; see [`Session::poll_packet`]. Packets of several
    /// strands come out as outputs.
    #[inline]
    pub(crate) fn poll_packet(&mut self, packet: &mut Packet) -> Option<Arrival> {
        if self.is_direct() { self.main.poll_packet(packet) } else { None }
    }
    /// The next memory sent ahead on a link with one strand; see [`Session::poll_ahead`].
    #[inline]
    pub(crate) fn poll_ahead(&mut self) -> Option<(Instant, Ahead, Buffer)> {
        if self.is_direct() { self.main.poll_ahead() } else { None }
    }
    /// The next output, and its strand.
    #[inline]
    pub(crate) fn poll_output(&mut self) -> Option<(Strand, Output)> {
        if self.further.is_some() {
            return self.poll_spread();
        }
        let output = self.main.poll_output()?;
        if matches!(output, Output::LinkUp { .. }) && self.main.strands() > 1 {
            self.spread();
        }
        Some((Strand::MAIN, output))
    }

    /// At the device's end: prepares for several strands, which the new link may have.
    #[cold]
    fn spread(&mut self) {
        let (config, entropy) = (self.main.config().clone(), self.main.fork("strands"));
        let mut further = FurtherStrands::new(Role::Downstream, config, Vec::new(), entropy);
        further.active = true;
        further.link = self.main.id();
        self.further = Some(Box::new(further));
    }

    /// Like [`LinkEnd::poll_output`], for several strands. It is a separate function so that one
    /// strand is as fast as a session.
    #[inline(never)]
    fn poll_spread(&mut self) -> Option<(Strand, Output)> {
        let now = self.now();
        let further = self.further.as_mut()?;
        loop {
            if let Some(output) = further.ready.pop_front() {
                return Some(output);
            }
            if !further.take_in(&mut self.main, now) {
                return None;
            }
        }
    }

    /// At the device's end: whether a connection for a further strand belongs to the link. Its
    /// Hello must show the link's secret.
    pub(crate) fn admits(&self, instance: InstanceId, member: Member, secret: Option<Secret>) -> bool {
        self.is_spread()
            && self.main.knows(secret)
            && (1..self.main.strands()).contains(&usize::from(member.strand))
            && self.main.id() == Some(member.session)
            && self.main.peer().is_some_and(|peer| peer.instance == instance)
    }
    /// At the device's end: connects a strand that was admitted.
    pub(crate) fn connect(&mut self, now: Instant, strand: Strand) {
        if strand.is_main() {
            return self.main.handle_input(now, session::Input::Connected);
        }
        if let Some(further) = &mut self.further {
            further.connect(now, strand);
        }
    }
}

/// Gives all strands the same instance.
fn name(config: &mut Config, entropy: &mut Entropy) {
    if config.identity.instance == InstanceId::default() {
        entropy.fill(&mut config.identity.instance.0);
    }
}
