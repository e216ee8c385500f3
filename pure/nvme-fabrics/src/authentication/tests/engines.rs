//! Our host with our controller.

use super::*;

#[test]
fn every_hash_group_and_direction_authenticates() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            for both in [false, true] {
                let credentials = credentials(1, hash, group, both);
                let (mut host, mut controller) = (host(&credentials, 2), controller(&credentials, 3));
                let agreed = Authenticated { hash, group, both };
                assert_eq!(run(&mut host, &mut controller, |_, _| ()), Ok(agreed));
                assert_eq!(controller.take_news(), Some(Ok(agreed)));
                assert!(controller.is_authenticated() && !controller.is_over());
                assert_eq!(controller.poll_timeout(), None, "there is no deadline");
            }
        }
    }
}

#[test]
fn the_first_choice_of_the_controller_that_the_host_offers_counts() {
    let mut of_host = credentials(1, Hash::Sha256, Group::Null, false);
    let mut of_controller = of_host.clone();
    of_host.hashes = [Hash::Sha256, Hash::Sha512].into();
    of_controller.hashes = [Hash::Sha384, Hash::Sha512, Hash::Sha256].into();
    of_controller.groups = [Group::Ffdhe8192, Group::Null].into();
    let result = run(&mut host(&of_host, 1), &mut controller(&of_controller, 1), |_, _| ());
    assert_eq!(result.unwrap().hash, Hash::Sha512);
    of_controller.hashes = [Hash::Sha384].into();
    let mut refusing = controller(&of_controller, 1);
    let result = run(&mut host(&of_host, 1), &mut refusing, |_, _| ());
    assert_eq!(result, Err(Failure::Refused(Explanation::HashNotUsable)));
    assert_eq!(refusing.take_news(), Some(Err(Failure::Hash)));
    assert!(refusing.is_over() && !refusing.is_authenticated());
    of_controller.hashes = Hash::ALL.into();
    of_controller.groups = [Group::Ffdhe8192].into();
    let result = run(&mut host(&of_host, 1), &mut controller(&of_controller, 1), |_, _| ());
    assert_eq!(result, Err(Failure::Refused(Explanation::GroupNotUsable)));
}

#[test]
fn a_wrong_secret_is_refused_by_the_side_that_checks_it() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let right = credentials(1, Hash::Sha256, group, true);
        let wrong = credentials(2, Hash::Sha256, group, true);
        let of_host = Credentials { host: wrong.host, ..right.clone() };
        let mut refusing = controller(&right, 1);
        let result = run(&mut host(&of_host, 1), &mut refusing, |_, _| ());
        assert_eq!(result, Err(Failure::Refused(Explanation::Failed)));
        assert_eq!(refusing.take_news(), Some(Err(Failure::HostSecret)));
        assert!(refusing.is_over() && !refusing.is_authenticated());

        let of_host = Credentials { controller: wrong.controller, ..right.clone() };
        let mut refused = controller(&right, 1);
        let result = run(&mut host(&of_host, 1), &mut refused, |_, _| ());
        assert_eq!(result, Err(Failure::ControllerSecret));
        assert_eq!(refused.take_news(), Some(Err(Failure::Refused(Explanation::Failed))));
        assert!(refused.is_over() && !refused.is_authenticated());
    }
}

#[test]
fn the_name_is_part_of_the_proof() {
    let credentials = credentials(1, Hash::Sha256, Group::Null, false);
    let other = Names { host: "nqn.2014-08.org.example:other".parse().unwrap(), ..names() };
    let mut host = Host::new(other, credentials.clone(), 1, entropy(1));
    let result = run(&mut host, &mut controller(&credentials, 1), |_, _| ());
    assert_eq!(result, Err(Failure::Refused(Explanation::Failed)));
}

#[test]
fn a_host_may_want_a_proof_that_the_controller_cannot_give() {
    let of_host = credentials(1, Hash::Sha256, Group::Null, true);
    let of_controller = Credentials { controller: None, ..of_host.clone() };
    let mut refusing = controller(&of_controller, 1);
    let result = run(&mut host(&of_host, 1), &mut refusing, |_, _| ());
    assert_eq!(result, Err(Failure::Refused(Explanation::Failed)));
    assert_eq!(refusing.take_news(), Some(Err(Failure::NoControllerSecret)));
}

#[test]
fn a_queue_authenticates_again_and_fails_again() {
    let right = credentials(1, Hash::Sha384, Group::Null, true);
    let mut controller = controller(&right, 1);
    for seed in 0..3 {
        run(&mut host(&right, seed), &mut controller, |_, _| ()).unwrap();
        assert!(controller.is_authenticated());
    }
    let wrong = Credentials { host: credentials(2, Hash::Sha384, Group::Null, false).host, ..right };
    assert!(run(&mut host(&wrong, 9), &mut controller, |_, _| ()).is_err());
    assert!(!controller.is_authenticated() && controller.is_over(), "a failure revokes an earlier success");
}

#[test]
fn two_queues_authenticate_at_the_same_time() {
    let credentials = credentials(1, Hash::Sha256, Group::Ffdhe2048, true);
    let mut hosts = [host(&credentials, 1), host(&credentials, 2)];
    let mut controllers = [controller(&credentials, 3), controller(&credentials, 4)];
    for _ in 0..6 {
        for (host, controller) in hosts.iter_mut().zip(&mut controllers) {
            match host.step() {
                Step::Send(message) => controller.on_message(NOW, &message),
                Step::Receive => host.on_message(&controller.answer(NOW)),
                Step::Done(result) => assert!(result.is_ok()),
            }
        }
    }
    assert!(controllers.iter().all(Controller::is_authenticated));
}

#[test]
fn a_host_that_stops_anywhere_runs_out_of_time() {
    let credentials = credentials(1, Hash::Sha256, Group::Null, true);
    for steps in 0..5 {
        let (mut host, mut controller) = (host(&credentials, 1), controller(&credentials, 1));
        for _ in 0..steps {
            match host.step() {
                Step::Send(message) => controller.on_message(NOW, &message),
                Step::Receive => host.on_message(&controller.answer(NOW)),
                Step::Done(result) => panic!("{result:?}"),
            }
        }
        if controller.is_authenticated() {
            continue;
        }
        assert_eq!(controller.poll_timeout(), Some(NOW + KEEP_ALIVE), "after {steps} steps");
        controller.on_timeout();
        assert!(controller.is_over() && !controller.is_authenticated());
        assert_eq!(controller.take_news(), Some(Err(Failure::TimedOut)));
    }
    let waiting = Controller::new(NOW, names(), credentials, None, entropy(1));
    assert_eq!(waiting.poll_timeout(), Some(NOW + AUTHENTICATION_MAX));
}

#[test]
fn failures_name_the_remedy() {
    assert_eq!(
        alloc::format!("{}", Failure::HostSecret),
        "the host answered with another secret than the target has for it; \
         give both ends the same host secret, and check the host's NQN"
    );
    let shown = alloc::format!("{}", Failure::Refused(Explanation::Other(0x42)));
    assert_eq!(shown, "the other end refused: reason code explanation 42h");
}
