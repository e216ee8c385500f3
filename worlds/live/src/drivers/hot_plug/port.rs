//! A port of a switch in QEMU, whose device is plugged in and unplugged as its function comes and
//! goes.

use std::collections::VecDeque;
use std::fmt;

use engine::{Engine, Instant, Nanos};
use serde_json::{Value, json};

use super::problem::Problem;
use super::qmp::{self, Lines, Message, Refusal};

/// How long QEMU may take to greet. While another client has the socket, it never does.
const GREETING: Nanos = Nanos::from_secs(5);
/// How long QEMU may take to answer. It waits for 5 s for a function that it plugs in.
const ANSWER: Nanos = Nanos::from_secs(30);
/// After a connection has ended, the next one is made after this time.
const RECONNECT: Nanos = Nanos::from_secs(1);
/// After QEMU has refused to plug in the device, it is asked again after this time.
const REPLUG: Nanos = Nanos::from_secs(5);
/// A guest that has not let the device go after this time is asked again. Linux takes 5 s, in which
/// a person could still change their mind.
const REPEAT: Nanos = Nanos::from_secs(15);
/// A device of ours whose connection to the function is away for this time will not come back by
/// itself.
const DESERTED: Nanos = Nanos::from_secs(2);
/// Where QEMU has the devices that have an id.
const DEVICES: &str = "/machine/peripheral";

/// The settings of a port.
#[derive(Clone, Debug)]
pub struct Config {
    /// The id of the port, which is the name of the bus below it.
    pub port: String,
    /// Absolute path of the socket at which QEMU finds the function.
    pub socket: String,
}

/// Inputs of the port.
#[derive(Debug)]
pub enum Input<'a> {
    /// The connection that [`Output::Connect`] asked for is open.
    Connected,
    /// There is no connection, or it has ended. The text is the system's error, if there is one.
    Disconnected(Option<String>),
    /// A piece of QEMU's byte stream, cut anywhere.
    Received(&'a [u8]),
    /// The function is as [`assemblies::guest::Guest::is_usable`] says, and has a client or not.
    Function {
        /// Whether the guest can use it.
        is_usable: Option<bool>,
        /// Whether a client is connected.
        has_client: bool,
    },
}

/// Outputs of the port.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Connect to QEMU's socket. Answer with [`Input::Connected`] or [`Input::Disconnected`].
    Connect,
    /// Append these bytes to the stream to QEMU.
    Send(Vec<u8>),
    /// End the connection. It needs no answer.
    Close,
    /// An event for the application.
    Event(Event),
}

/// An event of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// QEMU answers and has the port.
    Ready {
        /// Whether the guest hears of a change by ACPI, not by the port itself.
        by_acpi: bool,
    },
    /// The device is plugged in.
    Plugged,
    /// The guest has been asked to let the device go.
    Unplugging,
    /// The device is out of the port.
    Unplugged,
    /// Another client of QEMU has taken the device out of the port.
    Removed,
    /// The guest does not let the device go, and is asked again.
    Kept(String),
    /// A request failed, or QEMU can't be reached; the port goes on trying.
    Problem(Problem),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { by_acpi: false } => f.write_str("QEMU's monitor answers, and has the port"),
            Self::Ready { by_acpi: true } => f.write_str(
                "QEMU's monitor answers, and has the port, which it plugs by ACPI; for native hot-plug start QEMU with \
                 -global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off",
            ),
            Self::Plugged => f.write_str("the function is plugged in"),
            Self::Unplugging => f.write_str("the function is lost: the guest is asked to let it go"),
            Self::Unplugged => f.write_str("the function is unplugged"),
            Self::Removed => f.write_str(
                "another client of QEMU has unplugged the function: it stays out until the far end has been away",
            ),
            Self::Kept(words) => {
                write!(f, "the guest keeps the lost function, and is asked again ({words})")
            }
            Self::Problem(problem) => write!(f, "{problem}; {}", problem.remedy()),
        }
    }
}

/// The device in the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plug {
    /// QEMU has not said.
    Unknown,
    /// No device is there.
    Empty,
    /// The device is being plugged in.
    Plugging,
    /// The device is there.
    Plugged,
    /// The guest has been asked to let the device go.
    Unplugging,
}

