//! Enumeration as straight-line code: scan, place, program.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;

use engine::{Asker, Instant, Nanos, Script, Step};

use super::topology::{Bridge, Express, Fault, Function, Slot, Topology, Window};
use super::{Config, RETRY_DEADLINE, allocate};
use crate::config::{ClassCode, Field, bridge, express, header};
use crate::requester::{CompletionTimeout, RequestError};
use crate::wire::Bdf;

/// First pause after Configuration Request Retry Status. The pause doubles up to
/// [`RETRY_PAUSE_MAX`].
pub(super) const RETRY_PAUSE: Nanos = Nanos::from_millis(1);
/// Longest pause between two attempts.
pub(super) const RETRY_PAUSE_MAX: Nanos = Nanos::from_millis(64);
/// Address of the root port, as enumeration presents it.
pub(super) const ROOT_PORT: Bdf = Bdf::new(0, 0, 0);

/// Resources that enumeration may assign, and values that it sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Addresses below 4 GiB for BARs.
    pub low: Window,
    /// Addresses for prefetchable 64-bit BARs.
    pub high: Window,
    /// Minimum number of buses for a hot-plug port.
    pub hot_plug_buses: u8,
    /// Minimum size in bytes of each window of a hot-plug port.
    pub hot_plug_window: u64,
    /// Max_Read_Request_Size in bytes, for devices that accept payloads as large as the root port
    /// sends.
    pub read_request_size: u32,
    /// Completion Timeout for devices that support its range.
    pub timeout: CompletionTimeout,
    /// How long functions may answer with Configuration Request Retry Status (CRS), all together:
    /// they become ready in parallel.
    pub retry_deadline: Nanos,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            low: Window { first: 0xc000_0000, last: 0xfdff_ffff },
            high: Window { first: 0x40_0000_0000, last: 0x7f_ffff_ffff },
            hot_plug_buses: 4,
            hot_plug_window: 16 << 20,
            read_request_size: 4096,
            timeout: CompletionTimeout::C2,
            retry_deadline: RETRY_DEADLINE,
        }
    }
}

/// Why enumeration produced no topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnumerationError {
    /// The link below the root port went down.
    LinkDown,
    /// There is no bridge at this address.
    NoSuchPort(Bdf),
}

impl fmt::Display for EnumerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown => f.write_str("the link went down during enumeration"),
            Self::NoSuchPort(bdf) => write!(f, "there is no port at {bdf}"),
        }
    }
}

impl core::error::Error for EnumerationError {}

/// A request of the script to the root complex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Reads a double word.
    Read { target: Bdf, offset: u16 },
    /// Writes bytes of a double word.
    Write { target: Bdf, offset: u16, enables: u8, value: u32 },
    /// Waits for this time.
    Wait(Nanos),
}

/// The value that was read; 0 for writes and waits.
pub(super) type Answer = Result<u32, RequestError>;

type Ended = Result<Topology, EnumerationError>;

/// The cookie of a question's register access: bit 63, which callers' cookies do not have, and the
/// number of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuestionCookie(pub(super) u64);

impl QuestionCookie {
    const MARK: u64 = 1 << 63;

    pub(super) const fn of(question: u64) -> Self {
        Self(Self::MARK | question)
    }

    /// `cookie`, if it is that of a question.
    pub(super) fn parse(cookie: u64) -> Option<Self> {
        (cookie & Self::MARK != 0).then_some(Self(cookie))
    }
}

/// A running script.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) script: Script<Question, Answer, Ended>,
    /// When a pause ends, and the question to ask then, if any.
    pub(super) sleep: Option<(Instant, Option<Question>)>,
}

impl Running {
    pub(super) fn start(config: Config, plan: Plan) -> (Self, Step<Question, Ended>) {
        let (script, step) =
            Script::start(|asker| async move { Scanner::new(asker, plan).all(config).await });
        (Self { script, sleep: None }, step)
    }
    pub(super) fn start_below(
        config: Config,
        plan: Plan,
        topology: Topology,
        port: Bdf,
    ) -> (Self, Step<Question, Ended>) {
        let body = |asker| async move { Scanner::new(asker, plan).below(config, topology, port).await };
        let (script, step) = Script::start(body);
        (Self { script, sleep: None }, step)
    }
}

