//! Messages of connection management (chapter 12 of the specification), and the addresses that the
//! RDMA IP CM service puts in front of the private data (annex A11).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::mad::{HEADER, MAD_LENGTH, Mad};
use super::{PARTITION, three};
use crate::icrc::gid;

/// Prefix of the service identifiers of TCP ports. The port follows.
const SERVICE: u64 = 0x0000_0000_0106_0000;
/// Bytes of the addresses before a request's private data.
const ADDRESSES: usize = 36;
/// Length of the private data of the user in a request, a reply and a rejection, in bytes.
pub(crate) const REQUEST_DATA: usize = 92 - ADDRESSES;
pub(crate) const REPLY_DATA: usize = 196;
pub(crate) const REJECT_DATA: usize = 148;
/// The permissive local identifier: RoCE has no local identifiers.
const PERMISSIVE: u16 = 0xffff;
/// Maximum number of routers on the path of a packet.
const HOPS: u8 = 64;

/// The service identifier of a port.
pub(crate) const fn service_of_port(port: u16) -> u64 {
    SERVICE | port as u64
}

/// The port of a service identifier, if it is that of a port.
pub(crate) fn port_of_service(service: u64) -> Option<u16> {
    (service & !0xffff == SERVICE).then_some(())?;
    u16::try_from(service & 0xffff).ok()
}

mod attribute {
    pub(super) const REQ: u16 = 0x10;
    pub(super) const MRA: u16 = 0x11;
    pub(super) const REJ: u16 = 0x12;
    pub(super) const REP: u16 = 0x13;
    pub(super) const RTU: u16 = 0x14;
    pub(super) const DREQ: u16 = 0x15;
    pub(super) const DREP: u16 = 0x16;
}

/// Reasons for refusing a connection (table 108 of the specification).
pub(crate) mod reason {
    pub(crate) const NO_RESOURCES: u16 = 3;
    pub(crate) const TIMEOUT: u16 = 4;
    pub(crate) const INVALID_IDENTIFIER: u16 = 6;
    pub(crate) const INVALID_SERVICE: u16 = 8;
    pub(crate) const INVALID_TRANSPORT: u16 = 9;
    pub(crate) const STALE: u16 = 10;
    pub(crate) const INVALID_GID: u16 = 13;
    pub(crate) const INVALID_MTU: u16 = 26;
    pub(crate) const CONSUMER: u16 = 28;
}

/// The meaning of a peer's rejection reason.
pub(crate) const fn text_of_reason(code: u16) -> &'static str {
    match code {
        1 => "it has no queue pair left",
        reason::NO_RESOURCES => "it has no resources left",
        reason::TIMEOUT => "it has waited too long for an answer",
        reason::INVALID_IDENTIFIER => "it does not know the connection",
        reason::INVALID_SERVICE => "no service listens at that port",
        reason::INVALID_TRANSPORT => "it does not support reliable connections",
        reason::STALE => "it has an older connection with the same queue pair",
        reason::INVALID_GID => "the addresses in the request are not those of the path",
        reason::INVALID_MTU => "it accepts only smaller packets",
        reason::CONSUMER => "its user refuses the connection",
        _ => "it refuses the connection for a reason of its own",
    }
}

/// The identifiers of a connection: the sender's and the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identifiers {
    pub(crate) local: u32,
    pub(crate) remote: u32,
}

/// The message that is refused or delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Request,
    Reply,
    Other,
}

/// The addresses of both ends, as a request names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CmaAddresses {
    pub(crate) port: u16,
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
}

/// A request for a connection (REQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) local: u32,
    pub(crate) service: u64,
    /// The sender's channel adapter.
    pub(crate) adapter: u64,
    pub(crate) queue_pair: u32,
    /// Maximum numbers of RDMA READs that the sender answers, and issues, at a time.
    pub(crate) responder_reads: u8,
    pub(crate) initiator_reads: u8,
    /// The transport: 0 is a reliable connection.
    pub(crate) transport: u8,
    pub(crate) flow_control: bool,
    /// The first packet sequence number that the receiver of this message sends.
    pub(crate) number: u32,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    /// The code of the path MTU.
    pub(crate) mtu: u8,
    /// The code of the time after which the sender repeats packets.
    pub(crate) ack_timeout: u8,
    /// The code of the time after which messages are repeated, and the number of repetitions.
    pub(crate) response_timeout: u8,
    pub(crate) response_retries: u8,
    /// The port of the path: the sender's and the receiver's address.
    pub(crate) gids: [[u8; 16]; 2],
    pub(crate) addresses: Option<CmaAddresses>,
    pub(crate) data: [u8; REQUEST_DATA],
}

