//! Entry of the fuzz target of QMP: a process that sends what it likes in QEMU's place.

use engine::fuzz::Source;
use engine::{Engine, Instant, Nanos};

use super::port::{Config, Input, Output, Port};

/// The most steps of an input.
const STEPS_MAX: usize = 4096;
/// The most outputs of one input.
const OUTPUTS_MAX: usize = 64 << 10;

/// Has a port read the lines of `input`, whose messages may fit the port's commands.
///
/// # Panics
/// When the port sends without a connection, or has no end of outputs.
pub fn qmp(input: &[u8]) {
    let mut source = Source::new(input);
    let config = Config { port: "dn1".to_owned(), socket: "/run/ssd".to_owned() };
    let mut port = Port::new(config);
    let mut now = Instant::from_nanos(1);
    let mut is_connected = false;
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        step(&mut source, &mut port, &mut now, &mut is_connected);
        for count in 0.. {
            let Some(output) = port.poll_output() else { break };
            assert!(count < OUTPUTS_MAX, "a port's outputs have an end");
            match output {
                Output::Connect => {
                    is_connected = !source.byte().is_multiple_of(4);
                    let refused = || Input::Disconnected(Some("refused".to_owned()));
                    port.handle_input(now, if is_connected { Input::Connected } else { refused() });
                }
                Output::Send(_) => assert!(is_connected, "bytes need a connection"),
                Output::Close => is_connected = false,
                Output::Event(event) => drop(event.to_string()),
            }
        }
    }
}

fn step(source: &mut Source<'_>, port: &mut Port, now: &mut Instant, is_connected: &mut bool) {
    match source.byte() % 8 {
        0 => *now = *now + Nanos::from_millis(u64::from(source.byte()) * 100),
        1 => {
            let is_usable = [None, Some(true), Some(false)][usize::from(source.byte() % 3)];
            let has_client = source.byte().is_multiple_of(2);
            port.handle_input(*now, Input::Function { is_usable, has_client });
        }
        2 if *is_connected => {
            *is_connected = false;
            port.handle_input(*now, Input::Disconnected(None));
        }
        kind if *is_connected => {
            let id = source.byte() % 32;
            let text = match kind {
                3 => "{\"QMP\": {}}\n".to_owned(),
                4 if source.byte().is_multiple_of(2) => format!("{{\"return\": true, \"id\": {id}}}\n"),
                4 => format!("{{\"return\": [], \"id\": {id}}}\n"),
                5 => format!(
                    "{{\"error\": {{\"class\": \"DeviceNotFound\", \"desc\": \"no\"}}, \"id\": {id}}}\n"
                ),
                6 => "{\"event\": \"DEVICE_DELETED\", \"data\": {\"device\": \"farlane-dn1\"}}\n".to_owned(),
                _ => String::new(),
            };
            let raw = if text.is_empty() { source.bytes(usize::from(id)) } else { text.as_bytes() };
            port.handle_input(*now, Input::Received(raw));
        }
        _ => {}
    }
    if port.poll_timeout().is_some_and(|at| at <= *now) {
        port.handle_timeout(*now);
    }
}
