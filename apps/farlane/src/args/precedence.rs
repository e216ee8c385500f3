//! The options for the priority of an end's packets in networks, and for the times at which they
//! leave.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use live::carrier::datagrams::Launch;
use live::sys::clock::Clock;
use live::sys::precedence::{Dscp, Precedence, Priority};
use live::sys::ptp::{self, Daemon};
use live::sys::sandbox::Needs;
use tunnel::frame::NetworkTime;

use super::headings::TRANSPORT;
use super::{note_once, parse_time};
use crate::error::{Error, TsnError};
use crate::plan_file::PlanFile;

/// How long before its launch a datagram is handed to the kernel by default: longer than a busy
/// machine takes for it, and than etf's usual delta of 200 µs and less.
const LEAD: Duration = Duration::from_micros(500);

/// How soon networks carry the packets of an end.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct PrecedenceArgs {
    /// Send with this priority in the queueing disciplines of this machine, 0 to 15.
    ///
    /// An interface of a VLAN makes the priority of its tags (PCP) from it, as its egress-qos-map
    /// says. Frames of eth: with vlan= have it in their tags. 7 and more want CAP_NET_ADMIN
    #[arg(long, value_name = "N", help_heading = TRANSPORT)]
    priority: Option<Priority>,
    /// Send IP packets with this DSCP: a name such as EF, CS5 or AF41, or a number from 0 to 63
    #[arg(long, value_name = "NAME|N", help_heading = TRANSPORT)]
    dscp: Option<Dscp>,
}

impl PrecedenceArgs {
    /// The settings of sockets.
    pub(crate) const fn precedence(self) -> Precedence {
        Precedence { priority: self.priority, dscp: self.dscp }
    }

    /// Adds the rights for these options to the needs of a confined process.
    pub(crate) fn need(self, needs: &mut Needs) {
        needs.takes_precedence |= self.priority.is_some_and(Priority::takes_a_right);
    }
}

/// When datagrams leave.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LaunchArgs {
    /// Send datagrams of udp:// and frames of eth: in the windows of this plan.
    ///
    /// PLAN is the output of farlane model tsn plan --json. Append ,hop=N for another hop than the
    /// first, and ,lead=TIME to hand datagrams over earlier than 500us before they leave. The
    /// queueing discipline etf must be at the interface: farlane model tsn apply --launch-times
    /// puts it there, in the queue of the plan's class, to which --priority or pcp= leads
    #[arg(long, value_name = "PLAN[,hop=N][,lead=TIME]", help_heading = TRANSPORT)]
    launch: Option<LaunchSpec>,
}

impl LaunchArgs {
    /// Whether a plan was given.
    pub(crate) const fn is_given(&self) -> bool {
        self.launch.is_some()
    }

    /// The windows in which datagrams leave, if any were asked for.
    ///
    /// # Errors
    /// When the plan can't be read, or has no such hop.
    pub(crate) fn launch(&self) -> Result<Option<Launch>, Error> {
        let read = |spec: &LaunchSpec| {
            let plan = PlanFile::read(&spec.path)?;
            let windows = plan.windows(spec.hop)?;
            Ok(Launch { windows, lead: spec.lead.into(), class: plan.class })
        };
        self.launch.as_ref().map(read).transpose()
    }

    /// Adds the rights for these options to the needs of a confined process.
    pub(crate) fn need(&self, needs: &mut Needs) {
        if let Some(spec) = &self.launch {
            needs.takes_precedence = true;
            needs.read.push(spec.path.clone());
        }
    }
}

/// `PLAN[,hop=N][,lead=TIME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaunchSpec {
    path: PathBuf,
    /// The hop that this end is, from 1.
    hop: usize,
    lead: Duration,
}

impl FromStr for LaunchSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let path = parts.next().filter(|path| !path.is_empty()).ok_or("expected the file of a plan")?;
        let mut spec = Self { path: Path::new(path).to_owned(), hop: 1, lead: LEAD };
        let mut given = Vec::new();
        for part in parts {
            note_once(&mut given, part)?;
            match part.split_once('=') {
                Some(("hop", number)) => {
                    let hop = number.parse().ok().filter(|hop| *hop > 0);
                    spec.hop = hop.ok_or_else(|| format!("hop={number}: expected a number from 1 on"))?;
                }
                Some(("lead", time)) => spec.lead = parse_time(time)?,
                _ => return Err(format!("'{part}' is not one of: hop=N, lead=TIME")),
            }
        }
        Ok(spec)
    }
}

