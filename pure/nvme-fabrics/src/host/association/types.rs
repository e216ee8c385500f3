//! Settings, inputs and outputs of an association.

use alloc::string::String;
use core::fmt;

use engine::{Entropy, Nanos};
use nvme::host::{Completed, Data};
use nvme::wire::{Status, StatusCode, SubmissionQueueEntry};

use crate::authentication::{self, Credentials};
use crate::host::ImpactedController;
use crate::wire::{ControllerChoice, FabricsStatus, HostId, Nqn, Parameter, QueueId};

/// How a host authenticates.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// The secrets, and the host's requirements.
    pub credentials: Credentials,
    /// The source of challenges and keys. In production it must be the system's.
    pub entropy: Entropy,
}

/// The settings of an association.
#[derive(Clone, Debug)]
pub struct Config {
    /// NQN of the subsystem (SUBNQN).
    pub subsystem: Nqn,
    /// NQN of this host (HOSTNQN).
    pub host: Nqn,
    /// Identifier of this host (HOSTID).
    pub host_id: HostId,
    /// The controller to request.
    pub controller: ControllerChoice,
    /// Number of I/O queues, 1..=64; the controller may grant fewer. A discovery subsystem has
    /// none.
    pub io_queues: u16,
    /// Commands that each I/O queue holds: 2..=1024.
    pub queue_size: u16,
    /// Commands that the Admin Queue holds: 2..=1024.
    pub admin_queue_size: u16,
    /// Keep Alive Timeout (KATO); zero disables it.
    pub keep_alive: Nanos,
    /// How long an attempt to bring the controller up may take, until the association is live.
    pub connect_timeout: Nanos,
    /// How long an admin command may take before the association reconnects.
    pub admin_timeout: Nanos,
    /// The first and the longest wait between two attempts to connect again.
    pub reconnect: (Nanos, Nanos),
    /// How long the association tries to reach a lost controller; `None` means without limit.
    pub controller_loss_timeout: Option<Nanos>,
    /// How long commands wait for a lost controller before they fail. `None` means as long as the
    /// association tries to reach the controller.
    pub fast_io_fail_timeout: Option<Nanos>,
    /// How the host authenticates when the controller demands it; `None` if it cannot.
    pub authentication: Option<Authentication>,
}

impl Config {
    /// The defaults of Linux, for one I/O queue of 128 commands.
    pub const fn new(subsystem: Nqn, host: Nqn, host_id: HostId) -> Self {
        Self {
            subsystem,
            host,
            host_id,
            controller: ControllerChoice::Dynamic,
            io_queues: 1,
            queue_size: 128,
            admin_queue_size: 32,
            keep_alive: Nanos::from_secs(5),
            connect_timeout: Nanos::from_secs(10),
            admin_timeout: Nanos::from_secs(60),
            reconnect: (Nanos::from_millis(100), Nanos::from_secs(10)),
            controller_loss_timeout: Some(Nanos::from_secs(600)),
            fast_io_fail_timeout: None,
            authentication: None,
        }
    }

    pub(super) fn check(&self) {
        assert!((1..=64).contains(&self.io_queues), "1..=64 I/O queues");
        assert!((2..=1024).contains(&self.queue_size), "2..=1024 commands of an I/O queue");
        assert!((2..=1024).contains(&self.admin_queue_size), "2..=1024 commands of the Admin Queue");
        let (first, longest) = self.reconnect;
        assert!(first > Nanos::ZERO && longest >= first, "time passes between two attempts");
        let limits = [self.connect_timeout, self.admin_timeout];
        assert!(limits.iter().all(|limit| *limit > Nanos::ZERO), "time-outs are not zero");
    }
}

/// Why an association was lost. The association tries to connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The connection of this queue ended or could not be established.
    Connection(QueueId),
    /// An admin command was not answered in time.
    AdminTimeout,
    /// A Keep Alive was not answered in time.
    KeepAlive,
    /// An I/O command was not answered in time.
    IoTimeout,
    /// The attempt to connect took too long.
    Connecting,
    /// The controller refused to be brought up, or to report its ANA states again, but may accept a
    /// later attempt.
    Refused(Failure),
    /// The caller requested a reset.
    Requested,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(queue) if queue.is_admin() => f.write_str("the admin connection is lost"),
            Self::Connection(queue) => write!(f, "the connection of queue {} is lost", queue.0),
            Self::AdminTimeout => f.write_str("an admin command was not answered in time"),
            Self::KeepAlive => f.write_str("a Keep Alive was not answered in time"),
            Self::IoTimeout => f.write_str("an I/O command was not answered in time"),
            Self::Connecting => f.write_str("connecting took too long"),
            Self::Refused(failure) => failure.fmt(f),
            Self::Requested => f.write_str("the caller requested a reset"),
        }
    }
}

