//! Which ranks run without huddle. This is found out beside MPI, before the first collective that huddle inserts, which
//! these ranks would never join.
//!
//! 1. Before the native `MPI_Init` a rank with huddle puts a key into PMIx, the store through which the ranks of Open
//!    MPI exchange their addresses ([`announce`]).
//! 2. The native `MPI_Init` commits what its rank has put, and its fence brings that to all ranks, with or without
//!    huddle.
//! 3. After it a rank with huddle looks for the key of each rank ([`Announcement::missing`]).
//!
//! All ranks with huddle come to the same verdict: a key is put before the fence or never, the fence waits for all
//! ranks and brings everything, and all ranks look at the same keys. Where keys are exchanged otherwise
//! (asynchronously, or on demand: [`Pmix::brings_everything`]) an absent key means nothing, and there is no verdict. A
//! rank that can't tell, for whatever reason, waits like one that misses nobody. So a job in which all ranks have
//! huddle is served in any case, and in all others a rank that waits in vain says so ([`super::agree`]).
//!
//! The library must be the one that this MPI uses, though MPI has not loaded it yet: a second library would be a second
//! client in the name of the same rank. So it is found through MPI's own plugin. Only Open MPI 4 is known to bear a
//! PMIx that was initialised before: Open MPI 5 takes its rank from its own `PMIx_Init`, which it leaves out if another
//! call came first.
//!
//! It costs one request to the host's PMIx server for each rank looked at (`bench/limits.c init` times the whole of
//! MPI_Init). `PMIx_Init` in the native `MPI_Init` takes as much less time as it takes here.

use super::loader::LOADER;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{offset_of, transmute};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The key; its value stands for the build (`protocol` in [`super::init`]).
const KEY: &CStr = c"huddle.protocol";

/// In larger jobs this many ranks are looked at, evenly spread. A host without huddle is found if it holds at least one
/// in `LOOKED_AT` of the ranks.
const LOOKED_AT: u32 = 256;

/// A rank that runs without huddle, or with another version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// One such rank.
    pub rank: u32,
    /// Whether this is the one rank that tells people.
    pub is_told_here: bool,
}

/// What is kept between [`announce`] and the verdict: a reference to PMIx, which is given back on drop.
pub struct Announcement {
    pmix: Pmix,
    own: Proc,
    protocol: u32,
    is_put: bool,
}

/// Tells the other ranks that this one has huddle; `None` if there is no way to do so, or none that is known to be
/// safe. Called right before the native `MPI_Init`; only the first call does something.
pub fn announce(protocol: u32) -> Option<Announcement> {
    static IS_TRIED: AtomicBool = AtomicBool::new(false);
    let loader = LOADER.get()?;
    if !has_server() || !loader.mpi_version.starts_with("Open MPI v4.") || IS_TRIED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let pmix = Pmix::of(&loader.mpi_path)?;
    let own = pmix.enter()?;
    let is_put = pmix.put(protocol);
    Some(Announcement { pmix, own, protocol, is_put })
}

