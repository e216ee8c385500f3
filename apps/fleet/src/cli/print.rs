//! What commands print.

use std::io::Write;

use serde::Serialize;

use super::Error;
use crate::api::{Change, Explanation, Item};
use crate::wire::{Object, Transport};

/// Prints JSON on one line.
pub(super) fn json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?;
    line(&text)
}

/// Prints a line.
pub(super) fn line(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Error::Output)
}

/// Prints objects as a table.
pub(super) fn table(items: &[Item]) -> Result<(), Error> {
    let rows: Vec<[String; 4]> = items.iter().map(row).collect();
    let header = ["NAME", "PHASE", "WHAT", "WHY"].map(str::to_owned);
    let width = |column: usize| rows.iter().chain([&header]).map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for [name, phase, what, why] in [&header].into_iter().chain(&rows) {
        let [a, b, c] = widths;
        line(format!("{name:a$}  {phase:b$}  {what:c$}  {why}").trim_end())?;
    }
    Ok(())
}

fn row(item: &Item) -> [String; 4] {
    let status = item.status.as_ref();
    let phase = status.map(|status| status.phase.clone()).unwrap_or_default();
    let why = status.map(|status| status.message.clone()).unwrap_or_default();
    [item.name.0.clone(), phase, what(item), why]
}

/// An object in a few words.
fn what(item: &Item) -> String {
    let or_none =
        |name: &Option<crate::wire::Name>| name.as_ref().map_or("-".to_owned(), |name| name.0.clone());
    match &item.object {
        Object::Fleet(one) => format!("incarnation {}", one.incarnation),
        Object::Node(one) => match &one.cordon {
            Some(cordon) => {
                format!("{} cordoned by {}: {}", one.addresses.join(","), cordon.owner, cordon.reason)
            }
            None => one.addresses.join(","),
        },
        Object::Pool(one) => {
            let free = item.status.as_ref().and_then(|status| status.free_bytes).unwrap_or(0);
            format!("{} at {}:{}, {} free", bytes(one.bytes), one.node.0, one.path, bytes(free))
        }
        Object::Volume(one) => {
            let from = one.source.as_ref().map_or(String::new(), |source| format!(", from {source}"));
            format!("{} in {}, class {}{from}", bytes(one.bytes), or_none(&one.pool), or_none(&one.class))
        }
        Object::Snapshot(one) => format!("{} of {} in {}", bytes(one.bytes), one.volume.0, one.pool.0),
        Object::Class(one) => {
            let p99 = one.p99.map_or("any".to_owned(), |p99| format!("{} us", p99.0 / 1000));
            format!("p99 {p99}, {}/s", bytes(one.bandwidth))
        }
        Object::Link(one) => {
            let ends = one.between.each_ref().map(|labels| {
                let words: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                words.join(",")
            });
            format!("{} to {}", ends[0], ends[1])
        }
        Object::Attachment(one) => {
            let connected = match item.status.as_ref().and_then(|status| status.connected) {
                Some(true) => ", connected",
                Some(false) => ", not connected",
                None => "",
            };
            let by = if one.transport == Transport::Tunnel { ", by tunnel" } else { "" };
            format!("{} at {}, {:?}{by}{connected}", one.volume.0, one.node.0, one.mode).to_lowercase()
        }
        Object::Token(one) if one.used_by.is_some() => "used".to_owned(),
        Object::Token(one) => format!("ends at {} s", one.expires),
    }
}

/// Bytes in the largest binary unit of which there is a whole number, or with two digits.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let index = (0..units.len()).rev().find(|index| count >= 1 << (10 * index)).unwrap_or(0);
    let (whole, rest) = (count >> (10 * index), count & ((1 << (10 * index)) - 1));
    if rest == 0 {
        return format!("{whole} {}", units[index]);
    }
    let hundredths = (u128::from(rest) * 100) >> (10 * index);
    format!("{whole}.{hundredths:02} {}", units[index])
}

/// Prints a change on one line.
pub(super) fn change(change: &Change) -> Result<(), Error> {
    let Change { kind, name, revision, item } = change;
    let rest = match item {
        Some(item) => {
            let [_, phase, what, _] = row(item);
            format!("{phase}  {what}")
        }
        None => "gone".to_owned(),
    };
    line(&format!("{revision:>8}  {kind} {}  {rest}", name.0))
}

/// Prints why a volume is where it is.
pub(super) fn explanation(explanation: &Explanation) -> Result<(), Error> {
    let Explanation { volume, class, pool, fit, unfit } = explanation;
    let place = pool.as_ref().map_or("in no pool".to_owned(), |pool| format!("in {}", pool.0));
    let class = class.as_ref().map_or("no class".to_owned(), |class| format!("class {}", class.0));
    line(&format!("{} is {place}, with {class}", volume.0))?;
    for (place, one) in fit.iter().enumerate() {
        let figure = match (one.p99_ns, one.bandwidth) {
            (Some(p99), Some(bandwidth)) => {
                format!("99 of 100 reads predicted within {} us, {}/s", p99 / 1000, bytes(bandwidth))
            }
            _ => "no prediction".to_owned(),
        };
        line(&format!("  {}. {}: {figure}", place + 1, one.pool.0))?;
        one.path.iter().try_for_each(|hop| line(&format!("       over {hop}")))?;
    }
    unfit.iter().try_for_each(|one| line(&format!("  not {}: {}", one.pool.0, one.why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(10 << 30), "10 GiB");
        assert_eq!(bytes((3 << 30) + (1 << 29)), "3.50 GiB");
        assert_eq!(bytes(u64::MAX), "16383.99 PiB");
    }
}
