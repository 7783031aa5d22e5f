//! Compiles the constants of the MPI that the engine is built for. `MPICC` names that MPI's compiler (default `mpicc`).

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    name_sources();
    // The engine's references to names that it exports must not be bound to the loader, which exports the C API too.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // The report names the engine by its build ID; not every gcc adds one by itself.
    println!("cargo:rustc-link-arg=-Wl,--build-id");
    if env::var_os("CARGO_FEATURE_MPI").is_some() {
        compile_shim();
        link_mark();
    }
}

/// `HUDDLE_SOURCES`: a number that differs between builds of different sources, in 16 hexadecimal digits. Ranks compare
/// it in MPI_Init.
fn name_sources() {
    println!("cargo:rerun-if-changed=src");
    let mut files = Vec::new();
    list(Path::new("src"), &mut files);
    files.sort();
    let contents = files.iter().flat_map(|file| fs::read(file).expect("a source file can be read"));
    // FNV-1a.
    let number =
        contents.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    println!("cargo:rustc-env=HUDDLE_SOURCES={number:016x}");
}

/// Adds all files below `directory`.
fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().expect("a source directory can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Compiles `src/mpi/shim.c` with the mpicc of the build.
fn compile_shim() {
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed=src/mpi/shim.c");
    let mpicc = env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    cc::Build::new().compiler(mpicc).file("src/mpi/shim.c").warnings(true).compile("huddle_shim");
}

/// Links the empty shared object that the engine carries (`src/mpi/device/watch.rs`): `OUT_DIR/mark.so`.
fn link_mark() {
    println!("cargo:rerun-if-changed=src/mpi/device/mark.c");
    let path = PathBuf::from(env::var("OUT_DIR").unwrap_or_default()).join("mark.so");
    let mut linker = cc::Build::new().get_compiler().to_command();
    linker.args([
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-s",
        "-Wl,-z,max-page-size=4096,-z,noseparate-code",
        "-Wl,--build-id=none",
    ]);
    linker.args(["src/mpi/device/mark.c", "-o"]).arg(&path);
    assert!(linker.status().is_ok_and(|status| status.success()), "{linker:?} failed");
}
