//! How much longer a verification takes for each draft token in it.

/// Each new verification multiplies the weight of the earlier ones by this factor.
const KEPT: f64 = 0.995;
/// Standard errors by which the slope must exceed 0.
const CONFIDENCE: f64 = 2.0;
/// Least weight of the verifications before the slope is used.
const LEAST_WEIGHT: f64 = 8.0;

/// A running least-squares line through the durations of verifications by their draft tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Slope {
    weight: f64,
    tokens: f64,
    seconds: f64,
    /// Weighted sums of squares and products of the differences from the means.
    tokens_squared: f64,
    product: f64,
    seconds_squared: f64,
}

impl Slope {
    /// Add a verification of this many draft tokens.
    pub fn add(&mut self, tokens: usize, seconds: f64) {
        self.weight = KEPT * self.weight + 1.0;
        let (right, up) = (tokens as f64 - self.tokens, seconds - self.seconds);
        self.tokens += right / self.weight;
        self.seconds += up / self.weight;
        let (new_right, new_up) = (tokens as f64 - self.tokens, seconds - self.seconds);
        self.tokens_squared = KEPT * self.tokens_squared + right * new_right;
        self.product = KEPT * self.product + right * new_up;
        self.seconds_squared = KEPT * self.seconds_squared + up * new_up;
    }

    /// Mean draft tokens of a verification.
    pub fn mean_tokens(&self) -> f64 {
        self.tokens
    }

    /// A lower bound of the seconds of a draft token: the slope is probably higher. The bound is
    /// 0.0 if the slope may be 0.
    pub fn lower_bound(&self) -> f64 {
        if self.weight < LEAST_WEIGHT || self.tokens_squared <= 0.0 {
            return 0.0;
        }
        let slope = self.product / self.tokens_squared;
        let unexplained = (self.seconds_squared - slope * self.product).max(0.0);
        let error = (unexplained / (self.weight - 2.0) / self.tokens_squared).sqrt();
        (slope - CONFIDENCE * error).max(0.0)
    }
}
