//! AArch64, AAPCS64: x16 carries the address of the target from an entry to whatever it jumps to.

use std::arch::naked_asm;

/// Landing pad of an indirect branch: `bti c`, encoded as a hint, which older cores ignore.
macro_rules! land {
    () => {
        "hint #34"
    };
}

/// Increments the counter, with instructions of the base architecture and registers that hold no argument.
macro_rules! count {
    () => {
        arch::add_one!("{calls} + {call}")
    };
}

/// Increments the number of open requests.
macro_rules! open {
    () => {
        arch::add_one!("{opened} + {open}")
    };
}

macro_rules! add_one {
    ($place:expr) => {
        concat!(
            "adrp x16, ",
            $place,
            "\nadd x16, x16, :lo12:",
            $place,
            "\n2: ldxr x17, [x16]\n",
            "add x17, x17, #1\n",
            "stxr w15, x17, [x16]\n",
            "cbnz w15, 2b",
        )
    };
}

/// Runs `$code` unless calls of the name go to a profiler: then the entry of its `PMPI_X` runs it.
macro_rules! unless {
    ($code:expr) => {
        concat!(
            "adrp x16, {slots} + {unless}\n",
            "add x16, x16, :lo12:{slots} + {unless}\n",
            "ldrb w17, [x16]\n",
            "cbnz w17, 5f\n",
            $code,
            "\n5:",
        )
    };
}

/// Sets the note if it is not set, with registers that hold no argument.
macro_rules! note {
    () => {
        concat!(
            "adrp x16, {noted} + {note}\n",
            "add x16, x16, :lo12:{noted} + {note}\n",
            "ldrb w17, [x16]\n",
            "cbnz w17, 3f\n",
            "mov w17, #1\n",
            "strb w17, [x16]\n",
            "3:",
        )
    };
}

/// Sets the notice, in whatever memory it is, if it is not set, with registers that hold no argument. [notice] pairs
/// with the engine's release: the load and store at the address depend on the load of the address.
macro_rules! raise {
    () => {
        concat!(
            "adrp x16, {raised} + {notice}\n",
            "add x16, x16, :lo12:{raised} + {notice}\n",
            "ldr x16, [x16]\n",
            "ldr w17, [x16]\n",
            "cbnz w17, 4f\n",
            "mov w17, #1\n",
            "str w17, [x16]\n",
            "4:",
        )
    };
}

/// Jumps to the address that the target holds. The acquire pairs with the resolver's release, so that the engine is
/// fully visible.
macro_rules! forward {
    () => {
        concat!(
            "adrp x16, {slots} + {slot}\n",
            "add x16, x16, :lo12:{slots} + {slot}\n",
            "ldar x17, [x16]\n",
            "br x17",
        )
    };
}
pub(crate) use {add_one, count, forward, land, note, open, raise, unless};

/// The first target of every entry: calls `resolve`, which fills the table, then jumps to the new target, with every
/// register that can hold an argument restored.
#[unsafe(naked)]
pub extern "C" fn lazy() {
    naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, #-224]!",
        ".cfi_def_cfa_offset 224",
        ".cfi_offset x29, -224",
        ".cfi_offset x30, -216",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "stp x8, x16, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov x0, x16",
        "bl {resolve}",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldp x8, x16, [sp, #80]",
        "ldp q0, q1, [sp, #96]",
        "ldp q2, q3, [sp, #128]",
        "ldp q4, q5, [sp, #160]",
        "ldp q6, q7, [sp, #192]",
        "ldp x29, x30, [sp], #224",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ldar x17, [x16]",
        "br x17",
        ".cfi_endproc",
        resolve = sym crate::resolve,
    )
}

/// The target of a name that the MPI library lacks: passes the eight argument registers and the arguments on the stack
/// to `narrow::call`, and returns its result.
#[unsafe(naked)]
pub extern "C" fn lacking() {
    naked_asm!(
        ".cfi_startproc",
        "hint #34",
        "stp x29, x30, [sp, #-80]!",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset x29, -80",
        ".cfi_offset x30, -72",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "mov x0, x16",
        "add x1, sp, #16",
        "add x2, sp, #80",
        "bl {call}",
        "ldp x29, x30, [sp], #80",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        call = sym crate::narrow::call,
    )
}

/// How many integer arguments are passed in registers.
pub const REGISTERS: usize = 8;
