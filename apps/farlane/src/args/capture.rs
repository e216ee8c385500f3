//! The options of `farlane observe capture`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use nvme::wire::IoOpcode;

use super::{Output, parse_positive_size, parse_runtime, parse_size, parse_time};

pub(crate) const EXAMPLES: &str = "Examples:\n  \
    farlane observe capture --out far.pcapng --time 5s\n  \
    farlane observe capture export --out - | wireshark -k -i -\n  \
    farlane observe capture target --out slow.pcapng --ring 64MiB --trigger 'latency>2ms' --after 10ms\n  \
    farlane observe capture device --out queue1.pcapng --queue 1 --opcode read --snap 2048\n  \
    farlane observe capture --status";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("act").required(true).args(["out", "status", "stop"]))]
pub(crate) struct CaptureDaemonArgs {
    /// The daemon: its control socket, its process identifier, or its kind if there is one of it.
    ///
    /// A kind is export, attach, device, target or connect. Without a DAEMON, the only one there is
    #[arg(value_name = "DAEMON")]
    pub(crate) daemon: Option<String>,
    /// Write the capture (pcapng) to this file, or with - to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Say which captures of the daemon are running
    #[arg(long)]
    pub(crate) status: bool,

    /// End all captures of the daemon in good order
    #[arg(long)]
    pub(crate) stop: bool,

    /// End after this time; Ctrl-C ends it as well
    #[arg(long, value_name = "TIME", value_parser = parse_runtime, requires = "out")]
    pub(crate) time: Option<Duration>,

    /// End after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "out")]
    pub(crate) count: Option<u64>,

    /// Keep only the latest packets, so many bytes of them, and write them at the end
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size, requires = "out")]
    pub(crate) ring: Option<u64>,

    /// End when a command takes longer: 'latency>2ms'
    #[arg(long, value_name = "CONDITION", requires = "out")]
    pub(crate) trigger: Option<Trigger>,

    /// Continue for this long after the command that --trigger has found
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_time, requires = "trigger")]
    pub(crate) after: Duration,

    /// Keep no more than this of a packet's data; 0 keeps headers alone [default: all].
    ///
    /// 2048 keeps all entries of a fetch, which identify commands; page lists of long commands take
    /// up to 4096. Bytes that are cut off cost the daemon nothing
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "out")]
    pub(crate) snap: Option<u64>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The packets that a capture keeps. A packet must match each option that is given.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filters {
    /// Keep packets of these kinds; several are joined by commas
    #[arg(long, value_name = "KIND", value_delimiter = ',', requires = "out")]
    pub(crate) kind: Vec<PacketKind>,

    /// Keep packets of these queues; several are joined by commas.
    ///
    /// For a target, these are its connections for these queues
    #[arg(long, value_name = "QUEUE", value_delimiter = ',', requires = "out")]
    pub(crate) queue: Vec<u16>,

    /// Keep requests of memory at these addresses, and their completions: 0xfeb00000+16KiB.
    ///
    /// Several are joined by commas
    #[arg(long, value_name = "ADDRESS+SIZE", value_delimiter = ',', requires = "out")]
    pub(crate) address: Vec<AddressRange>,

    /// Keep packets of I/O commands with these opcodes, by name or number; joined by commas.
    ///
    /// Doorbells and fetches of entries stay, because they belong to commands of any kind
    #[arg(long, value_name = "OPCODE", value_delimiter = ',', requires = "out")]
    pub(crate) opcode: Vec<Opcode>,
}

impl Filters {
    /// An option that chooses packets, if one is given: connections have none.
    pub(crate) fn of_packets(&self) -> Option<&'static str> {
        let given = [
            (!self.kind.is_empty(), "--kind"),
            (!self.address.is_empty(), "--address"),
            (!self.opcode.is_empty(), "--opcode"),
        ];
        given.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name)
    }
}

/// A kind of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PacketKind {
    /// Memory reads
    Read,
    /// Memory writes
    Write,
    /// Completions
    Completion,
    /// Configuration reads and writes
    Config,
    /// Messages
    Message,
    /// All others: I/O requests and atomic operations
    Other,
}

/// Addresses of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressRange {
    start: u64,
    length: u64,
}

impl AddressRange {
    /// Whether any of `length` bytes at `address` is among them.
    pub(crate) const fn meets(self, address: u64, length: u64) -> bool {
        address < self.start.saturating_add(self.length) && self.start < address.saturating_add(length)
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected ADDRESS+SIZE such as 0xfeb00000+16KiB".to_owned();
        let (start, length) = text.split_once('+').ok_or_else(expected)?;
        let start = number(start).ok_or_else(expected)?;
        Ok(Self { start, length: parse_positive_size(length)? })
    }
}

/// The opcode of an I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opcode(pub(crate) u8);

impl FromStr for Opcode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |name: String| name.to_lowercase().replace([' ', '-'], "");
        let named = (0..=u8::MAX).find(|code| plain(IoOpcode::from(*code).to_string()) == plain(text.into()));
        let code = named.or_else(|| u8::try_from(number(text)?).ok());
        code.map(Self).ok_or_else(|| "expected read, write, flush, another I/O command or 0x02".to_owned())
    }
}

/// A number, decimal or hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The trigger that ends a capture: a command that takes longer than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger(pub(crate) Duration);

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = text.split_once('>').filter(|(what, _)| what.trim() == "latency");
        let (_, time) = time.ok_or("expected 'latency>TIME' such as 'latency>2ms'")?;
        parse_time(time.trim()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_opcodes_and_triggers_are_written_as_people_write_them() {
        let range: AddressRange = "0x1000+4k".parse().unwrap();
        assert!(range.meets(0x1fff, 1) && range.meets(0xfff, 2) && range.meets(0, u64::MAX));
        assert!(!range.meets(0x2000, 1) && !range.meets(0xfff, 1));
        for wrong in ["0x1000", "+4k", "x+4k", "0x1000+0"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
        for (text, code) in
            [("read", 2), ("0x02", 2), ("2", 2), ("write-zeroes", 8), ("Dataset Management", 9)]
        {
            assert_eq!(text.parse(), Ok(Opcode(code)), "{text}");
        }
        assert!("identify".parse::<Opcode>().is_err() && "300".parse::<Opcode>().is_err());
        assert_eq!("latency > 2ms".parse(), Ok(Trigger(Duration::from_millis(2))));
        assert!("rate>2ms".parse::<Trigger>().is_err() && "latency>fast".parse::<Trigger>().is_err());
    }
}
