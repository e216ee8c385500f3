//! Error signalling and logging: Device Status, Advanced Error Reporting and ERR_* messages.

use super::{Access, ConfigSpace, Field, aer, express, header, offset};
use crate::wire::{Bdf, Head, Header, MessageRouting, Packet, Prefixes, message};

/// An error that a function detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionError {
    /// Surprise Down: the link went down unexpectedly.
    SurpriseDown,
    /// Poisoned TLP Received: a TLP arrived with poisoned data.
    PoisonedTlp,
    /// Completion Timeout: a request was not completed in time.
    CompletionTimeout,
    /// Completer Abort: the function could not complete a request.
    CompleterAbort,
    /// Unexpected Completion: a completion matched no outstanding request.
    UnexpectedCompletion,
    /// Malformed TLP: a TLP broke the rules of its format.
    MalformedTlp,
    /// Unsupported Request: the function does not support a request.
    UnsupportedRequest,
}

impl FunctionError {
    const ALL: [Self; 7] = [
        Self::SurpriseDown,
        Self::PoisonedTlp,
        Self::CompletionTimeout,
        Self::CompleterAbort,
        Self::UnexpectedCompletion,
        Self::MalformedTlp,
        Self::UnsupportedRequest,
    ];

    /// Number of the error's bit in the three uncorrectable error registers.
    const fn bit(self) -> u8 {
        match self {
            Self::SurpriseDown => 5,
            Self::PoisonedTlp => 12,
            Self::CompletionTimeout => 14,
            Self::CompleterAbort => 15,
            Self::UnexpectedCompletion => 16,
            Self::MalformedTlp => 18,
            Self::UnsupportedRequest => 20,
        }
    }
    const fn fatal_by_default(self) -> bool {
        matches!(self, Self::SurpriseDown | Self::MalformedTlp)
    }
    const fn place(self, register: Field) -> Field {
        Field::bit(register.offset(), self.bit()).at(offset::AER)
    }
}

/// A message that reports an error to the root complex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorMessage {
    /// ERR_COR: a correctable error.
    Correctable,
    /// ERR_NONFATAL: an uncorrectable, non-fatal error.
    NonFatal,
    /// ERR_FATAL: an uncorrectable, fatal error.
    Fatal,
}

impl ErrorMessage {
    /// The Message Code of this message.
    pub const fn code(self) -> u8 {
        match self {
            Self::Correctable => message::ERR_COR,
            Self::NonFatal => message::ERR_NONFATAL,
            Self::Fatal => message::ERR_FATAL,
        }
    }
    /// The message with this Message Code; `None` for other codes.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            message::ERR_COR => Some(Self::Correctable),
            message::ERR_NONFATAL => Some(Self::NonFatal),
            message::ERR_FATAL => Some(Self::Fatal),
            _ => None,
        }
    }
    /// The message as sent by the function `requester`.
    pub const fn packet(self, requester: Bdf) -> Packet {
        Packet::message(requester, MessageRouting::ToRootComplex, self.code(), 0)
    }
}

/// Builds the registers of Advanced Error Reporting, without the header log.
pub(super) fn define(space: &mut ConfigSpace, at: u16) {
    for error in FunctionError::ALL {
        let severity = u32::from(error.fatal_by_default());
        space.define(error.place(aer::UNCORRECTABLE_STATUS), Access::WriteOneToClearSticky, 0);
        space.define(error.place(aer::UNCORRECTABLE_MASK), Access::ReadWriteSticky, 0);
        space.define(error.place(aer::UNCORRECTABLE_SEVERITY), Access::ReadWriteSticky, severity);
    }
    let advisory = |register: Field| Field::bit(register.offset(), aer::ADVISORY_NON_FATAL).at(at);
    space.define(advisory(aer::CORRECTABLE_STATUS), Access::WriteOneToClearSticky, 0);
    space.define(advisory(aer::CORRECTABLE_MASK), Access::ReadWriteSticky, 1);
    space.define(aer::FIRST_ERROR.at(at), Access::State, 0);
}

