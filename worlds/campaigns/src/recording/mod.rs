//! A recorder over an SSD on a bad day: a medium that fails, lies, pauses, warms up, fills up and
//! loses its power, and sources that wait, that do not, and that are behind a lossy network.
//!
//! Whatever happens, what is on the medium is what came, a certificate that proves itself is true,
//! and a recording that was cut off is made whole. A medium that does not lie keeps everything that
//! it has acknowledged, and the certificate is there at the end.

mod disk;
mod judge;
mod source;

use std::collections::BTreeMap;

use engine::{Engine, Instant, Nanos, Rng};
use record::format::{
    CHUNK_MIN, Certificate, FIRST_SLOT, Header, Kind, Reason, StreamTotals, Time, TimeSource,
};
use record::{Config, Fault, Input, Output, Recorder};
use sim::models::ssd::Slowdowns;

use crate::campaign::Outcome;
use crate::chaos::Trouble;
use crate::digest::crc32c;
use crate::workload::Counts;
use disk::{Disk, Vices};
use judge::Reading;
use source::{Lane, Source};

/// The name of a recording that was on the medium before.
const EARLIER: [u8; 16] = [2; 16];
/// How long sources may run.
const DAY: Nanos = Nanos::from_millis(250);
/// How long after the end was asked for a late power cut comes at most.
const LATE: Nanos = Nanos::from_millis(20);
/// How long a recording may take to end once it was asked to.
const DRAIN: Nanos = Nanos::from_secs(60);
/// The smallest medium in bytes.
const MEDIUM_MIN: u64 = 160 << 10;
/// The host's time at the start of a run, in nanoseconds since 1970.
const EPOCH: u64 = 1_700_000_000_000_000_000;
/// How far the host's clock is set back, in nanoseconds.
const SET_BACK: u64 = 3_600_000_000_000;

/// What is to happen in a run.
#[derive(Debug)]
struct Plan {
    /// When somebody asks the recording to end, if its sources have not.
    stop: Instant,
    /// When the medium gets well.
    heal: Instant,
    /// When the power fails, if it does.
    cut: Option<Instant>,
    /// When the host's clock is set back, if it is.
    set_back: Option<Instant>,
}

impl Plan {
    fn new(rng: &mut Rng) -> Self {
        let at = |rng: &mut Rng| Instant::ZERO + Nanos::new(rng.below(DAY.get()));
        let stop = at(rng) + Nanos::from_millis(5);
        let heal = if rng.one_in(2) { at(rng) } else { stop + DRAIN };
        let cut = rng.one_in(2).then(|| at(rng));
        let set_back = rng.one_in(4).then(|| at(rng));
        // The end of a recording is short, and is to see power cuts, too.
        let is_late = rng.one_in(3);
        let late = stop + Nanos::new(rng.below(LATE.get()));
        let cut = cut.map(|cut| if is_late { late } else { cut });
        Self { stop, heal, cut, set_back }
    }
}

/// A chunk that the medium has taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    stream: u32,
    offset: u64,
    end: u64,
}

/// A recorder, its medium, its sources, and what was promised.
#[derive(Debug)]
struct Run {
    now: Instant,
    recorder: Recorder,
    disk: Disk,
    sources: Vec<Source>,
    /// Chunks whose write has ended well, by slot.
    taken: BTreeMap<u64, Taken>,
    /// Those that the sync under way makes durable.
    syncing: BTreeMap<u64, Taken>,
    /// Those that survive a power cut.
    kept: BTreeMap<u64, Taken>,
    /// What each write under way has.
    under_way: BTreeMap<u64, (u64, Option<Taken>)>,
    acknowledged: u64,
    ended: Option<Certificate>,
    failures: Vec<String>,
    events: u64,
}

/// What follows from the seed before the first event.
#[derive(Debug)]
struct Draw {
    vices: Vices,
    config: Config,
    medium: Vec<u8>,
    plan: Plan,
}

