//! Draft calls whose logits the target compares to accept or reject a token (`use_draft_logits`).

use triton::{DataType, Tensor};

use super::tokens::{DRAFT, Tokens};
use crate::error::Error;

impl Tokens {
    /// Inputs of a draft call whose tokens are drawn from the logits that it returns.
    ///
    /// Rejection sampling requires that the draft draws exactly from these logits. A minimum length
    /// would change them, so the draft may propose the end token like any other token. An answer
    /// that is shorter than the client's minimum is an exception: neither engine may end it, and
    /// the proposal ends at the minimum at the latest.
    pub(super) fn inputs_for_logits(&self, length: usize) -> Vec<Tensor> {
        let minimum = self.remaining_minimum();
        let most = if minimum > 0 {
            length.min(minimum)
        } else {
            length
        };
        let mut inputs = self.task.inputs(&self.ids, most, minimum.min(most), true);
        if minimum == 0 {
            inputs.retain(|input| input.name != "end_id");
            inputs.push(Tensor::scalar("end_id", -1));
        }
        inputs.push(Tensor::flag("return_generation_logits"));
        inputs
    }

    /// The logits of the first `count` proposed tokens as an input of the target; None if the
    /// target does not compare logits.
    pub(super) fn draft_logits(
        &self,
        outputs: Vec<Tensor>,
        count: usize,
    ) -> Result<Option<Tensor>, Error> {
        if !self.task.use_draft_logits || count == 0 {
            return Ok(None);
        }
        let is_logits = |tensor: &Tensor| tensor.name == "generation_logits";
        let logits = outputs.into_iter().find(is_logits);
        let Some(mut logits) = logits.filter(|logits| !logits.data.is_empty()) else {
            return Err(Error::EngineRefused(format!(
                "{DRAFT} returned no generation logits: \
                 build the draft with them or leave use_draft_logits out"
            )));
        };
        // [1, beam, steps, vocabulary] -> [1, steps, vocabulary]. With fast logits one step holds
        // a handle in place of the values; it is passed on unchanged.
        let vocabulary = logits.shape.last().copied().unwrap_or(1).max(1);
        let step = match logits.kind {
            DataType::Fp16 | DataType::Bf16 => 2,
            _ => 4,
        } * vocabulary as usize;
        let steps = count.min(logits.data.len() / step);
        // Logits are megabytes, so they are cut in place and not copied.
        logits.data.truncate(steps * step);
        logits.shape = vec![1, steps as i64, vocabulary];
        logits.name = "draft_logits".into();
        Ok(Some(logits))
    }
}
