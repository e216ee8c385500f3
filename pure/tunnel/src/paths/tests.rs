//! Two ends, and paths between them that delay, break and join again.

use std::collections::BTreeMap;
use std::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos, Rng, settle};
use proptest::prelude::*;

use super::wire::{RECORD_LENGTH, Record};
use super::*;

const GROUP: GroupId = GroupId([7; 16]);
const TOKEN: Token = Token(99);

#[derive(Debug)]
enum Event {
    /// Bytes arrive at an end, on a path in this life of it.
    Bytes { at: usize, path: usize, life: u32, bytes: Buffer },
    /// An end's path has taken everything.
    Drained { at: usize, path: usize, life: u32 },
    /// An end sees that a path is gone.
    Lost { at: usize, path: usize, life: u32 },
    /// A path is dialled again.
    Join { path: usize },
}

#[derive(Clone, Copy, Debug)]
struct Line {
    /// The least delay one way, and the most that may come on top.
    delay: u64,
    jitter: u64,
    /// Time that one byte takes.
    byte: u64,
    life: u32,
    up: bool,
    /// When the latest bytes arrive at either end: a path keeps the order.
    latest: [Instant; 2],
}

struct World {
    now: Instant,
    rng: Rng,
    ends: [Paths; 2],
    lines: Vec<Line>,
    events: BTreeMap<(Instant, u64), Event>,
    count: u64,
    delivered: [Vec<u8>; 2],
    ended: [Option<EndReason>; 2],
    drops: Vec<PathError>,
    /// The part of each path's preamble that the far end has read.
    opened: Vec<Vec<u8>>,
}

