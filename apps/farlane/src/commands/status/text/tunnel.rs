//! Both ends of a tunnel.

use ::status::{Callers, Connection, Copies, Datagrams, FarEnd, FarReads, Host, Link, Seat, Slot};
use engine::Nanos;

use super::space;

/// A far end.
pub(super) fn far_end(far: &FarEnd) -> String {
    let name = format!("tcp://{}", far.listening);
    let (whole, each) = match far.seats.as_slice() {
        [] => (link(&name, &far.link), String::new()),
        seats => (taken(&name, seats), seats.iter().map(seat).collect()),
    };
    whole
        + &each
        + &admission(far)
        + &callers(&far.callers)
        + &connections(&far.connections)
        + &far.datagrams.iter().map(datagrams).collect::<String>()
        + &reads(&far.far_reads)
        + &commands(far.commands, None)
        + &space(far.namespaces.as_deref().unwrap_or_default(), far.space_errors)
}

/// A slot in which a guest finds a device.
pub(super) fn slot(slot: &Slot) -> String {
    let mut text = match &slot.link {
        Some(of) => link("the far end", of),
        None => format!("vfio-user:{}\n", slot.vfio_user),
    };
    if let Some(port) = &slot.port {
        text += &format!(
            "  port {}: {}, {} times plugged in, {} times unplugged, {} requests refused\n",
            port.id, port.state, port.plugs, port.unplugs, port.refusals
        );
    }
    text += &connections(&slot.connections);
    text += &slot.datagrams.iter().map(datagrams).collect::<String>();
    if let Some(far_reads) = &slot.far_reads {
        text += &reads(far_reads);
        text += &commands(slot.commands, slot.round_trips);
    }
    if let Some(dma) = &slot.dma {
        text += &format!(
            "  dma: {}, {} reads and {} writes refused\n",
            dma.mode, dma.refused_reads, dma.refused_writes,
        );
    }
    if let Some(ahead) = &slot.lookahead {
        text += &format!(
            "  lookahead: {} commands sent ahead in {} pieces of {} B, {} given up, {} without room\n",
            ahead.entries, ahead.pieces, ahead.bytes, ahead.given_up, ahead.over_budget
        );
    }
    if let Some(cache) = &slot.config_cache {
        text += &format!(
            "  registers: {} and {} reads answered near, {} and {} writes by the far end, {} asked for patience\n",
            cache.reads_near, cache.properties_near, cache.reads_far, cache.writes, cache.retries
        );
    }
    for (index, lane) in (1..).zip(&slot.lanes) {
        text += &format!("  lane {index}: {} I/O queues, {} commands\n", lane.io_queues, lane.commands);
    }
    let guest = &slot.guest;
    text += &format!(
        "  guest: {} configuration and {} register accesses, {} waited for the far end, {} in vain; {} interrupts\n",
        guest.config_accesses, guest.register_accesses, guest.waited, guest.given_up, guest.interrupts
    );
    text
}

/// The tunnel itself, as the end called `name` has it.
fn link(name: &str, link: &Link) -> String {
    let Some(peer) = &link.peer else { return format!("{name}: no host is connected\n") };
    let connected = if link.connected { "connected" } else { "held, the connection is lost" };
    let up = link.up_s.map_or_else(|| "an unknown time".to_owned(), |seconds| format!("{seconds} s"));
    let round_trip = link.round_trip_ns.map(|length| format!(", round trip {}", Nanos::new(length)));
    format!(
        "{name}: {peer}, {connected}, for {up}{}\n  \
         {} packets sent, {} received; {} and {} B; {} times resumed\n  \
         {} B are kept until they are acknowledged, {} B at most\n",
        round_trip.unwrap_or_default(),
        link.packets_sent,
        link.packets_received,
        link.bytes_sent,
        link.bytes_received,
        link.resumptions,
        link.unacknowledged_bytes,
        link.unacknowledged_bytes_max
    )
}

/// How many places of a far end are taken.
fn taken(name: &str, seats: &[Seat]) -> String {
    let taken = seats.iter().filter(|seat| seat.link.peer.is_some()).count();
    format!("{name}: {taken} of {} hosts\n", seats.len())
}

