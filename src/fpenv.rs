//! The floating-point environment in which huddle decides.
//!
//! The program's environment is its own, and may differ between ranks: interval arithmetic rounds up on some and down
//! on others, and a program that `gfortran -ffpe-trap=zero` compiles ends with the first division by zero. Ranks that
//! round differently find different algorithms to be the fastest. A flag that is raised stays so, and Fortran programs
//! print it when they stop. So what ranks must decide alike by floating-point numbers is decided here, in the
//! environment that compiled code assumes. Operands of reductions are combined in the program's environment, as
//! natively.

use std::hint::black_box;

/// Runs `this` in the default environment (round to nearest, no traps), and returns its result. Afterwards the
/// program's environment holds again, without the flags that `this` raised.
pub fn in_default<R>(this: impl FnOnce() -> R) -> R {
    let _programs = Environment::replace_by_default();
    black_box(in_a_frame_of_its_own(black_box(this)))
}

/// Keeps the compiler from moving operations to where another environment holds: the compiler does not know that they
/// depend on the environment.
#[inline(never)]
fn in_a_frame_of_its_own<R>(this: impl FnOnce() -> R) -> R {
    this()
}

/// The environment that held before, and holds again when this is dropped.
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

/// MXCSR as the ABI of x86_64 has it when a process starts.
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
/// `to` was read by `registers`, or is the default.
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
/// `control` and `status` were read by `registers`, or are the default.
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

    /// Whether `this`, run in the environment of a program that rounds upward, rounds in that environment.
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