impl World {
    fn new(seed: u64, lines: &[(u64, u64, u64)]) -> Self {
        let line = |&(delay, jitter, byte): &(u64, u64, u64)| {
            let latest = [Instant::ZERO; 2];
            Line { delay, jitter, byte, life: 0, up: false, latest }
        };
        Self {
            now: Instant::from_nanos(1_000),
            rng: Rng::from_seed(seed),
            ends: [Paths::dialling(GROUP), Paths::accepting(GROUP, TOKEN)],
            lines: lines.iter().map(line).collect(),
            events: BTreeMap::new(),
            count: 0,
            delivered: [Vec::new(), Vec::new()],
            ended: [None; 2],
            drops: Vec::new(),
            opened: vec_of(lines.len()),
        }
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn join(&mut self, path: usize) {
        let line = &mut self.lines[path];
        line.life += 1;
        line.up = true;
        line.latest = [self.now; 2];
        self.opened[path].clear();
        self.ends[0].handle_input(self.now, Input::Joined(path_index(path)));
        self.settle();
    }

    /// Breaks a path: bytes under way on it are lost, and either end notices sooner or later.
    fn cut(&mut self, path: usize) {
        let life = self.lines[path].life;
        self.lines[path].up = false;
        for at in 0..2 {
            // The far end may learn of it by the path that takes its place.
            let longest = if at == 0 { 20_000_000 } else { 90_000_000 };
            let when = self.now + Nanos::new(1 + self.rng.below(longest));
            self.at(when, Event::Lost { at, path, life });
        }
        let again = self.now + Nanos::new(20_000_000 + self.rng.below(50_000_000));
        self.at(again, Event::Join { path });
    }

    fn settle(&mut self) {
        for from in 0..2 {
            let mut outputs = Vec::new();
            settle(&mut self.ends[from], self.now, |output| outputs.push(output));
            for output in outputs {
                match output {
                    Output::Deliver(bytes) => self.delivered[from].extend_from_slice(&bytes),
                    Output::End(reason) => self.ended[from] = Some(reason),
                    Output::Drop(_, error) => self.drops.push(error),
                    Output::Transmit(path, bytes) => self.transmit(from, path.index(), bytes),
                }
            }
        }
    }

    fn transmit(&mut self, from: usize, path: usize, bytes: Buffer) {
        let Line { delay, jitter, byte, life, up, latest } = self.lines[path];
        // A far end that has not noticed the loss of a path sends in vain.
        if !up || (from == 1 && self.opened[path].len() < PREAMBLE_LENGTH) {
            return;
        }
        let start = latest[1 - from].max(self.now + Nanos::new(delay + self.rng.below(jitter + 1)));
        let arrival = start + Nanos::new(byte * bytes.len() as u64 + 1);
        self.lines[path].latest[1 - from] = arrival;
        // The kernel takes bytes before they have arrived at the other end.
        let drained = arrival.max(self.now + Nanos::new(delay + 1)) + Nanos::ZERO;
        self.at(drained, Event::Drained { at: from, path, life });
        let cut = usize::try_from(self.rng.below(bytes.len() as u64 + 1)).unwrap();
        for part in [bytes.slice(0..cut), bytes.slice(cut..bytes.len())] {
            if !part.is_empty() {
                self.at(arrival, Event::Bytes { at: 1 - from, path, life, bytes: part });
            }
        }
    }

    fn accept(&mut self, path: usize, bytes: Buffer) {
        // The far end's world reads the preamble first.
        let opened = &mut self.opened[path];
        let had = opened.len();
        if had >= PREAMBLE_LENGTH {
            self.ends[1].handle_input(self.now, Input::Received(path_index(path), bytes));
            return;
        }
        opened.extend_from_slice(&bytes);
        match opening(opened) {
            Opening::More => {}
            Opening::Session => panic!("a path looks like a session: {opened:?}"),
            Opening::Path(preamble) => {
                assert!(self.ends[1].is_ours(&preamble), "{preamble:?}");
                self.ends[1].handle_input(self.now, Input::Joined(preamble.path));
                let rest = bytes.slice(PREAMBLE_LENGTH - had..bytes.len());
                self.ends[1].handle_input(self.now, Input::Received(preamble.path, rest));
            }
        }
    }

    fn step(&mut self) {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let wakes = self.ends.iter().filter_map(Engine::poll_timeout);
        let next = wakes.chain(event).min().unwrap_or(self.now + Nanos::from_millis(1));
        self.now = self.now.max(next);
        if event.is_some_and(|at| at <= self.now) {
            let (_, event) = self.events.pop_first().unwrap();
            let life = |path: usize| self.lines[path].life;
            match event {
                Event::Bytes { at, path, life: of, bytes } if life(path) == of && self.lines[path].up => {
                    if at == 1 {
                        self.accept(path, bytes);
                    } else {
                        self.ends[0].handle_input(self.now, Input::Received(path_index(path), bytes));
                    }
                }
                Event::Drained { at, path, life: of } if life(path) == of => {
                    self.ends[at].handle_input(self.now, Input::Drained(path_index(path)));
                }
                Event::Lost { at, path, life: of } if life(path) == of => {
                    self.ends[at].handle_input(self.now, Input::Lost(path_index(path)));
                }
                Event::Join { path } => self.join(path),
                _ => {}
            }
        }
        self.settle();
    }

    fn run_for(&mut self, length: Nanos) {
        let until = self.now + length;
        while self.now < until {
            self.step();
        }
    }
}

fn vec_of(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| Vec::new()).collect()
}

/// Sends a stream each way through `world`, cutting single paths if `cuts`. Returns what must
/// arrive.
fn exchange(world: &mut World, cuts: bool) -> [Vec<u8>; 2] {
    let mut sent = [Vec::new(), Vec::new()];
    for round in 0..120_u64 {
        for from in 0..2 {
            let length = if world.rng.one_in(6) { 150_000 } else { 900 };
            let mut bytes = std::vec![0; usize::try_from(1 + world.rng.below(length)).unwrap()];
            world.rng.fill(&mut bytes);
            sent[1 - from].extend_from_slice(&bytes);
            let now = world.now;
            world.ends[from].send(now, Buffer::from(bytes));
        }
        world.settle();
        let pause = Nanos::new(1 + world.rng.below(3_000_000));
        world.run_for(pause);
        let is_up = |path: usize| {
            let there = world.ends.iter().all(|end| end.has(path_index(path)));
            there && world.lines[path].up && world.opened[path].len() >= PREAMBLE_LENGTH
        };
        let all_up = (0..world.lines.len()).all(is_up);
        // A path that was cut has joined again at both ends before the next path is cut.
        if cuts && all_up && round % 20 == 10 {
            let victim = usize::try_from(world.rng.below(world.lines.len() as u64)).unwrap();
            world.cut(victim);
        }
    }
    world.run_for(Nanos::from_secs(8));
    sent
}

