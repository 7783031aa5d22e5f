//! Opens the engine that was built for the MPI found.

use crate::abi::{ABI, Entry, Loader, Open};
use crate::mpi::Mpi;
use crate::objects::{own_path, symbol};
use crate::slots::{self, Kind, NAMES};
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// An engine that accepted this loader. Never closed: the table points into it.
pub struct Engine {
    entry: Entry,
}

impl Engine {
    /// Opens `huddle/libhuddle-<family>.so` beside this library. The error says why it can't be used.
    pub fn open(mpi: &Mpi) -> Result<Engine, String> {
        let version = mpi.version.to_string_lossy();
        let version = version.lines().next().unwrap_or_default().trim();
        let family = mpi.family().ok_or_else(|| format!("no engine for this MPI library ({version})"))?;
        let own = own_path();
        let beside = Path::new(OsStr::from_bytes(own.as_bytes())).parent().unwrap_or(Path::new("."));
        let path = beside.join(format!("huddle/libhuddle-{family}.so"));
        let handle = open_object(&path)?;
        let open = symbol(handle, c"huddle_engine_open");
        let entry = symbol(handle, c"huddle_engine_entry");
        let (Some(open), Some(entry)) = (open, entry) else {
            return Err(format!("{} is not an engine", path.display()));
        };
        // SAFETY: the two names have these types in every version of the interface (`abi`).
        let open = unsafe { transmute::<*mut c_void, Open>(open) };
        // SAFETY: the two names have these types in every version of the interface (`abi`).
        let entry = unsafe { transmute::<*mut c_void, Entry>(entry) };
        // SAFETY: `description` returns a reference that lives for ever.
        match unsafe { open(description(mpi)) } {
            0 => Ok(Engine { entry }),
            code => Err(format!("{} refused to open ({code})", path.display())),
        }
    }

    /// The engine's function for `name`, if it serves it.
    pub fn entry(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the engine is open, the name a C string.
        let function = unsafe { (self.entry)(name.as_ptr()) };
        (!function.is_null()).then_some(function.cast_mut())
    }
}

/// The description that the engine gets; the engine may keep the reference.
fn description(mpi: &Mpi) -> &'static Loader {
    let keep = |text: &CString| text.clone().into_raw().cast_const();
    Box::leak(Box::new(Loader {
        abi: ABI,
        mpi: mpi.handle,
        mpi_path: keep(&mpi.path),
        mpi_version: keep(&mpi.version),
        calls,
        counted,
        traffic: &slots::TRAFFIC,
    }))
}

/// Opens the object at `path` with all libraries that it needs. The error is the dynamic linker's reason: the file, or
/// a library that it needs, is missing.
fn open_object(path: &Path) -> Result<*mut c_void, String> {
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the path is a C string; dlerror's text is copied before another call of the linker.
    let reason = unsafe {
        let handle = libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if !handle.is_null() {
            return Ok(handle);
        }
        let reason = libc::dlerror();
        if reason.is_null() { c"no reason given" } else { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
    };
    let remedy = if path.exists() { "" } else { " (scripts/install --mpicc builds engines)" };
    let path = path.display().to_string();
    let reason = reason.strip_prefix(&format!("{path}: ")).unwrap_or(&reason);
    Err(format!("{path} does not open: {reason}{remedy}"))
}

/// [`Loader::calls`].
unsafe extern "C" fn calls(name: *const c_char) -> u64 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: the engine passes a C string.
    slots::calls(unsafe { CStr::from_ptr(name) })
}

/// [`Loader::counted`].
extern "C" fn counted(index: usize) -> *const c_char {
    let mut names = NAMES.iter().filter(|name| matches!(name.kind, Kind::Counted | Kind::Begun));
    names.nth(index).map_or(ptr::null(), |name| name.public.as_ptr())
}
