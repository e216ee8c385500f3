//! QEMU's monitor over its machine protocol (QMP), for commands as a person would type them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;

/// How long the monitor may take to answer a command.
const ANSWER: Duration = Duration::from_secs(30);
/// Number of events that are passed over while one answer is awaited.
const EVENTS_MAX: usize = 10_000;

/// A connection from QEMU's monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// Reads the greeting of QEMU, which has connected, and leaves its capabilities negotiation.
    pub(crate) fn new(stream: UnixStream) -> Result<Self, Error> {
        stream.set_read_timeout(Some(ANSWER)).map_err(Error::io("setting up the monitor"))?;
        let mut monitor = Self { stream: BufReader::new(stream) };
        let greeting = monitor.line()?;
        if greeting.get("QMP").is_none() {
            return Err(Error::Monitor(format!("it greeted with {greeting}")));
        }
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Runs a command of the human monitor, such as `info pci`, `system_reset` or `device_del
    /// device0`. Returns the command's output.
    pub(crate) fn human(&mut self, line: &str) -> Result<String, Error> {
        let answer = self.execute("human-monitor-command", &json!({"command-line": line}))?;
        Ok(answer.as_str().unwrap_or_default().replace("\r\n", "\n"))
    }

    /// Runs a command of the machine protocol, and returns its result.
    pub(crate) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, Error> {
        let request = json!({"execute": command, "arguments": arguments}).to_string() + "\n";
        self.stream
            .get_mut()
            .write_all(request.as_bytes())
            .map_err(|error| Error::Monitor(format!("{command}: {error}")))?;
        for _ in 0..EVENTS_MAX {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("an error without words");
                return Err(Error::Monitor(format!("{command}: {text}")));
            }
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
        }
        Err(Error::Monitor(format!("{command}: {EVENTS_MAX} events and no answer")))
    }

    fn line(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(Error::Monitor("QEMU has closed it".to_owned())),
            Ok(_) => serde_json::from_str(&line).map_err(|error| Error::Monitor(format!("{error}: {line}"))),
            Err(error) => Err(Error::Monitor(error.to_string())),
        }
    }
}
