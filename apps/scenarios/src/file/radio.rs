//! A 5G cell and its core network: `[link.cell]` and `[link.core]`, or the tables of one hop.

use engine::Nanos;
use network_models::Chance;
use network_models::nr5g::{Cell, CoreSettings, Grants, Harq, Pattern, Proactive, RoundTrip};
use serde::Deserialize;
use toml::Spanned;

use super::text::{Bytes, Text, one_of, parse};
use super::{Wrong, within};

/// Number of symbols of a slot (TS 38.211).
const SYMBOLS: u32 = 14;
/// Numbers of symbols that a transmission may have (TS 38.214: mini-slots of 2, 4 and 7).
const TRANSMISSIONS: [u32; 4] = [2, 4, 7, SYMBOLS];
/// Numerologies, that is subcarrier spacings, with standardised processing times: 15 to 120 kHz.
const NUMEROLOGIES: std::ops::RangeInclusive<u32> = 0..=3;
/// Allowed numbers of slots between two occasions.
const SLOTS: std::ops::RangeInclusive<u32> = 1..=5120;
/// Allowed numbers of symbols between two occasions that are closer than a slot (TS 38.331, sym2
/// and sym7).
const OCCASION_SYMBOLS: std::ops::RangeInclusive<u32> = 2..=7;
/// Allowed numbers of transmissions of the same data (TS 38.331, repK).
const REPETITIONS: [u32; 4] = [1, 2, 4, 8];
/// Allowed numbers of bytes that a slot carries.
const SLOT_BYTES: std::ops::RangeInclusive<u64> = 1..=10_000_000;
/// Allowed processing times of a device in symbols.
const PROCESSING: std::ops::RangeInclusive<u32> = 0..=140;
/// Allowed numbers of attempts of a transmission.
const ATTEMPTS: std::ops::RangeInclusive<u32> = 1..=32;

/// The air interface and the core network that a way over the air passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Radio {
    /// The air interface.
    pub(super) cell: Cell,
    /// The core network.
    pub(super) core: CoreSettings,
}

impl Radio {
    /// The cell and the core network of the published experiment.
    pub(super) const CAMPUS: Self = Self { cell: Cell::CAMPUS, core: CoreSettings::CAMPUS };

    /// This radio with the changes of the tables `cell` and `core`.
    pub(super) fn with(
        mut self,
        cell: Option<&Spanned<CellTable>>,
        core: Option<&Spanned<CoreTable>>,
    ) -> Result<Self, Wrong> {
        if let Some(cell) = cell {
            self.cell = apply(self.cell, cell)?;
        }
        if let Some(table) = core.map(Spanned::get_ref) {
            let set =
                |value: &mut Nanos, new: Option<Text<Nanos>>| *value = new.map_or(*value, |Text(new)| new);
            set(&mut self.core.delay, table.delay);
            set(&mut self.core.spread, table.spread);
            set(&mut self.core.coherence, table.coherence);
            self.core.loss = table.loss.map_or(self.core.loss, |Text(loss)| loss);
        }
        Ok(self)
    }
}

/// `[link.cell]`: differences from the campus network's cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellTable {
    numerology: Option<Spanned<u32>>,
    pattern: Option<Spanned<String>>,
    special: Option<Spanned<String>>,
    special_used: Option<bool>,
    mini_slot: Option<Spanned<u32>>,
    down_slot: Option<Spanned<Text<Bytes>>>,
    up_slot: Option<Spanned<Text<Bytes>>>,
    grants: Option<Spanned<GrantsTable>>,
    k2: Option<Spanned<u32>>,
    station: Option<Text<Nanos>>,
    capability: Option<Spanned<u32>>,
    n1: Option<Spanned<u32>>,
    n2: Option<Spanned<u32>>,
    harq_up: Option<Spanned<HarqTable>>,
    harq_down: Option<Spanned<HarqTable>>,
    switched_feedback: Option<bool>,
}

