//! The settings of a session.

use engine::{Crc32c, Nanos, crc32c};
use pcie::ordering::Lane;

use crate::credits::{Amount, CreditLimits, WINDOW_MAX};
use crate::frame::{Identity, Limits};

/// Bytes of host memory that the device's end keeps for lookahead: 1 Gbit/s for 65 ms, or some sixty commands of 128 KiB.
const AHEAD_DEFAULT: u32 = 8 << 20;

/// The settings of a session; [`Config::default`] suits a local network.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who we are.
    pub identity: Identity,
    /// The longest payload that we receive, bytes: 128..=4096, a multiple of 4.
    pub max_payload: u16,
    /// What the peer may have under way to us; raised to two longest TLPs a lane.
    pub window: CreditLimits,
    /// For how long a session is held without a connection; the shorter of both ends' counts. Beyond the completion
    /// timeout of the requesters it serves nothing.
    pub hold: Nanos,
    /// For how long silence on a connection is borne.
    pub silence: Nanos,
    /// How often to send a Ping, at most a third of the peer's `silence`.
    pub ping_interval: Nanos,
    /// For how long an acknowledgement or a credit may wait for a TLP that carries it.
    pub acknowledge_delay: Nanos,
    /// For how long a handshake may take.
    pub handshake: Nanos,
    /// How long to wait before dialling again: doubled from the first to the second with each failure.
    pub redial: (Nanos, Nanos),
    /// Whether the TLP frames of both ends carry time stamps; it suffices that one end wants it.
    pub stamps: bool,
    /// At the device's end: how many bytes of host memory to keep that the host's end sends ahead of the device's
    /// asking (lookahead); with 0, none is sent. The host's end does not look at it.
    pub ahead: u32,
    /// At the host's end: whether to send ahead what NVMe controllers are about to read, where the device's end keeps it.
    pub lookahead: bool,
    /// At the host's end: whether to be told, with each Pong, what became of that ([`Session::tally`](super::Session::tally)).
    pub tally: bool,
    /// At the host's end: whether to answer reads of registers that can't change by themselves in the place of the device,
    /// where the device's end shows them.
    pub shadow: bool,
    /// At the host's end: over how many connections to spread a link, where the device's end takes several; 1 to 8.
    /// Only what looking ahead tells apart is spread.
    pub strands: u8,
    /// At the device's end: over how many connections a link may be spread, 1 to 8.
    pub strands_max: u8,
    /// At the host's end: whether all frames have a digest, so that a bit that is turned over on the way is found out. TCP
    /// itself misses some, and whatever copies its bytes from one connection to another misses all.
    pub digests: bool,
    /// Computes digests; the world may have a faster function.
    pub crc32c: Crc32c,
}

impl Default for Config {
    fn default() -> Self {
        // 8 MiB under way each direction, the product of 1 Gbit/s and 65 ms; or 2 MiB in payloads of 256 B, as many as a
        // sender keeps for being sent again. More would only make what comes behind wait, on a slow link for seconds.
        let bulk = Amount { headers: 8192, data: 8192 * 64 };
        Self {
            identity: Identity::default(),
            max_payload: 4096,
            window: CreditLimits::new(bulk, Amount { headers: 512, data: 4096 }, bulk),
            hold: Nanos::from_secs(10),
            silence: Nanos::from_secs(5),
            ping_interval: Nanos::from_secs(1),
            acknowledge_delay: Nanos::from_millis(5),
            handshake: Nanos::from_secs(5),
            redial: (Nanos::from_millis(10), Nanos::from_secs(2)),
            stamps: false,
            ahead: AHEAD_DEFAULT,
            lookahead: false,
            tally: false,
            shadow: false,
            strands: 1,
            strands_max: 8,
            digests: false,
            crc32c,
        }
    }
}

impl Config {
    /// Brings what is out of range into it.
    pub(super) fn normalise(&mut self) {
        self.max_payload = self.max_payload.clamp(128, 4096).next_multiple_of(4);
        // A receiver tells at once when half of a window is free again. What is then left to the sender is half a
        // window less what is under way, and that must do for any TLP: else both would wait for each other.
        let longest = u32::from(self.max_payload).div_ceil(16);
        let at_least = |amount: Amount, data: u32| Amount {
            headers: amount.headers.clamp(2, WINDOW_MAX),
            data: amount.data.clamp(2 * data, WINDOW_MAX),
        };
        self.window = CreditLimits::new(
            at_least(self.window.of(Lane::Posted), longest),
            at_least(self.window.of(Lane::NonPosted), longest),
            at_least(self.window.of(Lane::Completion), longest),
        );
        let most = u8::try_from(crate::STRANDS_MAX).unwrap_or(u8::MAX);
        self.strands = self.strands.clamp(1, most);
        self.strands_max = self.strands_max.clamp(1, most);
        // Nothing may repeat without any delay.
        let least = Nanos::from_millis(1);
        self.silence = self.silence.max(least * 3);
        self.ping_interval = self.ping_interval.max(least);
        self.redial = (self.redial.0.max(least), self.redial.1.max(least));
    }

    pub(super) const fn limits(&self) -> Limits {
        Limits { max_payload: self.max_payload, hold: self.hold, silence: self.silence }
    }
}
