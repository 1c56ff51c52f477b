//! Rows wait for each other where that makes rounds faster, and nowhere else.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use triton_specdec::batching::waits::Synchronization::{self, Always, Measured, Never};
use triton_specdec::batching::{Batchable, Batcher};
use triton_specdec::engine::Role::{self, Draft, Target};

/// Ticks of a draft step and of a target step; a tick is a tenth of a millisecond.
const DRAFT_STEP: u64 = 20;
const TARGET_STEP: u64 = 200;
const LENGTH: usize = 4;
const SEQUENCES: usize = 16;
const TICK: Duration = Duration::from_micros(100);

#[derive(Clone, Debug)]
struct Row {
    sequence: usize,
    draft_tokens: usize,
}

impl Batchable for Row {
    fn fits_with(&self, _: &Self) -> bool {
        true
    }

    fn draft_tokens(&self) -> usize {
        self.draft_tokens
    }

    fn may_shorten(&self) -> bool {
        true
    }

    fn shorten(&mut self, draft_tokens: usize) {
        self.draft_tokens = draft_tokens;
    }
}

/// Pseudorandom numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// A row in an engine: its batch, its steps that are left, and the end of the running one.
struct Running {
    number: u64,
    row: Row,
    steps: usize,
    end: u64,
}

/// An engine whose calls share its steps, or run each at its own speed.
struct Engine {
    shared: bool,
    step: u64,
    waiting: Vec<Running>,
    running: Vec<Running>,
}

impl Engine {
    fn new(shared: bool, step: u64) -> Self {
        Self {
            shared,
            step,
            waiting: Vec::new(),
            running: Vec::new(),
        }
    }

    /// The rows that have their result at this tick.
    fn advance(&mut self, tick: u64, numbers: &mut Numbers) -> Vec<(u64, Row)> {
        let (shared, usual) = (self.shared, self.step);
        // A shared step begins when the last one has ended, with all calls that have arrived.
        let begins = !shared || self.running.iter().all(|item| item.end <= tick);
        for item in &mut self.running {
            item.steps -= usize::from(item.end == tick);
        }
        let done = self.running.extract_if(.., |item| item.steps == 0);
        let done = done.map(|item| (item.number, item.row)).collect();
        if begins {
            self.running.append(&mut self.waiting);
            for item in self.running.iter_mut().filter(|item| item.end <= tick) {
                // At its own speed a step takes half to twice the usual time.
                let own = usual / 2 + numbers.below(usual * 3 / 2);
                item.end = tick + if shared { usual } else { own };
            }
        }
        done
    }
}

/// A batcher, its engines and its sequences.
struct Simulation {
    batcher: Batcher<Row>,
    /// How many sequences run: those whose index is below this value. Any other sequence ends
    /// after its next round.
    active: usize,
    ended: Vec<Row>,
    draft: Engine,
    target: Engine,
    /// Results that the BLS has not processed: it processes one a tick.
    results: VecDeque<(u64, Role, Row)>,
    started: Instant,
    tick: u64,
    numbers: Numbers,
    /// Tokens of all sequences, if nearly all proposals are accepted.
    tokens: usize,
}

impl Simulation {
    fn new(shared: bool, sequences: usize, synchronization: Synchronization) -> Self {
        let mut batcher = Batcher::new(SEQUENCES, 1, synchronization);
        for sequence in 0..sequences {
            let draft_tokens = LENGTH;
            batcher.submit(
                Draft,
                Row {
                    sequence,
                    draft_tokens,
                },
            );
        }
        Self {
            batcher,
            active: sequences,
            ended: Vec::new(),
            draft: Engine::new(shared, DRAFT_STEP),
            target: Engine::new(shared, TARGET_STEP),
            results: VecDeque::new(),
            started: Instant::now(),
            tick: 0,
            numbers: Numbers(1),
            tokens: 0,
        }
    }

    /// Change the number of running sequences: surplus ones end, or new ones begin.
    fn set_active(&mut self, sequences: usize) {
        self.active = sequences;
        for row in self.ended.extract_if(.., |row| row.sequence < sequences) {
            self.batcher.submit(Draft, row);
        }
    }

