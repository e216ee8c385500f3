//! How datagrams leave: with which precedence, and when.

use engine::Nanos;
use network_models::tsn::launch::Windows;
use tunnel::session;

use crate::sys::precedence::Precedence;

/// When datagrams leave: in the windows of a gate schedule (`SO_TXTIME`). The queueing discipline
/// etf holds them until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The windows of this end, by CLOCK_TAI.
    pub windows: Windows,
    /// How long before its launch a datagram is handed to the kernel, at least.
    pub lead: Nanos,
}

/// How often an end of bare frames sends a Ping when there is nothing else, and the silence that it
/// takes for a loss. What it sends is acknowledged by the engine of datagrams, which finds out
/// sooner that nobody is there ([`datagrams::SILENCE_MAX`]).
const PING_EVERY: Nanos = Nanos::from_secs(10);
const SILENCE: Nanos = Nanos::from_secs(30);

/// The settings of a session over bare frames: an idle link sends less than a frame a second, which
/// a plan of the network need not have room for.
#[must_use]
pub fn quiet(session: session::Config) -> session::Config {
    session::Config { ping_interval: PING_EVERY, silence: SILENCE, ..session }
}

/// How datagrams leave. By default, they leave as others do, at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How much sooner than others they are carried.
    pub precedence: Precedence,
    /// When they leave, if not at once.
    pub launch: Option<Launch>,
}
