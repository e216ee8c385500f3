//! `farlane observe capture`: the traffic of a running daemon, as a file or a stream that Wireshark
//! reads.

pub(crate) mod daemon;
mod direct;
mod ender;
mod keeper;
mod sieve;

pub(crate) use daemon::{Capturable, Captures, notes_of_host};

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use captures::{ETHERNET, Item, LINK, Reader, Tally, name};
use engine::{Instant, Nanos};
use indicatif::ProgressBar;
use live::drivers::control::pipe;
use schemars::JsonSchema;
use serde::Serialize;
use trace::Command;

use crate::args::{CaptureDaemonArgs, Trigger};
use crate::commands::{control, print, print_json};
use crate::error::{CaptureError, Error};
use daemon::{Begun, Entry, List, Passes, Request, Stopped};
use ender::Ender;
use keeper::Keeper;
use sieve::Sieve;

/// The result of a capture of a running daemon.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report<'a> {
    out: &'a Path,
    /// Packets in the file.
    packets: u64,
    /// Bytes of these packets.
    bytes: u64,
    /// Packets that passed the daemon meanwhile.
    passed: u64,
    /// Packets that passed and found no room in the daemon.
    lost: u64,
    /// The command that ended the capture; none without --trigger.
    trigger: Option<Slow>,
}

/// A command that took longer than it was to take.
#[derive(Serialize, JsonSchema)]
struct Slow {
    command: String,
    queue: Option<u16>,
    id: Option<u16>,
    lba: Option<u64>,
    latency_ns: u64,
}

/// How often the command reports its progress, in packets.
const REPORTED_EVERY: u64 = 1_024;

pub(crate) fn run(args: &CaptureDaemonArgs) -> Result<(), Error> {
    let socket = control::find(args.daemon.as_deref())?;
    if let Some(out) = &args.out {
        return capture(args, &socket, out);
    }
    if args.stop {
        let stopped: Stopped = control::ask_for(&socket, &Request::StopCapture { id: None })?;
        return match args.output.json {
            true => print_json(&stopped),
            false => print(&format!("captures stopped: {}\n", stopped.stopped.len())),
        };
    }
    let list: List = control::ask_for(&socket, &Request::Captures)?;
    if args.output.json { print_json(&list) } else { print(&text(&list.captures)) }
}

/// Which captures are running, for a person.
fn text(captures: &[Entry]) -> String {
    if captures.is_empty() {
        return "no capture is running\n".to_owned();
    }
    let one = |of: &Entry| {
        format!("capture {}: for {:.1} s, {} packets, {} lost\n", of.id, of.for_s, of.packets, of.lost)
    };
    captures.iter().map(one).collect()
}

/// The result of a capture.
struct Taken {
    sieve: Sieve,
    keeper: Keeper,
    /// The daemon's tally at the end.
    tally: Option<Tally>,
    /// Packets that came.
    came: u64,
    /// The end of the wanted part, once the trigger has found its command.
    until: Option<Instant>,
    result: io::Result<()>,
}

fn capture(args: &CaptureDaemonArgs, socket: &Path, out: &Path) -> Result<(), Error> {
    let is_stream = out.as_os_str() == "-";
    if is_stream && args.output.json {
        return Err(CaptureError::TwoOutputs.into());
    }
    let is_fabric = control::ask_for::<List>(socket, &Request::Captures)?.passes == Passes::Streams;
    if let Some(option) = args.filters.of_packets().filter(|_| is_fabric) {
        return Err(CaptureError::Streams { option }.into());
    }
    let queues = if is_fabric { args.filters.queue.clone() } else { Vec::new() };
    let request = Request::Capture { snap: args.snap, queues };
    if !is_stream && direct::suits(args, is_fabric) {
        let outcome = direct::capture(args, socket, out, &request)?;
        let tally = outcome.tally();
        return print_report(args, &report(out, (tally.written(), outcome.bytes), tally, None));
    }
    let fail = |error| Error::File { path: out.to_owned(), error };
    let ring = args.ring.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    // Before the request to the daemon: without an output there is no capture.
    let keeper = Keeper::open(out, ring, if is_fabric { ETHERNET } else { LINK }).map_err(fail)?;
    let (reader, writer) = pipe().map_err(Error::System)?;
    let answer = control::ask_with(socket, &request, &[writer.as_fd()])?;
    let begun: Begun = control::understand(answer)?;
    // The daemon alone has the writing end from now on: when it ends, so does the capture.
    drop(writer);
    let ender = Ender::start(socket, begun.id, args.time)?;
    let threshold = args.trigger.map(|Trigger(longest)| Nanos::from(longest));
    let sieve = Sieve::new(args.filters.clone(), threshold, args.ring.is_some());
    let mut taken = Taken { sieve, keeper, tally: None, came: 0, until: None, result: Ok(()) };
    let whole = read(reader, &mut taken, args, &ender);
    ender.end();
    let tally = taken.tally.unwrap_or(Tally { seen: taken.came, lost: 0 });
    let written = taken.result.and_then(|()| taken.keeper.finish(tally));
    match written {
        // The reader has closed the stream.
        Err(error) if is_stream && error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        written => written.map_err(fail)?,
    }
    let packets = taken.keeper.frames;
    if whole.is_err() || taken.tally.is_none() {
        return Err(CaptureError::Cut { packets }.into());
    }
    let report = report(out, (packets, taken.keeper.bytes), tally, taken.sieve.slow());
    if is_stream {
        info!("{}", text_of(&report).trim_end());
        return Ok(());
    }
    print_report(args, &report)
}

