//! Commands from the trace output of Linux: the trace events `nvme_setup_cmd`, `nvme_complete_rq`,
//! `block_rq_issue` and `block_rq_complete`, as `trace-cmd report`, `perf script` and the file
//! `trace` of tracefs print them; and the output of blkparse.
//!
//! They have the times at which a command was passed to the device and completed, and nothing in
//! between.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

use engine::Instant;

use crate::command::{Command, Kind, Step};
use crate::seen::Mark;

/// Maximum number of commands in progress.
const COMMANDS_MAX: usize = 65_536;
/// The longest name of a device, in bytes. Linux has no longer ones.
const NAME_MAX: usize = 64;
/// Bytes of a sector of the block layer.
const SECTOR: u64 = 512;

/// The key of a command until it is completed: its device, its queue or 0, and its identifier or
/// first sector.
type Key = (String, u32, u64);

/// Understands lines, one after the other.
#[derive(Debug, Default)]
pub struct Events {
    under_way: BTreeMap<Key, Command>,
    commands: VecDeque<Command>,
    unexpected: u64,
    unfinished: u64,
    dropped: u64,
    /// The time of the event before, and how many events have an earlier time than that.
    latest: Instant,
    backwards: u64,
}

/// A line that means something.
enum Line {
    Begins(Key, Command),
    Ends(Key, Instant, u16),
}

impl Line {
    fn at(&self) -> Option<Instant> {
        match self {
            Self::Begins(_, command) => command.hops.first().map(|hop| hop.first),
            Self::Ends(_, at, _) => Some(*at),
        }
    }
}

impl Events {
    /// Shows the next line. Returns whether it is one of these events.
    pub fn see(&mut self, line: &str) -> bool {
        let found = event(line).or_else(|| blkparse(line));
        if let Some(at) = found.as_ref().and_then(Line::at) {
            self.backwards += u64::from(at < self.latest);
            self.latest = at;
        }
        match found {
            None => return false,
            Some(Line::Begins(..)) if self.under_way.len() >= COMMANDS_MAX => self.dropped += 1,
            Some(Line::Begins(key, command)) => {
                let lost = self.under_way.insert(key, command);
                self.unfinished += u64::from(lost.is_some());
            }
            Some(Line::Ends(key, at, status)) => match self.under_way.remove(&key) {
                Some(mut command) => {
                    command.step(Mark { at, number: 0 }, Step::Completion);
                    command.status = Some(status);
                    self.commands.push_back(command);
                }
                None => self.unexpected += 1,
            },
        }
        true
    }

    /// The next command that has ended.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Ends the trace: commands in progress stay unfinished.
    pub fn finish(&mut self) {
        self.unfinished += self.under_way.len() as u64;
        self.under_way.clear();
    }

    /// Events with an earlier time than the one before: tracers gather them from each processor.
    pub const fn backwards(&self) -> u64 {
        self.backwards
    }

    /// Completions of commands that began before, commands without a completion, and commands that
    /// had no room.
    pub const fn counts(&self) -> (u64, u64, u64) {
        (self.unexpected, self.unfinished, self.dropped)
    }
}

/// A time as these programs print it: seconds, a point, and six or nine digits.
fn time(text: &str) -> Option<Instant> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=9).contains(digits))?;
    let fraction: u64 = fraction.parse().ok()?;
    let nanos = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    Some(Instant::from_nanos(nanos.checked_add(fraction * 10_u64.pow(9 - digits))?))
}

/// The value of `key=` in `text`, up to a comma, a space or a parenthesis.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let start = text.match_indices(key).find(|(at, _)| {
        text[..*at].chars().next_back().is_none_or(|before| !before.is_alphanumeric())
            && text[at + key.len()..].starts_with('=')
    })?;
    let rest = &text[start.0 + key.len() + 1..];
    rest.split([',', ' ', ')']).next()
}

fn number<T: core::str::FromStr>(text: &str, key: &str) -> Option<T> {
    value(text, key)?.parse().ok()
}

/// A command that was handed to the device at `at`.
fn begun(at: Instant, kind: Kind) -> Command {
    let mut command = Command::new(kind);
    command.step(Mark { at, number: 0 }, Step::Doorbell);
    command
}

