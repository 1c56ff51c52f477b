//! Prints the results of the adaptive draft length under simulated loads, as JSON.
//!
//! The results are speeds over a grid of loads, relative to the best fixed length and to decoding
//! without a draft; the same speeds after a change of load or text; and how often the length
//! changes under a constant load. `tests/support/bls.py` runs this program for the benchmarks.

#[allow(dead_code)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;

fn main() {
    let (mut of_best, mut of_plain) = (Vec::new(), Vec::new());
    for engines in simulation::grid() {
        let mut run = simulation::Run::new(engines);
        run.run(60);
        let speed = run.run(1500);
        of_best.push(speed / engines.best());
        of_plain.push(speed * engines.target_only());
    }
    let figures = serde_json::json!({
        "of_best": of_best,
        "of_plain": of_plain,
        "after_load_steps": simulation::after_load_steps(),
        "after_other_texts": simulation::after_other_texts(),
        "changes_a_second": simulation::changes_a_second(),
    });
    println!("{figures}");
}
