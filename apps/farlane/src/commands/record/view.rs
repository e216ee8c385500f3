//! The display of a recording that is under way, for people and programs.

use live::sys::logging;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use engine::Nanos;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use live::drivers::record::{Status, Writes};
use schemars::JsonSchema;
use serde::Serialize;

use super::trigger;
use crate::commands::report_json;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// The length of the bar that shows how full the buffer is.
const BAR: usize = 20;

/// The progress of a recorder, once a second.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Event {
    /// `progress`.
    event: &'static str,
    state: &'static str,
    bytes_in: u64,
    bytes_stored: u64,
    /// Bytes that the medium has made durable.
    bytes_acknowledged: u64,
    /// Bytes in declared gaps.
    bytes_lost: u64,
    /// Bytes that a ring does not hold any more.
    bytes_overwritten: u64,
    /// Bytes in the buffer.
    fill_bytes: u64,
    /// The most bytes that the buffer held.
    high_water_bytes: u64,
    buffer_bytes: u64,
    /// The time before a trigger that is kept; none unless the recorder waits for one.
    kept_ns: Option<u64>,
    bytes_per_second: f64,
    gaps: u64,
    /// How often senders started over.
    restarts: u64,
    /// The mean time of a write since the last event.
    write_latency_ns: u64,
    slowest_write_ns: u64,
    /// Pauses of the medium.
    pauses: u64,
    longest_pause_ns: u64,
}

enum Shown {
    /// An event on standard output each time.
    Events,
    /// One place on the terminal, drawn again each time.
    Terminal(ProgressBar),
    /// A line on standard error each second.
    Lines,
}

/// Shows how far a recording is.
pub(super) struct View {
    shown: Shown,
    /// The time when bytes were counted last, and the counts of then.
    last: (Instant, u64, Writes),
    is_triggered: bool,
}

impl View {
    pub(super) fn new(json: bool) -> Self {
        let shown = match json {
            true => Shown::Events,
            false if std::io::stderr().is_terminal() => {
                let style = ProgressStyle::with_template("{spinner} {msg}");
                let style = style.unwrap_or(ProgressStyle::default_spinner());
                Shown::Terminal(ProgressBar::new_spinner().with_style(style))
            }
            false => Shown::Lines,
        };
        Self { shown, last: (Instant::now(), 0, Writes::default()), is_triggered: false }
    }

    pub(super) fn show(&mut self, status: &Status) {
        self.show_trigger(status);
        let now = Instant::now();
        let (then, bytes, writes) = self.last;
        let passed = now - then;
        if matches!(self.shown, Shown::Lines) && passed < LINE_EVERY {
            return;
        }
        let all = status.progress.bytes_in + status.progress.passed;
        let came = all.saturating_sub(bytes);
        let rate = came as f64 / passed.as_secs_f64().max(1e-3);
        let ended = status.writes.ended - writes.ended;
        let latency = Nanos::new((status.writes.time.get() - writes.time.get()) / ended.max(1));
        self.last = (now, all, status.writes);
        match &self.shown {
            // A report that can't be made is no reason to stop recording.
            Shown::Events => drop(report_json(&event(status, rate, latency))),
            Shown::Terminal(bar) => {
                bar.set_message(text(status, rate, latency, "\n  "));
                bar.tick();
            }
            Shown::Lines => logging::show(text(status, rate, latency, "; ") + "\n"),
        }
    }

    /// Reports the trigger, once.
    fn show_trigger(&mut self, status: &Status) {
        let Some(triggered) = status.triggered.filter(|_| !self.is_triggered) else { return };
        self.is_triggered = true;
        match &self.shown {
            Shown::Events => drop(report_json(&trigger::event(triggered))),
            Shown::Terminal(bar) => bar.println(trigger::text(triggered)),
            Shown::Lines => logging::show(trigger::text(triggered) + "\n"),
        }
    }