/// `[link.core]`: differences from the campus network's core.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CoreTable {
    delay: Option<Text<Nanos>>,
    spread: Option<Text<Nanos>>,
    coherence: Option<Text<Nanos>>,
    loss: Option<Text<Chance>>,
}

/// How a device is granted uplink resources.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantsTable {
    kind: Spanned<String>,
    request_period: Option<Spanned<u32>>,
    request_offset: Option<u32>,
    first: Option<Spanned<Text<Bytes>>>,
    lasts: Option<Text<Nanos>>,
    period: Option<Spanned<u32>>,
    period_symbols: Option<Spanned<u32>>,
    offset: Option<u32>,
    repetitions: Option<Spanned<u32>>,
    bytes: Option<Spanned<Text<Bytes>>>,
}

/// A time, or `scheduled`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct RoundTripText(RoundTrip);

impl TryFrom<String> for RoundTripText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "scheduled" {
            return Ok(Self(RoundTrip::Scheduled));
        }
        parse(&text)
            .map(|time| Self(RoundTrip::Fixed(time)))
            .map_err(|error| format!("{error}, or 'scheduled'"))
    }
}

/// Failures and repetitions of a transmission (HARQ).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HarqTable {
    first: Option<Text<Chance>>,
    later: Option<Text<Chance>>,
    attempts: Option<Spanned<u32>>,
    round_trip: Option<RoundTripText>,
    recovery: Option<Text<Nanos>>,
}

/// The number of bytes that a slot or a grant carries.
fn carried(value: Option<&Spanned<Text<Bytes>>>, usual: u32, key: &str) -> Result<u32, Wrong> {
    let Some(value) = value else { return Ok(usual) };
    let Text(Bytes(bytes)) = *value.get_ref();
    u32::try_from(bytes).ok().filter(|_| SLOT_BYTES.contains(&bytes)).ok_or_else(|| {
        let why = format!("expected {} to {} bytes, not {bytes}", SLOT_BYTES.start(), SLOT_BYTES.end());
        Wrong::at(value, key, why)
    })
}

fn apply(mut cell: Cell, place: &Spanned<CellTable>) -> Result<Cell, Wrong> {
    let table = place.get_ref();
    cell.numerology = within(table.numerology.as_ref(), cell.numerology, "numerology", &NUMEROLOGIES)?;
    if let Some(text) = &table.pattern {
        cell.pattern = pattern(cell.pattern, text)?;
    }
    if let Some(text) = &table.special {
        cell.pattern.special_symbols = special(text)?;
    }
    cell.pattern.special_used = table.special_used.unwrap_or(cell.pattern.special_used);
    if let Some(symbols) = &table.mini_slot {
        cell.mini_slot = *symbols.get_ref();
        if !TRANSMISSIONS.contains(&cell.mini_slot) {
            return Err(Wrong::at(symbols, "mini_slot", "expected 2, 4, 7 or 14 symbols"));
        }
    }
    cell.down_bytes = carried(table.down_slot.as_ref(), cell.down_bytes, "down_slot")?;
    cell.up_bytes = carried(table.up_slot.as_ref(), cell.up_bytes, "up_slot")?;
    cell.k2 = within(table.k2.as_ref(), cell.k2, "k2", &(0..=32))?;
    cell.station = table.station.map_or(cell.station, |Text(time)| time);
    (cell.n1, cell.n2) = processing(&cell, table)?;
    cell.n1 = within(table.n1.as_ref(), cell.n1, "n1", &PROCESSING)?;
    cell.n2 = within(table.n2.as_ref(), cell.n2, "n2", &PROCESSING)?;
    if let Some(grants) = &table.grants {
        cell.grants = self::grants(cell.grants, grants)?;
    }
    cell.harq_up = harq(cell.harq_up, table.harq_up.as_ref())?;
    cell.harq_down = harq(cell.harq_down, table.harq_down.as_ref())?;
    cell.switched_feedback = table.switched_feedback.unwrap_or(cell.switched_feedback);
    match cell.lacks() {
        None => Ok(cell),
        Some(direction) => {
            let length = cell.mini_slot;
            let why = format!("expected slots for a transmission of {length} symbols {direction}, or FDD");
            Err(Wrong::at(place, "pattern", why))
        }
    }
}

