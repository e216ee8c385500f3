//! Attacks of an impostor on messages: reflection, replay, truncation, change and invention.

use proptest::prelude::*;

use super::super::message::{Body, Challenge, Kind, Message, Reply, header};
use super::*;

fn cheap(both: bool) -> Credentials {
    credentials(1, Hash::Sha256, Group::Null, both)
}

/// Offset of the challenge in a challenge message, and of the response in a reply.
const VALUE: usize = 16;
const LENGTH: usize = 32;

#[test]
fn a_host_that_sends_the_challenge_back_is_refused() {
    let credentials = cheap(true);
    let (mut host, mut controller) = (host(&credentials, 1), controller(&credentials, 1));
    let mut challenge = [0; LENGTH];
    let result = run(&mut host, &mut controller, |number, message| match number {
        1 => challenge.copy_from_slice(&message[VALUE..VALUE + LENGTH]),
        2 => message[VALUE + LENGTH..VALUE + 2 * LENGTH].copy_from_slice(&challenge),
        _ => {}
    });
    assert_eq!(result, Err(Failure::Refused(Explanation::IncorrectPayload)));
    assert_eq!(controller.take_news(), Some(Err(Failure::Reflected)));
}

/// An impostor without any secret has the host authenticate to it, and passes the proof on as its
/// own: with one secret for both ends, only the role in the proof distinguishes them.
#[test]
fn a_controller_that_reflects_the_hosts_proof_is_refused() {
    let mut credentials = cheap(true);
    credentials.controller = Some(credentials.host.clone());
    let mut host = host(&credentials, 1);
    let Step::Send(_) = host.step() else { panic!("it negotiates") };
    let challenge = [7; LENGTH];
    let body =
        Challenge { hash: Hash::Sha256.id(), group: 0, sequence: 1, challenge: &challenge, public: &[] };
    assert_eq!(host.step(), Step::Receive);
    let message = |kind, body| Message { kind, transaction: 0x0506, body }.emit();
    host.on_message(&message(Kind::Challenge, Body::Challenge(body)));
    let Step::Send(reply) = host.step() else { panic!("it replies") };
    let response = Some(&reply[VALUE..VALUE + LENGTH]);
    let success = Body::Success1 { hash_length: 32, response };
    assert_eq!(host.step(), Step::Receive);
    host.on_message(&message(Kind::Success1, success));
    let Step::Send(failure) = host.step() else { panic!("the host gives up") };
    assert_eq!(header(&failure), Some((Kind::Failure2, 0x0506)));
    assert_eq!(host.step(), Step::Done(Err(Failure::ControllerSecret)));
}

#[test]
fn a_controller_that_proves_nothing_is_refused() {
    let credentials = cheap(true);
    let (mut host, mut controller) = (host(&credentials, 1), controller(&credentials, 1));
    let result = run(&mut host, &mut controller, |number, message| {
        if number == 3 {
            message[8] = 0;
        }
    });
    assert_eq!(result, Err(Failure::Unproved));
}

#[test]
fn a_recorded_transaction_does_not_authenticate() {
    let credentials = cheap(true);
    let mut recorded = Vec::new();
    let (mut host, mut first) = (host(&credentials, 1), controller(&credentials, 1));
    run(&mut host, &mut first, |_, message| recorded.push(message.clone())).unwrap();
    for start in [0, 2, 4] {
        let mut second = controller(&credentials, 2);
        for message in recorded.iter().skip(start).step_by(2) {
            second.on_message(NOW, message);
            second.answer(NOW);
            assert!(!second.is_authenticated());
        }
        assert!(second.is_over());
    }
    // The recorded challenge has the host make a proof that fits no other controller.
    let mut again = super::host(&credentials, 9);
    let result = run(&mut again, &mut controller(&credentials, 3), |number, message| {
        if number == 1 {
            message.clone_from(&recorded[1]);
        }
    });
    assert!(result.is_err());
}

