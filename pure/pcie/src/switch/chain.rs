//! A chain of interposers.
//!
//! A pair is one [`Interposer`]: its first member is nearer to the switch, its second nearer to the
//! links. A packet that goes down passes the first member first, a packet that comes up passes it
//! last. `Option<Box<_>>` is an interposer that may be absent. Types are known statically, so
//! absent members cost nothing.

use alloc::boxed::Box;

use engine::Instant;

use super::interposer::{Ascent, FarLink, Interposer, Passage, Refusal, Strand, Surroundings};
use crate::wire::Packet;

impl<S: Interposer, L: Interposer> Interposer for (S, L) {
    fn on_link(&mut self, port: usize, link: &impl FarLink) {
        self.1.on_link(port, link);
        self.0.on_link(port, link);
    }
    fn on_reset(&mut self, port: usize) {
        self.1.on_reset(port);
        self.0.on_reset(port);
    }
    fn on_strand(&mut self, now: Instant, port: usize, strand: Strand, link: &mut impl FarLink) {
        self.1.on_strand(now, port, strand, link);
        self.0.on_strand(now, port, strand, link);
    }
    /// The member nearer to the link names the strand.
    #[inline]
    fn on_down<F: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, F>,
        port: usize,
        packet: &mut Packet,
    ) -> Passage {
        let is_clear = around.is_clear;
        around.is_clear = is_clear && !self.1.is_holding(port);
        let passage = self.0.on_down(around, port, packet);
        around.is_clear = is_clear;
        match passage {
            Passage::On(_) => self.1.on_down(around, port, packet),
            Passage::Kept => Passage::Kept,
            Passage::Answered(answer) => {
                self.1.on_answered(port, packet, &answer, &mut around.links[port]);
                Passage::Answered(answer)
            }
        }
    }
    fn on_answered(&mut self, port: usize, request: &Packet, answer: &Packet, link: &mut impl FarLink) {
        self.0.on_answered(port, request, answer, link);
        self.1.on_answered(port, request, answer, link);
    }
    #[inline]
    fn on_up(&mut self, now: Instant, port: usize, packet: &Packet, link: &mut impl FarLink) -> Ascent {
        match self.1.on_up(now, port, packet, link) {
            Ascent::On => self.0.on_up(now, port, packet, link),
            Ascent::Refused => Ascent::Refused,
        }
    }
    fn poll_refusal(&mut self) -> Option<(usize, Refusal)> {
        self.1.poll_refusal().or_else(|| self.0.poll_refusal())
    }
    #[inline]
    fn on_completion<F: FarLink>(&mut self, around: &mut Surroundings<'_, F>, packet: &Packet) -> bool {
        self.1.on_completion(around, packet) || self.0.on_completion(around, packet)
    }
    fn is_holding(&self, port: usize) -> bool {
        self.0.is_holding(port) || self.1.is_holding(port)
    }
    fn handle_timeout<F: FarLink>(&mut self, around: &mut Surroundings<'_, F>) {
        self.1.handle_timeout(around);
        self.0.handle_timeout(around);
    }
    fn poll_timeout(&self) -> Option<Instant> {
        Instant::earlier(self.0.poll_timeout(), self.1.poll_timeout())
    }
    fn poll_packet(&mut self) -> Option<Packet> {
        self.1.poll_packet().or_else(|| self.0.poll_packet())
    }
}

