//! The floating-point environment in which huddle decides.
//!
//! That of the program is its own, and may differ between ranks: interval arithmetic rounds up on some and down on others, and what
//! `gfortran -ffpe-trap=zero` compiles ends with the first division by zero. Ranks that round differently find different algorithms to be the fastest, and
//! a flag that is raised stays so: Fortran programs print it when they stop. So what ranks must decide alike by floating-point numbers is decided
//! here, in the environment that compiled code assumes. Operands of reductions are combined in that of the program, as natively.

use std::hint::black_box;

/// What `this` returns, run in the default environment: to nearest, no traps. Afterwards that of the program holds, without what was raised.
pub fn in_default<R>(this: impl FnOnce() -> R) -> R {
    let _programs = Environment::replace_by_default();
    black_box(in_a_frame_of_its_own(black_box(this)))
}

/// So that operations are not moved to where the environment is another one, which to the compiler is none of their operands.
#[inline(never)]
fn in_a_frame_of_its_own<R>(this: impl FnOnce() -> R) -> R {
    this()
}

/// What held before, and holds again when this is dropped.
struct Environment(Registers);

impl Environment {
    fn replace_by_default() -> Self {
        let programs = Self(registers());
        // SAFETY: what compiled code assumes; `drop` puts back what the caller has.
        unsafe { set_registers(DEFAULT) };
        programs
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: as the caller had them.
        unsafe { set_registers(self.0) };
    }
}

/// Control and status.
#[cfg(target_arch = "x86_64")]
type Registers = u32;

/// As the ABI of x86_64 has them at a process's start: MXCSR.
#[cfg(target_arch = "x86_64")]
const DEFAULT: Registers = 0x1f80;

#[cfg(target_arch = "x86_64")]
fn registers() -> Registers {
    let mut found = 0u32;
    // SAFETY: writes these four bytes.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut found, options(nostack, preserves_flags)) };
    found
}

/// # Safety
/// Such as were found here, or the default.
#[cfg(target_arch = "x86_64")]
unsafe fn set_registers(to: Registers) {
    // SAFETY: reads these four bytes; no reserved bit is set, as the caller promises.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const to, options(nostack)) };
}

/// Control and status: FPCR and FPSR.
#[cfg(target_arch = "aarch64")]
type Registers = [u64; 2];

#[cfg(target_arch = "aarch64")]
const DEFAULT: Registers = [0; 2];

#[cfg(target_arch = "aarch64")]
fn registers() -> Registers {
    let (control, status): (u64, u64);
    // SAFETY: reads two registers.
    unsafe {
        std::arch::asm!("mrs {}, fpcr", "mrs {}, fpsr", out(reg) control, out(reg) status, options(nostack, preserves_flags));
    }
    [control, status]
}

/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn set_registers([control, status]: Registers) {
    // SAFETY: as the caller promises.
    unsafe {
        std::arch::asm!("msr fpcr, {}", "msr fpsr, {}", in(reg) control, in(reg) status, options(nostack));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Registers = ();

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const DEFAULT: Registers = ();

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn registers() -> Registers {}

/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn set_registers(_: Registers) {}

#[cfg(all(test, target_arch = "x86_64"))]
pub mod tests {
    use super::*;

    const UPWARD: Registers = 0x5f80;
    const INEXACT: Registers = 0x20;

    /// Whether `this`, in the environment of a program that rounds upward, rounds there.
    pub fn rounds(this: impl FnOnce()) -> bool {
        let tests = Environment(registers());
        // SAFETY: rounding upward, until `tests` is dropped.
        unsafe { set_registers(UPWARD) };
        in_a_frame_of_its_own(this);
        let flags = registers();
        drop(tests);
        flags & INEXACT != 0
    }

    fn third() -> f64 {
        black_box(1.0) / black_box(3.0)
    }

    #[test]
    fn numbers_are_rounded_to_nearest_there_and_as_the_program_wants_else() {
        let nearest = third();
        let (mut programs, mut there) = (0.0, 0.0);
        assert!(rounds(|| programs = third()) && programs > nearest);
        assert!(!rounds(|| there = in_default(third)), "what was raised there is gone");
        assert_eq!(there, nearest);
    }
}
