//! Measuring the kernels: which ones serve on this machine, and how fast they are.
//!
//! [`Probed::measure`] takes a few milliseconds and at most 8 MiB. It times each candidate several times and believes
//! the shortest time, so that other work on the processor does not decide. A plainer kernel stays unless another is
//! clearly faster (`MARGIN`, `COPY_MARGIN`; for slots `OWN_LOOP_MARGIN`). All kernels yield equal results, so ranks
//! need not agree on them. Costs that decide on algorithms must come from one rank's `Probed` ([`Probed::to_bytes`]).

use super::copy::{self, CopyKernel, Destination, PerClass, SizeClass, Stores};
use super::host::Caches;
use super::reduce::{self, kernel_at};
use super::{Combine, Element, Kernel, Level, Op, SingleCopy};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The speed of a machine's kernels, and which of them serve there.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// The level of the reduction kernels that serve.
    pub level: Level,
    /// The copy kernels that serve, by [`Destination`].
    pub copies: [PerClass<&'static CopyKernel>; Destination::ALL.len()],
    /// The copy kernel that serves [`copy_streaming`](super::copy_streaming).
    pub streaming: &'static CopyKernel,
    /// The copy kernel that serves [`copy_fetching`](super::copy_fetching).
    pub fetching: &'static CopyKernel,
    /// Sizes of the caches.
    pub caches: Caches,
    /// Rates of copies by the kernels that serve.
    pub copy: Rates,
    /// Rates of sums of `double`: limited by loads and stores, as most reductions are.
    pub light: Rates,
    /// Rates of products of complex `double`s: limited by arithmetic.
    pub heavy: Rates,
    /// Cost of copies out of other processes; `None` where the system permits no such copy.
    pub single_copy: Option<SingleCopy>,
}

impl PartialEq for CopyKernel {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Bytes of result per nanosecond on one core alone, by where source and destination lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// In the first-level cache.
    pub l1: f64,
    /// In the second-level cache.
    pub l2: f64,
    /// In the last-level cache.
    pub llc: f64,
    /// In memory.
    pub memory: f64,
}

impl Rates {
    const NAMES: [&str; 4] = ["l1", "l2", "llc", "memory"];

    fn to_array(self) -> [f64; 4] {
        [self.l1, self.l2, self.llc, self.memory]
    }

    fn from_array([l1, l2, llc, memory]: [f64; 4]) -> Self {
        Self { l1, l2, llc, memory }
    }

    fn to_json(self) -> Value {
        Self::NAMES.iter().zip(self.to_array()).map(|(name, rate)| ((*name).to_owned(), json!(rate))).collect()
    }

    fn from_json(value: &Value) -> Option<Self> {
        let rates = Self::NAMES.map(|name| value[name].as_f64().filter(|rate| rate.is_finite() && *rate > 0.0));
        let [Some(l1), Some(l2), Some(llc), Some(memory)] = rates else { return None };
        Some(Self::from_array([l1, l2, llc, memory]))
    }
}

impl Default for Probed {
    /// Assumed where nothing was measured: the widest reductions, libc's copies, and rates of a usual server.
    fn default() -> Self {
        let libc = &copy::COPIES[0];
        Self {
            level: Level::widest(),
            copies: [[libc; SizeClass::ALL.len()]; Destination::ALL.len()],
            streaming: CopyKernel::from_name("stream-baseline").unwrap_or(libc),
            fetching: libc,
            caches: Caches::default(),
            copy: Rates { l1: 60.0, l2: 30.0, llc: 12.0, memory: 6.0 },
            light: Rates { l1: 40.0, l2: 20.0, llc: 10.0, memory: 6.0 },
            heavy: Rates { l1: 20.0, l2: 15.0, llc: 8.0, memory: 5.0 },
            single_copy: None,
        }
    }
}

static IN_USE: OnceLock<Probed> = OnceLock::new();

