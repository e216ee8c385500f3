//! The frames of the handshake: Hello and Welcome, which have the same form.

use alloc::string::String;
use core::fmt;

use super::{FrameError, FrameKind, Reader, Sequence, Writer, checked_text, clip};
use crate::credits::CreditLimits;
use engine::Nanos;
use serde::{Deserialize, Serialize};

/// The longest body of a Hello or Welcome, in bytes.
pub const HELLO_BODY_MAX: usize = 1024;
/// The longest name, vendor or device text, in bytes.
pub const NAME_MAX: usize = 64;

/// The first bytes of a Hello, by which a stranger is recognised.
const MAGIC: [u8; 8] = *b"FARLANE\n";
/// Bytes of the body before the options.
pub(super) const FIXED: usize = 48;
/// Where the check is in the body. It is the CRC32C of the frame with zeros in place of the check.
pub(super) const CHECK_OFFSET: usize = 44;

const OUTCOME_OFFSET: usize = 13;
const MANDATORY: u16 = 0x8000;
const OPTION_LIMITS: u16 = MANDATORY | 1;
const OPTION_CREDITS: u16 = MANDATORY | 2;
const OPTION_NAME: u16 = 3;
const OPTION_VENDOR: u16 = 4;
const OPTION_DEVICE: u16 = 5;
const OPTION_STAMPS: u16 = 6;
const OPTION_SECRET: u16 = MANDATORY | 7;
const OPTION_AHEAD: u16 = 8;
const OPTION_TALLY: u16 = 9;
const OPTION_REGISTERS: u16 = 10;
const OPTION_STRANDS: u16 = 11;
const OPTION_MEMBER: u16 = MANDATORY | 12;
const OPTION_DIGESTS: u16 = MANDATORY | 13;
const OPTION_TIME: u16 = 14;
/// The highest number of a known option.
const OPTIONS_KNOWN: u16 = 14;

/// An end of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Role {
    /// The end towards the root complex, which dials.
    Upstream = 1,
    /// The end towards the device, which accepts.
    Downstream = 2,
}

/// The outcome of a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Not decided yet: the outcome in a Hello, which only asks.
    #[default]
    Asked = 0,
    /// A new session begins.
    New = 1,
    /// The session named by the Hello goes on.
    Resumed = 2,
}

/// Names one run of an end: 128 bits, random or a UUID. A restarted process has another instance.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InstanceId(pub [u8; 16]);

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for InstanceId {
    /// Writes the bits in the notation of a UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Names a session between two instances. The downstream end chooses it at random. 0 names
/// no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl SessionId {
    /// No session: a Hello with it asks for a new one.
    pub const NONE: Self = Self(0);
}

/// Proof of a session, 128 bits from an unpredictable source. A Welcome gives it to the host, and
/// the host shows it to take its session over.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Secret(pub [u8; 16]);

impl PartialEq for Secret {
    /// Takes the same time wherever the first difference is.
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    /// Hides the bits, which are for the two ends only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Whether two secrets are equal, found in a time that does not reveal how many bytes agree.
pub(crate) fn is_same<const N: usize>(one: &[u8; N], other: &[u8; N]) -> bool {
    let differences =
        one.iter().zip(other).fold(0, |all, (one, other)| core::hint::black_box(all | (one ^ other)));
    differences == 0
}

/// Identity of an end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// This run of the end. A session chooses a random instance if this one is 0.
    pub instance: InstanceId,
    /// Name that people use for the end, at most [`NAME_MAX`] bytes.
    pub name: String,
    /// Vendor of the end, at most [`NAME_MAX`] bytes.
    pub vendor: String,
    /// The kind of device that the end is, at most [`NAME_MAX`] bytes.
    pub device: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "{}", self.instance) } else { f.write_str(&self.name) }
    }
}

/// The limits of an end's receiver, and its timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest TLP payload that the end receives, in bytes: 128..=4096, a multiple of 4.
    pub max_payload: u16,
    /// How long the end holds a session without a connection, in whole milliseconds. The shorter
    /// hold time of the two ends applies.
    pub hold: Nanos,
    /// How long the end tolerates silence on a connection, in whole milliseconds. The peer sends at
    /// least three Pings in this time.
    pub silence: Nanos,
}

