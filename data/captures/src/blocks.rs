//! The blocks of pcapng and the records of pcap that are written: those that our files have.
//!
//! Both formats are described by drafts of the IETF's OPSAWG (draft-ietf-opsawg-pcapng and
//! draft-ietf-opsawg-pcap).

use std::io::{self, Write};

/// Types of blocks.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// The word from which readers determine the byte order of a section.
const ORDER: u32 = 0x1a2b_3c4d;
/// The length of a section of unknown length.
const UNKNOWN: [u8; 8] = [0xff; 8];
/// The word from which readers determine the byte order of a pcap file, and that times are
/// nanoseconds.
const NANOSECONDS_MAGIC: u32 = 0xa1b2_3c4d;
/// Time stamps count in units of 10 to the minus 9 seconds.
const NANOSECONDS: u8 = 9;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The order of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Little-endian.
    Little,
    /// Big-endian.
    Big,
}

impl Order {
    const fn short(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    const fn word(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    const fn long(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The two words of a time: the upper one comes first in either order.
    fn time(self, nanos: u64) -> [[u8; 4]; 2] {
        let word = |value: u64| self.word(u32::try_from(value & 0xffff_ffff).expect("32 bits"));
        [word(nanos >> 32), word(nanos)]
    }
}

/// An option of a block, besides its fixed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail<'a> {
    /// A comment, in any block (opt_comment).
    Comment(&'a str),
    /// The program that writes the section (shb_userappl).
    Application(&'a str),
    /// The name of an interface (if_name).
    Name(&'a str),
    /// The description of an interface (if_description).
    Description(&'a str),
    /// The times of an interface are nanoseconds (if_tsresol).
    Nanoseconds,
    /// Flags of a packet (epb_flags).
    Flags(u32),
    /// Packets that passed an interface (isb_ifrecv).
    Received(u64),
    /// Packets of these that were lost (isb_ifdrop).
    Dropped(u64),
}

impl Detail<'_> {
    fn put(self, order: Order, out: &mut Vec<u8>) {
        match self {
            Self::Comment(text) => put(1, cut(text), order, out),
            Self::Application(text) => put(4, cut(text), order, out),
            Self::Name(text) => put(2, cut(text), order, out),
            Self::Description(text) => put(3, cut(text), order, out),
            Self::Nanoseconds => put(9, &[NANOSECONDS], order, out),
            Self::Flags(flags) => put(2, &order.word(flags), order, out),
            Self::Received(count) => put(4, &order.long(count), order, out),
            Self::Dropped(count) => put(5, &order.long(count), order, out),
        }
    }
}

/// As much of a text as an option has room for.
fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(u16::MAX.into())]
}

fn put(code: u16, value: &[u8], order: Order, out: &mut Vec<u8>) {
    let length = u16::try_from(value.len()).expect("options are cut to 16 bits");
    out.extend(order.short(code));
    out.extend(order.short(length));
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A pcapng file of one section.
pub struct Blocks<W> {
    out: W,
    order: Order,
    /// Room for the details of a block.
    details: Vec<u8>,
}

impl<W: Write> Blocks<W> {
    /// Begins a file with this byte `order`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn begin(out: W, order: Order, details: &[Detail<'_>]) -> io::Result<Self> {
        let mut blocks = Self { out, order, details: Vec::new() };
        let [[a, b], [c, d]] = [order.short(1), order.short(0)];
        let fixed = [&order.word(ORDER)[..], &[a, b, c, d], &UNKNOWN].concat();
        blocks.block(SECTION, &fixed, &[], details)?;
        Ok(blocks)
    }

    /// Describes the next interface, whose frames have the link type `link`. Interfaces count from
    /// 0.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn interface(&mut self, link: u32, details: &[Detail<'_>]) -> io::Result<()> {
        let [a, b] = self.order.short(u16::try_from(link & 0xffff).expect("16 bits"));
        self.block(INTERFACE, &[a, b, 0, 0, 0, 0, 0, 0], &[], details)
    }

    /// Appends a frame of an `interface`, which passed at `nanos` and had `original` bytes.
    ///
    /// # Errors
    /// The system's, and when the frame is too long for a block.
    pub fn packet(
        &mut self,
        interface: u32,
        nanos: u64,
        bytes: &[u8],
        original: u32,
        details: &[Detail<'_>],
    ) -> io::Result<()> {
        let order = self.order;
        let [upper, lower] = order.time(nanos);
        let captured = order.word(length(bytes.len())?);
        let fixed = [order.word(interface), upper, lower, captured, order.word(original)];
        self.block(PACKET, fixed.as_flattened(), bytes, details)
    }

    /// Writes the statistics of an `interface` up to `nanos`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn statistics(&mut self, interface: u32, nanos: u64, details: &[Detail<'_>]) -> io::Result<()> {
        let [upper, lower] = self.order.time(nanos);
        let fixed = [self.order.word(interface), upper, lower];
        self.block(STATISTICS, fixed.as_flattened(), &[], details)
    }

    /// Hands on all that was written.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn block(&mut self, kind: u32, fixed: &[u8], data: &[u8], details: &[Detail<'_>]) -> io::Result<()> {
        self.details.clear();
        for detail in details {
            detail.put(self.order, &mut self.details);
        }
        if !details.is_empty() {
            // The end of the options.
            self.details.extend([0; 4]);
        }
        let padding = &[0; 3][..data.len().next_multiple_of(4) - data.len()];
        let whole = 12 + fixed.len() + data.len() + padding.len() + self.details.len();
        let whole = self.order.word(length(whole)?);
        let parts = [&self.order.word(kind)[..], &whole, fixed, data, padding, &self.details, &whole];
        parts.into_iter().try_for_each(|part| self.out.write_all(part))
    }
}

/// A big-endian pcap file with times in nanoseconds.
pub struct Records<W> {
    out: W,
}

impl<W: Write> Records<W> {
    /// Begins a file whose frames have the link type `link` and at most `longest` bytes.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn begin(mut out: W, link: u32, longest: u32) -> io::Result<Self> {
        // Version 2.4, and two words that are always 0.
        let words = [NANOSECONDS_MAGIC, 0x0002_0004, 0, 0, longest, link];
        out.write_all(words.map(u32::to_be_bytes).as_flattened())?;
        Ok(Self { out })
    }

