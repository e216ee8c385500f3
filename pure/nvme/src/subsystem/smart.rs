//! The counters of the SMART / Health Information log.

use engine::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::record::Counters;
use crate::wire::log::{SmartLog, critical_warning};

/// The log's Data Units are thousands of 512 byte units, rounded up.
const DATA_UNIT_BYTES: u64 = 512 * 1000;
const MINUTE: Nanos = Nanos::from_secs(60);
const HOUR: Nanos = Nanos::from_secs(3600);
/// How long a medium counts as full after a write that found no space. Writes elsewhere may succeed
/// meanwhile, since earlier writes have their space.
const FULL_FOR: Nanos = Nanos::from_secs(60);
/// Available Spare Threshold, in percent.
const SPARE_THRESHOLD: u8 = 10;

/// The health of the device.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Smart {
    counters: Counters,
    started: Instant,
    in_flight: u32,
    busy_since: Instant,
    temperature: u16,
    temperature_since: Instant,
    /// When a write last found no space.
    full_at: Option<Instant>,
}

impl Smart {
    pub(super) const fn new(now: Instant, temperature: u16, mut counters: Counters) -> Self {
        counters.power_cycles += 1;
        Self {
            counters,
            started: now,
            in_flight: 0,
            busy_since: now,
            temperature,
            temperature_since: now,
            full_at: None,
        }
    }

    #[inline]
    pub(super) const fn begin_io(&mut self, now: Instant) {
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        self.in_flight += 1;
    }

    #[inline]
    pub(super) fn end_io(&mut self, now: Instant) {
        self.in_flight -= 1;
        if self.in_flight == 0 {
            self.counters.busy += now - self.busy_since;
        }
    }

    #[inline]
    pub(super) fn count_read(&mut self, bytes: u32) {
        self.counters.host_reads += 1;
        self.counters.bytes_read += u64::from(bytes);
    }

    #[inline]
    pub(super) fn count_write(&mut self, bytes: u32) {
        self.counters.host_writes += 1;
        self.counters.bytes_written += u64::from(bytes);
    }

    pub(super) fn count_copied(&mut self, bytes: u32) {
        self.counters.bytes_read += u64::from(bytes);
        self.counters.bytes_written += u64::from(bytes);
    }

    pub(super) fn count_verified(&mut self, bytes: u32) {
        self.counters.bytes_read += u64::from(bytes);
    }

    pub(super) const fn count_media_error(&mut self) {
        self.counters.media_errors += 1;
    }

    /// Counts a write that found no space. Returns whether that is news.
    pub(super) fn count_space_error(&mut self, now: Instant) -> bool {
        self.counters.space_errors += 1;
        let was_full = self.is_full(now);
        self.full_at = Some(now);
        !was_full
    }

    /// Whether a write found no space lately.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_some_and(|at| now - at < FULL_FOR)
    }

    /// Power On Hours (POH): the time under power in whole hours.
    pub(super) fn power_on_hours(&self, now: Instant) -> u64 {
        self.counters(now).power_on.get() / HOUR.get()
    }

    pub(super) const fn temperature(&self) -> u16 {
        self.temperature
    }

    pub(super) fn set_temperature(&mut self, now: Instant, kelvin: u16, config: &Config) {
        self.account_temperature(now, config);
        self.temperature = kelvin;
    }

    /// Adds the time since the last look to the time above the thresholds.
    fn account_temperature(&mut self, now: Instant, config: &Config) {
        let elapsed = now - self.temperature_since;
        self.temperature_since = now;
        if self.temperature >= config.temperature_critical {
            self.counters.critical_temperature += elapsed;
        } else if self.temperature >= config.temperature_warning {
            self.counters.warning_temperature += elapsed;
        }
    }

    pub(super) fn counters(&self, now: Instant) -> Counters {
        let mut counters = self.counters;
        counters.power_on += now - self.started;
        if self.in_flight > 0 {
            counters.busy += now - self.busy_since;
        }
        counters
    }

    /// The counters since the last call, for [`Smart::add`] of another.
    pub(super) fn take(&mut self, now: Instant) -> Counters {
        if self.in_flight > 0 {
            self.counters.busy += now - self.busy_since;
            self.busy_since = now;
        }
        core::mem::take(&mut self.counters)
    }

    /// Adds what a lane has counted. The times during which several lanes were busy add up.
    pub(super) fn add(&mut self, counted: &Counters) {
        let counters = &mut self.counters;
        counters.bytes_read += counted.bytes_read;
        counters.bytes_written += counted.bytes_written;
        counters.host_reads += counted.host_reads;
        counters.host_writes += counted.host_writes;
        counters.busy += counted.busy;
        counters.media_errors += counted.media_errors;
    }

    /// The log page at `now`. Endurance reports its best value, because no medium here wears out.
    /// The spare does so, too, unless a medium is full.
    pub(super) fn log(
        &mut self,
        now: Instant,
        config: &Config,
        critical_warning: u8,
        errors: u64,
    ) -> SmartLog {
        self.account_temperature(now, config);
        let counters = self.counters(now);
        let minutes = |time: Nanos| time.get() / MINUTE.get();
        let full = if self.is_full(now) { critical_warning::SPARE } else { 0 };
        SmartLog {
            critical_warning: critical_warning | full,
            temperature: self.temperature,
            available_spare: if self.is_full(now) { 0 } else { 100 },
            available_spare_threshold: SPARE_THRESHOLD,
            percentage_used: 0,
            data_units_read: counters.bytes_read.div_ceil(DATA_UNIT_BYTES).into(),
            data_units_written: counters.bytes_written.div_ceil(DATA_UNIT_BYTES).into(),
            host_reads: counters.host_reads.into(),
            host_writes: counters.host_writes.into(),
            controller_busy_minutes: minutes(counters.busy).into(),
            power_cycles: counters.power_cycles.into(),
            power_on_hours: (counters.power_on.get() / HOUR.get()).into(),
            unsafe_shutdowns: counters.unsafe_shutdowns.into(),
            media_errors: counters.media_errors.into(),
            error_entries: (counters.error_entries + errors).into(),
            warning_temperature_minutes: u32::try_from(minutes(counters.warning_temperature))
                .unwrap_or(u32::MAX),
            critical_temperature_minutes: u32::try_from(minutes(counters.critical_temperature))
                .unwrap_or(u32::MAX),
            ..SmartLog::default()
        }
    }
}