/// The body of a Hello or Welcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The lowest version that the sender speaks. In a Welcome, the chosen version.
    pub version_low: u16,
    /// The highest version that the sender speaks. In a Welcome, the chosen version.
    pub version_high: u16,
    /// The sender's end of the tunnel.
    pub role: Role,
    /// In a Hello, [`Outcome::Asked`]. In a Welcome, what became of the handshake.
    pub outcome: Outcome,
    /// In a Hello, the session to resume, or [`SessionId::NONE`] to ask for a new one. In a
    /// Welcome, the present session.
    pub session: SessionId,
    /// The sender's instance.
    pub instance: InstanceId,
    /// Number of the oldest frame that the sender can still send again.
    pub oldest: Sequence,
    /// The limits of the sender's receiver, and its timeouts.
    pub limits: Limits,
    /// How much the receiver of this frame may send, counted from the start of the session.
    pub credits: CreditLimits,
    /// Name that people use for the sender.
    pub name: &'a str,
    /// Vendor of the sender.
    pub vendor: &'a str,
    /// The kind of device that the sender is.
    pub device: &'a str,
    /// Whether the sender wants time stamps on TLP frames.
    pub wants_stamps: bool,
    /// In a Welcome, the secret that the host is given. In a Hello, the secret from the latest
    /// Welcome; for a further strand, the secret of its link.
    pub secret: Option<Secret>,
    /// How many bytes of host memory sent ahead (lookahead) the sender can keep; 0 if it
    /// takes none.
    pub ahead: u32,
    /// Whether the sender wants to know what becomes of the memory that it sends ahead.
    pub wants_tally: bool,
    /// Whether the sender wants to be shown registers of the function.
    pub wants_registers: bool,
    /// Over how many connections the sender would spread the link; 0 if it does not spread links.
    pub strands: u16,
    /// The link of which this session is a further strand.
    pub member: Option<Member>,
    /// Whether all frames after the handshake have digests.
    pub digests: bool,
    /// The network's time by the sender's clock, if the sender's machine is synchronised.
    pub time: Option<NetworkTime>,
}

/// The time of a network by the clock of an end. With that of the other end, the offset of the two
/// clocks is known without an exchange, however uneven the two ways are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkTime {
    /// Nanoseconds to add to the end's clock to get the time of the network (TAI).
    pub ahead_ns: i64,
    /// The time is right to within this, at most 4 s.
    pub error: Nanos,
    /// The clock that gives the time: ends with different ones are not compared.
    pub grandmaster: [u8; 8],
}

/// Names a further strand of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The session of the link's main strand.
    pub session: SessionId,
    /// Number of the strand in the link, not 0.
    pub strand: u16,
}

impl<'a> Hello<'a> {
    /// Reads the lowest and the highest version from `body`, whose first fields are the same in
    /// every version of a Hello. Call this before decoding anything else: the rest may have a
    /// version that we do not know.
    ///
    /// # Errors
    /// When `body` is too short, does not begin with the magic number, or has a lowest version
    /// above its highest.
    pub fn versions(body: &[u8]) -> Result<(u16, u16), FrameError> {
        let mut reader = Reader::new(body);
        let magic = reader.array()?;
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let (low, high) = (reader.u16()?, reader.u16()?);
        if low > high {
            return Err(FrameError::VersionRange { low, high });
        }
        Ok((low, high))
    }

