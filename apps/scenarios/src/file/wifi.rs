//! Wi-Fi hops of a file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use engine::Nanos;
use network_models::wifi::{Bursts, Medium, Settings};
use network_models::{Chance, Rate};
use serde::Deserialize;
use toml::Spanned;

use super::Wrong;
use super::text::Text;

/// Payload in bytes of the longest frame: an MSDU of 2304 less LLC and SNAP (IEEE 802.11-2020
/// 9.2.4.7).
const MTU_MAX: u32 = 2_304 - 8;
/// Allowed rates: the lowest of OFDM, and a limit for standards without aggregation.
const RATES: RangeInclusive<Rate> = Rate::from_megabits(6)..=Rate::from_gigabits(10);
/// Allowed contention windows.
const WINDOWS: RangeInclusive<u32> = 1..=32_767;
/// Allowed numbers of attempts.
const ATTEMPTS: RangeInclusive<u32> = 1..=255;
/// Allowed lengths of a queue in frames.
const QUEUES: RangeInclusive<u32> = 1..=65_536;
/// Allowed times of a slot, of SIFS and of a preamble.
const TIMES: RangeInclusive<Nanos> = Nanos::from_micros(1)..=Nanos::from_millis(1);
/// The least mean time of a state of the channel: each change is an event.
const STATE_MIN: Nanos = Nanos::from_micros(1);

/// `timing` of a Wi-Fi hop: the differences from 802.11a and g.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TimingTable {
    slot: Option<Spanned<Text<Nanos>>>,
    sifs: Option<Spanned<Text<Nanos>>>,
    preamble: Option<Spanned<Text<Nanos>>>,
    cw_min: Option<Spanned<u32>>,
    cw_max: Option<Spanned<u32>>,
}

/// `bursts` of a Wi-Fi hop: losses on the air.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstsTable {
    /// The mean time without a burst.
    good: Spanned<Text<Nanos>>,
    /// The mean time of a burst.
    bad: Spanned<Text<Nanos>>,
    /// The losses between bursts.
    good_loss: Option<Text<Chance>>,
    /// The losses in a burst.
    bad_loss: Option<Text<Chance>>,
}

/// The keys of a Wi-Fi hop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys<'a> {
    pub(super) rate: Option<Rate>,
    pub(super) queue_frames: Option<u32>,
    pub(super) attempts: Option<&'a Spanned<u32>>,
    pub(super) timing: Option<&'a Spanned<TimingTable>>,
    pub(super) bursts: Option<&'a Spanned<BurstsTable>>,
}

/// The media of a link, by channel.
#[derive(Debug, Default)]
pub(super) struct Media(BTreeMap<String, Medium>);

impl Media {
    /// The medium of `channel`, which all hops of the link on this channel share.
    pub(super) fn of(&mut self, channel: &str) -> &Medium {
        self.0.entry(channel.to_owned()).or_default()
    }
}

/// The settings that the keys of the hop at `place` describe.
pub(super) fn settings<T>(place: &Spanned<T>, keys: Keys<'_>, mtu: u32) -> Result<Settings, Wrong> {
    if mtu > MTU_MAX {
        let why = format!("a Wi-Fi frame carries {MTU_MAX} bytes at most; set mtu in [link], which is {mtu}");
        return Err(Wrong::at(place, "mtu", why));
    }
    let expected = "expected 6Mbit/s to 10Gbit/s, such as 54Mbit/s";
    let rate = keys.rate.ok_or_else(|| Wrong::at(place, "rate", expected))?;
    if !RATES.contains(&rate) {
        return Err(Wrong::at(place, "rate", format!("{expected}, not {rate}")));
    }
    let usual = Settings::OFDM;
    let mut settings = Settings { rate, ..usual };
    if let Some(frames) = keys.queue_frames {
        if !QUEUES.contains(&frames) {
            let why = format!("expected {} to {}, not {frames}", QUEUES.start(), QUEUES.end());
            return Err(Wrong::at(place, "queue_frames", why));
        }
        settings.queue_frames = frames as usize;
    }
    settings.attempts = number(keys.attempts, usual.attempts, "attempts", &ATTEMPTS)?;
    if let Some(table) = keys.timing {
        let timing = table.get_ref();
        settings.slot = time(timing.slot.as_ref(), usual.slot, "slot")?;
        settings.sifs = time(timing.sifs.as_ref(), usual.sifs, "sifs")?;
        settings.preamble = time(timing.preamble.as_ref(), usual.preamble, "preamble")?;
        settings.cw_min = number(timing.cw_min.as_ref(), usual.cw_min, "cw_min", &WINDOWS)?;
        settings.cw_max = number(timing.cw_max.as_ref(), usual.cw_max, "cw_max", &WINDOWS)?;
        if settings.cw_min > settings.cw_max {
            let why = format!("expected {} at least, as cw_min, not {}", settings.cw_min, settings.cw_max);
            return Err(Wrong::at(table, "cw_max", why));
        }
    }
    settings.bursts = keys.bursts.map(|table| bursts(table.get_ref())).transpose()?;
    Ok(settings)
}

fn bursts(table: &BurstsTable) -> Result<Bursts, Wrong> {
    let mean = |time: &Spanned<Text<Nanos>>, key| {
        let Text(mean) = *time.get_ref();
        if mean < STATE_MIN {
            return Err(Wrong::at(time, key, format!("expected {STATE_MIN} at least, not {mean}")));
        }
        Ok(mean)
    };
    Ok(Bursts {
        good: mean(&table.good, "good")?,
        bad: mean(&table.bad, "bad")?,
        good_loss: table.good_loss.map_or(Chance::NEVER, |Text(loss)| loss),
        bad_loss: table.bad_loss.map_or(Chance::ALWAYS, |Text(loss)| loss),
    })
}

fn time(given: Option<&Spanned<Text<Nanos>>>, usual: Nanos, key: &'static str) -> Result<Nanos, Wrong> {
    let Some(given) = given else { return Ok(usual) };
    let Text(time) = *given.get_ref();
    if !TIMES.contains(&time) {
        let why = format!("expected {} to {}, not {time}", TIMES.start(), TIMES.end());
        return Err(Wrong::at(given, key, why));
    }
    Ok(time)
}

fn number(
    given: Option<&Spanned<u32>>,
    usual: u32,
    key: &'static str,
    range: &RangeInclusive<u32>,
) -> Result<u32, Wrong> {
    let Some(given) = given else { return Ok(usual) };
    let number = *given.get_ref();
    if !range.contains(&number) {
        let why = format!("expected {} to {}, not {number}", range.start(), range.end());
        return Err(Wrong::at(given, key, why));
    }
    Ok(number)
}
