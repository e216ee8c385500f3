//! What an Ethernet hop of a file says of Time-Sensitive Networking, and of who else sends there.

use std::collections::BTreeMap;

use engine::{Instant, Nanos};
use link::ethernet::{FifoStage, PortSettings};
use link::tsn::clock::ClockError;
use link::tsn::gates::{GateEntry, GateSchedule, GateStates};
use link::tsn::preemption::Preemption;
use link::tsn::traffic::{Pattern, Source};
use link::{Class, Rate};
use serde::Deserialize;
use toml::Spanned;

use super::Wrong;
use super::text::{Bytes, Text};

/// Between two synchronisations of a clock, where the file says nothing (802.1AS: 125 ms).
const SYNCHRONISATION: Nanos = Nanos::from_millis(125);
/// Lengths of others' frames, bytes.
const LENGTHS: std::ops::RangeInclusive<u32> = 64..=9022;
/// Others at one hop.
const OTHERS_MAX: usize = 16;
/// Buffers of a MAC.
const BUFFERS_MAX: usize = 8;

/// `[link.hop.tsn]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TsnTable {
    /// Gates of the classes, one entry after the other.
    gates: Option<Spanned<Vec<GateTable>>>,
    /// When the first entry begins, after a whole number of cycles.
    base: Option<Text<Nanos>>,
    /// How far off the node's clock is after each synchronisation, either way.
    clock_error: Option<Text<Nanos>>,
    /// Nanoseconds that the clock is ahead all the time, or behind where negative.
    clock_offset: Option<i32>,
    /// The time between two synchronisations.
    synchronisation: Option<Text<Nanos>>,
    /// Nanoseconds a second that the clock gains in between.
    clock_drift: Option<i32>,
    /// The classes whose frames interrupt others.
    express: Option<Spanned<Vec<u8>>>,
    /// Rates that classes with a credit-based shaper are promised.
    shapers: Option<Spanned<BTreeMap<String, Text<Rate>>>>,
    /// Buffers of the MAC besides an ordinary one's.
    buffers: Option<Spanned<usize>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GateTable {
    /// The classes that may send.
    open: Vec<u8>,
    /// For how long.
    time: Text<Nanos>,
}

/// `[[link.hop.others]]`: frames that share the port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OthersTable {
    #[serde(default)]
    class: u8,
    length: u32,
    /// A burst each time this has passed.
    period: Option<Text<Nanos>>,
    /// Frames of a burst.
    frames: Option<u32>,
    /// How much later than planned a burst comes at most.
    jitter: Option<Text<Nanos>>,
    /// Random, one each such time on average.
    mean: Option<Text<Nanos>>,
    /// Whatever this rate lets pass, at random times.
    rate: Option<Text<Rate>>,
    /// What passes at once.
    burst: Option<Text<Bytes>>,
    /// There is always a frame.
    #[serde(default)]
    always: bool,
}

/// Tells `port` what the file says.
pub(super) fn apply(port: &mut PortSettings, place: &Spanned<TsnTable>) -> Result<(), Wrong> {
    let table = place.get_ref();
    if let Some(gates) = &table.gates {
        let wrong = |why| Wrong::at(gates, "gates", why);
        let entries: Result<Vec<_>, String> = gates
            .get_ref()
            .iter()
            .map(|entry| Ok(GateEntry { states: classes(&entry.open)?, length: entry.time.0 }))
            .collect();
        let base = Instant::ZERO + table.base.map_or(Nanos::ZERO, |Text(base)| base);
        let clock = ClockError {
            wander: table.clock_error.map_or(Nanos::ZERO, |Text(error)| error),
            drift: i64::from(table.clock_drift.unwrap_or(0)),
            offset: i64::from(table.clock_offset.unwrap_or(0)),
            interval: table.synchronisation.map_or(SYNCHRONISATION, |Text(time)| time),
            // Where in the file the hop stands: no two clocks are wrong together.
            seed: place.span().start as u64,
        };
        let schedule = GateSchedule::new(base, entries.map_err(wrong)?);
        let schedule = schedule.and_then(|schedule| schedule.with_clock(clock));
        port.gates = Some(schedule.map_err(|error| wrong(error.to_string()))?);
    }
    if let Some(express) = &table.express {
        let express = classes(express.get_ref()).map_err(|why| Wrong::at(express, "express", why))?;
        port.preemption = Some(Preemption { express, additional: 0 });
    }
    if let Some(shapers) = &table.shapers {
        for (name, Text(rate)) in shapers.get_ref() {
            let class = name.parse().ok().and_then(Class::new).filter(|_| *rate <= port.rate);
            let why = || {
                format!("expected a class, 0 to 7, and not more than the port's rate, not {name} = {rate}")
            };
            let class = class.ok_or_else(|| Wrong::at(shapers, "shapers", why()))?;
            port.idle_slopes[class.index()] = Some(*rate);
        }
    }
    if let Some(buffers) = &table.buffers {
        let count = *buffers.get_ref();
        if count > BUFFERS_MAX {
            return Err(Wrong::at(
                buffers,
                "buffers",
                format!("expected {BUFFERS_MAX} at most, not {count}"),
            ));
        }
        port.stages = vec![FifoStage::TSN_MAC; count];
    }
    Ok(())
}

/// The gates of these classes.
fn classes(numbers: &[u8]) -> Result<GateStates, String> {
    match numbers.iter().find(|number| Class::new(**number).is_none()) {
        Some(number) => Err(format!("expected classes, 0 to 7, not {number}")),
        None => Ok(GateStates::of(numbers.iter().map(|number| usize::from(*number)))),
    }
}

/// Who else sends at a port.
pub(super) fn others(tables: &[Spanned<OthersTable>]) -> Result<Vec<Source>, Wrong> {
    if let Some(extra) = tables.get(OTHERS_MAX) {
        return Err(Wrong::at(extra, "others", format!("expected {OTHERS_MAX} of them at most")));
    }
    tables.iter().map(source).collect()
}

fn source(place: &Spanned<OthersTable>) -> Result<Source, Wrong> {
    let table = place.get_ref();
    let wrong = |key, why: &str| Wrong::at(place, key, why);
    let class = Class::new(table.class).ok_or_else(|| wrong("class", "expected 0 to 7"))?;
    if !LENGTHS.contains(&table.length) {
        return Err(wrong("length", "expected 64 to 9022 bytes, header and check sequence included"));
    }
    let frames = table.frames.unwrap_or(1).clamp(1, Source::BURST_MAX);
    let jitter = table.jitter.map_or(Nanos::ZERO, |Text(jitter)| jitter);
    let pattern = match (table.period, table.mean, table.rate, table.always) {
        (Some(Text(period)), None, None, false) if period > Nanos::ZERO => {
            Pattern::Periodic { period, offset: Nanos::ZERO, frames, jitter }
        }
        (None, Some(Text(mean)), None, false) if mean > Nanos::ZERO => Pattern::Random { mean },
        (None, None, Some(Text(rate)), false) => {
            Pattern::Policed { rate, burst: table.burst.map_or(0, |Text(Bytes(burst))| burst) }
        }
        (None, None, None, true) => Pattern::Saturated,
        _ => return Err(wrong("others", "expected one of period, mean, rate and always = true")),
    };
    Ok(Source { class, length: table.length, pattern })
}
