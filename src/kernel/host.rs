//! The kind of this machine: measurements on one machine hold for all others of the same kind.

use super::Level;
use std::fs;
use std::sync::OnceLock;

/// Sizes of the caches that one core sees, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The first level, of data.
    pub l1: usize,
    /// The last level before the one that cores share.
    pub l2: usize,
    /// The last level: its whole size, whoever shares it.
    pub llc: usize,
}

impl Default for Caches {
    /// What is assumed where the system says nothing.
    fn default() -> Self {
        Self { l1: 32 << 10, l2: 1 << 20, llc: 16 << 20 }
    }
}

impl Caches {
    /// The caches of the first processor, as Linux describes them.
    pub fn of_this_host() -> Self {
        static FOUND: OnceLock<Caches> = OnceLock::new();
        *FOUND.get_or_init(Self::look_up)
    }

    fn look_up() -> Self {
        let read = |index: usize, name: &str| {
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
        };
        let levels = (0..8).filter_map(|index| {
            let (kind, size) = (read(index, "type")?, read(index, "size")?);
            (kind.trim() != "Instruction").then(|| kibibytes(size.trim()).unwrap_or(0))
        });
        Self::from_levels(&levels.collect::<Vec<_>>())
    }

    /// From the sizes of all levels that hold data, the first level first; 0 where a size is not known.
    fn from_levels(levels: &[usize]) -> Self {
        let default = Self::default();
        match *levels {
            [l1, l2, .., llc] if l1 > 0 && l2 > 0 && llc >= l2 => Self { l1, l2, llc },
            [l1, l2] if l1 > 0 && l2 > 0 => Self { l1, l2, llc: l2 },
            [l1, ..] if l1 > 0 => Self { l1, ..default },
            _ => default,
        }
    }
}

/// Bytes, of a size such as `48K`.
fn kibibytes(text: &str) -> Option<usize> {
    text.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// How many processors this host has, whether or not this process may use them.
pub fn processors() -> i64 {
    /// The system is asked once, since it reads a file, and each communicator needs the number.
    static PROCESSORS: OnceLock<i64> = OnceLock::new();
    // SAFETY: no preconditions.
    *PROCESSORS.get_or_init(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) })
}

/// Designs of processors. They are told apart where they were found to differ in how they treat lines that several
/// caches hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// AMD's fourth generation of Zen.
    Zen4,
    /// AMD's fifth.
    Zen5,
    /// Any of Intel's.
    Intel,
    /// Any other one.
    Other,
}

impl Design {
    /// The design of this host's processor.
    pub fn of_this_host() -> Self {
        // Found once: the question leaves a virtual machine for some microseconds.
        static FOUND: OnceLock<Design> = OnceLock::new();
        *FOUND.get_or_init(|| Self::of(&vendor(), signature()))
    }

    /// The design of a processor with this vendor and this signature (family, model and stepping).
    fn of(vendor: &[u8; 12], signature: u32) -> Self {
        let [stepping_model, family] = [signature & 0xff, signature >> 8 & 0xf];
        let (family, model) = (family + (signature >> 20 & 0xff), stepping_model >> 4 | signature >> 12 & 0xf0);
        match (vendor, family, model) {
            // Linux assigns the models to generations in the same way.
            (b"AuthenticAMD", 25, 0x10..0x20 | 0x60..0xb0) => Self::Zen4,
            (b"AuthenticAMD", 26, 0x00..0x30 | 0x40..0x50 | 0x60..0x80) => Self::Zen5,
            (b"GenuineIntel", ..) => Self::Intel,
            _ => Self::Other,
        }
    }
}

/// Family, model and stepping, as the processor encodes them.
#[cfg(target_arch = "x86_64")]
fn signature() -> u32 {
    cpuid(1, 0)[0]
}

/// Other processors have no such signature: 0.
#[cfg(not(target_arch = "x86_64"))]
fn signature() -> u32 {
    0
}

/// The vendor, as the processor names it.
#[cfg(target_arch = "x86_64")]
fn vendor() -> [u8; 12] {
    let [_, ebx, ecx, edx] = cpuid(0, 0);
    let words = [ebx, edx, ecx].map(u32::to_le_bytes);
    std::array::from_fn(|at| words[at / 4][at % 4])
}

/// Other processors name no vendor: zeros.
#[cfg(not(target_arch = "x86_64"))]
fn vendor() -> [u8; 12] {
    [0; 12]
}

/// What the `cpuid` instruction returns: eax, ebx, ecx and edx.
#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    #[allow(unused_unsafe, reason = "safe in later Rust than is asked for")]
    // SAFETY: every such processor has the `cpuid` instruction.
    let registers = unsafe { std::arch::x86_64::__cpuid_count(leaf, subleaf) };
    [registers.eax, registers.ebx, registers.ecx, registers.edx]
}