/// Whether the environment is that of a rank which mpiexec or srun started with a PMIx server. Without the server
/// `PMIx_Init` fails, and fails again in the native `MPI_Init`, which otherwise gets along as a job of one rank.
fn has_server() -> bool {
    let has =
        |prefix: &str| std::env::vars_os().any(|(name, _)| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
    ["PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI"].into_iter().all(has)
        && ["OMPI_COMM_WORLD_SIZE", "SLURM_PROCID"].into_iter().any(has)
}

impl Announcement {
    /// A rank without this version of huddle among the `size` ranks of the job; `None` if all have it, or if that can't
    /// be known. Called after the native `MPI_Init`.
    pub fn missing(&self, size: u32) -> Option<Missing> {
        if !self.is_put || !self.pmix.brings_everything() {
            return None;
        }
        let (mut with, mut without) = (None, None);
        for rank in (0..size).step_by(size.div_ceil(LOOKED_AT).max(1) as usize) {
            let has_it = self.pmix.get(&Proc { rank, ..self.own }).ok()? == Some(self.protocol);
            let first = if has_it { &mut with } else { &mut without };
            first.get_or_insert(rank);
            if with.is_some() && without.is_some() {
                break;
            }
        }
        let is_told_here = with.is_none_or(|with| with == self.own.rank);
        without.map(|rank| Missing { rank, is_told_here })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // SAFETY: pairs with the `PMIx_Init` of `enter`; null stands for no directives. MPI holds a reference of its
        // own.
        unsafe { (self.pmix.finalize)(std::ptr::null(), 0) };
    }
}

/// `pmix_proc_t`
#[derive(Clone, Copy)]
#[repr(C)]
struct Proc {
    nspace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`: the largest member of the union has three words.
#[repr(C)]
struct Value {
    kind: u16,
    data: [u64; 3],
}

/// `pmix_info_t`
#[repr(C)]
struct Info {
    key: [c_char; 512],
    flags: u32,
    value: Value,
}

// Sizes and offsets as in the headers of PMIx 3, 4 and 5, on 64 bits.
const _: () = assert!(size_of::<Proc>() == 260 && offset_of!(Value, data) == 8 && size_of::<Value>() == 32);
const _: () = assert!(offset_of!(Info, value) == 520 && size_of::<Info>() == 552);

/// The versions of PMIx whose structures are those above.
const KNOWN: std::ops::RangeInclusive<u32> = 3..=5;

const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = -46;
const BOOL: u16 = 1;
const UINT32: u16 = 14;
const GLOBAL: u8 = 3;
/// The server answers from what it has, without asking or waiting for anyone.
const IMMEDIATE: &CStr = c"pmix.immediate";

impl Value {
    fn new(kind: u16, bytes: &[u8]) -> Self {
        let mut first = [0; 8];
        first[..bytes.len()].copy_from_slice(bytes);
        Self { kind, data: [u64::from_ne_bytes(first), 0, 0] }
    }

    fn as_u32(&self) -> Option<u32> {
        let [a, b, c, d, ..] = self.data[0].to_ne_bytes();
        (self.kind == UINT32).then_some(u32::from_ne_bytes([a, b, c, d]))
    }
}

impl Info {
    fn switched_on(name: &CStr) -> Self {
        let mut key = [0; 512];
        for (to, from) in key.iter_mut().zip(name.to_bytes()) {
            *to = *from as c_char;
        }
        Self { key, flags: 0, value: Value::new(BOOL, &[1]) }
    }
}

/// The functions of the PMIx library that this MPI uses. It stays loaded.
struct Pmix {
    mpi: Library,
    init: unsafe extern "C" fn(*mut Proc, *const Info, usize) -> c_int,
    finalize: unsafe extern "C" fn(*const Info, usize) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *const Value) -> c_int,
    get: unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int,
}

impl Pmix {
    /// The functions of the PMIx library of the MPI library at `mpi_path`, if its version is known.
    fn of(mpi_path: &CStr) -> Option<Self> {
        let mpi = Library::open(mpi_path, libc::RTLD_NOLOAD)?;
        let library = if mpi.find(c"PMIx_Init").is_some() { mpi } else { plugin(mpi_path)? };
        let version = library.find(c"PMIx_Get_version")?;
        // SAFETY: the prototype is that of all versions; the result is a string that lives as long as the library.
        let version = unsafe {
            let version: unsafe extern "C" fn() -> *const c_char = transmute(version);
            CStr::from_ptr(version()).to_string_lossy()
        };
        if !major(&version).is_some_and(|major| KNOWN.contains(&major)) {
            return None;
        }
        let functions = [c"PMIx_Init", c"PMIx_Finalize", c"PMIx_Put", c"PMIx_Get"].map(|name| library.find(name));
        let [Some(init), Some(finalize), Some(put), Some(get)] = functions else {
            return None;
        };
        // SAFETY: the prototypes of the known versions, over pointers to the structures above.
        unsafe {
            Some(Self {
                mpi,
                init: transmute::<*mut c_void, unsafe extern "C" fn(*mut Proc, *const Info, usize) -> c_int>(init),
                finalize: transmute::<*mut c_void, unsafe extern "C" fn(*const Info, usize) -> c_int>(finalize),
                put: transmute::<*mut c_void, unsafe extern "C" fn(u8, *const c_char, *const Value) -> c_int>(put),
                get: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int,
                >(get),
            })
        }
    }

    /// Takes a reference to PMIx. Returns the name of this process in it.
    fn enter(&self) -> Option<Proc> {
        let mut own = Proc { nspace: [0; 256], rank: 0 };
        // SAFETY: a valid place, and no directives.
        let code = unsafe { (self.init)(&mut own, std::ptr::null(), 0) };
        (code == SUCCESS).then_some(own)
    }

    /// Puts the key, for ranks on all hosts; MPI commits it with its own keys.
    fn put(&self, protocol: u32) -> bool {
        let value = Value::new(UINT32, &protocol.to_ne_bytes());
        // SAFETY: a C string and a value, of which the library makes copies.
        unsafe { (self.put)(GLOBAL, KEY.as_ptr(), &value) == SUCCESS }
    }

    /// The number that a process has put; `Ok(None)` if it has not put the key. The error is why that can't be known.
    fn get(&self, of: &Proc) -> Result<Option<u32>, c_int> {
        let directive = Info::switched_on(IMMEDIATE);
        let mut value = std::ptr::null_mut::<Value>();
        // SAFETY: valid places; the library reads the others during the call only.
        let code = unsafe { (self.get)(of, KEY.as_ptr(), &directive, 1, &mut value) };
        // SAFETY: null, or a value that the library has made for the caller.
        let number = unsafe { value.as_ref() }.map(Value::as_u32);
        // SAFETY: null or from malloc; a number owns no more memory.
        unsafe { libc::free(value.cast()) };
        match (code, number) {
            (SUCCESS, Some(number)) => Ok(number),
            (NOT_FOUND, _) => Ok(None),
            _ => Err(code),
        }
    }

    /// Whether MPI exchanges all keys in `MPI_Init` and waits until that is done. It does, unless the user has asked
    /// otherwise.
    fn brings_everything(&self) -> bool {
        let is_set = |name| {
            let address = self.mpi.find(name)?.cast::<u8>();
            // SAFETY: a C bool of the library, set in MPI_Init and never changed.
            Some(unsafe { address.read() } != 0)
        };
        is_set(c"opal_pmix_base_async_modex") == Some(false) && is_set(c"opal_pmix_collect_all_data") == Some(true)
    }
}

/// A library that stays open.
#[derive(Clone, Copy)]
pub(super) struct Library(*mut c_void);

impl Library {
    pub fn open(path: &CStr, flags: c_int) -> Option<Self> {
        // SAFETY: a C string; MPI opens its plugins in the same way.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// The address of a name in the library or in those that it needs.
    pub fn find(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, the name a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// The plugin through which the MPI at `mpi_path` reaches a PMIx library that is not part of it.
fn plugin(mpi_path: &CStr) -> Option<Library> {
    if std::env::var_os("OMPI_MCA_mca_base_component_path").is_some() {
        return None; // MPI looks elsewhere
    }
    let mpi_path = Path::new(mpi_path.to_str().ok()?).canonicalize().ok()?;
    let path = candidates(mpi_path.parent()?).into_iter().find(|path| path.exists())?;
    Library::open(&CString::new(path.into_os_string().into_encoded_bytes()).ok()?, 0)
}

/// Where the plugin may lie, for an MPI library in `directory`: Open MPI's own place, and Debian's.
fn candidates(directory: &Path) -> [PathBuf; 2] {
    ["openmpi", "openmpi/lib/openmpi3"].map(|place| directory.join(place).join("mca_pmix_ext3x.so"))
}

/// The major version in a text such as "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, …)" or "3.1.5".
fn major(version: &str) -> Option<u32> {
    let number = version.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    number.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0)"), Some(4));
        assert_eq!(major("PMIx library version OpenPMIx 5.0.1"), Some(5));
        assert_eq!(major("3.1.5"), Some(3));
        assert_eq!(major("OpenPMIx"), None);
        assert_eq!(major(""), None);
    }

    #[test]
    fn numbers_come_back_and_other_kinds_do_not() {
        assert_eq!(Value::new(UINT32, &7_u32.to_ne_bytes()).as_u32(), Some(7));
        assert_eq!(Value::new(BOOL, &[1]).as_u32(), None);
    }
}
