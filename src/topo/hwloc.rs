//! Finds the [`Containers`] of a machine with hwloc 2.
//!
//! Objects are read through the hwloc2 crate. A topology is configured and loaded by hwloc's own functions, because the
//! crate (2.2.0) wraps neither synthetic descriptions, XML files nor components. These parts of the crate are avoided:
//! - looking up NUMA nodes by type or depth panics (it takes hwloc's negative depth as unsigned), so a NUMA domain is
//!   the set of nodes that a PU has in its `nodeset`;
//! - `Display` of an object writes up to 2112 bytes into buffers of one byte each, that of a bitmap leaks;
//! - `TopologyObject::name` frees hwloc's memory, `cache_attributes` follows a pointer that may be null;
//! - its object lacks hwloc's field `symmetric_subtree` and has `memory_arity` in that place; the rest is in place.
//!
//! Most of the time is spent while hwloc opens its plugins. Only the environment (`HWLOC_PLUGINS_PATH`,
//! `HWLOC_PLUGINS_BLACKLIST`) prevents this, unless the MPI library has opened them already (MPICH 4.0.2).

use super::Caches;
use super::place::{Containers, Kind};
use hwloc2::{ObjectType, TopologyObject};
use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_ulong};
use std::marker::{PhantomData, PhantomPinned};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// hwloc's `struct hwloc_topology`.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
    _not_send: PhantomData<(*mut u8, PhantomPinned)>,
}

#[link(name = "hwloc")]
unsafe extern "C" {
    fn hwloc_get_api_version() -> c_uint;
    fn hwloc_topology_init(topology: *mut *mut Opaque) -> c_int;
    fn hwloc_topology_set_flags(topology: *mut Opaque, flags: c_ulong) -> c_int;
    fn hwloc_topology_set_components(topology: *mut Opaque, flags: c_ulong, name: *const c_char) -> c_int;
    fn hwloc_topology_set_synthetic(topology: *mut Opaque, description: *const c_char) -> c_int;
    fn hwloc_topology_set_xml(topology: *mut Opaque, path: *const c_char) -> c_int;
    fn hwloc_topology_load(topology: *mut Opaque) -> c_int;
    fn hwloc_topology_destroy(topology: *mut Opaque);
    fn hwloc_topology_is_thissystem(topology: *mut Opaque) -> c_int;
    fn hwloc_get_type_depth(topology: *mut Opaque, object_type: ObjectType) -> c_int;
    fn hwloc_get_nbobjs_by_depth(topology: *mut Opaque, depth: c_int) -> c_uint;
    fn hwloc_get_obj_by_depth(topology: *mut Opaque, depth: c_int, index: c_uint) -> *const TopologyObject;
}

/// `HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED`
const INCLUDE_DISALLOWED: c_ulong = 1;
/// `HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST`
const BLACKLIST: c_ulong = 1;

/// The containers of a machine: the one that `topology` describes (the value of `HUDDLE_TOPOLOGY`, in hwloc's synthetic
/// syntax), else that of `HWLOC_SYNTHETIC`, else that of the file `HWLOC_XMLFILE`, else this one. Empty values count as
/// unset. Other variables of hwloc have their usual effect. PUs outside the caller's cpuset are included: other ranks
/// may have them.
///
/// # Errors
/// One line that says what hwloc can't do, naming the variable at fault. There is no fallback to the real machine.
pub fn load(topology: Option<&str>) -> Result<Containers, String> {
    // 1. Where the machine is described.
    let machine = Machine::init()?;
    let synthetic = std::env::var_os("HWLOC_SYNTHETIC").filter(|value| !value.is_empty());
    let file = std::env::var_os("HWLOC_XMLFILE").filter(|value| !value.is_empty());
    let source = if let Some(topology) = topology.filter(|value| !value.is_empty()) {
        machine.set_synthetic("HUDDLE_TOPOLOGY", OsStr::new(topology))?;
        "HUDDLE_TOPOLOGY"
    } else if let Some(synthetic) = synthetic {
        machine.set_synthetic("HWLOC_SYNTHETIC", &synthetic)?;
        "HWLOC_SYNTHETIC"
    } else if let Some(file) = file {
        machine.set_file("HWLOC_XMLFILE=", &file)?;
        "HWLOC_XMLFILE"
    } else {
        machine.leave_out_components();
        "this machine"
    };
    // 2. Its PUs.
    machine.containers().map_err(|reason| format!("{source}: {reason}"))
}