fn print_report(args: &CaptureDaemonArgs, report: &Report<'_>) -> Result<(), Error> {
    if args.output.json { print_json(report) } else { print(&text_of(report)) }
}

/// Takes all that the daemon sends.
fn read(
    reader: io::PipeReader,
    taken: &mut Taken,
    args: &CaptureDaemonArgs,
    ender: &Ender,
) -> Result<(), captures::Error> {
    let bar = ProgressBar::new_spinner();
    let result = Reader::of(reader, Path::new("the capture")).and_then(|mut reader| {
        reader.each_item(|item| {
            let is_wanted =
                taken.result.is_ok() && args.count.is_none_or(|count| taken.keeper.frames < count);
            match item {
                Item::Tally(tally) => taken.tally = Some(tally),
                _ if !is_wanted => ender.ask(),
                Item::Note(note) => {
                    taken.sieve.learn(note);
                    taken.keeper.note(note);
                }
                Item::Waits => taken.result = taken.keeper.flush(),
                // A daemon describes each interface.
                Item::Foreign => {}
                Item::Frame(frame) => {
                    taken.came += 1;
                    if taken.came.is_multiple_of(REPORTED_EVERY) {
                        bar.set_message(format!("{} packets", taken.came));
                        bar.tick();
                    }
                    let is_kept =
                        taken.sieve.takes(&frame) && taken.until.is_none_or(|until| frame.at <= until);
                    if is_kept {
                        let news = taken.sieve.news().map_or(Ok(()), |notes| taken.keeper.learn(notes));
                        taken.result = news.and_then(|()| taken.keeper.frame(&frame));
                    }
                    if taken.until.is_none() && taken.sieve.slow().is_some() {
                        taken.until = Some(frame.at + Nanos::from(args.after));
                        ender.ask_after(args.after);
                    }
                }
            }
            true
        })
    });
    bar.finish_and_clear();
    result
}

/// The report of a capture for machines: the numbers of packets and bytes of frames at `out`.
fn report<'a>(
    out: &'a Path,
    (packets, bytes): (u64, u64),
    tally: Tally,
    slow: Option<&Command>,
) -> Report<'a> {
    let trigger = slow.map(|command| Slow {
        command: name(command.kind),
        queue: command.queue,
        id: command.id,
        lba: command.lba,
        latency_ns: command.latency().get(),
    });
    Report { out, packets, bytes, passed: tally.seen, lost: tally.lost, trigger }
}

/// The report of a capture for people.
fn text_of(report: &Report<'_>) -> String {
    let Report { out, packets, bytes, passed, lost, trigger } = report;
    let out = out.to_str().unwrap_or_default();
    let mut text = format!(
        "{packets} packets with {bytes} B are in {out}; {passed} passed, {lost} of these were lost\n"
    );
    if let Some(slow) = trigger {
        let latency = Nanos::new(slow.latency_ns);
        let queue = slow.queue.map_or("null".to_owned(), |queue| queue.to_string());
        let lba = slow.lba.map_or("null".to_owned(), |lba| lba.to_string());
        text += &format!("the trigger: {} of queue {queue}, LBA {lba}, took {latency}\n", slow.command);
    }
    text
}