    /// Appends a whole frame that passed at `nanos` since 1970.
    ///
    /// # Errors
    /// The system's, and when the time or the length has no room.
    pub fn packet(&mut self, nanos: u64, bytes: &[u8]) -> io::Result<()> {
        let late = |_| io::Error::other("a time after February 2106 has no room in pcap; pcapng has it");
        let seconds = u32::try_from(nanos / NANOS_PER_SECOND).map_err(late)?;
        let rest = u32::try_from(nanos % NANOS_PER_SECOND).expect("less than a second");
        let length = length(bytes.len())?;
        self.out.write_all([seconds, rest, length, length].map(u32::to_be_bytes).as_flattened())?;
        self.out.write_all(bytes)
    }

    /// Hands on all that was written.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(|_| io::Error::other(format!("{bytes} bytes have no room in a block")))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use crate::{Item, Reader, Tally};

    use super::*;

    const AT: u64 = 1_800_000_000_123_456_789;

    // The same calls of pcap-file 2.0 have written these.
    const LITTLE: &str = "0a0d0d0a1c0000004d3c2b1a01000000ffffffffffffffff1c000000010000003c00000093000000\
        0000000002000400706f7274030004005043496509000100090000000100060061206e6f74650000\
        000000003c00000006000000280000000000000076e2fa1815cd0f9b050000000900000066697665\
        210000002800000005000000340000000000000076e2fa1815cd0f9b040008000300000000000000\
        0500080002000000000000000000000034000000";
    const BIG: &str = "0a0d0d0a0000002c1a2b3c4d00010000ffffffffffffffff000400076661726c616e650000000000\
        0000002c000000010000002800010000000000000002000465746830000900010900000000000000\
        0000002800000006000000380000000018fae2769b0fcd150000000400000004666f757200020004\
        0000000200010003637574000000000000000038";
    const PCAP: &str = "a1b23c4d00020004000000000000000000001000000000016b49d200075bcd150000000500000005\
        6669766521";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn little(bytes: &[u8], note: &str) -> Vec<u8> {
        let mut blocks = Blocks::begin(Vec::new(), Order::Little, &[]).unwrap();
        let note = Detail::Comment(note);
        let details = [Detail::Name("port"), Detail::Description("PCIe"), Detail::Nanoseconds, note];
        blocks.interface(147, &details).unwrap();
        blocks.packet(0, AT, bytes, 9, &[]).unwrap();
        blocks.statistics(0, AT, &[Detail::Received(3), Detail::Dropped(2)]).unwrap();
        blocks.out
    }

