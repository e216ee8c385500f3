//! A raw recording on a bad day: no container, and yet every byte is where its address says, or
//! declared lost by the report.

use engine::{Engine, Instant, Rng};
use record::format::{ALIGNMENT, CHUNK_MIN, Certificate, Reason};
use record::packing::Lane;
use record::{Algorithm, Input, Output, RawConfig, RawRecorder};

use super::disk::{Disk, Vices};
use super::draw::{MEDIUM_MIN, Plan, sources, vices};
use super::source::Source;
use super::{DRAIN, troubles};
use crate::campaign::Outcome;
use crate::chaos::Trouble;
use crate::workload::Counts;

/// The byte that fills the medium before the recording. No stream has such a byte: theirs are odd.
const BEFORE: u8 = 0xee;

/// A range of addresses that a write has filled: where it begins and ends.
type Range = (u64, u64);

/// The data that the medium has taken, and the part that survives a power cut.
#[derive(Debug, Default)]
struct Promises {
    under_way: Vec<(u64, Range)>,
    taken: Vec<Range>,
    /// How many of these the sync under way makes durable.
    syncing: usize,
    kept: usize,
}

impl Promises {
    fn on_ended(&mut self, input: Input) {
        match input {
            Input::Written { name, result } => {
                let at = self.under_way.iter().position(|(its, _)| *its == name).expect("it was begun");
                let (_, range) = self.under_way.swap_remove(at);
                self.taken.extend(result.is_ok().then_some(range));
            }
            Input::Synced(Ok(())) => self.kept = self.syncing,
            // All data that were not durable may be gone.
            Input::Synced(Err(_)) => self.taken.truncate(self.kept),
            Input::Digested { .. } => {}
        }
    }
}

/// A raw recorder, its medium and its source.
#[derive(Debug)]
struct Run {
    now: Instant,
    start: u64,
    recorder: RawRecorder,
    disk: Disk,
    source: Source,
    promises: Promises,
    acknowledged: u64,
    ended: Option<Certificate>,
    failures: Vec<String>,
    events: u64,
}

/// Runs the scenario `record-raw` with `seed`: the bytes of one source alone, between addresses of
/// a medium.
pub fn run_raw(seed: u64) -> Outcome {
    let rng = Rng::from_seed(seed);
    let mut own = rng.fork("raw");
    let (vices, plan) = (vices(&mut own), Plan::new(&mut own));
    let pages = MEDIUM_MIN / 4096 + own.below(1_024);
    let page = u64::from(ALIGNMENT);
    let config = config(pages, &mut own);
    let medium = vec![BEFORE; usize::try_from(pages * page).expect("a few megabytes")];
    let source = sources(1, true, &rng).pop().expect("one source");
    let start = config.start;
    let mut run = Run {
        now: Instant::ZERO,
        start,
        recorder: RawRecorder::new(config),
        disk: Disk::new(medium, vices, &rng),
        source,
        promises: Promises::default(),
        acknowledged: 0,
        ended: None,
        failures: Vec::new(),
        events: 0,
    };
    let is_cut = run.go(&plan);
    let (troubles, events, elapsed) = (run.troubles(vices, is_cut), run.events, run.now - Instant::ZERO);
    let (done, failed) = run.disk.counts;
    let mut digest = sim::Digest::default();
    let (failures, abandoned) = run.judge(is_cut, &mut digest);
    let counts = Counts { done, failed, abandoned };
    let (digest, contents) = (digest.value(), digest.value());
    Outcome { seed, digest, contents, events, elapsed, troubles, counts, failures, ..Outcome::default() }
}

/// The range of a medium of this many pages that is recorded, and the options. Now and then the
/// addresses reach beyond its end, which the recorder then has to find out.
fn config(pages: u64, rng: &mut Rng) -> RawConfig {
    let page = u64::from(ALIGNMENT);
    let chunk = if rng.one_in(4) { CHUNK_MIN * 2 } else { CHUNK_MIN };
    let first = rng.below(pages / 2);
    let end = match rng.below(3) {
        0 => None,
        1 => Some(pages * page),
        _ => Some((first + 1 + rng.below(pages)) * page),
    };
    RawConfig {
        buffer: 32 + usize::try_from(rng.below(32)).expect("a few chunks"),
        end,
        chunks: rng.one_in(4).then(|| 1 + rng.below(64)),
        flush: engine::Nanos::from_millis(2 + rng.below(60)),
        ..RawConfig::new(chunk, first * page)
    }
}

