//! Frames of pcap and pcapng files, one after the other: a file may be larger than memory.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use engine::Instant;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError};

use crate::Error;
use crate::units::{BadOption, Units};

/// Bytes of a file that are held at once; no block may be longer.
const BUFFER: usize = 1 << 20;
/// The most interfaces of a section of a pcapng file.
const INTERFACES_MAX: usize = 4096;
/// The type of the obsolete Packet Block, in both orders of bytes.
const PACKET_BLOCK: [u32; 2] = [2, 2_u32.swap_bytes()];
/// The bits of a pcap file's field «network» that are the link type.
const PCAP_LINK: u32 = 0x03ff_ffff;
/// The most bytes of a file that describe its sections and interfaces.
const PREAMBLES_MAX: usize = 16 << 20;

/// Counts of a port's captured and lost packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that passed, the lost ones among them.
    pub seen: u64,
    /// Packets that found no room.
    pub lost: u64,
}

impl Tally {
    /// Packets that were not lost.
    pub const fn written(&self) -> u64 {
        self.seen.saturating_sub(self.lost)
    }

    /// The part of this tally beyond `before`.
    const fn since(self, before: Self) -> Self {
        let (seen, lost) = (self.seen.saturating_sub(before.seen), self.lost.saturating_sub(before.lost));
        Self { seen, lost }
    }

    /// The larger counts of both.
    fn max(self, other: Self) -> Self {
        Self { seen: self.seen.max(other.seen), lost: self.lost.max(other.lost) }
    }
}

/// A frame of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its number among the frames of the file, from 0. A packet that is not a frame here
    /// ([`Item::Foreign`]) has none: where a file has such packets, a program that numbers them,
    /// too, has a higher number for the frames behind them.
    pub number: u64,

    /// Its position in the file.
    pub place: Place,
    /// When it was captured, since 1970.
    pub at: Instant,
    /// The link type of the interface.
    pub link: u32,
    /// The bytes that were captured.
    pub bytes: &'a [u8],
    /// Bytes that the frame had.
    pub original: usize,
}

/// Something that a capture has.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// A packet that is no frame here: its block has no time, or its interface is not known.
    Foreign,
    /// A comment of an interface: information besides the frames.
    Note(&'a str),
    /// The file has no more data yet.
    Waits,
    /// The counts of an interface's statistics for captured and lost packets, since the previous
    /// ones. The sum of all tallies is that of the capture.
    Tally(Tally),
}

/// Where in a file a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes of the file before its block.
    pub offset: u64,
    /// The range of the file's preambles that are needed to decode the block.
    preamble: (u32, u32),
}

/// An interface of a pcapng file.
struct Interface {
    /// Its link type.
    link: u32,
    /// The units of its time stamps.
    units: Units,
    /// The totals of its statistics so far: they count from the beginning of the capture.
    reported: Tally,
}

/// The frames of a file.
pub struct Reader {
    path: PathBuf,
    parser: Box<dyn PcapReaderIterator + Send>,
    /// The link type of a pcap file, and the nanoseconds of a unit of its fractions.
    pcap: (u32, u64),
    /// The interfaces of this section of a pcapng file.
    interfaces: Vec<Interface>,
    /// Position in the file of the next block, in bytes.
    offset: u64,
    /// Number of frames before the next block.
    number: u64,
    /// The blocks so far that describe sections and interfaces.
    preambles: Vec<u8>,
    /// Where the description of the section begins in these.
    section: usize,
}