impl Probed {
    /// The measurements that chose the kernels of this process; the defaults until [`Probed::put_to_use`].
    pub fn in_use() -> &'static Self {
        static DEFAULT: OnceLock<Probed> = OnceLock::new();
        IN_USE.get().unwrap_or_else(|| DEFAULT.get_or_init(Self::default))
    }

    /// Makes its kernels serve in this process. Only the first call has an effect.
    pub fn put_to_use(self) {
        let probed = IN_USE.get_or_init(|| self);
        reduce::choose(probed.level);
        for (destination, kernels) in Destination::ALL.into_iter().zip(probed.copies) {
            for (class, kernel) in SizeClass::ALL.into_iter().zip(kernels) {
                copy::choose(destination, class, kernel);
            }
        }
        copy::choose_streaming(probed.streaming);
        copy::choose_fetching(probed.fetching);
        copy::choose_vectors(probed.level);
    }

    /// As one line of JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        let by_class = |kernels: PerClass<&CopyKernel>| -> Value {
            SizeClass::ALL.iter().zip(kernels).map(|(class, kernel)| (class.name(), kernel.name)).collect()
        };
        let copies: Value =
            Destination::ALL.iter().zip(self.copies).map(|(to, kernels)| (to.name(), by_class(kernels))).collect();
        let value = json!({
            "level": self.level.name(),
            "copies": copies,
            "streaming": self.streaming.name,
            "fetching": self.fetching.name,
            "caches": { "l1": self.caches.l1, "l2": self.caches.l2, "llc": self.caches.llc },
            "copy": self.copy.to_json(),
            "light": self.light.to_json(),
            "heavy": self.heavy.to_json(),
            "single_copy": self.single_copy.map(|SingleCopy { call, per_byte }| json!({ "call": call, "per_byte": per_byte })),
        });
        value.to_string().into_bytes()
    }

    /// The inverse of [`Probed::to_bytes`]; `None` where the bytes are something else, or name kernels that this
    /// processor can't run.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let kernel = |value: &Value| CopyKernel::from_name(value.as_str()?);
        let by_class = |kernels: &Value| {
            let [short, medium, long, huge] = SizeClass::ALL.map(|class| kernel(&kernels[class.name()]));
            Some([short?, medium?, long?, huge?])
        };
        let [private, slot] = Destination::ALL.map(|to| by_class(&value["copies"][to.name()]));
        let cache = |name: &str| value["caches"][name].as_u64().filter(|size| *size > 0).map(|size| size as usize);
        let time = |name: &str| value["single_copy"][name].as_f64().filter(|time| (0.0..1e9).contains(time));
        let single_copy = match value.get("single_copy")? {
            Value::Null => None,
            _ => Some(SingleCopy { call: time("call")?, per_byte: time("per_byte")? }),
        };
        Some(Self {
            level: Level::from_name(value["level"].as_str()?).filter(|level| level.is_available())?,
            copies: [private?, slot?],
            streaming: kernel(&value["streaming"])?,
            fetching: kernel(&value["fetching"])?,
            caches: Caches { l1: cache("l1")?, l2: cache("l2")?, llc: cache("llc")? },
            copy: Rates::from_json(&value["copy"])?,
            light: Rates::from_json(&value["light"])?,
            heavy: Rates::from_json(&value["heavy"])?,
            single_copy,
        })
    }

    /// Measures this machine. Takes a few milliseconds; other work on this core meanwhile distorts the result.
    pub fn measure() -> Self {
        let caches = Caches::of_this_host();
        let mut area = Area::new(caches);
        let level = area.fastest_level();
        let copies = area.fastest_copies();
        let private = copies[Destination::Private as usize];
        let (streaming, fetching) = area.fastest_past_caches();
        let of = |op, element| kernel_at(level, op, element).expect("every level has it");
        let (light, heavy) = (of(Op::Sum, Element::F64), of(Op::Prod, Element::C64));
        let copy = area.rates(|to, from, n| {
            let kernel = private[SizeClass::of(n) as usize];
            // SAFETY: `rates` passes two areas of `n` bytes; the kernel is one of those available.
            unsafe { kernel.copy(to, from, n) }
        });
        let mut reduce = |kernel: Kernel| {
            // SAFETY: `rates` passes two areas of `n` bytes.
            area.rates(|to, from, n| unsafe { kernel.combine(to, to, from, n) })
        };
        let (light, heavy) = (reduce(light), reduce(heavy));
        let single_copy = SingleCopy::measure(1.0 / copy.l2);
        Self { level, copies, streaming, fetching, caches, copy, light, heavy, single_copy }
    }
}

