//! The fields of a request that need target-only decoding, and their inputs and outputs.
//!
//! These fields concern the target's engine alone, so the draft is not called.

use triton::Tensor;

use super::Prompt;

/// Inputs that need target-only decoding, and the label `reason` of the fallback metric.
const TARGET_ONLY: [(&str, &str); 7] = [
    ("prompt_embedding_table", "prompt_table"),
    ("prompt_vocab_size", "prompt_table"),
    ("lora_task_id", "lora"),
    ("lora_weights", "lora"),
    ("lora_config", "lora"),
    ("guided_decoding_guide_type", "guided_decoding"),
    ("guided_decoding_guide", "guided_decoding"),
];
/// Logits, which need target-only decoding: the output, and the input that requests it.
const LOGITS: [(&str, &str); 2] = [
    ("context_logits", "return_context_logits"),
    ("generation_logits", "return_generation_logits"),
];
/// Inputs that request statistics of the target. `STATISTICS` also requests those of the BLS.
const KV_STATISTICS: &str = "return_kv_cache_reuse_stats";
pub(super) const STATISTICS: &str = "return_perf_metrics";

impl Prompt<'_> {
    /// The field that needs target-only decoding, if there is one, and the reason of the fallback.
    pub(super) fn target_only_field(&self) -> Option<(&'static str, &'static str)> {
        let logits = LOGITS
            .iter()
            .find(|(_, flag)| self.values.flag(flag, false));
        let input = TARGET_ONLY.iter().find(|(name, _)| self.values.has(name));
        logits.map(|(name, flag)| (*flag, *name)).or(input.copied())
    }

    /// Additional inputs of calls of the target: fields that are passed on, and flags that request
    /// outputs. In a request with rounds, they are only the flags for statistics.
    pub(super) fn target_only_inputs(&self) -> Vec<Tensor> {
        let values = &self.values;
        let inputs = TARGET_ONLY.iter();
        let inputs = inputs.filter_map(|(name, _)| values.whole(name, name));
        let logits = LOGITS.iter().map(|(_, flag)| *flag);
        let flags = logits.chain([KV_STATISTICS, STATISTICS]);
        let flags = flags.filter(|name| values.flag(name, false));
        inputs.chain(flags.map(Tensor::flag)).collect()
    }

    /// Additional outputs of calls of the target, which these inputs request.
    pub(super) fn target_only_outputs(&self) -> Vec<String> {
        let logits = LOGITS
            .iter()
            .filter(|(_, flag)| self.values.flag(flag, false));
        let mut names: Vec<String> = logits.map(|(name, _)| (*name).to_owned()).collect();
        if [STATISTICS, KV_STATISTICS]
            .iter()
            .any(|flag| self.values.flag(flag, false))
        {
            names.extend_from_slice(&self.server.target_outputs);
        }
        names
    }
}