/// Why a controller cannot be brought up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Connect was refused.
    Connect {
        /// The queue of the Connect.
        queue: QueueId,
        /// The status that Connect ended with.
        status: Status,
        /// DW0 of the response: the invalid parameter, or whether authentication is needed.
        dw0: u32,
    },
    /// Host and controller did not authenticate.
    Authentication {
        /// The queue whose authentication failed.
        queue: QueueId,
        /// Why it was not.
        why: authentication::Failure,
    },
    /// Another command that brings the controller up was refused.
    Command {
        /// Name of the command.
        what: &'static str,
        /// The status that the command ended with.
        status: Status,
    },
    /// A command returned fewer bytes than required.
    Short {
        /// Name of the command.
        what: &'static str,
    },
    /// CSTS.RDY was not set in time (CAP.TO).
    NotReady,
    /// The controller reports Controller Fatal Status (CSTS.CFS).
    Fatal,
    /// The controller could not be reached for as long as the controller loss time-out.
    ControllerLoss,
}

impl Failure {
    /// Whether another attempt may succeed.
    pub(super) fn may_retry(self) -> bool {
        match self {
            Self::Connect { status, .. } | Self::Command { status, .. } => {
                !status.do_not_retry() || self.is_of_an_ended_association()
            }
            Self::Authentication { .. } | Self::ControllerLoss => false,
            Self::NotReady | Self::Fatal | Self::Short { .. } => true,
        }
    }

    /// Whether the subsystem has refused this host for good: it is not there, does not let this
    /// host in, or one end has not proved its identity. Such an answer stays the same until people
    /// change something, whereas a target that restarts, is busy or is full gives other answers or
    /// none.
    ///
    /// As in Linux, Do Not Retry in the answer to the first Connect makes it final.
    pub fn is_refusal(self) -> bool {
        let passes = |status| FabricsStatus::of(status).is_some_and(FabricsStatus::may_retry);
        let is_final = |status: Status| status.do_not_retry() && !passes(status);
        match self {
            Self::Authentication { .. } => true,
            Self::Connect { queue, status, .. } => queue.is_admin() && is_final(status),
            Self::Command { status, .. } => {
                FabricsStatus::of(status) == Some(FabricsStatus::AuthenticationRequired) && is_final(status)
            }
            Self::Short { .. } | Self::NotReady | Self::Fatal | Self::ControllerLoss => false,
        }
    }

    /// Whether an I/O queue reached a controller that has ended this host's association. Either the
    /// controller lost the admin connection before the host did, or another controller has the same
    /// number: a restarted target has given the number to another path of this host, whose queues
    /// are connected. Linux's target sets Do Not Retry in these answers. The bit is about this
    /// Connect, not about a new association.
    fn is_of_an_ended_association(self) -> bool {
        let Self::Connect { queue, status, dw0 } = self else { return false };
        let of_ours = [Parameter::CONTROLLER, Parameter::HOST, Parameter::HOST_ID];
        let is_unknown = FabricsStatus::of(status) == Some(FabricsStatus::InvalidParameters)
            && of_ours.contains(&Parameter::from_dw0(dw0));
        !queue.is_admin() && (is_unknown || status.code() == StatusCode::CommandSequenceError)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { queue, status, dw0 } => {
                write!(f, "Connect of queue {} was refused: ", queue.0)?;
                let Some(fabrics) = FabricsStatus::of(*status) else { return status.fmt(f) };
                fabrics.fmt(f)?;
                if fabrics == FabricsStatus::InvalidParameters {
                    let parameter = Parameter::from_dw0(*dw0);
                    let place = if parameter.in_data { "data" } else { "command" };
                    match parameter.name() {
                        Some(name) => write!(f, " ({name})")?,
                        None => write!(f, " (byte {} of its {place})", parameter.offset)?,
                    }
                }
                Ok(())
            }
            Self::Authentication { queue, why } => {
                write!(f, "authentication of queue {} failed: {why}", queue.0)
            }
            Self::Command { what, status } => write!(f, "{what} failed: {status}"),
            Self::Short { what } => write!(f, "{what} returned too few bytes"),
            Self::NotReady => f.write_str("CSTS.RDY was not set within CAP.TO"),
            Self::Fatal => f.write_str("the controller reports a fatal error (CSTS.CFS)"),
            Self::ControllerLoss => f.write_str("the controller could not be reached again in time"),
        }
    }
}

impl core::error::Error for Failure {}