/// Why a function is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// This function failed; enumeration continues with the others.
    Function(Fault),
    /// The link went down; enumeration ends.
    LinkDown,
}

/// Access of the script to the registers of the functions below.
#[derive(Debug)]
pub(super) struct Scanner {
    asker: Asker<Question, Answer>,
    pub(super) plan: Plan,
    faults: RefCell<Vec<(Bdf, Fault)>>,
    /// Total time spent waiting for functions, which become ready in parallel.
    waited: Cell<Nanos>,
    /// Number of functions that have answered in any way.
    pub(super) found: Cell<u32>,
}

impl Scanner {
    fn new(asker: Asker<Question, Answer>, plan: Plan) -> Self {
        Self { asker, plan, faults: RefCell::default(), waited: Cell::new(Nanos::ZERO), found: Cell::new(0) }
    }

    pub(super) fn note(&self, bdf: Bdf, fault: Fault) {
        self.faults.borrow_mut().push((bdf, fault));
    }

    /// Repeats the question until the answer is not a retry status, or until the retry deadline has
    /// passed.
    async fn ask(&self, question: Question, offset: u16) -> Result<u32, Stop> {
        let mut pause = RETRY_PAUSE;
        loop {
            match self.asker.ask(question).await {
                Ok(value) => return Ok(value),
                Err(RequestError::LinkDown) => return Err(Stop::LinkDown),
                Err(RequestError::ConfigRequestRetry) if self.waited.get() < self.plan.retry_deadline => {
                    // A pause can't fail.
                    let _ = self.asker.ask(Question::Wait(pause)).await;
                    self.waited.set(self.waited.get() + pause);
                    pause = (pause * 2).min(RETRY_PAUSE_MAX);
                }
                Err(RequestError::ConfigRequestRetry) => return Err(Stop::Function(Fault::NotReady)),
                Err(error) => return Err(Stop::Function(Fault::Register { offset, error })),
            }
        }
    }

    /// Reads the double word at `offset`.
    pub(super) async fn read(&self, target: Bdf, offset: u16) -> Result<u32, Stop> {
        self.ask(Question::Read { target, offset }, offset).await
    }
    /// Writes the double word at `offset`.
    pub(super) async fn write(&self, target: Bdf, offset: u16, value: u32) -> Result<(), Stop> {
        self.write_bytes(target, offset, 0b1111, value).await
    }
    /// Writes the bytes selected by `enables` to the double word at `offset`.
    async fn write_bytes(&self, target: Bdf, offset: u16, enables: u8, value: u32) -> Result<(), Stop> {
        self.ask(Question::Write { target, offset, enables, value }, offset).await.map(|_| ())
    }
    /// Sets fields of one double word and leaves its other bits alone. Bytes without any of these
    /// fields are not written, because status bits next to control bits are cleared by writing
    /// ones.
    pub(super) async fn set(&self, target: Bdf, fields: &[(Field, u32)]) -> Result<(), Stop> {
        let Some((first, _)) = fields.first() else { return Ok(()) };
        let offset = first.offset();
        let enables = fields.iter().fold(0, |enables, (field, _)| enables | field.enables());
        let old = self.read(target, offset).await?;
        let new = fields.iter().fold(old, |dword, (field, value)| field.with(dword, *value));
        self.write_bytes(target, offset, enables, new).await
    }

