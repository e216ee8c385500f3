//! The scenario `record-gateware`: the circuit of the Streamer records on Farlane's own controller
//! and plays back. Streams pause, the SSD and the memory of the buffer pause, and commands fail.
//! The circuit's writes and counts are compared with the engine's.

use campaigns::campaign::Outcome;
use engine::{Engine, Instant, Nanos, Rng};
use record::format::Reason;
use record::registers::{Account, State, layout as at};
use record::{Fault, Input, Output, RawConfig, RawRecorder};
use sim::Digest;

use super::{Config, Gap, StreamerCircuit, Temper, Written};
use crate::stream::Stalls;

const PAGE: u64 = 4096;

/// How a trial goes.
struct Plan {
    config: Config,
    first: u64,
    /// Bytes that the source has.
    given: u64,
    /// The end by registers; 0 is none.
    maximum: u64,
    chunks_max: u64,
    /// Whether software ends it; otherwise the source does.
    is_stopped: bool,
}

impl Plan {
    fn new(seed: u64, rng: &mut Rng) -> Self {
        let chunk = [16, 16, 16, 16, 32, 64, 128][pick(rng, 7)] << 10;
        // Fewer chunks than a recorder in software has at least: the buffer is full sooner.
        let chunks = 2 + u32::try_from(rng.below(7)).expect("a small number");
        let temper = Temper {
            latency_max: [300, 2_000, 12_000][pick(rng, 3)],
            fails_one_in: [0, 0, 20, 4][pick(rng, 4)],
        };
        let config = Config {
            chunk,
            chunks,
            entries: 2 + u32::try_from(rng.below(63)).expect("a small number"),
            waits: rng.one_in(3),
            media: 8 << 20,
            has_large_blocks: rng.one_in(2),
            stalls: Stalls([None, Some(2), Some(7), Some(50)][pick(rng, 4)]),
            memory_latency_max: [1, 30, 400][pick(rng, 3)],
            temper,
            seed,
        };
        let first = PAGE * rng.below(100);
        let given = 1 + rng.below(60 << 14);
        let maximum = if rng.one_in(3) { first + PAGE * (1 + rng.below(300)) } else { 0 };
        let chunks_max = if rng.one_in(4) { 1 + rng.below(40) } else { 0 };
        Self { config, first, given, maximum, chunks_max, is_stopped: rng.one_in(3) }
    }

    /// The most bytes that are recorded.
    fn most(&self) -> u64 {
        let end = if self.maximum == 0 { self.config.media } else { self.maximum };
        let chunks = if self.chunks_max == 0 { u64::MAX } else { self.chunks_max };
        (end - self.first).min(chunks.saturating_mul(self.config.chunk.into()))
    }
}

fn pick(rng: &mut Rng, count: u64) -> usize {
    usize::try_from(rng.below(count)).expect("a few")
}

/// Gives a stream to the circuit in pieces, while its surroundings pause, and ends the recording.
fn record(circuit: &mut StreamerCircuit, plan: &Plan, bytes: &[u8], rng: &mut Rng) -> State {
    circuit.start(at::WRITING, plan.first, plan.maximum, plan.chunks_max);
    let mut rest = bytes;
    while !rest.is_empty() && circuit.state(at::WRITING) == State::Running {
        let length = 16 * (1 + pick(rng, 3_000));
        if length >= rest.len() && !plan.is_stopped {
            circuit.give_last(rest);
            rest = &[];
        } else {
            let (part, behind) = rest.split_at(length.min(rest.len() / 16 * 16));
            rest = if part.is_empty() { &[] } else { behind };
            circuit.give(part);
        }
        match rng.below(12) {
            0 => circuit.pause_ssd(rng.below(60_000)),
            1 => circuit.pause_memory(rng.below(3_000)),
            2 => circuit.run(rng.below(5_000)),
            _ => {}
        }
        circuit.run_until_given_or_ended();
    }
    if plan.is_stopped {
        circuit.stop(at::WRITING);
    }
    circuit.run_until_ended(at::WRITING)
}

