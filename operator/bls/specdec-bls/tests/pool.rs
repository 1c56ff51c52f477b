//! The threads that parse requests: short jobs never wait for long ones, and queues are bounded.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use triton_specdec::serving::pool::{Job, Pool, spawn};

/// A time limit. Only a thread that hangs takes longer.
const STALL: Duration = Duration::from_secs(20);

/// A job that runs until the sender of this channel is dropped.
fn blocked(until: Receiver<()>) -> Job {
    Box::new(move || {
        let _ = until.recv();
    })
}

#[test]
fn long_job_delays_no_short_job() {
    let pool = Pool::start(&spawn).unwrap();
    let (release, until) = channel();
    let (sender, receiver) = channel();
    pool.run_long(1, blocked(until));
    for number in 0..50 {
        let sender = sender.clone();
        pool.run_short(Box::new(move || sender.send(number).unwrap()));
    }
    let mut numbers: Vec<i32> = (0..50)
        .map(|_| receiver.recv_timeout(STALL).unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    drop(release);
    pool.close();
}

#[test]
fn long_jobs_run_one_after_another() {
    let pool = Pool::start(&spawn).unwrap();
    let (sender, receiver) = channel();
    for number in 0..20 {
        let sender = sender.clone();
        pool.run_long(1, Box::new(move || sender.send(number).unwrap()));
    }
    let numbers: Vec<i32> = (0..20)
        .map(|_| receiver.recv_timeout(STALL).unwrap())
        .collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    pool.close();
}

#[test]
fn caller_with_too_many_short_jobs_is_blocked() {
    let pool = Arc::new(Pool::start(&spawn).unwrap());
    let both_run = Arc::new(Barrier::new(3));
    let mut releases = Vec::new();
    for _ in 0..2 {
        let (release, until) = channel::<()>();
        let both_run = Arc::clone(&both_run);
        releases.push(release);
        pool.run_short(Box::new(move || {
            both_run.wait();
            let _ = until.recv();
        }));
    }
    both_run.wait();
    let submitted = Arc::new(AtomicUsize::new(0));
    let (caller_pool, counter) = (Arc::clone(&pool), Arc::clone(&submitted));
    let (sender, receiver) = channel();
    let caller = thread::spawn(move || {
        for _ in 0..30 {
            let sender = sender.clone();
            caller_pool.run_short(Box::new(move || sender.send(()).unwrap()));
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Both threads are busy, so only as many jobs as the queue holds can be submitted.
    while submitted.load(Ordering::SeqCst) < 8 {
        thread::yield_now();
    }
    assert_eq!(submitted.load(Ordering::SeqCst), 8);
    drop(releases);
    caller.join().unwrap();
    (0..30).for_each(|_| receiver.recv_timeout(STALL).unwrap());
    pool.close();
}

#[test]
fn bytes_of_waiting_long_jobs_are_bounded() {
    let pool = Pool::start(&spawn).unwrap();
    let (release, until) = channel::<()>();
    let (sender, receiver) = channel();
    let first: Job = Box::new(move || {
        sender.send(()).unwrap();
        let _ = until.recv();
    });
    // A job that waits alone may have any size.
    assert!(pool.has_room(1 << 40));
    pool.run_long(1 << 40, first);
    receiver.recv_timeout(STALL).unwrap();
    pool.run_long(60 << 20, Box::new(|| ()));
    assert!(pool.has_room(4 << 20));
    assert!(!pool.has_room((4 << 20) + 1));
    drop(release);
    pool.close();
}

#[test]
fn panic_of_a_job_ends_no_thread() {
    let pool = Pool::start(&spawn).unwrap();
    let (sender, receiver) = channel::<()>();
    for number in 0..20 {
        let (owned, short) = (sender.clone(), number % 2 == 0);
        let job: Job = Box::new(move || {
            let _owned = owned;
            panic!("a job of this test fails");
        });
        if short {
            pool.run_short(job)
        } else {
            pool.run_long(1, job)
        }
    }
    drop(sender);
    // A panic drops what the job owns, such as a request, whose client then gets an error.
    assert!(receiver.recv_timeout(STALL).is_err());
    let (sender, receiver) = channel();
    let other = sender.clone();
    pool.run_short(Box::new(move || sender.send(1).unwrap()));
    pool.run_long(1, Box::new(move || other.send(2).unwrap()));
    assert_eq!(
        receiver.recv_timeout(STALL).unwrap() + receiver.recv_timeout(STALL).unwrap(),
        3
    );
    pool.close();
}

#[test]
fn waiting_jobs_are_dropped_when_the_pool_closes() {
    let pool = Pool::start(&spawn).unwrap();
    let (release, until) = channel();
    let (sender, receiver) = channel::<()>();
    pool.run_long(1, blocked(until));
    pool.run_long(1, Box::new(move || drop(sender)));
    let closing = thread::spawn(move || pool.close());
    assert!(receiver.recv_timeout(STALL).is_err());
    drop(release);
    closing.join().unwrap();
}

#[test]
fn thread_that_cannot_start_is_an_error() {
    for fails in 0..3 {
        let started = AtomicUsize::new(0);
        let ended = Arc::new(AtomicUsize::new(0));
        let limited = |name: String, body: Job| {
            if started.fetch_add(1, Ordering::SeqCst) == fails {
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
            let ended = Arc::clone(&ended);
            spawn(
                name,
                Box::new(move || {
                    body();
                    ended.fetch_add(1, Ordering::SeqCst);
                }),
            )
        };
        let error = Pool::start(&limited).err().unwrap().to_string();
        assert!(
            error.starts_with("tensorrt_llm_bls cannot start a thread ("),
            "{error}"
        );
        assert!(error.contains("raise the limit of processes"), "{error}");
        assert_eq!(ended.load(Ordering::SeqCst), fails);
    }
}
