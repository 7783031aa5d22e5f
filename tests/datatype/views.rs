//! Buffers as packed bytes, compared with `MPI_Pack` and `MPI_Unpack`.

use crate::Random;
use crate::constructors::{Constructors, committed, free, make, random_datatype};
use huddle::kernel::PackedBuffer;
use huddle::mpi::datatype::{TypeLayout, TypeMap};
use huddle::mpi::handles::constants;
use huddle::mpi::native::native;
use huddle::mpi::view::View;
use mpi_sys::{MPI_Aint, MPI_Comm, MPI_Count, MPI_Datatype};
use std::collections::HashSet;
use std::ffi::c_int;
use std::sync::Arc;

/// Memory around `count` elements, and the offset of the buffer's address in it.
struct Memory {
    bytes: Vec<u8>,
    base: usize,
}

impl Memory {
    fn of(layout: &TypeLayout, count: usize) -> Self {
        let last = layout.extent * (count as isize - 1).max(0);
        let low = layout.true_lb + last.min(0);
        let high = layout.true_lb + layout.true_extent as isize + last.max(0);
        let base = 64 + (-low).max(0) as usize;
        Self { bytes: vec![0; base + 64 + high.max(0) as usize], base }
    }

    fn address(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_add(self.base)
    }
}

fn pack(address: *const u8, count: usize, datatype: MPI_Datatype, bytes: usize, comm: MPI_Comm) -> Vec<u8> {
    let mut packed = vec![0; bytes + 8];
    let mut position = 0;
    // SAFETY: the memory around the address holds `count` elements.
    let code = unsafe {
        native().pack(
            address.cast(),
            count as c_int,
            datatype,
            packed.as_mut_ptr().cast(),
            bytes as c_int,
            &mut position,
            comm,
        )
    };
    assert_eq!((code, position as usize), (0, bytes));
    packed.truncate(bytes);
    packed
}

fn unpack(packed: &[u8], address: *mut u8, count: usize, datatype: MPI_Datatype, comm: MPI_Comm) {
    let mut position = 0;
    let (from, n) = (packed.as_ptr().cast(), packed.len() as c_int);
    // SAFETY: the memory around the address holds `count` elements.
    let code = unsafe { native().unpack(from, n, &mut position, address.cast(), count as c_int, datatype, comm) };
    assert_eq!((code, position), (0, n));
}

/// Whether no two packed bytes are at the same place in memory.
fn is_disjoint(memory: &mut Memory, count: usize, datatype: MPI_Datatype, comm: MPI_Comm) -> bool {
    // SAFETY: the memory holds the elements.
    let view = unsafe { View::new(memory.address().cast(), count as u64, datatype, comm) }.expect("committed");
    let mut places = vec![0usize; view.len()];
    let mut packed = vec![0; view.len()];
    for byte in 0..3 {
        for (place, value) in memory.bytes.iter_mut().enumerate() {
            *value = (place >> (8 * byte)) as u8;
        }
        // SAFETY: the whole buffer.
        unsafe { view.clone().read(0, packed.as_mut_ptr(), packed.len()) };
        places.iter_mut().zip(&packed).for_each(|(place, value)| *place |= usize::from(*value) << (8 * byte));
    }
    places.iter().collect::<HashSet<_>>().len() == places.len()
}

/// Compares a committed datatype with the library. Returns whether huddle flattened it.
fn compare(datatype: MPI_Datatype, count: usize, random: &mut Random, names: &str, comm: MPI_Comm) -> bool {
    // SAFETY: a valid datatype and a communicator of this process.
    let layout = unsafe { TypeLayout::of(datatype, comm) }.expect("committed");
    let mut memory = Memory::of(&layout, count);
    let bytes = layout.size * count;
    assert!(memory.bytes.len() < 1 << 24);
    if !is_disjoint(&mut memory, count, datatype, comm) {
        return !matches!(layout.type_map, TypeMap::Opaque);
    }
    memory.bytes = random.bytes(memory.bytes.len());
    let expected = pack(memory.address(), count, datatype, bytes, comm);
    // SAFETY: the memory holds the elements.
    let view = || unsafe {
        View::new(memory.bytes.as_ptr().wrapping_add(memory.base).cast_mut().cast(), count as u64, datatype, comm)
    };
    let reading = view().expect("committed");
    assert_eq!(reading.len(), bytes, "{names}");
    for _ in 0..4 {
        let offset = random.below(bytes + 1);
        let n = random.below(bytes - offset + 1);
        let mut part = vec![0; n];
        // SAFETY: the range lies within the buffer.
        unsafe { reading.read(offset, part.as_mut_ptr(), n) };
        assert_eq!(part, expected[offset..offset + n], "{names} × {count}, {n} bytes at {offset}");
    }
    if let Some(at) = reading.as_contiguous().filter(|_| bytes > 0) {
        // SAFETY: contiguous views have `bytes` bytes there.
        assert_eq!(unsafe { std::slice::from_raw_parts(at, bytes) }, expected, "{names}");
    }
    let source = random.bytes(bytes);
    let (offset, n) = (random.below(bytes + 1), bytes);
    let n = random.below(n - offset + 1);
    let mut result = expected.clone();
    result[offset..offset + n].copy_from_slice(&source[offset..offset + n]);
    let mut other = Memory { bytes: memory.bytes.clone(), base: memory.base };
    unpack(&result, other.address(), count, datatype, comm);
    let writing = view().expect("committed");
    // SAFETY: the range lies within the buffer.
    unsafe { writing.write(offset, source[offset..].as_ptr(), n) };
    writing.finish();
    assert!(memory.bytes == other.bytes, "{names} × {count}: {n} bytes written at {offset}");
    !matches!(layout.type_map, TypeMap::Opaque)
}