    fn big(bytes: &[u8], comment: &str) -> Vec<u8> {
        let mut blocks = Blocks::begin(Vec::new(), Order::Big, &[Detail::Application("farlane")]).unwrap();
        blocks.interface(1, &[Detail::Name("eth0"), Detail::Nanoseconds]).unwrap();
        let details = [Detail::Flags(2), Detail::Comment(comment)];
        blocks.packet(0, AT, bytes, length(bytes.len()).unwrap(), &details).unwrap();
        blocks.out
    }

    fn pcap(bytes: &[u8]) -> Vec<u8> {
        let mut records = Records::begin(Vec::new(), 1, 4096).unwrap();
        records.packet(AT, bytes).unwrap();
        records.out
    }

    /// A frame's link type, its time, its bytes, and how many it had.
    type Found = (u32, u64, Vec<u8>, usize);

    /// The content of a file by a reader: its frames, its notes and the sum of its tallies.
    fn read(file: Vec<u8>) -> (Vec<Found>, Vec<String>, Tally) {
        let (mut frames, mut notes, mut sum) = (Vec::new(), Vec::new(), Tally::default());
        let mut reader = Reader::of(Cursor::new(file), Path::new("written")).unwrap();
        let read = reader.each_item(|item| {
            match item {
                Item::Frame(frame) => {
                    frames.push((frame.link, frame.at.as_nanos(), frame.bytes.to_vec(), frame.original));
                }
                Item::Note(note) => notes.push(note.to_owned()),
                Item::Tally(tally) => {
                    sum = Tally { seen: sum.seen + tally.seen, lost: sum.lost + tally.lost };
                }
                Item::Waits => {}
                Item::Foreign => panic!("a packet is no frame"),
            }
            true
        });
        read.unwrap();
        (frames, notes, sum)
    }

    #[test]
    fn files_are_those_of_the_library_before() {
        assert_eq!(hex(&little(b"five!", "a note")), LITTLE);
        assert_eq!(hex(&big(b"four", "cut")), BIG);
        assert_eq!(hex(&pcap(b"five!")), PCAP);
    }

    #[test]
    fn a_reader_finds_written_items_of_any_length() {
        for count in 0..20 {
            let bytes: Vec<u8> = (0..count).collect();
            let text = "n".repeat(count.into());
            let (frames, notes, tally) = read(little(&bytes, &text));
            assert_eq!(frames, [(147, AT, bytes.clone(), 9)]);
            assert_eq!((notes, tally), (vec![text.clone()], Tally { seen: 3, lost: 2 }));
            for file in [big(&bytes, &text), pcap(&bytes)] {
                assert_eq!(read(file).0, [(1, AT, bytes.clone(), bytes.len())]);
            }
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_letters() {
        let (_, notes, _) = read(little(b"five!", &"\u{e4}".repeat(40_000)));
        assert_eq!(notes, ["\u{e4}".repeat(32_767)]);
    }

    #[test]
    fn a_time_that_pcap_can_not_say_is_refused() {
        let mut records = Records::begin(Vec::new(), 1, 4096).unwrap();
        records.packet((1 << 32) * NANOS_PER_SECOND - 1, b"last").unwrap();
        let error = records.packet((1 << 32) * NANOS_PER_SECOND, b"late").unwrap_err();
        assert!(error.to_string().contains("pcapng"), "{error}");
    }
}
