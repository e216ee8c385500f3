//! The rules for a recording that waits for a trigger: everything young is kept.

use engine::{Instant, Nanos};
use record::Recorder;
use record::format::Trigger;

use super::source::Source;

/// The data that came while a recording waited for a trigger.
#[derive(Debug, Default)]
pub(super) struct Triggering {
    /// How many bytes of each stream had come, at each moment.
    moments: Vec<(Instant, Vec<u64>)>,
    /// How many bytes of the streams came before the recording begins, once it does.
    passed: Option<u64>,
}

/// The faults of the trigger that the medium reports. `must_report`: it has to report the one that
/// there was.
pub(super) fn wrong(reported: Option<Trigger>, was: Option<Trigger>, must_report: bool) -> Vec<String> {
    let is_so = reported == was || reported.is_none() && !must_report;
    if is_so { Vec::new() } else { vec![format!("{reported:?} is reported, and there was {was:?}")] }
}

impl Triggering {
    /// The sources were asked.
    pub(super) fn on_taken(&mut self, now: Instant, sources: &[Source]) {
        self.moments.push((now, sources.iter().map(|source| source.came).collect()));
    }

    /// There was a trigger at `now`, and data that came within `keep` are kept. Returns the faults.
    /// A buffer that is short need not have kept everything.
    pub(super) fn on_triggered(
        &self,
        (now, keep): (Instant, Nanos),
        is_short: bool,
        recorder: &Recorder,
        sources: &[Source],
    ) -> Vec<String> {
        if is_short {
            return Vec::new();
        }
        let old = self.moments.iter().rfind(|(at, _)| *at + keep < now);
        let first_young = |(stream, source): (usize, &Source)| {
            let first = old.map_or(0, |(_, came)| came[stream]);
            // Bytes lost before the first kept byte are no gap.
            source.lost.iter().fold(first, |at, (from, end)| if *from <= at { at.max(*end) } else { at })
        };
        let young = sources.iter().enumerate().map(first_young).enumerate();
        let wrong = young.filter(|(stream, first)| recorder.passed(*stream) > *first);
        let reported = wrong.map(|(stream, first)| {
            let passed = recorder.passed(stream);
            format!("stream {stream} begins at byte {passed}, and {first} came within {keep} before {now:?}")
        });
        reported.collect()
    }

    /// Lets the sources count from the first byte that is recorded, once the recording waits for no
    /// trigger any more.
    pub(super) fn on_disarmed(&mut self, recorder: &Recorder, sources: &mut [Source]) {
        if recorder.is_armed() || self.passed.is_some() {
            return;
        }
        let mut all = 0;
        for (stream, source) in sources.iter_mut().enumerate() {
            source.begin_at(recorder.passed(stream));
            all += recorder.passed(stream);
        }
        self.passed = Some(all);
    }

    /// Bytes that came before the recording begins, and that no source counts any more.
    pub(super) fn passed(&self) -> u64 {
        self.passed.unwrap_or(0)
    }
}