/// The containers of the machine recorded in an XML file.
///
/// # Errors
/// Those of [`load`].
pub fn load_file(path: &Path) -> Result<Containers, String> {
    let machine = Machine::init()?;
    machine.set_file("", path.as_os_str())?;
    machine.containers().map_err(|reason| format!("{}: {reason}", path.display()))
}

/// hwloc's `struct hwloc_obj`, up to the pointer to its attributes.
#[repr(C)]
struct ObjectHead {
    object_type: c_int,
    subtype: *const c_char,
    os_index: c_uint,
    name: *const c_char,
    total_memory: u64,
    cache: *const CacheAttributes,
}

/// hwloc's `struct hwloc_cache_attr_s`, up to the last field that huddle reads.
#[repr(C)]
struct CacheAttributes {
    size: u64,
    depth: c_uint,
    line: c_uint,
}

/// The caches around a PU.
fn caches_of(pu: &TopologyObject) -> Caches {
    let mut caches = Caches::default();
    for object in std::iter::successors(pu.parent(), |object| object.parent()) {
        let size = match object.object_type() {
            ObjectType::L1Cache => &mut caches.l1,
            ObjectType::L2Cache => &mut caches.l2,
            ObjectType::L3Cache => &mut caches.l3,
            _ => continue,
        };
        // SAFETY: an object of a loaded topology starts with these fields in all of hwloc 2, and lives while it is
        // borrowed.
        let head = unsafe { &*std::ptr::from_ref(object).cast::<ObjectHead>() };
        // SAFETY: the attributes of a cache are those of this type, or null.
        if let Some(cache) = unsafe { head.cache.as_ref() } {
            *size = cache.size.min(u32::MAX.into()) as u32;
            caches.line = caches.line.max(cache.line);
        }
    }
    caches
}

/// The container of each kind around a PU.
fn containers_of(pu: &TopologyObject, domains: &mut Domains) -> [Option<u32>; Kind::ALL.len()] {
    let mut found = [None; Kind::ALL.len()];
    found[Kind::NumaDomain as usize] = domains.number_of(pu);
    for object in std::iter::successors(pu.parent(), |object| object.parent()) {
        let kind = match object.object_type() {
            ObjectType::Package => Kind::Package,
            ObjectType::L3Cache => Kind::L3,
            ObjectType::L2Cache => Kind::L2,
            _ => continue,
        };
        // The index is unique in the machine: hwloc keeps all objects of these types at one depth.
        found[kind as usize] = Some(object.logical_index());
    }
    found
}

/// The sets of NUMA nodes seen so far: a PU may have several nodes, such as one of DRAM and one of HBM.
#[derive(Default)]
struct Domains(Vec<Vec<u32>>);

impl Domains {
    /// The number of the set of nodes near `pu`, if any are known.
    fn number_of(&mut self, pu: &TopologyObject) -> Option<u32> {
        let nodes = pu.nodeset()?;
        // A negative weight is an infinite set: nothing is known.
        if nodes.weight() <= 0 {
            return None;
        }
        let nodes: Vec<u32> = nodes.into_iter().collect();
        let number = self.0.iter().position(|known| *known == nodes).unwrap_or_else(|| {
            self.0.push(nodes);
            self.0.len() - 1
        });
        Some(number as u32)
    }
}

/// An hwloc topology, not null, destroyed when dropped.
struct Machine(*mut Opaque);

impl Machine {
    /// A topology to be configured and loaded.
    fn init() -> Result<Self, String> {
        // SAFETY: takes no arguments. If the program itself brings an hwloc 1, its functions have the same names, and
        // are found before those of the hwloc 2 that huddle is linked with.
        let version = unsafe { hwloc_get_api_version() };
        if version >> 16 != 2 {
            return Err(format!("this process has hwloc {}.{}, not 2", version >> 16, version >> 8 & 0xff));
        }
        let mut topology = std::ptr::null_mut();
        // SAFETY: `topology` is written once, with a topology that is destroyed by Drop.
        if unsafe { hwloc_topology_init(&mut topology) } != 0 || topology.is_null() {
            return Err("hwloc can't make a topology".into());
        }
        let machine = Self(topology);
        // SAFETY: initialised and not loaded. All versions know the flag, so there is no failure to report.
        unsafe { hwloc_topology_set_flags(machine.0, INCLUDE_DISALLOWED) };
        Ok(machine)
    }