/// Runs the scenario `record` with `seed`.
pub fn run(seed: u64) -> Outcome {
    let rng = Rng::from_seed(seed);
    let draw = draw(&rng);
    let (plan, chunk, vices) = (draw.plan, draw.config.chunk, draw.vices);
    let mut sources = sources(&draw.config, &rng);
    let disk = Disk::new(draw.medium, vices, &rng);
    let has_network = sources.iter().any(Source::is_network);
    let mut run = Run::new(draw.config, disk, std::mem::take(&mut sources), Instant::ZERO);
    let is_cut = run.go(&plan);
    let mut troubles = troubles(&vices, run.disk.slowdowns());
    if has_network {
        troubles.push(Trouble::LossyNetwork);
    }
    if run.sources.iter().any(|source| !source.is_network() && !source.lost.is_empty()) {
        troubles.push(Trouble::FastSource);
    }
    if run.sources.iter().any(Source::is_endless) {
        troubles.push(Trouble::EndlessSource);
    }
    if is_cut {
        troubles.push(Trouble::PowerCut);
        if !run.recorder.is_recording() {
            troubles.push(Trouble::LateCut);
        }
    }
    if run.ended.as_ref().is_some_and(|told| told.reason == Reason::Full) {
        troubles.push(Trouble::FullMedium);
    }
    troubles.sort();
    let (events, now, counts) = (run.events, run.now, run.disk.counts);
    let mut digest = sim::Digest::default();
    let (failures, abandoned) = run.judge(&plan, is_cut, chunk, &rng, &mut digest);
    Outcome {
        seed,
        digest: digest.value(),
        contents: digest.value(),
        events,
        elapsed: now - Instant::ZERO,
        troubles,
        counts: Counts { done: counts.0, failed: counts.1, abandoned },
        failures,
        ..Outcome::default()
    }
}

/// Draws the medium's vices, its size and what is on it, and how the recorder is set up.
fn draw(rng: &Rng) -> Draw {
    let mut rng = rng.fork("draw");
    let lies = rng.one_in(3);
    let vice = |rng: &mut Rng, is_there: bool| if is_there && rng.one_in(2) { 3 + rng.below(60) } else { 0 };
    let vices = Vices {
        fails: vice(&mut rng, true),
        fails_to_sync: if rng.one_in(8) { 1 + rng.below(6) } else { 0 },
        stalls: vice(&mut rng, true),
        tears: vice(&mut rng, lies),
        loses: vice(&mut rng, lies),
        misdirects: vice(&mut rng, lies),
        rots: vice(&mut rng, lies),
    };
    let pages = (MEDIUM_MIN + rng.below(4 << 20)) / 4096;
    let chunk = if rng.one_in(4) { CHUNK_MIN * 2 } else { CHUNK_MIN };
    let mut medium = vec![0; usize::try_from(pages * 4096).expect("a few megabytes")];
    // A medium that lies about its first write would show what was on it before.
    if !vices.lies() && rng.one_in(3) {
        medium = used(medium, chunk, &rng);
    }
    let names = (0..=rng.below(4)).map(|number| format!("stream {number}")).collect();
    let mut config = Config::new([3; 16], names);
    (config.chunk, config.crc32c) = (chunk, crc32c);
    config.buffer = 32 + usize::try_from(rng.below(32)).unwrap_or(0);
    config.flush = Nanos::from_millis(2 + rng.below(60));
    let slots = medium.len() as u64 / u64::from(chunk);
    config.slots = rng.one_in(2).then_some(slots);
    let plan = Plan::new(&mut rng);
    Draw { vices, config, medium, plan }
}

/// A medium with an earlier recording on it.
fn used(medium: Vec<u8>, chunk: u32, rng: &Rng) -> Vec<u8> {
    let rng = rng.fork("earlier");
    let mut config = Config::new(EARLIER, vec!["earlier".into()]);
    (config.chunk, config.crc32c) = (chunk, crc32c);
    record_well(medium, config, &rng).disk.contents()
}

/// Records from a source that waits to a medium without vices, until the end.
fn record_well(medium: Vec<u8>, config: Config, rng: &Rng) -> Run {
    let bytes = (medium.len() as u64 / 2).max(1);
    let disk = Disk::new(medium, Vices::default(), rng);
    let source = Source::patient(bytes, 100_000_000, Instant::ZERO, rng);
    let mut run = Run::new(config, disk, vec![source], Instant::ZERO);
    let never = Instant::ZERO + DRAIN;
    run.go(&Plan { stop: never, heal: Instant::ZERO, cut: None, set_back: None });
    run
}

fn sources(config: &Config, rng: &Rng) -> Vec<Source> {
    let mut rng = rng.fork("sources");
    let make = |number| {
        let rate = 1_000_000 + rng.below(60_000_000);
        let end = rng.one_in(2).then(|| Instant::ZERO + Nanos::new(rng.below(DAY.get())));
        Source::new(number, rate, end, &rng)
    };
    (0..config.streams.len()).map(make).collect()
}

fn troubles(vices: &Vices, slowdowns: Slowdowns) -> Vec<Trouble> {
    let all = [
        (vices.fails > 0, Trouble::MediaErrors),
        (vices.fails_to_sync > 0, Trouble::FailedSync),
        (vices.stalls > 0, Trouble::Stall),
        (vices.tears > 0, Trouble::TornWrites),
        (vices.loses > 0, Trouble::LostWrites),
        (vices.misdirects > 0, Trouble::MisdirectedWrites),
        (vices.rots > 0, Trouble::RottenBits),
        (slowdowns.pauses > 0, Trouble::SlowMedia),
        (slowdowns.throttled > 0, Trouble::Throttling),
        (slowdowns.reclaimed > 0, Trouble::Reclaiming),
    ];
    all.into_iter().filter_map(|(is_there, trouble)| is_there.then_some(trouble)).collect()
}

