//! The adaptive draft length, against simulated engines whose costs follow their load.

use std::sync::{Arc, Mutex};

use simulation::numbers::Numbers;
use simulation::{MOST, Run, grid};
use triton_specdec::draft_length::estimate::{Acceptance, Curve, VerificationSeconds};
use triton_specdec::draft_length::{
    AdaptivePolicy, Alternative, FixedLength, LengthPolicy, expected_tokens,
};

mod simulation;

#[test]
fn speed_is_near_that_of_the_best_fixed_length_and_of_no_draft() {
    for engines in grid() {
        let mut run = Run::new(engines);
        run.run(60);
        let speed = run.run(1500);
        assert!(speed >= 0.97 * engines.best(), "{engines:?}");
        assert!(speed >= 0.97 / engines.target_only(), "{engines:?}");
    }
}

#[test]
fn change_of_load_is_followed_within_twenty_rounds() {
    let shares = simulation::after_load_steps();
    assert!(shares.iter().all(|share| *share >= 0.97), "{shares:?}");
}

#[test]
fn change_of_text_is_followed_within_five_seconds() {
    let shares = simulation::after_other_texts();
    assert!(shares.iter().all(|share| *share >= 0.97), "{shares:?}");
}

#[test]
fn length_seldom_changes_under_a_constant_load() {
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
        let policy = AdaptivePolicy::new(
            least,
            most,
            numbers.between(0, 12),
            Box::new(move || *clock.lock().unwrap()),
        );
        let mut sequence = policy.sequence();
        for _ in 0..60 {
            let choice = sequence.choose();
            let length = choice.length;
            let settled = choice.settled;
            assert!(settled.is_none_or(|settled| (least..=most).contains(&settled)));
            assert!((least..=most).contains(&length), "seed {seed}: {length}");
            *now.lock().unwrap() += numbers.random();
            let (draft, verify) = (numbers.random(), numbers.random());
            if length > 0 {
                let accepted = (0..length).filter(|_| numbers.random() < acceptance);
                sequence.round_completed(length, accepted.count(), draft, verify);
            } else {
                let tokens = sequence.target_only_tokens();
                sequence.target_only_completed(tokens, verify);
            }
        }
        sequence.close();
        sequence.close();
    }
}

#[test]
fn measured_costs_belong_to_their_load() {
    let policy = AdaptivePolicy::new(0, 8, 4, Box::new(|| 0.0));
    let mut busy: Vec<_> = (0..4).map(|_| policy.sequence()).collect();
    for _ in 0..3 {
        // At this load, decoding without a draft is ten times as fast.
        busy[0].round_completed(4, 0, 0.05, 0.05);
        busy[0].target_only_completed(1, 0.01);
    }
    assert_eq!(busy[1].choose().length, 0);
    drop(busy);
    assert_eq!(policy.sequence().choose().length, 4);
}

#[test]
fn idle_time_makes_no_probe_of_the_target_alone_due() {
    let now = Arc::new(Mutex::new(0.0));
    let clock = Arc::clone(&now);
    let policy = AdaptivePolicy::new(0, 8, 4, Box::new(move || *clock.lock().unwrap()));
    let mut sequence = policy.sequence();
    let mut probes = |rounds: usize, idle: f64| {
        *now.lock().unwrap() += idle;
        let mut probes = 0;
        for _ in 0..rounds {
            *now.lock().unwrap() += 0.03;
            match sequence.choose().length {
                0 => {
                    probes += 1;
                    sequence.target_only_completed(16, 16.0 * 0.02);
                }
                length => sequence.round_completed(length, length, 0.01, 0.02),
            }
        }
        probes
    };
    // One of the first rounds measures the target alone, and then one in 30 s of rounds.
    assert_eq!(probes(10, 0.0), 1);
    assert_eq!(probes(10, 3600.0), 0);
    assert_eq!(probes(1100, 0.0), 1);
}

#[test]
fn targets_with_short_steps_do_not_stream_for_lookups() {
    let policy = AdaptivePolicy::new(0, 8, 4, Box::new(|| 0.0));
    let mut sequence = policy.sequence();
    assert!(sequence.can_afford_streams());
    sequence.target_only_completed(64, 64.0 * 0.0005);
    assert!(!sequence.can_afford_streams());
    for _ in 0..40 {
        sequence.target_only_completed(64, 64.0 * 0.01);
    }
    assert!(sequence.can_afford_streams());
}

#[test]
fn expected_tokens_is_the_sum_of_the_series() {
    for length in 0..=20 {
        for acceptance in [0.0, 1e-9, 0.3, 0.5, 0.99, 0.999_999_9, 1.0] {
            let total: f64 = (0..=length).map(|power| f64::powi(acceptance, power)).sum();
            let expected = expected_tokens(length as usize, acceptance);
            assert!(
                (expected / total - 1.0).abs() < 1e-6,
                "{length} {acceptance}"
            );
        }
    }
}

#[test]
fn acceptance_of_a_sequence_outweighs_that_of_the_server() {
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
fn curve_is_linear_between_measured_lengths_and_never_falls_beyond() {
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
fn waits_of_a_verification_count_for_all_lengths_alike() {
    let mut verification = VerificationSeconds::default();
    // Rounds of these two lengths are not synchronized with the others, so they wait longer.
    for _ in 0..4 {
        verification.add(5, 0.040);
        verification.add(3, 0.040);
    }
    for _ in 0..200 {
        verification.add(4, 0.020);
        verification.add(4, 0.024);
    }
    assert!(verification.at(5) < 1.3 * verification.at(4));
    assert!(verification.at(3) <= verification.at(4));
    // The wait is part of the time.
    assert!(verification.at(4) > 0.0215 && verification.at(4) < 0.025);
}

#[test]
fn fixed_length_never_changes() {
    let mut fixed = FixedLength(3);
    fixed.round_completed(3, 0, 1.0, 1.0);
    assert_eq!(fixed.choose().length, 3);
    assert_eq!(fixed.target_only_tokens(), 0);
}

#[test]
fn candidates_of_lookups_that_were_right_without_a_round_earn_one() {
    let policy = AdaptivePolicy::new(0, MOST, 4, Box::new(|| 0.0));
    let mut sequence = policy.sequence();
    // A step of the target takes 20 ms, whatever it verifies.
    sequence.target_only_completed(16, 0.32);
    sequence.lookup_completed(&[0], 0, 0.02);
    let classes = [0; 3];
    assert_eq!(sequence.choose_lookup(&classes, Alternative::TargetOnly), 0);
    for _ in 0..40 {
        sequence.lookup_compared(&classes, classes.len());
    }
    assert_eq!(
        sequence.choose_lookup(&classes, Alternative::TargetOnly),
        classes.len()
    );
}
