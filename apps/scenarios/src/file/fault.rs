//! Faults between the ends of the switch after the tasks have begun: `[[fault]]`.

use engine::Nanos;
use network_models::faults::{Behaviour, Jitter};
use network_models::{Chance, Rate};
use serde::Deserialize;
use toml::Spanned;

use super::Wrong;
use super::text::{Text, one_of};
use crate::test_bench::{Trouble, When};

/// The table `[[fault]]` of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    kind: Spanned<String>,
    /// The time of a single fault, from the beginning of the tasks.
    at: Option<Text<Nanos>>,
    /// The mean time between the end of a random fault and the next one.
    every: Option<Spanned<Text<Nanos>>>,
    lasts: Option<Text<Nanos>>,
    loss: Option<Text<Chance>>,
    corruption: Option<Text<Chance>>,
    duplication: Option<Text<Chance>>,
    delay: Option<Text<Nanos>>,
    jitter: Option<Text<Nanos>>,
    rate: Option<Text<Rate>>,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cut,
    Hold,
    Pause,
    Down,
    Change,
}

/// The fault that a table describes, and when it happens.
pub(super) fn fault(place: &Spanned<FaultTable>) -> Result<(When, Trouble), Wrong> {
    let table = place.get_ref();
    let kinds = [
        ("cut", Kind::Cut),
        ("hold", Kind::Hold),
        ("pause", Kind::Pause),
        ("down", Kind::Down),
        ("change", Kind::Change),
    ];
    let kind = one_of(table.kind.get_ref(), &kinds).map_err(|why| Wrong::at(&table.kind, "kind", why))?;
    let when = match (table.at, &table.every) {
        (Some(Text(at)), None) => When::At(at),
        (None, Some(every)) if every.get_ref().0 > Nanos::ZERO => When::Every(every.get_ref().0),
        (None, Some(every)) => return Err(Wrong::at(every, "every", "expected a time above 0")),
        _ => {
            return Err(Wrong::at(place, "at", "expected either at, a time after the tasks begin, or every"));
        }
    };
    let changes = [
        ("loss", table.loss.is_some()),
        ("corruption", table.corruption.is_some()),
        ("duplication", table.duplication.is_some()),
        ("delay", table.delay.is_some()),
        ("jitter", table.jitter.is_some()),
        ("rate", table.rate.is_some()),
    ];
    let changed = changes.into_iter().find(|(_, given)| *given);
    match (kind, changed) {
        (Kind::Change, None) => {
            let keys: Vec<_> = changes.iter().map(|(key, _)| *key).collect();
            return Err(Wrong::at(place, "change", format!("expected one of {}", keys.join(", "))));
        }
        (Kind::Change, Some(_)) | (_, None) => {}
        (_, Some((key, _))) => return Err(Wrong::at(place, key, "expected kind = 'change'")),
    }
    let lasts = match (kind, table.lasts) {
        (Kind::Cut, None) => Nanos::ZERO,
        (Kind::Cut, Some(_)) => {
            return Err(Wrong::at(place, "lasts", "a cut takes no time; expected kind = 'hold' or 'down'"));
        }
        (_, Some(Text(lasts))) => lasts,
        (_, None) => return Err(Wrong::at(place, "lasts", "expected how long, such as 50ms")),
    };
    let chance = |chance: Option<Text<Chance>>| chance.map_or(Chance::NEVER, |Text(chance)| chance);
    let behaviour = Behaviour {
        loss: chance(table.loss),
        corruption: chance(table.corruption),
        duplication: chance(table.duplication),
        delay: table.delay.map_or(Nanos::ZERO, |Text(delay)| delay),
        jitter: table.jitter.map_or(Jitter::None, |Text(jitter)| Jitter::Uniform(jitter)),
        rate: table.rate.map(|Text(rate)| rate),
        down: kind == Kind::Down,
        ..Behaviour::default()
    };
    let trouble = match kind {
        Kind::Cut => Trouble::Cut,
        Kind::Hold => Trouble::Hold(lasts),
        Kind::Pause => Trouble::Pause(lasts),
        Kind::Down | Kind::Change => Trouble::Behave(behaviour, lasts),
    };
    Ok((when, trouble))
}
