//! Packets in the rows of a table, as exported by hardware analysers (CSV). Each vendor has columns
//! of its own, so the user names them.

use std::str::FromStr;

use engine::Instant;
use pcie::wire::{
    Bdf, Completion, CompletionStatus, ConfigRequest, ConfigType, Head, Header, Kind, MemoryOperation, Tag,
};
use trace::{Direction, Seen};

use crate::Error;
use crate::lines::Lines;

/// The most characters of a table's first line that an error shows.
const FIRST_MAX: usize = 300;
/// The bytes of a page, which no memory request crosses.
const PAGE: u64 = 4096;
/// The kinds of columns.
const KEYS: [&str; 12] = [
    "time",
    "direction",
    "tlp",
    "type",
    "requester",
    "completer",
    "tag",
    "address",
    "length",
    "count",
    "status",
    "data",
];

/// The columns of a table by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The name of the column of each of [`KEYS`], if the table has it.
    names: [Option<String>; KEYS.len()],
    /// Picoseconds of a unit of time, if a time has no unit.
    picoseconds: u64,
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns = Self { names: Default::default(), picoseconds: 1_000_000_000_000 };
        for part in text.split(',') {
            let (key, name) = part.split_once('=').ok_or_else(|| format!("{part:?}: expected KEY=COLUMN"))?;
            let index = KEYS.iter().position(|known| *known == key.trim());
            let index = index.ok_or_else(|| format!("{key}: expected one of {}", KEYS.join(", ")))?;
            if columns.names[index].is_some() {
                return Err(format!("{key} is given twice; give it one column"));
            }
            let name = match name.rsplit_once(':').filter(|_| index == 0) {
                Some((name, unit)) => {
                    let unit = unit.trim();
                    columns.picoseconds = picoseconds(unit)
                        .ok_or_else(|| format!("{unit}: expected s, ms, us, ns or ps as the unit of time"))?;
                    name
                }
                None => name,
            };
            columns.names[index] = Some(name.trim().to_owned());
        }
        let has =
            |key: &str| KEYS.iter().zip(&columns.names).any(|(known, name)| *known == key && name.is_some());
        if !has("time") || !(has("tlp") || has("type")) {
            return Err("expected time=COLUMN, and tlp=COLUMN (bytes) or type=COLUMN (words)".to_owned());
        }
        Ok(columns)
    }
}

fn picoseconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "s" | "sec" => 1_000_000_000_000,
        "ms" => 1_000_000_000,
        "us" | "µs" => 1_000_000,
        "ns" => 1_000,
        "ps" => 1,
        _ => return None,
    })
}

/// The content of a row.
pub(crate) enum Row<'a> {
    Packet(Seen<'a>),
    /// Other content: link maintenance, or text of the vendor.
    Foreign,
    Malformed,
}

/// The places of [`KEYS`] in a row.
type Places = [Option<usize>; KEYS.len()];

/// The rows of a table.
#[derive(Debug)]
pub(crate) struct Rows {
    lines: Lines,
    columns: Columns,
    /// Where the columns are, once the head was found.
    places: Option<Places>,
    /// The first line, for the error message if there is no head.
    first: Option<String>,
}

impl Rows {
    /// The rows of a table with these lines.
    pub(crate) fn of(lines: Lines, columns: &Columns) -> Self {
        Self { lines, columns: columns.clone(), places: None, first: None }
    }

    /// Reads the next line, and passes its content to `show`. The first line that has all the named
    /// columns is the head; lines before it are skipped. Returns false once there is no further
    /// line.
    ///
    /// # Errors
    /// Errors of the system; at the end, a missing head.
    pub(crate) fn read_on(&mut self, mut show: impl FnMut(Row<'_>)) -> Result<bool, Error> {
        let Some(line) = self.lines.read_on()? else {
            return if self.places.is_some() { Ok(false) } else { Err(self.no_column()) };
        };
        let cells = cells(&line);
        match &self.places {
            Some(_) if line.is_empty() => {}
            Some(places) => row(&self.columns, places, &cells, &mut show),
            None => {
                self.first.get_or_insert_with(|| cells.join(", "));
                self.places = find(&self.columns, &cells).ok();
            }
        }
        Ok(true)
    }

    /// The error that no line has all the columns.
    fn no_column(&self) -> Error {
        let there = self.first.as_deref().unwrap_or_default();
        let name = self.columns.names.iter().flatten().find(|name| !there.contains(name.as_str()));
        Error::NoColumn {
            path: self.lines.path().to_owned(),
            name: name.cloned().unwrap_or_default(),
            there: there.chars().take(FIRST_MAX).collect(),
        }
    }
}

/// The place of each column in the table's head.
fn find(columns: &Columns, head: &[String]) -> Result<Places, ()> {
    let mut places = [None; KEYS.len()];
    for (place, name) in places.iter_mut().zip(&columns.names) {
        if let Some(name) = name {
            *place = Some(head.iter().position(|cell| cell.eq_ignore_ascii_case(name)).ok_or(())?);
        }
    }
    Ok(places)
}

/// The cells of a line (RFC 4180, without cells that continue in the next line).
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.trim_end().chars().peekable();
    while let Some(one) = characters.next() {
        match one {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' | ';' | '\t' if !is_quoted => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            other => cell.push(other),
        }
    }
    cells.push(cell.trim().to_owned());
    cells
}

