//! Configuration requests of the host that are answered with CRS.

use super::super::retry::NOT_READY;
use super::*;
use crate::wire::{CompletionStatus, ConfigRequest};

/// A root complex, and the only packet that it has sent.
struct Host {
    root: RootComplex,
    now: Instant,
}

impl Host {
    fn new(config: Config) -> Self {
        Self { root: RootComplex::new(config), now: NOW }
    }
    fn packet(&mut self) -> Packet {
        match &outputs(&mut self.root)[..] {
            [Output::Packet(packet)] => packet.clone(),
            other => panic!("{other:?}"),
        }
    }
    fn answer(&mut self, packet: Packet) -> Vec<Output> {
        self.root.handle_input(self.now, Input::Packet(packet));
        outputs(&mut self.root)
    }
    fn ask_for_patience(&mut self, request: &Packet) -> Vec<Output> {
        self.answer(Packet::completion(DEVICE, CompletionStatus::ConfigRequestRetry, &request.header))
    }
    /// Advances to the next timer. Nothing happens until then.
    fn wait(&mut self) {
        self.now = self.root.poll_timeout().unwrap();
        self.root.handle_timeout(self.now);
    }
}

fn config_request(packet: &Packet) -> ConfigRequest {
    let Kind::Config(request) = packet.header.kind else { panic!("{packet:?}") };
    request
}

#[test]
fn a_request_that_is_asked_for_patience_is_issued_again() {
    let mut host = Host::new(Config::default());
    host.root.config_read(NOW, 7, DEVICE, 0).unwrap();
    let read = host.packet();
    assert_eq!(host.ask_for_patience(&read), []);
    host.wait();
    assert_eq!(host.now, NOW + Nanos::from_millis(1));
    let again = host.packet();
    assert_ne!(again.tag(), read.tag(), "the longest unused tag");
    assert_eq!((config_request(&again).target, config_request(&again).offset), (DEVICE, 0));
    let late = Packet::completion_with_data(DEVICE, &read.header, 0, Buffer::copy_from_slice(&[9; 4]));
    assert!(matches!(host.answer(late)[..], [Output::Unexpected(_)]));
    let data = Buffer::copy_from_slice(&[1, 2, 3, 4]);
    let answered = host.answer(Packet::completion_with_data(DEVICE, &again.header, 0, data));
    assert_eq!(answered, [Output::Answer(Answer::Register { cookie: 7, result: Ok(0x0403_0201) })]);

    host.root.config_write(host.now, 8, DEVICE, 0x10, 0b0011, 0xabcd).unwrap();
    let write = host.packet();
    assert_eq!(host.ask_for_patience(&write), []);
    host.wait();
    let again = host.packet();
    assert_eq!((config_request(&again).enables, &again.payload), (0b0011, &write.payload));
    let done = Packet::completion(DEVICE, CompletionStatus::Success, &again.header);
    assert_eq!(host.answer(done), [Output::Answer(Answer::Register { cookie: 8, result: Ok(0) })]);
    assert_eq!(host.root.statistics().retries, 2);
    assert_eq!(host.root.poll_timeout(), None);
}

#[test]
fn software_that_wants_to_sees_it_where_the_vendor_is() {
    let mut host = Host::new(Config { retry_visible: true, ..Config::default() });
    host.root.config_read(NOW, 1, DEVICE, 0).unwrap();
    let read = host.packet();
    assert_eq!(
        host.ask_for_patience(&read),
        [Output::Answer(Answer::Register { cookie: 1, result: Ok(NOT_READY) })]
    );
    // A read of another register, and a write to the Vendor ID.
    host.root.config_read(NOW, 2, DEVICE, 4).unwrap();
    let read = host.packet();
    assert_eq!(host.ask_for_patience(&read), []);
    host.wait();
    assert_eq!(config_request(&host.packet()).offset, 4);
    host.root.config_write(host.now, 3, DEVICE, 0, 0b1111, 0).unwrap();
    let write = host.packet();
    assert_eq!(host.ask_for_patience(&write), []);
}

#[test]
fn retries_end_at_the_deadline() {
    let mut host = Host::new(Config::default());
    host.root.config_read(NOW, 1, DEVICE, 0).unwrap();
    let mut tries = 0;
    let end = loop {
        tries += 1;
        let packet = host.packet();
        if let [end] = &host.ask_for_patience(&packet)[..] {
            break end.clone();
        }
        host.wait();
    };
    let result = Err(RequestError::ConfigRequestRetry);
    assert_eq!(end, Output::Answer(Answer::Register { cookie: 1, result }));
    let within = RETRY_DEADLINE..RETRY_DEADLINE + Nanos::from_millis(64);
    assert!(within.contains(&(host.now - NOW)), "{:?} and {tries} tries", host.now);
}

#[test]
fn a_link_that_goes_down_ends_the_patience() {
    let mut host = Host::new(Config::default());
    for cookie in [1, 2] {
        host.root.config_read(NOW, cookie, DEVICE, 0).unwrap();
        let packet = host.packet();
        assert_eq!(host.ask_for_patience(&packet), []);
    }
    host.wait();
    assert_eq!(outputs(&mut host.root).len(), 2);
    host.root.config_read(host.now, 3, DEVICE, 4).unwrap();
    let packet = host.packet();
    assert_eq!(host.ask_for_patience(&packet), []);
    host.root.handle_input(host.now, Input::LinkDown);
    let mut ended: Vec<_> = outputs(&mut host.root)
        .into_iter()
        .map(|output| match output {
            Output::Answer(Answer::Register { cookie, result: Err(RequestError::LinkDown) }) => cookie,
            other => panic!("{other:?}"),
        })
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3]);
    assert_eq!(host.root.poll_timeout(), None);
}

#[test]
fn writes_with_one_cookie_are_issued_again_in_their_order() {
    let mut host = Host::new(Config::default());
    let mut writes = Vec::new();
    for offset in [0x10, 0x14, 0x18, 0x1c] {
        host.root.config_write(NOW, 8, DEVICE, offset, 0b1111, 0).unwrap();
        writes.push(host.packet());
    }
    let done = Packet::completion(DEVICE, CompletionStatus::Success, &writes[0].header);
    assert_eq!(host.answer(done), [Output::Answer(Answer::Register { cookie: 8, result: Ok(0) })]);
    for write in &writes[1..] {
        assert_eq!(host.ask_for_patience(write), []);
    }
    host.wait();
    let again: Vec<_> = outputs(&mut host.root)
        .iter()
        .map(|output| match output {
            Output::Packet(packet) => config_request(packet).offset,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(again, [0x14, 0x18, 0x1c]);
}