impl Run {
    fn new(config: Config, disk: Disk, sources: Vec<Source>, now: Instant) -> Self {
        Self {
            now,
            recorder: Recorder::new(config, Time { nanos: EPOCH, source: TimeSource::Host }),
            disk,
            sources,
            taken: BTreeMap::new(),
            syncing: BTreeMap::new(),
            kept: BTreeMap::new(),
            under_way: BTreeMap::new(),
            acknowledged: 0,
            ended: None,
            failures: Vec::new(),
            events: 0,
        }
    }

    /// Runs until the recording has ended, or to the power cut. Returns whether the power failed.
    fn go(&mut self, plan: &Plan) -> bool {
        let mut is_stopped = false;
        loop {
            if self.now >= plan.heal {
                self.disk.vices = Vices::default();
            }
            if !is_stopped && (self.now >= plan.stop || self.sources.iter().all(Source::is_over)) {
                let is_over = self.sources.iter().all(Source::is_over);
                self.recorder.finish(if is_over { Reason::SourceEnded } else { Reason::Asked });
                is_stopped = true;
            }
            if !is_stopped {
                self.take(plan);
            }
            self.recorder.handle_timeout(self.now);
            self.serve();
            if self.ended.is_some() {
                return false;
            }
            let coming = self.sources.iter().filter_map(Source::poll_timeout).filter(|_| !is_stopped);
            let planned = [plan.stop, plan.heal].into_iter().chain(plan.cut).filter(|at| *at > self.now);
            let next = coming.chain(planned).chain(self.disk.next()).chain(self.recorder.poll_timeout());
            let next = next.min().map(|at| at.max(self.now));
            let Some(next) = next.filter(|next| *next <= plan.stop + DRAIN) else {
                self.failures.push(format!("the recording has not ended: {:?}", self.recorder.progress()));
                return false;
            };
            if plan.cut.is_some_and(|cut| next >= cut) {
                return true;
            }
            self.now = next;
            self.events += 1;
        }
    }

    /// Takes what the sources have.
    fn take(&mut self, plan: &Plan) {
        let is_set_back = plan.set_back.is_some_and(|at| self.now >= at);
        let nanos = EPOCH + self.now.as_nanos() - if is_set_back { SET_BACK } else { 0 };
        let time = Time { nanos, source: TimeSource::Host };
        for (stream, source) in self.sources.iter_mut().enumerate() {
            source.run(&mut Lane { recorder: &mut self.recorder, stream, now: self.now, time });
        }
    }

    /// Does what the recorder asks, and tells it what has ended.
    fn serve(&mut self) {
        loop {
            while let Some(output) = self.recorder.poll_output() {
                match output {
                    Output::Write { name, offset, data } => {
                        let header = Header::parse(&data, crc32c).ok();
                        let is_data = |header: &Header| header.kind == Kind::Data;
                        let taken = header.filter(is_data).map(|header| Taken {
                            stream: header.stream,
                            offset: header.offset,
                            end: header.end(),
                        });
                        // What is written over is promised no more.
                        for promised in [&mut self.taken, &mut self.syncing, &mut self.kept] {
                            promised.remove(&offset);
                        }
                        self.under_way.insert(name, (offset, taken));
                        self.disk.write(self.now, name, offset, data);
                    }
                    Output::Sync => {
                        self.syncing = self.taken.clone();
                        self.disk.sync(self.now);
                    }
                    // The recorder computes them.
                    Output::Digest { .. } => {}
                    Output::Ended(certificate) => self.ended = Some(certificate),
                }
            }
            self.check();
            let Some(input) = self.disk.poll(self.now) else { return };
            self.note(input);
            self.recorder.handle_input(self.now, input);
        }
    }

    fn note(&mut self, input: Input) {
        match input {
            Input::Written { name, result } => {
                if let Some((offset, Some(taken))) = self.under_way.remove(&name)
                    && result.is_ok()
                {
                    self.taken.insert(offset, taken);
                }
            }
            Input::Digested { .. } => {}
            Input::Synced(Ok(())) => self.kept.append(&mut self.syncing),
            Input::Synced(Err(Fault::Full | Fault::Failed)) => {
                // Whatever was not durable may be gone.
                self.syncing.clear();
                self.taken = self.kept.clone();
            }
        }
    }

