//! Frames of pcap and pcapng files, one after the other: a file may be larger than memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use engine::Instant;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError};

use crate::error::Error;

/// Bytes of a file that are held at once; no block may be longer.
const BUFFER: usize = 1 << 20;
/// The most interfaces of a pcapng file.
const INTERFACES_MAX: usize = 4096;

/// A frame of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// When it was captured, since 1970.
    pub(crate) at: Instant,
    /// The link type of the interface.
    pub(crate) link: u32,
    /// The bytes that were captured.
    pub(crate) bytes: &'a [u8],
}

/// The frames of a file.
pub(crate) struct Reader {
    path: PathBuf,
    parser: Box<dyn PcapReaderIterator>,
    /// The link type of a pcap file, and the nanoseconds of a unit of its fractions.
    pcap: (u32, u64),
    /// Link type, units a second and offset in seconds of each interface of a pcapng file.
    interfaces: Vec<(u32, u64, i64)>,
    /// Bytes of the file before what is read next.
    offset: u64,
}

impl Reader {
    /// Opens the capture at `path`.
    ///
    /// # Errors
    /// When there is no such file, or it is neither pcap nor pcapng.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::File { path: path.to_owned(), error })?;
        if file.metadata().is_ok_and(|it| it.is_file() && it.len() == 0) {
            return Err(broken(path, 0, "the file is empty"));
        }
        let parser = pcap_parser::create_reader(BUFFER, file)
            .map_err(|_| broken(path, 0, "it begins neither as pcap nor as pcapng"))?;
        Ok(Self { path: path.to_owned(), parser, pcap: (0, 1), interfaces: Vec::new(), offset: 0 })
    }

    /// Shows each frame to `show`.
    ///
    /// # Errors
    /// When the file is malformed or ends within a block, with the offset where that is.
    pub(crate) fn each(&mut self, mut show: impl FnMut(Frame<'_>)) -> Result<(), Error> {
        loop {
            let next = match self.parser.next() {
                Ok((length, block)) => {
                    on_block(&block, &mut self.pcap, &mut self.interfaces, &mut show);
                    Next::Consume(length)
                }
                Err(PcapError::Eof) => return Ok(()),
                Err(PcapError::Incomplete(_)) => Next::Refill,
                Err(PcapError::UnexpectedEof) => return Err(self.broken(CUT)),
                Err(_) => return Err(self.broken("a block is malformed")),
            };
            match next {
                Next::Consume(length) => {
                    self.parser.consume(length);
                    self.offset += length as u64;
                }
                Next::Refill if self.parser.reader_exhausted() => return Err(self.broken(CUT)),
                Next::Refill => {
                    let before = self.parser.data().len();
                    if self.parser.refill().is_err() {
                        return Err(self.broken("it can't be read on"));
                    }
                    if self.parser.data().len() == before && !self.parser.reader_exhausted() {
                        return Err(self.broken("a block is longer than 1 MiB"));
                    }
                }
            }
        }
    }

    fn broken(&self, what: &'static str) -> Error {
        broken(&self.path, self.offset, what)
    }
}

/// Why a file that ends too early is malformed.
const CUT: &str = "the file ends within a block";

/// What is to be done before the next block.
enum Next {
    /// So many bytes have been read.
    Consume(usize),
    /// The next block needs more bytes of the file.
    Refill,
}

fn broken(path: &Path, offset: u64, what: &'static str) -> Error {
    Error::BrokenCapture { path: path.to_owned(), offset, what }
}

fn on_block(
    block: &PcapBlockOwned<'_>,
    pcap: &mut (u32, u64),
    interfaces: &mut Vec<(u32, u64, i64)>,
    show: &mut impl FnMut(Frame<'_>),
) {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let unit = if header.is_nanosecond_precision() { 1 } else { 1_000 };
            *pcap = (u32::try_from(header.network.0).unwrap_or(u32::MAX), unit);
        }
        PcapBlockOwned::Legacy(frame) => {
            let (link, unit) = *pcap;
            let nanos = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * unit;
            show(Frame { at: Instant::from_nanos(nanos), link, bytes: frame.data });
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            let units = interface.ts_resolution().unwrap_or(1_000_000).max(1);
            if interfaces.len() < INTERFACES_MAX {
                let link = u32::try_from(interface.linktype.0).unwrap_or(u32::MAX);
                interfaces.push((link, units, interface.if_tsoffset));
            }
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(frame)) => {
            let index = usize::try_from(frame.if_id).unwrap_or(usize::MAX);
            let Some((link, units, offset)) = interfaces.get(index).copied() else { return };
            let length = usize::try_from(frame.caplen).unwrap_or(usize::MAX);
            let bytes = frame.data.get(..length).unwrap_or(frame.data);
            let stamp = u64::from(frame.ts_high) << 32 | u64::from(frame.ts_low);
            show(Frame { at: instant(stamp, units, offset), link, bytes });
        }
        PcapBlockOwned::NG(_) => {}
    }
}

/// The time of a stamp in so many units a second.
fn instant(stamp: u64, units: u64, offset: i64) -> Instant {
    let nanos = u128::from(stamp) * 1_000_000_000 / u128::from(units);
    let nanos = i128::try_from(nanos).unwrap_or(i128::MAX) + i128::from(offset) * 1_000_000_000;
    Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A pcapng file with an interface and three frames.
    fn file() -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
            [&kind.to_le_bytes()[..], &length, body, &length].concat()
        };
        let section = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
        let interface = [147, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let frame = |at: u8| {
            let head = [0, 0, 0, 0, 0, 0, 0, 0, at, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0];
            [&head[..], &[at, 1, 2, 3]].concat()
        };
        let frames = [7, 8, 9].map(|at| block(6, &frame(at)));
        [block(0x0a0d_0d0a, &section), block(1, &interface), frames.concat()].concat()
    }

    /// The frames of a file with these bytes, and whether the file is well-formed.
    fn read(bytes: &[u8]) -> (Vec<(u64, u32, Vec<u8>)>, bool) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut frames = Vec::new();
        let Ok(mut reader) = Reader::open(file.path()) else { return (frames, false) };
        let read = reader.each(|frame| frames.push((frame.at.as_nanos(), frame.link, frame.bytes.to_vec())));
        (frames, read.is_ok())
    }

    #[test]
    fn frames_come_with_time_and_link_type() {
        let (frames, well_formed) = read(&file());
        assert!(well_formed);
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[0], (7, 147, vec![7, 1, 2, 3]));
    }

    #[test]
    fn a_cut_file_gives_what_is_before_the_cut() {
        let whole = file();
        for length in 0..whole.len() {
            let (frames, well_formed) = read(&whole[..length]);
            assert!(frames.len() <= 3 && frames.iter().zip(7..).all(|(frame, at)| frame.0 == at));
            let at_block = [28, 60, 96, 132].contains(&length);
            assert_eq!(well_formed, at_block, "{length}");
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_read_and_never_more() {
        let whole = file();
        for place in 0..whole.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[place] ^= change;
                assert!(read(&changed).0.len() <= 3, "{place} {change}");
            }
        }
    }
}
