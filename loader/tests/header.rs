//! Checks that include/huddle.h is what cbindgen generates from the engine's source.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_committed() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let header = cbindgen::Builder::new().with_config(config).with_src(root.join("src/capi/mod.rs")).generate();
    let (mut generated, path) = (Vec::new(), root.join("include/huddle.h"));
    header.unwrap().write(&mut generated);
    if std::env::var_os("HUDDLE_WRITE_DOCS").is_some() {
        fs::write(path, generated).unwrap();
    } else {
        let is_alike = fs::read(path).unwrap() == generated;
        assert!(is_alike, "include/huddle.h is old: run this test with HUDDLE_WRITE_DOCS=1");
    }
}
