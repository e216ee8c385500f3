//! Time-Sensitive Networking at an Ethernet hop of a file, and other senders at the hop.

use std::collections::BTreeMap;

use engine::{Instant, Nanos};
use network_models::ethernet::{FifoStage, PortSettings};
use network_models::tsn::clock::ClockError;
use network_models::tsn::gates::{GateEntry, GateSchedule, GateStates};
use network_models::tsn::preemption::Preemption;
use network_models::tsn::traffic::{Pattern, Source};
use network_models::{Class, Rate};
use serde::Deserialize;
use toml::Spanned;

use super::Wrong;
use super::text::{Bytes, Text};

/// Time between two synchronisations of a clock, where the file gives none (802.1AS: 125 ms).
const SYNCHRONISATION: Nanos = Nanos::from_millis(125);
/// Allowed lengths of other senders' frames in bytes.
const LENGTHS: std::ops::RangeInclusive<u32> = 64..=9022;
/// The largest number of other senders at one hop.
const OTHERS_MAX: usize = 16;
/// The largest number of additional buffers of a MAC.
const BUFFERS_MAX: usize = 8;

/// The table `[link.hop.tsn]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TsnTable {
    /// The gate control list: one entry after another.
    gates: Option<Spanned<Vec<GateTable>>>,
    /// When the first entry begins, after a whole number of cycles.
    base: Option<Text<Nanos>>,
    /// The largest error of the node's clock after a synchronisation, in either direction.
    clock_error: Option<Text<Nanos>>,
    /// Constant offset of the clock in ns; negative when the clock is behind.
    clock_offset: Option<i32>,
    /// The time between two synchronisations.
    synchronisation: Option<Text<Nanos>>,
    /// How many ns a second the clock gains between two synchronisations.
    clock_drift: Option<i32>,
    /// The express classes, whose frames preempt other frames.
    express: Option<Spanned<Vec<u8>>>,
    /// The rates of classes with a credit-based shaper, by class.
    shapers: Option<Spanned<BTreeMap<String, Text<Rate>>>>,
    /// Number of buffers that the MAC has in addition to an ordinary one.
    buffers: Option<Spanned<usize>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GateTable {
    /// The classes that may send during the entry.
    open: Vec<u8>,
    /// How long the entry lasts.
    time: Text<Nanos>,
}

/// `[[link.hop.others]]`: another sender of frames at the port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OthersTable {
    #[serde(default)]
    class: u8,
    length: u32,
    /// The time between two bursts.
    period: Option<Text<Nanos>>,
    /// Number of frames of a burst.
    frames: Option<u32>,
    /// The largest delay of a burst.
    jitter: Option<Text<Nanos>>,
    /// The mean time between random frames.
    mean: Option<Text<Nanos>>,
    /// Frames at random times, as many as this rate lets pass.
    rate: Option<Text<Rate>>,
    /// Number of bytes that may pass at once.
    burst: Option<Text<Bytes>>,
    /// The sender always has a frame ready.
    #[serde(default)]
    always: bool,
}

/// Applies the table to `port`.
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
            // The hop's place in the file is the seed, so that no two clocks err alike.
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

/// Gate states in which the given classes are open.
fn classes(numbers: &[u8]) -> Result<GateStates, String> {
    match numbers.iter().find(|number| Class::new(**number).is_none()) {
        Some(number) => Err(format!("expected classes, 0 to 7, not {number}")),
        None => Ok(GateStates::of(numbers.iter().map(|number| usize::from(*number)))),
    }
}

/// The other senders at a port.
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
