//! The further strands of a link, and the order between packets of different strands.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Crc32c, Engine, Entropy, Instant, Pool};
use pcie::switch::Strand;
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};

use super::STRANDS_MAX;
use super::courses::Courses;
use super::message::{self, After, Message};
use super::order::Order;
use crate::frame::{Ahead, AheadKey, CloseCode, Keys, Member, Registers, Role, SessionId};
use crate::session::{self, Arrival, Config, DownReason, Kept, Output, ProtocolError, Session};

/// The most items that may wait on one strand for other strands. Packets are not limited by it,
/// since credits bound them.
const HELD_MAX: usize = 8192;

/// An item that waits for other strands.
#[derive(Debug, Serialize, Deserialize)]
enum Held {
    Order(Vec<After>, Kept),
    Tlp(Packet, Arrival, Kept),
    Ahead(Ahead, Buffer),
    Forget(Buffer),
    Message(Message, Kept),
    Registers(Registers),
}

/// A further strand of the link.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FurtherStrand {
    pub(super) session: Session,
    pub(super) open: bool,
}

/// The further strands of a link, and the items that wait for their order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FurtherStrands {
    role: Role,
    pub(super) config: Config,
    entropy: Entropy,
    pub(super) strands: Vec<FurtherStrand>,
    /// Whether the link is up and may have several strands.
    pub(super) active: bool,
    /// The session of the main strand whose link the further strands belong to.
    pub(super) link: Option<SessionId>,
    /// At the upstream end: whether a reset is pending, after which the further strands are dialled
    /// again.
    pub(super) resetting: bool,
    order: Order,
    held: Vec<VecDeque<Held>>,
    /// Bytes of memory sent ahead in the held items.
    held_bytes: usize,
    pub(super) courses: Courses,
    pub(super) ready: VecDeque<(Strand, Output)>,
    pool: Pool,
}

impl FurtherStrands {
    /// Takes the means of a new world, after the state was handed over: its randomness, if the
    /// former world had the system's, and its function for digests.
    pub(super) fn adopt(&mut self, entropy: &Entropy, crc32c: Crc32c) {
        self.entropy.supply(entropy);
        self.config.crc32c = crc32c;
        for strand in &mut self.strands {
            strand.session.adopt(entropy, crc32c);
        }
    }

    pub(super) fn new(role: Role, config: Config, strands: Vec<FurtherStrand>, entropy: Entropy) -> Self {
        Self {
            role,
            config,
            entropy,
            strands,
            active: false,
            link: None,
            resetting: false,
            order: Order::default(),
            held: (0..STRANDS_MAX).map(|_| VecDeque::new()).collect(),
            held_bytes: 0,
            courses: Courses::default(),
            ready: VecDeque::new(),
            pool: Pool::default(),
        }
    }

    /// At the device's end: creates one more strand.
    pub(super) fn make(&mut self) -> FurtherStrand {
        FurtherStrand { session: Session::downstream(self.config.clone(), self.entropy.split()), open: false }
    }
    /// At the device's end: connects a strand.
    pub(super) fn connect(&mut self, now: Instant, strand: Strand) {
        let Some(place) = place(strand) else { return };
        while self.strands.len() <= place {
            let strand = self.make();
            self.strands.push(strand);
        }
        if self.strands[place].session.is_stopped() {
            self.strands[place] = self.make();
        }
        self.strands[place].session.handle_input(now, session::Input::Connected);
    }

    /// All strands of the link, the main one first.
    pub(super) fn all(&self) -> impl Iterator<Item = Strand> + use<> {
        Strand::first(1 + self.strands.len())
    }

    /// The strand on which a queue's packets go; queue 0 has the main one.
    pub(super) fn of_queue(&self, queue: u16) -> Strand {
        let Some(further) = queue.checked_sub(1) else { return Strand::MAIN };
        let place = usize::from(further) % self.strands.len().max(1);
        Strand(u8::try_from(1 + place).expect("there are few strands"))
    }

    pub(super) fn is_open(&self, strand: Strand) -> bool {
        let further = place(strand).and_then(|place| self.strands.get(place));
        self.active && further.is_some_and(|further| further.open)
    }

    pub(super) fn send_on(&mut self, main: &mut Session, now: Instant, strand: Strand, packet: Packet) {
        let strand = if self.is_open(strand) { strand } else { Strand::MAIN };
        if message::is_message(&packet) || !main.takes(&packet) || main.id() != self.link {
            // Drops a packet that would pass for a message of the link, that the main session would
            // drop uncounted, or that belongs to a link that is gone.
            return main.count_dropped();
        }
        self.keep_order(main, now, strand);
        if packet.is_posted() {
            self.order.send(strand);
        }
        self.of(main, strand).send(now, packet);
    }