    /// Tokens per second of simulated time.
    fn run(&mut self, seconds: u64) -> f64 {
        self.tokens = 0;
        let end = self.tick + seconds * 10_000;
        while self.tick < end {
            self.tick += 1;
            self.advance();
        }
        self.tokens as f64 / seconds as f64
    }

    fn advance(&mut self) {
        let now = self.started + TICK * self.tick as u32;
        if let Some((number, role, mut row)) = self.results.pop_front() {
            let next = match role {
                Draft => Target,
                Target => {
                    self.tokens += row.draft_tokens + 1;
                    row.draft_tokens = LENGTH;
                    Draft
                }
            };
            if next == Draft && row.sequence >= self.active {
                self.ended.push(row);
            } else {
                self.batcher.submit(next, row);
            }
            self.batcher.row_completed(number, now);
        }
        for batch in self.batcher.take_ready(now) {
            let engine = match batch.role {
                Draft => &mut self.draft,
                Target => &mut self.target,
            };
            for row in batch.calls.concat() {
                let steps = match batch.role {
                    Draft => row.draft_tokens,
                    Target => 1,
                };
                engine.waiting.push(Running {
                    number: batch.number,
                    row,
                    steps,
                    end: 0,
                });
            }
        }
        for (role, engine) in [(Draft, &mut self.draft), (Target, &mut self.target)] {
            let done = engine.advance(self.tick, &mut self.numbers);
            let done = done.into_iter().map(|(number, row)| (number, role, row));
            self.results.extend(done);
        }
    }
}

/// Speeds with each kind of synchronization, without the first two seconds.
fn speeds(shared: bool, sequences: usize) -> HashMap<&'static str, f64> {
    let kinds = [("measured", Measured), ("always", Always), ("never", Never)];
    let speeds = kinds.map(|(name, synchronization)| {
        let mut simulation = Simulation::new(shared, sequences, synchronization);
        simulation.run(2);
        (name, simulation.run(20))
    });
    HashMap::from(speeds)
}

#[test]
fn rows_wait_where_calls_share_steps() {
    let speeds = speeds(true, SEQUENCES);
    assert!(speeds["always"] > 1.2 * speeds["never"], "{speeds:?}");
    assert!(speeds["measured"] > 0.98 * speeds["always"], "{speeds:?}");
}

#[test]
fn rows_do_not_wait_where_calls_run_at_their_own_speed() {
    let speeds = speeds(false, SEQUENCES);
    assert!(speeds["never"] > 1.2 * speeds["always"], "{speeds:?}");
    assert!(speeds["measured"] > 0.98 * speeds["never"], "{speeds:?}");
}

#[test]
fn few_sequences_are_as_fast_as_the_faster_way() {
    for shared in [true, false] {
        for sequences in [2, 3, 5] {
            let speeds = speeds(shared, sequences);
            let faster = speeds["always"].max(speeds["never"]);
            assert!(
                speeds["measured"] > 0.97 * faster,
                "{shared} {sequences} {speeds:?}"
            );
        }
    }
}

#[test]
fn single_sequence_never_waits() {
    for shared in [true, false] {
        let speeds = speeds(shared, 1);
        assert_eq!(speeds["measured"], speeds["never"]);
        assert_eq!(speeds["always"], speeds["never"]);
    }
}

#[test]
fn engine_that_changes_is_measured_again() {
    let mut simulation = Simulation::new(true, SEQUENCES, Measured);
    simulation.run(5);
    let before = simulation.run(10);
    simulation.draft.shared = false;
    simulation.target.shared = false;
    simulation.run(30);
    let changed = simulation.run(10);
    let never = speeds(false, SEQUENCES)["never"];
    assert!(changed > 0.97 * never, "{before} {changed} {never}");
}

#[test]
fn changing_number_of_sequences_disturbs_no_measurement() {
    for shared in [true, false] {
        let speeds = [Measured, Always, Never].map(|synchronization| {
            let mut simulation = Simulation::new(shared, SEQUENCES, synchronization);
            let mut tokens = 0.0;
            for change in 0..60 {
                simulation.set_active([SEQUENCES, 1, 5][change % 3]);
                tokens += simulation.run(1);
            }
            tokens
        });
        assert!(
            speeds[0] > 0.97 * speeds[1].max(speeds[2]),
            "{shared} {speeds:?}"
        );
    }
}