/// A line with a trace event.
fn event(line: &str) -> Option<Line> {
    let names = ["nvme_setup_cmd:", "nvme_complete_rq:", "block_rq_issue:", "block_rq_complete:"];
    let (name, place) = names.iter().find_map(|name| line.find(name).map(|at| (*name, at)))?;
    let at = time(line[..place].split_whitespace().next_back()?.trim_end_matches(':'))?;
    let words = line[place + name.len()..].trim();
    match name {
        "nvme_setup_cmd:" => {
            let (function, arguments) = words.split_once("cmd=(")?.1.split_once([' ', ')'])?;
            let mut command = begun(at, kind(function)?);
            command.queue = number(words, "qid");
            command.id = number(words, "cmdid");
            command.namespace = number(words, "nsid").filter(|id| *id != 0);
            if let (Some(lba), Some(length)) = (number(arguments, "slba"), number::<u32>(arguments, "len")) {
                command.lba = Some(lba);
                command.blocks = length.checked_add(1);
                command.bytes = command.blocks.map_or(0, |blocks| u64::from(blocks) * SECTOR);
            }
            Some(Line::Begins(nvme_key(words)?, command))
        }
        "nvme_complete_rq:" => {
            let status = value(words, "status")?.trim_start_matches("0x");
            Some(Line::Ends(nvme_key(words)?, at, u16::from_str_radix(status, 16).ok()?))
        }
        _ => {
            // DEVICE RWBS [BYTES] (COMMAND) SECTOR + SECTORS …; issued requests have BYTES.
            let mut parts = words.split_whitespace();
            let (device, rwbs) = (parts.next()?, parts.next()?);
            let rest = words.split_once(") ")?.1;
            block(at, device, rwbs, rest, name == "block_rq_issue:")
        }
    }
}

fn nvme_key(words: &str) -> Option<Key> {
    let device = words.split([':', ' ']).next().filter(|name| name.len() <= NAME_MAX)?;
    Some((device.to_owned(), number(words, "qid")?, number(words, "cmdid")?))
}

/// The kind of a command by the name that Linux gives it.
fn kind(name: &str) -> Option<Kind> {
    const IO: [(&str, u8); 9] = [
        ("flush", 0x00),
        ("write", 0x01),
        ("read", 0x02),
        ("write_uncor", 0x04),
        ("compare", 0x05),
        ("write_zeroes", 0x08),
        ("dsm", 0x09),
        ("verify", 0x0c),
        ("zone_append", 0x7d),
    ];
    const ADMIN: [(&str, u8); 16] = [
        ("delete_sq", 0x00),
        ("create_sq", 0x01),
        ("get_log_page", 0x02),
        ("delete_cq", 0x04),
        ("create_cq", 0x05),
        ("identify", 0x06),
        ("abort_cmd", 0x08),
        ("set_features", 0x09),
        ("get_features", 0x0a),
        ("async_event", 0x0c),
        ("ns_mgmt", 0x0d),
        ("activate_fw", 0x10),
        ("download_fw", 0x11),
        ("ns_attach", 0x15),
        ("format_nvm", 0x80),
        ("sanitize_nvm", 0x84),
    ];
    let of = |table: &[(&str, u8)], name: &str| table.iter().find(|one| one.0 == name).map(|one| one.1);
    let io = name.strip_prefix("nvme_cmd_").and_then(|name| of(&IO, name)).map(Kind::Io);
    io.or_else(|| name.strip_prefix("nvme_admin_").and_then(|name| of(&ADMIN, name)).map(Kind::Admin))
}

/// A request of the block layer: `rest` begins with SECTOR + SECTORS.
fn block(at: Instant, device: &str, rwbs: &str, rest: &str, begins: bool) -> Option<Line> {
    let mut parts = rest.split_whitespace();
    let sector: u64 = parts.next()?.parse().ok()?;
    let sectors: u32 = match parts.next() {
        Some("+") => parts.next()?.parse().ok()?,
        _ => return None,
    };
    if device.len() > NAME_MAX {
        return None;
    }
    let key = (device.to_owned(), 0, sector);
    if !begins {
        // The last word is the error: [0] means none.
        let failed = rest.rsplit_once('[').is_some_and(|(_, error)| !error.starts_with("0]"));
        return Some(Line::Ends(key, at, u16::from(failed)));
    }
    let opcode = match rwbs.trim_start_matches('F').chars().next() {
        None => 0x00,
        Some('W') => 0x01,
        Some('R') => 0x02,
        Some('D') => 0x09,
        Some(_) => return None,
    };
    let mut command = begun(at, Kind::Io(opcode));
    (command.lba, command.blocks) = (Some(sector), Some(sectors));
    command.bytes = u64::from(sectors) * SECTOR;
    Some(Line::Begins(key, command))
}