    /// Uses the synthetic description in `variable`.
    fn set_synthetic(&self, variable: &str, description: &OsStr) -> Result<(), String> {
        if is_too_large(&description.to_string_lossy()) {
            return Err(format!("{variable}={description:?} describes more than {MOST_PUS} processors"));
        }
        let rejected = || format!("{variable}={description:?} is not a synthetic topology of hwloc");
        let text = CString::new(description.as_bytes()).map_err(|_| rejected())?;
        // SAFETY: initialised and not loaded; `text` ends with a zero and is copied.
        let status = unsafe { hwloc_topology_set_synthetic(self.0, text.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(rejected()) }
    }

    /// Uses an XML file; complaints name it after `variable`.
    fn set_file(&self, variable: &str, path: &OsStr) -> Result<(), String> {
        let rejected = || format!("{variable}{path:?} is not a topology of hwloc");
        let text = CString::new(path.as_bytes()).map_err(|_| rejected())?;
        // SAFETY: initialised and not loaded; `text` ends with a zero and is copied.
        let status = unsafe { hwloc_topology_set_xml(self.0, text.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(rejected()) }
    }

    /// Leaves out components that tell nothing about caches and memories beyond what Linux tells, unless the
    /// environment chooses components. The important one is x86: it moves the calling thread to each PU in turn, where
    /// other ranks may be polling.
    fn leave_out_components(&self) {
        if ["HWLOC_COMPONENTS", "HWLOC_CPUID_PATH"].iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        for name in [c"x86", c"pci", c"opencl", c"cuda", c"nvml", c"rsmi", c"levelzero", c"gl"] {
            // SAFETY: initialised and not loaded; `name` lives on. Fails harmlessly for components that this hwloc
            // doesn't have.
            unsafe { hwloc_topology_set_components(self.0, BLACKLIST, name.as_ptr()) };
        }
    }

    /// Discovers the machine and the containers around its PUs.
    fn containers(&self) -> Result<Containers, String> {
        self.load()?;
        let mut domains = Domains::default();
        let pus: Vec<_> = self.pus().map(|pu| (pu.os_index(), containers_of(pu, &mut domains))).collect();
        if pus.is_empty() {
            return Err("hwloc finds no processor".into());
        }
        let caches = self.pus().map(caches_of).fold(Caches::default(), Caches::and);
        let found = Containers::new(&pus).with_caches(caches);
        Ok(if self.is_pretended() { found.pretended() } else { found })
    }

    /// Discovers the machine.
    fn load(&self) -> Result<(), String> {
        // SAFETY: initialised and not loaded: called once, by `super::load`.
        let status = unsafe { hwloc_topology_load(self.0) };
        if status == 0 { Ok(()) } else { Err(format!("hwloc can't load it ({})", std::io::Error::last_os_error())) }
    }

    /// Whether the topology is that of another machine than the one that runs us.
    fn is_pretended(&self) -> bool {
        // SAFETY: loaded.
        unsafe { hwloc_topology_is_thissystem(self.0) == 0 }
    }

    /// The PUs in the order of the machine, none if hwloc knows none (an XML file may leave them out).
    fn pus(&self) -> impl Iterator<Item = &TopologyObject> {
        // SAFETY: loaded.
        let depth = unsafe { hwloc_get_type_depth(self.0, ObjectType::PU) };
        // SAFETY: loaded.
        let count = if depth < 0 { 0 } else { unsafe { hwloc_get_nbobjs_by_depth(self.0, depth) } };
        // SAFETY: loaded; returns null or an object that nothing changes until the topology, borrowed here, is
        // destroyed. The fields that the crate reads for us are at the same places in all of hwloc 2 (see above).
        (0..count).filter_map(move |index| unsafe { hwloc_get_obj_by_depth(self.0, depth, index).as_ref() })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: made by `init`, destroyed once, and objects borrow `self`.
        unsafe { hwloc_topology_destroy(self.0) }
    }
}

/// Larger synthetic machines are refused: hwloc's time grows with the square of siblings and more (`pu:2048` 0.34 s,
/// `pu:8192` 17 s).
const MOST_PUS: u64 = 2048;

/// Whether a synthetic description asks for more than [`MOST_PUS`], in number or as an explicit index. hwloc would work
/// on such a description for minutes.
fn is_too_large(description: &str) -> bool {
    let (mut pus, mut largest_index) = (1u64, 0);
    for part in description.split(')') {
        let (levels, attributes) = part.split_once('(').unwrap_or((part, ""));
        pus = numbers(levels).fold(pus, |pus, number| pus.saturating_mul(number.max(1)));
        let lists = attributes.split(' ').filter_map(|attribute| attribute.strip_prefix("indexes="));
        largest_index = lists.flat_map(numbers).fold(largest_index, u64::max);
    }
    pus > MOST_PUS || largest_index > MOST_PUS
}

/// The numbers in a text, except those in names such as `l3`. They are read in base 10 or 16, and are at least what
/// strtoul reads.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let words = text
        .split(|byte: char| !byte.is_ascii_alphanumeric())
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    words.map(|word| {
        let (digits, base) = word.strip_prefix("0x").or(word.strip_prefix("0X")).map_or((word, 10), |hex| (hex, 16));
        let digits = digits.chars().map_while(|digit| digit.to_digit(base));
        digits.fold(0u64, |number, digit| number.saturating_mul(base.into()).saturating_add(digit.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::place::{self, CpuMask};
    use std::process::Command;

    /// The answer of [`load`] in a process with these variables, and what that process writes to stderr. The value of
    /// `HUDDLE_TEST_TOPOLOGY` is its argument there.
    fn load_with(variables: &[(&str, &str)]) -> (String, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"HWLOC_")) {
            command.env_remove(name);
        }
        command.args(["--exact", "topo::hwloc::tests::load_and_print", "--ignored", "--nocapture", "--test-threads=1"]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let answer = stdout.lines().find_map(|line| line.split_once("answer: ")).expect(&stdout).1;
        (answer.to_owned(), String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    #[ignore = "the child process of the other tests"]
    fn load_and_print() {
        let topology = std::env::var("HUDDLE_TEST_TOPOLOGY").ok();
        let start = std::time::Instant::now();
        let loaded = load(topology.as_deref());
        let elapsed = start.elapsed();
        match loaded {
            Ok(machine) => {
                let paths = place::paths(&machine, &vec![CpuMask::EMPTY; machine.pus()]);
                println!("answer: {} {:?} {paths:?}", machine.is_pretended(), machine.kinds());
                println!("time: {elapsed:?}");
            }
            Err(reason) => println!("answer: {reason}"),
        }
    }

    #[track_caller]
    fn expect(variables: &[(&str, &str)], answer: &str) {
        assert_eq!(load_with(variables), (answer.to_owned(), String::new()), "{variables:?}");
    }

    const TWO_BY_THREE: &str = "true [NumaDomain, Package] [[0, 0], [0, 0], [0, 0], [0, 1], [0, 1], [0, 1]]";

    #[test]
    fn synthetic_machines_are_pretended() {
        for variable in ["HWLOC_SYNTHETIC", "HUDDLE_TEST_TOPOLOGY"] {
            expect(&[(variable, "package:2 core:3 pu:1")], TWO_BY_THREE);
        }
        expect(
            &[("HWLOC_SYNTHETIC", "numa:2 package:2 l3:1 l2:2 pu:1")],
            "true [NumaDomain, Package, L3, L2] [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 2], [0, 1, 1, 3], \
             [1, 2, 2, 4], [1, 2, 2, 5], [1, 3, 3, 6], [1, 3, 3, 7]]",
        );
        expect(
            &[("HUDDLE_TEST_TOPOLOGY", "package:1 l3:1 numa:2 l2:1 pu:2")],
            "true [Package, L3, NumaDomain, L2] [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]",
        );
    }

    #[test]
    fn the_argument_overrides_the_environment() {
        let topology = ("HUDDLE_TEST_TOPOLOGY", "package:2 core:3 pu:1");
        expect(&[topology, ("HWLOC_SYNTHETIC", "pu:2"), ("HWLOC_XMLFILE", "/nonexistent")], TWO_BY_THREE);
    }

    #[test]
    fn a_pu_with_two_memories_is_in_one_domain() {
        let (answer, _) = load_with(&[("HWLOC_SYNTHETIC", "package:2 [numa] [numa] pu:2")]);
        assert_eq!(answer, "true [Package, NumaDomain] [[0, 0], [0, 0], [1, 1], [1, 1]]");
    }

    #[test]
    fn bad_descriptions_are_errors() {
        let mut bad =
            vec!["garbage", "package:2 core:", "package:-1", "package:0", "pu:2 core:2", "core:2((", "\u{e9}\n"];
        bad.extend([
            "pu:70000",
            "package:100 core:100",
            "package:4294967296 pu:0xffffffff",
            "pu:2(indexes=0,4000000000)",
        ]);
        for description in bad {
            for (variable, named) in
                [("HWLOC_SYNTHETIC", "HWLOC_SYNTHETIC"), ("HUDDLE_TEST_TOPOLOGY", "HUDDLE_TOPOLOGY")]
            {
                let (answer, stderr) = load_with(&[(variable, description)]);
                assert!(answer.starts_with(&format!("{named}={description:?} ")), "{description:?}: {answer}");
                assert_eq!(stderr, "", "{description:?}");
            }
        }
    }

    /// A machine of one package with PUs 0 and 7.
    const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x81" complete_cpuset="0x81" allowed_cpuset="0x81"
   nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x81" complete_cpuset="0x81"
     nodeset="0x1" complete_nodeset="0x1" gp_index="2" local_memory="1"/>
    <object type="Package" os_index="0" cpuset="0x81" complete_cpuset="0x81"
     nodeset="0x1" complete_nodeset="0x1" gp_index="3">
      <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1"
       nodeset="0x1" complete_nodeset="0x1" gp_index="4"/>
      <object type="PU" os_index="7" cpuset="0x80" complete_cpuset="0x80"
       nodeset="0x1" complete_nodeset="0x1" gp_index="5"/>
    </object>
  </object>
</topology>
"#;

    #[test]
    fn recorded_machines_are_read_and_damaged_ones_are_errors() {
        let damaged = [&XML[..700], "<garbage", "", &XML.replace("\"PU\"", "\"Core\"")];
        let path = std::env::temp_dir().join(format!("huddle-hwloc-{}.xml", std::process::id()));
        let text_of_path = path.to_str().unwrap();
        // hwloc has two readers: libxml2 in a plugin, and its own.
        for reader in ["0", "1"] {
            let variables = [("HWLOC_XMLFILE", text_of_path), ("HWLOC_LIBXML", reader)];
            std::fs::write(&path, XML).unwrap();
            expect(&variables, "true [Package, NumaDomain] [[0, 0], [0, 0]]");
            for text in damaged {
                std::fs::write(&path, text).unwrap();
                let (answer, stderr) = load_with(&variables);
                assert!(answer.starts_with("HWLOC_XMLFILE"), "{answer}");
                assert_eq!(stderr, "", "{text}");
            }
            std::fs::remove_file(&path).unwrap();
            assert!(load_with(&variables).0.starts_with("HWLOC_XMLFILE"));
        }
    }

    #[test]
    fn this_machine_is_not_pretended_and_holds_this_thread() {
        for variable in [None, Some(("HWLOC_SYNTHETIC", "")), Some(("HWLOC_COMPONENTS", "linux,stop"))] {
            let (answer, stderr) = load_with(variable.as_slice());
            assert!(answer.starts_with("false "), "{variable:?}: {answer}");
            assert_eq!(stderr, "", "{variable:?}");
        }
    }

    #[test]
    fn numbers_in_names_do_not_count() {
        assert!(!is_too_large("package:2 [numa(memory=4294967296)] l3:4 l2:16 pu:8(indexes=0,2047)"));
        assert!(is_too_large("l3:0x801"));
        assert!(is_too_large("2 3 4 100"));
    }
}
