//! Answers to `rping -c`.

use engine::Buffer;

use super::{MESSAGE_BYTES, parse};
use crate::measure::{DATA, NOTICE, NOTICE_LENGTH, notice};
use crate::{Endpoint, Operation, ReceiveRequest, SendRequest};

/// The state of a server for a client that is `rping`.
#[derive(Debug)]
pub(in crate::measure) struct Rping {
    size_max: u32,
    /// The bytes that were read, to be written back.
    data: Option<Buffer>,
}

/// Whether the private data are those of `rping`: none, which InfiniBand and RoCE pad with zeros.
pub(in crate::measure) fn is_rping(private_data: &[u8]) -> bool {
    private_data.iter().all(|byte| *byte == 0)
}

impl Rping {
    /// A client whose pings have at most `size_max` bytes; `None` if the endpoint rejects receive
    /// requests.
    pub(in crate::measure) fn begin(endpoint: &mut impl Endpoint, size_max: u32) -> Option<Self> {
        post_receive(endpoint)?;
        Some(Self { size_max, data: None })
    }

    /// Answers a message. `None` if the message is not one of `rping`, or the endpoint rejects the
    /// answer.
    pub(in crate::measure) fn on_message(
        &mut self,
        endpoint: &mut impl Endpoint,
        message: &[u8],
    ) -> Option<()> {
        let remote = parse(message)?;
        let Some(data) = self.data.take() else {
            if remote.length == 0 || remote.length > self.size_max {
                return None;
            }
            return post(endpoint, DATA, Operation::Read { remote });
        };
        if (remote.length as usize) < data.len() {
            return None;
        }
        post(endpoint, DATA, Operation::Write { data, remote })?;
        go_on(endpoint)
    }

    /// Informs the client that the read is done.
    pub(in crate::measure) fn on_read(&mut self, endpoint: &mut impl Endpoint, data: Buffer) -> Option<()> {
        self.data = Some(data);
        go_on(endpoint)
    }
}

/// Sends the client the next step's message, and posts a receive request for its answer.
fn go_on(endpoint: &mut impl Endpoint) -> Option<()> {
    post_receive(endpoint)?;
    post(endpoint, NOTICE, notice(&[0; MESSAGE_BYTES]))
}

fn post_receive(endpoint: &mut impl Endpoint) -> Option<()> {
    let request = ReceiveRequest { id: DATA, length_max: NOTICE_LENGTH };
    endpoint.post_receive(request).ok()
}

fn post(endpoint: &mut impl Endpoint, id: u64, operation: Operation) -> Option<()> {
    endpoint.post_send(SendRequest { id, operation, signalled: true }).ok()
}