fn row(columns: &Columns, places: &Places, cells: &[String], show: &mut impl FnMut(Row<'_>)) {
    let cell = |key: &str| {
        let index = KEYS.iter().position(|known| *known == key)?;
        cells.get(places[index]?).map(String::as_str).filter(|cell| !cell.is_empty())
    };
    let (Some(at), Some(what)) =
        (cell("time").and_then(|text| time(text, columns.picoseconds)), cell("tlp").or(cell("type")))
    else {
        return show(Row::Foreign);
    };
    let direction = cell("direction").and_then(way);
    if cell("tlp").is_some() {
        let bytes = hex(what).unwrap_or_default();
        let Ok(head) = Head::parse(&bytes) else { return show(Row::Malformed) };
        let payload = bytes.get(head.encoded_len()..).unwrap_or_default();
        let payload = &payload[..payload.len().min(head.header.payload_len())];
        return packet(at, direction, &head.header, payload, show);
    }
    let payload = cell("data").and_then(hex).unwrap_or_default();
    match kind(what) {
        None => show(Row::Foreign),
        Some(kind) => match header(kind, &cell, &payload) {
            Some(header) => {
                packet(at, direction, &header, &payload[..payload.len().min(header.payload_len())], show)
            }
            None => show(Row::Malformed),
        },
    }
}

fn packet(
    at: Instant,
    direction: Option<Direction>,
    header: &Header,
    payload: &[u8],
    show: &mut impl FnMut(Row<'_>),
) {
    let direction = direction.unwrap_or_else(|| Direction::guess(header));
    show(Row::Packet(Seen { number: 0, at, direction, header, payload }));
}

/// The kinds of packets that are understood from words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Memory(MemoryOperation),
    Completion { has_data: bool },
    Config { is_write: bool },
}

fn kind(text: &str) -> Option<Named> {
    let text = text.to_ascii_lowercase();
    let name = text.split(|one: char| !one.is_ascii_alphanumeric()).find(|part| !part.is_empty())?;
    let name = name.trim_end_matches(|one: char| one.is_ascii_digit());
    Some(match name {
        "mrd" => Named::Memory(MemoryOperation::Read),
        "mwr" => Named::Memory(MemoryOperation::Write),
        "cpld" => Named::Completion { has_data: true },
        "cpl" => Named::Completion { has_data: false },
        "cfgrd" => Named::Config { is_write: false },
        "cfgwr" => Named::Config { is_write: true },
        _ => return None,
    })
}

/// A header from the words of a row.
fn header<'a>(kind: Named, cell: &impl Fn(&str) -> Option<&'a str>, payload: &[u8]) -> Option<Header> {
    let requester = cell("requester").and_then(function).unwrap_or_default();
    let tag = Tag::new(cell("tag").and_then(number).and_then(|tag| u16::try_from(tag).ok()).unwrap_or(0));
    let dwords = cell("length").and_then(number).and_then(|length| u16::try_from(length).ok());
    let dwords = dwords.or(u16::try_from(payload.len() / 4).ok()).filter(|dwords| *dwords <= 1024)?;
    match kind {
        Named::Memory(operation) => {
            let (address, length) = (number(cell("address")?)?, u32::from(dwords) * 4);
            let fits = address % PAGE + u64::from(length) <= PAGE && length > 0;
            fits.then(|| Header::memory(operation, requester, tag, address, length))
        }
        Named::Completion { has_data } => {
            let bytes = dwords.saturating_mul(4);
            let count = cell("count").and_then(number).and_then(|count| u16::try_from(count).ok());
            let status = match cell("status").map(|status| status.to_ascii_lowercase()) {
                None => CompletionStatus::Success,
                Some(status) if status.starts_with("sc") || status.starts_with("succ") || status == "0" => {
                    CompletionStatus::Success
                }
                Some(status) if status.starts_with("ca") || status == "4" => CompletionStatus::CompleterAbort,
                Some(status) if status.starts_with("c") || status == "2" => {
                    CompletionStatus::ConfigRequestRetry
                }
                Some(_) => CompletionStatus::UnsupportedRequest,
            };
            let completion = Completion {
                completer: cell("completer").and_then(function).unwrap_or_default(),
                status,
                byte_count_modified: false,
                byte_count: count.unwrap_or(bytes).clamp(1, Completion::BYTE_COUNT_MAX),
                requester,
                tag,
                lower_address: 0,
                data: has_data,
                locked: false,
            };
            Some(Header::new(Kind::Completion(completion), if has_data { dwords } else { 0 }))
        }
        Named::Config { is_write } => {
            let offset = u16::try_from(number(cell("address")?)?).ok().filter(|offset| *offset < 4096)?;
            let request = ConfigRequest {
                write: is_write,
                routing: ConfigType::Type0,
                requester,
                tag,
                enables: 0xf,
                target: cell("completer").and_then(function).unwrap_or_default(),
                offset: offset - offset % 4,
            };
            Some(Header::new(Kind::Config(request), 1))
        }
    }
}

