//! Which frames of a capture are kept, and which command ends it.

use captures::{Frame, Held, held, knowledge_of, note_of};
use engine::Nanos;
use pcie::wire::{Header, Kind, MemoryOperation};
use trace::fabric::Fabric;
use trace::{Analyser, Command, Kind as CommandKind, Place, Seen, Transactions};

use crate::args::{Filters, PacketKind};

/// Looks at each frame as `farlane observe trace` does.
pub(super) struct Sieve {
    filters: Filters,
    /// The latency beyond which a command ends the capture.
    threshold: Option<Nanos>,
    analyser: Analyser,
    fabric: Fabric,
    transactions: Transactions,
    slow: Option<Command>,
    /// Whether packets are followed: something is looked for, or the set-up may not be kept.
    is_following: bool,
    /// The state of knowledge of the controllers at the last report.
    noted: u64,
}

impl Sieve {
    /// Keeps packets that `filters` name, and looks for a command that takes longer than
    /// `threshold`. With `has_ring`, only the latest part of them will stay.
    pub(super) fn new(filters: Filters, threshold: Option<Nanos>, has_ring: bool) -> Self {
        let is_following =
            has_ring || threshold.is_some() || !filters.queue.is_empty() || filters.of_packets().is_some();
        let (analyser, fabric) = (Analyser::new(), Fabric::default());
        let transactions = Transactions::default();
        Self { filters, threshold, analyser, fabric, transactions, slow: None, is_following, noted: 0 }
    }

    /// Notes about the controllers, if more is known of them than when this was last asked.
    pub(super) fn news(&mut self) -> Option<Vec<String>> {
        let changes = self.analyser.changes();
        let is_new = std::mem::replace(&mut self.noted, changes) != changes;
        is_new.then(|| self.analyser.knowledge().filter_map(|knowledge| note_of(&knowledge)).collect())
    }

    /// Takes the daemon's note about its controllers.
    pub(super) fn learn(&mut self, note: &str) {
        if let Some(knowledge) = knowledge_of(note) {
            self.analyser.learn(&knowledge);
            // The capture has this note already.
            self.noted = self.analyser.changes();
        }
    }

    /// The command that took too long, once there is one.
    pub(super) const fn slow(&self) -> Option<&Command> {
        self.slow.as_ref()
    }

    /// Looks at a frame. Returns whether it is kept.
    pub(super) fn takes(&mut self, frame: &Frame<'_>) -> bool {
        let packet = match held(frame) {
            Held::Packet(packet) => packet,
            Held::Segment(segment) if self.threshold.is_some() => {
                self.fabric.see(&segment);
                while let Some(command) = self.fabric.poll_command() {
                    self.on_command(command);
                }
                return true;
            }
            Held::Segment(_) | Held::Datagram(_) | Held::Foreign | Held::Unknown => return true,
            Held::Malformed => return self.filters.of_packets().is_none(),
        };
        let seen = packet.seen(frame);
        let is_at = self.is_at_address(&seen);
        let filters = &self.filters;
        let is_of_kind = filters.kind.is_empty() || filters.kind.contains(&kind_of(seen.header));
        if self.is_following {
            self.analyser.see(&seen);
            while let Some(command) = self.analyser.poll_command() {
                self.on_command(command);
            }
        }
        is_at && is_of_kind && self.is_of_command(self.analyser.place())
    }

    /// Whether a packet's command suits the filters.
    fn is_of_command(&self, place: Option<Place>) -> bool {
        let Filters { queue, opcode, .. } = &self.filters;
        if queue.is_empty() && opcode.is_empty() {
            return true;
        }
        let Some(place) = place else { return false };
        let has_opcode = || match place.kind {
            Some(CommandKind::Io(code)) => opcode.iter().any(|wanted| wanted.0 == code),
            Some(_) => false,
            // A doorbell or a fetch counts for all commands of a queue.
            None => place.queue != 0,
        };
        (queue.is_empty() || queue.contains(&place.queue)) && (opcode.is_empty() || has_opcode())
    }

    /// Whether a request, or the request that a completion answers, is at a wanted address.
    fn is_at_address(&mut self, seen: &Seen<'_>) -> bool {
        if self.filters.address.is_empty() {
            return true;
        }
        let answered = self.transactions.see(seen);
        let place = match (answered, seen.header.first_byte_address()) {
            (Some((request, _)), _) if request.bytes > 0 => Some((request.address, request.bytes)),
            (None, Some(address)) => Some((address, seen.header.byte_length())),
            _ => None,
        };
        let meets = |(address, length): (u64, u32)| {
            self.filters.address.iter().any(|range| range.meets(address, u64::from(length.max(1))))
        };
        place.is_some_and(meets)
    }

    fn on_command(&mut self, command: Command) {
        if self.slow.is_none() && self.threshold.is_some_and(|threshold| command.latency() > threshold) {
            self.slow = Some(command);
        }
    }
}

const fn kind_of(header: &Header) -> PacketKind {
    match header.kind {
        Kind::Memory(request) => match request.operation {
            MemoryOperation::Read | MemoryOperation::ReadLocked => PacketKind::Read,
            MemoryOperation::Write => PacketKind::Write,
            _ => PacketKind::Other,
        },
        Kind::Completion(_) => PacketKind::Completion,
        Kind::Config(_) => PacketKind::Config,
        Kind::Message(_) => PacketKind::Message,
        Kind::Io(_) => PacketKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use pcie::wire::Bdf;
    use trace::known::Knowledge;

    use super::*;

    /// A controller that is not enabled yet has no queues: conclusions from its note alone are not
    /// written in the note's place.
    #[test]
    fn reports_of_the_daemon_are_no_news() {
        let mut sieve = Sieve::new(Filters::default(), None, false);
        let (submissions, completions) = (Vec::new(), Vec::new());
        let knowledge = Knowledge {
            function: Bdf::new(1, 0, 0),
            bar: 0xc000_0000,
            stride: 4,
            submissions,
            completions,
            blocks: Vec::new(),
        };
        sieve.learn(&note_of(&knowledge).unwrap());
        assert_eq!(sieve.news(), None);
    }
}
