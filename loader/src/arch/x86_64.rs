//! x86-64, System V: r11 carries the address of the target from an entry to whatever it jumps to.

use std::arch::naked_asm;

/// Landing pad of an indirect branch.
macro_rules! land {
    () => {
        "endbr64"
    };
}

/// Increments the counter.
macro_rules! count {
    () => {
        "lock inc qword ptr [rip + {calls} + {call}]"
    };
}

/// Increments the number of open requests.
macro_rules! open {
    () => {
        "lock inc qword ptr [rip + {opened} + {open}]"
    };
}

/// Runs `$code` unless calls of the name go to a profiler: then the entry of its `PMPI_X` runs it.
macro_rules! unless {
    ($code:expr) => {
        concat!("cmp byte ptr [rip + {slots} + {unless}], 0\njne 4f\n", $code, "\n4:")
    };
}

/// Sets the note if it is not set.
macro_rules! note {
    () => {
        "cmp byte ptr [rip + {noted} + {note}], 0\njne 2f\nmov byte ptr [rip + {noted} + {note}], 1\n2:"
    };
}

/// Sets the notice, in whatever memory it is, if it is not set. [notice] acquire: pairs with the engine's release; a
/// plain load is one here.
macro_rules! raise {
    () => {
        concat!(
            "mov r11, qword ptr [rip + {raised} + {notice}]\n",
            "cmp dword ptr [r11], 0\n",
            "jne 3f\n",
            "mov dword ptr [r11], 1\n",
            "3:",
        )
    };
}

/// Jumps to the address that the target holds. A plain load is an acquire here.
macro_rules! forward {
    () => {
        "lea r11, [rip + {slots} + {slot}]\njmp qword ptr [r11]"
    };
}
pub(crate) use {count, forward, land, note, open, raise, unless};

/// The first target of every entry: calls `resolve`, which fills the table, then jumps to the new target, with every
/// register that can hold an argument restored.
#[unsafe(naked)]
pub extern "C" fn lazy() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 208",
        "movaps [rsp], xmm0",
        "movaps [rsp + 16], xmm1",
        "movaps [rsp + 32], xmm2",
        "movaps [rsp + 48], xmm3",
        "movaps [rsp + 64], xmm4",
        "movaps [rsp + 80], xmm5",
        "movaps [rsp + 96], xmm6",
        "movaps [rsp + 112], xmm7",
        "mov [rsp + 128], rdi",
        "mov [rsp + 136], rsi",
        "mov [rsp + 144], rdx",
        "mov [rsp + 152], rcx",
        "mov [rsp + 160], r8",
        "mov [rsp + 168], r9",
        "mov [rsp + 176], rax",
        "mov [rsp + 184], r10",
        "mov [rsp + 192], r11",
        "mov rdi, r11",
        "call {resolve}",
        "movaps xmm0, [rsp]",
        "movaps xmm1, [rsp + 16]",
        "movaps xmm2, [rsp + 32]",
        "movaps xmm3, [rsp + 48]",
        "movaps xmm4, [rsp + 64]",
        "movaps xmm5, [rsp + 80]",
        "movaps xmm6, [rsp + 96]",
        "movaps xmm7, [rsp + 112]",
        "mov rdi, [rsp + 128]",
        "mov rsi, [rsp + 136]",
        "mov rdx, [rsp + 144]",
        "mov rcx, [rsp + 152]",
        "mov r8, [rsp + 160]",
        "mov r9, [rsp + 168]",
        "mov rax, [rsp + 176]",
        "mov r10, [rsp + 184]",
        "mov r11, [rsp + 192]",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "jmp qword ptr [r11]",
        ".cfi_endproc",
        resolve = sym crate::resolve,
    )
}

/// The target of a name that the MPI library lacks: passes the six argument registers and the arguments on the stack to
/// `narrow::call`, and returns its result.
#[unsafe(naked)]
pub extern "C" fn lacking() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, r11",
        "mov rsi, rsp",
        "lea rdx, [rbp + 16]",
        "call {call}",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        call = sym crate::narrow::call,
    )
}

/// How many integer arguments are passed in registers.
pub const REGISTERS: usize = 6;
