//! An endpoint with delayed or wrong events.

use alloc::collections::VecDeque;

use engine::Buffer;
use rdma::{
    Done, Endpoint, Event, Exposure, Key, Limits, LocalEndpoint, PostError, ReceiveRequest, RegisterError,
    Remote, SendRequest, WorkCompletion,
};

/// An endpoint with delayed or wrong events.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) inner: LocalEndpoint,
    /// Events are withheld.
    pub(crate) no_events: bool,
    /// Completions of sent requests are delayed.
    pub(crate) no_sent: bool,
    pub(crate) kept: VecDeque<WorkCompletion>,
    /// A change to the read data.
    pub(crate) twist: fn(Buffer) -> Buffer,
}

impl Late {
    pub(crate) fn new(inner: LocalEndpoint) -> Self {
        Self { inner, no_events: false, no_sent: false, kept: VecDeque::new(), twist: |data| data }
    }
}

impl Endpoint for Late {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn poll_event(&mut self) -> Option<Event> {
        if self.no_events { None } else { self.inner.poll_event() }
    }
    fn accept(&mut self, private_data: &[u8]) {
        self.inner.accept(private_data);
    }
    fn reject(&mut self, private_data: &[u8]) {
        self.inner.reject(private_data);
    }
    fn disconnect(&mut self) {
        self.inner.disconnect();
    }
    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.inner.post_send(request)
    }
    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.inner.post_receive(request)
    }
    fn poll_completion(&mut self) -> Option<WorkCompletion> {
        if !self.no_sent && !self.kept.is_empty() {
            return self.kept.pop_front();
        }
        while let Some(mut completion) = self.inner.poll_completion() {
            if let Ok(Done::Read(data)) = &mut completion.result {
                *data = (self.twist)(core::mem::take(data));
            }
            if !self.no_sent || !matches!(completion.result, Ok(Done::Sent)) {
                return Some(completion);
            }
            self.kept.push_back(completion);
        }
        None
    }
    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        self.inner.register(exposure)
    }
    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        self.inner.peek(key, offset, into)
    }
    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        self.inner.deregister(key)
    }
}