/// A line of blkparse: device, processor, number, time, process, action, RWBS, and the request.
fn blkparse(line: &str) -> Option<Line> {
    let mut parts = line.split_whitespace();
    let device = parts.next().filter(|device| device.contains(','))?;
    let at = time(parts.nth(2)?)?;
    let (action, rwbs) = (parts.nth(1)?, parts.next()?);
    let begins = match action {
        "D" => true,
        "C" => false,
        // Queued, merged, plugged and so on: before the device.
        _ => return None,
    };
    // The rest of the line, with its words as they are.
    let words = line.trim_start();
    let rest = words.match_indices(rwbs).map(|(place, _)| &words[place + rwbs.len()..]);
    rest.filter_map(|rest| block(at, device, rwbs, rest.trim_start(), begins)).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn commands(text: &str) -> (Vec<Command>, usize, (u64, u64, u64)) {
        let mut events = Events::default();
        let seen = text.lines().filter(|line| events.see(line)).count();
        events.finish();
        (core::iter::from_fn(|| events.poll_command()).collect(), seen, events.counts())
    }

    #[test]
    fn events_of_the_nvme_driver_become_commands() {
        // Lines in the form of Documentation/trace and drivers/nvme/host/trace.h.
        let text = "\
            # tracer: nop\n\
            fio-812 [001] ..... 1042.351000: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=2, cmdid=45, nsid=1, \
              flags=0x0, meta=0x0, cmd=(nvme_cmd_read slba=2048, len=7, ctrl=0x0, dsmgmt=0, reftag=0)\n\
            fio-812 [001] ..... 1042.351020: nvme_setup_cmd: nvme0: qid=0, cmdid=9, nsid=0, flags=0x0, \
              meta=0x0, cmd=(nvme_admin_identify cns=1, ctrlid=0)\n\
            <idle>-0 [001] d.h1. 1042.351090: nvme_complete_rq: nvme0: disk=nvme0n1, qid=2, cmdid=45, \
              res=0x0, retries=0, flags=0x0, status=0x0\n\
            <idle>-0 [001] d.h1. 1042.351100: nvme_complete_rq: nvme0: qid=3, cmdid=45, res=0x0, \
              retries=0, flags=0x0, status=0x0\n";
        let (found, seen, counts) = commands(text);
        assert_eq!((seen, counts), (4, (1, 1, 0)));
        let [read] = &found[..] else { panic!("{found:?}") };
        assert_eq!((read.kind, read.queue, read.id), (Kind::Io(2), Some(2), Some(45)));
        assert_eq!((read.lba, read.blocks, read.bytes), (Some(2048), Some(8), 4096));
        assert_eq!((read.latency().get(), read.status), (90_000, Some(0)));
    }

    #[test]
    fn requests_of_the_block_layer_become_commands() {
        let text = "\
            kworker/1:1H-60 [001] d..1. 5.000001: block_rq_issue: 259,0 WS 4096 () 223490 + 8 none,0,0 [kworker]\n\
            <idle>-0 [001] d.h1. 5.000031: block_rq_complete: 259,0 WS () 223490 + 8 none,0,0 [0]\n\
            \x20 8,0    3       11     0.009507758   697  Q   W 223600 + 16 [fio]\n\
            \x20 8,0    3       12     0.009507800   697  D   W 223600 + 16 [fio]\n\
            \x20 8,0    3       13     0.009607800     0  C   W 223600 + 16 [0]\n\
            CPU3 (8,0):\n";
        let (found, seen, counts) = commands(text);
        assert_eq!((seen, counts), (4, (0, 0, 0)));
        let figures: Vec<_> = found.iter().map(|one| (one.bytes, one.latency().get(), one.status)).collect();
        assert_eq!(figures, [(4096, 30_000, Some(0)), (8192, 100_000, Some(0))]);
    }

    #[test]
    fn no_cut_of_a_line_is_too_strange() {
        let line = "a-1 [001] 5.000001: nvme_setup_cmd: nvme0: qid=2, cmdid=45, nsid=1, cmd=(nvme_cmd_read slba=1, len=4294967295)";
        for length in 0..=line.len() {
            commands(&line[..length]);
            commands(&line[length..]);
        }
        commands(
            "18446744073709551615.999999999: block_rq_issue: 8,0 R 1 () 18446744073709551615 + 4294967295 [a]",
        );
    }
}
