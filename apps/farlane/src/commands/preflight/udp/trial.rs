//! One trial: datagrams are sent at a rate, and recorded.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use live::drivers::record::{
    Bound, End, Flood, Handle, Limits, Place, Recorded, Sent, Source, Status, Target, Udp, record,
};
use live::sys::usage::Turns;
use record::format::PACKET_HEAD;
use record::registers::Direction;
use record::{Config, Digests};

use super::super::{Medium, beside, find};
use super::limit::{Lost, Seen};
use crate::args::{PreflightArgs, SOCKET_BUFFER_DEFAULT};
use crate::commands::medium::refused;
use crate::error::Error;

/// The name of the threads that send.
const SENDER: &str = "udp sender";
/// The name of the threads that digest the recording (`live::drivers::record`).
const DIGESTS: &str = "digests";

/// The setting in which a trial begins.
pub(super) struct Setting<'a> {
    pub(super) args: &'a PreflightArgs,
    pub(super) streams: u32,
    /// The number of chunks in the recorder's buffer.
    pub(super) chunks: usize,
    /// Ends everything.
    pub(super) end: &'a End,
}

/// The state when the last datagram was sent.
struct Moment {
    sent: Sent,
    sender: Option<Turns>,
    digests: Option<Turns>,
    status: Status,
}

/// The receivers' ends.
struct Receivers {
    sources: Vec<Source>,
    to: Vec<std::net::SocketAddr>,
    /// The sizes of the sockets' buffers together, in bytes.
    buffers: u64,
}

impl Receivers {
    fn open(streams: u32) -> io::Result<Self> {
        let mut receivers = Self { sources: Vec::new(), to: Vec::new(), buffers: 0 };
        for _ in 0..streams {
            let address = ([127, 0, 0, 1], 0).into();
            let (interface, source, buffer, tracker) = (None, None, SOCKET_BUFFER_DEFAULT, None);
            let Bound { source, address, buffer } =
                Source::udp(Udp { address, interface, source, buffer, framed: true, tracker })?;
            receivers.sources.push(source);
            receivers.to.push(address);
            receivers.buffers += buffer as u64;
        }
        Ok(receivers)
    }
}

impl Setting<'_> {
    /// Sends `rate` bytes of datagrams a second for `time`, and records them.
    ///
    /// # Errors
    /// When the medium or a socket can't be opened, or when it was interrupted.
    pub(super) fn run(&self, rate: u64, time: Duration) -> Result<Seen, Error> {
        let receivers = Receivers::open(self.streams);
        let Receivers { sources, to, buffers } = receivers.map_err(Error::Datagrams)?;
        let length = self.args.datagrams.datagram as usize;
        let flood = Flood { to, rate, time, length };
        let handle = Handle::new(Direction::Write, self.end.clone());
        let quit = AtomicBool::new(false);
        let (recorded, moment, receiver) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let moment = send(&flood, &handle, &quit);
                handle.stop();
                moment
            });
            let before = Turns::of_this_thread();
            let recorded = self.record(sources, &handle);
            let turns = Turns::of_this_thread().zip(before).map(|(after, before)| after.since(before));
            quit.store(true, Ordering::Relaxed);
            (recorded, watcher.join().unwrap_or_else(|_| Err(io::Error::other("a sender failed"))), turns)
        });
        if self.end.is_asked_for() {
            return Err(Error::Interrupted);
        }
        let (recorded, moment) = (recorded?, moment.map_err(Error::Datagrams)?);
        let writes = handle.status().writes;
        let Moment { sent, sender, digests, status } = moment;
        Ok(Seen {
            rate,
            length: length as u64,
            sent,
            came: recorded.heard.iter().flatten().map(|heard| heard.packets).sum(),
            lost: lost(&recorded),
            reason: recorded.certificate.reason,
            taken: status.progress.bytes_in,
            fill: status.progress.fill,
            buffer: status.buffer,
            chunk: self.args.chunk.into(),
            sockets: buffers,
            streams: self.streams.into(),
            high_water: recorded.certificate.high_water,
            writes,
            receiver,
            digests,
            sender,
        })
    }

    fn record(&self, sources: Vec<Source>, handle: &Handle) -> Result<Recorded, Error> {
        let device = &self.args.device;
        let (medium, _) = find(self.args)?;
        let file;
        let target = match medium {
            Medium::Far(far) => Target::Far(far),
            Medium::Device => Target::Path(device),
            Medium::NewFile(directory) => {
                file = beside(&directory).map_err(|error| Error::File { path: device.clone(), error })?;
                Target::Path(&file.1)
            }
        };
        let mut id = [0; 16];
        live::sys::entropy::system().fill(&mut id);
        let names = (0..self.streams).map(|stream| format!("datagrams {stream}")).collect();
        let config = Config {
            contents: sources.iter().map(Source::content).collect(),
            chunk: self.args.chunk,
            buffer: self.chunks,
            algorithm: self.args.datagrams.digest.into(),
            digests: Digests::World,
            ..Config::new(id, names)
        };
        let place = Place { targets: vec![target], overwrite: true };
        record(place, config, sources, Limits::default(), handle, |_| ())
            .map_err(|why| refused(std::slice::from_ref(device), why))
    }
}

/// Sends by half of the processors. Bytes under way are reported as they are when the last sender
/// has ended.
fn send(flood: &Flood, handle: &Handle, quit: &AtomicBool) -> io::Result<Moment> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let senders = (processors / 2).clamp(1, flood.to.len());
    let each = flood.to.len().div_ceil(senders);
    std::thread::scope(|scope| {
        let start = |to: &[std::net::SocketAddr]| -> io::Result<Sender<'_>> {
            let share = u128::from(flood.rate) * to.len() as u128 / flood.to.len() as u128;
            let rate = u64::try_from(share).unwrap_or(u64::MAX);
            let part = Flood { to: to.to_vec(), rate, ..flood.clone() };
            let work = move || part.send(quit).map(|sent| (sent, Turns::of_this_thread()));
            std::thread::Builder::new().name(SENDER.into()).spawn_scoped(scope, work)
        };
        let threads = flood.to.chunks(each).map(start).collect::<io::Result<Vec<_>>>()?;
        let (mut all, mut sender) = (Sent::default(), None);
        for thread in threads {
            let failed = |_| Err(io::Error::other("a sender failed"));
            let (sent, turns) = thread.join().unwrap_or_else(failed)?;
            all.datagrams += sent.datagrams;
            all.refused += sent.refused;
            all.time = all.time.max(sent.time);
            sender = busier(sender, turns);
        }
        let digests = Turns::of_threads(DIGESTS).into_iter().map(Some).fold(None, busier);
        Ok(Moment { sent: all, sender, digests, status: handle.status() })
    })
}

/// A thread that sends.
type Sender<'a> = ScopedJoinHandle<'a, io::Result<(Sent, Option<Turns>)>>;

fn busier(one: Option<Turns>, other: Option<Turns>) -> Option<Turns> {
    one.into_iter().chain(other).max_by_key(|turns| turns.ran + turns.waited)
}

fn lost(recorded: &Recorded) -> BTreeMap<&'static str, Lost> {
    let mut lost = BTreeMap::<_, Lost>::new();
    for gap in &recorded.gaps {
        let at = lost.entry(gap.place.word()).or_default();
        at.packets += gap.packets;
        at.bytes += gap.bytes;
    }
    lost
}

/// Number of bytes that a trial may record, for each byte of its datagrams, as a fraction.
pub(super) const fn recorded_per_byte(datagram: u64) -> (u64, u64) {
    (datagram + PACKET_HEAD as u64, datagram)
}