    /// Bytes of memory sent ahead that wait.
    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The session of a strand.
    pub(super) fn of<'a>(&'a mut self, main: &'a mut Session, strand: Strand) -> &'a mut Session {
        place(strand).map_or(main, |place| &mut self.strands[place].session)
    }

    /// Sends the counts that come before a packet that is about to go out on `strand`.
    fn keep_order(&mut self, main: &mut Session, now: Instant, strand: Strand) {
        if let Some(after) = self.order.before(strand) {
            let packet = Message::Order(after).packet(&mut self.pool);
            self.of(main, strand).send(now, packet);
        }
    }

    pub(super) fn inform(&mut self, main: &mut Session, now: Instant, strand: Strand, message: &Message) {
        let packet = message.packet(&mut self.pool);
        // The session drops a message that is too long for the peer. If it counted in the order,
        // the peer would wait for it for ever.
        if main.id() != self.link || !main.takes(&packet) {
            return;
        }
        self.keep_order(main, now, strand);
        self.order.send(strand);
        self.of(main, strand).send(now, packet);
    }

    pub(super) fn forget(&mut self, main: &mut Session, now: Instant, strand: Strand, key: AheadKey) {
        self.of(main, strand).forget_ahead(key);
        if key == AheadKey::ALL {
            // Forgetting takes effect with the next packet. The message is that packet, before
            // anything is known anew.
            self.inform(main, now, strand, &Message::Clear);
        }
    }

    /// Takes in one output of any session. Returns whether there was one.
    pub(super) fn take_in(&mut self, main: &mut Session, now: Instant) -> bool {
        if self.resetting && main.resets_pending() == 0 {
            self.resetting = false;
            self.dial(main, now);
        }
        for strand in self.all() {
            if let Some((output, kept)) = self.of(main, strand).poll_kept() {
                self.take(main, now, strand, output, kept);
                return true;
            }
        }
        false
    }

    fn take(&mut self, main: &mut Session, now: Instant, strand: Strand, output: Output, kept: Option<Kept>) {
        let held = match (output, kept) {
            (Output::Tlp { packet, arrival }, Some(kept)) if self.active => {
                if !message::is_message(&packet) {
                    Held::Tlp(packet, arrival, kept)
                } else {
                    match Message::parse(&packet.payload) {
                        Some(Message::Order(after)) => Held::Order(after, kept),
                        Some(message) if self.role == Role::Downstream => Held::Message(message, kept),
                        _ => {
                            let reason = DownReason::Protocol(ProtocolError::Strands);
                            return main.end(now, CloseCode::Protocol, reason);
                        }
                    }
                }
            }
            (Output::Ahead(ahead, bytes), _) if self.active => Held::Ahead(ahead, bytes),
            (Output::Forget(keys), _) if self.active => Held::Forget(keys),
            // Registers are in order with the completions before and behind them.
            (Output::Registers(registers), _) if self.active => Held::Registers(registers),
            (output, kept) => {
                if let Some(kept) = kept {
                    self.of(main, strand).pass_on(kept);
                }
                return self.on_event(main, now, strand, output);
            }
        };
        if self.held[strand.index()].is_empty() {
            if let Some(held) = self.pass(main, strand, held) {
                self.held[strand.index()].push_back(held);
            }
            self.release(main);
        } else {
            self.hold(main, now, strand, held);
        }
    }

    /// Keeps an item that waits behind another one.
    fn hold(&mut self, main: &mut Session, now: Instant, strand: Strand, held: Held) {
        let full = self.held[strand.index()].len() >= HELD_MAX;
        match &held {
            Held::Ahead(_, bytes) => {
                let most = usize::try_from(self.config.ahead).unwrap_or(usize::MAX);
                if full || self.held_bytes + bytes.len() > most {
                    return;
                }
                self.held_bytes += bytes.len();
            }
            Held::Forget(_) | Held::Registers(_) if full => {
                return main.end(now, CloseCode::Protocol, DownReason::Protocol(ProtocolError::Strands));
            }
            _ => {}
        }
        self.held[strand.index()].push_back(held);
    }

