//! Text of a TLP: one readable line.

use core::fmt;

use super::{
    AddressType, Completion, CompletionStatus, ConfigType, Header, IoRequest, Kind, MemoryOperation, Message,
    MessageRouting, Tag, Tlp, message,
};

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.get())
    }
}

impl fmt::Display for MemoryOperation {
    /// Writes the specification's abbreviation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "MRd",
            Self::ReadLocked => "MRdLk",
            Self::Write => "MWr",
            Self::FetchAdd => "FetchAdd",
            Self::Swap => "Swap",
            Self::CompareAndSwap => "CAS",
        })
    }
}

impl fmt::Display for CompletionStatus {
    /// Writes the specification's abbreviation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("SC"),
            Self::UnsupportedRequest => f.write_str("UR"),
            Self::ConfigRequestRetry => f.write_str("CRS"),
            Self::CompleterAbort => f.write_str("CA"),
            Self::Reserved(other) => write!(f, "status {other}"),
        }
    }
}

impl fmt::Display for MessageRouting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToRootComplex => f.write_str("to root complex"),
            Self::ByAddress => f.write_str("by address"),
            Self::ById => f.write_str("by ID"),
            Self::BroadcastFromRootComplex => f.write_str("broadcast"),
            Self::Local => f.write_str("local"),
            Self::GatheredToRootComplex => f.write_str("gathered to root complex"),
            Self::Reserved(other) => write!(f, "routing {other}"),
        }
    }
}

impl fmt::Display for Header {
    /// Writes type, requester, tag and range, as in `MRd 00:02.0 tag 0x05 0x1000..+512`, and then
    /// every field with an unusual value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Memory(request) => {
                write!(f, "{} {}", request.operation, request.requester)?;
                if self.is_non_posted() {
                    write!(f, " tag {}", request.tag)?;
                }
                self.fmt_range(f)?;
            }
            Kind::Io(IoRequest { write, requester, tag, .. }) => {
                write!(f, "IO{} {requester} tag {tag}", direction(*write))?;
                self.fmt_range(f)?;
            }
            Kind::Config(request) => {
                let kind = match request.routing {
                    ConfigType::Type0 => 0,
                    ConfigType::Type1 => 1,
                };
                let from = request.offset + u16::from(self.lead());
                write!(f, "Cfg{}{kind} {} tag {}", direction(request.write), request.requester, request.tag)?;
                write!(f, " {} {from:#05x}..+{}", request.target, self.byte_length())?;
            }
            Kind::Message(message) => self.fmt_message(f, message)?,
            Kind::Completion(completion) => self.fmt_completion(f, completion)?,
        }
        self.fmt_unusual(f)
    }
}

const fn direction(write: bool) -> &'static str {
    if write { "Wr" } else { "Rd" }
}

impl Header {
    fn fmt_range(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {:#x}..+{}", self.first_byte_address().unwrap_or(0), self.byte_length())
    }

    fn fmt_message(&self, f: &mut fmt::Formatter<'_>, message: &Message) -> fmt::Result {
        let Message { routing, requester, code, body, data, .. } = *message;
        write!(f, "{} {requester} ", if data { "MsgD" } else { "Msg" })?;
        match message::name(code) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "code {code:#04x}")?,
        }
        write!(f, " {routing}")?;
        if body != 0 {
            write!(f, " {body:#018x}")?;
        }
        if data {
            write!(f, " {} B", self.payload_len())?;
        }
        Ok(())
    }

    fn fmt_completion(&self, f: &mut fmt::Formatter<'_>, completion: &Completion) -> fmt::Result {
        let Completion { completer, status, requester, tag, byte_count, lower_address, .. } = *completion;
        f.write_str(match (completion.data, completion.locked) {
            (false, false) => "Cpl",
            (true, false) => "CplD",
            (false, true) => "CplLk",
            (true, true) => "CplDLk",
        })?;
        write!(f, " {completer} to {requester} tag {tag} {status}")?;
        if completion.data {
            write!(f, " {} B at {lower_address:#04x}, {byte_count} B to come", self.payload_len())?;
        }
        if completion.byte_count_modified {
            f.write_str(" BCM")?;
        }
        Ok(())
    }

    /// Writes the fields that are 0 in most TLPs.
    fn fmt_unusual(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, attributes) = (self.traits.traffic_class(), self.traits.attributes());
        if class != 0 {
            write!(f, " TC{class}")?;
        }
        let flags = [
            (attributes.relaxed_ordering, " RO"),
            (attributes.no_snoop, " NS"),
            (attributes.id_ordering, " IDO"),
            (self.traits.is_hinted(), " TH"),
            (self.traits.is_lightweight(), " LN"),
            (self.traits.is_poisoned(), " poisoned"),
            (self.traits.address_type() == AddressType::TranslationRequest, " translation request"),
            (self.traits.address_type() == AddressType::Translated, " translated"),
            (self.traits.address_type() == AddressType::Reserved, " AT 3"),
        ];
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, name)| f.write_str(name))
    }
}

impl<P> fmt::Display for Tlp<P> {
    /// Writes the header's line, and then prefixes and digest, if any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header.fmt(f)?;
        for prefix in self.prefixes.words() {
            write!(f, " prefix {prefix:#010x}")?;
        }
        match self.digest {
            None => Ok(()),
            Some(digest) => write!(f, " ECRC {digest:#010x}"),
        }
    }
}
