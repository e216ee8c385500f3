//! The properties in which one TCP stack differs from another.

use engine::Nanos;

/// How a TCP stack sends, acknowledges and recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Maximum number of bytes that the application may have sent and that are not acknowledged
    /// yet.
    pub send_buffer: u32,
    /// Maximum number of bytes that may wait for the application at the receiver; this is the
    /// largest window.
    pub receive_buffer: u32,
    /// Whether windows may exceed 64 KiB (RFC 7323, Window Scale).
    pub window_scaling: bool,
    /// Whether each segment has time stamps (RFC 7323, TSopt), which take 12 bytes of header.
    pub timestamps: bool,
    /// Whether acknowledgements are selective (RFC 2018) and report duplicates (RFC 2883).
    pub selective_acknowledgement: bool,
    /// Whether losses are detected by time (RFC 8985, RACK). Otherwise they are detected by three
    /// later segments (RFC 6675, RFC 6582).
    pub recent_acknowledgement: bool,
    /// Probe for a loss at the tail before the retransmission timeout (RFC 8985, TLP). It needs
    /// selective acknowledgements.
    pub tail_loss_probe: Option<TailLossProbe>,
    /// Whether a small segment waits while another small one is unacknowledged (RFC 896, with
    /// Minshall's change).
    pub nagle: bool,
    /// When data that arrived in order is acknowledged.
    pub acknowledgement: Acknowledgement,
    /// The retransmission timeout.
    pub retransmission: Retransmission,
    /// The algorithm that decides how many segments may be under way.
    pub congestion: CongestionControl,
    /// Congestion window of a new connection, in segments.
    pub initial_window: u32,
    /// Whether the congestion window shrinks while nothing is sent (RFC 5681, section 4.1).
    pub restart_after_idle: bool,
    /// How many times a SYN is sent again before the dial fails.
    pub handshake_retries: u32,
    /// How many times a segment is sent again by timeout before the connection is lost.
    pub retries: u32,
    /// How much a side may queue for its own line, as the time that the line needs for it. Data
    /// beyond this limit stays with TCP, where it can be put into fewer segments. The limit has an
    /// effect only if the line's rate is known ([`crate::network::Config::line`]).
    pub backlog: Nanos,
    /// Time that the stack takes for a frame that is sent.
    pub transmit: Processing,
    /// Time that the stack takes for a frame that is received.
    pub receive: Processing,
}

/// When a receiver acknowledges data that arrived in order. Data out of order is acknowledged at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Number of full segments that one acknowledgement covers.
    pub segments: u32,
    /// How long an acknowledgement waits for further segments, or for data that it can travel with.
    pub delay: Nanos,
    /// How many acknowledgements do not wait, at the beginning of a connection and after data out
    /// of order.
    pub quick: u32,
}

/// The retransmission timeout (RFC 6298): `SRTT + max(floor, 4 * RTTVAR)`, doubled with each
/// expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// The timeout before there is a measurement.
    pub initial: Nanos,
    /// Minimum time that is added to the smoothed round trip.
    pub floor: Nanos,
    /// Maximum timeout.
    pub longest: Nanos,
}

/// When a probe for a loss at the tail is sent: two smoothed round trips after the last segment,
/// plus the time given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailLossProbe {
    /// Time added if only one segment is under way, whose acknowledgement the receiver may delay.
    pub alone: Nanos,
    /// Time added if several segments are under way.
    pub more: Nanos,
}

/// How the congestion window grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681: grows by one segment for each round trip, and halves after a loss.
    NewReno,
    /// RFC 9438: a cubic function of the time since the last loss, and a factor of 0.7 after a
    /// loss.
    Cubic,
}

/// Processing time that grows with a frame's length. Frames are processed in a pipeline: processing
/// delays frames, but does not limit their rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processing {
    /// Time for a frame of [`Processing::SHORTEST`] bytes or less.
    pub fixed: Nanos,
    /// Additional time for each further byte, in picoseconds.
    pub picoseconds_per_byte: u32,
}

impl Processing {
    /// Frame length for which [`Processing::fixed`] is meant, in bytes.
    pub const SHORTEST: u32 = 68;

    /// No processing time.
    pub const NONE: Self = Self { fixed: Nanos::ZERO, picoseconds_per_byte: 0 };

    /// Processing time of a frame of `length` bytes.
    pub fn of(self, length: u32) -> Nanos {
        let further = u64::from(length.saturating_sub(Self::SHORTEST));
        self.fixed + Nanos::new(further * u64::from(self.picoseconds_per_byte) / 1_000)
    }
}