/// Where the time of the network is asked for.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PtpArgs {
    /// Ask the PTP daemon at this socket how well this machine's clock follows the network's
    /// [default: ptp4l's, if it runs].
    ///
    /// When both ends follow one grandmaster, one-way times are known without an exchange.
    /// Farlane finds out the daemon's PTP domain and its transportSpecific (0, or 1 for gPTP).
    /// Append ,domain=N or ,transport-specific=N to ask with these values only
    #[arg(long, value_name = "SOCKET[,domain=N][,transport-specific=N]", value_parser = parse_daemon,
        help_heading = TRANSPORT)]
    ptp: Option<Daemon>,
}

impl PtpArgs {
    /// The daemon, if one was named.
    pub(crate) const fn daemon(&self) -> Option<&Daemon> {
        self.ptp.as_ref()
    }

    /// The time of the network by `clock`, if a daemon serves it.
    ///
    /// # Errors
    /// When no daemon answers at a socket that was named.
    pub(crate) fn network_time(&self, clock: &Clock) -> Result<Option<NetworkTime>, Error> {
        match (ptp::network_time(clock, self.daemon()), &self.ptp) {
            (Ok(found), _) => {
                info!("the network's time is known to within {} ({})", found.time.error, found.domain);
                Ok(Some(found.time))
            }
            (Err(error), Some(daemon)) => {
                Err(TsnError::NoTime { socket: daemon.socket.clone(), error }.into())
            }
            (Err(_), None) => Ok(None),
        }
    }
}

/// Parses `SOCKET[,domain=N][,transport-specific=N]`.
fn parse_daemon(text: &str) -> Result<Daemon, String> {
    let mut parts = text.split(',');
    let socket = parts.next().filter(|socket| !socket.is_empty());
    let socket = socket.ok_or_else(|| format!("expected a socket, such as {}", ptp::PLACES[1]))?;
    let mut daemon = Daemon::at(Path::new(socket));
    let mut given = Vec::new();
    for part in parts {
        note_once(&mut given, part)?;
        match part.split_once('=') {
            Some(("domain", number)) => {
                let domain = number.parse().map_err(|_| format!("domain={number}: expected 0 to 255"))?;
                daemon.domain = Some(domain);
            }
            Some(("transport-specific", number)) => {
                let value = number.parse().ok().filter(|value| *value <= 15);
                let value = value.ok_or_else(|| {
                    format!("transport-specific={number}: expected 0 to 15; it is 1 for gPTP, else usually 0")
                })?;
                daemon.transport_specific = Some(value);
            }
            _ => return Err(format!("'{part}' is not one of: domain=N, transport-specific=N")),
        }
    }
    Ok(daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_a_plan_a_hop_and_a_lead() {
        let spec: LaunchSpec = "plan.json,hop=2,lead=1ms".parse().unwrap();
        assert_eq!((spec.hop, spec.lead), (2, Duration::from_millis(1)));
        assert_eq!("plan.json".parse::<LaunchSpec>().unwrap().lead, LEAD);
        for (wrong, expected) in [
            ("", "the file"),
            ("a,hop=0", "from 1 on"),
            ("a,cycle=1ms", "'cycle=1ms'"),
            ("a,hop=1,lead=1ms,hop=2", "hop is given twice"),
            ("a,lead=1ms,lead=1ms", "lead is given twice"),
        ] {
            let error = wrong.parse::<LaunchSpec>().unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_daemon_is_a_socket_and_a_domain() {
        let daemon = parse_daemon("/run/ptp4l,domain=24,transport-specific=1").unwrap();
        assert_eq!((daemon.domain, daemon.transport_specific), (Some(24), Some(1)));
        assert_eq!(daemon.socket, Path::new("/run/ptp4l"));
        assert_eq!(parse_daemon("/run/ptp4l").unwrap(), Daemon::at(Path::new("/run/ptp4l")));
        for (wrong, expected) in [
            ("", "expected a socket"),
            (",domain=1", "expected a socket"),
            ("a,domain=256", "0 to 255"),
            ("a,domain=", "0 to 255"),
            ("a,transport-specific=16", "0 to 15"),
            ("a,domain=1,domain=1", "domain is given twice"),
            ("a,sdo=1", "'sdo=1'"),
            ("a,", "''"),
        ] {
            let error = parse_daemon(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
