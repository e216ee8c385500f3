//! The TCP stacks of a link's ends: `tcp` and `[link.stack]`.

use engine::Nanos;
use network_models::tcp::{CongestionControl, Parameters};
use serde::Deserialize;
use toml::Spanned;

use super::Wrong;
use super::text::{Bytes, Text, one_of};

/// Allowed sizes of a TCP buffer in bytes.
const BUFFER_RANGE: std::ops::RangeInclusive<u32> = 4 << 10..=256 << 20;

/// `[link.stack]`: differences from the stack that `tcp` names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StackTable {
    rto_floor: Option<Text<Nanos>>,
    backlog: Option<Text<Nanos>>,
    nagle: Option<bool>,
    acknowledge_after: Option<Text<Nanos>>,
    acknowledge_segments: Option<u32>,
    selective_acknowledgement: Option<bool>,
    tail_loss_probe: Option<bool>,
    congestion: Option<Spanned<String>>,
    initial_window: Option<u32>,
    restart_after_idle: Option<bool>,
    send_buffer: Option<Spanned<Text<Bytes>>>,
    receive_buffer: Option<Spanned<Text<Bytes>>>,
}

/// The stack that `tcp` names, with the changes of `[link.stack]`.
pub(super) fn stack(
    name: Option<&Spanned<String>>,
    different: Option<&Spanned<StackTable>>,
) -> Result<Parameters, Wrong> {
    let stacks = [("linux", Parameters::LINUX), ("npap", Parameters::NPAP)];
    let mut tcp = match name {
        None => Parameters::LINUX,
        Some(name) => one_of(name.get_ref(), &stacks).map_err(|why| Wrong::at(name, "tcp", why))?,
    };
    let Some(place) = different else { return Ok(tcp) };
    let table = place.get_ref();
    let set = |value: &mut bool, new: Option<bool>| *value = new.unwrap_or(*value);
    set(&mut tcp.nagle, table.nagle);
    set(&mut tcp.selective_acknowledgement, table.selective_acknowledgement);
    set(&mut tcp.restart_after_idle, table.restart_after_idle);
    tcp.recent_acknowledgement &= tcp.selective_acknowledgement;
    tcp.tail_loss_probe = match table.tail_loss_probe {
        Some(false) => None,
        Some(true) => tcp.tail_loss_probe.or(Parameters::LINUX.tail_loss_probe),
        None => tcp.tail_loss_probe,
    }
    .filter(|_| tcp.selective_acknowledgement);
    if let Some(Text(floor)) = table.rto_floor {
        tcp.retransmission.floor = floor;
    }
    tcp.backlog = table.backlog.map_or(tcp.backlog, |Text(backlog)| backlog);
    if let Some(Text(delay)) = table.acknowledge_after {
        tcp.acknowledgement.delay = delay;
    }
    tcp.acknowledgement.segments = table.acknowledge_segments.unwrap_or(tcp.acknowledgement.segments).max(1);
    tcp.initial_window = table.initial_window.unwrap_or(tcp.initial_window).max(1);
    if let Some(name) = &table.congestion {
        let controls = [("cubic", CongestionControl::Cubic), ("newreno", CongestionControl::NewReno)];
        tcp.congestion =
            one_of(name.get_ref(), &controls).map_err(|why| Wrong::at(name, "congestion", why))?;
    }
    for (key, value, buffer) in [
        ("send_buffer", &table.send_buffer, &mut tcp.send_buffer),
        ("receive_buffer", &table.receive_buffer, &mut tcp.receive_buffer),
    ] {
        let Some(size) = value else { continue };
        let Text(Bytes(bytes)) = size.get_ref();
        *buffer = u32::try_from(*bytes)
            .ok()
            .filter(|bytes| BUFFER_RANGE.contains(bytes))
            .ok_or_else(|| Wrong::at(size, key, format!("expected 4KiB to 256MiB, not {bytes} bytes")))?;
    }
    Ok(tcp)
}
