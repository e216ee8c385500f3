//! The block device for a namespace: one that waits for a server, or else a new one.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::media::RemoteMedium;
use crate::sys::ublk::{Control, Error, Info, Parameters, State};

/// How long a server that was killed may take to let its device go.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often its device is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The most bytes of a request to give space back or to write zeroes.
const DISCARD_BYTES: u32 = 1 << 30;

/// How a block device is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The mark that distinguishes the device from others, for this and later servers.
    pub mark: u64,
    /// The number of queues. The kernel has at most one for each processor.
    pub queues: u16,
    /// The most requests of a queue.
    pub depth: u16,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// A block device to be served.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The kernel's description of the device.
    pub info: Info,
    /// Whether it had another server before.
    pub is_taken_over: bool,
    /// The length of the device in bytes.
    pub bytes: u64,
}

/// Why there is no block device to serve.
#[derive(Debug)]
pub enum FindError {
    /// Another process serves the device.
    Served {
        /// The number of the device.
        device: u32,
        /// The process.
        server: i32,
    },
    /// The device that waits has other limits than the namespace has by now.
    Changed {
        /// The number of the device.
        device: u32,
        /// Its size in bytes, and that of the namespace.
        bytes: (u64, u64),
    },
    /// The driver fails.
    Driver(Error),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { device, server } => {
                write!(f, "process {server} serves this namespace already, as /dev/ublkb{device}")
            }
            Self::Changed { device, bytes: (before, now) } => write!(
                f,
                "/dev/ublkb{device} waits for this namespace with {before} B, and the namespace has {now} B by now, or other blocks"
            ),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FindError {}

impl From<Error> for FindError {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

/// The block device for `medium`: the one with the mark, if there is one, or else a new one.
///
/// # Errors
/// When another process serves the device, it does not fit the medium, or the driver refuses.
pub fn find(
    control: &mut Control,
    settings: Settings,
    medium: &mut RemoteMedium,
) -> Result<Found, FindError> {
    let limits = parameters(medium, settings.read_only);
    let until = Instant::now() + PATIENCE;
    while let Some(info) = control.devices()?.into_iter().find(|info| info.mark == settings.mark) {
        let (device, server) = (info.device, info.server);
        match info.state {
            State::Dead => control.delete(device)?,
            State::Waiting => {
                let before = control.parameters(device)?;
                let has_grown = before.bytes < limits.bytes && control.can_resize();
                if before.block != limits.block || before.bytes != limits.bytes && !has_grown {
                    return Err(FindError::Changed { device, bytes: (before.bytes, limits.bytes) });
                }
                if control.take_over(device).is_ok() {
                    return Ok(Found { info, is_taken_over: true, bytes: before.bytes });
                }
            }
            State::Live if is_running(server) => return Err(FindError::Served { device, server }),
            State::Live => {}
        }
        if Instant::now() > until {
            return Err(FindError::Served { device, server });
        }
        std::thread::sleep(LOOK_EVERY);
        // The host of the medium answers its far end meanwhile.
        medium.reap(&mut |_| ());
    }
    let info = control.add(settings.queues, settings.depth, settings.mark, &limits)?;
    Ok(Found { info, is_taken_over: false, bytes: limits.bytes })
}

/// Whether a process runs: one that has ended, and is only kept for its parent, does not.
fn is_running(process: i32) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    let state = |text: &String| text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    status.is_ok_and(|text| !matches!(state(&text), None | Some('Z' | 'X')))
}

/// The limits of a block device for `medium`.
fn parameters(medium: &RemoteMedium, read_only: bool) -> Parameters {
    let limits = medium.limits();
    let request_bytes = u32::try_from(limits.transfer_bytes).unwrap_or(u32::MAX).max(medium.block());
    Parameters {
        bytes: medium.size(),
        block: medium.block(),
        request_bytes,
        read_only,
        volatile_cache: limits.volatile_cache,
        discard_bytes: if limits.discards && !read_only { DISCARD_BYTES } else { 0 },
        zeroes_bytes: if limits.zeroes && !read_only { DISCARD_BYTES } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_one_that_can_not_be_does_not() {
        assert!(is_running(std::process::id().cast_signed()));
        assert!(!is_running(-1) && !is_running(i32::MAX));
    }
}
