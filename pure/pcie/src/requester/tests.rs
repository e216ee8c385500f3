use std::vec::Vec;

use super::*;
use crate::completer::{self, Completer};
use engine::{Nanos, settle};
use proptest::prelude::*;

const US: Bdf = Bdf::new(2, 0, 0);
const NOW: Instant = Instant::ZERO;

fn requester(tags: TagWidth) -> Requester {
    Requester::new(Settings { id: US, tags, ..Settings::default() })
}

fn drain(requester: &mut Requester) -> Vec<Output> {
    core::iter::from_fn(|| requester.poll_output()).collect()
}

fn packets(requester: &mut Requester) -> Vec<Packet> {
    let packet = |output| match output {
        Output::Packet(packet) => packet,
        other => panic!("{other:?}"),
    };
    drain(requester).into_iter().map(packet).collect()
}

/// The byte that memory holds at `address`.
fn at(address: u64) -> u8 {
    u8::try_from(address * 7 % 253).unwrap()
}

/// The completions for a read, cut into pieces of 128 B at multiples of 64 B.
fn answers(request: &Packet) -> Vec<Packet> {
    let mut completer = Completer::new(completer::Settings::default());
    let start = request.header.first_byte_address().unwrap();
    let bytes: Vec<_> = (0..u64::from(request.header.byte_length())).map(|n| at(start + n)).collect();
    let mut packets = Vec::new();
    completer.data(&request.header, &Buffer::from(bytes), |packet| packets.push(packet));
    packets
}

fn status(request: &Packet, status: CompletionStatus) -> Packet {
    Completer::default().status(&request.header, status)
}

proptest! {
    #[test]
    fn every_read_returns_once_in_any_order_of_tags(
        address in 0u64..20_000, length in 1u32..20_000, order in any::<u64>()
    ) {
        let mut requester = requester(TagWidth::Bits8);
        requester.read(NOW, 5, address, length).unwrap();
        let mut requests = packets(&mut requester);
        let mut rng = engine::Rng::from_seed(order);
        let mut found = alloc::vec![None; length as usize];
        let mut lasts = 0;
        while !requests.is_empty() {
            let index = usize::try_from(rng.below(requests.len() as u64)).unwrap();
            let request = requests.swap_remove(index);
            prop_assert!(request.header.byte_length() <= 512);
            for answer in answers(&request) {
                requester.handle_input(NOW, answer);
            }
            for output in drain(&mut requester) {
                let Output::Answer(Answer::ReadData { cookie: 5, offset, data, last }) = output else { panic!("{output:?}") };
                for (index, byte) in data.iter().enumerate() {
                    let slot = &mut found[offset as usize + index];
                    prop_assert_eq!(*slot, None);
                    *slot = Some(*byte);
                }
                lasts += u32::from(last);
            }
        }
        let expected: Vec<_> = (0..u64::from(length)).map(|n| Some(at(address + n))).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(lasts, 1);
        prop_assert!(requester.is_idle());
    }

    #[test]
    fn a_write_is_split_into_packets_that_cover_it(
        address in 0u64..10_000, length in 0usize..10_000, payload_size in 0u32..6
    ) {
        let mut requester = requester(TagWidth::Bits8);
        let settings = Settings { payload_size: 128 << payload_size, ..*requester.settings() };
        requester.set(settings);
        let bytes: Vec<_> = (0..length as u64).map(|n| at(address + n)).collect();
        requester.write(address, &Buffer::from(bytes));
        let mut next = address;
        for packet in packets(&mut requester) {
            prop_assert!(packet.payload.len() <= 128 << payload_size);
            prop_assert_eq!(packet.header.first_byte_address(), Some(next));
            let lead = usize::from(packet.header.lead());
            for byte in &packet.payload[lead..lead + packet.header.byte_length() as usize] {
                prop_assert_eq!(*byte, at(next));
                next += 1;
            }
        }
        prop_assert_eq!(next, address + length as u64);
    }
}

#[test]
fn reads_wait_for_tags_and_go_on_as_these_come_back() {
    let mut requester = requester(TagWidth::Bits5);
    requester.read(NOW, 1, 0, 512 * 40).unwrap();
    let first = packets(&mut requester);
    assert_eq!(first.len(), 32);
    for answer in answers(&first[7]) {
        requester.handle_input(NOW, answer);
    }
    let sent: Vec<_> =
        drain(&mut requester).into_iter().filter(|output| matches!(output, Output::Packet(_))).collect();
    assert_eq!(sent.len(), 1);
    for cookie in 1..REQUESTS_MAX as u64 {
        assert_eq!(requester.read(NOW, cookie, 0, 4), Ok(()));
    }
    assert_eq!(requester.read(NOW, 0, 0, 4), Err(Busy));
}

