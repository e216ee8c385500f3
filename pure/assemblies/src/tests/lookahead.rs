//! Lookahead between whole machines: the device asks the host for fewer bytes, and gets the same
//! data.

use nvme_lookahead::Refusals;

use super::*;

fn pair(lookahead: bool) -> Pair {
    let session = tunnel::session::Config { lookahead, tally: true, ..tunnel::session::Config::default() };
    Pair::with(near::Config::default(), &session, 1)
}

/// Reads of host memory that the device's end has sent to the host, and reads that it has answered
/// itself.
fn reads(pair: &Pair) -> (u64, u64) {
    let statistics = pair.far.downstream().store().tally();
    (statistics.misses, statistics.hits)
}

/// The refusals of the DMA rule.
fn refusals(pair: &Pair) -> Option<Refusals> {
    pair.near.upstream()?.interposer()?.refusals(0)
}

/// Writes `length` bytes and reads them back. Returns how many reads of memory went to the host for
/// each.
fn write_and_read(pair: &mut Pair, length: u32, cookie: u64) -> [u64; 2] {
    let (controller, _) = pair.near.controllers().next().unwrap();
    let region = pair.near.driver(controller).unwrap().data_region();
    let pattern: Vec<u8> = (cookie.to_le_bytes()[0]..=250).cycle().take(length as usize).collect();
    pair.near.memory_mut().write(region.base, &pattern).unwrap();
    let data = Data { address: region.base, length };
    let back = Data { address: region.base + u64::from(length), length };
    let blocks = length / 512;
    let (queue, namespace) = (QueueId(1), NamespaceId(1));
    let mut misses = [0; 2];
    let commands = [
        Submission::on_blocks(IoOpcode::Write, queue, namespace, 8, blocks, data, cookie),
        Submission::on_blocks(IoOpcode::Read, queue, namespace, 8, blocks, back, cookie + 1),
    ];
    for (submission, misses) in commands.into_iter().zip(&mut misses) {
        let cookie = submission.cookie;
        let before = reads(pair).0;
        pair.near.submit(pair.now, controller, submission).unwrap();
        pair.run(|events| completed(events, cookie));
        *misses = reads(pair).0 - before;
    }
    assert_eq!(pair.near.memory().slice(back.address, length as usize).unwrap(), pattern);
    misses
}

#[test]
fn the_device_finds_entries_lists_and_data_where_it_is() {
    let mut pair = pair(true);
    pair.run(ready);
    for (number, length) in (0..).zip([512, 4096, 8192, 12 << 10, 128 << 10, 4096]) {
        let misses = write_and_read(&mut pair, length, number * 10);
        assert_eq!(misses, [0, 0], "{length} B");
    }
    let lookahead = *pair.near.upstream().unwrap().interposer().unwrap().statistics();
    let store = *pair.far.downstream().store().tally();
    assert_eq!(lookahead.bytes, store.bytes_received, "{lookahead:?}");
    assert_eq!(store.bytes_in_vain, 0, "{store:?}");
    assert_eq!(lookahead.given_up, 0);
    assert_eq!(refusals(&pair), Some(Refusals::default()));
    assert_eq!(pair.far.downstream().store().bytes(), 0);
    // The host's end learns of the tally, too.
    let reported = |pair: &Pair| {
        pair.near.upstream().unwrap().session(PortIndex(0)).unwrap().tally().map(|(_, tally)| *tally)
    };
    assert_ne!(reported(&pair), Some(store));
    pair.near.ping(pair.now);
    pair.step();
    pair.step();
    assert_eq!(reported(&pair), Some(store));
}

#[test]
fn without_it_each_command_asks_the_host() {
    let mut pair = pair(false);
    pair.run(ready);
    let [write, read] = write_and_read(&mut pair, 4096, 0);
    assert_eq!((write, read), (2, 1));
    let upstream = pair.near.upstream().unwrap();
    assert_eq!(upstream.interposer().unwrap().statistics().doorbells, 0);
    assert_eq!(refusals(&pair), Some(Refusals::default()));
}

#[test]
fn without_the_rule_nothing_stands_between() {
    let dma = tunnel::session::Dma::Mapped;
    let session = tunnel::session::Config { dma, tally: true, ..tunnel::session::Config::default() };
    let mut pair = Pair::with(near::Config::default(), &session, 1);
    pair.run(ready);
    write_and_read(&mut pair, 4096, 0);
    assert!(pair.near.upstream().unwrap().interposer().is_none());
}
