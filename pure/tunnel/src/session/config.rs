//! The settings of a session.

use engine::{Crc32c, Nanos, crc32c};
use pcie::ordering::Lane;
use serde::{Deserialize, Serialize};

use crate::credits::{Amount, CreditLimits, WINDOW_MAX};
use crate::frame::{Identity, Limits, NetworkTime};

/// Default for the bytes of host memory that the device's end keeps for lookahead: 1 Gbit/s for 65
/// ms, or some sixty commands of 128 KiB.
const AHEAD_DEFAULT: u32 = 8 << 20;

/// Settings of a session. [`Config::default`] suits a local network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Identity of this end.
    pub identity: Identity,
    /// The longest TLP payload that this end receives, in bytes: 128..=4096, a multiple of 4.
    pub max_payload: u16,
    /// Credit limits: how much the peer may have under way to this end. Raised to at least two of
    /// the longest TLPs in each lane.
    pub window: CreditLimits,
    /// How long a session is held without a connection. The shorter hold time of the two ends
    /// applies. A hold time beyond the completion timeout of the requesters has no use.
    pub hold: Nanos,
    /// How long silence on a connection is tolerated.
    pub silence: Nanos,
    /// How often to send a Ping. At most a third of the peer's `silence` applies.
    pub ping_interval: Nanos,
    /// How long an acknowledgement or a credit may wait for a TLP that carries it.
    pub acknowledge_delay: Nanos,
    /// How long a handshake may take.
    pub handshake: Nanos,
    /// Delay before dialling again. It starts at the first value and doubles with each failure, up
    /// to the second value.
    pub redial: (Nanos, Nanos),
    /// Whether the TLP frames of both ends carry time stamps. One end that wants stamps suffices.
    pub stamps: bool,
    /// At the device's end: how many bytes of host memory to keep that the host's end sends ahead
    /// of the device's reads (lookahead). With 0, the host's end sends none. The host's end ignores
    /// this setting.
    pub ahead: u32,
    /// At the host's end: whether an interposer of [`Upstream`](crate::Upstream) may send ahead the
    /// memory that devices are about to read, if the device's end keeps such memory.
    pub lookahead: bool,
    /// At the host's end: the memory that the device may reach. An interposer of
    /// [`Upstream`](crate::Upstream) sees to it.
    pub dma: Dma,
    /// At the host's end: whether each Pong reports the use of memory that was sent ahead
    /// ([`Session::tally`](super::Session::tally)).
    pub tally: bool,
    /// At the host's end: whether to answer reads in the device's place, for registers that the
    /// device's end shows and that cannot change by themselves.
    pub config_cache: bool,
    /// At the host's end: over how many connections to spread a link, 1 to 8, if the device's end
    /// takes several. Only traffic that lookahead can separate is spread.
    pub strands: u8,
    /// At the device's end: over how many connections a link may be spread, 1 to 8.
    pub strands_max: u8,
    /// At the host's end: whether all frames have a digest that detects bits flipped on the way.
    /// TCP itself misses some flips, and all that happen where its bytes are copied from one
    /// connection to another.
    pub digests: bool,
    /// The network's time by this end's clock, if this machine is synchronised.
    pub time: Option<NetworkTime>,
    /// The function that computes digests. A world may have a faster one than the default.
    #[serde(with = "engine::state::crc32c")]
    pub crc32c: Crc32c,
}

/// The memory that a device below a port may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dma {
    /// Only memory that the host has named to it, where an interposer follows the device's
    /// function.
    #[default]
    Strict,
    /// All memory that the root complex lets it reach.
    Mapped,
}

impl Default for Config {
    fn default() -> Self {
        // 8 MiB under way in each direction, the product of 1 Gbit/s and 65 ms; or 2 MiB in
        // payloads of 256 B, as many as a sender keeps to send again. More would only delay what
        // comes behind, on a slow link by seconds.
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
            dma: Dma::Strict,
            tally: false,
            config_cache: false,
            strands: 1,
            strands_max: 8,
            digests: false,
            time: None,
            crc32c,
        }
    }
}

impl Config {
    /// Clamps all settings to their ranges.
    pub(super) fn normalise(&mut self) {
        self.max_payload = self.max_payload.clamp(128, 4096).next_multiple_of(4);
        // A receiver grants credits at once when half of a window is free again. The sender may
        // then be left with half a window less the bytes in flight. If that did not suffice for any
        // TLP, both ends would wait for each other.
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