#[test]
fn the_faster_path_brings_everything_and_the_slower_one_leaves_out() {
    let mut world = World::new(1, &[(1_000_000, 0, 8), (30_000_000, 0, 400)]);
    world.join(0);
    world.join(1);
    let sent = exchange(&mut world, false);
    assert!(world.delivered == sent);
    for end in &world.ends {
        let Statistics { first, left_out, .. } = end.statistics();
        assert!(first[0] > 20 * first[1], "{:?}", end.statistics());
        assert!(left_out[1] > 0, "{:?}", end.statistics());
        assert_eq!((end.unacknowledged(), end.kept.len()), (0, 0));
    }
    assert_eq!(world.drops, []);
}

#[test]
fn what_one_path_holds_up_comes_by_the_other() {
    let mut world = World::new(2, &[(1_000_000, 0, 8), (2_000_000, 0, 8)]);
    world.join(0);
    world.join(1);
    world.run_for(Nanos::from_millis(20));
    // The first path goes silent, without notice to either end.
    world.lines[0].up = false;
    let (now, before) = (world.now, world.delivered[1].len());
    world.ends[0].send(now, Buffer::zeroed(5_000));
    world.settle();
    world.run_for(Nanos::from_millis(3));
    assert_eq!(world.delivered[1].len(), before + 5_000);
    world.run_for(Nanos::from_secs(7));
    assert_eq!(world.drops, [PathError::Silent; 2]);
    assert_eq!(world.ended, [None, None]);
    assert!(world.ends.iter().all(|end| !end.has(PathIndex(0)) && end.has(PathIndex(1))));
}

#[test]
fn a_peer_that_is_there_and_acknowledges_nothing_is_left() {
    let mut far = Paths::accepting(GROUP, TOKEN);
    let mut now = Instant::ZERO;
    far.handle_input(now, Input::Joined(PathIndex(1)));
    far.send(now, Buffer::zeroed(100));
    let alive = Record { offset: 0, acknowledged: 0, length: 0 }.emit();
    let mut last = None;
    for _ in 0..9 {
        now = now + Nanos::from_secs(1);
        far.handle_input(now, Input::Drained(PathIndex(1)));
        far.handle_input(now, Input::Received(PathIndex(1), Buffer::copy_from_slice(&alive)));
        settle(&mut far, now, |output| last = Some(output));
        assert!(matches!(last, Some(Output::Transmit(..))), "{last:?}");
    }
    settle(&mut far, now + Nanos::from_secs(1), |output| last = Some(output));
    assert_eq!(last, Some(Output::End(EndReason::Stalled)));
    assert_eq!(far.unacknowledged(), 0);
}

#[test]
fn the_stream_ends_with_its_last_path() {
    let mut world = World::new(3, &[(1_000, 0, 0), (1_000, 0, 0)]);
    world.join(0);
    world.join(1);
    world.run_for(Nanos::from_millis(1));
    let now = world.now;
    world.ends[0].handle_input(now, Input::Lost(PathIndex(0)));
    world.settle();
    assert_eq!(world.ended[0], None);
    world.ends[0].handle_input(now, Input::Lost(PathIndex(1)));
    world.settle();
    assert_eq!(world.ended[0], Some(EndReason::NoPath));
    world.ends[0].send(now, Buffer::zeroed(10));
    world.ends[0].handle_input(now, Input::Joined(PathIndex(0)));
    world.settle();
    assert_eq!(world.ends[0].poll_timeout(), None);
}

#[test]
fn a_far_end_that_forgot_the_stream_ends_it() {
    let mut near = Paths::dialling(GROUP);
    let now = Instant::ZERO;
    let answer = |path, token| Preamble { group: GROUP, path: PathIndex(path), token: Some(Token(token)) };
    near.handle_input(now, Input::Joined(PathIndex(0)));
    near.handle_input(now, Input::Joined(PathIndex(1)));
    near.handle_input(now, Input::Received(PathIndex(0), Buffer::copy_from_slice(&answer(0, 1).emit())));
    let mut outputs = Vec::new();
    settle(&mut near, now, |output| outputs.push(output));
    assert!(outputs.iter().all(|output| matches!(output, Output::Transmit(..))), "{outputs:?}");
    assert!(near.is_ours(&answer(1, 1)) && !near.is_ours(&answer(1, 2)));
    near.handle_input(now, Input::Received(PathIndex(1), Buffer::copy_from_slice(&answer(1, 2).emit())));
    assert_eq!(near.poll_output(), Some(Output::End(EndReason::Forgotten)));
}

