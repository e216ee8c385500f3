//! Which part of a recording did not keep up, by the result of a trial.

use std::collections::BTreeMap;

use engine::Nanos;
use live::drivers::record::{Sent, Writes};
use live::sys::usage::Turns;
use record::format::{PACKET_HEAD, Place, Reason};

/// A thread that ran, or waited for its turn, for this percentage of the time limits a rate.
const BUSY_PERCENT: u64 = 70;
/// A sender that sent less than this percentage of its planned bytes limits a rate.
const SENT_PERCENT: u64 = 90;
/// The part of all sent bytes that may be on its way when the sender ends. More would have
/// overflowed a buffer in time.
const BEHIND: u64 = 10;
/// The number of chunks that may be on their way to the medium at any rate: as many as are written
/// at once.
const UNDER_WAY: u64 = 64;

/// A part of the way from the sender to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The sender, which is this host, too.
    Sender,
    /// The host's network, which lost datagrams before they were at a socket.
    Network,
    /// The processor of the thread that receives.
    Receiver,
    /// The kernel's buffers of the sockets.
    Sockets,
    /// The processor of the threads that compute digests.
    Digests,
    /// The recorder's buffer: it is too small for a pause of the medium.
    Ring,
    /// The medium.
    Disk,
    /// The room on the medium.
    Room,
}

impl Part {
    /// The words for it.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Network => "network of this host",
            Self::Receiver => "receiver's processor",
            Self::Sockets => "sockets' buffers",
            Self::Digests => "processor for digests",
            Self::Ring => "ring",
            Self::Disk => "disk",
            Self::Room => "room on the disk",
        }
    }

    /// The remedy that raises the limit.
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::Sender => {
                "datagrams of another host, or longer ones (--datagram), show the recorder's limit"
            }
            Self::Network => "raise net.core.netdev_max_backlog (sysctl)",
            Self::Receiver => {
                "longer datagrams cost less processor time, and so does a processor without other work"
            }
            Self::Sockets => "raise net.core.rmem_max (sysctl), and buffer= of each udp:// source",
            Self::Digests => {
                "--digest blake3 takes less than SHA-256; --digest none leaves the CRC32C of each chunk"
            }
            Self::Ring => "a larger --buffer bridges longer pauses",
            Self::Disk => "a faster medium, or several (--to more than once), take more",
            Self::Room => "more room, or a shorter --trial, shows higher rates",
        }
    }
}

/// Packets and bytes that were declared lost at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Bytes of datagrams a second that were to be sent.
    pub(super) rate: u64,
    /// Length of a datagram in bytes.
    pub(super) length: u64,
    pub(super) sent: Sent,
    /// Datagrams that came, those included that had no room.
    pub(super) came: u64,
    /// The losses, by the name of the place.
    pub(super) lost: BTreeMap<&'static str, Lost>,
    pub(super) reason: Reason,
    /// Bytes of records that the recorder had taken when the sender ended, and those in its buffer.
    pub(super) taken: u64,
    pub(super) fill: u64,
    /// The sizes of the recorder's buffer, of a chunk, and of all sockets' buffers, in bytes.
    pub(super) buffer: u64,
    pub(super) chunk: u64,
    pub(super) sockets: u64,
    /// The number of streams.
    pub(super) streams: u64,
    pub(super) high_water: u64,
    pub(super) writes: Writes,
    /// The shares of the processors of the receiving thread, of the busiest digesting thread, and
    /// of the busiest sender; `None` if the system does not report it, or there is none.
    pub(super) receiver: Option<Turns>,
    pub(super) digests: Option<Turns>,
    pub(super) sender: Option<Turns>,
}