/// Random nested datatypes.
pub fn random_datatypes_read_and_write_as_the_library_does(make: &Constructors, comm: MPI_Comm) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut flat, mut all, mut remembered) = (0, 0, 0);
    while all < 3000 {
        let depth = random.below(4);
        let count = [0, 1, 1, 2, 3, 7][random.below(6)];
        let seed = random.0;
        // The second datatype is made like the first one.
        let layouts = [(); 2].map(|()| {
            random = Random(seed);
            let mut names = String::new();
            let datatype = committed(random_datatype(make, &mut random, depth, &mut names));
            if std::env::var_os("TRACE").is_some() {
                eprintln!("{names} × {count}");
            }
            flat += u32::from(compare(datatype, count, &mut random, &names, comm));
            // SAFETY: a valid datatype and a communicator of this process.
            let layout = unsafe { TypeLayout::of(datatype, comm) }.expect("committed");
            free(datatype);
            all += 1;
            layout
        });
        remembered += u32::from(Arc::ptr_eq(&layouts[0], &layouts[1]));
    }
    assert!(flat + flat / 100 >= all, "{} of {all} were not flattened", all - flat);
    assert!(remembered > all / 4, "{remembered} of {} were remembered", all / 2);
}

/// A datatype of many nested constructors that is flattened all the same.
pub fn crowded_datatypes_work(make: &Constructors, comm: MPI_Comm) {
    let mut random = Random(99);
    let c = constants();
    let mut datatype = make!(make, contiguous, 1, c.byte);
    for step in 0..17 {
        let (lengths, places, parts): ([c_int; 2], [MPI_Aint; 2], _) = ([1; 2], [0, 1 << step], [datatype; 2]);
        let two = make!(make, structure, 2, lengths.as_ptr(), places.as_ptr(), parts.as_ptr());
        free(datatype);
        datatype = two;
    }
    let datatype = committed(datatype);
    assert!(compare(datatype, 1, &mut random, "structs of structs", comm));
    free(datatype);
}

/// Distributed arrays whose arguments, large counts among them, are the same numbers in other places.
pub fn arguments_in_other_places_make_others(make: &Constructors, comm: MPI_Comm) {
    let c = constants();
    let is_open_mpi = size_of::<MPI_Comm>() == 8;
    let Some(darray_c) = make.darray_c.filter(|_| !is_open_mpi) else { return };
    const BLOCK: c_int = 121;
    const DEFAULT: c_int = -49767;
    let (distributions, arguments, processes) = ([BLOCK; 2], [DEFAULT; 2], [2, 2]);
    let of = |datatype| {
        let datatype = committed(datatype);
        // SAFETY: a valid datatype and a communicator of this process.
        let layout = unsafe { TypeLayout::of(datatype, comm) }.expect("committed");
        free(datatype);
        (layout.size, layout.extent)
    };
    let small = || {
        let (d, a, p) = (distributions.as_ptr(), arguments.as_ptr(), processes.as_ptr());
        of(make!(make, darray, 4, 2, 2, [3, 2].as_ptr(), d, a, p, c.order_c, c.int))
    };
    let large = || {
        let mut new = c.datatype_null;
        let sizes: [MPI_Count; 2] = [2, 2];
        let (d, a, p) = (distributions.as_ptr(), arguments.as_ptr(), processes.as_ptr());
        // SAFETY: valid arguments, arrays of two numbers.
        let code = unsafe { darray_c(4, 3, 2, sizes.as_ptr(), d, a, p, c.order_c, c.int, &mut new) };
        assert_eq!(code, 0);
        of(new)
    };
    let (first, second) = (small(), large());
    assert_ne!(first.1, second.1);
    assert_eq!([small(), large()], [first, second]);
}

