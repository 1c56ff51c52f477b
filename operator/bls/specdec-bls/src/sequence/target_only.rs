//! Target-only runs. In a streamed call, the engine sends each token as it decodes it. The sequence
//! cancels the call as soon as a lookup has a proposal or the answer ends. Any other call decodes
//! the whole run or a piece of it.
//!
//! A call that arrives while the engine computes waits for the next step. A run in one streamed
//! call therefore loses no step as long as no lookup has a proposal. The engine continues a
//! cancelled call until it notices the cancellation: TensorRT-LLM checks every
//! `cancellation_check_period_ms`.

use super::chunk::Chunk;
use super::phase::Phase;
use super::{End, Sequence, Step};
use crate::engine::EngineResult;

impl Sequence {
    /// Continue a target-only run, with a streamed call or with one for a piece.
    pub(super) fn decode_target_only(&mut self, step: &mut Step) {
        self.pipelined = None;
        if self.streams_target_only() {
            return self.start_stream(step);
        }
        let length = self.tokens.target_only_length(self.target_only.left);
        self.phase = Phase::TargetOnly { length };
        step.call(self.tokens.target_only_call(length));
    }

    /// Count the tokens of a call of the run, and continue after them.
    pub(super) fn target_only_completed(&mut self, chunk: Chunk, step: &mut Step) {
        self.target_only.add(&chunk);
        if self.target_only.left == 0 && !step.cancelled {
            self.report_target_only();
        }
        self.continue_after(chunk, step);
    }

    /// Report the speed of a target-only run to the draft length policy.
    pub(super) fn report_target_only(&mut self) {
        let run = &self.target_only;
        let whole = (run.tokens, run.seconds());
        // If the sequence drafts only by lookup, a streamed run ends only at a lookup or with the
        // answer. Its start is not part of its speed: the policy measures starts separately.
        let measured = match run.streamed && self.drafts_only_by_lookup() {
            true => run.after_first(),
            false => Some(whole).filter(|(tokens, _)| *tokens > 0),
        };
        if let Some((tokens, seconds)) = measured {
            let policy = &mut self.resources.policy;
            policy.target_only_completed(tokens, seconds);
        }
    }

    /// Decode the rest of the target-only run in one streamed call.
    fn start_stream(&mut self, step: &mut Step) {
        self.last_stream += 1;
        self.phase = Phase::Streaming;
        self.target_only.streamed = true;
        let left = self.target_only.left;
        step.call(self.tokens.streamed_call(left, self.last_stream));
    }

    /// Append what a streamed call has decoded since its last result.
    pub(super) fn streamed(
        &mut self,
        number: u64,
        result: EngineResult,
        is_final: bool,
        step: &mut Step,
    ) {
        if !self.is_streaming() || number != self.last_stream {
            // A result that was on its way when the call was cancelled.
            return;
        }
        let left = self.target_only.left;
        let result = result.and_then(|outputs| self.tokens.streamed(left, &outputs, is_final));
        // The last token may arrive before the response that ends the call.
        let complete = |chunk: &Chunk| chunk.tokens.len() >= left;
        if is_final || result.as_ref().is_ok_and(complete) {
            self.phase = Phase::Idle;
        }
        match result {
            Ok(_) if is_final && step.cancelled => self.close(End::Cancelled, step),
            Ok(chunk) if chunk.tokens.is_empty() && !chunk.finished => {}
            Ok(chunk) => {
                self.target_only_completed(chunk, step);
                self.report_restart();
            }
            Err(error) => self.fail(error, step),
        }
    }

    /// Report to the draft length policy how long the first token of a streamed call took. The
    /// first call of an answer does not count, because it also computes the prompt.
    fn report_restart(&mut self) {
        if self.last_stream > 1
            && let Some(seconds) = self.target_only.seconds_to_first()
        {
            self.resources.policy.stream_restarted(seconds);
        }
    }

    /// Cancel the streamed call, if one is in flight.
    pub(super) fn cancel_stream(&mut self, step: &mut Step) {
        if self.is_streaming() {
            step.effects.cancels_stream = true;
            self.phase = Phase::Idle;
        }
    }

    /// Whether a streamed call is in flight.
    pub(super) fn is_streaming(&self) -> bool {
        matches!(self.phase, Phase::Streaming)
    }

    /// Whether the next target-only run is streamed: for a client that gets parts, and where a
    /// lookup may end the run at any token.
    fn streams_target_only(&self) -> bool {
        let looks_up = self.resources.lookup.is_some();
        let useful = looks_up && self.resources.policy.can_afford_streams();
        let possible = self.resources.streams && self.tokens.can_be_streamed();
        possible && (self.tokens.task.stream || useful)
    }
}
