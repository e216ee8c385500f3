//! A capture of which everything is kept: the daemon writes it to the file itself.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use captures::Reader;
use indicatif::ProgressBar;
use live::drivers::control::pipe;
use live::sys::files::{self, Kind};

use super::daemon::{Begun, Request};
use super::ender::Ender;
use crate::args::CaptureDaemonArgs;
use crate::capture::Outcome;
use crate::commands::control;
use crate::error::{CaptureError, Error};

/// How often a person sees that the capture goes on.
const TICK: Duration = Duration::from_millis(200);
/// The most bytes of an outcome.
const LINE_MAX: u64 = 4 << 10;

/// Whether nothing of a capture has to be looked at here.
pub(super) fn suits(args: &CaptureDaemonArgs, is_fabric: bool) -> bool {
    let filters = &args.filters;
    let chooses = filters.of_packets().is_some() || (!is_fabric && !filters.queue.is_empty());
    !chooses && args.ring.is_none() && args.trigger.is_none() && args.count.is_none()
}

/// Has the daemon at `socket` write the capture that `request` asks for to the file at `out`, until
/// it ends.
pub(super) fn capture(
    args: &CaptureDaemonArgs,
    socket: &Path,
    out: &Path,
    request: &Request,
) -> Result<Outcome, Error> {
    let fail = |error| Error::File { path: out.to_owned(), error };
    // Before the request to the daemon: without an output there is no capture.
    let file = files::write(out, Kind::Private).map_err(fail)?;
    let (reader, writer) = pipe().map_err(Error::System)?;
    let answer = control::ask_with(socket, request, &[file.as_fd(), writer.as_fd()])?;
    let begun: Begun = control::understand(answer)?;
    // The daemon alone has the writing end from now on: when it ends, so does the capture.
    drop(writer);
    let ender = Ender::start(socket, begun.id, args.time)?;
    let bar = ProgressBar::new_spinner();
    bar.set_message(format!("writing the captured traffic to {}", out.display()));
    bar.enable_steady_tick(TICK);
    let mut line = String::new();
    // A daemon that ends without a word has been killed.
    let _ = BufReader::new(reader.take(LINE_MAX)).read_line(&mut line);
    bar.finish_and_clear();
    ender.end();
    let Ok(outcome) = serde_json::from_str::<Outcome>(&line) else {
        return Err(CaptureError::Cut { packets: cut(out)? }.into());
    };
    match outcome.error {
        Some(error) => Err(fail(io::Error::from_raw_os_error(error))),
        None => Ok(outcome),
    }
}

/// Cuts a file that may end in the middle of a packet behind the last whole one. Returns the number
/// of packets in it.
fn cut(path: &Path) -> Result<u64, Error> {
    let mut count = 0;
    match Reader::open(path).and_then(|mut reader| reader.each(|_| count += 1)) {
        Err(captures::Error::Broken { offset, .. }) if path.is_file() => {
            let shortened = files::change(path).and_then(|file| file.set_len(offset));
            shortened.map_err(|error| Error::File { path: path.to_owned(), error })?;
        }
        Ok(()) | Err(captures::Error::Broken { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of pcapng: its type, its length before and behind it, its body.
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    }

    #[test]
    fn a_file_that_ends_within_a_packet_ends_before_it_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut");
        let section =
            block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
        let interface = block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
        // The interface, the time, and the packet's length as captured and as it was.
        let packet = block(6, &[&[0; 12][..], &[4, 0, 0, 0], &[4, 0, 0, 0], b"abcd"].concat());
        let whole = [&section[..], &interface, &packet, &packet].concat();
        for (lost, count, left) in [(0, 2, whole.len()), (1, 1, whole.len() - packet.len())] {
            std::fs::write(&path, &whole[..whole.len() - lost]).unwrap();
            assert_eq!(cut(&path).unwrap(), count);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), left as u64);
        }
        // The content of a file that can't be read is unknown.
        let error = cut(&folder.path().join("missing")).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
}
