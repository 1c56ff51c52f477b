//! The target's own statistics, such as its times and blocks of the KV cache, over the calls of a
//! sequence.

use triton::Tensor;

/// Outputs that belong to the tokens of one call.
const LOGITS: [&str; 2] = ["context_logits", "generation_logits"];
/// Times that are taken from the first call. All other statistics are taken from the last call.
const OF_FIRST_CALL: [&str; 3] = [
    "arrival_time_ns",
    "first_scheduled_time_ns",
    "first_token_time_ns",
];

/// The additional outputs of a part, from those of the part before it and those of the new call.
///
/// A part without a call, such as the last text of a stream, keeps the statistics.
pub fn combined(before: Vec<Tensor>, call: &[Tensor]) -> Vec<Tensor> {
    let new = |name: &str| call.iter().any(|output| output.name == name);
    let mut outputs = before;
    outputs.retain(|output| {
        let name = output.name.as_ref();
        OF_FIRST_CALL.contains(&name) || !(LOGITS.contains(&name) || new(name))
    });
    for output in call {
        if outputs.iter().all(|kept| kept.name != output.name) {
            outputs.push(output.clone());
        }
    }
    outputs
}
