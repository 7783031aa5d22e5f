//! Files of measurements, valid and damaged.

use super::*;
use crate::kept::before_renaming;
use std::fs;
use std::os::unix::fs::symlink;
use std::process;

/// A directory of this test alone, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("huddle-{name}-{}", process::id()));
        fs::create_dir_all(&path).expect("a directory for temporary files");
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_second_job_reads_what_the_first_one_measured() {
    let scratch = Scratch::new("second");
    let directory = scratch.0.join("not/there/yet");
    let first = look_up_or_measure(Some(&directory));
    let second = look_up_or_measure(Some(&directory));
    // Two measurements never agree in all rates, so the second job has read the file.
    assert_eq!(first, second);
    let description = host::description();
    assert_eq!(read(&file_in(&directory, description), description), Some(first));
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
}

#[test]
fn what_is_kept_is_replaced_where_it_is_measured_anew() {
    let scratch = Scratch::new("anew");
    let description = host::description();
    write(&file_in(&scratch.0, description), description, &Probed::default()).expect("a file");
    let found = measure_anew(&scratch.0).expect("a file");
    assert_ne!(found, Probed::default(), "rates that were measured are never all as assumed");
    assert_eq!(read(&file_in(&scratch.0, description), description), Some(found));
}

#[test]
fn bad_files_count_as_none_and_are_replaced() {
    let scratch = Scratch::new("bad");
    let description = host::description();
    let file = file_in(&scratch.0, description);
    let good = [description.as_bytes(), b"\n", &Probed::default().to_bytes()].concat();
    let other = [b"another machine\n", &good[..]].concat();
    for bad in [&b""[..], b"\n", b"\xff\xfe\n{}", &good[..good.len() - 9], &other, &vec![b'x'; 1 << 20]] {
        fs::write(&file, bad).expect("a file");
        assert_eq!(read(&file, description), None);
        let found = look_up_or_measure(Some(&scratch.0));
        assert_eq!(read(&file, description), Some(found));
    }
    assert_eq!(scratch.files(), [file]);
}

#[test]
fn where_nothing_can_be_written_there_is_still_an_answer() {
    let scratch = Scratch::new("unwritable");
    let file = scratch.0.join("file");
    fs::write(&file, "").expect("a file");
    let nowhere = scratch.0.join("nowhere");
    symlink(&nowhere, &nowhere).expect("a link to itself");
    for directory in [Some(file.join("below")), Some(nowhere), None] {
        look_up_or_measure(directory.as_deref());
    }
    assert_eq!(scratch.files().len(), 2);
    let description = host::description();
    let taken = file_in(&scratch.0, description);
    fs::create_dir(&taken).expect("a directory");
    assert_eq!(read(&taken, description), None);
    assert!(write(&taken, description, &Probed::default()).is_err());
    assert_eq!(scratch.files().len(), 3, "nothing half written is left");
}

#[test]
fn traps_are_neither_followed_nor_waited_for() {
    let scratch = Scratch::new("trap");
    let description = host::description();
    let (file, victim) = (file_in(&scratch.0, description), scratch.0.join("victim"));
    fs::write(&victim, "precious").expect("a file");
    let link = |at: &Path| symlink(&victim, at).expect("a link");
    let pipe = |at: &Path| {
        let at = std::ffi::CString::new(at.as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(at.as_ptr(), 0o600) }, 0);
    };
    for trap in [&link as &dyn Fn(&Path), &pipe] {
        trap(&before_renaming(&file));
        let found = look_up_or_measure(Some(&scratch.0));
        assert_eq!(read(&file, description), Some(found));
        assert_eq!(fs::read_to_string(&victim).expect("a file"), "precious");
        fs::remove_file(&file).expect("a file");
    }
    assert_eq!(scratch.files(), [victim]);
}

#[test]
fn a_single_copy_that_was_not_permitted_is_measured_where_it_is() {
    let scratch = Scratch::new("single-copy");
    let description = host::description();
    let without = Probed { single_copy: None, ..Probed::default() };
    write(&file_in(&scratch.0, description), description, &without).expect("a file");
    let found = look_up_or_measure(Some(&scratch.0));
    if SingleCopy::measure(0.1).is_none() {
        return println!("skipped: the system does not permit it");
    }
    assert!(found.single_copy.is_some());
    assert_eq!(found, look_up_or_measure(Some(&scratch.0)), "it is kept");
    assert_eq!(Probed { single_copy: None, ..found }, without, "all else is as it was");
}