/// The engine's writes for the same stream, when the same chunks find no room or fail.
fn engine(plan: &Plan, bytes: &[u8], gaps: &[Gap]) -> (Vec<Written>, RawRecorder) {
    let chunk = u64::from(plan.config.chunk);
    let mut recorder = RawRecorder::new(RawConfig {
        buffer: 32,
        end: Some(if plan.maximum == 0 { plan.config.media } else { plan.maximum }),
        chunks: (plan.chunks_max != 0).then_some(plan.chunks_max),
        ..RawConfig::new(plan.config.chunk, plan.first)
    });
    let is_lost = |offset: u64, of_medium: bool| {
        gaps.iter().any(|gap| {
            let end = gap.address + u64::from(gap.chunks) * chunk;
            gap.is_of_medium == of_medium && (gap.address..end).contains(&offset)
        })
    };
    let (mut writes, mut place) = (Vec::new(), 0);
    loop {
        let rest = &bytes[place..];
        let offset = place as u64;
        if rest.is_empty() && recorder.is_recording() {
            recorder.finish(Reason::SourceEnded);
        } else if recorder.is_recording() && is_lost(plan.first + offset, false) {
            let lost = (chunk - offset % chunk).min(rest.len() as u64);
            recorder.lose(lost, 0);
            place += usize::try_from(lost).expect("a chunk");
        } else if let Some(room) = recorder.room(Instant::ZERO) {
            let length = room.len().min(rest.len());
            room[..length].copy_from_slice(&rest[..length]);
            recorder.filled(length);
            place += length;
        }
        while let Some(output) = recorder.poll_output() {
            let input = match output {
                Output::Write { name, offset, data } => {
                    let is_stored = !is_lost(offset, true);
                    writes.push(Written { offset, data: data.to_vec(), is_stored });
                    Input::Written { name, result: if is_stored { Ok(()) } else { Err(Fault::Failed) } }
                }
                Output::Sync => Input::Synced(Ok(())),
                Output::Digest { .. } => continue,
                Output::Ended(_) => return (writes, recorder),
            };
            recorder.handle_input(Instant::ZERO, input);
        }
    }
}

/// Compares the circuit's account with what it was offered. Returns the account and the log.
fn compare_account(
    circuit: &mut StreamerCircuit,
    plan: &Plan,
    offered: u64,
    state: State,
    failures: &mut Vec<String>,
) -> (Account, Vec<Gap>) {
    let (account, gaps) = (circuit.account(at::WRITING), circuit.gaps());
    let came = account.bytes;
    if came != account.bytes_stored + account.bytes_lost || account.fill != 0 {
        failures.push(format!("bytes in, stored, lost and in the buffer don't add up: {account:?}"));
    }
    let (offered, is_short) = (plan.most().min(offered), plan.is_stopped || state == State::Failed);
    if came > offered || (came < offered && !is_short) {
        failures.push(format!("{came} B came, where {offered} B were offered"));
    }
    if plan.config.waits && gaps.iter().any(|gap| !gap.is_of_medium) {
        failures.push("a stream that waits has lost bytes at the buffer".to_owned());
    }
    if !plan.config.waits && circuit.waited() > 0 {
        failures.push(format!("the stream waited {} cycles, where it must not", circuit.waited()));
    }
    (account, gaps)
}

/// Compares the circuit's recording of `bytes` with the engine's.
fn compare_engine(
    circuit: &StreamerCircuit,
    plan: &Plan,
    bytes: &[u8],
    (account, gaps): (&Account, &[Gap]),
    failures: &mut Vec<String>,
) {
    let (mut expected, recorder) = engine(plan, bytes, gaps);
    let progress = recorder.progress();
    let sums = (progress.bytes_in, progress.stored, progress.lost, progress.last_address);
    // Before the first byte is stored, the engine shows 0.
    let last_address = if account.bytes_stored == 0 { 0 } else { account.last_address };
    let shown = (account.bytes, account.bytes_stored, account.bytes_lost, last_address);
    if sums != shown {
        failures.push(format!("the engine has {sums:?}, the circuit {shown:?}"));
    }
    let count = recorder.gaps().len() as u64;
    if plan.config.temper.fails_one_in == 0 && count != account.gaps {
        failures.push(format!("the engine has {count} gaps, the circuit {gaps:?}"));
    }
    let mut written = circuit.written().to_vec();
    let key = |one: &Written| (one.offset, one.is_stored);
    expected.sort_by_key(key);
    written.sort_by_key(key);
    // A chunk that was stored in the end may have failed before.
    written.retain(|one| one.is_stored || expected.iter().any(|other| other == one));
    if written != expected {
        let show = |all: &[Written]| {
            let places = all.iter().map(|one| (one.offset, one.data.len(), one.is_stored));
            format!("{:?}", places.collect::<Vec<_>>())
        };
        failures.push(format!("the engine writes {}, the circuit {}", show(&expected), show(&written)));
    }
}

