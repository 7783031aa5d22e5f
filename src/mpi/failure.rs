//! Lines about calls of the MPI library that fail.

use super::job::abort;
use crate::log;
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use std::ffi::c_int;
use std::fmt;

/// Ends the job, with a line, where `function` of the library has failed: this rank can't do its part, and the others
/// would wait for it.
///
/// `circumstance` says when that was, for people.
pub(super) fn expect(function: &str, circumstance: &str, code: c_int) {
    if code != constants().success {
        log::error(format_args!("{function} fails {circumstance} ({}); the job ends", Code(code)));
        abort();
    }
}

/// An error code that the library has returned, with what the library says about it.
///
/// Codes that it has not returned must not be shown: the library would call the error handler of `MPI_COMM_WORLD`,
/// which ends the job.
pub(super) struct Code(pub c_int);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = constants();
        let (mut text, mut length) = (vec![0_u8; c.max_error_string as usize + 1], 0);
        // SAFETY: room for the longest text of this library, and for its end.
        let result = unsafe { native().error_string(self.0, text.as_mut_ptr().cast(), &mut length) };
        text.truncate(if result == c.success { length as usize } else { 0 });
        match String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n']) {
            "" => write!(f, "code {}", self.0),
            text => write!(f, "code {}: {text}", self.0),
        }
    }
}
