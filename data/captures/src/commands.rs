//! The content of a capture, piece by piece: commands, or packets. A capture may be larger than
//! memory.

use std::path::Path;

use engine::Instant;
use trace::{Command, Seen};

use crate::Error;
use crate::framing::{Held, held};
use crate::lines::Lines;
use crate::reader::{Item, Reader};
use crate::reading::{Analysis, Reading};
use crate::rows::{Columns, Row, Rows};

/// A capture: a file, and its columns if it is a table.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file: pcap, pcapng, a table, or the words of Linux's tracers.
    pub file: &'a Path,
    /// The columns of a table of a hardware analyser; none if it is not a table.
    pub columns: Option<&'a Columns>,
}

/// The kind of a file's content.
#[derive(Debug)]
enum Input {
    /// The frames of pcap or pcapng.
    Frames(Reader),
    /// The rows of a table.
    Rows(Box<Rows>),
    /// The output of tracers. If no line is of this kind, the file has this error.
    Words(Lines, Option<Error>),
}

/// The commands of a capture, in the order in which they ended.
///
/// An error ends them: the file can't be read, or is malformed from some byte on.
///
/// ```no_run
/// use captures::{Commands, Source};
///
/// let source = Source { file: "bench.pcapng".as_ref(), columns: None };
/// for command in Commands::open(source)? {
///     println!("{:?}", command?.latency());
/// }
/// # Ok::<(), captures::Error>(())
/// ```
#[derive(Debug)]
pub struct Commands {
    input: Input,
    reading: Reading,
    is_over: bool,
}

impl Commands {
    /// The commands of a capture from its beginning.
    ///
    /// # Errors
    /// When the file does not exist or cannot be read.
    pub fn open(from: Source<'_>) -> Result<Self, Error> {
        let lines = || Lines::open(from.file);
        let input = match from.columns {
            Some(columns) => Input::Rows(Box::new(Rows::of(lines()?, columns))),
            None => match Reader::open(from.file) {
                Ok(reader) => Input::Frames(reader),
                // A file that does not begin as a capture may be trace output.
                Err(broken @ Error::Broken { .. }) => Input::Words(lines()?, Some(broken)),
                Err(error) => return Err(error),
            },
        };
        Ok(Self { input, reading: Reading::default(), is_over: false })
    }

    /// Reads the next frame, row or line. Returns false at the end of the capture.
    ///
    /// # Errors
    /// When the file can't be read, or is malformed from here on.
    pub fn read_on(&mut self) -> Result<bool, Error> {
        if self.is_over {
            return Ok(false);
        }
        let reading = &mut self.reading;
        let read = match &mut self.input {
            Input::Frames(reader) => reader.read_on(|item| {
                reading.see_item(&item);
                true
            }),
            Input::Rows(rows) => rows.read_on(|row| reading.see_row(&row)),
            Input::Words(lines, broken) => match lines.read_on() {
                Ok(Some(line)) => {
                    if reading.see_line(&line) {
                        *broken = None;
                    }
                    Ok(true)
                }
                Ok(None) => broken.take().map_or(Ok(false), Err),
                Err(error) => Err(error),
            },
        };
        self.is_over = !matches!(read, Ok(true));
        if matches!(read, Ok(false)) {
            self.reading.finish();
        }
        read
    }

    /// The next command that has ended in the part that was read.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.reading.poll_command()
    }

    /// The time of the first packet, once it was read; none for trace output.
    pub const fn began(&self) -> Option<Instant> {
        self.reading.began()
    }

    /// The analysis of the capture so far.
    pub fn analysis(&self) -> Analysis {
        self.reading.analysis()
    }
}

impl Iterator for Commands {
    type Item = Result<Command, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(command) = self.poll_command() {
                return Some(Ok(command));
            }
            match self.read_on() {
                Ok(true) => {}
                // The end may have ended commands.
                Ok(false) => return self.poll_command().map(Ok),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Shows each command of a capture, and returns the analysis of the whole.
///
/// # Errors
/// Those of [`Commands`].
pub fn each_command(from: Source<'_>, mut show: impl FnMut(Command)) -> Result<Analysis, Error> {
    let mut commands = Commands::open(from)?;
    for command in &mut commands {
        show(command?);
    }
    Ok(commands.analysis())
}

/// Checks that a capture without one kind of content has another.
///
/// # Errors
/// Those of [`Commands`]; also [`Error::Nothing`].
pub fn refuse_empty(from: Source<'_>) -> Result<(), Error> {
    let mut has_commands = false;
    let analysis = each_command(from, |_| has_commands = true)?;
    analysis.check(from.file, has_commands)
}

/// The PCIe packets of a capture.
#[derive(Debug)]
pub struct Packets(Input);

impl Packets {
    /// The packets of a capture from its beginning. Trace output has none.
    ///
    /// # Errors
    /// When the file does not exist, or has no packets.
    pub fn open(from: Source<'_>) -> Result<Self, Error> {
        Ok(Self(match from.columns {
            Some(columns) => Input::Rows(Box::new(Rows::of(Lines::open(from.file)?, columns))),
            None => Input::Frames(Reader::open(from.file)?),
        }))
    }

    /// Reads the next frame or row, and shows to `show` the packet that it has. Returns false at
    /// the end of the capture.
    ///
    /// # Errors
    /// When the file can't be read, or is malformed from here on.
    pub fn read_on(&mut self, mut show: impl FnMut(&Seen<'_>)) -> Result<bool, Error> {
        match &mut self.0 {
            Input::Frames(reader) => reader.read_on(|item| {
                if let Item::Frame(frame) = item
                    && let Held::Packet(packet) = held(&frame)
                {
                    show(&packet.seen(&frame));
                }
                true
            }),
            Input::Rows(rows) => rows.read_on(|row| {
                if let Row::Packet(seen) = row {
                    show(&seen);
                }
            }),
            Input::Words(..) => Ok(false),
        }
    }
}

/// Shows each PCIe packet of a capture.
///
/// # Errors
/// Those of [`Packets`].
pub fn each_packet(from: Source<'_>, mut show: impl FnMut(&Seen<'_>)) -> Result<(), Error> {
    let mut packets = Packets::open(from)?;
    while packets.read_on(&mut show)? {}
    Ok(())
}
