//! Copy and reduction kernels on one core, and copies into memory that another core reads.
//!
//! `cargo bench --package huddle-benches --bench kernels [-- FILTER]`. The groups:
//! - `copy`: source and destination used again and again;
//! - `rotate`: the destination somewhere else in 4 MiB each time, as slots are;
//! - `slot`: as `rotate`, with another core that reads all of it before it is written again (needs two cores);
//! - `fetch`: out of a slot that another core has just written;
//! - `flushed`: from memory to memory;
//! - `reduce`: each level, the result in place of the left operand, beside a plain loop for the target's baseline.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use huddle::kernel::reduce::kernel_at;
use huddle::kernel::{Combine, CopyKernel, Element, Level, Op, Streams};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SIZES: [usize; 11] = [8, 64, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Bytes of memory through which destinations rotate.
const SPAN: usize = 4 << 20;

/// Memory that starts `shift` bytes after the start of a page; large blocks of malloc start 16 bytes after it.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new(n: usize, shift: usize) -> Self {
        // 0x3f in each byte makes ordinary floats.
        let bytes = vec![0x3f; n + 8192];
        let start = bytes.as_ptr().align_offset(4096) + shift;
        Self { bytes, start }
    }

    fn at(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_add(self.start)
    }
}

fn sized<'a, 'c>(group: &'a mut BenchmarkGroup<'c, WallTime>, n: usize) -> &'a mut BenchmarkGroup<'c, WallTime> {
    group.throughput(Throughput::Bytes(n as u64))
}

fn copies(c: &mut Criterion) {
    for (name, span) in [("copy", 0), ("rotate", SPAN)] {
        let mut group = c.benchmark_group(name);
        for n in SIZES.into_iter().filter(|n| span == 0 || *n < span) {
            let (mut from, mut to) = (Memory::new(n, 16), Memory::new(n.max(span), 0));
            let (from, to) = (from.at(), to.at());
            for kernel in CopyKernel::available() {
                let mut at = 0;
                sized(&mut group, n).bench_function(BenchmarkId::new(kernel.name, n), |b| {
                    b.iter(|| {
                        // SAFETY: both have `n` bytes there.
                        unsafe { kernel.copy(black_box(to.wrapping_add(at)), black_box(from), black_box(n)) };
                        at = if at + 2 * n <= span { at + n } else { 0 };
                    });
                });
            }
        }
    }
}

/// What another core does with a slot.
#[derive(Clone, Copy)]
enum Access {
    Reads,
    Writes,
}

/// Reads or writes all of some memory whenever asked.
struct Peer {
    access: Access,
    asked: AtomicU64,
    done: AtomicU64,
}

impl Peer {
    const END: u64 = u64::MAX;

    fn run(&self, from: usize, n: usize) {
        let mut seen = 0;
        loop {
            let asked = self.asked.load(Ordering::Acquire);
            if asked == Self::END {
                return;
            }
            if asked == seen {
                std::hint::spin_loop();
                continue;
            }
            seen = asked;
            for word in (0..n).step_by(8).map(|at| (from + at) as *mut u64) {
                // SAFETY: the memory outlives this thread, and the thread that asked waits meanwhile.
                unsafe {
                    match self.access {
                        Access::Reads => _ = black_box(word.read_volatile()),
                        Access::Writes => word.write_volatile(seen),
                    }
                }
            }
            self.done.store(seen, Ordering::Release);
        }
    }

    fn ask(&self) {
        let number = self.asked.load(Ordering::Relaxed) + 1;
        self.asked.store(number, Ordering::Release);
        while self.done.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
    }
}

/// A thread that is bound to one processor until this is dropped.
struct Bound(libc::cpu_set_t);

impl Bound {
    /// Binds this thread to the `index`-th of the processors that it may run on; `None` if there are too few.
    fn to(index: usize) -> Option<Self> {
        // SAFETY: sets of processors are plain data; the calls are given their length.
        unsafe {
            let mut allowed: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) != 0 {
                return None;
            }
            let cpu = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &allowed)).nth(index)?;
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            (libc::sched_setaffinity(0, size_of_val(&one), &one) == 0).then_some(Self(allowed))
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: sets of processors are plain data; the call is given the set's length.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
    }
}

fn slots(c: &mut Criterion) {
    if std::thread::available_parallelism().map_or(1, usize::from) >= 2 {
        for (name, access) in [("slot", Access::Reads), ("fetch", Access::Writes)] {
            let mut group = c.benchmark_group(name);
            copy_slots(&mut group, access, 64 << 10);
            copy_slots(&mut group, access, SPAN);
        }
    }
}