/// Counts of a port since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Times that the device was plugged in.
    pub plugs: u64,
    /// Times that the device was unplugged.
    pub unplugs: u64,
    /// Requests that QEMU or the guest refused.
    pub refusals: u64,
}

/// A command that QEMU has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Capabilities,
    AskHotPlug,
    ListPort,
    ListDevice,
    Add,
    Delete,
}

/// How far the port is with QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Monitor {
    /// There is no connection; the next one is due then.
    Away(Instant),
    Connecting,
    /// The greeting is awaited until then.
    Greeting(Instant),
    /// The answer to the latest command is awaited until then.
    Asked(Command, Instant),
    /// QEMU waits for commands.
    Idle,
}

/// A port of a switch in QEMU.
#[derive(Debug)]
pub struct Port {
    config: Config,
    monitor: Monitor,
    plug: Plug,
    lines: Lines,
    /// Number of the latest command.
    serial: u64,
    is_usable: Option<bool>,
    /// Since when the function has no client.
    deserted_since: Option<Instant>,
    /// The device stays out until the function has been away.
    is_removed: bool,
    /// The name of a foreign device in the port, while it is found out whose the device is.
    found: String,
    by_acpi: bool,
    /// The next request to plug in or unplug is not made before.
    not_before: Instant,
    problem: Option<Problem>,
    /// QEMU had the port at some time. Until then, [`Port::problem`] alone says why not.
    was_ready: bool,
    /// It has been reported that the guest keeps the device.
    is_kept: bool,
    outputs: VecDeque<Output>,
    statistics: Statistics,
}

