//! Pairs that have holes in memory, such as `MPI_DOUBLE_INT`: copies to and from the packed form that kernels combine.
//!
//! [`View`](super::view::View) does this for all datatypes, but with few elements most of its work is to find out what
//! it has to do.

use super::handles::Predefined;

/// How a pair lies in memory: its first member at the start, the second at its own alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holes {
    members: Members,
    spacing: Spacing,
}

/// The members' sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    /// `MPI_DOUBLE_INT`, `MPI_LONG_INT`
    EightAndFour,
    /// `MPI_SHORT_INT`
    TwoAndFour,
}

/// Where the members of a pair lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spacing {
    /// The offset of the second member in an element.
    second: usize,
    /// Distance between elements.
    extent: usize,
}

impl Members {
    /// Moves `n` elements from one spacing to another; `None` stands for the packed form.
    ///
    /// # Safety
    /// `from` and `to` have `n` elements of their spacings, and do not overlap.
    #[inline(always)]
    unsafe fn transfer(self, to: (*mut u8, Option<Spacing>), from: (*const u8, Option<Spacing>), n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::EightAndFour => transfer::<8, 4>(to, from, n),
                Self::TwoAndFour => transfer::<2, 4>(to, from, n),
            }
        }
    }
}

impl Holes {
    /// The holes of a datatype, if it is such a pair.
    pub fn of(datatype: &Predefined) -> Option<Self> {
        let (second, size) = datatype.second?;
        let members = match (datatype.size.checked_sub(size)?, size) {
            (8, 4) => Members::EightAndFour,
            (2, 4) => Members::TwoAndFour,
            _ => return None,
        };
        Some(Self { members, spacing: Spacing { second, extent: datatype.extent } })
    }

    /// Distance between elements.
    pub fn extent(&self) -> usize {
        self.spacing.extent
    }

    /// Packs `n` elements.
    ///
    /// # Safety
    /// `from` has `n` elements, `to` room for as many packed ones, and they do not overlap.
    pub unsafe fn pack(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.members.transfer((to, None), (from, Some(self.spacing)), n) }
    }

    /// Unpacks `n` elements; the bytes between members keep their values.
    ///
    /// # Safety
    /// As for [`Holes::pack`], with `from` packed and `to` not.
    pub unsafe fn unpack(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.members.transfer((to, Some(self.spacing)), (from, None), n) }
    }
}

/// # Safety
/// As for [`Members::transfer`]; the members have these sizes.
#[inline(always)]
unsafe fn transfer<const FIRST: usize, const SECOND: usize>(
    (to, to_spacing): (*mut u8, Option<Spacing>),
    (from, from_spacing): (*const u8, Option<Spacing>),
    n: usize,
) {
    let packed = Spacing { second: FIRST, extent: FIRST + SECOND };
    let (to_spacing, from_spacing) = (to_spacing.unwrap_or(packed), from_spacing.unwrap_or(packed));
    for i in 0..n {
        // SAFETY: element `i` of both.
        unsafe {
            let (to, from) = (to.add(i * to_spacing.extent), from.add(i * from_spacing.extent));
            to.cast::<[u8; FIRST]>().write(from.cast::<[u8; FIRST]>().read());
            let second = from.add(from_spacing.second).cast::<[u8; SECOND]>().read();
            to.add(to_spacing.second).cast::<[u8; SECOND]>().write(second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go_and_holes_stay() {
        for (members, second, extent, first) in [(Members::EightAndFour, 8, 16, 8), (Members::TwoAndFour, 4, 8, 2)] {
            let (holes, n) = (Holes { members, spacing: Spacing { second, extent } }, 3);
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
