//! Names the library as it is installed, and keeps it loaded once it is: programs and the engine hold its addresses.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhuddle.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