/// Describes processor, caches and this build of huddle in one line. Machines with equal descriptions can share
/// measurements. Builds without optimisation have descriptions of their own, since their measurements are of no use to
/// others. Found once: in a virtual machine the hypervisor answers for the processor, 7 us for each of these questions.
pub fn description() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(describe)
}

fn describe() -> String {
    /// Raised when kernels or the probe change.
    const REVISION: u32 = 9;
    const BUILD: &str = if cfg!(debug_assertions) { "debug " } else { "" };
    let caches = Caches::of_this_host();
    let levels: Vec<_> = Level::available().map(Level::name).collect();
    let processors = processors();
    format!(
        "huddle {} {REVISION} {BUILD}{} {} {processors} processors {}/{}/{} {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        levels.join("+"),
        caches.l1,
        caches.l2,
        caches.llc,
        processor()
    )
}

/// Model and features of the processor. Asks the processor itself: `/proc/cpuinfo` of a large machine takes
/// milliseconds.
#[cfg(target_arch = "x86_64")]
fn processor() -> String {
    let words = |leaf: u32| cpuid(leaf, 0);
    let [most, ..] = words(0);
    let [signature, _, features_ecx, features_edx] = words(1);
    let [_, ebx, ecx, edx] = words(if most >= 7 { 7 } else { 0 });
    let brand: Vec<u8> = if words(0x8000_0000)[0] >= 0x8000_0004 {
        (0x8000_0002..=0x8000_0004).flat_map(words).flat_map(u32::to_le_bytes).filter(|byte| *byte != 0).collect()
    } else {
        vendor().to_vec()
    };
    format!(
        "{} {signature:x} {features_ecx:x} {features_edx:x} {ebx:x} {ecx:x} {edx:x}",
        String::from_utf8_lossy(&brand).trim()
    )
}

/// Model and features of the processor, as Linux lists them for the first one.
#[cfg(not(target_arch = "x86_64"))]
fn processor() -> String {
    let listed = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let changing = ["processor", "BogoMIPS", "cpu MHz"];
    let lines = listed.lines().take_while(|line| !line.is_empty());
    lines.filter(|line| !changing.iter().any(|name| line.starts_with(name))).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_become_caches() {
        assert_eq!(
            Caches::from_levels(&[48 << 10, 1 << 20, 32 << 20]),
            Caches { l1: 49152, l2: 1 << 20, llc: 32 << 20 }
        );
        assert_eq!(Caches::from_levels(&[32 << 10, 512 << 10]), Caches { l1: 32768, l2: 512 << 10, llc: 512 << 10 });
        for unknown in [&[][..], &[0, 0, 0], &[0]] {
            assert_eq!(Caches::from_levels(unknown), Caches::default());
        }
        assert_eq!(kibibytes("48K"), Some(49152));
        assert_eq!(kibibytes("48"), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_maker_is_that_which_linux_names() {
        let listed = fs::read_to_string("/proc/cpuinfo").expect("Linux lists its processors");
        let named = listed.lines().find_map(|line| line.strip_prefix("vendor_id")?.trim().strip_prefix(": "));
        assert_eq!(named.expect("it names the maker").as_bytes(), vendor());
    }

    #[test]
    fn designs_follow_from_family_and_model() {
        let (amd, intel) = (b"AuthenticAMD", b"GenuineIntel");
        for (vendor, signature, design) in [
            (amd, 0x00a1_0f11, Design::Zen4),    // family 25, model 17
            (amd, 0x00a6_0f12, Design::Zen4),    // family 25, model 97
            (amd, 0x00a0_0f11, Design::Other),   // family 25, model 1: the third generation
            (amd, 0x00a2_0f12, Design::Other),   // family 25, model 33: the third too
            (amd, 0x00a8_0f01, Design::Zen4),    // family 25, model 128
            (amd, 0x00a4_0f41, Design::Other),   // family 25, model 68: the third
            (amd, 0x00b0_0f21, Design::Zen5),    // family 26, model 2
            (amd, 0x00b4_0f40, Design::Zen5),    // family 26, model 68
            (amd, 0x00b5_0f00, Design::Other),   // family 26, model 80: the sixth
            (amd, 0x0080_0f12, Design::Other),   // family 23
            (intel, 0x000a_0671, Design::Intel), // family 6, model 167
            (b"HygonGenuine", 0x0090_0f22, Design::Other),
        ] {
            assert_eq!(Design::of(vendor, signature), design, "{signature:x}");
        }
    }

    #[test]
    fn a_host_describes_itself_in_one_line_and_always_alike() {
        let description = describe();
        assert!(description.starts_with("huddle ") && !description.contains('\n'), "{description}");
        assert_eq!(description, super::description());
    }
}