impl Run {
    fn troubles(&self, vices: Vices, is_cut: bool) -> Vec<Trouble> {
        let is_full = self.ended.as_ref().is_some_and(|certified| certified.reason == Reason::Full);
        let more = [
            (self.source.is_network(), Trouble::LossyNetwork),
            (self.source.has_dropped(), Trouble::FullSocket),
            (!self.source.is_network() && !self.source.lost.is_empty(), Trouble::FastSource),
            (self.source.is_endless(), Trouble::EndlessSource),
            (is_cut, Trouble::PowerCut),
            (is_cut && !self.recorder.is_recording(), Trouble::LateCut),
            (is_full, Trouble::FullMedium),
        ];
        let mut troubles = troubles(&[vices], self.disk.slowdowns());
        troubles.extend(more.into_iter().filter_map(|(is_there, trouble)| is_there.then_some(trouble)));
        troubles.sort();
        troubles
    }

    /// Runs until the recording has ended, or to the power cut. Returns whether the power failed.
    fn go(&mut self, plan: &Plan) -> bool {
        loop {
            if self.now >= plan.heal {
                self.disk.vices = Vices::default();
            }
            let (now, time) = (self.now, plan.time(self.now));
            if self.recorder.is_recording() && (self.now >= plan.stop || self.source.is_over()) {
                let is_over = self.source.is_over();
                self.source.finish(&mut Lane { taker: &mut self.recorder, stream: 0, now }, time);
                self.recorder.finish(if is_over { Reason::SourceEnded } else { Reason::Asked });
            }
            if self.recorder.is_recording() {
                self.source.run(&mut Lane { taker: &mut self.recorder, stream: 0, now }, time);
            }
            self.recorder.handle_timeout(now);
            self.serve();
            if self.ended.is_some() {
                return false;
            }
            let coming = self.source.poll_timeout().filter(|_| self.recorder.is_recording());
            let planned = [plan.stop, plan.heal].into_iter().chain(plan.cut).filter(|at| *at > now);
            let next = planned.chain(coming).chain(self.disk.next()).chain(self.recorder.poll_timeout());
            let next = next.min().map(|at| at.max(now));
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

    /// Carries out the recorder's requests, and passes it their ends.
    fn serve(&mut self) {
        loop {
            while let Some(output) = self.recorder.poll_output() {
                match output {
                    Output::Write { name, offset, data } => {
                        self.promises.under_way.push((name, (offset, offset + data.len() as u64)));
                        self.disk.write(self.now, name, offset, data);
                    }
                    Output::Sync => {
                        self.promises.syncing = self.promises.taken.len();
                        self.disk.sync(self.now);
                    }
                    Output::Digest { .. } => unreachable!("it digests itself"),
                    Output::Ended(account) => self.ended = Some(account),
                }
            }
            self.check();
            let Some(input) = self.disk.poll(self.now) else { return };
            self.promises.on_ended(input);
            self.recorder.handle_input(self.now, input);
        }
    }

    /// Checks the running account.
    fn check(&mut self) {
        let (progress, came) = (self.recorder.progress(), self.source.came);
        let kept: u64 =
            self.promises.taken[..self.promises.kept].iter().map(|range| self.bytes(*range)).sum();
        let rules = [
            (progress.bytes_in == came, "bytes in are the received bytes"),
            (progress.bytes_in == progress.stored + progress.lost + progress.fill, "the account adds up"),
            (progress.acknowledged >= self.acknowledged, "acknowledged bytes stay so"),
            (progress.acknowledged <= kept, "acknowledged bytes are durable"),
        ];
        self.acknowledged = progress.acknowledged;
        for (_, rule) in rules.into_iter().filter(|(is_so, _)| !is_so) {
            let now = self.now;
            self.failures.push(format!("at {now:?}: {rule}: {progress:?}, {came} came, {kept} are durable"));
        }
        self.failures.truncate(8);
    }

    /// Places of the stream between these addresses.
    fn places(&self, (from, end): Range) -> Range {
        let came = self.source.came;
        ((from - self.start).min(came), (end - self.start).min(came))
    }

    /// How many bytes of the source lie between these addresses.
    fn bytes(&self, range: Range) -> u64 {
        let (from, end) = self.places(range);
        let lost = self.source.lost.iter().map(|lost| lost.1.min(end).saturating_sub(lost.0.max(from)));
        end - from - lost.sum::<u64>()
    }

    /// Checks the contents of the medium in the end. Returns the faults, and the number of writes
    /// that were under way when the power failed.
    fn judge(mut self, is_cut: bool, digest: &mut sim::Digest) -> (Vec<String>, u64) {
        let disk =
            std::mem::replace(&mut self.disk, Disk::new(Vec::new(), Vices::default(), &Rng::from_seed(0)));
        let lied = disk.lied();
        // Data reported as durable survive a power cut right behind the end.
        let (medium, under_way) = match is_cut || self.recorder.is_durable() {
            true => disk.cut(),
            false => (disk.contents(), 0),
        };
        digest.bytes(&medium);
        let mut failures = std::mem::take(&mut self.failures);
        failures.extend(self.source.wrong());
        if let Some(certified) = &self.ended {
            failures.extend(self.false_claims(certified));
        }
        if !lied {
            let kept = self.promises.taken[..self.promises.kept].to_vec();
            failures.extend(kept.iter().filter_map(|range| self.difference(&medium, *range, "durable")));
            if self.ended.is_some() && self.recorder.is_durable() {
                let stored = self.stored();
                failures.extend(stored.iter().filter_map(|range| self.difference(&medium, *range, "stored")));
            }
            failures.extend(self.strays(&medium));
        }
        failures.truncate(8);
        (failures, under_way)
    }

    /// The false claims in the report.
    fn false_claims(&self, certified: &Certificate) -> Vec<String> {
        let mut found = Vec::new();
        // Lost packets whose bytes are not known take no place.
        let known = self.recorder.gaps().iter().filter(|gap| gap.bytes > 0);
        let mut gaps: Vec<_> = known.map(|gap| (gap.from, gap.end())).collect();
        gaps.sort_unstable();
        let lost: u64 = gaps.iter().map(|(from, end)| end - from).sum();
        let [stream] = certified.streams.as_slice() else {
            return vec![format!("{certified:?} is not of one stream")];
        };
        let account = (stream.bytes_in, stream.stored + stream.lost, stream.lost);
        if account != (self.source.came, self.source.came, lost) {
            found.push(format!("{stream:?}, but {} came and {lost} are in gaps", self.source.came));
        }
        if gaps.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            found.push(format!("gaps overlap: {gaps:?}"));
        }
        let is_declared = |(from, end): &&Range| {
            let reach = |at: u64, gap: &Range| if gap.0 <= at { at.max(gap.1) } else { at };
            gaps.iter().fold(*from, reach) >= *end
        };
        found.extend(
            self.source
                .lost
                .iter()
                .find(|lost| !is_declared(lost))
                .map(|lost| format!("{lost:?} was lost: {gaps:?}")),
        );
        if stream.digest != self.source.digest(Algorithm::Sha256, stream.bytes_in, &gaps) {
            found.push("the digest is not that of the received bytes".to_owned());
        }
        found
    }

    /// The stored ranges by the report, as addresses.
    fn stored(&self) -> Vec<Range> {
        let mut gaps: Vec<_> = self.recorder.gaps().iter().map(|gap| (gap.from, gap.end())).collect();
        gaps.sort_unstable();
        let (mut stored, mut at) = (Vec::new(), 0);
        for (from, end) in gaps.into_iter().chain([(self.source.came, self.source.came)]) {
            if at < from {
                stored.push((self.start + at, self.start + from));
            }
            at = at.max(end);
        }
        stored
    }

    /// Where the medium has other bytes than came, between these addresses; lost bytes have none.
    fn difference(&self, medium: &[u8], range: Range, what: &str) -> Option<String> {
        let (mut at, end) = self.places(range);
        let lost = self.source.lost.iter().copied().chain([(end, end)]);
        for (from, behind) in lost {
            let until = from.clamp(at, end);
            let place = |at: u64| usize::try_from(self.start + at).expect("a place in memory");
            if until > at && !self.source.is(at, &medium[place(at)..place(until)]) {
                return Some(format!(
                    "the bytes that are {what} from place {at} to {until} differ from the received ones"
                ));
            }
            at = at.max(behind).min(end);
        }
        None
    }

    /// Bytes that were written where nothing was to be written: outside of the pages of the stream,
    /// or at the place of a lost byte anything but zero.
    fn strays(&self, medium: &[u8]) -> Vec<String> {
        let place = |at: u64| usize::try_from(at).expect("a place in memory").min(medium.len());
        let page = u64::from(ALIGNMENT);
        let (start, end) = (place(self.start), place(self.start + self.source.came.next_multiple_of(page)));
        let is_before = |byte: &u8| *byte == BEFORE;
        let mut found = Vec::new();
        if !medium[..start].iter().all(is_before) || !medium[end..].iter().all(is_before) {
            found.push(format!("something is outside of {start} to {end}"));
        }
        let lost = self.source.lost.iter();
        let is_wrong = |(from, behind): &&Range| {
            let bytes = &medium[place(self.start + from)..place(self.start + behind)];
            !bytes.iter().all(|byte| *byte == 0 || *byte == BEFORE)
        };
        found.extend(
            lost.filter(is_wrong)
                .map(|lost| format!("something is at the place of {lost:?}, which was lost")),
        );
        found
    }
}