    pub(super) fn parse(kind: FrameKind, body: &'a [u8]) -> Result<Self, FrameError> {
        let (version_low, version_high) = Self::versions(body)?;
        let mut reader = Reader::new(body);
        reader.bytes(12)?;
        let role = match reader.u8()? {
            1 => Role::Upstream,
            2 => Role::Downstream,
            other => return Err(FrameError::UnknownRole(other)),
        };
        let outcome = match (kind, reader.u8()?) {
            (FrameKind::Hello, 0) => Outcome::Asked,
            (FrameKind::Welcome, 1) => Outcome::New,
            (FrameKind::Welcome, 2) => Outcome::Resumed,
            (_, other) => return Err(FrameError::UnknownOutcome(other)),
        };
        if reader.u16()? != 0 {
            return Err(FrameError::Reserved { kind, offset: OUTCOME_OFFSET + 1 });
        }
        let session = SessionId(reader.u64()?);
        let instance = InstanceId(reader.array()?);
        let oldest = Sequence::from_bits(reader.u32()?);
        // The reader of the whole frame has verified the check.
        reader.bytes(FIXED - CHECK_OFFSET)?;
        let options = Options::parse(kind, reader.rest)?;
        Ok(Self {
            version_low,
            version_high,
            role,
            outcome,
            session,
            instance,
            oldest,
            limits: options.limits.ok_or(FrameError::MissingOption(OPTION_LIMITS))?,
            credits: options.credits.ok_or(FrameError::MissingOption(OPTION_CREDITS))?,
            name: options.name,
            vendor: options.vendor,
            device: options.device,
            wants_stamps: options.wants_stamps,
            secret: options.secret,
            ahead: options.ahead,
            wants_tally: options.wants_tally,
            wants_registers: options.wants_registers,
            strands: options.strands,
            member: options.member,
            digests: options.digests,
            time: options.time,
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.put(&MAGIC);
        writer.put(&self.version_low.to_be_bytes());
        writer.put(&self.version_high.to_be_bytes());
        writer.put(&[self.role as u8, self.outcome as u8, 0, 0]);
        writer.put(&self.session.0.to_be_bytes());
        writer.put(&self.instance.0);
        writer.put(&self.oldest.bits().to_be_bytes());
        writer.put(&[0; FIXED - CHECK_OFFSET]);
        let [m0, m1] = self.limits.max_payload.to_be_bytes();
        let [h0, h1, h2, h3] = millis(self.limits.hold).to_be_bytes();
        let [s0, s1, s2, s3] = millis(self.limits.silence).to_be_bytes();
        put_option(writer, OPTION_LIMITS, &[m0, m1, 0, 0, h0, h1, h2, h3, s0, s1, s2, s3]);
        put_option(writer, OPTION_CREDITS, &self.credits.emit());
        let texts = [(OPTION_NAME, self.name), (OPTION_VENDOR, self.vendor), (OPTION_DEVICE, self.device)];
        for (option, text) in texts {
            if !text.is_empty() {
                put_option(writer, option, clip(text, NAME_MAX).as_bytes());
            }
        }
        if self.wants_stamps {
            put_option(writer, OPTION_STAMPS, &[]);
        }
        if let Some(Secret(secret)) = &self.secret {
            put_option(writer, OPTION_SECRET, secret);
        }
        if self.ahead > 0 {
            put_option(writer, OPTION_AHEAD, &self.ahead.to_be_bytes());
        }
        if self.wants_tally {
            put_option(writer, OPTION_TALLY, &[]);
        }
        if self.wants_registers {
            put_option(writer, OPTION_REGISTERS, &[]);
        }
        if self.strands > 0 {
            put_option(writer, OPTION_STRANDS, &self.strands.to_be_bytes());
        }
        if let Some(Member { session, strand }) = self.member {
            let mut value = [0; 10];
            value[..8].copy_from_slice(&session.0.to_be_bytes());
            value[8..].copy_from_slice(&strand.to_be_bytes());
            put_option(writer, OPTION_MEMBER, &value);
        }
        if self.digests {
            put_option(writer, OPTION_DIGESTS, &[]);
        }
        if let Some(time) = self.time {
            let mut value = [0; 20];
            value[..8].copy_from_slice(&time.ahead_ns.to_be_bytes());
            let error = u32::try_from(time.error.get()).unwrap_or(u32::MAX);
            value[8..12].copy_from_slice(&error.to_be_bytes());
            value[12..].copy_from_slice(&time.grandmaster);
            put_option(writer, OPTION_TIME, &value);
        }
    }

    /// Identity of the sender, with texts of its own.
    pub fn identity(&self) -> Identity {
        Identity {
            instance: self.instance,
            name: self.name.into(),
            vendor: self.vendor.into(),
            device: self.device.into(),
        }
    }
}

fn millis(length: Nanos) -> u32 {
    u32::try_from(length.get() / 1_000_000).unwrap_or(u32::MAX)
}

fn put_option(writer: &mut Writer<'_>, option: u16, value: &[u8]) {
    writer.put(&option.to_be_bytes());
    writer.put(&u16::try_from(value.len()).expect("an option is short").to_be_bytes());
    writer.put(value);
    writer.zeros_to_multiple_of_4();
}

#[derive(Default)]
struct Options<'a> {
    limits: Option<Limits>,
    credits: Option<CreditLimits>,
    name: &'a str,
    vendor: &'a str,
    device: &'a str,
    wants_stamps: bool,
    secret: Option<Secret>,
    ahead: u32,
    wants_tally: bool,
    wants_registers: bool,
    strands: u16,
    member: Option<Member>,
    digests: bool,
    time: Option<NetworkTime>,
}

impl<'a> Options<'a> {
    fn parse(kind: FrameKind, bytes: &'a [u8]) -> Result<Self, FrameError> {
        let mut options = Self::default();
        let mut reader = Reader::new(bytes);
        let mut seen = 0_u16;
        while !reader.rest.is_empty() {
            let offset = FIXED + bytes.len() - reader.rest.len();
            let (option, length) = (reader.u16()?, reader.u16()?);
            let error = FrameError::OptionLength { option, length };
            let value = reader.bytes(usize::from(length)).map_err(|_| error)?;
            let padding = usize::from(length).next_multiple_of(4) - usize::from(length);
            if reader.bytes(padding).map_err(|_| error)?.iter().any(|byte| *byte != 0) {
                return Err(FrameError::Reserved { kind, offset: offset + 4 + usize::from(length) });
            }
            let number = option & !MANDATORY;
            if (1..=OPTIONS_KNOWN).contains(&number) {
                if seen & (1 << number) != 0 {
                    return Err(FrameError::RepeatedOption(option));
                }
                seen |= 1 << number;
            }
            options.take(kind, offset, option, value)?;
        }
        Ok(options)
    }