/// A kernel replaces a plainer one if it needs less than this fraction of its time.
const MARGIN: f64 = 0.95;

/// A copy replaces libc's if it needs less than this fraction of its time.
const COPY_MARGIN: f64 = 0.8;

/// The processor's own loop (`rep movsb`) replaces libc's copy into slots if, on one core alone, it takes less than
/// this multiple of libc's time. It wins by more where a peer has the lines.
const OWN_LOOP_MARGIN: f64 = 1.6;

/// The shortest stretch of time that is measured at once.
const STRETCH: Duration = Duration::from_micros(4);

/// The memory that is copied and combined: two areas of the same length, longer than a usual second-level cache.
struct Area {
    caches: Caches,
    from: Vec<u64>,
    to: Vec<u64>,
}

/// Where a measurement's data lie.
#[derive(Clone, Copy)]
enum Data {
    /// In this many bytes, used again and again.
    Within(usize),
    /// The source in this many bytes; the destination at another place each time, as slots are.
    Rotating(usize),
    /// In memory.
    Flushed(usize),
}

/// Bytes that are flushed and measured at once.
const FLUSHED: usize = 64 << 10;

impl Area {
    fn new(caches: Caches) -> Self {
        let words = (2 * caches.l2).clamp(1 << 20, 4 << 20) / size_of::<u64>();
        // Small integers and floats near 1: no arithmetic on them is slow.
        let from = (0..words as u64).map(|index| 0x3ff0_0000_0000_0000 + index).collect();
        Self { caches, from, to: vec![0x3ff0_0000_0000_0000; words] }
    }

    fn bytes(&self) -> usize {
        self.from.len() * size_of::<u64>()
    }

    /// Nanoseconds per byte that `run` takes on data that lie as `data` says: the shortest of `times` stretches.
    fn time(&mut self, data: Data, times: usize, run: &dyn Fn(*mut u8, *const u8, usize)) -> f64 {
        let bytes = self.bytes();
        let (to, from) = (self.to.as_mut_ptr().cast::<u8>(), self.from.as_ptr().cast::<u8>());
        let (n, span) = match data {
            Data::Within(n) | Data::Flushed(n) => (n.min(bytes), n.min(bytes)),
            Data::Rotating(n) => (n.min(bytes), bytes),
        };
        let mut at = 0;
        let mut shortest = f64::INFINITY;
        run(to, from, n);
        for _ in 0..times {
            if let Data::Flushed(_) = data {
                flush(to, n);
                flush(from, n);
            }
            let (started, mut done) = (Instant::now(), 0);
            let elapsed = loop {
                run(to.wrapping_add(at), from, n);
                done += n;
                at = if at + 2 * n <= span { at + n } else { 0 };
                let elapsed = started.elapsed();
                if elapsed > STRETCH || matches!(data, Data::Flushed(_)) {
                    break elapsed;
                }
            };
            shortest = shortest.min(elapsed.as_nanos() as f64 / done as f64);
        }
        shortest
    }

    /// The level with the fastest reductions, light and heavy ones, in both caches of the core.
    fn fastest_level(&mut self) -> Level {
        let (near, far) = (Data::Within(self.caches.l1 / 4), Data::Within(self.caches.l2 / 4));
        let mut best = (Level::Baseline, f64::INFINITY);
        for level in Level::available() {
            let mut product = 1.0;
            for (op, element) in [(Op::Sum, Element::F64), (Op::Prod, Element::C64)] {
                let Some(kernel) = kernel_at(level, op, element) else { continue };
                for data in [near, far] {
                    // SAFETY: `time` passes two areas of `n` bytes.
                    let time = self.time(data, 4, &|to, from, n| unsafe { kernel.combine(to, to, from, n) });
                    product *= time;
                }
            }
            let mean = f64::powf(product, 0.25);
            if mean < best.1 * MARGIN {
                best = (level, mean);
            }
        }
        best.0
    }

