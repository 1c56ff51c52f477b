//! Texts in which the chance that the draft is right varies from token to token.

use super::numbers::Numbers;

/// A text: for each of its tokens, the chance that the draft is right. Passages with a chance of
/// 0.95 and of 0.4 alternate, each of 12 tokens on average.
pub struct Text {
    numbers: Numbers,
    chances: Vec<f64>,
}

impl Text {
    pub fn new(seed: u32) -> Self {
        Self {
            numbers: Numbers::new(seed),
            chances: vec![0.95],
        }
    }

    pub fn chance(&mut self, position: usize) -> f64 {
        while self.chances.len() <= position {
            let last = *self.chances.last().unwrap();
            let changes = self.numbers.random() < 1.0 / 12.0;
            let next = if last > 0.5 { 0.4 } else { 0.95 };
            self.chances.push(if changes { next } else { last });
        }
        self.chances[position]
    }
}
