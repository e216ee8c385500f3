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
fn waits(shadow: &mut Shadow) -> bool {
    let waits = shadow.wait(NOW, 0, request(900, 0, None)).is_none();
    while shadow.take_waiting(0).is_some() {}
    waits
}

fn shown_express() -> Shadow {
    let mut shadow = Shadow::new(&[true]);
    let mut registers = space(&EXPRESS);
    registers.resize(32, constant(0));
    shadow.on_registers(0, shown(registers));
    shadow
}

fn answer(shadow: &mut Shadow, request: &Packet, status: CompletionStatus) {
    shadow.on_up(0, &Packet::completion(DEVICE, status, &request.header));
}

#[test]
fn it_must_not_once_it_has_answered() {
    let mut shadow = shown_express();
    assert!(waits(&mut shadow));
    // The answer comes from near the host.
    assert!(read(&mut shadow, 0).is_some());
    assert!(!waits(&mut shadow));
    shadow.forget(0);
    assert!(waits(&mut shadow));
    // The answer comes from the far end.
    let far = request(2, 0x7c, None);
    assert!(shadow.on_down(0, &far, || true).is_none());
    answer(&mut shadow, &far, CompletionStatus::ConfigRequestRetry);
    assert!(waits(&mut shadow));
    assert!(shadow.on_down(0, &far, || true).is_none());
    answer(&mut shadow, &far, CompletionStatus::Success);
    assert!(!waits(&mut shadow));
    // The answer to a request whose name has been used again does not count.
    shadow.forget(0);
    let _ = shadow.on_down(0, &far, || true);
    let _ = shadow.on_down(0, &Packet::memory_read(HOST, far.tag(), 0x1000, 4), || true);
    answer(&mut shadow, &far, CompletionStatus::Success);
    assert!(waits(&mut shadow));
}

#[test]
fn it_may_again_after_a_function_level_reset() {
    let reset = request(2, CONTROL, Some(INITIATE_RESET));
    for (status, may) in [(CompletionStatus::Success, true), (CompletionStatus::UnsupportedRequest, false)] {
        let mut shadow = shown_express();
        assert!(read(&mut shadow, 0).is_some());
        assert!(shadow.on_down(0, &reset, || true).is_none());
        answer(&mut shadow, &reset, status);
        assert_eq!(waits(&mut shadow), may, "{status:?}");
    }
    let mut shadow = shown_express();
    let other = request(2, CONTROL, Some(1));
    assert!(shadow.on_down(0, &other, || true).is_none());
    answer(&mut shadow, &other, CompletionStatus::Success);
    assert!(!waits(&mut shadow));
}

#[test]
fn nothing_else_waits_and_no_more_than_there_is_room_for() {
    let mut shadow = Shadow::new(&[true, false]);
    assert!(shadow.wait(NOW, 1, request(1, 0, None)).is_some(), "that port's registers are all the device's");
    assert!(shadow.wait(NOW, 0, Packet::memory_read(HOST, Tag::new(1), 0, 4)).is_some());
    let mut beyond = request(1, 0, None);
    if let Kind::Config(request) = &mut beyond.header.kind {
        request.routing = ConfigType::Type1;
    }
    assert!(shadow.wait(NOW, 0, beyond).is_some());
    for tag in 0..u16::try_from(WAITING_MAX).unwrap() {
        assert!(shadow.wait(NOW, 0, request(tag, 0, None)).is_none());
    }
    assert!(shadow.wait(NOW, 0, request(500, 0, None)).is_some());
    assert_eq!(shadow.poll_timeout(), Some(NOW + PATIENCE));
    assert!(shadow.give_up(NOW).is_none());
    let mut given_up = core::iter::from_fn(|| shadow.give_up(NOW + PATIENCE));
    assert!(given_up.by_ref().take(WAITING_MAX).all(|answer| answer.is_completion()));
    assert!(given_up.next().is_none());
    assert_eq!(shadow.statistics().retries, 64);
}

#[test]
fn a_name_that_is_used_again_is_answered_once() {
    let mut shadow = Shadow::new(&[true]);
    for offset in [0, 4] {
        assert!(shadow.wait(NOW, 0, request(1, offset, None)).is_none());
    }
    assert!(shadow.give_up(NOW + PATIENCE).is_some());
    assert!(shadow.give_up(NOW + PATIENCE).is_none());
}

#[test]
fn too_many_that_have_not_answered_count_as_having_answered() {
    let mut shadow = Shadow::new(&[true]);
    for tag in 0..=64 {
        assert!(waits(&mut shadow), "{tag}");
        assert!(shadow.on_down(0, &request(tag, 0, None), || true).is_none());
    }
    assert!(!waits(&mut shadow));
}