    /// Enumerates everything below the root port.
    async fn all(self, config: Config) -> Ended {
        let mut root = root_port(config);
        let mut last = config.bus;
        let children = self.scan_bus(config.bus, &mut last, u8::MAX, true, 1).await;
        root.children = children.map_err(|()| EnumerationError::LinkDown)?;
        if let Some(bridge) = &mut root.bridge {
            bridge.subordinate = last;
        }
        allocate::below_root(&mut root, &self.plan, &mut |bdf, fault| self.note(bdf, fault));
        self.program_all(&mut root.children, config.payload_size, config.payload_size).await?;
        Ok(Topology { root: Box::new(root), faults: self.faults.take() })
    }

    /// Enumerates the part below `port` again.
    async fn below(self, config: Config, mut topology: Topology, port: Bdf) -> Ended {
        if port == ROOT_PORT {
            return self.all(config).await;
        }
        let missing = EnumerationError::NoSuchPort(port);
        let (function, high) = find_port(&mut topology.root, port, true).ok_or(missing)?;
        let bridge = function.bridge.ok_or(missing)?;
        let gone = bridge.secondary..=bridge.subordinate;
        topology.faults.retain(|(bdf, _)| !gone.contains(&bdf.bus()));
        function.children.clear();
        match self.refresh_port(function).await {
            Ok(()) => {}
            Err(Stop::LinkDown) => return Err(EnumerationError::LinkDown),
            Err(Stop::Function(fault)) => self.note(port, fault),
        }
        let only_first = function.express.is_none_or(|express| express.has_link_below());
        let mut last = bridge.secondary;
        let scanned = self.scan_bus(bridge.secondary, &mut last, bridge.subordinate, only_first, 1).await;
        function.children = scanned.map_err(|()| EnumerationError::LinkDown)?;
        allocate::below_port(function, &bridge, high, &self.plan, &mut |bdf, fault| self.note(bdf, fault));
        let payload = function.express.map_or(128, |express| express.payload_size);
        self.program_all(&mut function.children, payload, config.payload_size).await?;
        topology.faults.append(&mut self.faults.take());
        Ok(topology)
    }

    /// Programs functions whose addresses are assigned, and everything below them.
    async fn program_all(
        &self,
        functions: &mut [Function],
        path: u32,
        root: u32,
    ) -> Result<(), EnumerationError> {
        for function in functions {
            match self.program(function, path, root).await {
                Ok(()) => {}
                Err(Stop::LinkDown) => return Err(EnumerationError::LinkDown),
                Err(Stop::Function(fault)) => self.note(function.bdf, fault),
            }
            let path = function.express.map_or(path, |express| express.payload_size);
            Box::pin(self.program_all(&mut function.children, path, root)).await?;
        }
        Ok(())
    }

    /// Writes BARs and windows, negotiates sizes and tags, and enables the function.
    async fn program(&self, function: &mut Function, path: u32, root: u32) -> Result<(), Stop> {
        let bdf = function.bdf;
        for bar in &function.bars {
            let Some(address) = bar.address else { continue };
            let offset = header::BAR0 + u16::from(bar.index) * 4;
            let [low, high] = halves(address);
            self.write(bdf, offset, low).await?;
            if bar.space == super::Space::Memory64 {
                self.write(bdf, offset + 4, high).await?;
            }
        }
        if let Some(bridge) = &function.bridge {
            self.program_windows(bdf, bridge).await?;
        }
        if let Some(express) = &mut function.express {
            express.payload_size = express.payload_supported.min(path);
            // A device that accepts smaller payloads than the root port sends requests no more than
            // it accepts.
            let whole = express.payload_size == root;
            express.read_request_size =
                if whole { self.plan.read_request_size } else { express.payload_size };
            express.timeout = self.plan.timeout.supported_by(express.timeout_ranges).code();
            self.program_express(bdf, express).await?;
        }
        let command = [(header::MEMORY_SPACE, 1), (header::BUS_MASTER, 1), (header::SERR, 1)];
        self.set(bdf, &command).await?;
        function.enabled = true;
        Ok(())
    }

