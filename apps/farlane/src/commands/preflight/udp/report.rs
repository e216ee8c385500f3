//! The report of a preflight of datagrams.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::super::report::{rate, size};
use super::Answer;
use super::limit::{Part, Seen};
use crate::args::PreflightArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// Prints the answer. It is an error if no rate is recorded without loss.
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

/// The highest rate of datagrams that a recorder takes without loss.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json<'a> {
    device: &'a Path,
    medium: &'a str,
    streams: Option<u64>,
    datagram_bytes: u32,
    chunk_bytes: u32,
    buffer_bytes: Option<u64>,
    socket_buffers_bytes: Option<u64>,
    /// Bytes per second of all streams together.
    rate: u64,
    limit: Limit,
    trials: Vec<Trial>,
}

/// The part that limits the rate.
#[derive(Serialize, JsonSchema)]
struct Limit {
    part: &'static str,
    remedy: &'static str,
    /// The trial in which it was seen.
    seen: Option<Trial>,
}

/// The result of a trial.
#[derive(Serialize, JsonSchema)]
struct Trial {
    rate: u64,
    time_ns: u64,
    sent_bytes_per_second: u64,
    sent_datagrams: u64,
    refused_datagrams: u64,
    received_datagrams: u64,
    /// The losses by their places.
    lost: BTreeMap<&'static str, Lost>,
    sender_percent: Option<Busy>,
    receiver_percent: Option<Busy>,
    digests_percent: Option<Busy>,
    behind_in_sockets_bytes: u64,
    behind_in_buffer_bytes: u64,
    high_water_bytes: u64,
    pauses: u64,
    longest_pause_ns: u64,
    limit: Option<&'static str>,
}

/// A loss.
#[derive(Serialize, JsonSchema)]
struct Lost {
    packets: u64,
    bytes: u64,
}

/// How much of its time a thread ran, and waited for a processor.
#[derive(Serialize, JsonSchema)]
struct Busy {
    ran: u64,
    waited: u64,
}

impl Trial {
    fn of(seen: &Seen) -> Self {
        let busy = |turns| seen.percent(turns).map(|(ran, waited)| Busy { ran, waited });
        let lost = seen.lost.iter();
        Self {
            rate: seen.rate,
            time_ns: seen.sent.time.get(),
            sent_bytes_per_second: seen.reached(),
            sent_datagrams: seen.sent.datagrams,
            refused_datagrams: seen.sent.refused,
            received_datagrams: seen.came,
            lost: lost
                .map(|(place, lost)| (*place, Lost { packets: lost.packets, bytes: lost.bytes }))
                .collect(),
            sender_percent: busy(seen.sender),
            receiver_percent: busy(seen.receiver),
            digests_percent: busy(seen.digests),
            behind_in_sockets_bytes: seen.at_sockets(),
            behind_in_buffer_bytes: seen.fill,
            high_water_bytes: seen.high_water,
            pauses: seen.writes.pauses,
            longest_pause_ns: seen.writes.longest_pause.get(),
            limit: seen.limit().map(Part::words),
        }
    }
}

fn json<'a>(args: &'a PreflightArgs, medium: &'a str, answer: &'a Answer) -> Json<'a> {
    let (first, limit) = (answer.trials.first(), answer.found.limit);
    Json {
        device: &args.device,
        medium,
        streams: first.map(|seen| seen.streams),
        datagram_bytes: args.datagrams.datagram,
        chunk_bytes: args.chunk,
        buffer_bytes: first.map(|seen| seen.buffer),
        socket_buffers_bytes: first.map(|seen| seen.sockets),
        rate: answer.found.rate,
        limit: Limit { part: limit.words(), remedy: limit.remedy(), seen: answer.limited().map(Trial::of) },
        trials: answer.trials.iter().map(Trial::of).collect(),
    }
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
