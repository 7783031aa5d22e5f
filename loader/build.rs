//! Sets the library's soname to its installed name and keeps the library loaded: programs and the engine hold addresses
//! in it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhuddle.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