impl Reader {
    /// Opens the capture at `path`.
    ///
    /// # Errors
    /// When the file does not exist, or is neither pcap nor pcapng.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::File { path: path.to_owned(), error })?;
        if file.metadata().is_ok_and(|it| it.is_file() && it.len() == 0) {
            return Err(broken(path, 0, "the file is empty"));
        }
        Self::of(file, path)
    }

    /// Reads the capture that `file` has; `path` is its name.
    ///
    /// # Errors
    /// When it is neither pcap nor pcapng.
    pub fn of(file: impl Read + Send + 'static, path: &Path) -> Result<Self, Error> {
        let parser = pcap_parser::create_reader(BUFFER, file)
            .map_err(|_| broken(path, 0, "it begins neither as pcap nor as pcapng"))?;
        Ok(Self::new(path, parser))
    }

    fn new(path: &Path, parser: Box<dyn PcapReaderIterator + Send>) -> Self {
        Self {
            path: path.to_owned(),
            parser,
            pcap: (0, 1),
            interfaces: Vec::new(),
            offset: 0,
            number: 0,
            preambles: Vec::new(),
            section: 0,
        }
    }

    /// Opens the capture at `path` at the frame with this number and this position. `preambles` are
    /// those of the reader that found the position.
    ///
    /// # Errors
    /// When the file no longer exists, or has changed.
    pub fn resume(path: &Path, preambles: &[u8], number: u64, place: Place) -> Result<Self, Error> {
        let fail = |error| Error::File { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(fail)?;
        file.seek(SeekFrom::Start(place.offset)).map_err(fail)?;
        let (from, to) = place.preamble;
        let preamble = preambles.get(from as usize..to as usize).unwrap_or_default().to_vec();
        let length = preamble.len() as u64;
        let parser = pcap_parser::create_reader(BUFFER, Cursor::new(preamble).chain(file));
        let parser = parser.map_err(|_| broken(path, place.offset, "the file has changed"))?;
        let mut reader = Self::new(path, parser);
        (reader.offset, reader.number) = (place.offset.saturating_sub(length), number);
        Ok(reader)
    }

    /// The blocks so far that describe sections and interfaces, for [`Reader::resume`].
    pub fn into_preambles(self) -> Vec<u8> {
        self.preambles
    }

    /// Shows each frame to `show`.
    ///
    /// # Errors
    /// When the file is malformed or ends within a block, with the offset where that is.
    pub fn each(&mut self, mut show: impl FnMut(Frame<'_>)) -> Result<(), Error> {
        self.each_while(|frame| {
            show(frame);
            true
        })
    }

    /// Shows each frame to `show`, as long as it returns true.
    ///
    /// # Errors
    /// Those of [`Reader::each`].
    pub fn each_while(&mut self, mut show: impl FnMut(Frame<'_>) -> bool) -> Result<(), Error> {
        self.each_item(|item| match item {
            Item::Frame(frame) => show(frame),
            Item::Foreign | Item::Note(_) | Item::Waits | Item::Tally(_) => true,
        })
    }

    /// Shows each frame, note and tally to `show`, as long as it returns true of frames.
    ///
    /// # Errors
    /// Those of [`Reader::each`].
    pub fn each_item(&mut self, mut show: impl FnMut(Item<'_>) -> bool) -> Result<(), Error> {
        while self.read_on(&mut show)? {}
        Ok(())
    }

    /// Reads the next block, and passes its items to `show`. Returns false at the end of the file,
    /// or when `show` has returned false for a frame.
    ///
    /// # Errors
    /// Those of [`Reader::each`].
    pub fn read_on(&mut self, mut show: impl FnMut(Item<'_>) -> bool) -> Result<bool, Error> {
        let end = u32::try_from(self.preambles.len()).unwrap_or(u32::MAX);
        let start = u32::try_from(self.section).unwrap_or(u32::MAX);
        let place = Place { offset: self.offset, preamble: (start, end) };
        let next = match self.parser.next() {
            Ok((length, block)) => match on_block(&block, &mut self.pcap, &mut self.interfaces) {
                Found::Frame(at, link, bytes, original) => {
                    let number = self.number;
                    self.number += 1;
                    if !show(Item::Frame(Frame { number, place, at, link, bytes, original })) {
                        return Ok(false);
                    }
                    Next::Consume(length)
                }
                Found::Section => Next::Keep(length, true),
                Found::Interface => {
                    for note in notes_of(&block) {
                        show(Item::Note(note));
                    }
                    Next::Keep(length, false)
                }
                Found::Tally(tally) => {
                    show(Item::Tally(tally));
                    Next::Consume(length)
                }
                Found::Foreign => {
                    show(Item::Foreign);
                    Next::Consume(length)
                }
                Found::Nothing => Next::Consume(length),
                Found::Bad(option) => return Err(self.broken(option.to_string())),
                Found::Timeless => {
                    return Err(self.broken("the time of a packet lies before 1970 or after 2554"));
                }
            },
            Err(PcapError::Eof) => return Ok(false),
            Err(PcapError::Incomplete(_)) => Next::Refill,
            Err(PcapError::UnexpectedEof) => return Err(self.broken(CUT)),
            Err(_) => return Err(self.broken("a block is malformed")),
        };
        match next {
            Next::Keep(length, is_section) => {
                let block = self.parser.data().get(..length).unwrap_or_default();
                if self.preambles.len() + block.len() > PREAMBLES_MAX {
                    return Err(self.broken("more than 16 MiB describe sections and interfaces"));
                }
                self.section = if is_section { self.preambles.len() } else { self.section };
                self.preambles.extend_from_slice(block);
                self.parser.consume(length);
                self.offset += length as u64;
            }
            Next::Consume(length) => {
                self.parser.consume(length);
                self.offset += length as u64;
            }
            Next::Refill if self.parser.reader_exhausted() => return Err(self.broken(CUT)),
            Next::Refill => {
                show(Item::Waits);
                let before = self.parser.data().len();
                if self.parser.refill().is_err() {
                    return Err(self.broken("it can't be read on"));
                }
                if self.parser.data().len() == before && !self.parser.reader_exhausted() {
                    return Err(self.broken("a block is longer than 1 MiB"));
                }
            }
        }
        Ok(true)
    }

    fn broken(&self, what: impl Into<Cow<'static, str>>) -> Error {
        broken(&self.path, self.offset, what)
    }
}

/// Why a file that ends too early is malformed.
const CUT: &str = "the file ends within a block";

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, number, .. } = self;
        f.debug_struct("Reader")
            .field("path", path)
            .field("offset", offset)
            .field("number", number)
            .finish_non_exhaustive()
    }
}

/// The action before the next block.
enum Next {
    /// This many bytes were read.
    Consume(usize),
    /// This many bytes were read that describe later frames, and whether a section begins with
    /// them.
    Keep(usize, bool),
    /// The next block needs more bytes of the file.
    Refill,
}

fn broken(path: &Path, offset: u64, what: impl Into<Cow<'static, str>>) -> Error {
    Error::Broken { path: path.to_owned(), offset, what: what.into() }
}

/// The content of a block.
enum Found<'a> {
    /// A frame: its time, the link type of its interface, its bytes, and its original length.
    Frame(Instant, u32, &'a [u8], usize),
    /// A packet without a time, or of an interface that is not known.
    Foreign,
    /// Counts of captured and lost packets.
    Tally(Tally),
    /// The beginning of a section or a file.
    Section,
    /// The description of an interface.
    Interface,
    /// No relevant content.
    Nothing,
    /// An unsupported option that affects the meaning of times.
    Bad(BadOption),
    /// A packet with an invalid time.
    Timeless,
}

fn on_block<'a>(
    block: &'a PcapBlockOwned<'_>,
    pcap: &mut (u32, u64),
    interfaces: &mut Vec<Interface>,
) -> Found<'a> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let unit = if header.is_nanosecond_precision() { 1 } else { 1_000 };
            // The length of frame check sequences is above the link type, if it is known.
            *pcap = (header.network.0.cast_unsigned() & PCAP_LINK, unit);
            Found::Section
        }
        PcapBlockOwned::Legacy(frame) => {
            let (link, unit) = *pcap;
            let nanos = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * unit;
            let original = usize::try_from(frame.origlen).unwrap_or(usize::MAX);
            Found::Frame(Instant::from_nanos(nanos), link, frame.data, original)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            Found::Section
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            let units = match Units::of(&interface.options, interface.if_tsoffset) {
                Ok(units) => units,
                Err(bad) => return Found::Bad(bad),
            };
            if interfaces.len() >= INTERFACES_MAX {
                return Found::Nothing;
            }
            let link = u32::try_from(interface.linktype.0).unwrap_or(u32::MAX);
            interfaces.push(Interface { link, units, reported: Tally::default() });
            Found::Interface
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(frame)) => {
            let index = usize::try_from(frame.if_id).unwrap_or(usize::MAX);
            let Some(&Interface { link, units, .. }) = interfaces.get(index) else {
                return Found::Foreign;
            };
            let length = usize::try_from(frame.caplen).unwrap_or(usize::MAX);
            let bytes = frame.data.get(..length).unwrap_or(frame.data);
            let stamp = u64::from(frame.ts_high) << 32 | u64::from(frame.ts_low);
            let original = usize::try_from(frame.origlen).unwrap_or(usize::MAX);
            units.instant(stamp).map_or(Found::Timeless, |at| Found::Frame(at, link, bytes, original))
        }
        PcapBlockOwned::NG(Block::InterfaceStatistics(statistics)) => {
            let count = |of: Option<Result<u64, _>>| of.and_then(Result::ok);
            let Some(lost) = count(statistics.isb_ifdrop()) else { return Found::Nothing };
            let tally = Tally { seen: count(statistics.isb_ifrecv()).unwrap_or(lost), lost };
            let index = usize::try_from(statistics.if_id).unwrap_or(usize::MAX);
            Found::Tally(interfaces.get_mut(index).map_or(tally, |interface| {
                let before = interface.reported;
                interface.reported = before.max(tally);
                tally.since(before)
            }))
        }
        PcapBlockOwned::NG(Block::SimplePacket(_)) => Found::Foreign,
        PcapBlockOwned::NG(Block::Unknown(block)) if PACKET_BLOCK.contains(&block.block_type) => {
            Found::Foreign
        }
        PcapBlockOwned::NG(_) => Found::Nothing,
    }
}