impl Port {
    /// A port that connects to QEMU at once.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            monitor: Monitor::Away(Instant::ZERO),
            plug: Plug::Unknown,
            lines: Lines::default(),
            serial: 0,
            is_usable: None,
            deserted_since: Some(Instant::ZERO),
            is_removed: false,
            found: String::new(),
            by_acpi: false,
            not_before: Instant::ZERO,
            problem: None,
            was_ready: false,
            is_kept: false,
            outputs: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// The id of the port.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.port
    }
    /// The device in the port.
    #[must_use]
    pub const fn plug(&self) -> Plug {
        match (self.plug, self.monitor) {
            (Plug::Empty, Monitor::Asked(Command::Add, _)) => Plug::Plugging,
            (plug, _) => plug,
        }
    }
    /// Counts since the start.
    #[must_use]
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }
    /// Why the port can't be used, as far as that is known and has not passed.
    #[must_use]
    pub const fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    fn device(&self) -> String {
        format!("farlane-{}", self.config.port)
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Reports a problem, unless it is the one that was reported last.
    fn report(&mut self, problem: Problem) {
        if self.problem.as_ref() != Some(&problem) {
            self.problem = Some(problem.clone());
            if self.was_ready {
                self.event(Event::Problem(problem));
            }
        }
    }

    fn leave(&mut self, now: Instant, problem: Problem) {
        if !matches!(self.monitor, Monitor::Away(_) | Monitor::Connecting) {
            self.outputs.push_back(Output::Close);
        }
        self.monitor = Monitor::Away(now + RECONNECT);
        self.plug = Plug::Unknown;
        self.report(problem);
    }

    fn ask(&mut self, now: Instant, command: Command) {
        let device = self.device();
        let (name, arguments) = match command {
            Command::Capabilities => ("qmp_capabilities", json!({})),
            Command::AskHotPlug => {
                let path = format!("{DEVICES}/{}", self.config.port);
                ("qom-get", json!({"path": path, "property": "hotplug"}))
            }
            Command::ListPort => {
                let port = &self.config.port;
                ("qom-list", json!({"path": format!("{DEVICES}/{port}/{port}")}))
            }
            Command::ListDevice => ("qom-list", json!({"path": format!("{DEVICES}/{device}")})),
            Command::Add => {
                let socket = json!({"type": "unix", "path": self.config.socket});
                let bus = &self.config.port;
                ("device_add", json!({"driver": "vfio-user-pci", "id": device, "bus": bus, "socket": socket}))
            }
            Command::Delete => ("device_del", json!({"id": device})),
        };
        self.serial += 1;
        self.outputs.push_back(Output::Send(qmp::command(self.serial, name, &arguments)));
        self.monitor = Monitor::Asked(command, now + ANSWER);
    }

    /// Asks for the next change, if one is due.
    fn proceed(&mut self, now: Instant) {
        if self.monitor != Monitor::Idle || now < self.not_before {
            return;
        }
        match self.plug {
            Plug::Empty if self.is_usable == Some(true) && !self.is_removed => self.ask(now, Command::Add),
            Plug::Plugged if self.is_usable == Some(false) || self.is_deserted(now) => {
                self.plug = Plug::Unplugging;
                self.is_kept = false;
                self.event(Event::Unplugging);
                self.ask(now, Command::Delete);
            }
            Plug::Unplugging => self.ask(now, Command::Delete),
            _ => {}
        }
    }

    /// The function is about to end: asks for the device to be unplugged, if that is possible now.
    pub fn let_go(&mut self, now: Instant) {
        if self.monitor == Monitor::Idle && self.plug == Plug::Plugged {
            self.plug = Plug::Unplugging;
            self.ask(now, Command::Delete);
        }
    }

    fn deserted_at(&self) -> Option<Instant> {
        self.deserted_since.map(|since| since + DESERTED)
    }
    fn is_deserted(&self, now: Instant) -> bool {
        self.deserted_at().is_some_and(|at| at <= now)
    }

    fn on_message(&mut self, now: Instant, message: Message) {
        match (message, self.monitor) {
            (Message::Greeting, Monitor::Greeting(_)) => self.ask(now, Command::Capabilities),
            (Message::Answer { id, result }, Monitor::Asked(command, _)) if id == Some(self.serial) => {
                self.monitor = Monitor::Idle;
                self.on_answer(now, command, result);
            }
            (Message::Event { name, device }, _) if device == Some(self.device()) => {
                self.on_event(now, &name);
            }
            _ => {}
        }
    }

    fn on_answer(&mut self, now: Instant, command: Command, result: Result<Value, Refusal>) {
        match (command, result) {
            (Command::Capabilities, Ok(_)) => self.ask(now, Command::AskHotPlug),
            (Command::AskHotPlug, Ok(Value::Bool(true))) => self.ask(now, Command::ListPort),
            (Command::ListPort, Ok(list)) => self.on_port(now, &list),
            (Command::AskHotPlug | Command::ListPort, Err(refusal)) if refusal.class == "DeviceNotFound" => {
                self.leave(now, Problem::NoPort(self.config.port.clone()));
            }
            // Only ports have the property.
            (Command::AskHotPlug, _) => {
                self.leave(now, Problem::NotHotPluggable(self.config.port.clone()));
            }
            (Command::ListDevice, Ok(_)) => self.ready(now, Plug::Plugged),
            (Command::ListDevice, Err(_)) => {
                let (port, device) = (self.config.port.clone(), core::mem::take(&mut self.found));
                self.leave(now, Problem::Occupied { port, device });
            }
            (Command::Add, Ok(_)) => {
                self.statistics.plugs += 1;
                self.plug = Plug::Plugged;
                self.deserted_since = self.deserted_since.map(|_| now);
                self.problem = None;
                self.event(Event::Plugged);
            }
            (Command::Add, Err(refusal)) => {
                self.statistics.refusals += 1;
                self.not_before = now + REPLUG;
                self.report(Problem::Refused(refusal.description));
            }
            // The device may be out before its answer comes.
            (Command::Delete, Ok(_)) if self.plug == Plug::Empty => {}
            (Command::Delete, Ok(_)) => self.not_before = now + REPEAT,
            (Command::Delete, Err(refusal)) if refusal.class == "DeviceNotFound" => self.empty(now),
            (Command::Delete, Err(refusal)) => {
                self.not_before = now + REPEAT;
                self.kept(refusal.description);
            }
            (Command::Capabilities | Command::ListPort, Err(refusal)) => {
                self.leave(now, Problem::Refused(refusal.description));
            }
        }
    }

    /// The members of the bus below the port.
    fn on_port(&mut self, now: Instant, list: &Value) {
        let members = || list.as_array().into_iter().flatten();
        let text = |member: &Value, key: &str| member.get(key).and_then(Value::as_str).map(str::to_owned);
        self.by_acpi = members().any(|member| text(member, "name").as_deref() == Some("acpi-pcihp-bsel"));
        let is_device = |member: &&Value| text(member, "name").is_some_and(|name| name.starts_with("child["));
        match members().find(is_device).and_then(|member| text(member, "type")) {
            None => self.ready(now, Plug::Empty),
            Some(link) => {
                let kind = link.strip_prefix("link<").and_then(|kind| kind.strip_suffix('>'));
                kind.unwrap_or(&link).clone_into(&mut self.found);
                self.ask(now, Command::ListDevice);
            }
        }
    }

    fn ready(&mut self, now: Instant, plug: Plug) {
        (self.plug, self.was_ready) = (plug, true);
        self.not_before = now;
        self.problem = None;
        self.deserted_since = self.deserted_since.map(|_| now);
        self.event(Event::Ready { by_acpi: self.by_acpi });
    }

    fn on_event(&mut self, now: Instant, name: &str) {
        match name {
            "DEVICE_DELETED" => self.empty(now),
            "DEVICE_UNPLUG_GUEST_ERROR" => {
                self.kept("the guest reports an error".to_owned());
            }
            _ => {}
        }
    }

    /// The guest does not let the device go; `words` say why.
    fn kept(&mut self, words: String) {
        self.statistics.refusals += 1;
        if !core::mem::replace(&mut self.is_kept, true) {
            self.event(Event::Kept(words));
        }
    }

    /// The device is out of the port.
    fn empty(&mut self, now: Instant) {
        match self.plug {
            Plug::Unplugging => {
                self.statistics.unplugs += 1;
                self.event(Event::Unplugged);
            }
            Plug::Plugged => {
                self.is_removed = self.is_usable != Some(false);
                self.event(Event::Removed);
            }
            Plug::Unknown | Plug::Empty | Plug::Plugging => return,
        }
        self.plug = Plug::Empty;
        self.not_before = now;
    }
}