    /// Passes on an item that is the next of its strand, or returns it if it must wait for other
    /// strands.
    fn pass(&mut self, main: &mut Session, strand: Strand, held: Held) -> Option<Held> {
        let kept = match held {
            Held::Order(after, kept) if self.order.is_met(&after) => kept,
            Held::Order(..) => return Some(held),
            Held::Tlp(packet, arrival, kept) => {
                if packet.is_posted() {
                    self.order.pass_on(strand);
                }
                self.ready.push_back((strand, Output::Tlp { packet, arrival }));
                kept
            }
            Held::Message(message, kept) => {
                match message {
                    Message::Courses { key, strand: course, ranges } => {
                        for range in ranges {
                            self.courses.insert(key, course, range);
                        }
                    }
                    Message::Clear => self.courses.clear(),
                    Message::Order(_) => {}
                }
                self.order.pass_on(strand);
                kept
            }
            Held::Ahead(ahead, bytes) => {
                self.ready.push_back((strand, Output::Ahead(ahead, bytes)));
                return None;
            }
            Held::Forget(keys) => {
                Keys(&keys).iter().for_each(|key| self.courses.forget(key));
                self.ready.push_back((strand, Output::Forget(keys)));
                return None;
            }
            Held::Registers(registers) => {
                self.ready.push_back((strand, Output::Registers(registers)));
                return None;
            }
        };
        self.of(main, strand).pass_on(kept);
        None
    }

    /// Passes on all items that no longer wait.
    fn release(&mut self, main: &mut Session) {
        loop {
            let mut moved = false;
            for strand in self.all() {
                while let Some(held) = self.held[strand.index()].pop_front() {
                    if let Held::Ahead(_, bytes) = &held {
                        self.held_bytes -= bytes.len();
                    }
                    if let Some(held) = self.pass(main, strand, held) {
                        self.held[strand.index()].push_front(held);
                        break;
                    }
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Handles a session's events about its connection and the link.
    fn on_event(&mut self, main: &mut Session, now: Instant, strand: Strand, output: Output) {
        match (place(strand), &output) {
            (_, Output::Interrupted { .. }) => self.lose_ahead(),
            (_, Output::Resumed) => {
                self.lose_ahead();
                if self.role == Role::Upstream && self.active {
                    // The lost connection may have carried keys to forget.
                    self.forget(main, now, strand, AheadKey::ALL);
                }
            }
            (None, Output::LinkUp { .. }) => {
                self.end_all(now, "the link is another one");
                self.begin(main);
                self.resetting = false;
                self.active = main.strands() > 1;
                self.link = main.id();
                if self.active && self.role == Role::Upstream {
                    self.dial(main, now);
                }
            }
            (None, Output::LinkDown { .. }) => {
                self.end_all(now, "the link is down");
                self.begin(main);
                self.active = false;
            }
            (None, Output::Reset) => {
                self.end_all(now, "reset");
                self.begin(main);
            }
            (Some(place), Output::LinkUp { .. }) => {
                self.strands[place].open = true;
                if self.role == Role::Upstream {
                    self.forget(main, now, strand, AheadKey::ALL);
                }
            }
            (Some(place), Output::LinkDown { reason }) => {
                let was = core::mem::take(&mut self.strands[place].open);
                let quiet = matches!(
                    reason,
                    DownReason::Closed | DownReason::ClosedByPeer { code: CloseCode::Normal, .. }
                );
                if was && !quiet && self.active {
                    main.end(now, CloseCode::Superseded, DownReason::StrandLost);
                }
                return;
            }
            _ => {}
        }
        self.ready.push_back((strand, output));
    }

    /// Drops what belonged to a lost connection: memory sent ahead, and ranges of strands.
    fn lose_ahead(&mut self) {
        self.courses.clear();
        for held in &mut self.held {
            held.retain(|held| !matches!(held, Held::Ahead(..)));
        }
        self.held_bytes = 0;
    }

    /// Resets all counts and drops what waits, since the link is another one or was reset.
    pub(super) fn begin(&mut self, main: &mut Session) {
        self.order = Order::default();
        self.courses.clear();
        self.held_bytes = 0;
        for (strand, held) in Strand::first(STRANDS_MAX).zip(&mut self.held) {
            while let Some(held) = held.pop_front() {
                if let Held::Order(_, kept) | Held::Tlp(_, _, kept) | Held::Message(_, kept) = held
                    && strand.is_main()
                {
                    main.pass_on(kept);
                }
            }
        }
    }

    /// At the upstream end: dials the further strands.
    fn dial(&mut self, main: &Session, now: Instant) {
        let Some(id) = main.id() else { return };
        let strands = main.strands();
        for (further, strand) in self.strands.iter_mut().zip(1_u16..) {
            if usize::from(strand) < strands {
                further.session.set_member(Member { session: id, strand }, main.secret());
                further.session.restart(now);
            }
        }
    }

    /// Ends all further strands.
    pub(super) fn end_all(&mut self, now: Instant, text: &str) {
        for further in &mut self.strands {
            further.session.close(now, text);
            further.open = false;
        }
    }
}

/// The place of a strand among the further strands; `None` for the main strand.
fn place(strand: Strand) -> Option<usize> {
    strand.index().checked_sub(1)
}