/// A time in units of `picoseconds`, or in the unit behind it. Groups of digits may have spaces.
fn time(text: &str, picoseconds_of: u64) -> Option<Instant> {
    let digits = |one: char| one.is_ascii_digit() || matches!(one, '.' | ' ' | '_' | '\'');
    let end = text.find(|one| !digits(one)).unwrap_or(text.len());
    let unit = match text[end..].trim() {
        "" => picoseconds_of,
        unit => picoseconds(unit)?,
    };
    let number: String = text[..end].chars().filter(|one| one.is_ascii_digit() || *one == '.').collect();
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let fraction = &fraction[..fraction.len().min(12)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let whole: u128 = whole.parse().ok()?;
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let units = whole.checked_mul(scale)?.checked_add(part)?;
    let nanos = units.checked_mul(u128::from(unit))? / scale / 1_000;
    u64::try_from(nanos).ok().map(Instant::from_nanos)
}

fn way(text: &str) -> Option<Direction> {
    let text = text.to_ascii_lowercase();
    match text.as_str() {
        "<-" | "device" => Some(Direction::Up),
        "->" | "host" => Some(Direction::Down),
        _ if text.starts_with('u') => Some(Direction::Up),
        _ if text.starts_with('d') => Some(Direction::Down),
        _ => None,
    }
}

/// Bytes in hexadecimal digits, with or without spaces and prefixes.
fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .split_whitespace()
        .flat_map(|word| word.trim_start_matches("0x").chars())
        .filter(|one| !matches!(one, '_' | '-' | ':'))
        .map(|one| one.to_digit(16))
        .collect::<Option<_>>()?;
    let bytes = digits.as_chunks::<2>();
    let byte = |[high, low]: &[u32; 2]| u8::try_from(high << 4 | low).ok();
    bytes.1.is_empty().then(|| bytes.0.iter().map(byte).collect())?
}

/// A number, decimal or hexadecimal (0x, or an h behind it).
fn number(text: &str) -> Option<u64> {
    let plain: String = text.chars().filter(|one| !matches!(one, '_' | ' ' | ':')).collect();
    let digits = plain.strip_prefix("0x").or_else(|| plain.strip_suffix(['h', 'H']));
    match digits {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => plain.parse().ok(),
    }
}

