//! Rows of commands and of packets, in batches, as columns: for `farlane observe trace convert` and
//! for Python.

use trace::{Command, Direction, Seen, Step};

use crate::name;

/// A column. Whole numbers are signed; larger values are clamped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// A column of words.
    Words(Vec<String>),
    /// A column of whole numbers.
    Numbers(Vec<i64>),
    /// Numbers that some rows lack.
    Optional(Vec<Option<i64>>),
}

/// A whole number as columns have it.
pub fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A column of numbers, which a command may lack: its name and its value.
type Figure = (&'static str, fn(&Command) -> Option<u64>);

const FIGURES: [Figure; 10] = [
    ("queue", |command| command.queue.map(u64::from)),
    ("id", |command| command.id.map(u64::from)),
    ("nsid", |command| command.namespace.map(u64::from)),
    ("lba", |command| command.lba),
    ("blocks", |command| command.blocks.map(u64::from)),
    ("bytes", |command| Some(command.bytes)),
    ("status", |command| command.status.map(u64::from)),
    ("begun_ns", |command| command.begun().map(|at| at.as_nanos())),
    ("latency_ns", |command| Some(command.latency().get())),
    ("whole_ns", |command| Some(command.length().get())),
];

/// The figures of a command, and then the time of each step, in the order of the columns behind
/// `number` and `command`.
pub fn figures(command: &Command) -> impl Iterator<Item = Option<u64>> {
    let chain = command.chain();
    let figures = FIGURES.map(|(_, value)| value(command));
    let time = move |step| chain.iter().find(|(of, _)| *of == step).map(|(_, time)| time.get());
    figures.into_iter().chain(Step::ALL.into_iter().map(time))
}

/// Rows of a table that are collected into a batch.
pub trait Rows {
    /// An empty batch; its first row will have this number.
    fn new(first: u64) -> Self;
    /// The names of the columns.
    fn names() -> Vec<String>;
    /// The number of rows.
    fn len(&self) -> usize;
    /// Whether there is no row.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The columns, in the order of their names.
    fn into_columns(self) -> Vec<Column>;
}

/// A row for each command: its kind, its begin, and the duration of each of its steps.
#[derive(Debug)]
pub struct CommandRows {
    first: u64,
    kinds: Vec<String>,
    figures: Vec<Vec<Option<i64>>>,
}

impl CommandRows {
    /// Adds a command.
    pub fn add(&mut self, command: &Command) {
        self.kinds.push(name(command.kind));
        for (column, value) in self.figures.iter_mut().zip(figures(command)) {
            column.push(value.map(number));
        }
    }
}

impl Rows for CommandRows {
    fn new(first: u64) -> Self {
        Self { first, kinds: Vec::new(), figures: vec![Vec::new(); FIGURES.len() + Step::ALL.len()] }
    }

    fn names() -> Vec<String> {
        let step = |step: Step| format!("{}_ns", step.name().replace(' ', "_"));
        let own = ["number", "command"].into_iter().chain(FIGURES.map(|(name, _)| name));
        own.map(str::to_owned).chain(Step::ALL.into_iter().map(step)).collect()
    }

    fn len(&self) -> usize {
        self.kinds.len()
    }

    fn into_columns(self) -> Vec<Column> {
        let numbers = (self.first..).take(self.kinds.len()).map(number).collect();
        let first = [Column::Numbers(numbers), Column::Words(self.kinds)];
        first.into_iter().chain(self.figures.into_iter().map(Column::Optional)).collect()
    }
}

/// A row for each PCIe packet.
#[derive(Debug)]
pub struct PacketRows {
    first: u64,
    times: Vec<i64>,
    /// `down` or `up`, the packet's line, the name of its kind, and the requester.
    words: [Vec<String>; 4],
    /// The tag, and the bytes of the payload.
    numbers: [Vec<i64>; 2],
    /// The address, and the number of bytes that a read requests.
    optional: [Vec<Option<i64>>; 2],
}

impl PacketRows {
    /// Adds a packet.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let header = seen.header;
        let line = pcie::wire::Tlp::<&[u8]>::new(*header, &[]).to_string();
        let kind = line.split(' ').next().unwrap_or_default().to_owned();
        let direction = if seen.direction == Direction::Down { "down" } else { "up" };
        let words = [direction.to_owned(), kind, header.requester().to_string(), line];
        self.times.push(number(seen.at.as_nanos()));
        self.words.iter_mut().zip(words).for_each(|(column, word)| column.push(word));
        let numbers = [header.tag().get().into(), number(header.payload_len() as u64)];
        self.numbers.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
        let asked = seen.read().map(|(_, bytes)| i64::from(bytes));
        let optional = [header.first_byte_address().map(number), asked];
        self.optional.iter_mut().zip(optional).for_each(|(column, number)| column.push(number));
    }
}

impl Rows for PacketRows {
    fn new(first: u64) -> Self {
        let (words, numbers, optional) = Default::default();
        Self { first, times: Vec::new(), words, numbers, optional }
    }

    fn names() -> Vec<String> {
        let names = [
            "number",
            "passed_ns",
            "direction",
            "type",
            "requester",
            "tlp",
            "tag",
            "bytes",
            "address",
            "asked_bytes",
        ];
        names.map(str::to_owned).to_vec()
    }

    fn len(&self) -> usize {
        self.times.len()
    }

    fn into_columns(self) -> Vec<Column> {
        let numbers = (self.first..).take(self.times.len()).map(number).collect();
        let first = [Column::Numbers(numbers), Column::Numbers(self.times)];
        let words = self.words.into_iter().map(Column::Words);
        let numbers = self.numbers.into_iter().map(Column::Numbers);
        first.into_iter().chain(words).chain(numbers).chain(self.optional.map(Column::Optional)).collect()
    }
}