    /// Checks the recorder's running account.
    fn check(&mut self) {
        let progress = self.recorder.progress();
        let came: u64 = self.sources.iter().map(|source| source.came).sum();
        let kept: u64 = self.kept.values().map(|taken| taken.end - taken.offset).sum();
        let rules = [
            (progress.bytes_in == came, "bytes in are what came"),
            (progress.bytes_in == progress.stored + progress.lost + progress.fill, "the account adds up"),
            (progress.acknowledged >= self.acknowledged, "what is acknowledged stays so"),
            (progress.acknowledged <= kept, "what is acknowledged is durable"),
        ];
        self.acknowledged = progress.acknowledged;
        for (_, rule) in rules.into_iter().filter(|(is_so, _)| !is_so) {
            let now = self.now;
            self.failures.push(format!("at {now:?}: {rule}: {progress:?}, {came} came, {kept} are durable"));
        }
        self.failures.truncate(8);
    }

    /// Checks what is on the medium in the end. Returns what is wrong, and the number of writes
    /// that were under way when the power failed.
    fn judge(
        self,
        plan: &Plan,
        is_cut: bool,
        chunk: u32,
        rng: &Rng,
        digest: &mut sim::Digest,
    ) -> (Vec<String>, u64) {
        let Self { recorder, disk, sources, kept, mut failures, ended, now, .. } = self;
        // A full medium may have no room for all gap records.
        let was_well = now >= plan.heal && !disk.was_spoiled;
        let (lied, slots) = (disk.lied(), disk.bytes() / u64::from(chunk));
        let (medium, abandoned) = if is_cut { disk.cut() } else { (disk.contents(), 0) };
        digest.bytes(&medium);
        let mut reading = Reading::new(medium, chunk);
        if reading.survey.recording == Some(EARLIER) {
            // The new recording's start is not on the medium.
            let acknowledged = recorder.progress().acknowledged;
            if acknowledged > 0 {
                failures.push(format!("{acknowledged} bytes are behind an earlier recording"));
            }
            return (failures, abandoned);
        }
        let mut wrong = |what: &str, found: Vec<String>| {
            failures.extend(found.into_iter().map(|found| format!("{what}: {found}")));
        };
        wrong("found", reading.untruths(&sources));
        if reading.is_proved() {
            wrong("proved", reading.false_claims(&sources, true));
        }
        if let Some(told) = &ended {
            let is_certified = recorder.is_certified();
            let is_calm = matches!(told.reason, Reason::SourceEnded | Reason::Asked);
            if !lied
                && is_certified
                && (!reading.is_proved() || reading.survey.certificate.as_ref() != Some(told))
            {
                wrong("end", vec![format!("{told:?} does not prove itself: {:?}", reading.survey)]);
            }
            // Nor has one whose slots the recorder counts, and which it therefore never overfills.
            let has_room = told.slots < slots;
            if is_calm && was_well && has_room && plan.heal < plan.stop && !is_certified {
                wrong("end", vec![format!("the medium is well and {told:?} is not certified")]);
            }
            let adds_up = |stream: &StreamTotals| stream.bytes_in == stream.stored + stream.lost;
            if !told.streams.iter().all(adds_up) {
                wrong("end", vec![format!("{told:?} does not add up")]);
            }
        }
        if !lied {
            let missing = kept.values().filter(|one| !reading.stores(one.stream, one.offset, one.end));
            wrong("lost", missing.map(|one| format!("{one:?} was durable")).collect());
        }
        if !reading.is_proved() && reading.survey.recording.is_some() {
            reading.mend();
            wrong("recovered", reading.untruths(&sources));
            match reading.is_proved() {
                true => wrong("recovered", reading.false_claims(&sources, false)),
                false => wrong("recovered", vec![format!("it does not prove itself: {:?}", reading.survey)]),
            }
        }
        let mut medium = reading.into_medium();
        medium.truncate(medium.len() / 4096 * 4096);
        wrong("again", record_again(medium, chunk, rng));
        failures.truncate(8);
        (failures, abandoned)
    }
}

/// Records once more to the medium, which is well now: the recording ends certified.
fn record_again(medium: Vec<u8>, chunk: u32, rng: &Rng) -> Vec<String> {
    let mut config = Config::new([4; 16], vec!["again".into()]);
    (config.chunk, config.crc32c) = (chunk, crc32c);
    let run = record_well(medium, config, &rng.fork("again"));
    let mut failures = run.failures;
    let is_certified = run.recorder.is_certified();
    let reading = Reading::new(run.disk.contents(), chunk);
    if !is_certified || !reading.is_proved() {
        failures.push(format!("not certified: {:?}", reading.survey));
    } else {
        failures.extend(reading.false_claims(&run.sources, true));
    }
    failures
}

const _: () = assert!(MEDIUM_MIN > FIRST_SLOT * CHUNK_MIN as u64 * 2);
