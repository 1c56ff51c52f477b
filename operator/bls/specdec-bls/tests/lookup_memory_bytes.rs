//! The memory of finished texts stays within its bytes, as the allocator counts them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use numbers::Numbers;
use triton_specdec::lookup::memory::{MAX_SCOPE_BYTES, Memory};

#[allow(dead_code)]
#[path = "simulation/numbers.rs"]
mod numbers;

const REQUESTS: usize = 10_000;
const LIMIT: usize = 2 << 20;
const MOST: usize = 8;

/// Counts the bytes of the heap. This program has one test, so no other one adds to them.
struct Counting;

static HEAP: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn ten_thousand_requests_stay_within_the_bytes() {
    let numbers = &mut Numbers::new(1);
    let mut text = vec![0; 20_000];
    let before = HEAP.load(Ordering::Relaxed);
    let memory = Memory::new(LIMIT);
    let mut most = 0;
    for request in 0..REQUESTS {
        // Few scopes are busy, many are rare, and some texts are long.
        let scope = match request % 3 {
            0 => numbers.between(0, 3),
            _ => numbers.between(0, 2_000),
        };
        let longest = if request % 50 == 0 { text.len() } else { 600 };
        let length = numbers.between(1, longest);
        let tokens = &mut text[..length];
        tokens.fill_with(|| numbers.between(1, 50) as i32);
        let name = format!("{scope:0MAX_SCOPE_BYTES$}");
        drop(memory.candidate(&name, tokens, 1, MOST));
        memory.learn(&name, tokens);
        drop(name);
        let heap = HEAP.load(Ordering::Relaxed) - before;
        assert!(heap <= memory.bytes(), "{heap} bytes of {}", memory.bytes());
        assert!(memory.bytes() <= LIMIT);
        most = most.max(heap);
    }
    assert!(most > LIMIT * 8 / 10, "only {most} bytes are used");
}
