//! Seeded random numbers of MT19937 (Matsumoto and Nishimura 1998), the generator of Python's
//! `random`. With it, figures stay comparable with earlier ones that a Python simulation measured.

const SIZE: usize = 624;

pub struct Numbers {
    state: [u32; SIZE],
    next: usize,
}

impl Numbers {
    /// A generator with this seed: `init_by_array` of the reference, for one number.
    pub fn new(seed: u32) -> Self {
        let mut state = [19_650_218_u32; SIZE];
        for i in 1..SIZE {
            state[i] = stirred(state[i - 1], 1_812_433_253).wrapping_add(i as u32);
        }
        let mut at = 1;
        for _ in 0..SIZE {
            state[at] = (state[at] ^ stirred(state[at - 1], 1_664_525)).wrapping_add(seed);
            at = following(&mut state, at);
        }
        for _ in 1..SIZE {
            let mixed = state[at] ^ stirred(state[at - 1], 1_566_083_941);
            state[at] = mixed.wrapping_sub(at as u32);
            at = following(&mut state, at);
        }
        state[0] = 0x8000_0000;
        Self { state, next: SIZE }
    }

    /// 32 bits.
    pub fn bits(&mut self) -> u32 {
        if self.next == SIZE {
            self.renew();
        }
        let mut drawn = self.state[self.next];
        self.next += 1;
        drawn ^= drawn >> 11;
        drawn ^= (drawn << 7) & 0x9D2C_5680;
        drawn ^= (drawn << 15) & 0xEFC6_0000;
        drawn ^ (drawn >> 18)
    }

    /// In [0, 1).
    pub fn random(&mut self) -> f64 {
        let (high, low) = (self.bits() >> 5, self.bits() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// In [low, high).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.random()
    }

    /// One of `low` to `high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.bits() as usize % (high - low + 1)
    }

    fn renew(&mut self) {
        for i in 0..SIZE {
            let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % SIZE] & 0x7FFF_FFFF);
            let odd = if joined & 1 == 1 { 0x9908_B0DF } else { 0 };
            self.state[i] = self.state[(i + 397) % SIZE] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

fn stirred(before: u32, factor: u32) -> u32 {
    (before ^ (before >> 30)).wrapping_mul(factor)
}

fn following(state: &mut [u32; SIZE], at: usize) -> usize {
    if at + 1 < SIZE {
        return at + 1;
    }
    state[0] = state[SIZE - 1];
    1
}
