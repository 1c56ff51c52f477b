//! Prints how the adaptive draft length does under simulated loads: tokens a second in shares of
//! the best fixed length and of decoding without a draft, over a grid; the share of the best after
//! a change of load or text; and how often it changes when nothing else does.

#[allow(dead_code)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;

fn main() {
    let (mut of_best, mut of_plain) = (Vec::new(), Vec::new());
    for engines in simulation::grid() {
        let mut run = simulation::Run::new(engines);
        run.go(60);
        let speed = run.go(1500);
        of_best.push(speed / engines.best());
        of_plain.push(speed * engines.plain());
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