    /// Clears the place on the terminal, for the last message.
    pub(super) fn end(&self) {
        if let Shown::Terminal(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn event(status: &Status, rate: f64, latency: Nanos) -> Event {
    let (progress, writes) = (&status.progress, &status.writes);
    Event {
        event: "progress",
        state: status.state.word(),
        bytes_in: progress.bytes_in,
        bytes_stored: progress.stored,
        bytes_acknowledged: progress.acknowledged,
        bytes_lost: progress.lost,
        bytes_overwritten: progress.overwritten,
        fill_bytes: progress.fill,
        high_water_bytes: progress.high_water,
        buffer_bytes: status.buffer,
        kept_ns: status.kept.map(|kept| kept.time.get()),
        bytes_per_second: rate.round(),
        gaps: status.gaps,
        restarts: progress.restarts,
        write_latency_ns: latency.get(),
        slowest_write_ns: writes.slowest.get(),
        pauses: writes.pauses,
        longest_pause_ns: writes.longest_pause.get(),
    }
}

fn text(status: &Status, rate: f64, latency: Nanos, line: &str) -> String {
    let (progress, writes) = (&status.progress, &status.writes);
    let share = |bytes: u64| bytes as f64 / status.buffer.max(1) as f64;
    let parts = progress.fill.saturating_mul(BAR as u64) / status.buffer.max(1);
    let full = usize::try_from(parts).unwrap_or(BAR).min(BAR);
    let bar = "#".repeat(full) + &".".repeat(BAR - full);
    if let Some(kept) = &status.kept {
        let kept = trigger::kept_text(status, kept);
        return format!(
            "{kept}{line}{:.1} MB/s, buffer {:.0} % full",
            rate / 1e6,
            share(progress.fill) * 1e2
        );
    }
    let mut text = format!("{} recorded, {:.1} MB/s{line}", HumanBytes(progress.stored), rate / 1e6);
    text += &format!(
        "buffer [{bar}] {:.0} %, at most {:.0} %",
        share(progress.fill) * 1e2,
        share(progress.high_water) * 1e2
    );
    text += &format!("{line}a write takes {latency}, at most {}; ", writes.slowest);
    text += &format!("{} pauses of the medium, at most {}{line}", writes.pauses, writes.longest_pause);
    text + &match (status.gaps, progress.lost) {
        (0, _) => "nothing lost".to_owned(),
        (gaps, lost) => format!("LOST: {lost} B in {gaps} gaps"),
    }
}

#[cfg(test)]
mod tests {
    use record::Progress;
    use record::registers::Direction;

    use super::*;

    fn status() -> Status {
        let progress =
            Progress { bytes_in: 9_000, stored: 8_000, fill: 512, high_water: 1_000, ..Progress::default() };
        let writes = Writes { ended: 4, time: Nanos::from_millis(8), pauses: 2, ..Writes::default() };
        Status { progress, writes, buffer: 1_024, ..Status::idle(Direction::Write) }
    }

    #[test]
    fn the_text_has_rate_fill_latency_pauses_and_gaps() {
        let mut status = status();
        let shown = text(&status, 12_340_000.0, Nanos::from_millis(2), "; ");
        for words in ["12.3 MB/s", "[##########..........] 50 %, at most 98 %", "2 pauses", "nothing lost"] {
            assert!(shown.contains(words), "{shown}");
        }
        (status.gaps, status.progress.lost, status.progress.fill) = (3, 77, 9_999);
        let shown = text(&status, 0.0, Nanos::ZERO, "; ");
        assert!(shown.contains("LOST: 77 B in 3 gaps") && shown.contains(&"#".repeat(BAR)), "{shown}");
    }

    #[test]
    fn the_event_has_what_the_text_has() {
        let event = serde_json::to_value(event(&status(), 5.4, Nanos::from_millis(2))).unwrap();
        assert_eq!((&event["event"], &event["bytes_per_second"]), (&"progress".into(), &5.0.into()));
        assert_eq!((&event["write_latency_ns"], &event["pauses"]), (&2_000_000.into(), &2.into()));
    }
}