    fn fastest_of(
        &mut self,
        candidates: impl Iterator<Item = &'static CopyKernel>,
        data: Data,
        times: usize,
        margin: f64,
    ) -> &'static CopyKernel {
        let mut best = (&copy::COPIES[0], f64::INFINITY);
        for kernel in candidates {
            // SAFETY: `time` passes two areas of `n` bytes; the kernel is one of those available.
            let time = self.time(data, times, &|to, from, n| unsafe { kernel.copy(to, from, n) });
            if time < best.1 * margin {
                best = (kernel, time);
            }
        }
        best.0
    }

    /// The fastest copies, by destination and class of size.
    ///
    /// One core alone does not show the cost of a slot whose lines a peer has just read. From 1 KiB on vector loops,
    /// which fetch each line first, take 1.5 to five times as long there as the processor's own loop (the group `slot`
    /// of benches/kernels.rs). So that loop serves copies of medium length into slots unless it is slow on one core
    /// alone. Long messages also go through slots. For them only the processor's loop and libc's copy compete, since
    /// libc's fetches no lines either at such lengths.
    fn fastest_copies(&mut self) -> [PerClass<&'static CopyKernel>; Destination::ALL.len()] {
        let [libc, rep] = ["libc", "rep"].map(CopyKernel::from_name);
        let long = |area: &mut Self, n, times| {
            let fetching_none = CopyKernel::available().filter(|kernel| kernel.stores == Stores::WholeLines);
            area.fastest_of(fetching_none, Data::Rotating(n), times, COPY_MARGIN)
        };
        let near = |area: &mut Self, n| {
            let cached = plain_copies().filter(|kernel| kernel.stores != Stores::Streaming);
            area.fastest_of(cached, Data::Within(n), 6, MARGIN)
        };
        let (short, medium) = (near(self, 256), near(self, 4 << 10));
        let (long, huge) = (long(self, 128 << 10, 3), long(self, 1 << 20, 1));
        let own_loop = self.fastest_of(libc.into_iter().chain(rep), Data::Rotating(2 << 10), 6, OWN_LOOP_MARGIN);
        [[short, medium, long, huge], [short, own_loop, long, huge]]
    }

    /// The fastest copies to memory and from memory.
    fn fastest_past_caches(&mut self) -> (&'static CopyKernel, &'static CopyKernel) {
        let (to, from): (Vec<_>, Vec<_>) = plain_copies().partition(|kernel| kernel.stores == Stores::Streaming);
        let mut fastest = |kernels: Vec<_>| self.fastest_of(kernels.into_iter(), Data::Flushed(FLUSHED), 4, MARGIN);
        (fastest(to), fastest(from))
    }

    /// The rates of `run` by where the data lie.
    fn rates(&mut self, run: impl Fn(*mut u8, *const u8, usize)) -> Rates {
        // Short stretches are timed more often: other work on the core makes some several times as long.
        let places = [
            (Data::Within(self.caches.l1 / 4), 8),
            (Data::Within(self.caches.l2 / 4), 8),
            (Data::Within(self.caches.l2), 3),
            (Data::Flushed(FLUSHED), 3),
        ];
        // A clock that stands still must not make a rate infinite. A rate with three decimals is the same number when
        // its text is read back.
        Rates::from_array(places.map(|(data, times)| {
            let rate = 1.0 / self.time(data, times, &run).max(1e-3);
            (rate * 1e3).round().max(1.0) / 1e3
        }))
    }
}

/// The copies in one stream. Those in several streams serve only what they are made for.
fn plain_copies() -> impl Iterator<Item = &'static CopyKernel> {
    CopyKernel::available().filter(|kernel| !kernel.is_in_streams())
}

/// Drives `n` bytes at `at` out of all caches, where the processor lets programs do that.
fn flush(at: *const u8, n: usize) {
    // SAFETY: the lines lie in memory of the caller; flushing changes no data.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        for line in (0..n).step_by(64) {
            _mm_clflush(at.wrapping_add(line));
        }
        _mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, n);
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
