//! The line that a panic leaves.

/// From now on a panic prints one line in place of Rust's own message, and ends the process: it never crosses into MPI.
/// The line names the call that `latest` returns.
pub fn report_panics(latest: fn() -> Option<String>) {
    std::panic::set_hook(Box::new(move |panic| {
        let call = latest().unwrap_or_else(|| "no call that huddle served".to_owned());
        super::error(format_args!("internal fault in or after {call}: {panic}"));
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in the child process in which a test runs itself again.
    const CHILD: &str = "HUDDLE_TEST_PANICS";

    /// Runs `test` again in a child process, which panics after `report_panics(latest)`. Returns the line that the
    /// child prints.
    fn line_of_a_panic(test: &str, latest: fn() -> Option<String>) -> String {
        if std::env::var_os(CHILD).is_some() {
            crate::log::set_rank(3);
            report_panics(latest);
            panic!("on\npurpose");
        }
        let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", &test, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(!ended.status.success());
        let printed = String::from_utf8(ended.stderr).unwrap();
        let lines: Vec<&str> = printed.lines().filter(|line| line.contains("huddle[")).collect();
        assert_eq!(lines.len(), 1, "{printed}");
        lines[0].to_owned()
    }

    #[test]
    fn a_panic_leaves_a_line_with_rank_and_call() {
        let line = line_of_a_panic("a_panic_leaves_a_line_with_rank_and_call", || Some("MPI_Bcast by flat".to_owned()));
        let before = "huddle[3] error: internal fault in or after MPI_Bcast by flat: panicked at src/log/panics.rs:";
        assert!(line.starts_with(before) && line.ends_with(" on purpose"), "{line}");
    }

    #[test]
    fn a_panic_outside_of_calls_says_so() {
        let line = line_of_a_panic("a_panic_outside_of_calls_says_so", || None);
        assert!(line.starts_with("huddle[3] error: internal fault in or after no call that huddle served: "), "{line}");
    }
}
