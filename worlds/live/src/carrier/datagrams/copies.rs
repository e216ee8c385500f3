//! Frames that go over several paths at once (IEEE 802.1CB): the numbers of those that are sent,
//! and the copies that come.

use std::collections::{HashMap, HashSet};

use datagrams::redundancy::{self, Change, Merge, TAG_BYTES, Tag};
use engine::Instant;

use super::ethernet;
use crate::sys::station::{Claim, Mac};

/// The most peers whose numbers are remembered, more than an end has connections. Frames of and to
/// further peers are lost until strangers are forgotten. A peer with a connection is not forgotten:
/// it would refuse frames that begin at number 1 again, until it has had no new frame for
/// [`redundancy::RESET_AFTER`] or longer.
const PEERS_MAX: usize = 256;

/// State for sending and receiving each frame several times.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The number of the latest frame to each peer.
    sent: HashMap<Mac, u16>,
    /// Claims that keep other processes from numbering frames to the same peers, for each path.
    claims: HashMap<Mac, Vec<Claim>>,
    received: HashMap<Mac, Merge>,
    /// Peers to which another process of this station sends copies.
    refused: HashSet<Mac>,
}

impl Copies {
    /// Whether this end has the numbers of frames to `peer`.
    pub(super) fn has_claimed(&self, peer: Mac) -> bool {
        self.claims.contains_key(&peer)
    }

    /// This end has the numbers of frames to `peer` as long as it keeps `claims`.
    pub(super) fn keep(&mut self, peer: Mac, claims: Vec<Claim>) {
        self.refused.remove(&peer);
        self.claims.insert(peer, claims);
    }

    /// The peers whose frames this end numbers.
    pub(super) fn claimed(&self) -> Vec<Mac> {
        self.claims.keys().copied().collect()
    }

    /// Keeps `claim` for frames to `peer` over the path of this index, in place of the former
    /// claim.
    pub(super) fn replace(&mut self, peer: Mac, path: usize, claim: Claim) {
        if let Some(place) = self.claims.get_mut(&peer).and_then(|claims| claims.get_mut(path)) {
            *place = claim;
        }
    }

    /// Another process has the numbers of frames to `peer`. Returns whether that is news.
    pub(super) fn refuse(&mut self, peer: Mac) -> bool {
        if self.refused.len() >= PEERS_MAX {
            self.refused.clear();
        }
        self.refused.insert(peer)
    }

    /// Leaves the numbers of frames to others for peers that are not `known`. Their entries are
    /// dropped only when room is needed, because a peer may come back.
    pub(super) fn keep_peers(&mut self, known: impl Fn(Mac) -> bool) {
        self.claims.retain(|peer, _| known(*peer));
        if self.sent.len() >= PEERS_MAX {
            self.sent.retain(|peer, _| known(*peer));
        }
        if self.received.len() >= PEERS_MAX {
            self.received.retain(|peer, _| known(*peer));
        }
    }

    /// The merged frames of `peer`.
    pub(super) fn merge(&self, peer: Mac) -> Option<&Merge> {
        self.received.get(&peer)
    }

    /// Whether frames to `peer` can be numbered now.
    pub(super) fn has_number_for(&self, peer: Mac) -> bool {
        self.sent.len() < PEERS_MAX || self.sent.contains_key(&peer)
    }

    /// The bytes before a datagram to `peer` in its frame, which gets the next number.
    pub(super) fn before(&mut self, peer: Mac) -> [u8; 2 + TAG_BYTES] {
        let number = self.sent.entry(peer).or_default();
        *number = number.wrapping_add(1);
        let sequence = *number;
        let tag = Tag { sequence, ether_type: ethernet::ETHER_TYPE };
        let mut numbered = [0; 2 + TAG_BYTES];
        numbered[..2].copy_from_slice(&redundancy::ETHER_TYPE.to_be_bytes());
        numbered[2..].copy_from_slice(&tag.emit());
        numbered
    }