/// The comments of an interface.
fn notes_of<'a>(block: &'a PcapBlockOwned<'_>) -> impl Iterator<Item = &'a str> {
    let options = match block {
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => interface.options.as_slice(),
        _ => &[],
    };
    options
        .iter()
        .filter(|option| option.code == OptionCode::Comment)
        .filter_map(|option| option.as_str().ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    }

    /// A pcapng file with an interface and three frames.
    fn file() -> Vec<u8> {
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
    fn packets_that_are_not_frames_are_reported() {
        let simple = block(3, &[4, 0, 0, 0, 1, 2, 3, 4]);
        let obsolete = block(2, &[0; 24]);
        let of_no_interface = block(6, &[&[7_u8][..], &[0; 11], &[4, 0, 0, 0, 4, 0, 0, 0], &[1; 4]].concat());
        let bytes = [file(), simple, obsolete, of_no_interface].concat();
        let mut reader = Reader::of(Cursor::new(bytes), Path::new("packets")).unwrap();
        let (mut frames, mut foreign) = (0, 0);
        let read = reader.each_item(|item| {
            frames += u32::from(matches!(item, Item::Frame(_)));
            foreign += u32::from(matches!(item, Item::Foreign));
            true
        });
        read.unwrap();
        assert_eq!((frames, foreign), (3, 3));
    }

    #[test]
    fn statistics_of_an_interface_count_from_its_beginning() {
        // isb_ifrecv and isb_ifdrop.
        let statistics = |interface: u8, seen: u8, lost: u8| {
            let head = [&[interface][..], &[0; 11]].concat();
            let option = |code: u8, count: u8| [&[code, 0, 8, 0, count][..], &[0; 7]].concat();
            block(5, &[head, option(4, seen), option(5, lost), vec![0; 4]].concat())
        };
        let other = block(1, &[147, 0, 0, 0, 0, 0, 0, 0]);
        let section = [
            file(),
            other,
            statistics(0, 4, 1),
            statistics(1, 7, 2),
            statistics(0, 9, 3),
            // A restarted program does not reduce the counts.
            statistics(0, 2, 0),
        ];
        let bytes = [section.concat(), file(), statistics(0, 5, 1)].concat();
        let mut reader = Reader::of(Cursor::new(bytes), Path::new("statistics")).unwrap();
        let mut tallies = Vec::new();
        let read = reader.each_item(|item| {
            if let Item::Tally(tally) = item {
                tallies.push((tally.seen, tally.lost));
            }
            true
        });
        read.unwrap();
        assert_eq!(tallies, [(4, 1), (7, 2), (5, 2), (0, 0), (5, 1)]);
    }

    #[test]
    fn a_reader_goes_on_at_the_place_of_each_frame() {
        let (one, two) = (file(), file());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[one, two].concat()).unwrap();
        let mut frames = Vec::new();
        let mut reader = Reader::open(file.path()).unwrap();
        reader.each(|frame| frames.push((frame.number, frame.place, frame.bytes.to_vec()))).unwrap();
        let preambles = reader.into_preambles();
        assert_eq!(frames.len(), 6);
        for (number, place, bytes) in &frames {
            let mut found = Vec::new();
            let mut reader = Reader::resume(file.path(), &preambles, *number, *place).unwrap();
            reader
                .each_while(|frame| {
                    found.push((frame.number, frame.place.offset, frame.link, frame.bytes.to_vec()));
                    found.len() < 2
                })
                .unwrap();
            assert_eq!(found[0], (*number, place.offset, 147, bytes.clone()));
            assert_eq!(found.len(), 2.min(6 - usize::try_from(*number).unwrap()));
        }
    }

    #[test]
    fn a_truncated_file_yields_the_part_before_the_cut() {
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