/// The answer to a request (REP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) identifiers: Identifiers,
    pub(crate) adapter: u64,
    pub(crate) queue_pair: u32,
    pub(crate) number: u32,
    pub(crate) responder_reads: u8,
    pub(crate) initiator_reads: u8,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retries: u8,
    pub(crate) data: [u8; REPLY_DATA],
}

/// A refusal (REJ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reject {
    pub(crate) identifiers: Identifiers,
    pub(crate) which: Which,
    pub(crate) reason: u16,
    /// Additional information, such as the largest acceptable path MTU.
    pub(crate) information: u8,
    pub(crate) data: [u8; REJECT_DATA],
}

/// The end of a connection (DREQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnect {
    pub(crate) identifiers: Identifiers,
    /// The receiver's queue pair.
    pub(crate) queue_pair: u32,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A request for a connection (REQ).
    Request(Request),
    /// MRA, with the code of the time.
    MoreTime(Identifiers, Which, u8),
    /// A refusal (REJ).
    Reject(Reject),
    /// The acceptance of a request (REP).
    Reply(Reply),
    /// The confirmation of a reply (RTU): the sender is ready to use the connection.
    ReadyToUse(Identifiers),
    /// The end of a connection (DREQ).
    Disconnect(Disconnect),
    /// The confirmation of an end (DREP).
    Disconnected(Identifiers),
}

/// The fields behind a datagram's header.
struct Fields<'a>(&'a [u8; MAD_LENGTH]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        // Every field is at a constant place within the datagram.
        core::array::from_fn(|index| self.0[HEADER + at + index])
    }
    fn byte(&self, at: usize) -> u8 {
        self.bytes::<1>(at)[0]
    }
    fn half(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }
    fn three(&self, at: usize) -> u32 {
        three(self.bytes(at))
    }
    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }
    fn long(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }
    fn identifiers(&self) -> Identifiers {
        Identifiers { local: self.word(0), remote: self.word(4) }
    }
    fn which(&self) -> Which {
        match self.byte(8) >> 6 {
            0 => Which::Request,
            1 => Which::Reply,
            _ => Which::Other,
        }
    }
}

impl Message {
    /// Parses a message. `None` for messages that Farlane ignores.
    pub(crate) fn parse(mad: &Mad<'_>) -> Option<Self> {
        let fields = Fields(mad.bytes);
        Some(match mad.attribute {
            attribute::REQ => Self::Request(Request::parse(&fields)),
            attribute::MRA => Self::MoreTime(fields.identifiers(), fields.which(), fields.byte(9) >> 3),
            attribute::REJ => Self::Reject(Reject {
                identifiers: fields.identifiers(),
                which: fields.which(),
                reason: fields.half(10),
                information: fields.byte(12),
                data: fields.bytes(84),
            }),
            attribute::REP => Self::Reply(Reply {
                identifiers: fields.identifiers(),
                queue_pair: fields.three(12),
                number: fields.three(20),
                responder_reads: fields.byte(24),
                initiator_reads: fields.byte(25),
                flow_control: fields.byte(26) & 1 == 1,
                rnr_retries: fields.byte(27) >> 5,
                adapter: fields.long(28),
                data: fields.bytes(36),
            }),
            attribute::RTU => Self::ReadyToUse(fields.identifiers()),
            attribute::DREQ => Self::Disconnect(Disconnect {
                identifiers: fields.identifiers(),
                queue_pair: fields.three(8),
            }),
            attribute::DREP => Self::Disconnected(fields.identifiers()),
            _ => return None,
        })
    }