    /// The bytes behind the tag of a frame that `from` sent over the path of this index among those
    /// of these names, if the frame is ours and new.
    pub(super) fn take<'a>(
        &mut self,
        now: Instant,
        (path, names): (usize, &[String]),
        from: Mac,
        frame: &'a [u8],
    ) -> Option<&'a [u8]> {
        let (tag, payload) = Tag::parse(frame)?;
        if tag.ether_type != ethernet::ETHER_TYPE {
            return None;
        }
        if !self.has_claimed(from) && datagrams::is_hello(payload) {
            // A host that has no connection yet begins at number 1. Another host of its station may
            // have left a moment ago, and sent frames of these numbers.
            self.received.remove(&from);
        }
        if self.received.len() >= PEERS_MAX && !self.received.contains_key(&from) {
            return None;
        }
        let merge = self.received.entry(from).or_insert_with(|| Merge::new(names.len()));
        let is_new = merge.accept(now, path, tag.sequence);
        while let Some(change) = merge.poll_change() {
            log(from, names, change);
        }
        is_new.then_some(payload)
    }
}

/// Says that a path has failed, or works again. The others bring everything, so nothing else
/// shows it.
fn log(from: Mac, names: &[String], Change { path, is_failing, missing, passed }: Change) {
    let (name, from) = (names.get(path).map_or("", String::as_str), ethernet::mac_text(from));
    match is_failing {
        true => tracing::warn!(
            path = name,
            "{name}: the path from {from} fails: {missing} of {passed} frames came by other paths alone; look at \
             its cables and switches while another path still works"
        ),
        false => tracing::info!(path = name, "{name}: the path from {from} works again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Mac = [2, 0, 0, 0, 0, 1];

    fn stranger(index: usize) -> Mac {
        let [.., a, b] = index.to_be_bytes();
        [6, 0, 0, 0, a, b]
    }

    fn sequence(head: [u8; 2 + TAG_BYTES]) -> u16 {
        Tag::parse(&head[2..]).unwrap().0.sequence
    }

    #[test]
    fn a_host_is_heard_that_comes_soon_after_another_of_its_station() {
        let (mut copies, names) = (Copies::default(), ["a".to_owned()]);
        let mut hello = vec![0; datagrams::MEETING_BYTES];
        hello[..2].copy_from_slice(&[1, 1]);
        hello[2..4].copy_from_slice(&u16::try_from(datagrams::MEETING_BYTES).unwrap().to_be_bytes());
        let take = |copies: &mut Copies, sequence, payload: &[u8]| {
            let tag = Tag { sequence, ether_type: ethernet::ETHER_TYPE }.emit();
            copies.take(Instant::ZERO, (0, &names), HOST, &[&tag, payload].concat()).is_some()
        };
        assert!(take(&mut copies, 1, &hello));
        copies.keep(HOST, Vec::new());
        assert!((2..50).all(|sequence| take(&mut copies, sequence, b"")));
        assert!(!take(&mut copies, 1, &hello), "a late copy");
        copies.keep_peers(|_| false);
        assert!(!take(&mut copies, 2, b""), "no Hello came");
        assert!(take(&mut copies, 1, &hello) && take(&mut copies, 2, b""));
        assert!(!take(&mut copies, 2, b""), "its copy");
    }

    #[test]
    fn a_host_keeps_its_numbers_however_many_strangers_come() {
        let (mut copies, names) = (Copies::default(), ["a".to_owned()]);
        let frame = |sequence| Tag { sequence, ether_type: ethernet::ETHER_TYPE }.emit();
        let take = |copies: &mut Copies, from, sequence| {
            copies.take(Instant::ZERO, (0, &names), from, &frame(sequence)).is_some()
        };
        assert_eq!(sequence(copies.before(HOST)), 1);
        assert!(take(&mut copies, HOST, 7));
        for index in 1..PEERS_MAX {
            assert!(copies.has_number_for(stranger(index)) && take(&mut copies, stranger(index), 1));
            copies.before(stranger(index));
        }
        // No further peer gets a place, and the host keeps its own.
        let late = stranger(PEERS_MAX);
        assert!(!copies.has_number_for(late) && !take(&mut copies, late, 1));
        assert!(copies.has_number_for(HOST));
        assert_eq!(sequence(copies.before(HOST)), 2);
        // Strangers make room.
        copies.keep_peers(|peer| peer == HOST);
        assert!(copies.has_number_for(late) && take(&mut copies, late, 1));
        assert_eq!(sequence(copies.before(HOST)), 3);
        assert!(!take(&mut copies, HOST, 7), "a copy passed");
        // As long as there is room, they are remembered, too.
        copies.before(late);
        copies.keep_peers(|peer| peer == HOST);
        assert_eq!(sequence(copies.before(late)), 2);
    }
}
