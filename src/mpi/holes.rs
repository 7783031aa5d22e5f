//! Pairs that have holes in memory, such as `MPI_DOUBLE_INT`, to and from the packed form that kernels combine.
//!
//! [`View`](super::datatype::View) does it for all datatypes; for a few elements most of its work is to find out what it has to do.

use super::handles::Predefined;

/// How a pair lies in memory: its first member at the start, the second at its own alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holes {
    members: Members,
    /// Where the second member lies.
    second: usize,
    /// From one element to the next.
    extent: usize,
}

/// The members' sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    /// `MPI_DOUBLE_INT`, `MPI_LONG_INT`
    EightAndFour,
    /// `MPI_SHORT_INT`
    TwoAndFour,
}

impl Holes {
    /// Those of a datatype, where it is such a pair.
    pub fn of(datatype: &Predefined) -> Option<Self> {
        let (second, size) = datatype.second?;
        let members = match (datatype.size.checked_sub(size)?, size) {
            (8, 4) => Members::EightAndFour,
            (2, 4) => Members::TwoAndFour,
            _ => return None,
        };
        Some(Self { members, second, extent: datatype.extent })
    }

    /// Packs `n` elements.
    ///
    /// # Safety
    /// `from` has `n` elements, `to` room for as many packed ones, and they do not overlap.
    pub unsafe fn pack(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.members {
                Members::EightAndFour => pack::<8, 4>(to, from, self.second, self.extent, n),
                Members::TwoAndFour => pack::<2, 4>(to, from, self.second, self.extent, n),
            }
        }
    }

    /// Unpacks `n` elements; what lies between members stays as it is.
    ///
    /// # Safety
    /// As for [`Holes::pack`], the other way round.
    pub unsafe fn unpack(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.members {
                Members::EightAndFour => unpack::<8, 4>(to, from, self.second, self.extent, n),
                Members::TwoAndFour => unpack::<2, 4>(to, from, self.second, self.extent, n),
            }
        }
    }
}

/// # Safety
/// As for [`Holes::pack`], whose members have these sizes.
#[inline(always)]
unsafe fn pack<const FIRST: usize, const SECOND: usize>(
    to: *mut u8,
    from: *const u8,
    second: usize,
    extent: usize,
    n: usize,
) {
    for i in 0..n {
        // SAFETY: element `i` of both.
        unsafe {
            let (to, from) = (to.add(i * (FIRST + SECOND)), from.add(i * extent));
            to.cast::<[u8; FIRST]>().write(from.cast::<[u8; FIRST]>().read());
            to.add(FIRST).cast::<[u8; SECOND]>().write(from.add(second).cast::<[u8; SECOND]>().read());
        }
    }
}

/// # Safety
/// As for [`Holes::unpack`], whose members have these sizes.
#[inline(always)]
unsafe fn unpack<const FIRST: usize, const SECOND: usize>(
    to: *mut u8,
    from: *const u8,
    second: usize,
    extent: usize,
    n: usize,
) {
    for i in 0..n {
        // SAFETY: element `i` of both.
        unsafe {
            let (to, from) = (to.add(i * extent), from.add(i * (FIRST + SECOND)));
            to.cast::<[u8; FIRST]>().write(from.cast::<[u8; FIRST]>().read());
            to.add(second).cast::<[u8; SECOND]>().write(from.add(FIRST).cast::<[u8; SECOND]>().read());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go_and_holes_stay() {
        for (members, second, extent, first) in [(Members::EightAndFour, 8, 16, 8), (Members::TwoAndFour, 4, 8, 2)] {
            let (holes, n) = (Holes { members, second, extent }, 3);
            let memory: Vec<u8> = (1..=(n * extent) as u8).collect();
            let is_data = |at: usize| at % extent < first || (second..second + 4).contains(&(at % extent));
            let expected: Vec<u8> = (0..n * extent).filter(|at| is_data(*at)).map(|at| memory[at]).collect();
            let (mut packed, mut back) = (vec![0; n * (first + 4)], vec![255; n * extent]);
            // SAFETY: these lengths.
            unsafe {
                holes.pack(packed.as_mut_ptr(), memory.as_ptr(), n);
                holes.unpack(back.as_mut_ptr(), packed.as_ptr(), n);
            }
            assert_eq!(packed, expected);
            assert!((0..back.len()).all(|at| back[at] == if is_data(at) { memory[at] } else { 255 }));
        }
    }
}
