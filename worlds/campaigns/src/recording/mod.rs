//! A recorder over SSDs on a bad day: media that fail, lie, pause, warm up, fill up and lose their
//! power, and sources that wait, that do not, and that are behind a lossy network.
//!
//! In all cases, the media hold the received data, a certificate that proves itself is true, and a
//! recording that was cut off is made whole. A medium that does not lie keeps everything that was
//! acknowledged and that no ring has overwritten, and the certificate is there at the end.

mod disk;
mod draw;
mod judge;
mod media;
mod mending;
mod network;
mod promises;
mod raw;
mod source;
mod triggering;

use engine::{Engine, Instant, Nanos, Rng};
use record::format::{Certificate, Reason, StreamTotals, Time, TimeSource};
use record::packing::Lane;
use record::{Config, Output, PinRange, Recorder};
use sim::models::ssd::Slowdowns;

use crate::campaign::Outcome;
use crate::chaos::Trouble;
use crate::digest::crc32c;
use crate::workload::Counts;
use disk::Vices;
use draw::{Act, Draw, Plan, Shape, draw, sources};
use judge::Reading;
use media::{Contents, Media};
use promises::Promises;
pub use raw::run_raw;
use source::Source;
use triggering::Triggering;

/// The name of the recording.
const RECORDING: [u8; 16] = [3; 16];
/// The name of a recording that was on the medium before.
const EARLIER: [u8; 16] = [2; 16];
/// How long a recording may take to end once it was asked to.
const DRAIN: Nanos = Nanos::from_secs(60);
/// The host's time at the start of a run, in nanoseconds since 1970.
const EPOCH: u64 = 1_700_000_000_000_000_000;
/// How far the host's clock is set back, in nanoseconds.
const SET_BACK: u64 = 3_600_000_000_000;

/// A recorder, its media, its sources, and its promises.
#[derive(Debug)]
struct Run {
    now: Instant,
    recorder: Recorder,
    is_ring: bool,
    media: Media,
    sources: Vec<Source>,
    promises: Promises,
    /// The further acts with a ring, and their times; the last one first.
    acts: Vec<(Instant, Act)>,
    /// How often something was pinned.
    pinned: u64,
    triggering: Triggering,
    acknowledged: u64,
    ended: Option<Certificate>,
    failures: Vec<String>,
    events: u64,
}

/// Runs the scenario `record` with `seed`: one medium, from its start to its end.
pub fn run(seed: u64) -> Outcome {
    run_shape(seed, Shape::Plain)
}

/// Runs the scenario `record-ring` with `seed`: one medium, whose oldest is overwritten.
pub fn run_ring(seed: u64) -> Outcome {
    run_shape(seed, Shape::Ring)
}

/// Runs the scenario `record-striped` with `seed`: several media, as a ring or not.
pub fn run_striped(seed: u64) -> Outcome {
    run_shape(seed, Shape::Striped)
}

/// Runs the scenario `record-pretrigger` with `seed`: one medium, to which nothing goes before the
/// trigger.
pub fn run_triggered(seed: u64) -> Outcome {
    run_shape(seed, Shape::Triggered)
}