/// The device's processing times N1 and N2 in symbols; they follow from the capability and the
/// numerology where the table gives either.
fn processing(cell: &Cell, table: &CellTable) -> Result<(u32, u32), Wrong> {
    if table.capability.is_none() && table.numerology.is_none() {
        return Ok((cell.n1, cell.n2));
    }
    let index = cell.numerology as usize;
    let Some(capability) = &table.capability else { return Ok(Cell::CAPABILITY_1[index]) };
    let known = match capability.get_ref() {
        1 => Cell::CAPABILITY_1.get(index),
        2 => Cell::CAPABILITY_2.get(index),
        _ => return Err(Wrong::at(capability, "capability", "expected 1 or 2")),
    };
    let why = "expected 1 at this numerology: capability 2 ends at 60 kHz";
    known.copied().ok_or_else(|| Wrong::at(capability, "capability", why))
}

/// Parses a pattern like `DDDSU` or `7D1S2U`: downlink slots, at most one special slot, uplink
/// slots. `FDD` is a carrier for each direction.
fn pattern(usual: Pattern, text: &Spanned<String>) -> Result<Pattern, Wrong> {
    let wrong = || {
        let most = Pattern::SLOTS_MAX;
        let why = format!(
            "expected downlink slots, at most one special slot, uplink slots ({most} at most), such as DDDSU or 7D1S2U, or FDD"
        );
        Wrong::at(text, "pattern", format!("{why}, not '{}'", text.get_ref()))
    };
    if text.get_ref() == "FDD" {
        return Ok(Pattern { special_symbols: usual.special_symbols, ..Pattern::FDD });
    }
    let runs = runs(text.get_ref()).ok_or_else(wrong)?;
    let mut counts = [0_u32; 3];
    let mut last = 0;
    for (count, letter) in runs {
        let place = "DSU".find(letter).filter(|place| *place >= last).ok_or_else(wrong)?;
        counts[place] = counts[place].saturating_add(count);
        last = place;
    }
    let [down, special, up] = counts;
    let slots = down.saturating_add(special).saturating_add(up);
    if special > 1 || !(1..=Pattern::SLOTS_MAX).contains(&slots) {
        return Err(wrong());
    }
    Ok(Pattern { down, special: special == 1, up, paired: false, ..usual })
}

/// Parses a special slot like `10D2G2U`: symbols for downlink, gap and uplink, 14 in all. Returns
/// those for downlink and uplink.
fn special(text: &Spanned<String>) -> Result<(u32, u32), Wrong> {
    let wrong = || {
        let why = format!("expected 14 symbols such as 10D2G2U, not '{}'", text.get_ref());
        Wrong::at(text, "special", why)
    };
    let runs = runs(text.get_ref()).ok_or_else(wrong)?;
    match runs[..] {
        [(down, 'D'), (gap, 'G'), (up, 'U')] if down.saturating_add(gap).saturating_add(up) == SYMBOLS => {
            Ok((down, up))
        }
        _ => Err(wrong()),
    }
}

/// Splits a pattern into letters with their counts: `DDDSU` gives `[(1, D), (1, D), (1, D), (1, S),
/// (1, U)]`, and `3D` gives `[(3, D)]`.
fn runs(text: &str) -> Option<Vec<(u32, char)>> {
    let mut runs = Vec::new();
    let mut number = String::new();
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        let count = if number.is_empty() { Ok(1) } else { number.parse() };
        runs.push((count.ok()?, letter));
        number.clear();
    }
    number.is_empty().then_some(runs)
}

