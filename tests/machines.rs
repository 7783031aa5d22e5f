//! Recorded machines: what huddle sees of them, and how ranks lie on them.
//!
//! The files in `tests/fixtures` are exports of `lstopo --of xml`, without its `info` elements. `cloud-1x2` is a real
//! machine; the others are synthetic descriptions of machines that the papers use and of nestings that exist. The
//! expected values were written down by hand from lstopo's text output.

use huddle::topo::{Caches, Containers, CpuMask, Hierarchy, Kind, Levels, found, hwloc, place};
use huddle::types::NodeRank;
use std::path::Path;

fn load(name: &str) -> Containers {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).with_extension("xml");
    hwloc::load_file(&path).expect(name)
}

/// The same machine as if this test ran on it, so that masks count.
fn load_real(name: &str) -> Containers {
    let mut bytes = load(name).to_bytes();
    assert_eq!(bytes[0], 1, "a recorded machine is pretended");
    bytes[0] = 0;
    Containers::from_bytes(&bytes)
}

/// Valid only if the environment names no other machine to hwloc.
#[test]
fn what_is_kept_of_this_machine_is_what_hwloc_finds() {
    let directory = std::env::temp_dir().join(format!("huddle-machines-{}", std::process::id()));
    let found = hwloc::load(None).expect("this machine");
    assert!(!found.processors().is_empty());
    assert_eq!(found::look_up_or_find(Some(&directory), || hwloc::load(None)), Ok(found.clone()));
    assert_eq!(found::look_up_or_find(Some(&directory), || Err("looked again".into())), Ok(found));
    std::fs::remove_dir_all(directory).expect("something was kept");
}

type Steps = Vec<(u16, Option<Kind>)>;

fn hierarchy_of(containers: &Containers, paths: &[Vec<u32>]) -> Steps {
    let hierarchy = Hierarchy::of(&Levels::from_paths(paths, NodeRank(0)), containers.kinds(), containers.trunk());
    hierarchy.steps().iter().map(|step| (step.fan, step.shares)).collect()
}

/// The hierarchy of `ranks` ranks placed in the order of the machine.
fn pretended(name: &str, ranks: usize) -> Steps {
    let containers = load(name);
    hierarchy_of(&containers, &place::paths(&containers, &vec![CpuMask::EMPTY; ranks]))
}

/// The hierarchy of ranks that are bound to these PUs.
fn bound(name: &str, masks: &[&[u32]]) -> Steps {
    let containers = load_real(name);
    let masks: Vec<CpuMask> = masks.iter().map(|pus| pus.iter().copied().collect()).collect();
    hierarchy_of(&containers, &place::paths(&containers, &masks))
}

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

#[test]
fn the_nesting_and_the_caches_of_each_machine() {
    use Kind::{L2, L3, NumaDomain, Package};
    let expected = [
        ("westmere-2x6", 12, vec![Package, NumaDomain, L3, L2], [64, 32 * KIB, 256 * KIB, 12 * MIB], 0),
        ("magny-cours-4x8", 32, vec![Package, NumaDomain, L3, L2], [64, 64 * KIB, 512 * KIB, 10 * MIB], 0),
        ("zen-smt-2x2x2x2x2", 32, vec![Package, NumaDomain, L3, L2], [64, 32 * KIB, MIB, 32 * MIB], 0),
        ("subnuma-2x2x3", 12, vec![Package, L3, NumaDomain, L2], [64, 48 * KIB, 2 * MIB, 36 * MIB], 0),
        ("cloud-1x2", 2, vec![Package, NumaDomain, L3, L2], [64, 48 * KIB, MIB, 32 * MIB], 3),
    ];
    for (name, pus, kinds, caches, trunk) in expected {
        let containers = load(name);
        assert_eq!((containers.pus(), containers.kinds()), (pus, &*kinds), "{name}");
        assert_eq!((containers.caches(), containers.trunk()), (Caches::from_numbers(caches), trunk), "{name}");
        assert_eq!(Containers::from_bytes(&containers.to_bytes()), containers, "{name}");
    }
}

#[test]
fn full_nodes() {
    use Kind::{L2, L3, NumaDomain, Package};
    assert_eq!(pretended("westmere-2x6", 12), [(2, None), (6, Some(L3))]);
    assert_eq!(pretended("magny-cours-4x8", 32), [(4, None), (8, Some(L3))]);
    let all_twos = [(2, None), (2, Some(Package)), (2, Some(NumaDomain)), (2, Some(L3)), (2, Some(L2))];
    assert_eq!(pretended("zen-smt-2x2x2x2x2", 32), all_twos);
    assert_eq!(pretended("subnuma-2x2x3", 12), [(2, None), (2, Some(L3)), (3, Some(NumaDomain))]);
    assert_eq!(pretended("cloud-1x2", 2), [(2, Some(L3))]);
}

#[test]
fn partly_used_and_crowded_nodes() {
    use Kind::{L2, L3};
    assert_eq!(pretended("westmere-2x6", 6), [(6, Some(L3))], "the first package");
    assert_eq!(pretended("westmere-2x6", 8), [(2, None), (6, Some(L3))], "six and two");
    assert_eq!(pretended("cloud-1x2", 4), [(2, Some(L3)), (2, Some(L2))], "two on each core");
    let spread: Vec<[u32; 1]> = (0..8).map(|rank| [rank % 2 * 6 + rank / 2]).collect();
    let spread: Vec<&[u32]> = spread.iter().map(|pus| &pus[..]).collect();
    assert_eq!(bound("westmere-2x6", &spread), [(2, None), (4, Some(L3))], "in turn on both packages");
    assert_eq!(bound("westmere-2x6", &[&[0], &[6]]), [(2, None)]);
}

#[test]
fn ranks_that_share_cores() {
    use Kind::{L2, L3};
    assert_eq!(bound("zen-smt-2x2x2x2x2", &[&[0], &[1]]), [(2, Some(L2))], "the two threads of a core");
    assert_eq!(bound("zen-smt-2x2x2x2x2", &[&[0], &[0]]), [(2, Some(L2))], "one thread");
    assert_eq!(bound("zen-smt-2x2x2x2x2", &[&[0, 1], &[2, 3]]), [(2, Some(L3))], "bound to a core each");
    let pairs: [&[u32]; 4] = [&[0], &[1], &[2], &[3]];
    assert_eq!(bound("zen-smt-2x2x2x2x2", &pairs), [(2, Some(L3)), (2, Some(L2))]);
}

#[test]
fn unbound_and_limited_ranks() {
    use Kind::{L3, NumaDomain};
    let (all, second): (Vec<u32>, Vec<u32>) = ((0..12).collect(), (6..12).collect());
    assert_eq!(bound("westmere-2x6", &[&all, &all, &all]), [(3, None)], "anywhere");
    assert_eq!(bound("westmere-2x6", &[&second, &second]), [(2, Some(L3))], "in the cpuset of a package");
    assert_eq!(bound("westmere-2x6", &[&[0], &all]), [(2, None)], "one bound, one not");
    assert_eq!(bound("westmere-2x6", &[&[], &[0]]), [(2, None)], "one unknown");
    assert_eq!(bound("cloud-1x2", &[&[0, 1], &[0, 1]]), [(2, Some(L3))]);
    assert_eq!(bound("subnuma-2x2x3", &[&[0, 1, 2], &[0, 1, 2]]), [(2, Some(NumaDomain))]);
}

#[test]
fn a_file_that_is_none_is_an_error() {
    let missing = hwloc::load_file(Path::new("/nonexistent.xml")).unwrap_err();
    assert!(missing.contains("/nonexistent.xml"), "{missing}");
}
