//! The report of a preflight of datagrams.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::report::{rate, size};
use super::Answer;
use super::limit::{Part, Seen};
use crate::args::PreflightArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// Prints the answer. If nothing is recorded without loss, that is an error.
pub(super) fn print_answer(args: &PreflightArgs, medium: &str, answer: &Answer) -> Result<(), Error> {
    if args.output.json {
        print_json(&json(args, medium, answer))?;
    } else {
        print(&text(args, answer))?;
    }
    match answer.found.rate {
        0 => {
            let (path, part) = (args.device.clone(), answer.found.limit);
            Err(Error::AlwaysLost { path, part: part.words(), remedy: part.remedy() })
        }
        _ => Ok(()),
    }
}

/// The result of a trial, for machines.
fn seen_json(seen: &Seen) -> Value {
    let thread = |turns| seen.percent(turns).map(|(ran, waited)| json!({ "ran": ran, "waited": waited }));
    let lost = seen.lost.iter();
    let lost = lost
        .map(|(place, lost)| ((*place).to_owned(), json!({ "packets": lost.packets, "bytes": lost.bytes })));
    json!({
        "rate": seen.rate,
        "time_ns": seen.sent.time.get(),
        "sent_bytes_per_second": seen.reached(),
        "sent_datagrams": seen.sent.datagrams,
        "refused_datagrams": seen.sent.refused,
        "received_datagrams": seen.came,
        "lost": lost.collect::<serde_json::Map<_, _>>(),
        "sender_percent": thread(seen.sender),
        "receiver_percent": thread(seen.receiver),
        "digests_percent": thread(seen.digests),
        "behind_in_sockets_bytes": seen.at_sockets(),
        "behind_in_buffer_bytes": seen.fill,
        "high_water_bytes": seen.high_water,
        "pauses": seen.writes.pauses,
        "longest_pause_ns": seen.writes.longest_pause.get(),
        "limit": seen.limit().map(Part::words),
    })
}

fn json(args: &PreflightArgs, medium: &str, answer: &Answer) -> Value {
    let first = answer.trials.first();
    json!({
        "device": args.device,
        "medium": medium,
        "streams": first.map(|seen| seen.streams),
        "datagram_bytes": args.datagrams.datagram,
        "chunk_bytes": args.chunk,
        "buffer_bytes": first.map(|seen| seen.buffer),
        "socket_buffers_bytes": first.map(|seen| seen.sockets),
        "rate": answer.found.rate,
        "limit": { "part": answer.found.limit.words(), "remedy": answer.found.limit.remedy(),
            "seen": answer.limited().map(seen_json) },
        "trials": answer.trials.iter().map(seen_json).collect::<Vec<_>>(),
    })
}

/// How busy a thread was, for people.
fn busy(seen: &Seen, name: &str, turns: Option<live::sys::usage::Turns>) -> Option<String> {
    let (ran, waited) = seen.percent(turns)?;
    Some(format!("{name} ran {ran} % of the time and waited {waited} % for a processor"))
}

/// The findings about the part that limits, for people.
fn why(part: Part, seen: &Seen) -> String {
    let lost = seen.lost.iter().map(|(place, lost)| match lost.packets {
        0 => format!("{} lost ({place})", size(lost.bytes)),
        packets => format!("{packets} datagrams lost ({place})"),
    });
    let threads = [
        ("the receiving thread", seen.receiver, matches!(part, Part::Receiver | Part::Sockets)),
        ("the busiest sender", seen.sender, part == Part::Sender),
        ("the thread for digests", seen.digests, part == Part::Digests),
    ];
    let threads = threads.into_iter().filter(|(.., counts)| *counts);
    let threads = threads.filter_map(|(name, turns, _)| busy(seen, name, turns));
    let own = match part {
        Part::Sender => {
            format!("{} were sent, {} datagrams refused", rate(seen.reached()), seen.sent.refused)
        }
        Part::Network => {
            format!("{} of {} datagrams were never at a socket", seen.vanished(), seen.sent.datagrams)
        }
        Part::Receiver | Part::Sockets => {
            format!("{} in sockets' buffers of {} in the end", size(seen.at_sockets()), size(seen.sockets))
        }
        Part::Digests | Part::Ring | Part::Disk => format!(
            "{} in the buffer of {} in the end, longest pause {}",
            size(seen.fill),
            size(seen.buffer),
            seen.writes.longest_pause
        ),
        Part::Room => "a trial at a higher rate has no room".to_owned(),
    };
    lost.chain([own]).chain(threads).collect::<Vec<_>>().join(", ")
}

fn text(args: &PreflightArgs, answer: &Answer) -> String {
    let found = &answer.found;
    let first = answer.trials.first();
    let streams = first.map_or(0, |seen| seen.streams);
    let mut text = format!(
        "{}: {streams} UDP streams of datagrams of {} B over loopback, {} trials\n",
        args.device.display(),
        args.datagrams.datagram,
        answer.trials.len()
    );
    // Writing to a string does not fail.
    let _ = match found.rate {
        0 => writeln!(text, "  no rate without loss"),
        highest => writeln!(text, "  {} together without loss", rate(highest)),
    };
    let _ = writeln!(text, "  limit: the {}", found.limit.words());
    if let Some(seen) = answer.limited() {
        let _ = writeln!(text, "  at {}: {}", rate(seen.rate), why(found.limit, seen));
    }
    let _ = writeln!(text, "  {}", found.limit.remedy());
    text
}
