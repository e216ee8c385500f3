//! When a function may ask for patience.

use super::super::patience::{PATIENCE, WAITING_MAX};
use super::*;

const NOW: Instant = Instant::ZERO;
/// An endpoint with a PCI Express capability.
const EXPRESS: [(u16, u32); 3] = [(0x04, 1 << 20), (0x34, 0x40), (0x40, 0x0002_0010)];
/// Offset of the capability's Device Control.
const CONTROL: u16 = 0x48;
const INITIATE_RESET: u32 = 1 << 15;

/// Whether a request to function 0 would wait for the connection.
fn waits(cache: &mut ConfigCache) -> bool {
    let waits = cache.wait(NOW, 0, &mut request(900, 0, None));
    while cache.take_waiting(0).is_some() {}
    waits
}

fn shown_express() -> ConfigCache {
    let mut cache = ConfigCache::new(&[true]);
    let mut registers = space(&EXPRESS);
    registers.resize(32, constant(0));
    cache.on_registers(0, shown(registers));
    cache
}

fn answer(cache: &mut ConfigCache, request: &Packet, status: CompletionStatus) {
    cache.on_answer(0, &Packet::completion(DEVICE, status, &request.header));
}

#[test]
fn it_must_not_once_it_has_answered() {
    let mut cache = shown_express();
    assert!(waits(&mut cache));
    // The answer comes from near the host.
    assert!(read(&mut cache, 0).is_some());
    assert!(!waits(&mut cache));
    cache.forget(0);
    assert!(waits(&mut cache));
    // The answer comes from the far end.
    let far = request(2, 0x7c, None);
    assert!(cache.answer(0, &far, || true).is_none());
    answer(&mut cache, &far, CompletionStatus::ConfigRequestRetry);
    assert!(waits(&mut cache));
    assert!(cache.answer(0, &far, || true).is_none());
    answer(&mut cache, &far, CompletionStatus::Success);
    assert!(!waits(&mut cache));
    // The answer to a request whose name has been used again does not count.
    cache.forget(0);
    let _ = cache.answer(0, &far, || true);
    let _ = cache.answer(0, &Packet::memory_read(HOST, far.tag(), 0x1000, 4), || true);
    answer(&mut cache, &far, CompletionStatus::Success);
    assert!(waits(&mut cache));
}

#[test]
fn it_may_again_after_a_function_level_reset() {
    let reset = request(2, CONTROL, Some(INITIATE_RESET));
    for (status, may) in [(CompletionStatus::Success, true), (CompletionStatus::UnsupportedRequest, false)] {
        let mut cache = shown_express();
        assert!(read(&mut cache, 0).is_some());
        assert!(cache.answer(0, &reset, || true).is_none());
        answer(&mut cache, &reset, status);
        assert_eq!(waits(&mut cache), may, "{status:?}");
    }
    let mut cache = shown_express();
    let other = request(2, CONTROL, Some(1));
    assert!(cache.answer(0, &other, || true).is_none());
    answer(&mut cache, &other, CompletionStatus::Success);
    assert!(!waits(&mut cache));
}

#[test]
fn nothing_else_waits_and_no_more_than_there_is_room_for() {
    let mut cache = ConfigCache::new(&[true, false]);
    assert!(!cache.wait(NOW, 1, &mut request(1, 0, None)), "that port's registers are all the device's");
    assert!(!cache.wait(NOW, 0, &mut Packet::memory_read(HOST, Tag::new(1), 0, 4)));
    let mut beyond = request(1, 0, None);
    if let Kind::Config(request) = &mut beyond.header.kind {
        request.routing = ConfigType::Type1;
    }
    assert!(!cache.wait(NOW, 0, &mut beyond));
    for tag in 0..u16::try_from(WAITING_MAX).unwrap() {
        assert!(cache.wait(NOW, 0, &mut request(tag, 0, None)));
    }
    assert!(!cache.wait(NOW, 0, &mut request(500, 0, None)));
    assert_eq!(cache.poll_timeout(), Some(NOW + PATIENCE));
    assert!(cache.give_up(NOW).is_none());
    let mut given_up = core::iter::from_fn(|| cache.give_up(NOW + PATIENCE));
    assert!(given_up.by_ref().take(WAITING_MAX).all(|answer| answer.is_completion()));
    assert!(given_up.next().is_none());
    assert_eq!(cache.statistics().retries, 64);
}

#[test]
fn a_name_that_is_used_again_is_answered_once() {
    let mut cache = ConfigCache::new(&[true]);
    for offset in [0, 4] {
        assert!(cache.wait(NOW, 0, &mut request(1, offset, None)));
    }
    assert!(cache.give_up(NOW + PATIENCE).is_some());
    assert!(cache.give_up(NOW + PATIENCE).is_none());
}

#[test]
fn too_many_that_have_not_answered_count_as_having_answered() {
    let mut cache = ConfigCache::new(&[true]);
    for tag in 0..=64 {
        assert!(waits(&mut cache), "{tag}");
        assert!(cache.answer(0, &request(tag, 0, None), || true).is_none());
    }
    assert!(!waits(&mut cache));
}