/// Times copies that go in turn to all of `span` bytes, which another core reads after each round. If the other core
/// writes these bytes, times copies from there.
fn copy_slots(group: &mut BenchmarkGroup<'_, WallTime>, access: Access, span: usize) {
    let mut area = Memory::new(span, 0);
    let start = area.at().addr();
    let peer = Peer { access, asked: AtomicU64::new(0), done: AtomicU64::new(0) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _bound = Bound::to(1);
            peer.run(start, span);
        });
        // Once the peer has answered, it is bound. If this thread were bound before, the peer would inherit its
        // processor.
        peer.ask();
        let _bound = Bound::to(0);
        let sizes = [512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
        for n in sizes.into_iter().filter(|n| *n <= span) {
            let mut own = Memory::new(n, 16);
            let own = own.at();
            for kernel in CopyKernel::available() {
                let id = BenchmarkId::new(format!("{}-of-{}K", kernel.name, span >> 10), n);
                sized(group, n).bench_function(id, |b| {
                    b.iter_custom(|times| {
                        let (mut elapsed, mut done) = (Duration::ZERO, 0);
                        while done < times {
                            peer.ask();
                            let started = Instant::now();
                            let now = (span / n).min((times - done) as usize);
                            for index in 0..now {
                                let slot = area.at().wrapping_add(index * n);
                                let (to, from) = match access {
                                    Access::Reads => (slot, own),
                                    Access::Writes => (own, slot),
                                };
                                // SAFETY: both have `n` bytes there, and the peer waits.
                                unsafe { kernel.copy(black_box(to), black_box(from), black_box(n)) };
                            }
                            elapsed += started.elapsed();
                            done += now as u64;
                        }
                        elapsed
                    });
                });
            }
        }
        peer.asked.store(Peer::END, Ordering::Release);
    });
}

/// Drives memory out of the caches, if the processor lets programs do that.
fn flush(at: *const u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..n).step_by(64) {
        // SAFETY: flushing changes no data.
        unsafe { std::arch::x86_64::_mm_clflush(at.wrapping_add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, n);
    std::sync::atomic::fence(Ordering::SeqCst);
}

fn flushed(c: &mut Criterion) {
    let mut group = c.benchmark_group("flushed");
    let n = 256 << 10;
    let (mut from, mut to) = (Memory::new(n, 16), Memory::new(n, 16));
    let (from, to) = (from.at(), to.at());
    for kernel in CopyKernel::available() {
        sized(&mut group, n).bench_function(BenchmarkId::new(kernel.name, n), |b| {
            b.iter_custom(|times| {
                let mut elapsed = Duration::ZERO;
                for _ in 0..times {
                    flush(to, n);
                    flush(from, n);
                    let started = Instant::now();
                    // SAFETY: both have `n` bytes.
                    unsafe { kernel.copy(to, from, n) };
                    elapsed += started.elapsed();
                }
                elapsed
            });
        });
    }
}

/// What the compiler makes of a loop over `double`s, for comparison.
///
/// # Safety
/// Both have `n` bytes.
#[inline(never)]
unsafe fn plain_sum(to: *mut u8, right: *const u8, n: usize) {
    let (to, right) = (to.cast::<f64>(), right.cast::<f64>());
    for at in 0..n / 8 {
        // SAFETY: the caller promises `n` bytes at both addresses.
        unsafe { to.add(at).write_unaligned(to.add(at).read_unaligned() + right.add(at).read_unaligned()) }
    }
}

const PAIRS: [(Op, Element); 8] = [
    (Op::Sum, Element::F64),
    (Op::Max, Element::F64),
    (Op::Sum, Element::I32),
    (Op::Max, Element::I64),
    (Op::Prod, Element::I64),
    (Op::Prod, Element::U8),
    (Op::Land, Element::I32),
    (Op::Prod, Element::C64),
];

fn reductions(c: &mut Criterion) {
    for (op, element) in PAIRS {
        let mut group = c.benchmark_group(format!("reduce-{op:?}-{element:?}"));
        for n in SIZES.into_iter().map(|n| n.max(element.bytes())) {
            let (mut to, mut right) = (Memory::new(n, 0), Memory::new(n, 16));
            let (to, right) = (to.at(), right.at());
            if (op, element) == (Op::Sum, Element::F64) {
                sized(&mut group, n).bench_function(BenchmarkId::new("plain loop", n), |b| {
                    // SAFETY: both have `n` bytes.
                    b.iter(|| unsafe { plain_sum(black_box(to), black_box(right), black_box(n)) });
                });
                let kernel = kernel_at(Level::widest(), op, element).expect("a kernel");
                sized(&mut group, n).bench_function(BenchmarkId::new("one stream", n), |b| {
                    // SAFETY: both have `n` bytes.
                    b.iter(|| unsafe { kernel.combine_in(Streams::One, black_box(to), to, black_box(right), n) });
                });
            }
            for level in Level::available() {
                let kernel = kernel_at(level, op, element).expect("a kernel");
                sized(&mut group, n).bench_function(BenchmarkId::new(level.name(), n), |b| {
                    // SAFETY: both have `n` bytes.
                    b.iter(|| unsafe { kernel.combine(black_box(to), to, black_box(right), black_box(n)) });
                });
            }
        }
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200))
        .configure_from_args();
    copies(&mut criterion);
    slots(&mut criterion);
    flushed(&mut criterion);
    reductions(&mut criterion);
    criterion.final_summary();
}
