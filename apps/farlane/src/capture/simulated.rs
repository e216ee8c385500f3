//! Writing what passes a port in virtual time to a pcapng file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use assemblies::watch::{Port, Seen};
use engine::{Instant, Watcher};
use pcap_file::pcapng::PcapNgWriter;

use super::writer::{begin, framed, put};
use crate::error::Error;

/// Packets that are held until they are written, so that they are written in the order of their
/// times. Packets of the two directions are seen within a link's latency of each other.
const HELD: usize = 4_096;

/// A capture of a simulation. Its time stamps count from the simulation's beginning, which stands
/// for 1970.
pub(crate) struct Simulated {
    path: PathBuf,
    writer: PcapNgWriter<BufWriter<File>>,
    /// By time, and by the order in which they were seen.
    held: BTreeMap<(Instant, u64), Vec<u8>>,
    seen: u64,
    result: io::Result<()>,
}

impl Simulated {
    /// # Errors
    /// When the file can't be made.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let fail = |error| Error::File { path: path.to_owned(), error };
        let writer = begin(File::create(path).map_err(fail)?).map_err(fail)?;
        Ok(Self { path: path.to_owned(), writer, held: BTreeMap::new(), seen: 0, result: Ok(()) })
    }

    fn write_first(&mut self) {
        if let (Some(((at, _), bytes)), Ok(())) = (self.held.pop_first(), &self.result) {
            self.result = put(&mut self.writer, Duration::from_nanos(at.as_nanos()), bytes);
        }
    }

    /// Writes what is held. Returns how many packets there are.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(crate) fn finish(&mut self) -> Result<u64, Error> {
        while !self.held.is_empty() {
            self.write_first();
        }
        let result = std::mem::replace(&mut self.result, Ok(())).and_then(|()| self.writer.get_mut().flush());
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
