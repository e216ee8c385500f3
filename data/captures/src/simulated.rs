//! Writes the packets of a port in virtual time to a pcapng file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assemblies::watch::{self, Port, Seen};
use engine::{Instant, Watcher};
use trace::Direction;

use crate::Error;
use crate::framing::header;
use crate::links::LINK;
use crate::reader::Tally;
use crate::sink::Sink;

/// Packets that are held until they are written, so that they are written in the order of their
/// times. Packets of the two directions are seen within a link's latency of each other.
const HELD: usize = 4_096;

/// A capture of a simulation. Its time stamps count from the simulation's beginning, which stands
/// for 1970.
pub struct Simulated {
    path: PathBuf,
    sink: Option<Sink<File>>,
    /// By time, and by the order in which they were seen.
    held: BTreeMap<(Instant, u64), Vec<u8>>,
    seen: u64,
    result: io::Result<()>,
}

impl Simulated {
    /// Begins a new file at `path`, readable by this user only.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
        Self::begin(path, file.map_err(|error| Error::File { path: path.to_owned(), error })?)
    }

    /// Begins `file`, which is empty and at `path`.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn begin(path: &Path, file: File) -> Result<Self, Error> {
        let fail = |error| Error::File { path: path.to_owned(), error };
        let sink = Sink::begin(file, LINK, &[]).map_err(fail)?;
        Ok(Self { path: path.to_owned(), sink: Some(sink), held: BTreeMap::new(), seen: 0, result: Ok(()) })
    }

    fn write_first(&mut self) {
        if let (Some(((at, _), bytes)), Ok(()), Some(sink)) =
            (self.held.pop_first(), &self.result, &mut self.sink)
        {
            self.result = sink.put(Duration::from_nanos(at.as_nanos()), &bytes, bytes.len());
        }
    }

    /// Writes the buffered packets. Returns the total number of packets.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(&mut self) -> Result<u64, Error> {
        while !self.held.is_empty() {
            self.write_first();
        }
        let tally = Tally { seen: self.seen, lost: 0 };
        let end = |sink: Sink<File>| sink.finish(tally);
        let result = std::mem::replace(&mut self.result, Ok(()));
        let result = result.and_then(|()| self.sink.take().map_or(Ok(()), end));
        result.map_err(|error| Error::File { path: self.path.clone(), error })?;
        Ok(self.seen)
    }
}

impl Watcher<Port> for Simulated {
    fn on_seen(&mut self, now: Instant, seen: Seen<'_>) {
        let Seen::Packet { direction, packet, .. } = seen else { return };
        self.held.insert((now, self.seen), framed(direction, packet));
        self.seen += 1;
        if self.held.len() > HELD {
            self.write_first();
        }
    }
}

/// A packet as a capture has it, with its header.
fn framed(direction: watch::Direction, packet: &pcie::wire::Packet) -> Vec<u8> {
    let direction = match direction {
        watch::Direction::Down => Direction::Down,
        watch::Direction::Up => Direction::Up,
    };
    let start = header(direction, 0);
    let mut bytes = vec![0; start.len() + packet.encoded_len()];
    bytes[..start.len()].copy_from_slice(&start);
    packet.emit(&mut bytes[start.len()..]);
    bytes
}
