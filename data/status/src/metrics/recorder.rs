//! Metrics of a recorder or a replayer.

use super::{Kind, Labels, Page, count, flag, seconds};
use crate::{Recorder, RecorderState};

/// Adds the metrics of a recorder or a replayer.
pub(super) fn recorder(page: &mut Page, of: &Recorder) {
    let none = Labels::new();
    let writes = &of.writes;
    page.add_counters(
        &none,
        [
            (
                "farlane_record_bytes_in",
                "Bytes received, lost ones included",
                of.bytes_in.saturating_add(of.bytes_passed),
            ),
            ("farlane_record_bytes_passed", "Bytes received before a trigger and not kept", of.bytes_passed),
            ("farlane_record_bytes_stored", "Bytes that the medium has taken", of.bytes_stored),
            ("farlane_record_bytes_acknowledged", "Bytes that survive a power cut", of.bytes_acknowledged),
            ("farlane_record_bytes_lost", "Bytes lost in declared gaps", of.bytes_lost),
            ("farlane_record_gaps", "Declared gaps", of.gaps),
            ("farlane_record_restarts", "How often a sender started over", of.restarts),
        ],
    );
    page.add_gauges(
        &none,
        [
            ("farlane_record_buffer_bytes", "Size of the buffer", count(of.buffer_bytes)),
            ("farlane_record_buffer_fill_bytes", "Bytes in the buffer", count(of.fill_bytes)),
            (
                "farlane_record_buffer_high_water_bytes",
                "The most bytes in the buffer so far",
                count(of.high_water_bytes),
            ),
        ],
    );
    let (counter, gauge) = (Kind::Counter, Kind::Gauge);
    page.add(
        &none,
        [
            (counter, "farlane_record_writes", "Writes that have ended", count(writes.ended)),
            (
                counter,
                "farlane_record_write_seconds",
                "Time that these took, all added",
                seconds(writes.time_ns),
            ),
            (
                gauge,
                "farlane_record_slowest_write_seconds",
                "Time that the slowest took",
                seconds(writes.slowest_ns),
            ),
            (counter, "farlane_record_pauses", "Pauses of the medium, 20 ms or longer", count(writes.pauses)),
            (
                counter,
                "farlane_record_pause_seconds",
                "Time of these pauses, all added",
                seconds(writes.paused_ns),
            ),
            (
                gauge,
                "farlane_record_longest_pause_seconds",
                "Time of the longest pause",
                seconds(writes.longest_pause_ns),
            ),
        ],
    );
    let running = flag(of.state == RecorderState::Running);
    page.add_gauges(&none, [("farlane_record_running", "1 while bytes are recorded", running)]);
}