    async fn program_windows(&self, bdf: Bdf, bridge: &Bridge) -> Result<(), Stop> {
        // A base above its limit closes a window.
        let closed = Window { first: 0xfff0_0000, last: 0 };
        let memory = bridge.memory.unwrap_or(closed);
        let megabytes = |address: u64| halves(address)[0] >> 20;
        let base = bridge::MEMORY_BASE.with(0, megabytes(memory.first));
        let dword = bridge::MEMORY_LIMIT.with(base, megabytes(memory.last));
        self.write(bdf, bridge::MEMORY_BASE.offset(), dword).await?;
        let prefetchable = bridge.prefetchable.unwrap_or(closed);
        let base = bridge::PREFETCHABLE_BASE.with(0, megabytes(prefetchable.first));
        let dword = bridge::PREFETCHABLE_LIMIT.with(base, megabytes(prefetchable.last));
        self.write(bdf, bridge::PREFETCHABLE_BASE.offset(), dword).await?;
        if bridge.prefetchable_64 {
            let [first, last] = [prefetchable.first, prefetchable.last].map(|address| halves(address)[1]);
            self.write(bdf, bridge::PREFETCHABLE_BASE_UPPER.offset(), first).await?;
            self.write(bdf, bridge::PREFETCHABLE_LIMIT_UPPER.offset(), last).await?;
        }
        let io = [(bridge::IO_BASE, 0xf), (bridge::IO_LIMIT, 0)];
        self.set(bdf, &io).await?;
        self.set(bdf, &[(bridge::SERR, 1)]).await
    }

    async fn program_express(&self, bdf: Bdf, found: &Express) -> Result<(), Stop> {
        let encoded = |bytes: u32| bytes.max(128).ilog2() - 7;
        let control = [
            (express::PAYLOAD_SIZE.at(found.offset), encoded(found.payload_size)),
            (express::READ_REQUEST_SIZE.at(found.offset), encoded(found.read_request_size)),
            (express::EXTENDED_TAG.at(found.offset), u32::from(found.extended_tags)),
            (express::RELAXED_ORDERING.at(found.offset), 1),
            (express::REPORT_CORRECTABLE.at(found.offset), 1),
            (express::REPORT_NON_FATAL.at(found.offset), 1),
            (express::REPORT_FATAL.at(found.offset), 1),
        ];
        self.set(bdf, &control).await?;
        let control_2 = [
            (express::TIMEOUT_VALUE.at(found.offset), u32::from(found.timeout)),
            (express::TEN_BIT_ENABLE.at(found.offset), u32::from(found.ten_bit_tags)),
        ];
        self.set(bdf, &control_2).await
    }
}

/// The low and the high double word of an address.
pub(super) fn halves(address: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = address.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// The root port as a function. It has no configuration space, since only the root complex would
/// read it.
fn root_port(config: Config) -> Function {
    let express = Express {
        port_type: Express::ROOT_PORT,
        payload_supported: config.payload_size,
        payload_size: config.payload_size,
        read_request_size: config.payload_size,
        extended_tags: true,
        ten_bit_tags: true,
        ten_bit_completer: true,
        timeout_ranges: 0b1111,
        timeout: config.timeout.code(),
        link_active: true,
        slot: Some(Slot { hot_plug: true, surprise: true, present: true, number: 0 }),
        ..Express::default()
    };
    Function {
        bdf: ROOT_PORT,
        class: ClassCode::PCI_BRIDGE,
        layout: 1,
        enabled: true,
        bridge: Some(Bridge {
            secondary: config.bus,
            subordinate: config.bus,
            prefetchable_64: true,
            ..Bridge::default()
        }),
        express: Some(express),
        ..Function::default()
    }
}

/// The bridge at `bdf`, and whether all bridges down to it have 64-bit prefetchable windows.
fn find_port(function: &mut Function, bdf: Bdf, high: bool) -> Option<(&mut Function, bool)> {
    let bridge = function.bridge?;
    let high = high && bridge.prefetchable_64;
    if function.bdf == bdf {
        return Some((function, high));
    }
    function.children.iter_mut().find_map(|child| find_port(child, bdf, high))
}
