//! The figures of a recording for programs that watch many.

use live::drivers::record::{State, Status};

use crate::metrics::{Kind, Labels, Page, seconds};

/// Adds the figures of a recording.
pub(super) fn add(page: &mut Page, status: &Status) {
    let (progress, writes) = (&status.progress, &status.writes);
    let count = |value: u64| value as f64;
    let rows = [
        (
            Kind::Counter,
            "farlane_record_bytes_in",
            "Bytes that came, lost ones included",
            count(progress.bytes_in + progress.passed),
        ),
        (
            Kind::Counter,
            "farlane_record_bytes_passed",
            "Bytes that came before a trigger and were not kept",
            count(progress.passed),
        ),
        (
            Kind::Counter,
            "farlane_record_bytes_stored",
            "Bytes that the medium has taken",
            count(progress.stored),
        ),
        (
            Kind::Counter,
            "farlane_record_bytes_acknowledged",
            "Bytes that survive a power cut",
            count(progress.acknowledged),
        ),
        (Kind::Counter, "farlane_record_bytes_lost", "Bytes lost in declared gaps", count(progress.lost)),
        (Kind::Counter, "farlane_record_gaps", "Declared gaps", count(status.gaps)),
        (
            Kind::Counter,
            "farlane_record_restarts",
            "How often a sender started over",
            count(progress.restarts),
        ),
        (Kind::Gauge, "farlane_record_buffer_bytes", "Size of the buffer", count(status.buffer)),
        (Kind::Gauge, "farlane_record_buffer_fill_bytes", "Bytes in the buffer", count(progress.fill)),
        (
            Kind::Gauge,
            "farlane_record_buffer_high_water_bytes",
            "The most bytes in the buffer so far",
            count(progress.high_water),
        ),
        (Kind::Counter, "farlane_record_writes", "Writes that have ended", count(writes.ended)),
        (
            Kind::Counter,
            "farlane_record_write_seconds",
            "Time that these took, all added",
            seconds(writes.time),
        ),
        (
            Kind::Gauge,
            "farlane_record_slowest_write_seconds",
            "Time that the slowest took",
            seconds(writes.slowest),
        ),
        (
            Kind::Counter,
            "farlane_record_pauses",
            "Pauses of the medium, 20 ms or longer",
            count(writes.pauses),
        ),
        (
            Kind::Counter,
            "farlane_record_pause_seconds",
            "Time of these pauses, all added",
            seconds(writes.paused),
        ),
        (
            Kind::Gauge,
            "farlane_record_longest_pause_seconds",
            "Time of the longest pause",
            seconds(writes.longest_pause),
        ),
        (
            Kind::Gauge,
            "farlane_record_running",
            "1 while bytes are recorded",
            f64::from(u8::from(status.state == State::Running)),
        ),
    ];
    page.add_rows(&Labels::new(), rows);
}