/// A host's place, if it is taken.
fn seat(seat: &Seat) -> String {
    let Some(_) = &seat.link.peer else { return String::new() };
    let mut text = link(&format!("controller {}", seat.controller_id), &seat.link);
    text += &match &seat.host {
        Some(Host { key, name: Some(name) }) => format!("  {name} has it ({key})\n"),
        Some(Host { key, name: None }) => format!("  {key} has it\n"),
        None => String::new(),
    };
    text += &connections(&seat.connections);
    text += &reads(&seat.far_reads);
    text + &commands(Some(seat.controller.commands), None)
}

/// The hosts that a far end admits, and the host that has its device.
fn admission(far: &FarEnd) -> String {
    let has = match &far.host {
        Some(Host { key, name: Some(name) }) => format!("; {name} has it ({key})"),
        Some(Host { key, name: None }) => format!("; {key} has it"),
        None => String::new(),
    };
    format!("  admits: {}{has}\n", far.admits)
}

/// Connections whose hosts had proved nothing, if there were any.
fn callers(of: &Callers) -> String {
    let Callers { waiting, refused, late, displaced, .. } = of;
    if waiting + refused + late + displaced == 0 {
        return String::new();
    }
    format!(
        "  strangers: {waiting} have said no Hello yet; {refused} were refused, {late} were late, {displaced} made \
         room for others\n"
    )
}

/// A line for each connection: the lines of the link count the main connection only.
fn connections(connections: &[Connection]) -> String {
    let one = |(number, of): (usize, &Connection)| format!("  connection {number}: {of}\n");
    connections.iter().enumerate().map(one).collect()
}

/// A line for the datagrams of a connection, and one for each path if there are several.
fn datagrams(of: &Datagrams) -> String {
    let mut text = format!(
        "  datagrams of up to {} B: {} sent, {} received, {} lost, {} came again, {} missed their launch; \
         {} of {} B under way\n",
        of.datagram_bytes,
        of.sent,
        of.received,
        of.lost,
        of.again,
        of.late,
        of.under_way_bytes,
        of.window_bytes
    );
    for path in &of.paths {
        let name = &path.interface;
        text += &copies(name, path.copies.as_ref());
        if path.failing {
            text += &format!("    {name}: the path fails; other paths bring its frames\n");
        }
        if path.dropped != 0 {
            text += &format!("    {name}: {} frames found no room\n", path.dropped);
        }
    }
    text + &copies("all paths", of.copies.as_ref())
}

fn copies(of: &str, copies: Option<&Copies>) -> String {
    let Some(copies) = copies else { return String::new() };
    let Copies { passed, eliminated, out_of_order, lost, rogue, resets, .. } = copies;
    format!(
        "    {of}: {passed} frames passed, {eliminated} copies eliminated, {out_of_order} out of order, {lost} lost, \
         {rogue} rogue; {resets} times begun anew\n"
    )
}

fn reads(reads: &FarReads) -> String {
    format!(
        "  the device's reads of memory: {} answered there, {} by the host; {} of {} B sent ahead in vain\n",
        reads.hits, reads.misses, reads.bytes_in_vain, reads.bytes_ahead
    )
}

fn commands(commands: Option<u64>, round_trips: Option<f64>) -> String {
    let Some(commands) = commands else { return String::new() };
    match round_trips {
        Some(trips) => format!("  {commands} commands, {trips:.2} round trips each\n"),
        None => format!("  {commands} commands\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of IEEE 802.1CB, as in the JSON.
    #[test]
    fn copies_are_reported_in_the_words_of_the_standard() {
        assert_eq!(copies("near", None), "");
        let all = Copies {
            passed: 1,
            eliminated: 2,
            out_of_order: 3,
            lost: 4,
            rogue: 5,
            resets: 6,
            latent_errors: 7,
        };
        assert_eq!(
            copies("near", Some(&all)),
            "    near: 1 frames passed, 2 copies eliminated, 3 out of order, 4 lost, 5 rogue; 6 times begun anew\n"
        );
    }
}