fn run_shape(seed: u64, shape: Shape) -> Outcome {
    let rng = Rng::from_seed(seed);
    let Draw { members, config, plan, acts } = draw(&rng, shape);
    let vices: Vec<_> = members.iter().map(|member| member.1).collect();
    let sources = sources(config.streams.len(), false, &rng);
    let mut run = Run::new(config.clone(), members, sources, &rng);
    run.acts = acts;
    let is_cut = run.go(&plan);
    let mut troubles = run.troubles(&vices, is_cut);
    let (events, now, counts) = (run.events, run.now, run.media.counts());
    let mut digest = sim::Digest::default();
    let (failures, abandoned, is_cut_again) = run.judge(&plan, is_cut, &config, &rng, &mut digest);
    troubles.extend(is_cut_again.then_some(Trouble::CutRecovery));
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

/// Records from a source that waits to a medium without vices, until the end.
fn record_well(medium: Vec<u8>, config: Config, rng: &Rng) -> Run {
    let bytes = (medium.len() as u64 / 2).max(1);
    let source = Source::patient(bytes, 100_000_000, Instant::ZERO, rng);
    let mut run = Run::new(config, vec![(medium, Vices::default())], vec![source], rng);
    let never = Instant::ZERO + DRAIN;
    run.go(&Plan {
        stop: never,
        heal: Instant::ZERO,
        cut: None,
        set_back: None,
        trigger: None,
        keep: Nanos::ZERO,
    });
    run
}

fn troubles(vices: &[Vices], slowdowns: Slowdowns) -> Vec<Trouble> {
    let has = |what: fn(&Vices) -> u64| vices.iter().any(|vices| what(vices) > 0);
    let all = [
        (has(|vices| vices.fails), Trouble::MediaErrors),
        (has(|vices| vices.fails_to_sync), Trouble::FailedSync),
        (has(|vices| vices.stalls), Trouble::Stall),
        (has(|vices| vices.tears), Trouble::TornWrites),
        (has(|vices| vices.loses), Trouble::LostWrites),
        (has(|vices| vices.misdirects), Trouble::MisdirectedWrites),
        (has(|vices| vices.rots), Trouble::RottenBits),
        (slowdowns.pauses > 0, Trouble::SlowMedia),
        (slowdowns.throttled > 0, Trouble::Throttling),
        (slowdowns.reclaimed > 0, Trouble::Reclaiming),
    ];
    all.into_iter().filter_map(|(is_there, trouble)| is_there.then_some(trouble)).collect()
}

impl Run {
    fn new(config: Config, members: Vec<(Vec<u8>, Vices)>, sources: Vec<Source>, rng: &Rng) -> Self {
        let media = Media::new(members, (config.recording, config.chunk), rng);
        Self {
            now: Instant::ZERO,
            is_ring: config.ring.is_some(),
            recorder: Recorder::new(config, Time { nanos: EPOCH, source: TimeSource::Host }),
            media,
            sources,
            promises: Promises::default(),
            acts: Vec::new(),
            pinned: 0,
            triggering: Triggering::default(),
            acknowledged: 0,
            ended: None,
            failures: Vec::new(),
            events: 0,
        }
    }

    /// The troubles of the run.
    fn troubles(&self, vices: &[Vices], is_cut: bool) -> Vec<Trouble> {
        let is_fast = |source: &Source| !source.is_network() && !source.lost.is_empty();
        let is_full = self.ended.as_ref().is_some_and(|certified| certified.reason == Reason::Full);
        let more = [
            (self.sources.iter().any(Source::is_network), Trouble::LossyNetwork),
            (self.sources.iter().any(Source::has_dropped), Trouble::FullSocket),
            (self.sources.iter().any(is_fast), Trouble::FastSource),
            (self.sources.iter().any(Source::is_endless), Trouble::EndlessSource),
            (is_cut, Trouble::PowerCut),
            (is_cut && !self.recorder.is_recording(), Trouble::LateCut),
            (is_full, Trouble::FullMedium),
            (self.recorder.progress().overwritten > 0, Trouble::Overwritten),
            (self.pinned > 0, Trouble::Pinned),
            (self.recorder.triggered().is_some(), Trouble::Triggered),
        ];
        let mut troubles = troubles(vices, self.media.slowdowns());
        troubles.extend(more.into_iter().filter_map(|(is_there, trouble)| is_there.then_some(trouble)));
        troubles.sort();
        troubles
    }

    /// Runs until the recording has ended, or to the power cut. Returns whether the power failed.
    fn go(&mut self, plan: &Plan) -> bool {
        let mut is_stopped = false;
        loop {
            if self.now >= plan.heal {
                self.media.heal();
            }
            if !is_stopped && (self.now >= plan.stop || self.sources.iter().all(Source::is_over)) {
                let is_over = self.sources.iter().all(Source::is_over);
                let (now, time) = (self.now, plan.time(self.now));
                for (stream, source) in self.sources.iter_mut().enumerate() {
                    source.finish(&mut Lane { taker: &mut self.recorder, stream, now }, time);
                }
                self.recorder.finish(if is_over { Reason::SourceEnded } else { Reason::Asked });
                is_stopped = true;
            }
            if !is_stopped {
                self.take(plan);
                self.act();
                self.trigger(plan);
            }
            self.recorder.handle_timeout(self.now);
            self.serve();
            if self.ended.is_some() {
                return false;
            }
            let coming = self.sources.iter().filter_map(Source::poll_timeout).filter(|_| !is_stopped);
            let planned = [plan.stop, plan.heal].into_iter().chain(plan.cut).chain(plan.trigger);
            let planned = planned.filter(|at| *at > self.now);
            let acts = self.acts.last().map(|act| act.0).filter(|_| !is_stopped);
            let called = coming.chain(planned).chain(acts);
            let next = called.chain(self.media.next()).chain(self.recorder.poll_timeout());
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

    /// Takes the data of the sources.
    fn take(&mut self, plan: &Plan) {
        let time = plan.time(self.now);
        for (stream, source) in self.sources.iter_mut().enumerate() {
            source.run(&mut Lane { taker: &mut self.recorder, stream, now: self.now }, time);
        }
        if self.recorder.is_armed() {
            self.triggering.on_taken(self.now, &self.sources);
        }
    }

    /// Triggers, if it is time.
    fn trigger(&mut self, plan: &Plan) {
        if self.recorder.is_armed() && plan.trigger.is_some_and(|at| self.now >= at) {
            let is_short = self.recorder.kept(self.now).is_none_or(|kept| kept.is_short);
            self.recorder.trigger(self.now, plan.time(self.now));
            let (young, sources) = ((self.now, plan.keep), &self.sources);
            let wrong = self.triggering.on_triggered(young, is_short, &self.recorder, sources);
            self.failures.extend(wrong);
        }
    }

    /// Carries out due acts with a ring.
    fn act(&mut self) {
        while let Some((_, act)) = self.acts.pop_if(|(at, _)| *at <= self.now) {
            match act {
                // One that has ended by itself refuses everything.
                Act::Unpin => assert_eq!(
                    self.recorder.is_recording(),
                    self.recorder.unpin(self.now).is_ok(),
                    "a ring lets go while it records"
                ),
                Act::Pin(range) => {
                    let range = match range {
                        PinRange::Bytes { stream, from, bytes } => {
                            let came = self.sources[stream as usize].came;
                            PinRange::Bytes { stream, from: came * from / 1_000_000, bytes }
                        }
                        PinRange::Last(_) => range,
                    };
                    self.pinned += u64::from(self.recorder.pin(self.now, range).is_ok());
                }
            }
        }
    }

    /// Carries out the recorder's requests, and passes it their ends.
    fn serve(&mut self) {
        loop {
            while let Some(output) = self.recorder.poll_output() {
                match output {
                    Output::Write { name, offset, data } => {
                        let before = self.promises.on_write(name, offset, &data);
                        let holding = self.recorder.holding();
                        let is_held = |taken: &promises::Taken| {
                            self.is_ring && holding.holds(taken.stream, taken.offset, taken.end)
                        };
                        if let Some(taken) = before.filter(is_held) {
                            self.failures.push(format!("{taken:?} is held and overwritten: {holding:?}"));
                        }
                        self.media.write(self.now, name, offset, data);
                    }
                    Output::Sync => {
                        self.promises.on_sync();
                        self.media.sync(self.now);
                    }
                    // The recorder computes them.
                    Output::Digest { .. } => {}
                    Output::Ended(certificate) => self.ended = Some(certificate),
                }
            }
            self.check();
            let Some(input) = self.media.poll(self.now) else { return };
            self.promises.on_ended(input);
            self.recorder.handle_input(self.now, input);
        }
    }

    /// Checks the recorder's running account.
    fn check(&mut self) {
        self.triggering.on_disarmed(&self.recorder, &mut self.sources);
        let progress = self.recorder.progress();
        let came: u64 = self.sources.iter().map(|source| source.came).sum();
        let kept = self.promises.durable_bytes(self.is_ring);
        let rules = [
            (
                progress.bytes_in + progress.passed == came + self.triggering.passed(),
                "bytes in are the received bytes",
            ),
            (progress.bytes_in == progress.stored + progress.lost + progress.fill, "the account adds up"),
            (progress.acknowledged >= self.acknowledged, "acknowledged bytes stay so"),
            (progress.acknowledged <= kept, "acknowledged bytes are durable"),
            (progress.overwritten <= progress.stored + progress.lost, "overwritten bytes were there"),
        ];
        self.acknowledged = progress.acknowledged;
        for (_, rule) in rules.into_iter().filter(|(is_so, _)| !is_so) {
            let now = self.now;
            self.failures.push(format!("at {now:?}: {rule}: {progress:?}, {came} came, {kept} are durable"));
        }
        self.failures.truncate(8);
    }

    /// Checks the contents of the media in the end. Returns the faults, the number of writes that
    /// were under way when the power failed, and whether it failed again while the recording was
    /// made whole.
    fn judge(
        self,
        plan: &Plan,
        is_cut: bool,
        config: &Config,
        rng: &Rng,
        digest: &mut sim::Digest,
    ) -> (Vec<String>, u64, bool) {
        let Self { recorder, media, sources, promises, mut failures, ended, now, .. } = self;
        failures.extend(sources.iter().flat_map(Source::wrong));
        let acknowledged = recorder.progress().acknowledged;
        // A full medium may have no room for all gap records.
        let was_well = now >= plan.heal && !media.was_spoiled();
        let lied = media.lied();
        let has_failed = media.counts().1 > 0;
        let slots = config.slots.unwrap_or(media.bytes() / u64::from(config.chunk));
        let Contents { joined, under_way } = if is_cut { media.cut() } else { media.contents() };
        let Some(medium) = joined else {
            if acknowledged > 0 && !lied {
                failures.push(format!("{acknowledged} bytes are on a set that no label joins"));
            }
            return (failures, under_way, false);
        };
        digest.bytes(&medium);
        let mut reading = Reading::new(medium, config.chunk);
        if reading.survey.recording == Some(EARLIER) {
            // The new recording's start is not on the medium.
            if acknowledged > 0 {
                failures.push(format!("{acknowledged} bytes are behind an earlier recording"));
            }
            return (failures, under_way, false);
        }
        let mut wrong = |what: &str, found: Vec<String>| {
            failures.extend(found.into_iter().map(|found| format!("{what}: {found}")));
        };
        let holding = recorder.holding();
        wrong("found", reading.untruths(&sources));
        wrong("found", reading.overstates(&holding));
        if reading.is_proved() {
            wrong("proved", reading.false_claims(&sources, true));
        }
        if let Some(certified) = &ended {
            // Nor has one whose slots the recorder counts, and which it therefore never overfills.
            let has_room = config.ring.is_some() || certified.slots < slots;
            let is_well = was_well && has_room && plan.heal < plan.stop;
            wrong("end", wrong_at_end(certified, &recorder, &reading, lied, is_well));
        }
        let kept = if lied { Vec::new() } else { promises.kept(&holding) };
        wrong("lost", reading.missing(&kept));
        // A medium that does not take the trigger's chunk costs that alone.
        let must_tell = !lied && !has_failed && recorder.is_certified();
        wrong("trigger", triggering::wrong(reading.survey.trigger, recorder.triggered(), must_tell));
        let is_cut_again = mending::is_cut(&reading, rng);
        if is_cut_again {
            wrong("recovery cut", mending::cut(&mut reading, rng));
            wrong("recovery cut", reading.untruths(&sources));
            wrong("recovery cut", reading.missing(&kept));
        }
        wrong("recovered", recover(&mut reading, &sources));
        wrong("recovered", reading.missing(&kept));
        let mut medium = reading.into_medium();
        medium.truncate(medium.len() / 4096 * 4096);
        wrong("again", record_again(medium, config.chunk, rng));
        failures.truncate(8);
        (failures, under_way, is_cut_again)
    }
}

/// The faults of the end of a recording that was not cut off. A medium that is well takes the
/// certificate.
fn wrong_at_end(
    certified: &Certificate,
    recorder: &Recorder,
    reading: &Reading,
    lied: bool,
    is_well: bool,
) -> Vec<String> {
    let (is_certified, holding) = (recorder.is_certified(), recorder.holding());
    let is_calm = matches!(certified.reason, Reason::SourceEnded | Reason::Asked);
    let mut wrong = Vec::new();
    if !lied
        && is_certified
        && (!reading.is_proved() || reading.survey.certificate.as_ref() != Some(certified))
    {
        wrong.push(format!("{certified:?} does not prove itself: {}", reading.reason()));
    }
    if !lied && is_certified && !reading.accounts_for(&holding) {
        wrong.push(format!("held is {holding:?}, reported {:?}", reading.survey.ring));
    }
    if is_calm && is_well && !is_certified {
        wrong.push(format!("the medium is well and {certified:?} is not certified"));
    }
    let adds_up = |of: &&StreamTotals| of.bytes_in == of.stored + of.lost + of.overwritten;
    let odd = certified.streams.iter().filter(|of| !adds_up(of));
    wrong.extend(odd.map(|of| format!("{of:?} does not add up")));
    wrong
}

/// Makes a recording whole that does not prove itself. Returns the faults then.
fn recover(reading: &mut Reading, sources: &[Source]) -> Vec<String> {
    if reading.is_proved() || reading.survey.recording.is_none() {
        return Vec::new();
    }
    let before = reading.survey.ring.clone().map(|ring| ring.holding);
    reading.mend();
    let mut wrong = reading.untruths(sources);
    match reading.is_proved() {
        true => wrong.extend(reading.false_claims(sources, false)),
        false => wrong.push(format!("it does not prove itself: {}", reading.reason())),
    }
    if before.as_ref().is_some_and(|before| !reading.accounts_for(before)) {
        wrong.push(format!("held was {before:?}, reported {:?}", reading.survey.ring));
    }
    wrong
}

/// Records once more to the medium, which is well now: the recording ends certified.
fn record_again(medium: Vec<u8>, chunk: u32, rng: &Rng) -> Vec<String> {
    let mut config = Config::new([4; 16], vec!["again".into()]);
    (config.chunk, config.crc32c) = (chunk, crc32c);
    let run = record_well(medium, config, &rng.fork("again"));
    let mut failures = run.failures;
    let is_certified = run.recorder.is_certified();
    let reading = Reading::new(run.media.contents().joined.expect("one medium"), chunk);
    if !is_certified || !reading.is_proved() {
        failures.push(format!("not certified: {}", reading.reason()));
    } else {
        failures.extend(reading.false_claims(&run.sources, true));
    }
    failures
}