    fn take(
        &mut self,
        kind: FrameKind,
        offset: usize,
        option: u16,
        value: &'a [u8],
    ) -> Result<(), FrameError> {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        let wrong_length = FrameError::OptionLength { option, length };
        let mut reader = Reader::new(value);
        let text = || {
            let text = checked_text(value).ok_or(FrameError::Text { kind, offset: offset + 4 })?;
            if text.len() <= NAME_MAX { Ok(text) } else { Err(wrong_length) }
        };
        match option {
            OPTION_LIMITS if length == 12 => self.limits = Some(parse_limits(&mut reader)?),
            OPTION_CREDITS if length == 24 => self.credits = Some(CreditLimits::parse(&mut reader)?),
            OPTION_NAME => self.name = text()?,
            OPTION_VENDOR => self.vendor = text()?,
            OPTION_DEVICE => self.device = text()?,
            OPTION_STAMPS if length == 0 => self.wants_stamps = true,
            OPTION_SECRET if length == 16 => self.secret = Some(Secret(reader.array()?)),
            OPTION_AHEAD if length == 4 => self.ahead = reader.u32()?,
            OPTION_TALLY if length == 0 => self.wants_tally = true,
            OPTION_REGISTERS if length == 0 => self.wants_registers = true,
            OPTION_STRANDS if length == 2 => self.strands = reader.u16()?,
            OPTION_MEMBER if length == 10 => {
                let member = Member { session: SessionId(reader.u64()?), strand: reader.u16()? };
                if member.strand == 0 {
                    return Err(FrameError::OptionValue(option));
                }
                self.member = Some(member);
            }
            OPTION_DIGESTS if length == 0 => self.digests = true,
            OPTION_TIME if length == 20 => {
                let ahead_ns = reader.u64()?.cast_signed();
                let error = Nanos::new(reader.u32()?.into());
                self.time = Some(NetworkTime { ahead_ns, error, grandmaster: reader.array()? });
            }
            OPTION_LIMITS | OPTION_CREDITS | OPTION_STAMPS | OPTION_SECRET | OPTION_AHEAD | OPTION_TALLY
            | OPTION_REGISTERS | OPTION_STRANDS | OPTION_MEMBER | OPTION_DIGESTS | OPTION_TIME => {
                return Err(wrong_length);
            }
            _ if option & MANDATORY != 0 => return Err(FrameError::UnknownMandatoryOption(option)),
            _ => (),
        }
        Ok(())
    }
}

fn parse_limits(reader: &mut Reader<'_>) -> Result<Limits, FrameError> {
    let max_payload = reader.u16()?;
    let reserved = reader.u16()?;
    let hold = Nanos::from_millis(u64::from(reader.u32()?));
    let silence = Nanos::from_millis(u64::from(reader.u32()?));
    let fits = (128..=4096).contains(&max_payload) && max_payload.is_multiple_of(4);
    if !fits || reserved != 0 || silence == Nanos::ZERO {
        return Err(FrameError::OptionValue(OPTION_LIMITS));
    }
    Ok(Limits { max_payload, hold, silence })
}
