//! The losses of a socket, kept apart from those of the wire.

use super::window::Length;
use super::{Counts, Loss, Numbered, SequenceRule, Tracker};

/// After this many datagrams, packets that the kernel dropped are no longer matched to missing
/// ones.
const REMEMBERED: u64 = 4096;

/// The losses before a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The packets that the kernel dropped.
    pub socket: Loss,
    /// The packets that did not reach this host.
    pub wire: Loss,
    /// Whether the sender has started over. Its losses in that moment are unknown.
    pub restarted: bool,
    /// Whether the datagram was counted as lost before it came, or came before.
    pub is_old: bool,
}

/// The account of a socket. The kernel counts the packets that it drops. Numbers of packets show
/// the same losses and those before the host: the ledger counts each packet once.
#[derive(Debug)]
pub struct Ledger {
    tracker: Option<Tracker>,
    length: Length,
    /// Packets that the kernel dropped and no number has shown to be missing.
    dropped: u64,
    datagrams: u64,
    last_drop: u64,
}

impl Ledger {
    /// An account of a socket whose datagrams have numbers if there is a tracker.
    pub const fn new(tracker: Option<Tracker>) -> Self {
        Self { tracker, length: Length::Unknown, dropped: 0, datagrams: 0, last_drop: 0 }
    }

    /// Takes in that the kernel has dropped packets before the next datagram.
    pub fn on_dropped(&mut self, packets: u64) -> Loss {
        self.dropped = self.dropped.saturating_add(packets);
        self.last_drop = self.datagrams;
        self.length.loss(packets)
    }

    /// Takes in a datagram from `sender`, and that the kernel dropped packets before it. Returns
    /// the losses before it.
    pub fn on_datagram(&mut self, sender: u64, datagram: &[u8], dropped: u64) -> Losses {
        self.datagrams += 1;
        self.length.on_packet(u32::try_from(datagram.len()).unwrap_or(u32::MAX));
        let socket = if dropped > 0 { self.on_dropped(dropped) } else { Loss::default() };
        let Some(tracker) = &mut self.tracker else { return Losses { socket, ..Losses::default() } };
        let (numbered, missing) = tracker.on_datagram(sender, datagram);
        if self.datagrams - self.last_drop > REMEMBERED {
            self.dropped = 0;
        }
        let is_old = matches!(numbered, Numbered::Late | Numbered::Twice);
        Losses { socket, wire: self.on_wire(missing), restarted: numbered == Numbered::Anew, is_old }
    }

    /// The packets missing at the end.
    pub fn finish(&mut self) -> Loss {
        let missing = self.tracker.as_mut().map_or(Loss::default(), Tracker::finish);
        self.on_wire(missing)
    }

    /// The rule by which losses on the wire are found.
    pub fn rule(&self) -> SequenceRule {
        self.tracker.as_ref().map_or(SequenceRule::None, Tracker::rule)
    }

    /// How often numbers said what; `None` if datagrams have none.
    pub fn counts(&self) -> Option<Counts> {
        self.tracker.as_ref().map(Tracker::counts)
    }

    /// The missing packets that the kernel did not drop.
    fn on_wire(&mut self, missing: Loss) -> Loss {
        let dropped = missing.packets.min(self.dropped);
        self.dropped -= dropped;
        let packets = missing.packets - dropped;
        let bytes = u128::from(missing.bytes) * u128::from(packets) / u128::from(missing.packets.max(1));
        Loss { packets, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) }
    }
}
