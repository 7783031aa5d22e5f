//! Compiles the constants of the MPI in use, and generates `include/huddle.h`.
//!
//! `MPICC` names the compiler of the MPI that the engine is built for (default `mpicc`). The header is written to the
//! source tree only if `HUDDLE_WRITE_HEADER` is set, else to `OUT_DIR`, where a test compares it with the committed one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The engine's own references to what it exports must not be bound to the loader, which exports the C API too.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    if env::var_os("CARGO_FEATURE_MPI").is_some() {
        compile_shim();
        link_mark();
    }
    if let Err(reason) = generate_header() {
        println!("cargo:warning=include/huddle.h is not generated: {reason}");
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

/// Generates the C header of the public API from `src/capi`, if that exists.
fn generate_header() -> Result<(), String> {
    println!("cargo:rerun-if-env-changed=HUDDLE_WRITE_HEADER");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?);
    // A path that does not exist would make every build start anew.
    for path in ["src/capi", "cbindgen.toml"].iter().filter(|path| root.join(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
    let mut sources: Vec<PathBuf> = fs::read_dir(root.join("src/capi"))
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    sources.sort();
    if sources.is_empty() {
        return Ok(());
    }
    let config = root.join("cbindgen.toml");
    let config = if config.exists() { cbindgen::Config::from_file(config)? } else { cbindgen::Config::default() };
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder.generate().map_err(|error| error.to_string())?.write(&mut header);
    write_if_different(&header_path(&root)?, &header).map_err(|error| error.to_string())
}

/// Where the header goes.
fn header_path(root: &Path) -> Result<PathBuf, String> {
    if env::var_os("HUDDLE_WRITE_HEADER").is_some() {
        return Ok(root.join("include/huddle.h"));
    }
    Ok(PathBuf::from(env::var("OUT_DIR").map_err(|error| error.to_string())?).join("huddle.h"))
}

/// Leaves a file with these contents, untouched if it had them.
fn write_if_different(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == contents) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, contents)
}