/// Plays back the bytes between two addresses, and compares them with the medium.
fn replay(
    circuit: &mut StreamerCircuit,
    first: u64,
    maximum: u64,
    rng: &mut Rng,
    failures: &mut Vec<String>,
) -> u64 {
    circuit.start(at::READING, first, maximum, 0);
    for _ in 0..rng.below(4) {
        circuit.open_sink(false);
        circuit.run(rng.below(20_000));
        circuit.open_sink(true);
        if rng.one_in(2) {
            circuit.pause_ssd(rng.below(20_000));
        }
        circuit.run(rng.below(5_000));
    }
    let state = circuit.run_until_ended(at::READING);
    if state == State::Failed {
        return 0;
    }
    let (played, stored) = (circuit.played(), circuit.contents(first, maximum - first));
    if played.as_ref() != Some(&stored) {
        let length = played.map(|played| played.len());
        failures.push(format!("{length:?} B were played, not the {} of the medium", stored.len()));
    }
    let account = circuit.account(at::READING);
    let shown = (account.bytes, account.last_address, account.fill);
    if shown != (maximum - first, maximum, 0) {
        failures.push(format!("from {first} to {maximum} were played: {account:?}"));
    }
    account.bytes
}

/// Runs a recording and a replay for `seed`.
pub fn run(seed: u64) -> Outcome {
    let mut rng = Rng::from_seed(seed).fork("record-gateware");
    let plan = Plan::new(seed, &mut rng);
    let mut bytes = vec![0; usize::try_from(plan.given).expect("some hundred KiB")];
    rng.fill(&mut bytes);
    let mut circuit = StreamerCircuit::new(plan.config);
    let mut outcome = Outcome { scenario: "record-gateware", seed, ..Outcome::default() };
    let state = record(&mut circuit, &plan, &bytes, &mut rng);
    let (account, gaps) = compare_account(&mut circuit, &plan, plan.given, state, &mut outcome.failures);
    // An engine that has given up takes no more bytes, where the circuit counts them.
    let came = usize::try_from(account.bytes).ok().filter(|_| state == State::Ended);
    if let Some(recorded) = came.and_then(|came| bytes.get(..came)) {
        compare_engine(&circuit, &plan, recorded, (&account, &gaps), &mut outcome.failures);
    }
    circuit.discard();
    let fails_one_in = plan.config.temper.fails_one_in / 20 * 20;
    circuit.set_temper(Temper { fails_one_in, ..plan.config.temper });
    let end = (plan.first + account.bytes).next_multiple_of(PAGE).max(plan.first + PAGE);
    let played = replay(&mut circuit, plan.first, end, &mut rng, &mut outcome.failures);
    let mut digest = Digest::default();
    for one in circuit.written() {
        digest.word(one.offset);
        digest.word(one.is_stored.into());
        digest.bytes(&one.data);
    }
    [circuit.now(), account.bytes, account.bytes_lost, account.gaps, account.high_water, played]
        .into_iter()
        .for_each(|word| digest.word(word));
    outcome.digest = digest.value();
    outcome.events = circuit.now();
    outcome.elapsed = Nanos::new(circuit.now() * super::CYCLE);
    outcome.counts.done = circuit.written().len() as u64;
    outcome.counts.failed = account.gaps;
    outcome
}
