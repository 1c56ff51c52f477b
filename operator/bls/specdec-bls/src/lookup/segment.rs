//! A part of a scope's memory: tokens of texts, and an index of their n-grams.
//!
//! The index is that of deflate (RFC 1951, section 4): a table has the latest position of each
//! hashed n-gram, and each position links to the one before with the same hash. A segment has a
//! fixed size, so its bytes are known before it is allocated. It is only appended to, and is
//! evicted as a whole.

/// Tokens of an n-gram of the index, and so of the shortest match.
pub const KEY: usize = 4;
/// Most tokens of a match that are compared.
pub const LONGEST: usize = 64;
/// Stands between two texts. No token id is negative.
const BREAK: i32 = i32::MIN;
/// Bytes of a token, of its link and of its place in the table.
const BYTES_A_TOKEN: usize = 4 + 4 + 4;
/// The segment itself, in a deque that may be half empty while it grows.
const OVERHEAD: usize = 4 * size_of::<Segment>();

/// Tokens in the order in which they were learned.
#[derive(Debug)]
pub struct Segment {
    tokens: Box<[i32]>,
    /// For each position, 1 more than the previous position with the same hash; 0 for none.
    links: Box<[u32]>,
    /// For each hash, 1 more than its latest position; 0 for none.
    latest: Box<[u32]>,
    used: usize,
}

impl Segment {
    /// An empty segment with room for this many tokens, at least 1.
    pub fn new(capacity: usize) -> Self {
        Self {
            tokens: vec![0; capacity].into_boxed_slice(),
            links: vec![0; capacity].into_boxed_slice(),
            latest: vec![0; capacity].into_boxed_slice(),
            used: 0,
        }
    }

    /// Bytes of a segment with room for this many tokens.
    pub fn bytes_of(capacity: usize) -> usize {
        capacity * BYTES_A_TOKEN + OVERHEAD
    }

    /// Tokens for which this many bytes have room, without the overhead of a segment.
    pub fn tokens_in(bytes: usize) -> usize {
        bytes / BYTES_A_TOKEN
    }

    /// Bytes of this segment.
    pub fn bytes(&self) -> usize {
        Self::bytes_of(self.capacity())
    }

    /// Tokens that it has room for.
    pub fn capacity(&self) -> usize {
        self.tokens.len()
    }

    /// Append as many tokens of one text as there is room for. Returns their number.
    pub fn append(&mut self, text: &[i32]) -> usize {
        let room = self.capacity() - self.used;
        let text = text.get(..room).unwrap_or(text);
        for token in text {
            self.push(*token);
        }
        text.len()
    }

    /// End a text: no match and no continuation extends over its end.
    pub fn end_text(&mut self) {
        if self.used < self.capacity() {
            self.push(BREAK);
        }
    }

    /// Positions where the last tokens of `text` may occur, the latest first. The caller compares
    /// the tokens, because n-grams may share a hash.
    pub fn positions(&self, text: &[i32]) -> impl Iterator<Item = usize> + '_ {
        let first = text.last_chunk::<KEY>().and_then(|key| {
            let latest = self.latest.get(self.slot(key))?;
            usize::try_from(*latest).ok()?.checked_sub(1)
        });
        std::iter::successors(first, |position| {
            let link = self.links.get(*position)?;
            usize::try_from(*link).ok()?.checked_sub(1)
        })
    }

    /// How many of the last tokens of `text` end at this position, at most [`LONGEST`].
    pub fn matched(&self, position: usize, text: &[i32]) -> usize {
        let before = self.tokens.get(..=position).unwrap_or_default();
        let pairs = before.iter().rev().zip(text.iter().rev());
        pairs
            .take(LONGEST)
            .take_while(|(learned, token)| learned == token)
            .count()
    }

    /// At most `most` tokens of the same text after this position.
    pub fn following(&self, position: usize, most: usize) -> &[i32] {
        let learned = self.tokens.get(..self.used).unwrap_or_default();
        let rest = learned.get(position + 1..).unwrap_or_default();
        let rest = rest.get(..most).unwrap_or(rest);
        let end = rest.iter().position(|token| *token == BREAK);
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    }

    fn push(&mut self, token: i32) {
        let position = self.used;
        if let Some(place) = self.tokens.get_mut(position) {
            *place = token;
        }
        self.used += 1;
        let learned = self.tokens.get(..self.used).unwrap_or_default();
        let Some(key) = learned.last_chunk::<KEY>() else {
            return;
        };
        if key.contains(&BREAK) {
            return;
        }
        let slot = self.slot(key);
        if let (Some(link), Some(latest)) =
            (self.links.get_mut(position), self.latest.get_mut(slot))
        {
            *link = *latest;
            *latest = self.used as u32;
        }
    }

    /// The place of an n-gram in the table.
    fn slot(&self, key: &[i32; KEY]) -> usize {
        let mix = |hash: u64, token: &i32| {
            let hash =
                (hash ^ u64::from(token.cast_unsigned())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^ (hash >> 29)
        };
        let hash = key.iter().fold(0, mix) >> 32;
        // The product of two 32-bit numbers spreads the hash over tables of any size.
        ((hash * self.latest.len() as u64) >> 32) as usize
    }
}
