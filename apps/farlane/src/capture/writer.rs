//! Writing what passes a port of ours to a pcapng file, while commands run.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use assemblies::watch::{self, Port, Seen};
use engine::{Instant, Watcher};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use trace::Direction;

use super::framing::header;
use crate::error::Error;

/// The most packets that wait for the file. What passes meanwhile is counted and not written.
const WAITING_MAX: usize = 16_384;
/// Time stamps count in units of 10 to the minus 9 seconds.
const NANOSECONDS: u8 = 9;

struct Packet {
    at: Instant,
    bytes: Vec<u8>,
}

/// A packet as a capture has it, with its header.
pub(super) fn framed(direction: watch::Direction, packet: &pcie::wire::Packet) -> Vec<u8> {
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

/// Watches a port, and hands what passes to the thread that writes.
struct Tap {
    packets: SyncSender<Packet>,
    lost: Rc<Cell<u64>>,
}

impl Watcher<Port> for Tap {
    fn on_seen(&mut self, now: Instant, seen: Seen<'_>) {
        let Seen::Packet { direction, packet, arrival } = seen else { return };
        let bytes = framed(direction, packet);
        let at = arrival.map_or(now, |arrival| arrival.at);
        if let Err(TrySendError::Full(_)) = self.packets.try_send(Packet { at, bytes }) {
            self.lost.set(self.lost.get() + 1);
        }
    }
}

/// A capture that is being written.
#[derive(Debug)]
pub(crate) struct Captured {
    thread: JoinHandle<io::Result<u64>>,
    lost: Rc<Cell<u64>>,
}

impl Captured {
    /// Waits until all is written; whatever was watched is gone by then. Returns how many packets
    /// were written and how many were lost, because the file could not keep up.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(crate) fn finish(self, path: &Path) -> Result<(u64, u64), Error> {
        let written = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let written = written.map_err(|error| Error::File { path: path.to_owned(), error })?;
        Ok((written, self.lost.get()))
    }
}

/// Begins to write a capture to a new file at `path`. What the returned watcher sees is written;
/// `now` is the time of its clock.
///
/// # Errors
/// When the file can't be made.
pub(crate) fn capture(path: &Path, now: Instant) -> Result<(impl Watcher<Port> + 'static, Captured), Error> {
    let fail = |error| Error::File { path: path.to_owned(), error };
    let mut writer = begin(File::create(path).map_err(fail)?).map_err(fail)?;
    let (packets, taken) = sync_channel::<Packet>(WAITING_MAX);
    // The engines' clock counts from boot; a capture's readers want the time of day.
    let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let start = day.saturating_sub(Duration::from_nanos(now.as_nanos()));
    let write = move || {
        let mut written = 0;
        for packet in taken {
            put(&mut writer, start + Duration::from_nanos(packet.at.as_nanos()), packet.bytes)?;
            written += 1;
        }
        writer.get_mut().flush()?;
        Ok(written)
    };
    let thread = std::thread::Builder::new().name("capture".into()).spawn(write).map_err(fail)?;
    let lost = Rc::new(Cell::new(0));
    Ok((Tap { packets, lost: lost.clone() }, Captured { thread, lost }))
}

pub(super) fn put(
    writer: &mut PcapNgWriter<BufWriter<File>>,
    timestamp: Duration,
    bytes: Vec<u8>,
) -> io::Result<()> {
    let block = EnhancedPacketBlock {
        interface_id: 0,
        timestamp,
        original_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        data: bytes.into(),
        options: Vec::new(),
    };
    writer.write_pcapng_block(block).map(drop).map_err(failed)
}

pub(super) fn begin(file: File) -> io::Result<PcapNgWriter<BufWriter<File>>> {
    let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(failed)?;
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::USER0,
        snaplen: 0,
        options: vec![
            InterfaceDescriptionOption::IfName("near port".into()),
            InterfaceDescriptionOption::IfDescription("PCIe packets, docs/trace.md".into()),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ],
    };
    writer.write_pcapng_block(interface).map_err(failed)?;
    Ok(writer)
}

fn failed(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