impl Parameters {
    /// A Linux host with its defaults (6.1), as Farlane's sockets use it.
    ///
    /// Sources: `Documentation/networking/ip-sysctl.rst` (tcp_sack, tcp_timestamps,
    /// tcp_window_scaling, tcp_recovery and tcp_early_retrans on; tcp_slow_start_after_idle 1;
    /// tcp_syn_retries 6; tcp_retries2 15; tcp_wmem 4 MiB; tcp_rmem 6 MiB, of which half is
    /// window), `include/net/tcp.h` (TCP_RTO_MIN 200 ms, TCP_RTO_MAX 120 s, TCP_TIMEOUT_INIT 1 s,
    /// TCP_DELACK_MIN 40 ms, TCP_MAX_QUICKACKS 16, TCP_INIT_CWND 10), `tcp_schedule_loss_probe`
    /// (TCP_TIMEOUT_MIN is two ticks, 8 ms at the 250 Hz of Debian's kernels),
    /// `tcp_small_queue_check` (about 1 ms of the flow's rate waits below TCP), default congestion
    /// control CUBIC. Nagle's algorithm is off because Farlane sets TCP_NODELAY. The time of the
    /// kernel's own code is not included: it belongs to the path's hops.
    pub const LINUX: Self = Self {
        send_buffer: 4 << 20,
        receive_buffer: 3 << 20,
        window_scaling: true,
        timestamps: true,
        selective_acknowledgement: true,
        recent_acknowledgement: true,
        tail_loss_probe: Some(TailLossProbe { alone: Nanos::from_millis(200), more: Nanos::from_millis(8) }),
        nagle: false,
        acknowledgement: Acknowledgement { segments: 2, delay: Nanos::from_millis(40), quick: 16 },
        retransmission: Retransmission {
            initial: Nanos::from_secs(1),
            floor: Nanos::from_millis(200),
            longest: Nanos::from_secs(120),
        },
        congestion: CongestionControl::Cubic,
        initial_window: 10,
        restart_after_idle: true,
        handshake_retries: 6,
        retries: 15,
        backlog: Nanos::from_millis(1),
        transmit: Processing::NONE,
        receive: Processing::NONE,
    };

    /// A TCP stack in FPGA logic ('NPAP').
    ///
    /// Sourced: the time of the stack, from 0.256 µs for the smallest frame of 68 B to 3.616 µs for
    /// the largest of 1518 B in one direction (nvme-5g, component_us.npap_tcp_stack). This is 2.317
    /// ns for each further byte. The model spends this time where the frame is sent; receiving
    /// takes none. Assumed, since nothing is published: every segment is acknowledged at once, the
    /// window is 64 KiB, acknowledgements are not selective, congestion control is NewReno,
    /// timeouts follow RFC 6298 with a floor of 200 ms, and a segment is made when the line is free
    /// for it.
    pub const NPAP: Self = Self {
        send_buffer: 64 << 10,
        receive_buffer: 65_535,
        window_scaling: false,
        timestamps: false,
        selective_acknowledgement: false,
        recent_acknowledgement: false,
        tail_loss_probe: None,
        nagle: false,
        acknowledgement: Acknowledgement { segments: 1, delay: Nanos::ZERO, quick: 0 },
        retransmission: Retransmission {
            initial: Nanos::from_secs(1),
            floor: Nanos::from_millis(200),
            longest: Nanos::from_secs(60),
        },
        congestion: CongestionControl::NewReno,
        initial_window: 10,
        restart_after_idle: false,
        handshake_retries: 6,
        retries: 15,
        backlog: Nanos::ZERO,
        transmit: Processing { fixed: Nanos::new(256), picoseconds_per_byte: 2_317 },
        receive: Processing::NONE,
    };

    /// Maximum number of data bytes in a segment, on frames whose payload is at most `mtu` bytes.
    pub fn segment_max(&self, mtu: u32) -> u32 {
        mtu.saturating_sub(super::segment::IP_HEADER + super::segment::TCP_HEADER + self.option_bytes())
            .max(1)
    }

    /// Length of the options on each segment, in bytes.
    pub(crate) const fn option_bytes(&self) -> u32 {
        if self.timestamps { super::segment::TIMESTAMP_OPTION } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hardware_stack_takes_what_is_published() {
        // nvme-5g, component_us: npap_tcp_stack is 0.256 µs and 3.616 µs.
        assert_eq!(Parameters::NPAP.transmit.of(68), Nanos::new(256));
        assert!(Parameters::NPAP.transmit.of(1518).get().abs_diff(3_616) <= 1);
    }

    #[test]
    fn segments_leave_room_for_their_headers() {
        assert_eq!(Parameters::LINUX.segment_max(1500), 1448);
        assert_eq!(Parameters::NPAP.segment_max(1500), 1460);
        assert_eq!(Parameters::NPAP.segment_max(9000), 8960);
    }
}
