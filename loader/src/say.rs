//! The loader's two kinds of message, each one line on stderr by a single `write`.

use std::env;

/// Launchers give the rank before MPI_Init in one of these.
const RANK: [&str; 4] = ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// Says why nothing is accelerated; once per job, where the launcher tells the rank.
pub fn warn(reason: &str) {
    let rank = RANK.iter().find_map(env::var_os);
    if rank.is_none_or(|rank| rank == "0") {
        write(&format!("huddle warning: {reason}; collectives stay native\n"));
    }
}

/// Says why the program can't go on, and aborts.
pub fn die(reason: &str) -> ! {
    write(&format!("huddle error: {reason}\n"));
    std::process::abort()
}

fn write(line: &str) {
    // SAFETY: the bytes are `line`'s.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