/// Logs `error` in `space`, and returns the message that the function must send, if its enable bits
/// allow one.
///
/// `advisory` is set when the specification signals the error as correctable because another agent
/// recovers from it: an Unsupported Request that is answered, or an unexpected completion. `log` is
/// the header of the TLP that caused the error.
pub fn report_error(
    space: &mut ConfigSpace,
    error: FunctionError,
    advisory: bool,
    log: Option<&Header>,
) -> Option<ErrorMessage> {
    let device = |field: Field| field.at(offset::EXPRESS);
    let unsupported = error == FunctionError::UnsupportedRequest;
    if unsupported {
        space.set(device(express::UNSUPPORTED_DETECTED), 1);
    }
    if error == FunctionError::CompleterAbort {
        space.set(header::SIGNALED_TARGET_ABORT, 1);
    }
    let system_error = space.is_set(header::SERR);
    let report_unsupported = !unsupported || space.is_set(device(express::REPORT_UNSUPPORTED));
    let fatal = space.is_set(error.place(aer::UNCORRECTABLE_SEVERITY));
    if advisory && !fatal {
        space.set(device(express::CORRECTABLE_DETECTED), 1);
        let at = |register: Field| Field::bit(register.offset(), aer::ADVISORY_NON_FATAL).at(offset::AER);
        space.set(at(aer::CORRECTABLE_STATUS), 1);
        if space.is_set(at(aer::CORRECTABLE_MASK)) {
            return None;
        }
        log_uncorrectable(space, error, log);
        let enabled = space.is_set(device(express::REPORT_CORRECTABLE)) && report_unsupported;
        return enabled.then_some(ErrorMessage::Correctable);
    }
    let (detected, enable, message) = if fatal {
        (express::FATAL_DETECTED, express::REPORT_FATAL, ErrorMessage::Fatal)
    } else {
        (express::NON_FATAL_DETECTED, express::REPORT_NON_FATAL, ErrorMessage::NonFatal)
    };
    space.set(device(detected), 1);
    if !log_uncorrectable(space, error, log) {
        return None;
    }
    let sent = system_error || (space.is_set(device(enable)) && report_unsupported);
    if sent && system_error {
        space.set(header::SIGNALED_SYSTEM_ERROR, 1);
    }
    sent.then_some(message)
}

/// Sets the error's status bit; the first unmasked error also sets the First Error Pointer and the
/// header log. Returns whether the error is unmasked.
fn log_uncorrectable(space: &mut ConfigSpace, error: FunctionError, log: Option<&Header>) -> bool {
    let masked = space.is_set(error.place(aer::UNCORRECTABLE_MASK));
    let pointer = aer::FIRST_ERROR.at(offset::AER);
    let unmasked_status = space.read(aer::UNCORRECTABLE_STATUS.at(offset::AER).offset())
        & !space.read(aer::UNCORRECTABLE_MASK.at(offset::AER).offset());
    if !masked && unmasked_status == 0 {
        space.set(pointer, u32::from(error.bit()));
        for (index, dword) in (0..4).zip(log.map(header_words).unwrap_or_default()) {
            space.set(Field::dword(aer::HEADER_LOG + index * 4).at(offset::AER), dword);
        }
    }
    space.set(error.place(aer::UNCORRECTABLE_STATUS), 1);
    !masked
}

/// The four double words of `header`, as on the wire; the last is 0 for a 3 DW header.
fn header_words(header: &Header) -> [u32; 4] {
    let mut bytes = [0; Head::LENGTH_MAX];
    Head { prefixes: Prefixes::NONE, header: *header, digest: false }.emit(&mut bytes);
    core::array::from_fn(|word| u32::from_be_bytes(core::array::from_fn(|byte| bytes[word * 4 + byte])))
}
