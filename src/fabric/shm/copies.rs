//! Moving and combining the data of a call: to slots as [`writes`](super::writes) says, to memory of the rank's own as
//! [`ways`](super::ways).

use super::context::Context;
use super::ways::{Parts, Way, Ways};
use super::writes::{Course, Took, Writes, clock_reading};
use crate::fabric::words::Entered;
use crate::kernel::{self, Combine, Destination, SizeClass};

use crate::types::{Bytes, Collective};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// The longest piece of [`SizeClass::Medium`](kernel::SizeClass), whose copies fetch no lines of slots; it fits the first-level cache
/// beside its source.
const PIECE: usize = 16 << 10;

/// Beyond a piece, so that no last one is shorter than this.
const SHORTEST_PIECE: usize = 1 << 10;

/// Aligned as what user operations like best.
#[repr(align(64))]
struct PieceMemory(#[expect(dead_code, reason = "used by its address")] [u8; PIECE + SHORTEST_PIECE]);

/// Calls `each` for pieces of `n` bytes, of whole elements: with where a piece begins, memory of this rank for it, and its length. Apart,
/// so that who copies data without holes has no frame of its size. Pieces start where the blocks of kernels do that combine all at once
/// (`kernel::reduce`), and none is too short for these: which payload stays of two NaNs depends on that.
#[inline(never)]
pub(super) fn in_pieces(n: usize, granule: Bytes, mut each: impl FnMut(usize, *mut u8, usize)) {
    let mut piece = MaybeUninit::<PieceMemory>::uninit();
    // Elements of 6 and 12 bytes take a multiple of three.
    let unit = if (3 * SHORTEST_PIECE).is_multiple_of(granule.0) { 3 * SHORTEST_PIECE } else { 1 };
    let longest = Bytes(PIECE).round_down_to(Bytes(unit)).round_down_to(granule).0;
    let mut at = 0;
    while at < n {
        let length = if n - at < longest + SHORTEST_PIECE { n - at } else { longest };
        each(at, piece.as_mut_ptr().cast(), length);
        at += length;
    }
}

impl Context {
    /// Copies `n` bytes for that call; `places` are what destination and source are. A slot that is written is one of this rank.
    ///
    /// # Safety
    /// As for [`kernel::copy()`].
    #[inline(always)]
    pub(super) unsafe fn copy(&self, call: &Entered, places: [Destination; 2], to: *mut u8, from: *const u8, n: usize) {
        use Destination::{Private, Slot};
        // SAFETY: the caller's promise, for all arms.
        unsafe {
            match places {
                [Slot, _] => self.write(to, from, n),
                // Who writes around the caches is likely to have peers that do.
                [Private, Slot] if self.writes.is_around() && !self.is_passed(from) => {
                    kernel::copy_fetching(to, from, n);
                }
                [Private, _] if n < Ways::SHORTEST => kernel::copy(to, from, n),
                [Private, source] => self.copy_long(call, source, to, from, n),
            }
        }
    }

    /// Combines `n` bytes of packed elements of `granule` bytes: to such a destination, the left and the right operand.
    ///
    /// # Safety
    /// As for [`Combine::combine`].
    #[inline(always)]
    pub(super) unsafe fn combine(
        &self,
        combine: &dyn Combine,
        destination: Destination,
        [to, left, right]: [*mut u8; 3],
        n: usize,
        granule: Bytes,
    ) {
        // SAFETY: the caller's promise, for both arms.
        unsafe {
            match destination {
                Destination::Slot => self.write_combined(combine, [to, left, right], n, granule),
                Destination::Private => combine.combine(to, left, right, n),
            }
        }
    }

    /// Copies `n` bytes to a slot of this rank.
    ///
    /// # Safety
    /// As for [`kernel::copy_to`].
    #[inline(always)]
    unsafe fn write(&self, to: *mut u8, from: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            // No peer has its lines, so it is as a rank's own memory. Shorter writes go through the caches anyhow.
            if n >= Writes::SHORTEST && self.is_passed(to) {
                return kernel::copy_to(Destination::Private, to, from, n);
            }
            match self.writes.course(n) {
                Course::Through => kernel::copy_to(Destination::Slot, to, from, n),
                Course::Around => kernel::copy_streaming(to, from, n),
                Course::Timed => self.write_timed(to, from, n),
            }
        }
    }

    /// Copies `n` bytes to memory of this rank alone.
    ///
    /// # Safety
    /// As for [`kernel::copy()`].
    #[inline(never)]
    unsafe fn copy_long(&self, call: &Entered, source: Destination, to: *mut u8, from: *const u8, n: usize) {
        let times = if call.collective == Collective::Allgather { self.layout().size() } else { 1 };
        let choice = self.ways.of(call.collective, source, call.bytes * times);
        // SAFETY: the caller's promise.
        unsafe {
            match choice.parts() {
                Parts::Whole(way) => copy_by(way, SizeClass::of(n), to, from, n),
                Parts::Halves(ways) => choice.judge(ways, copy_halves(ways, to, from, n)),
            }
        }
    }

    /// # Safety
    /// As for [`Context::write`].
    #[cold]
    #[inline(never)]
    unsafe fn write_timed(&self, to: *mut u8, from: *const u8, n: usize) {
        let timed = self.writes.timed(n);
        let started = Instant::now();
        // SAFETY: the caller's promise; the part is no longer than the whole.
        let (midway, ended) = unsafe {
            kernel::copy_to(Destination::Slot, to, from, timed.through);
            let midway = Instant::now();
            if timed.through < n {
                kernel::copy_streaming(to.add(timed.through), from.add(timed.through), n - timed.through);
            }
            (midway, Instant::now())
        };
        let [through, around] = [midway - started, ended - midway].map(|time| time.saturating_sub(clock_reading()));
        self.writes.end(timed, Took { through, around }, ended);
    }

    /// Combines `n` bytes of packed elements of `granule` bytes into a slot of this rank. Loops that combine store through the caches;
    /// where slots are written around them the result takes the way through a piece of memory of this rank's own. Not where it takes
    /// the place of an operand: its lines are in this core's cache.
    ///
    /// # Safety
    /// As for [`Combine::combine`].
    #[inline(always)]
    unsafe fn write_combined(&self, combine: &dyn Combine, [to, left, right]: [*mut u8; 3], n: usize, granule: Bytes) {
        let is_around = self.writes.is_around()
            && n >= Writes::SHORTEST
            && granule.0 <= PIECE
            && to != left
            && to != right
            && !self.is_passed(to);
        // SAFETY: the caller's promise; pieces are whole elements.
        unsafe {
            if !is_around {
                return combine.combine(to, left, right, n);
            }
            in_pieces(n, granule, |at, piece, length| {
                combine.combine(piece, left.add(at), right.add(at), length);
                self.write(to.add(at), piece, length);
            });
        }
    }
}

