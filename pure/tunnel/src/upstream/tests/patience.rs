//! Configuration requests while the connection is lost.

use super::*;

const DEVICE: Bdf = Bdf::new(4, 0, 0);
const WRITE_TAG: Tag = Tag::new(1);
const READ_TAG: Tag = Tag::new(2);

fn world() -> World {
    let mut world = World::with(&Config { config_cache: true, ..config("host", 1) });
    world.to_root.clear();
    world
}

/// The answers since the previous call.
fn answers(world: &mut World) -> Vec<(Tag, CompletionStatus, Vec<u8>)> {
    let answer = |(packet, _): (Packet, _)| {
        let Kind::Completion(completion) = packet.header.kind else { panic!("{packet:?}") };
        (completion.tag, completion.status, packet.payload.to_vec())
    };
    world.to_root.drain(..).map(answer).collect()
}

fn read(world: &mut World) {
    world.request(Packet::config_read(ROOT, READ_TAG, DEVICE, 0, 4), DEVICE);
}

fn retries(world: &World) -> u64 {
    world.upstream.config_cache().unwrap().retries
}

const fn retry(tag: Tag) -> (Tag, CompletionStatus, Vec<u8>) {
    (tag, CompletionStatus::ConfigRequestRetry, Vec::new())
}

fn done() -> (Tag, CompletionStatus, Vec<u8>) {
    (READ_TAG, CompletionStatus::Success, std::vec![1; 4])
}

#[test]
fn an_unknown_function_asks_for_patience() {
    let mut world = world();
    world.reachable = false;
    world.cut(1, true);
    read(&mut world);
    world.run_for(Nanos::from_millis(1));
    world.config_write(DEVICE, 0x10, 1);
    world.run_for(Nanos::from_micros(3_900));
    assert_eq!(answers(&mut world), []);
    world.run_for(Nanos::from_millis(2));
    assert_eq!(answers(&mut world), [retry(READ_TAG), retry(WRITE_TAG)]);
    assert_eq!(retries(&world), 2);
    // Neither request is sent on when the connection is back.
    world.reachable = true;
    world.run_for(Nanos::from_secs(5));
    assert!(world.events.iter().any(|event| event == "1: resumed"), "{:?}", world.events);
    assert_eq!(answers(&mut world), []);
    read(&mut world);
    assert_eq!(answers(&mut world), [done()]);
}

#[test]
fn a_request_whose_connection_is_back_in_time_is_sent_once() {
    let mut world = world();
    world.cut(1, true);
    read(&mut world);
    assert_eq!(answers(&mut world), [done()]);
    world.run_for(Nanos::from_secs(1));
    assert_eq!((answers(&mut world), retries(&world)), (Vec::new(), 0));
}

#[test]
fn a_function_that_has_answered_asks_for_patience_only_when_it_was_reset() {
    let mut world = world();
    read(&mut world);
    assert_eq!(answers(&mut world), [done()]);
    world.reachable = false;
    world.cut(1, true);
    read(&mut world);
    world.run_for(Nanos::from_millis(500));
    assert_eq!((answers(&mut world), retries(&world)), (Vec::new(), 0), "it waits");
    let bridge_control = 0x3c;
    for value in [1 << 22, 0] {
        world.config_write(Bdf::new(2, 1, 0), bridge_control, value);
    }
    world.to_root.clear();
    read(&mut world);
    world.run_for(Nanos::from_millis(6));
    assert_eq!((answers(&mut world), retries(&world)), ([retry(READ_TAG)].into(), 1));
    world.reachable = true;
    world.run_for(Nanos::from_secs(5));
    // This device does not forget requests from before its reset.
    world.to_root.clear();
    read(&mut world);
    assert_eq!(answers(&mut world), [done()]);
}

#[test]
fn what_waits_is_answered_when_the_link_goes_down() {
    let mut world = world();
    world.reachable = false;
    world.cut(1, true);
    read(&mut world);
    let now = world.now;
    world.upstream.close(now, PortIndex(1), "enough");
    world.run_for(Nanos::from_millis(10));
    assert_eq!(answers(&mut world), [retry(READ_TAG)]);
    assert_eq!(world.probe(1).0, CompletionStatus::UnsupportedRequest);
}