impl<I: Interposer> Interposer for Option<Box<I>> {
    fn on_link(&mut self, port: usize, link: &impl FarLink) {
        if let Some(present) = self {
            present.on_link(port, link);
        }
    }
    fn on_reset(&mut self, port: usize) {
        if let Some(present) = self {
            present.on_reset(port);
        }
    }
    fn on_strand(&mut self, now: Instant, port: usize, strand: Strand, link: &mut impl FarLink) {
        if let Some(present) = self {
            present.on_strand(now, port, strand, link);
        }
    }
    #[inline]
    fn on_down<F: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, F>,
        port: usize,
        packet: &mut Packet,
    ) -> Passage {
        match self {
            Some(present) => present.on_down(around, port, packet),
            None => Passage::On(Strand::MAIN),
        }
    }
    fn on_answered(&mut self, port: usize, request: &Packet, answer: &Packet, link: &mut impl FarLink) {
        if let Some(present) = self {
            present.on_answered(port, request, answer, link);
        }
    }
    #[inline]
    fn on_up(&mut self, now: Instant, port: usize, packet: &Packet, link: &mut impl FarLink) -> Ascent {
        match self {
            Some(present) => present.on_up(now, port, packet, link),
            None => Ascent::On,
        }
    }
    fn poll_refusal(&mut self) -> Option<(usize, Refusal)> {
        self.as_mut()?.poll_refusal()
    }
    #[inline]
    fn on_completion<F: FarLink>(&mut self, around: &mut Surroundings<'_, F>, packet: &Packet) -> bool {
        self.as_mut().is_some_and(|present| present.on_completion(around, packet))
    }
    fn is_holding(&self, port: usize) -> bool {
        self.as_ref().is_some_and(|present| present.is_holding(port))
    }
    fn handle_timeout<F: FarLink>(&mut self, around: &mut Surroundings<'_, F>) {
        if let Some(present) = self {
            present.handle_timeout(around);
        }
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.as_ref()?.poll_timeout()
    }
    fn poll_packet(&mut self) -> Option<Packet> {
        self.as_mut()?.poll_packet()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use engine::Buffer;

    use super::*;
    use crate::switch::tests::three_ports;
    use crate::switch::{Ahead, AheadKey, Switch};

    /// A link that is open and sends nothing.
    struct Link;

    impl FarLink for Link {
        fn is_open(&self) -> bool {
            true
        }
        fn is_flushed(&self) -> bool {
            true
        }
        fn ahead_window(&self) -> u32 {
            0
        }
        fn is_spread(&self) -> bool {
            false
        }
        fn strand_of_queue(&self, _queue: u16) -> Strand {
            Strand::MAIN
        }
        fn send_on(&mut self, _now: Instant, _strand: Strand, _packet: Packet) {}
        fn send_ahead_on(&mut self, _strand: Strand, _ahead: Ahead, _bytes: Buffer) -> bool {
            false
        }
        fn forget_ahead(&mut self, _key: AheadKey) {}
        fn lay(&mut self, _: Instant, _: Strand, _: Strand, _: AheadKey, _: &[(u64, u32)]) {}
    }

    /// An interposer with scripted answers that counts its calls.
    #[derive(Default)]
    struct Scripted {
        passage: Option<Passage>,
        refuses: bool,
        holds: bool,
        takes_completions: bool,
        due: Option<Instant>,
        packets: Vec<Packet>,
        /// `is_clear` of each call of `on_down`.
        down: Vec<bool>,
        up: usize,
        answered: usize,
        completions: usize,
    }

    impl Interposer for Scripted {
        fn on_link(&mut self, _port: usize, _link: &impl FarLink) {}
        fn on_reset(&mut self, _port: usize) {}
        fn on_down<F: FarLink>(
            &mut self,
            around: &mut Surroundings<'_, F>,
            _: usize,
            _: &mut Packet,
        ) -> Passage {
            self.down.push(around.is_clear);
            self.passage.clone().unwrap_or(Passage::On(Strand::MAIN))
        }
        fn on_answered(&mut self, _: usize, _: &Packet, _: &Packet, _: &mut impl FarLink) {
            self.answered += 1;
        }
        fn on_up(&mut self, _: Instant, _: usize, _: &Packet, _: &mut impl FarLink) -> Ascent {
            self.up += 1;
            if self.refuses { Ascent::Refused } else { Ascent::On }
        }
        fn on_completion<F: FarLink>(&mut self, _: &mut Surroundings<'_, F>, _: &Packet) -> bool {
            self.completions += 1;
            self.takes_completions
        }
        fn is_holding(&self, _port: usize) -> bool {
            self.holds
        }
        fn handle_timeout<F: FarLink>(&mut self, _: &mut Surroundings<'_, F>) {}
        fn poll_timeout(&self) -> Option<Instant> {
            self.due
        }
        fn poll_packet(&mut self) -> Option<Packet> {
            self.packets.pop()
        }
    }

    type Chain = (Option<Box<Scripted>>, Option<Box<Scripted>>);

    fn chain(near: Scripted, far: Scripted) -> Chain {
        (Some(Box::new(near)), Some(Box::new(far)))
    }

    fn down(chain: &mut Chain) -> Passage {
        let switch = Switch::new(&three_ports());
        let links = &mut [Link];
        let around = &mut Surroundings { now: Instant::ZERO, switch: &switch, links, is_clear: true };
        let passage = chain.on_down(around, 0, &mut Packet::blank());
        assert!(around.is_clear, "the pair leaves the surroundings as they were");
        passage
    }

    #[test]
    fn the_member_nearer_to_the_link_names_the_strand() {
        let near = Scripted { passage: Some(Passage::On(Strand(2))), ..Scripted::default() };
        let far = Scripted { passage: Some(Passage::On(Strand(1))), ..Scripted::default() };
        assert_eq!(down(&mut chain(near, far)), Passage::On(Strand(1)));
        assert_eq!(down(&mut (None, None)), Passage::On(Strand::MAIN));
    }

    #[test]
    fn an_answer_near_the_switch_is_shown_below_and_goes_no_further() {
        let near = Scripted { passage: Some(Passage::Answered(Packet::blank())), ..Scripted::default() };
        let mut both = chain(near, Scripted::default());
        assert_eq!(down(&mut both), Passage::Answered(Packet::blank()));
        let far = both.1.unwrap();
        assert_eq!((far.down.len(), far.answered), (0, 1));
    }

    #[test]
    fn a_packet_that_is_kept_near_the_switch_is_not_shown_below() {
        let near = Scripted { passage: Some(Passage::Kept), ..Scripted::default() };
        let mut both = chain(near, Scripted::default());
        assert_eq!(down(&mut both), Passage::Kept);
        let far = both.1.unwrap();
        assert_eq!((far.down.len(), far.answered), (0, 0));
    }

    #[test]
    fn only_the_member_near_the_switch_sees_that_the_other_holds_packets() {
        let far = Scripted { holds: true, ..Scripted::default() };
        let mut both = chain(Scripted::default(), far);
        down(&mut both);
        assert!(both.is_holding(0));
        assert_eq!(both.0.unwrap().down, [false]);
        assert_eq!(both.1.unwrap().down, [true]);
    }

    #[test]
    fn a_refusal_below_keeps_a_packet_from_the_member_above() {
        let mut both = chain(Scripted::default(), Scripted { refuses: true, ..Scripted::default() });
        let up = |chain: &mut Chain| chain.on_up(Instant::ZERO, 0, &Packet::blank(), &mut Link);
        assert_eq!(up(&mut both), Ascent::Refused);
        assert_eq!(both.0.unwrap().up, 0);
        let mut both = chain(Scripted { refuses: true, ..Scripted::default() }, Scripted::default());
        assert_eq!(up(&mut both), Ascent::Refused);
        assert_eq!(both.1.unwrap().up, 1);
        assert_eq!(up(&mut (None, None)), Ascent::On);
    }

    #[test]
    fn the_first_taker_of_a_completion_ends_the_search() {
        let switch = Switch::new(&three_ports());
        let complete = |chain: &mut Chain| {
            let links = &mut [Link];
            let around = &mut Surroundings { now: Instant::ZERO, switch: &switch, links, is_clear: true };
            chain.on_completion(around, &Packet::blank())
        };
        let mut both =
            chain(Scripted::default(), Scripted { takes_completions: true, ..Scripted::default() });
        assert!(complete(&mut both));
        assert_eq!(both.0.as_ref().unwrap().completions, 0);
        both.1 = None;
        assert!(!complete(&mut both));
        assert_eq!(both.0.unwrap().completions, 1);
    }

    #[test]
    fn deadlines_and_packets_of_both_members_come_out() {
        let at = |nanos| Some(Instant::from_nanos(nanos));
        let near = Scripted { due: at(5), packets: vec![Packet::blank()], ..Scripted::default() };
        let far = Scripted { due: at(7), packets: vec![Packet::blank()], ..Scripted::default() };
        let mut both = chain(near, far);
        assert_eq!(both.poll_timeout(), at(5));
        assert_eq!([both.poll_packet(), both.poll_packet()].iter().flatten().count(), 2);
        assert_eq!(both.poll_packet(), None);
        both.0 = None;
        assert_eq!(both.poll_timeout(), at(7));
    }
}
