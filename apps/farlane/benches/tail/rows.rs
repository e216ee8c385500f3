//! The links, and the remedies against their tails.

use std::process::Command;

use crate::support::farlane;

/// A link, as a file for `farlane model emulate`.
pub(crate) struct Link {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const LINKS: [Link; 3] = [
    Link {
        name: "5g",
        title: "Two modems of a Release-15 5G network (scenarios/5g.toml)",
        text: include_str!("../../../../scenarios/5g.toml"),
    },
    Link {
        name: "5g-lossy",
        title: "The same, and the core network loses a frame in a thousand",
        text: concat!(include_str!("../../../../scenarios/5g.toml"), "\n[link.core]\nloss = \"0.1%\"\n"),
    },
    Link {
        name: "jittery",
        title: "10 ms and up to 1 ms of jitter each way, 1 Gbit/s, a frame in a thousand lost",
        text: "[link]\nlatency = \"10ms\"\nrate = \"1Gbit/s\"\njitter = \"1ms\"\nloss = \"0.1%\"\n",
    },
];

/// A remedy, or several together.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Arguments of the near end.
    pub(crate) near: &'static [&'static str],
    /// Arguments of the far end.
    pub(crate) far: &'static [&'static str],
    /// Scheme of the far end's URL.
    pub(crate) scheme: &'static str,
    /// Query of the far end's URL.
    pub(crate) query: &'static str,
    /// Number of paths between the namespaces.
    pub(crate) paths: u8,
    /// The remedy for the simulated TCP (`[link.stack]`), where that TCP has it.
    pub(crate) stack: Option<&'static str>,
}

impl Row {
    const fn of(name: &'static str, near: &'static [&'static str]) -> Self {
        Self { name, near, far: &[], scheme: "tcp", query: "", paths: 1, stack: None }
    }

    /// A row with the same options at both ends.
    const fn both(name: &'static str, options: &'static [&'static str]) -> Self {
        Self { far: options, ..Self::of(name, options) }
    }

    const fn simulated(self, stack: &'static str) -> Self {
        Self { stack: Some(stack), ..self }
    }

    /// Whether the near end looks ahead, as in all rows but the one that says otherwise.
    pub(crate) fn lookahead(&self) -> bool {
        !self.near.contains(&"--no-lookahead")
    }

    /// The first option of the row that the program does not have.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let lacks = |command: &str, options: &[&'static str]| {
            let help = help(command);
            options.iter().find(|option| option.starts_with("--") && !help.contains(**option)).copied()
        };
        lacks("bench", self.near)
            .or_else(|| lacks("export", self.far))
            .or_else(|| (self.scheme == "quic" && !help("bench").contains("quic://")).then_some("quic://"))
    }
}

fn help(command: &str) -> String {
    let mut farlane: Command = farlane();
    let output = farlane.args([command, "--help"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Option for a second path to the same far end.
const SECOND: [&str; 2] = ["--second-path", "10.77.1.2:4430"];
/// Option for a far end that also listens for QUIC.
const QUIC: [&str; 2] = ["--quic", "0.0.0.0:4430"];

pub(crate) const ROWS: [Row; 14] = [
    Row::of("TCP, without lookahead", &["--no-lookahead"]).simulated(""),
    Row::of("TCP", &[]).simulated(""),
    Row::both("RTO floor", &["--rto-min", "5ms"]).simulated("rto_floor = \"5ms\""),
    Row::both("thin streams", &["--thin"]),
    Row::both("coalescing", &["--coalesce", "1ms"]),
    Row::both("BBR", &["--congestion", "bbr"]),
    Row { paths: 2, ..Row::of("two paths", &SECOND) },
    Row { scheme: "quic", query: "?key=any", far: &QUIC, ..Row::of("QUIC", &[]) },
    Row {
        scheme: "quic",
        query: "?key=any",
        far: &[QUIC[0], QUIC[1], "--quic-congestion", "bbr"],
        ..Row::of("QUIC, BBR", &["--quic-congestion", "bbr"])
    },
    Row::of("spread", &["--spread", "5"]),
    Row { scheme: "nvme-tcp", ..Row::of("NVMe/TCP", &[]) },
    Row { scheme: "nvme-tcp", query: "?queues=4", ..Row::of("NVMe/TCP, 4 queues", &[]) },
    Row {
        far: &["--rto-min", "5ms", "--thin", "--congestion", "bbr"],
        ..Row::of(
            "RTO floor, thin, BBR, spread",
            &["--rto-min", "5ms", "--thin", "--congestion", "bbr", "--spread", "5"],
        )
    },
    Row {
        paths: 2,
        far: &["--rto-min", "5ms", "--thin", "--congestion", "bbr"],
        ..Row::of(
            "RTO floor, thin, BBR, two paths",
            &["--rto-min", "5ms", "--thin", "--congestion", "bbr", SECOND[0], SECOND[1]],
        )
    },
];
