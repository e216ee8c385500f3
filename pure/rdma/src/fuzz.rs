//! Fuzz entries: ordinary code that must not panic on any input.

use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos};

use crate::measure::{Client, Desk, Limits, Mode, Output, Peer, Server, Test, Verb};
use crate::{
    Endpoint, Inline, LocalConfig, LocalEndpoint, Operation, ReceiveRequest, SendRequest, SharedPool,
};

/// Limits on the tests of either end of a measurement.
const LIMITS: Limits = Limits { size: 1 << 16, depth: 64, busy: false };
/// Maximum number of connections that a client may ask for.
const ENDS_MAX: usize = 4;

/// Sends the bytes of a peer to an end of perftest's protocol. The first two bytes choose the end,
/// its test and its transport. For each message, a byte with its connection and length follows.
pub fn perftest(bytes: &[u8]) {
    let [first, second, rest @ ..] = bytes else { return };
    let verb = [Verb::Send, Verb::Write, Verb::Read][usize::from(second % 3)];
    let mode = if first & 1 == 0 { Mode::Latency } else { Mode::Bandwidth };
    let test = Test { verb, mode, size: u32::from(*second) + 1, iterations: 20, depth: 4 };
    let usual = LocalConfig::default();
    let limits = crate::Limits { immediate: first & 2 == 0, ..usual.limits };
    let config = LocalConfig { limits, ..usual };
    match first & 4 == 0 {
        true => serve(test, &config, rest),
        false => measure(test, &config, rest),
    }
}

/// The next message of the peer, and its connection.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(usize, &'a [u8])> {
    let (head, rest) = bytes.split_first()?;
    let (word, rest) = rest.split_at(usize::from(head >> 1).min(rest.len()));
    *bytes = rest;
    Some((usize::from(head & 1), word))
}

/// Sends `word`. The peer always has a receive request for an answer.
fn say(end: &mut LocalEndpoint, word: &[u8]) {
    let data = Buffer::copy_from_slice(word);
    let operation = Operation::Send { inline: Inline::EMPTY, data, invalidate: None, immediate: None };
    // A connection that is over rejects requests.
    let _ = end.post_receive(ReceiveRequest { id: 0, length_max: 1 << 16 });
    let _ = end.post_send(SendRequest { id: 0, operation, signalled: false });
    while end.poll_completion().is_some() {}
}

fn serve(test: Test, config: &LocalConfig, mut bytes: &[u8]) {
    let (pool, desk) = (SharedPool::default(), Desk::new(test));
    let mut now = Instant::ZERO;
    let (mut peers, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let [near, far] = LocalEndpoint::pair(config, &pool, b"");
        peers.push(near);
        servers.push(Some(Server::new(now, far, LIMITS, SharedPool::clone(&pool), Some(desk.clone()))));
    }
    while let Some((which, word)) = next(&mut bytes) {
        now = now + Nanos::from_millis(1);
        // The second client asks when the first has sent five words, or is refused.
        for server in servers.iter_mut().take(if which == 1 { 2 } else { 1 }) {
            if server.as_mut().is_some_and(|server| !server.settle(now)) {
                *server = None;
            }
        }
        say(&mut peers[which], word);
    }
    for server in servers.iter_mut().flatten() {
        server.settle(now);
    }
}

fn measure(test: Test, config: &LocalConfig, mut bytes: &[u8]) {
    let pool = SharedPool::default();
    let [near, mut far] = LocalEndpoint::pair(config, &pool, b"");
    far.accept(b"");
    let mut client = Client::new(near, test, Peer::Perftest, &pool);
    let mut peers = alloc::vec![far];
    let mut now = Instant::ZERO;
    while let Some((which, word)) = next(&mut bytes) {
        now = now + Nanos::from_millis(1);
        let mut outputs = 0;
        while let Some(output) = client.poll(now) {
            outputs += 1;
            assert!(outputs < 1_000, "a client has more outputs than iterations");
            if output == Output::Connect && peers.len() < ENDS_MAX {
                let [near, mut far] = LocalEndpoint::pair(config, &pool, b"");
                far.accept(b"");
                client.join(near);
                peers.truncate(1);
                peers.push(far);
            }
        }
        let at = which.min(peers.len() - 1);
        say(&mut peers[at], word);
    }
}
