//! The function's side: a client's messages become requests to the world, and its answers replies.

mod config;
mod output;
mod reason;

pub use config::{Config, InterruptConfig, RegionConfig};
pub use output::{Cookie, Input, InterruptAction, InterruptData, Output, Token};
pub use reason::CloseReason;

use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant};

use crate::errno::Errno;

/// What a client and we have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Bytes of data that the client takes in one message.
    pub data_max: u32,
    /// Descriptors that the client takes in one message.
    pub descriptors_max: u32,
}

/// One function, offered to one client at a time.
#[derive(Debug)]
pub struct Server<D> {
    config: Config,
    outputs: VecDeque<Output<D>>,
}

impl<D: 'static> Server<D> {
    /// A function that no client uses yet.
    ///
    /// # Panics
    /// When the configuration contradicts itself: an area outside its region, or a region longer than a signed 64-bit
    /// file offset.
    pub fn new(config: Config) -> Self {
        Self { config, outputs: VecDeque::new() }
    }

    /// Answers [`Output::Map`]. After an error the memory counts as not mapped: no [`Output::Unmap`] comes for it.
    pub fn map_done(&mut self, _token: Token, _result: Result<(), Errno>) {}
    /// Answers one [`Output::Unmap`] that carries a token.
    pub fn unmap_done(&mut self, _token: Token) {}
    /// Answers [`Output::RegionRead`] with the bytes read, fewer than asked for if the device had no more.
    ///
    /// # Panics
    /// When there are more bytes than were asked for.
    pub fn read_done(&mut self, _token: Token, _result: Result<&[u8], Errno>) {}
    /// Answers an [`Output::RegionWrite`] that carries a token.
    pub fn write_done(&mut self, _token: Token, _result: Result<(), Errno>) {}
    /// Answers [`Output::Reset`].
    pub fn reset_done(&mut self, _token: Token, _result: Result<(), Errno>) {}

    /// Reads `length` bytes of the client's memory by message; ends with a last [`Output::DmaData`] or with
    /// [`Output::DmaFailed`].
    pub fn dma_read(&mut self, _now: Instant, cookie: Cookie, _address: u64, _length: usize) {
        self.outputs.push_back(Output::DmaFailed { cookie, error: Errno::ENOTCONN });
    }
    /// Writes to the client's memory by message; ends with [`Output::DmaWritten`] or [`Output::DmaFailed`].
    pub fn dma_write(&mut self, _now: Instant, cookie: Cookie, _address: u64, _data: Buffer) {
        self.outputs.push_back(Output::DmaFailed { cookie, error: Errno::ENOTCONN });
    }

    /// What was agreed on with the present client, once it has said its version.
    pub const fn negotiated(&self) -> Option<Negotiated> {
        None
    }
    /// The configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }
}

impl<D: 'static> Engine for Server<D> {
    type Input<'a> = Input<'a, D>;
    type Output = Output<D>;

    fn handle_input(&mut self, _now: Instant, _input: Input<'_, D>) {}
    fn handle_timeout(&mut self, _now: Instant) {}
    fn poll_output(&mut self) -> Option<Output<D>> {
        self.outputs.pop_front()
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