#[test]
fn messages_out_of_turn_end_the_transaction() {
    let credentials = cheap(true);
    let mut recorded = Vec::new();
    run(&mut host(&credentials, 1), &mut controller(&credentials, 1), |_, message| {
        recorded.push(message.clone());
    })
    .unwrap();
    for wrong in &recorded[1..] {
        let mut controller = controller(&credentials, 1);
        controller.on_message(NOW, wrong);
        let Some(Err(failure)) = controller.take_news() else { panic!("it is refused") };
        assert_eq!(failure.explanation(), Explanation::IncorrectMessage);
        let (answer, _) = Message::parse(&controller.answer(NOW)).map(|(one, _)| (one.kind, ())).unwrap();
        assert_eq!(answer, Kind::Failure1);
        assert!(controller.is_over());
        // A failed transaction cannot be resumed.
        controller.on_message(NOW, &recorded[0]);
        controller.answer(NOW);
        assert!(controller.is_over() && !controller.is_authenticated());
    }
    let mut impatient = controller(&credentials, 1);
    impatient.answer(NOW);
    assert!(impatient.is_over(), "a host that requests a message before it has sent one is refused");
}

#[test]
fn a_secure_channel_and_other_protocols_are_refused() {
    for (place, value, explanation) in [
        (6, 2, Explanation::SecureChannelMismatch),
        (8, 9, Explanation::ProtocolNotUsable),
        (10, 31, Explanation::IncorrectPayload),
        (4, 0xee, Explanation::Failed),
    ] {
        let credentials = cheap(false);
        let (mut host, mut controller) = (host(&credentials, 1), controller(&credentials, 1));
        let result = run(&mut host, &mut controller, |number, message| {
            if number == 0 {
                message[place] = value;
            }
        });
        // The last one changes T_ID, which the host notices.
        let expected = match place {
            4 => Failure::Contradiction("T_ID"),
            _ => Failure::Refused(explanation),
        };
        assert_eq!(result, Err(expected), "byte {place}");
    }
}

fn any_credentials() -> impl Strategy<Value = Credentials> {
    any::<bool>().prop_map(cheap)
}

proptest! {
    /// A changed bit of an essential message prevents an agreement of the two ends; and no change
    /// makes an end accept an unproved identity.
    #[test]
    fn a_changed_message_never_authenticates_an_impostor(
        both in any::<bool>(),
        number in 0..5_usize,
        place in 0..2000_usize,
        change in 1..=255_u8,
        cut in prop::option::of(0..200_usize),
    ) {
        let right = cheap(both);
        let wrong = Credentials { host: credentials(2, Hash::Sha256, Group::Null, false).host, ..right.clone() };
        for of_host in [&right, &wrong] {
            let (mut host, mut controller) = (host(of_host, 1), controller(&right, 1));
            let result = run(&mut host, &mut controller, |at, message| {
                if at == number {
                    let place = place % message.len();
                    message[place] ^= change;
                    message.truncate(cut.unwrap_or(usize::MAX));
                }
            });
            if core::ptr::eq(of_host, &wrong) {
                prop_assert!(!controller.is_authenticated());
            }
            if controller.is_authenticated() && both {
                // The host has answered last: it is content.
                prop_assert!(result.is_ok());
            }
        }
    }

    #[test]
    fn noise_is_survived_and_does_not_authenticate(
        credentials in any_credentials(),
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
        header in any::<bool>(),
    ) {
        let (mut host, mut controller) = (host(&credentials, 1), controller(&credentials, 1));
        for mut message in messages {
            if header && message.len() > 6 {
                message[0] &= 1;
                message[1] %= 5;
            }
            let _ = Message::parse(&message);
            controller.on_message(NOW, &message);
            controller.answer(NOW);
            host.step();
            host.on_message(&message);
        }
        prop_assert!(!controller.is_authenticated());
        let believes = matches!(host.step(), Step::Done(Ok(agreed)) if agreed.both);
        prop_assert!(!believes);
    }

    #[test]
    fn parsed_messages_are_emitted_unchanged(
        sequence in any::<u32>(),
        transaction in any::<u16>(),
        response in prop::collection::vec(any::<u8>(), 0..65),
        public in prop::collection::vec(any::<u8>(), 0..1025),
        challenged in any::<bool>(),
    ) {
        let reply = Reply { sequence, response: &response, challenge: challenged.then_some(&response), public: &public };
        let message = Message { kind: Kind::Reply, transaction, body: Body::Reply(reply) };
        let bytes = message.emit();
        prop_assert_eq!(Message::parse(&bytes), Ok((message, bytes.len())));
        prop_assert!(Message::parse(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
    }
}
