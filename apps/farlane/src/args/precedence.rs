//! The options for how soon networks carry what an end sends, and when it leaves.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use live::carrier::datagrams::Launch;
use live::sys::clock::Clock;
use live::sys::precedence::{Dscp, Precedence, Priority};
use live::sys::ptp;
use live::sys::sandbox::Needs;
use tunnel::frame::NetworkTime;

use super::headings::TRANSPORT;
use super::{note_once, parse_time};
use crate::commands::tsn::PlanFile;
use crate::error::{Error, TsnError};

/// How long before its launch a datagram is handed to the kernel, if nobody says otherwise: longer
/// than a busy machine takes for it, and than etf's usual delta of 200 µs and less.
const LEAD: Duration = Duration::from_micros(500);

/// How soon networks carry what an end sends.
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
    /// What sockets are given.
    pub(crate) const fn precedence(self) -> Precedence {
        Precedence { priority: self.priority, dscp: self.dscp }
    }

    /// Adds what these options take to what a confined process needs.
    pub(crate) fn need(self, needs: &mut Needs) {
        needs.takes_precedence |= self.priority.is_some_and(Priority::takes_a_right);
    }
}

/// When datagrams leave.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LaunchArgs {
    /// Send datagrams of udp:// and frames of eth: in the windows of this plan.
    ///
    /// PLAN is what farlane tsn plan --json prints. Append ,hop=N for another hop than the first,
    /// and ,lead=TIME to hand datagrams over earlier than 500us before they leave. The queueing
    /// discipline etf must be at the interface: farlane tsn apply --launch-times puts it there, in
    /// the queue of the plan's class, to which --priority or pcp= leads
    #[arg(long, value_name = "PLAN[,hop=N][,lead=TIME]", help_heading = TRANSPORT)]
    launch: Option<LaunchSpec>,
}

impl LaunchArgs {
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

    /// Adds what these options take to what a confined process needs.
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
    /// When both ends follow one grandmaster, one-way times need no exchange to be told apart
    #[arg(long, value_name = "SOCKET", help_heading = TRANSPORT)]
    ptp: Option<PathBuf>,
}

impl PtpArgs {
    /// The socket, if one was named.
    pub(crate) fn place(&self) -> Option<&Path> {
        self.ptp.as_deref()
    }

    /// The time of the network by `clock`, if somebody tells it.
    ///
    /// # Errors
    /// When nobody answers at a socket that was named.
    pub(crate) fn network_time(&self, clock: &Clock) -> Result<Option<NetworkTime>, Error> {
        match (ptp::network_time(clock, self.place()), &self.ptp) {
            (Ok(time), _) => {
                info!("the network's time is known to within {}", time.error);
                Ok(Some(time))
            }
            (Err(error), Some(socket)) => Err(TsnError::NoTime { socket: socket.clone(), error }.into()),
            (Err(_), None) => Ok(None),
        }
    }
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
}