impl Engine for Port {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Connected => {
                self.lines = Lines::default();
                self.monitor = Monitor::Greeting(now + GREETING);
            }
            Input::Disconnected(error) => {
                let problem = match (self.monitor, error) {
                    (Monitor::Connecting, Some(error)) => Problem::Unreachable(error),
                    _ => Problem::Ended,
                };
                self.monitor = Monitor::Connecting;
                self.leave(now, problem);
            }
            Input::Received(bytes) => {
                self.lines.push(bytes);
                while !matches!(self.monitor, Monitor::Away(_) | Monitor::Connecting)
                    && let Some(message) = self.lines.poll()
                {
                    match message {
                        Ok(message) => self.on_message(now, message),
                        Err(garbage) => self.leave(now, Problem::Garbage(garbage)),
                    }
                }
            }
            Input::Function { is_usable, has_client } => {
                self.is_usable = is_usable;
                self.is_removed &= is_usable != Some(false);
                self.deserted_since =
                    if has_client { None } else { Some(self.deserted_since.unwrap_or(now)) };
            }
        }
        self.proceed(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self.monitor {
            Monitor::Away(at) if at <= now => {
                self.monitor = Monitor::Connecting;
                self.outputs.push_back(Output::Connect);
            }
            Monitor::Greeting(at) if at <= now => self.leave(now, Problem::Silent),
            Monitor::Asked(_, at) if at <= now => self.leave(now, Problem::Stalled),
            _ => {}
        }
        self.proceed(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.monitor {
            Monitor::Away(at) | Monitor::Greeting(at) | Monitor::Asked(_, at) => Some(at),
            Monitor::Connecting => None,
            Monitor::Idle => match self.plug {
                Plug::Empty if self.is_usable == Some(true) && !self.is_removed => Some(self.not_before),
                Plug::Plugged => self.deserted_at().map(|at| at.max(self.not_before)),
                Plug::Unplugging => Some(self.not_before),
                _ => None,
            },
        }
    }
}