/// A buffer at `MPI_BOTTOM`.
pub fn absolute_addresses_work(make: &Constructors, comm: MPI_Comm) {
    let (first, second) = (vec![1u32, 2, 3], vec![4u32, 5]);
    let mut places: [MPI_Aint; 2] = [0; 2];
    // SAFETY: addresses of living vectors.
    unsafe {
        let get_address = make.get_address.expect("MPI_Get_address");
        get_address(first.as_ptr().cast(), &mut places[0]);
        get_address(second.as_ptr().cast(), &mut places[1]);
    }
    let lengths: [c_int; 2] = [3, 2];
    let datatype = committed(make!(make, hindexed, 2, lengths.as_ptr(), places.as_ptr(), constants().int));
    let mut all = [0u32; 5];
    // SAFETY: the datatype holds the addresses of both vectors.
    unsafe {
        let view = View::new(constants().bottom, 1, datatype, comm).expect("committed");
        assert_eq!(view.len(), 20);
        view.read(0, all.as_mut_ptr().cast(), 20);
    }
    assert_eq!(all, [1, 2, 3, 4, 5]);
    free(datatype);
}

/// A distributed array, which only the library understands.
pub fn unknown_constructors_work(make: &Constructors, comm: MPI_Comm) {
    let mut random = Random(77);
    const MPI_DISTRIBUTE_BLOCK_CYCLIC: usize = 1;
    let is_open_mpi = size_of::<MPI_Comm>() == 8;
    let cyclic: c_int = if is_open_mpi { MPI_DISTRIBUTE_BLOCK_CYCLIC as c_int } else { 122 };
    let (sizes, distributions, arguments, processes) = ([9, 7], [cyclic; 2], [2, 3], [2, 2]);
    for rank in 0..4 {
        let datatype = committed(make!(
            make,
            darray,
            4,
            rank,
            2,
            sizes.as_ptr(),
            distributions.as_ptr(),
            arguments.as_ptr(),
            processes.as_ptr(),
            constants().order_c,
            constants().double
        ));
        for count in [0, 1, 3] {
            assert!(!compare(datatype, count, &mut random, "darray", comm), "distributed arrays are the library's");
        }
        free(datatype);
    }
}

/// Datatypes with large counts, where the library has them.
pub fn large_counts_work(make: &Constructors, comm: MPI_Comm) {
    if make.contiguous_c.is_none() {
        return;
    }
    let mut random = Random(5);
    let int = constants().int;
    let (lengths, places): ([MPI_Count; 3], [MPI_Count; 3]) = ([2, 1, 3], [24, 0, 40]);
    let units: [MPI_Count; 3] = [5, 0, 9];
    let (sizes, subsizes, starts): ([MPI_Count; 2], [MPI_Count; 2], [MPI_Count; 2]) = ([5, 6], [2, 3], [1, 2]);
    let (order, types) = (constants().order_c, [int; 3]);
    let all = [
        ("contiguous_c", make!(make, contiguous_c, 5, int)),
        ("vector_c", make!(make, vector_c, 3, 2, 4, int)),
        ("hvector_c", make!(make, hvector_c, 3, 2, 20, int)),
        ("indexed_c", make!(make, indexed_c, 3, lengths.as_ptr(), units.as_ptr(), int)),
        ("hindexed_c", make!(make, hindexed_c, 3, lengths.as_ptr(), places.as_ptr(), int)),
        ("hindexed_block_c", make!(make, hindexed_block_c, 3, 2, places.as_ptr(), int)),
        ("struct_c", make!(make, structure_c, 3, lengths.as_ptr(), places.as_ptr(), types.as_ptr())),
        ("subarray_c", make!(make, subarray_c, 2, sizes.as_ptr(), subsizes.as_ptr(), starts.as_ptr(), order, int)),
        ("resized_c", make!(make, resized_c, int, 0, 12)),
    ];
    for (name, datatype) in all {
        let datatype = committed(datatype);
        for count in [1, 4] {
            assert!(compare(datatype, count, &mut random, name, comm), "{name} is flattened");
        }
        free(datatype);
    }
}

/// Many pieces: they become one run, copies of few runs, or are left to the library.
pub fn many_pieces_work(make: &Constructors, comm: MPI_Comm) {
    let mut random = Random(9);
    let c = constants();
    let vector = committed(make!(make, vector, 100_000, 1, 2, c.int));
    assert!(compare(vector, 2, &mut random, "long vector", comm));
    let (lengths, places, types): ([c_int; 2], [MPI_Aint; 2], _) = ([1, 1], [0, 12], [c.double, c.int]);
    let pair = make!(make, structure, 2, lengths.as_ptr(), places.as_ptr(), types.as_ptr());
    let copies = committed(make!(make, contiguous, 100_000, pair));
    assert!(compare(copies, 2, &mut random, "many structs", comm));
    let places: Vec<c_int> = (0..80_000)
        .scan(0, |at, i| {
            *at += 3 + i % 7 * i % 3;
            Some(*at)
        })
        .collect();
    let lengths: Vec<c_int> = (0..80_000).map(|i| 1 + i % 2).collect();
    let scattered = committed(make!(make, indexed, 80_000, lengths.as_ptr(), places.as_ptr(), c.int));
    assert!(!compare(scattered, 2, &mut random, "scattered", comm), "too many pieces");
    [vector, pair, copies, scattered].into_iter().for_each(free);
}
