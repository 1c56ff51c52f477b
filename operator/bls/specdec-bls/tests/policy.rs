//! The adaptive draft length, against simulated engines whose costs follow their load.

use std::sync::{Arc, Mutex};

use simulation::numbers::Numbers;
use simulation::{Run, grid};
use triton_specdec::estimate::{Acceptance, Curve};
use triton_specdec::policy::{AdaptiveLength, FixedLength, Lengths, expected_tokens};

mod simulation;

#[test]
fn never_far_from_the_best_fixed_length_nor_from_plain() {
    for engines in grid() {
        let mut run = Run::new(engines);
        run.go(60);
        let speed = run.go(1500);
        assert!(speed >= 0.97 * engines.best(), "{engines:?}");
        assert!(speed >= 0.97 / engines.plain(), "{engines:?}");
    }
}

#[test]
fn a_load_step_is_answered_within_twenty_rounds() {
    let shares = simulation::after_load_steps();
    assert!(shares.iter().all(|share| *share >= 0.97), "{shares:?}");
}

#[test]
fn another_kind_of_text_is_answered_within_five_seconds() {
    let shares = simulation::after_other_texts();
    assert!(shares.iter().all(|share| *share >= 0.97), "{shares:?}");
}

#[test]
fn a_settled_policy_seldom_changes() {
    let rates = simulation::changes_a_second();
    assert!(rates.iter().all(|rate| *rate <= 1.0), "{rates:?}");
}

#[test]
fn lengths_stay_in_their_bounds() {
    for seed in 0..200 {
        let mut numbers = Numbers::new(seed);
        let least = numbers.between(0, 3);
        let most = least + numbers.between(0, 6);
        let acceptance = numbers.random();
        let now = Arc::new(Mutex::new(0.0));
        let clock = Arc::clone(&now);
        let server = AdaptiveLength::new(
            least,
            most,
            numbers.between(0, 12),
            Box::new(move |length| assert!((least..=most).contains(&length))),
            Box::new(move || *clock.lock().unwrap()),
        );
        let mut answer = server.answer();
        for _ in 0..60 {
            let length = answer.length();
            assert!((least..=most).contains(&length), "seed {seed}: {length}");
            *now.lock().unwrap() += numbers.random();
            let (draft, verify) = (numbers.random(), numbers.random());
            if length > 0 {
                let accepted = (0..length).filter(|_| numbers.random() < acceptance);
                answer.round(length, accepted.count(), draft, verify);
            } else {
                answer.plain(answer.plain_tokens(), verify);
            }
        }
        answer.close();
        answer.close();
    }
}

#[test]
fn what_answers_learn_belongs_to_their_load() {
    let server = AdaptiveLength::new(0, 8, 4, Box::new(|_| ()), Box::new(|| 0.0));
    let mut busy: Vec<_> = (0..4).map(|_| server.answer()).collect();
    for _ in 0..3 {
        // Without a draft ten times as fast: at this load the draft rests.
        busy[0].round(4, 0, 0.05, 0.05);
        busy[0].plain(1, 0.01);
    }
    assert_eq!(busy[1].length(), 0);
    drop(busy);
    assert_eq!(server.answer().length(), 4);
}

#[test]
fn expected_tokens_is_the_sum_of_the_series() {
    for length in 0..=20 {
        for acceptance in [0.0, 1e-9, 0.3, 0.5, 0.99, 0.999_999_9, 1.0] {
            let total: f64 = (0..=length).map(|power| f64::powi(acceptance, power)).sum();
            let found = expected_tokens(length as usize, acceptance);
            assert!((found / total - 1.0).abs() < 1e-6, "{length} {acceptance}");
        }
    }
}

#[test]
fn acceptance_is_that_of_the_request_once_it_has_spoken() {
    let mut server = Acceptance::default();
    for _ in 0..50 {
        server.add(4, 0, 1.0);
    }
    let mut own = Acceptance::default();
    assert!(own.value(1.0, Some(&server)) < 0.2);
    for _ in 0..20 {
        own.add(4, 4, 1.0);
    }
    assert!(own.value(1.0, Some(&server)) > 0.85);
}

#[test]
fn a_curve_is_straight_between_what_was_measured_and_never_falls_beyond() {
    let mut curve = Curve::default();
    assert_eq!(curve.at(3), 0.0);
    curve.add(4, 8.0);
    assert_eq!(curve.at(2), 8.0);
    curve.add(2, 4.0);
    assert_eq!((curve.at(3), curve.at(6), curve.at(1)), (6.0, 12.0, 2.0));
    curve.add(6, 2.0);
    assert_eq!((curve.at(5), curve.at(8)), (5.0, 8.0));
    let mut draft = Curve::through_zero();
    draft.add(4, 8.0);
    assert_eq!((draft.at(1), draft.at(6)), (2.0, 12.0));
}

#[test]
fn a_fixed_length_never_moves() {
    let mut fixed = FixedLength(3);
    fixed.round(3, 0, 1.0, 1.0);
    assert_eq!(fixed.length(), 3);
    assert_eq!(fixed.plain_tokens(), 0);
}
