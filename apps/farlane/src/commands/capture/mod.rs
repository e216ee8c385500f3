//! `farlane observe capture`: the traffic of a running daemon, as a file or a stream that Wireshark
//! reads.

mod daemon;
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
use serde_json::{Value, json};
use trace::Command;

use crate::args::{CaptureDaemonArgs, Trigger};
use crate::commands::{control, print, print_json};
use crate::error::{CaptureError, Error};
use daemon::Request;
use ender::Ender;
use keeper::Keeper;
use sieve::Sieve;

/// How often the command reports its progress, in packets.
const TOLD_EVERY: u64 = 1_024;

pub(crate) fn run(args: &CaptureDaemonArgs) -> Result<(), Error> {
    let socket = control::find(args.daemon.as_deref())?;
    if let Some(out) = &args.out {
        return capture(args, &socket, out);
    }
    let request = if args.stop { Request::StopCapture { id: None } } else { Request::Captures };
    let answer = control::ask(&socket, &request)?;
    if args.output.json { print_json(&answer) } else { print(&text(&answer)) }
}

/// Which captures are running, or were stopped, for a person.
fn text(answer: &Value) -> String {
    if let Some(stopped) = answer["stopped"].as_array() {
        return format!("captures stopped: {}\n", stopped.len());
    }
    let captures = answer["captures"].as_array().map(Vec::as_slice).unwrap_or_default();
    if captures.is_empty() {
        return "no capture is running\n".to_owned();
    }
    let one = |of: &Value| {
        let seconds = of["for_s"].as_f64().unwrap_or_default();
        format!("capture {}: for {seconds:.1} s, {} packets, {} lost\n", of["id"], of["packets"], of["lost"])
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
    let is_fabric = control::ask(socket, &Request::Captures)?["passes"] == "streams";
    if let Some(option) = args.filters.of_packets().filter(|_| is_fabric) {
        return Err(CaptureError::Streams { option }.into());
    }
    let queues = if is_fabric { args.filters.queue.clone() } else { Vec::new() };
    let request = Request::Capture { snap: args.snap, queues };
    if !is_stream && direct::suits(args, is_fabric) {
        let outcome = direct::capture(args, socket, out, &request)?;
        let tally = outcome.tally();
        return tell(args, &report(out, (tally.written(), outcome.bytes), tally, None));
    }
    let fail = |error| Error::File { path: out.to_owned(), error };
    let ring = args.ring.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    // Before the request to the daemon: without an output there is no capture.
    let keeper = Keeper::open(out, ring, if is_fabric { ETHERNET } else { LINK }).map_err(fail)?;
    let (reader, writer) = pipe().map_err(Error::System)?;
    let answer = control::ask_with(socket, &request, &[writer.as_fd()])?;
    // The daemon alone has the writing end from now on: when it ends, so does the capture.
    drop(writer);
    let ender = Ender::start(socket, answer["id"].as_u64().unwrap_or_default(), args.time)?;
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
        info!("{}", told(&report).trim_end());
        return Ok(());
    }
    tell(args, &report)
}

fn tell(args: &CaptureDaemonArgs, report: &Value) -> Result<(), Error> {
    if args.output.json { print_json(report) } else { print(&told(report)) }
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
                    if taken.came.is_multiple_of(TOLD_EVERY) {
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
fn report(out: &Path, (packets, bytes): (u64, u64), tally: Tally, slow: Option<&Command>) -> Value {
    let slow = slow.map(|command| {
        json!({
            "command": name(command.kind), "queue": command.queue, "id": command.id,
            "lba": command.lba, "latency_ns": command.latency().get(),
        })
    });
    json!({
        "out": out, "packets": packets, "bytes": bytes,
        "passed": tally.seen, "lost": tally.lost, "trigger": slow,
    })
}

/// The report of a capture for people.
fn told(report: &Value) -> String {
    let out = report["out"].as_str().unwrap_or_default();
    let mut text = format!(
        "{} packets with {} B are in {out}; {} passed, {} of these were lost\n",
        report["packets"], report["bytes"], report["passed"], report["lost"]
    );
    let slow = &report["trigger"];
    if let Some(command) = slow["command"].as_str() {
        let latency = Nanos::new(slow["latency_ns"].as_u64().unwrap_or_default());
        text += &format!(
            "the trigger: {command} of queue {}, LBA {}, took {latency}\n",
            slow["queue"], slow["lba"]
        );
    }
    text
}