#[test]
fn ten_bit_tags_never_have_two_upper_zeros_and_outstanding_ones_stay_taken() {
    let mut requester = requester(TagWidth::Bits5);
    requester.read(NOW, 1, 0, 4).unwrap();
    let old = packets(&mut requester).remove(0);
    requester.set(Settings { tags: TagWidth::Bits10, ..*requester.settings() });
    for _ in 0..800 {
        requester.read(NOW, 2, 0, 4).unwrap();
    }
    let sent = packets(&mut requester);
    assert_eq!(sent.len(), 768);
    assert!(sent.iter().all(|packet| packet.header.tag().get() >> 8 != 0));
    requester.handle_input(NOW, answers(&old).remove(0));
    assert!(matches!(
        drain(&mut requester)[..],
        [Output::Answer(Answer::ReadData { cookie: 1, last: true, .. })]
    ));
}

#[test]
fn duplicates_strangers_and_wrong_counts_are_unexpected_and_do_no_harm() {
    let mut requester = requester(TagWidth::Bits8);
    requester.read(NOW, 1, 0x1000, 256).unwrap();
    let request = packets(&mut requester).remove(0);
    let pieces = answers(&request);
    assert_eq!(pieces.len(), 2);
    requester.handle_input(NOW, pieces[0].clone());
    assert!(matches!(drain(&mut requester)[..], [Output::Answer(Answer::ReadData { last: false, .. })]));
    let mut elsewhere = pieces[1].clone();
    let Kind::Completion(completion) = &mut elsewhere.header.kind else { panic!() };
    completion.lower_address = 64;
    let mut stranger = pieces[1].clone();
    let Kind::Completion(completion) = &mut stranger.header.kind else { panic!() };
    completion.requester = Bdf::new(9, 9, 1);
    for unexpected in [pieces[0].clone(), elsewhere, stranger, request] {
        requester.handle_input(NOW, unexpected);
        assert!(matches!(drain(&mut requester)[..], [Output::Unexpected(_)]));
    }
    requester.handle_input(NOW, pieces[1].clone());
    assert!(matches!(
        drain(&mut requester)[..],
        [Output::Answer(Answer::ReadData { offset: 128, last: true, .. })]
    ));
    requester.handle_input(NOW, pieces[1].clone());
    assert!(matches!(drain(&mut requester)[..], [Output::Unexpected(_)]));
    assert_eq!(requester.statistics().unexpected, 5);
}

#[test]
fn statuses_and_poison_fail_a_read_once() {
    use CompletionStatus::{CompleterAbort, ConfigRequestRetry, Reserved, UnsupportedRequest};
    let cases = [
        (UnsupportedRequest, RequestError::UnsupportedRequest),
        (CompleterAbort, RequestError::CompleterAbort),
        (ConfigRequestRetry, RequestError::UnsupportedRequest),
        (Reserved(7), RequestError::UnsupportedRequest),
        (CompletionStatus::Success, RequestError::Malformed),
    ];
    for (answer, error) in cases {
        let mut requester = requester(TagWidth::Bits8);
        requester.read(NOW, 1, 0, 1024).unwrap();
        for request in packets(&mut requester) {
            requester.handle_input(NOW, status(&request, answer));
        }
        assert_eq!(drain(&mut requester), [Output::Answer(Answer::ReadFailed { cookie: 1, error })]);
        assert!(requester.is_idle());
    }
    let mut requester = requester(TagWidth::Bits8);
    requester.read(NOW, 1, 0, 256).unwrap();
    let mut pieces = answers(&packets(&mut requester).remove(0));
    pieces[0].header.traits = pieces[0].header.traits.with_poison(true);
    pieces.into_iter().for_each(|piece| requester.handle_input(NOW, piece));
    let error = RequestError::Poisoned;
    assert_eq!(drain(&mut requester), [Output::Answer(Answer::ReadFailed { cookie: 1, error })]);
    assert!(requester.is_idle());
}

#[test]
fn a_missing_completion_times_out_and_its_late_coming_is_counted() {
    let mut requester = requester(TagWidth::Bits8);
    requester.read(NOW, 1, 0, 64).unwrap();
    let request = packets(&mut requester).remove(0);
    let due = NOW + Nanos::from_millis(50);
    assert_eq!(requester.poll_timeout(), Some(due));
    let mut outputs = Vec::new();
    assert_eq!(settle(&mut requester, due, |output| outputs.push(output)), None);
    assert_eq!(outputs, [Output::Answer(Answer::ReadFailed { cookie: 1, error: RequestError::Timeout })]);
    requester.handle_input(due, answers(&request).remove(0));
    assert_eq!(drain(&mut requester), []);
    assert_eq!((requester.statistics().late, requester.statistics().timeouts), (1, 1));
    assert!(requester.is_idle());
}