fn grants(usual: Grants, place: &Spanned<GrantsTable>) -> Result<Grants, Wrong> {
    let table = place.get_ref();
    let kinds = [("dynamic", 0), ("proactive", 1), ("configured", 2)];
    let kind = one_of(table.kind.get_ref(), &kinds).map_err(|why| Wrong::at(&table.kind, "kind", why))?;
    let asked = table.request_period.is_some() || table.request_offset.is_some() || table.first.is_some();
    let foreign = [
        ("request_period, request_offset, first", kind == 2 && asked),
        ("lasts", kind != 1 && table.lasts.is_some()),
        ("bytes", kind == 0 && table.bytes.is_some()),
        ("period, offset", kind != 2 && (table.period.is_some() || table.offset.is_some())),
        (
            "period_symbols, repetitions",
            kind != 2 && (table.period_symbols.is_some() || table.repetitions.is_some()),
        ),
    ];
    if let Some((key, _)) = foreign.into_iter().find(|(_, given)| *given) {
        let why = format!("grants of kind '{}' have none", table.kind.get_ref());
        return Err(Wrong::at(place, key, why));
    }
    if kind == 2 {
        return configured(table);
    }
    let (request_period, request_offset, first, proactive) = match usual {
        Grants::Dynamic { request_period, request_offset, first, proactive } => {
            (request_period, request_offset, first, proactive)
        }
        Grants::Configured { bytes, .. } => (10, 0, bytes, None),
    };
    let usual = proactive.unwrap_or(Proactive { lasts: Nanos::from_millis(100), bytes: first });
    let proactive = Proactive {
        lasts: table.lasts.map_or(usual.lasts, |Text(time)| time),
        bytes: carried(table.bytes.as_ref(), usual.bytes, "bytes")?,
    };
    Ok(Grants::Dynamic {
        request_period: within(table.request_period.as_ref(), request_period, "request_period", &SLOTS)?,
        request_offset: table.request_offset.unwrap_or(request_offset),
        first: carried(table.first.as_ref(), first, "first")?,
        proactive: (kind == 1).then_some(proactive),
    })
}

/// A configured grant: occasions every so many slots, or every so many symbols.
fn configured(table: &GrantsTable) -> Result<Grants, Wrong> {
    let slots = within(table.period.as_ref(), 1, "period", &SLOTS)?;
    let symbols = within(table.period_symbols.as_ref(), SYMBOLS, "period_symbols", &OCCASION_SYMBOLS)?;
    if let (Some(_), Some(place)) = (&table.period, &table.period_symbols) {
        let why = "expected period, in slots, or period_symbols, not both";
        return Err(Wrong::at(place, "period_symbols", why));
    }
    let repetitions = table.repetitions.as_ref().map_or(1, |given| *given.get_ref());
    if let Some(place) = table.repetitions.as_ref().filter(|_| !REPETITIONS.contains(&repetitions)) {
        return Err(Wrong::at(place, "repetitions", "expected 1, 2, 4 or 8"));
    }
    Ok(Grants::Configured {
        period: slots * symbols,
        offset: table.offset.unwrap_or(0).saturating_mul(SYMBOLS),
        bytes: carried(table.bytes.as_ref(), Cell::CAMPUS.up_bytes, "bytes")?,
        repetitions,
    })
}

fn harq(usual: Harq, place: Option<&Spanned<HarqTable>>) -> Result<Harq, Wrong> {
    let Some(table) = place.map(Spanned::get_ref) else { return Ok(usual) };
    Ok(Harq {
        first: table.first.map_or(usual.first, |Text(chance)| chance),
        later: table.later.map_or(usual.later, |Text(chance)| chance),
        attempts: within(table.attempts.as_ref(), usual.attempts, "attempts", &ATTEMPTS)?,
        round_trip: table.round_trip.map_or(usual.round_trip, |RoundTripText(time)| time),
        recovery: table.recovery.map_or(usual.recovery, |Text(time)| time),
    })
}