    /// Emits the datagram of a message that belongs to the exchange `transaction`.
    pub(crate) fn emit(&self, transaction: u64) -> [u8; MAD_LENGTH] {
        let attribute = match self {
            Self::Request(_) => attribute::REQ,
            Self::MoreTime(..) => attribute::MRA,
            Self::Reject(_) => attribute::REJ,
            Self::Reply(_) => attribute::REP,
            Self::ReadyToUse(_) => attribute::RTU,
            Self::Disconnect(_) => attribute::DREQ,
            Self::Disconnected(_) => attribute::DREP,
        };
        let mut bytes = Mad::emit(transaction, attribute);
        let mut put = |at: usize, value: &[u8]| {
            bytes[HEADER + at..HEADER + at + value.len()].copy_from_slice(value);
        };
        let identifiers = match self {
            Self::Request(request) => {
                request.emit(&mut put);
                return bytes;
            }
            Self::Reject(Reject { identifiers, .. })
            | Self::Reply(Reply { identifiers, .. })
            | Self::Disconnect(Disconnect { identifiers, .. })
            | Self::MoreTime(identifiers, ..)
            | Self::ReadyToUse(identifiers)
            | Self::Disconnected(identifiers) => *identifiers,
        };
        put(0, &identifiers.local.to_be_bytes());
        put(4, &identifiers.remote.to_be_bytes());
        match self {
            Self::MoreTime(_, which, time) => put(8, &[(*which as u8) << 6, time << 3]),
            Self::Reject(reject) => {
                let length = u8::from(reject.information != 0);
                put(8, &[(reject.which as u8) << 6, length << 1]);
                put(10, &reject.reason.to_be_bytes());
                put(12, &[reject.information]);
                put(84, &reject.data);
            }
            Self::Reply(reply) => {
                put(12, &(reply.queue_pair << 8).to_be_bytes());
                put(20, &(reply.number << 8).to_be_bytes());
                put(24, &[reply.responder_reads, reply.initiator_reads]);
                put(26, &[u8::from(reply.flow_control), reply.rnr_retries << 5]);
                put(28, &reply.adapter.to_be_bytes());
                put(36, &reply.data);
            }
            Self::Disconnect(disconnect) => put(8, &(disconnect.queue_pair << 8).to_be_bytes()),
            Self::Request(_) | Self::ReadyToUse(_) | Self::Disconnected(_) => {}
        }
        bytes
    }
}

impl Request {
    fn parse(fields: &Fields<'_>) -> Self {
        Self {
            local: fields.word(0),
            service: fields.long(8),
            adapter: fields.long(16),
            queue_pair: fields.three(32),
            responder_reads: fields.byte(35),
            initiator_reads: fields.byte(39),
            transport: fields.byte(43) >> 1 & 3,
            flow_control: fields.byte(43) & 1 == 1,
            number: fields.three(44),
            response_timeout: fields.byte(47) >> 3,
            retries: fields.byte(47) & 7,
            mtu: fields.byte(50) >> 4,
            rnr_retries: fields.byte(50) & 7,
            response_retries: fields.byte(51) >> 4,
            gids: [fields.bytes(56), fields.bytes(72)],
            ack_timeout: fields.byte(95) >> 3,
            addresses: CmaAddresses::parse(&fields.bytes(140)),
            data: fields.bytes(140 + ADDRESSES),
        }
    }

    fn emit(&self, put: &mut impl FnMut(usize, &[u8])) {
        put(0, &self.local.to_be_bytes());
        put(8, &self.service.to_be_bytes());
        put(16, &self.adapter.to_be_bytes());
        put(32, &(self.queue_pair << 8 | u32::from(self.responder_reads)).to_be_bytes());
        put(39, &[self.initiator_reads]);
        let flow = u8::from(self.flow_control);
        put(43, &[self.response_timeout << 3 | self.transport << 1 | flow]);
        put(44, &(self.number << 8).to_be_bytes());
        put(47, &[self.response_timeout << 3 | self.retries & 7]);
        put(48, &PARTITION.to_be_bytes());
        put(50, &[self.mtu << 4 | self.rnr_retries & 7, self.response_retries << 4]);
        put(52, &PERMISSIVE.to_be_bytes());
        put(54, &PERMISSIVE.to_be_bytes());
        put(56, &self.gids[0]);
        put(72, &self.gids[1]);
        put(93, &[HOPS]);
        put(95, &[self.ack_timeout << 3]);
        if let Some(addresses) = &self.addresses {
            put(140, &addresses.emit());
        }
        put(140 + ADDRESSES, &self.data);
    }
}

impl CmaAddresses {
    fn parse(bytes: &[u8; ADDRESSES]) -> Option<Self> {
        let [major, family, port @ ..] = bytes;
        let port = u16::from_be_bytes(*port.first_chunk()?);
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
            match family >> 4 {
                4 => Some(Ipv4Addr::from(*octets.last_chunk::<4>()?).into()),
                6 => Some(Ipv6Addr::from(octets).into()),
                _ => None,
            }
        };
        (*major == 0).then_some(())?;
        Some(Self { port, from: address(4)?, to: address(20)? })
    }

    fn emit(&self) -> [u8; ADDRESSES] {
        let mut bytes = [0; ADDRESSES];
        bytes[1] = if self.from.is_ipv4() { 0x40 } else { 0x60 };
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        for (at, address) in [(4, self.from), (20, self.to)] {
            // An IPv4 address is at the end, behind zeros.
            let mut octets = gid(address);
            if address.is_ipv4() {
                octets[..12].fill(0);
            }
            bytes[at..at + 16].copy_from_slice(&octets);
        }
        bytes
    }
}