#[test]
fn a_shorter_timeout_may_be_set_while_reads_are_outstanding() {
    let mut requester = requester(TagWidth::Bits8);
    requester.set(Settings { timeout: CompletionTimeout::D2, ..*requester.settings() });
    requester.read(NOW, 1, 0, 64).unwrap();
    requester.set(Settings { timeout: CompletionTimeout::A1, ..*requester.settings() });
    requester.read(NOW, 2, 0, 64).unwrap();
    assert_eq!(requester.poll_timeout(), Some(NOW + Nanos::from_secs(64)));
}

#[test]
fn link_down_fails_everything_at_once() {
    let mut requester = requester(TagWidth::Bits5);
    for cookie in 0..40 {
        requester.read(NOW, cookie, 0, 4).unwrap();
    }
    let sent = packets(&mut requester);
    requester.fail_all();
    let mut failed: Vec<_> = drain(&mut requester)
        .into_iter()
        .map(|output| match output {
            Output::Answer(Answer::ReadFailed { cookie, error: RequestError::LinkDown }) => cookie,
            other => panic!("{other:?}"),
        })
        .collect();
    failed.sort_unstable();
    assert_eq!(failed, (0..40).collect::<Vec<_>>());
    assert_eq!((requester.is_idle(), requester.poll_timeout()), (true, None));
    requester.handle_input(NOW, answers(&sent[0]).remove(0));
    assert_eq!(requester.statistics().late, 1);
    requester.read(NOW, 99, 0, 4).unwrap();
    assert_eq!(packets(&mut requester).len(), 1);
}

#[test]
fn registers_are_read_and_written_and_may_ask_for_patience() {
    let mut requester = requester(TagWidth::Bits8);
    let target = Bdf::new(1, 0, 0);
    let bar = |routing| ConfigRegister { routing, target, offset: 0x10 };
    requester.config(NOW, 1, bar(ConfigType::Type0), None).unwrap();
    requester.config(NOW, 2, bar(ConfigType::Type1), Some((0b1111, 0x1234_5678))).unwrap();
    requester.config(NOW, 3, ConfigRegister { offset: 0, ..bar(ConfigType::Type0) }, None).unwrap();
    requester.io(NOW, 4, 0x3f8, 1, None).unwrap();
    let sent = packets(&mut requester);
    assert_eq!(sent[1].payload[..], [0x78, 0x56, 0x34, 0x12]);
    let mut completer = Completer::default();
    let mut completions = Vec::new();
    let value = Buffer::copy_from_slice(&[1, 2, 3, 4]);
    completer.data(&sent[0].header, &value, |packet| completions.push(packet));
    completions.push(status(&sent[1], CompletionStatus::Success));
    completions.push(status(&sent[2], CompletionStatus::ConfigRequestRetry));
    completions.push(status(&sent[3], CompletionStatus::UnsupportedRequest));
    completions.into_iter().for_each(|packet| requester.handle_input(NOW, packet));
    let results = [
        Ok(0x0403_0201),
        Ok(0),
        Err(RequestError::ConfigRequestRetry),
        Err(RequestError::UnsupportedRequest),
    ];
    let expected = [1, 2, 3, 4]
        .into_iter()
        .zip(results)
        .map(|(cookie, result)| Output::Answer(Answer::Register { cookie, result }));
    assert_eq!(drain(&mut requester), expected.collect::<Vec<_>>());
}

#[test]
fn a_range_beyond_the_last_address_fails() {
    let mut requester = requester(TagWidth::Bits8);
    requester.read(NOW, 1, u64::MAX - 3, 4).unwrap();
    assert_eq!(packets(&mut requester).len(), 1);
    requester.read(NOW, 2, u64::MAX - 3, 5).unwrap();
    assert_eq!(
        drain(&mut requester),
        [Output::Answer(Answer::ReadFailed { cookie: 2, error: RequestError::AddressOverflow })]
    );
    requester.write(u64::MAX - 3, &Buffer::zeroed(64));
    assert_eq!(packets(&mut requester).len(), 1);
}

#[test]
fn completion_timeouts_fall_back_to_a_supported_range() {
    assert_eq!(CompletionTimeout::C2.supported_by(0b1111), CompletionTimeout::C2);
    assert_eq!(CompletionTimeout::C2.supported_by(0b0011), CompletionTimeout::B2);
    assert_eq!(CompletionTimeout::C2.supported_by(0b1000), CompletionTimeout::Default);
    for value in CompletionTimeout::all() {
        assert_eq!(CompletionTimeout::from_code(value.code()), Some(value));
    }
    assert_eq!(CompletionTimeout::from_code(0b1111), None);
}