#[test]
fn what_breaks_the_format_costs_its_path() {
    let record = |offset, acknowledged, length| Record { offset, acknowledged, length }.emit().to_vec();
    let mut reserved = record(0, 0, 0);
    reserved[21] = 1;
    let cases = [
        (record(1, 0, 1), PathError::Gap { offset: 1, delivered: 0 }),
        (record(0, 11, 0), PathError::Acknowledged(11)),
        (record(0, 0, RECORD_MAX + 1), PathError::Length(RECORD_MAX + 1)),
        (reserved, PathError::Reserved),
    ];
    for (bytes, error) in cases {
        let mut far = Paths::accepting(GROUP, TOKEN);
        let now = Instant::ZERO;
        far.handle_input(now, Input::Joined(PathIndex(0)));
        far.handle_input(now, Input::Joined(PathIndex(2)));
        far.send(now, Buffer::zeroed(10));
        far.handle_input(now, Input::Received(PathIndex(2), Buffer::copy_from_slice(&bytes)));
        let mut last = None;
        settle(&mut far, now, |output| last = Some(output));
        assert_eq!(last, Some(Output::Drop(PathIndex(2), error)));
        assert!(far.has(PathIndex(0)) && !far.has(PathIndex(2)));
    }
}

#[test]
fn a_peer_that_acknowledges_nothing_costs_a_bounded_amount() {
    let mut near = Paths::dialling(GROUP);
    let now = Instant::ZERO;
    near.handle_input(now, Input::Joined(PathIndex(0)));
    let megabyte = Buffer::zeroed(1 << 20);
    let mut given = 0;
    let mut reason = None;
    for _ in 0..33 {
        near.send(now, megabyte.clone());
        settle(&mut near, now, |output| match output {
            Output::Transmit(_, bytes) => given += bytes.len(),
            Output::End(why) => reason = Some(why),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(reason, Some(EndReason::TooMuchKept));
    assert!(given <= PREAMBLE_LENGTH + GIVEN_MAX + RECORD_LENGTH + RECORD_MAX as usize, "{given}");
}

#[test]
fn a_session_differs_from_a_path_by_its_first_byte() {
    assert_eq!(opening(b""), Opening::More);
    assert_eq!(opening(&[1]), Opening::Session);
    let preamble = Preamble { group: GROUP, path: PathIndex(3), token: None };
    let mut bytes = preamble.emit().to_vec();
    for length in 0..PREAMBLE_LENGTH {
        assert_eq!(opening(&bytes[..length]), Opening::More);
    }
    bytes.push(5);
    assert_eq!(opening(&bytes), Opening::Path(preamble));
    bytes[9] = 4;
    assert_eq!(opening(&bytes), Opening::Session);
    assert_eq!(Preamble::parse(bytes[..PREAMBLE_LENGTH].try_into().unwrap()), Err(PathError::Stranger));
    (bytes[8], bytes[9]) = (2, 0);
    assert_eq!(Preamble::parse(bytes[..PREAMBLE_LENGTH].try_into().unwrap()), Err(PathError::Version(2)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn both_streams_arrive_whole_whatever_single_paths_do(
        seed in any::<u64>(),
        lines in prop::collection::vec((0..20_000_000_u64, 0..15_000_000_u64, 0..60_u64), 2..=4),
    ) {
        let mut world = World::new(seed, &lines);
        for path in 0..lines.len() {
            world.join(path);
        }
        let sent = exchange(&mut world, true);
        prop_assert_eq!(world.ended, [None, None]);
        prop_assert!(world.delivered == sent);
        prop_assert_eq!(world.drops.len(), 0, "{:?}", &world.drops);
    }
}
