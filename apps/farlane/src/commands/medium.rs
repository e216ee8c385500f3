//! The media and the buffer of a recording, for the commands that write to them.

use std::path::{Path, PathBuf};

use live::drivers::record::{Far, Refused};
use live::sys::clock::Clock;
use record::format::CHUNK_DEFAULT;
use record::{BUFFER_MAX, BUFFER_MIN};

use super::served::{FAR_PATIENCE, open_far, room};
use crate::args::FarSpec;
use crate::error::Error;

/// The shortest chunk in which the longest datagram has room.
const CHUNK_OF_PACKETS_MIN: u32 = 72 << 10;

/// The device that `path` names by its URL; none for a file or block device.
pub(crate) fn far(path: &Path) -> Result<Option<Box<Far>>, Error> {
    let text = path.to_string_lossy();
    if !FarSpec::is_url(&text) {
        return Ok(None);
    }
    let wrong = |why| Error::Recording { path: path.to_owned(), why };
    let (spec, clock) = (FarSpec::of_any(&text).map_err(wrong)?, Clock::start());
    Ok(Some(Box::new(Far::new(clock, open_far(clock, &spec, FAR_PATIENCE)?))))
}

/// The number of chunks of `chunk` bytes in a buffer of `bytes` bytes, which `what` names.
///
/// # Errors
/// When no buffer is that large or that small.
pub(crate) fn buffer_chunks(what: &'static str, bytes: u64, chunk: u32) -> Result<usize, Error> {
    let chunk = u64::from(chunk);
    let sizes = BUFFER_MIN as u64 * chunk..=BUFFER_MAX as u64 * chunk;
    if !sizes.contains(&bytes) {
        let (least, most) = sizes.into_inner();
        let expected = format!("{least} to {most} bytes, {BUFFER_MIN} to {BUFFER_MAX} chunks of {chunk}");
        return Err(Error::Range { what, value: bytes, expected });
    }
    room::check_limit(what, bytes)?;
    Ok(usize::try_from(bytes.div_ceil(chunk)).unwrap_or(BUFFER_MAX))
}

/// Checks that the longest datagram has room in a chunk of `chunk` bytes.
pub(crate) fn check_packets(chunk: u32) -> Result<(), Error> {
    if chunk < CHUNK_OF_PACKETS_MIN {
        let expected = format!(
            "{} KiB or more, so that the longest datagram has room in a chunk; {} KiB is usual",
            CHUNK_OF_PACKETS_MIN >> 10,
            CHUNK_DEFAULT >> 10
        );
        return Err(Error::Range { what: "--chunk with packets", value: chunk.into(), expected });
    }
    Ok(())
}

/// Why a recording can't begin, as an error for its user.
pub(crate) fn refused(to: &[PathBuf], refused: Refused) -> Error {
    let (member, error) = match refused {
        Refused::Unfit(why) => return Error::Ring { path: to.first().cloned().unwrap_or_default(), why },
        Refused::Medium { member, error } => (member, error),
    };
    let path = to.get(member).cloned().unwrap_or_default();
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Occupied { path },
        std::io::ErrorKind::WouldBlock => Error::Recorded { path },
        _ => Error::File { path, error },
    }
}