/// An output of an association: a request to its transport, or a report to its owner.
#[derive(Clone, Debug)]
pub enum Output {
    /// Connect a queue. [`super::Association::on_queue_open`] or
    /// [`super::Association::on_queue_lost`] follows.
    OpenQueue {
        /// The queue to connect.
        queue: QueueId,
        /// The controller of the queue (CNTLID); 0 for an Admin Queue, which has none yet.
        controller: u16,
        /// Commands that the queue holds.
        size: u16,
        /// Maximum length of the data in a capsule of the queue, in bytes.
        capsule_data_max: u32,
    },
    /// Send a command. [`super::Association::on_completed`] follows unless the queue is lost.
    Submit {
        /// The queue on which to send the command.
        queue: QueueId,
        /// Names the command in [`super::Association::on_completed`].
        token: u64,
        /// The submission queue entry of the command.
        entry: SubmissionQueueEntry,
        /// The data that the command moves.
        data: Data,
    },
    /// Close every queue at once.
    CloseQueues {
        /// Whether unsent bytes must be dropped rather than sent.
        abort: bool,
    },
    /// The controller is up, for the first time or again: see [`super::Association::identity`].
    Ready,
    /// The association is lost. How its outstanding commands ended is unknown. Another attempt to
    /// connect follows.
    Lost(Loss),
    /// The controller was away for as long as the fast I/O fail time-out.
    FastIoFail,
    /// The association has ended for good: with this failure, or by a shutdown (`None`).
    Ended(Option<Failure>),
    /// An admin command of the caller has ended.
    AdminCompleted(Completed),
    /// A Cross-Controller Reset of another controller has ended.
    ControllerReset {
        /// The life of the controller that the reset had to end.
        impacted: ImpactedController,
        /// Whether that life has ended, so that none of its commands is executed any more.
        done: bool,
    },
    /// The controller reports an event (DW0 of the Asynchronous Event Request).
    Event(u32),
    /// The controller's identity has changed: its namespaces, or the ANA states of its paths.
    IdentityChanged,
}

/// Why an admin command was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// Too many admin commands are outstanding.
    Busy,
    /// The controller is not up.
    NotReady,
    /// The command moves more bytes than the controller allows. Holds the explanation.
    Length(String),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the maximum number of admin commands is outstanding"),
            Self::NotReady => f.write_str("the controller is not up"),
            Self::Length(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for SubmitError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_queue_that_meets_another_association_ends_this_one_and_not_the_path() {
        let refused = |queue, code: StatusCode| {
            let status = Status::new(code).with_do_not_retry(true);
            Failure::Connect { queue: QueueId(queue), status, dw0: 0 }
        };
        assert!(refused(2, StatusCode::CommandSequenceError).may_retry());
        assert!(!refused(0, StatusCode::CommandSequenceError).may_retry());
        assert!(!refused(2, StatusCode::InvalidField).may_retry());
    }

    #[test]
    fn what_passes_by_itself_is_no_refusal() {
        let connect = |queue, status: Status| Failure::Connect { queue: QueueId(queue), status, dw0: 0 };
        let of = |status: FabricsStatus| Status::from(status);
        for refused in [
            connect(0, of(FabricsStatus::InvalidHost)),
            connect(0, of(FabricsStatus::InvalidParameters)),
            connect(0, Status::from(StatusCode::InvalidField).with_do_not_retry(true)),
            Failure::Authentication { queue: QueueId(1), why: authentication::Failure::HostSecret },
            Failure::Command { what: "Property Get", status: of(FabricsStatus::AuthenticationRequired) },
        ] {
            assert!(refused.is_refusal() && !refused.may_retry(), "{refused}");
        }
        let may_pass = |status: FabricsStatus| of(status).with_do_not_retry(false);
        for other in [
            connect(0, of(FabricsStatus::ControllerBusy)),
            connect(0, of(FabricsStatus::ControllerBusy).with_do_not_retry(true)),
            connect(0, of(FabricsStatus::RestartDiscovery)),
            // A target that does not offer all of its subsystems yet.
            connect(0, may_pass(FabricsStatus::InvalidParameters)),
            connect(0, may_pass(FabricsStatus::InvalidHost)),
            connect(0, StatusCode::InternalError.into()),
            // The next attempt shows what the Admin Queue is answered.
            connect(1, of(FabricsStatus::InvalidHost)),
            Failure::Command { what: "Identify", status: of(FabricsStatus::InvalidParameters) },
            Failure::NotReady,
            Failure::Fatal,
            Failure::ControllerLoss,
        ] {
            assert!(!other.is_refusal(), "{other}");
        }
    }
}