/// Copies `n` bytes of a piece of that class.
///
/// # Safety
/// As for [`kernel::copy()`].
unsafe fn copy_by(way: Way, class: SizeClass, to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match way {
            Way::One => kernel::copy_of(class, to, from, n),
            Way::Pages => kernel::copy_in_pages(to, from, n),
            Way::Around => kernel::copy_streaming_in_pages(to, from, n),
        }
    }
}

/// Copies `n` bytes, half of them each way. -> what the halves took
///
/// # Safety
/// As for [`kernel::copy()`].
#[cold]
unsafe fn copy_halves(ways: [Way; 2], to: *mut u8, from: *const u8, n: usize) -> [Duration; 2] {
    const LINE: usize = 64;
    // Of whole lines; what is left goes first.
    let half = n / (2 * LINE) * LINE;
    let rest = n - 2 * half;
    let class = SizeClass::of(n);
    // SAFETY: the caller's promise; rest and halves lie within `n` bytes.
    unsafe {
        kernel::copy(to, from, rest);
        let started = Instant::now();
        copy_by(ways[0], class, to.add(rest), from.add(rest), half);
        let midway = Instant::now();
        copy_by(ways[1], class, to.add(rest + half), from.add(rest + half), half);
        [midway - started, midway.elapsed()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_copied_whole_by_all_ways() {
        let ways = [Way::One, Way::Pages, Way::Around];
        for pair in ways.into_iter().flat_map(|first| ways.map(|second| [first, second])) {
            for (n, shift) in [(16 << 10, 0), ((16 << 10) + 1, 1), (40_007, 63), ((1 << 20) + 127, 16)] {
                let from: Vec<u8> = (0..n).map(|byte| (byte * 31 % 251) as u8).collect();
                let mut to = vec![0_u8; n + 128];
                let start = to.as_ptr().align_offset(64) + shift;
                // SAFETY: both have `n` bytes there.
                unsafe { copy_halves(pair, to.as_mut_ptr().add(start), from.as_ptr(), n) };
                assert!(to[start..start + n] == from, "{pair:?}, {n} bytes");
                assert!(to[..start].iter().chain(&to[start + n..]).all(|byte| *byte == 0), "{pair:?}, {n} bytes");
            }
        }
    }

    /// Which payload stays of two NaNs depends on where the blocks of a kernel begin and end; ranks of a node must not differ in it.
    #[test]
    fn pieces_combine_to_the_same_bits_as_the_whole() {
        use crate::kernel::reduce::kernel_at;
        use crate::kernel::{Element, Level, Op};
        for (element, level) in [Element::F32, Element::F64, Element::C64, Element::PairF64]
            .into_iter()
            .flat_map(|element| Level::available().map(move |level| (element, level)))
        {
            let size = element.bytes();
            let op = if element == Element::PairF64 { Op::Maxloc } else { Op::Sum };
            let Some(kernel) = kernel_at(level, op, element) else { continue };
            for n in (14_000..36_000).step_by(4 * 13).map(|n: usize| n / size * size) {
                let nans = |sign: u32| -> Vec<u8> {
                    (0..n / 4).flat_map(|word| (sign | (0x7ff8_0001 + word as u32 % 5)).to_le_bytes()).collect()
                };
                let (left, right) = (nans(0), nans(1 << 31));
                let (mut whole, mut cut) = (vec![0_u8; n], vec![0_u8; n]);
                // SAFETY: all have `n` bytes, a multiple of the element.
                unsafe { kernel.combine(whole.as_mut_ptr(), left.as_ptr(), right.as_ptr(), n) };
                in_pieces(n, Bytes(size), |at, piece, length| {
                    assert!((SHORTEST_PIECE..=PIECE + SHORTEST_PIECE).contains(&length));
                    // SAFETY: the piece has room for its length, a multiple of the element.
                    unsafe {
                        kernel.combine(piece, left.as_ptr().add(at), right.as_ptr().add(at), length);
                        cut.as_mut_ptr().add(at).copy_from_nonoverlapping(piece, length);
                    }
                });
                assert!(whole == cut, "{element:?} at {level:?}, {n} bytes");
            }
        }
    }
}