/// A function: `01:00.0`, or its number.
fn function(text: &str) -> Option<Bdf> {
    let Some((bus, rest)) = text.split_once(':') else {
        return u16::try_from(number(text)?).ok().map(Bdf::from_bits);
    };
    let (device, function) = rest.split_once(['.', ':'])?;
    let part = |text: &str| u8::from_str_radix(text.trim(), 16).ok();
    Some(Bdf::new(part(bus)?, part(device)?, part(function)?))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::io::Cursor;
    use std::path::Path;

    use super::*;

    /// Shows each row of a table to `show`.
    fn each_row(table: &str, columns: &Columns, mut show: impl FnMut(Row<'_>)) -> Result<(), Error> {
        let lines = Lines::of(Cursor::new(table.to_owned()), Path::new("table.csv"));
        let mut rows = Rows::of(lines, columns);
        while rows.read_on(&mut show)? {}
        Ok(())
    }

    /// A packet: its text, direction, time in nanoseconds, and bytes of payload.
    type Shown = (String, Direction, u64, usize);

    /// The packets of a table, and how many rows were foreign and malformed.
    fn read(table: &str, columns: &str) -> (Vec<Shown>, [u32; 2]) {
        let (mut packets, mut others) = (Vec::new(), [0; 2]);
        let read = each_row(table, &columns.parse().unwrap(), |row| match row {
            Row::Packet(seen) => {
                let bare = pcie::wire::Tlp::<&[u8]>::new(*seen.header, &[]).to_string();
                packets.push((bare, seen.direction, seen.at.as_nanos(), seen.payload.len()));
            }
            Row::Foreign => others[0] += 1,
            Row::Malformed => others[1] += 1,
        });
        assert!(read.is_ok());
        (packets, others)
    }

    #[test]
    fn bytes_and_words_describe_the_same_packets() {
        let bytes = "A vendor's export,v7\nTime Stamp,Dir,Raw\n\
            1 000.5,Up,40000001 1900000f a0001000 DEADBEEF\n\
            2_000,Down,\"0000 0001 0000 050f feb0 0000\"\n\
            2000.25,Up,4a000001 19000004 00000500 01020304\n\
            2001,Up,\n2002,Up,ffff\n";
        let words = "Dir;Type;Time;Req;Cpl;Tag;Addr;DW;Payload\n\
            Upstream;MWr(32);1000.5 us;19:00.0;;0;0xa0001000;1;de ad be ef\n\
            Downstream;MRd(32);2 ms;00:00.0;;5;FEB00000h;1;\n\
            Upstream;CplD;2000250 ns;00:00.0;19:00.0;5;;1;0x01020304\n\
            Upstream;ACK;2001 us;;;;;;\nUpstream;MRd(32);2002 us;;;;0xffc;2;\n";
        let of_bytes = read(bytes, "time=time stamp:us,direction=Dir,tlp=Raw");
        let map = "time=Time,direction=Dir,type=Type,requester=Req,completer=Cpl,tag=Tag,address=Addr,\
                   length=DW,data=Payload";
        assert_eq!(of_bytes.1, [1, 1]);
        assert_eq!(of_bytes, read(words, map));
        let times: Vec<_> = of_bytes.0.iter().map(|packet| (packet.1, packet.2, packet.3)).collect();
        let (up, down) = (Direction::Up, Direction::Down);
        assert_eq!(times, [(up, 1_000_500, 4), (down, 2_000_000, 0), (up, 2_000_250, 4)]);
    }

    #[test]
    fn any_row_is_a_packet_or_is_counted() {
        let map: Columns = "time=t,type=k,address=a,length=l,data=d,requester=r,tag=g".parse().unwrap();
        let words =
            ["", "0", "ffff", "99999999999999999999", "0xfff", "1.5.5", "MRd", "CfgWr0", "é", "\"", "-"];
        let (mut table, mut count) = ("t,k,a,l,d,r,g\n".to_owned(), 0);
        for kind in ["MRd", "MWr", "Cpl", "CplD", "CfgRd1", "CfgWr0", "é"] {
            for one in words {
                for other in words {
                    writeln!(table, "1,{kind},{one},{other},{one},{other},{one}").unwrap();
                    count += 1;
                }
            }
        }
        let mut seen = 0;
        assert!(each_row(&table, &map, |_| seen += 1).is_ok());
        assert_eq!(seen, count);
        for wrong in ["", "time", "time=x", "type=x", "time=x:fortnights,tlp=y", "colour=x"] {
            assert!(wrong.parse::<Columns>().is_err(), "{wrong}");
        }
        let error = "time=t,tlp=raw,time=u".parse::<Columns>().unwrap_err();
        assert!(error.contains("time is given twice"), "{error}");
        assert!(matches!(
            each_row(&table, &"time=t,tlp=raw".parse().unwrap(), |_| {}),
            Err(Error::NoColumn { name, .. }) if name == "raw"
        ));
    }
}
