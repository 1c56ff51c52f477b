//! Threads that read requests: short ones never wait for long ones, and nobody waits for ever.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use triton_specdec::pool::{Job, Pool, spawn};

/// Longer than any of these threads takes.
const STALL: Duration = Duration::from_secs(20);

/// A job that waits until the sender of this is dropped.
fn held(until: Receiver<()>) -> Job {
    Box::new(move || {
        let _ = until.recv();
    })
}

#[test]
fn a_long_job_holds_up_no_short_one() {
    let pool = Pool::start(&spawn).unwrap();
    let (release, until) = channel();
    let (tell, told) = channel();
    pool.long(1, held(until));
    for number in 0..50 {
        let tell = tell.clone();
        pool.short(Box::new(move || tell.send(number).unwrap()));
    }
    let mut numbers: Vec<i32> = (0..50).map(|_| told.recv_timeout(STALL).unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    drop(release);
    pool.close();
}

#[test]
fn long_jobs_are_done_one_after_another() {
    let pool = Pool::start(&spawn).unwrap();
    let (tell, told) = channel();
    for number in 0..20 {
        let tell = tell.clone();
        pool.long(1, Box::new(move || tell.send(number).unwrap()));
    }
    let numbers: Vec<i32> = (0..20).map(|_| told.recv_timeout(STALL).unwrap()).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    pool.close();
}

#[test]
fn whoever_brings_too_many_short_jobs_waits() {
    let pool = Arc::new(Pool::start(&spawn).unwrap());
    let begun = Arc::new(Barrier::new(3));
    let mut releases = Vec::new();
    for _ in 0..2 {
        let (release, until) = channel::<()>();
        let begun = Arc::clone(&begun);
        releases.push(release);
        pool.short(Box::new(move || {
            begun.wait();
            let _ = until.recv();
        }));
    }
    begun.wait();
    let brought = Arc::new(AtomicUsize::new(0));
    let (other, counted) = (Arc::clone(&pool), Arc::clone(&brought));
    let (tell, told) = channel();
    let bringing = thread::spawn(move || {
        for _ in 0..30 {
            let tell = tell.clone();
            other.short(Box::new(move || tell.send(()).unwrap()));
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Both threads are held: nothing takes what is brought, so no more than this can be.
    while brought.load(Ordering::SeqCst) < 8 {
        thread::yield_now();
    }
    assert_eq!(brought.load(Ordering::SeqCst), 8);
    drop(releases);
    bringing.join().unwrap();
    (0..30).for_each(|_| told.recv_timeout(STALL).unwrap());
    pool.close();
}

#[test]
fn long_jobs_that_wait_have_so_many_bytes_at_most() {
    let pool = Pool::start(&spawn).unwrap();
    let (release, until) = channel::<()>();
    let (tell, told) = channel();
    let first: Job = Box::new(move || {
        tell.send(()).unwrap();
        let _ = until.recv();
    });
    // A single one may have any size.
    assert!(pool.has_room(1 << 40));
    pool.long(1 << 40, first);
    told.recv_timeout(STALL).unwrap();
    pool.long(60 << 20, Box::new(|| ()));
    assert!(pool.has_room(4 << 20));
    assert!(!pool.has_room((4 << 20) + 1));
    drop(release);
    pool.close();
}

#[test]
fn a_job_that_fails_costs_no_thread() {
    let pool = Pool::start(&spawn).unwrap();
    let (tell, told) = channel::<()>();
    for number in 0..20 {
        let (tell, short) = (tell.clone(), number % 2 == 0);
        let job: Job = Box::new(move || {
            let _tell = tell;
            panic!("a job of this test fails");
        });
        if short {
            pool.short(job)
        } else {
            pool.long(1, job)
        }
    }
    drop(tell);
    // What a job holds is dropped when it fails: so is a request, whose client gets an error.
    assert!(told.recv_timeout(STALL).is_err());
    let (tell, told) = channel();
    let other = tell.clone();
    pool.short(Box::new(move || tell.send(1).unwrap()));
    pool.long(1, Box::new(move || other.send(2).unwrap()));
    assert_eq!(
        told.recv_timeout(STALL).unwrap() + told.recv_timeout(STALL).unwrap(),
        3
    );
    pool.close();
}

#[test]
fn jobs_that_wait_are_dropped_when_the_pool_closes() {
    let pool = Pool::start(&spawn).unwrap();
    let (release, until) = channel();
    let (tell, told) = channel::<()>();
    pool.long(1, held(until));
    pool.long(1, Box::new(move || drop(tell)));
    let closing = thread::spawn(move || pool.close());
    assert!(told.recv_timeout(STALL).is_err());
    drop(release);
    closing.join().unwrap();
}

#[test]
fn a_thread_that_cannot_start_is_an_error() {
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
