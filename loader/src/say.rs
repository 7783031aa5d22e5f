//! The loader's two kinds of message. Each is one line on stderr, written by a single `write`.

use std::env;

/// Before MPI_Init, launchers give the rank on the node in one of these variables. Slurm's comes last: a batch script
/// has it too, with its own value, and passes it on to the launcher that it starts.
const LOCAL_RANK: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];

/// Launchers give the rank in MPI_COMM_WORLD in one of these.
const RANK: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "SLURM_PROCID"];

/// Says why nothing is accelerated here. It prints once per node, because the reason may hold on one node alone. If the
/// launcher only gives the rank in the job, it prints once per job; if it gives neither, in every process.
pub fn warn(reason: &str) {
    let rank = LOCAL_RANK.iter().chain(&RANK).find_map(env::var_os);
    if rank.is_none_or(|rank| rank == "0") {
        write(&format!("huddle warning: on {}, {reason}; collectives stay native\n", host()));
    }
}

/// Says why the program can't go on, and aborts.
pub fn die(reason: &str) -> ! {
    write(&format!("huddle error: {reason}\n"));
    std::process::abort()
}

fn host() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the length is one less than the buffer's, so a name that was cut still ends with a zero byte.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    name.split(|&byte| byte == 0).next().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
}

fn write(line: &str) {
    // SAFETY: the bytes are `line`'s.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