impl Seen {
    /// Bytes of datagrams a second that were sent.
    pub(super) fn reached(&self) -> u64 {
        let nanos = u128::from(self.sent.time.get().max(1));
        let bytes = u128::from(self.sent.datagrams) * u128::from(self.length);
        u64::try_from(bytes * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    }

    /// Percent of the time that a thread ran, and that it waited for its turn.
    pub(super) fn percent(&self, turns: Option<Turns>) -> Option<(u64, u64)> {
        let of = |time: Nanos| (time.get() * 100 / self.sent.time.get().max(1)).min(100);
        turns.map(|turns| (of(turns.ran), of(turns.waited)))
    }

    fn is_busy(&self, turns: Option<Turns>) -> bool {
        self.percent(turns).is_some_and(|(ran, waited)| ran + waited >= BUSY_PERCENT)
    }

    /// Bytes of records that were sent.
    fn sent_bytes(&self) -> u64 {
        self.sent.datagrams * (self.length + PACKET_HEAD as u64)
    }

    /// Bytes that were sent, and not yet received, when the sender ended.
    pub(super) fn at_sockets(&self) -> u64 {
        self.sent_bytes().saturating_sub(self.taken)
    }

    /// Datagrams that were sent, and that neither came nor were dropped at a socket.
    pub(super) fn vanished(&self) -> u64 {
        let dropped = self.lost.get(Place::Socket.word()).map_or(0, |lost| lost.packets);
        self.sent.datagrams.saturating_sub(self.came + dropped)
    }

    fn is_lost_at(&self, place: Place) -> bool {
        self.lost.contains_key(place.word())
    }

    /// The part that did not keep up; `None` if all did, and no datagram was lost.
    pub(super) fn limit(&self) -> Option<Part> {
        let allowed = self.sent_bytes() / BEHIND;
        let held = allowed + (UNDER_WAY + self.streams) * self.chunk;
        if self.reason == Reason::Full {
            return Some(Part::Room);
        }
        if self.is_lost_at(Place::Disk) || self.reason == Reason::Failed {
            return Some(Part::Disk);
        }
        if self.is_lost_at(Place::Ring) || self.fill > held {
            let pause = self.writes.longest_pause.get();
            let came = u128::from(pause) * u128::from(self.rate) / 1_000_000_000;
            return Some(match () {
                () if self.is_busy(self.digests) => Part::Digests,
                // The medium was quick enough before and behind one pause.
                () if came >= u128::from(self.buffer / 2) && self.fill <= held => Part::Ring,
                () => Part::Disk,
            });
        }
        if self.is_lost_at(Place::Socket) || self.at_sockets() > allowed + self.streams * self.chunk {
            return Some(if self.is_busy(self.receiver) { Part::Receiver } else { Part::Sockets });
        }
        if self.vanished() > 0 {
            return Some(Part::Network);
        }
        (self.reached() < self.rate / 100 * SENT_PERCENT).then_some(Part::Sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second at 100 MB/s in which all was well.
    fn well() -> Seen {
        Seen {
            rate: 100_000_000,
            length: 1_000,
            sent: Sent { datagrams: 100_000, refused: 0, time: Nanos::from_secs(1) },
            came: 100_000,
            lost: BTreeMap::new(),
            reason: Reason::Asked,
            taken: 101_500_000,
            fill: 2_000_000,
            buffer: 32 << 20,
            chunk: 128 << 10,
            sockets: 16 << 20,
            streams: 2,
            high_water: 3_000_000,
            writes: Writes::default(),
            receiver: None,
            digests: None,
            sender: None,
        }
    }

    fn lost(place: Place) -> BTreeMap<&'static str, Lost> {
        [(place.word(), Lost { packets: 7, bytes: 7_000 })].into()
    }

    fn turns(ran: u64, waited: u64) -> Option<Turns> {
        Some(Turns { ran: Nanos::from_millis(ran), waited: Nanos::from_millis(waited) })
    }

    #[test]
    fn a_trial_without_loss_names_nothing() {
        assert_eq!(well().limit(), None);
        assert_eq!(well().reached(), 100_000_000);
        // A busy thread alone limits nothing.
        assert_eq!(Seen { receiver: turns(990, 0), digests: turns(990, 0), ..well() }.limit(), None);
    }

    #[test]
    fn losses_at_sockets_are_the_processors_if_it_had_no_time() {
        let seen = Seen { lost: lost(Place::Socket), came: 99_993, ..well() };
        assert_eq!(seen.limit(), Some(Part::Sockets));
        assert_eq!(Seen { receiver: turns(300, 100), ..seen.clone() }.limit(), Some(Part::Sockets));
        // It runs all the time, or others do.
        assert_eq!(Seen { receiver: turns(960, 10), ..seen.clone() }.limit(), Some(Part::Receiver));
        assert_eq!(Seen { receiver: turns(200, 700), ..seen }.limit(), Some(Part::Receiver));
    }

    #[test]
    fn a_full_buffer_is_the_medium_the_digests_or_one_pause() {
        let seen = Seen { lost: lost(Place::Ring), ..well() };
        assert_eq!(seen.limit(), Some(Part::Disk));
        assert_eq!(Seen { digests: turns(900, 50), ..seen.clone() }.limit(), Some(Part::Digests));
        // 400 ms are 40 MB.
        let writes = Writes { longest_pause: Nanos::from_millis(400), ..Writes::default() };
        assert_eq!(Seen { writes, ..seen.clone() }.limit(), Some(Part::Ring));
        assert_eq!(Seen { writes, fill: 30_000_000, ..seen.clone() }.limit(), Some(Part::Disk));
        assert_eq!(Seen { lost: lost(Place::Disk), ..well() }.limit(), Some(Part::Disk));
        assert_eq!(Seen { reason: Reason::Full, ..seen }.limit(), Some(Part::Room));
    }

    #[test]
    fn what_would_overflow_later_counts_as_lost() {
        assert_eq!(Seen { fill: 25_000_000, ..well() }.limit(), Some(Part::Disk));
        let seen = Seen { taken: 80_000_000, ..well() };
        assert_eq!(seen.limit(), Some(Part::Sockets));
        assert_eq!(Seen { receiver: turns(900, 50), ..seen }.limit(), Some(Part::Receiver));
    }

    #[test]
    fn datagrams_that_vanish_are_the_networks_and_those_that_were_never_sent_the_senders() {
        assert_eq!(Seen { came: 99_999, ..well() }.limit(), Some(Part::Network));
        assert_eq!(Seen { rate: 200_000_000, ..well() }.limit(), Some(Part::Sender));
    }
}
