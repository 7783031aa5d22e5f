//! Every way to copy against the bytes that it copies.

use super::*;
use proptest::prelude::*;
use std::iter;
use std::time::{Duration, Instant};

const GUARD: u8 = 0xa5;

/// Copies `n` bytes from and to the given distances from a cache line, and looks at what changed.
fn check(name: &str, n: usize, shifts: (usize, usize), copy: impl Fn(*mut u8, *const u8, usize)) {
    let from: Vec<u8> = (0..n + 128).map(|at| (at * 7 + at / 251 + 1) as u8).collect();
    let mut to = vec![GUARD; n + 256];
    let start = to.as_ptr().align_offset(64) + shifts.0;
    copy(to.as_mut_ptr().wrapping_add(start), from.as_ptr().wrapping_add(shifts.1), n);
    assert_eq!(to[start..start + n], from[shifts.1..shifts.1 + n], "{name}: {n} bytes, {shifts:?}");
    assert!(to[..start].iter().chain(&to[start + n..]).all(|&byte| byte == GUARD), "{name}: {n} bytes, {shifts:?}");
}

#[test]
fn every_short_length_is_copied_whole() {
    for kernel in CopyKernel::available() {
        for n in 0..=700 {
            for shifts in [(0, 0), (1, 0), (0, 1), (63, 5), (48, 33)] {
                // SAFETY: `check` passes pointers to `n` bytes of two vectors.
                check(kernel.name, n, shifts, |to, from, n| unsafe { kernel.copy(to, from, n) });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_length_is_copied_whole(n in 0usize..20_000, shifts in (0usize..64, 0usize..64)) {
        for kernel in CopyKernel::available() {
            // SAFETY: as above.
            check(kernel.name, n, shifts, |to, from, n| unsafe { kernel.copy(to, from, n) });
        }
        // SAFETY: as above.
        check("copy", n, shifts, |to, from, n| unsafe { copy(to, from, n) });
        // SAFETY: as above.
        check("copy_streaming", n, shifts, |to, from, n| unsafe { copy_streaming(to, from, n) });
        // SAFETY: as above.
        check("copy_fetching", n, shifts, |to, from, n| unsafe { copy_fetching(to, from, n) });
        // SAFETY: as above.
        check("copy_of", n, shifts, |to, from, n| unsafe { copy_of(SizeClass::Long, to, from, n) });
    }
}

#[test]
fn copies_that_take_lines_change_nothing_there() {
    for (n, shift) in [(0, 0), (1, 63), (64, 0), (100, 30), (4096, 0), (4097, 1), (10_000, 40)] {
        let mut from: Vec<u8> = (0..n + 128).map(|at| (at * 7 + at / 251 + 1) as u8).collect();
        let before = from.clone();
        let mut to = vec![GUARD; n + 64];
        // SAFETY: both have `n` bytes there, which nobody else uses.
        unsafe { copy_taking(to.as_mut_ptr(), from.as_mut_ptr().add(shift), n) };
        assert_eq!(from, before);
        assert_eq!(to[..n], before[shift..shift + n]);
        assert!(to[n..].iter().all(|&byte| byte == GUARD), "{n} bytes");
    }
}

#[test]
fn what_is_chosen_copies() {
    for kernel in CopyKernel::available() {
        for (class, n) in SizeClass::ALL.into_iter().zip([100, 3000, 40_000, 600_000]) {
            assert_eq!(SizeClass::of(n), class);
            for destination in Destination::ALL {
                choose(destination, class, kernel);
                // SAFETY: as above.
                check(kernel.name, n, (8, 8), |to, from, n| unsafe { copy_to(destination, to, from, n) });
            }
        }
        choose_streaming(kernel);
        // SAFETY: as above.
        check(kernel.name, 5000, (8, 8), |to, from, n| unsafe { copy_streaming(to, from, n) });
        choose_fetching(kernel);
        // SAFETY: as above.
        check(kernel.name, 10_000, (8, 8), |to, from, n| unsafe { copy_fetching(to, from, n) });
    }
}

#[test]
fn vectors_of_every_level_copy() {
    for level in Level::available() {
        choose_vectors(level);
        let chosen = IN_STREAMS.each_ref().map(|place| place.load(Ordering::Relaxed));
        let are_of_level =
            |name: &str, chosen| CopyKernel::from_name(name).is_none_or(|kernel| kernel.run as *mut () == chosen);
        assert!(CopyKernel::from_name(level.name()).is_some(), "each level has a plain loop");
        assert!(are_of_level(level.name(), IN_VECTORS.load(Ordering::Relaxed)));
        assert!(are_of_level(&format!("several-{}", level.name()), chosen[0]));
        assert!(are_of_level(&format!("several-around-{}", level.name()), chosen[1]));
        for n in [0, 1, 64, 65, 4096, 4160, 8192, 8193, 20_000, 70_001] {
            // SAFETY: as above.
            check("copy_in_streams", n, (3, 40), |to, from, n| unsafe { copy_in_streams(to, from, n) });
            // SAFETY: as above.
            check("copy_in_vectors", n, (3, 40), |to, from, n| unsafe { copy_in_vectors(to, from, n) });
            // SAFETY: as above.
            check("copy_around_in_streams", n, (3, 40), |to, from, n| unsafe { copy_around_in_streams(to, from, n) });
        }
    }
}

#[test]
fn names_are_unique_and_lead_back() {
    for kernel in CopyKernel::available() {
        assert!(std::ptr::eq(CopyKernel::from_name(kernel.name).expect("itself"), kernel));
    }
    assert!(CopyKernel::from_name("").is_none());
    assert_eq!(COPIES[0].name, "libc");
}

/// Some processors slow down where stores seem, not counting whole pages, to hit what is loaded next. A Zen 4 copies
/// 3.5 GB/s by `rep movsb`, which libc uses there, in place of 97 where the destination is 1 to 15 bytes further on
/// than the source, not counting whole pages. There a kernel may use vectors instead. Without optimisation these are no
/// vectors, and take ten times as long as libc at any distance.
#[test]
fn no_distance_makes_a_copy_many_times_as_slow() {
    const N: usize = 16 << 10;
    const TIMES: usize = 25;
    const USUAL: [usize; 3] = [0, 64, 2048];
    const OTHERS: [usize; 8] = [1, 8, 16, 31, 32, 63, 4032, 4095];
    let (from, mut to) = (vec![1_u8; N + 4096], vec![2_u8; N + 3 * 4096]);
    let start = (from.as_ptr() as usize).wrapping_sub(to.as_ptr() as usize) % 4096;
    for kernel in CopyKernel::available() {
        let mut once = |distance: usize, copy: CopyFn| {
            let started = Instant::now();
            // SAFETY: both have `N` bytes there; the kernel is available.
            unsafe { copy(to.as_mut_ptr().add(start + distance), from.as_ptr(), N) };
            started.elapsed()
        };
        let (mut usual, mut others) = ([Duration::MAX; USUAL.len()], [Duration::MAX; OTHERS.len()]);
        let mut vectors = Duration::MAX;
        // The distances take turns, so that a machine that is slow for a while slows all of them.
        for _ in 0..TIMES {
            for (&distance, shortest) in iter::zip(&USUAL, &mut usual).chain(iter::zip(&OTHERS, &mut others)) {
                *shortest = once(distance, kernel.run).min(*shortest);
            }
            vectors = once(0, copy_in_vectors).min(vectors);
        }
        let usual = usual.into_iter().fold(vectors, Duration::max);
        for (distance, took) in iter::zip(OTHERS, others) {
            assert!(took < 6 * usual, "{}, {distance} bytes further on: {took:?}, elsewhere {usual:?}", kernel.name);
        }
    }
}
