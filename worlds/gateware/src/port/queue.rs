//! TLPs that wait to be taken by a circuit, as a hard PCI Express core offers them.

use std::collections::VecDeque;

use pcie::wire::Packet;

/// A TLP as beats: double words, the first byte in bits 7:0.
#[derive(Debug)]
struct Beats {
    words: Vec<u32>,
    at: usize,
}

/// TLPs in their order, with non-posted requests apart. A non-posted request is offered behind all
/// posted requests before it, and only while the circuit has a place for it.
#[derive(Debug, Default)]
pub(super) struct TlpQueue {
    main: VecDeque<Vec<u32>>,
    /// With how many packets of `main` were pushed before.
    non_posted: VecDeque<(u64, Vec<u32>)>,
    pushed: u64,
    taken: u64,
    current: Option<Beats>,
}

impl TlpQueue {
    pub(super) fn push(&mut self, packet: &Packet) {
        let mut bytes = vec![0; packet.encoded_len()];
        let length = packet.emit(&mut bytes);
        let words = bytes[..length].as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        if packet.is_non_posted() {
            self.non_posted.push_back((self.pushed, words));
        } else {
            self.pushed += 1;
            self.main.push_back(words);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.main.len() + self.non_posted.len() + usize::from(self.current.is_some())
    }

    /// Forgets everything but a TLP of which the circuit has taken a part.
    pub(super) fn clear(&mut self) {
        self.current.take_if(|beats| beats.at == 0);
        self.main.clear();
        self.non_posted.clear();
        self.taken = self.pushed;
    }

    /// The beat to offer, and whether it is the TLP's last. `room` is how many non-posted requests
    /// the circuit has a place for.
    pub(super) fn beat(&mut self, room: u8) -> Option<([u32; 4], bool)> {
        if self.current.is_none() {
            let older = self.non_posted.front().is_some_and(|(behind, _)| *behind <= self.taken);
            let words = if older && room > 0 {
                self.non_posted.pop_front().map(|(_, words)| words)
            } else {
                let words = self.main.pop_front();
                self.taken += u64::from(words.is_some());
                words
            };
            self.current = words.map(|words| Beats { words, at: 0 });
        }
        let Beats { words, at } = self.current.as_ref()?;
        let mut beat = [0; 4];
        let rest = &words[*at..];
        beat.iter_mut().zip(rest).for_each(|(place, word)| *place = *word);
        Some((beat, rest.len() <= 4))
    }

    /// The circuit has taken the beat.
    pub(super) fn took(&mut self) {
        if let Some(Beats { words, at }) = &mut self.current {
            *at += 4;
            if *at >= words.len() {
                self.current = None;
            }
        }
    }
}
