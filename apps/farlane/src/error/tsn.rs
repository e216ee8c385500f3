//! Errors in using a plan of Time-Sensitive Networking.

use std::io;
use std::path::PathBuf;

use miette::Diagnostic;
use network_models::Rate;
use thiserror::Error as ThisError;

use crate::exit::Exit;

/// A plan can't be read, applied or checked.
#[derive(Debug, ThisError, Diagnostic)]
pub(crate) enum TsnError {
    #[error("{} is no plan: {why}", path.display())]
    #[diagnostic(help("farlane model tsn plan --json > {} makes one", path.display()))]
    NoPlan { path: PathBuf, why: String },

    #[error("this machine has no interface {interface}")]
    #[diagnostic(help("ip link shows its interfaces; --dry-run prints the commands for another machine"))]
    NoInterface { interface: String },

    #[error("{interface} can't keep the plan: {why}")]
    #[diagnostic(help("{remedy}"))]
    Interface { interface: String, why: String, remedy: &'static str },

    #[error(
        "class {class} has no queue of its own here: there are two, for the plan's class and for all others"
    )]
    #[diagnostic(help("give the interface eight transmit queues, or leave the shaper out"))]
    Shared { class: u8 },

    #[error("class {class} takes one discipline, and {second} would replace its --shaper")]
    #[diagnostic(help(
        "give each class one --shaper at most, and none to the plan's class with --launch-times"
    ))]
    OnePlace { class: u8, second: &'static str },

    #[error("class {class} has two rates to keep: {} and {}", rates[0], rates[1])]
    #[diagnostic(help("give each class one --shaper at most"))]
    TwoRates { class: u8, rates: [Rate; 2] },

    #[error("a shaper of {rate} on a link of {}", link.map_or_else(|| "an unknown rate".to_owned(), |link| link.to_string()))]
    #[diagnostic(help(
        "expected less than the link's rate; a PLAN gives the rate where the link reports none"
    ))]
    ShaperRate { rate: Rate, link: Option<Rate> },

    #[error("{command}\nfailed: {said}")]
    #[diagnostic(help("{remedy}"))]
    Refused { command: String, said: String, remedy: String },

    #[error("can't run ip and tc: {0}")]
    #[diagnostic(help("install iproute2, or use --dry-run and carry out the commands elsewhere"))]
    NoTc(io::Error),

    #[error("ip can't describe {interface}: {said}")]
    #[diagnostic(help("farlane needs the ip of iproute2; --dry-run prints the commands without it"))]
    NoIp { interface: String, said: String },

    #[error("no PTP daemon answers at {}: {error}", socket.display())]
    #[diagnostic(help(
        "give --ptp the uds_address of a ptp4l that runs, usually /var/run/ptp4l, or uds_ro_address, usually /var/run/ptp4lro, which all users may ask; without --ptp, clocks are compared over the tunnel"
    ))]
    NoTime { socket: PathBuf, error: io::Error },

    #[error("can't see the frames of {interface}: {error}")]
    #[diagnostic(help(
        "ip link shows the interfaces; seeing frames takes the capability CAP_NET_RAW: use sudo"
    ))]
    Tap { interface: String, error: io::Error },

    #[error("no frame of class {class} was seen{}, so there is nothing to check", beside(without_stamp))]
    #[diagnostic(help(
        "a frame's class is the PCP of its tag, or the first three bits of its DSCP: give senders pcp=, or --dscp CS1 to CS7"
    ))]
    Nothing { class: u8, without_stamp: u64 },

    #[error(
        "the plan is not kept: {outside} of {frames} frames left outside of their windows or beyond their rate"
    )]
    #[diagnostic(help("--frames lists them; docs/tsn.md describes the accuracy of the stamps"))]
    NotKept { outside: u64, frames: u64 },

    #[error("it is not known whether the plan is kept: {missed} frames were not seen, because too many came")]
    #[diagnostic(help(
        "a capture of another program can be checked with --from; fewer other frames leave time for all"
    ))]
    Unseen { missed: u64 },

    #[error("it is not known whether the plan is kept: {count} packets of the capture have no time stamp")]
    #[diagnostic(help(
        "expected a pcap file, or a pcapng file with Enhanced Packet Blocks, as tcpdump and dumpcap write them"
    ))]
    NoStamps { count: u64 },

    #[error("frames have link type {link}{} in {}; expected 1, Ethernet", name_of(link), path.display())]
    #[diagnostic(help(
        "capture at the interface itself (tcpdump -i eth0): a capture of any has no headers of Ethernet"
    ))]
    OtherLink { path: PathBuf, link: u32 },
}

/// The name of a link type by which Linux captures at all interfaces at once.
const fn name_of(link: &u32) -> &'static str {
    match link {
        113 => ", LINUX_SLL,",
        276 => ", LINUX_SLL2,",
        _ => "",
    }
}

/// The part of the message about packets that were no help.
fn beside(without_stamp: &u64) -> String {
    match without_stamp {
        0 => String::new(),
        count => format!(" beside {count} packets without a time stamp"),
    }
}

impl TsnError {
    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::NoPlan { .. }
            | Self::Shared { .. }
            | Self::OnePlace { .. }
            | Self::TwoRates { .. }
            | Self::OtherLink { .. }
            | Self::ShaperRate { .. } => Exit::Wrong,
            _ => Exit::Failed,
        }
    }
}
