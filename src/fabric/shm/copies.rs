//! Moves and combines the data of a call: to slots as [`writes`](super::writes) decides, to memory of the rank's own
//! as [`ways`](super::ways) decides, out of slots also as [`reads`](super::reads) decides.

use super::clock;
use super::context::Context;
use super::ways::{Choice, Material, Turn, Way, Ways};
use super::writes::{Course, Times, Writes};
use crate::fabric::words::Entered;
use crate::kernel::{self, Combine, Destination, Kernel, SizeClass, Streams};
use crate::types::{Bytes, Collective};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::time::Instant;

/// The longest piece of [`SizeClass::Medium`](kernel::SizeClass). Copies of this class fetch no lines of slots. The
/// piece fits the first-level cache beside its source.
const PIECE: usize = 16 << 10;

/// From this many bytes on, copies out of a slot use the loop for long pieces, which is chosen for sources that are
/// not in this core's first-level cache. The slot's lines are in a peer's.
const FETCHED: usize = 4 << 10;

/// From this many bytes on, readers take a slot's lines over (`kernel::copy_taking`), where they do so at all: shorter
/// pieces have few lines.
const TAKEN: usize = 1 << 10;

/// Above this many bytes, the rank's own data are copied as long pieces too: by the time of the copy they have left the
/// first-level cache. This holds for copies to passed cells too: such cells have rested, and have left it as well.
const NEAR: usize = 8 << 10;

/// Lengths that are copied by vectors to lines that this rank has asked for. Shorter copies are left to libc. For
/// longer ones the processor's own loop makes good what it loses at the start.
const ASKED: RangeInclusive<usize> = (2 << 10) + 1..=4 << 10;

/// The class of a piece of `n` bytes, but at least that of long pieces.
fn at_least_long(n: usize) -> SizeClass {
    match SizeClass::of(n) {
        SizeClass::Short | SizeClass::Medium => SizeClass::Long,
        longer => longer,
    }
}

/// Room behind a piece, so that the last piece need not be shorter than this.
const SHORTEST_PIECE: usize = 1 << 10;

/// Memory for a piece, with the alignment that suits user operations best.
#[repr(align(64))]
struct PieceMemory(#[expect(dead_code, reason = "used by its address")] [u8; PIECE + SHORTEST_PIECE]);

/// Data that are combined are cut at multiples of this many bytes: whole blocks of each level of kernels, and whole
/// elements, also of 6 and 12 bytes. They are cut anywhere if no kernel has such elements.
fn unit_of(granule: Bytes) -> Bytes {
    Bytes(if (3 * SHORTEST_PIECE).is_multiple_of(granule.0) { 3 * SHORTEST_PIECE } else { 1 })
}

/// Calls `each` for pieces of `n` bytes that consist of whole elements: with the offset of the piece, memory of this
/// rank for it, and its length. A function of its own, so that callers which copy data without holes need no stack
/// frame of this size. Pieces are whole blocks of kernels (`kernel::reduce`), and the last piece is no shorter than a
/// block, which would be slow.
#[inline(never)]
pub(super) fn in_pieces(n: usize, granule: Bytes, mut each: impl FnMut(usize, *mut u8, usize)) {
    let mut piece = MaybeUninit::<PieceMemory>::uninit();
    let longest = Bytes(PIECE).round_down_to(unit_of(granule)).round_down_to(granule).0;
    let mut at = 0;
    while at < n {
        let length = if n - at < longest + SHORTEST_PIECE { n - at } else { longest };
        each(at, piece.as_mut_ptr().cast(), length);
        at += length;
    }
}

impl Context {
    /// Copies `n` bytes for `call`; `places` tells what destination and source are. If the destination is a slot, it
    /// is one of this rank's.
    ///
    /// # Safety
    /// As for [`kernel::copy()`]; a source that is a slot is writable, as all of a segment is where it is mapped.
    #[inline(always)]
    pub(super) unsafe fn copy(&self, call: &Entered, places: [Destination; 2], to: *mut u8, from: *const u8, n: usize) {
        use Destination::{Private, Slot};
        // SAFETY: the caller's promise, for all arms.
        unsafe {
            match places {
                [Slot, _] => self.write(to, from, n),
                [Private, Slot] if n >= TAKEN && self.takes_over(from, n) => self.copy_taking(to, from, n),
                // If this rank writes around the caches, its peers are likely to do so too.
                [Private, Slot] if self.writes.is_around() && !self.is_passed(from) => {
                    kernel::copy_fetching(to, from, n);
                }
                [Private, source] if n < Ways::SHORTEST => {
                    let is_near = if source == Slot { n < FETCHED } else { n <= NEAR };
                    match is_near {
                        true => kernel::copy(to, from, n),
                        false => kernel::copy_of(at_least_long(n), to, from, n),
                    }
                }
                [Private, Private] => self.copy_long(call, Material::Own, to, from, n),
                [Private, Slot] => self.copy_long(call, Material::Slot, to, from, n),
            }
        }
    }

    /// Combines `n` bytes of packed elements of `granule` bytes for `call`. The pointers are the destination, of kind
    /// `destination`, and the left and the right operand.
    ///
    /// # Safety
    /// As for [`Combine::combine`].
    #[inline(always)]
    pub(super) unsafe fn combine(
        &self,
        call: &Entered,
        combine: &dyn Combine,
        destination: Destination,
        [to, left, right]: [*mut u8; 3],
        n: usize,
        granule: Bytes,
    ) {
        // SAFETY: the caller's promise, for all arms.
        unsafe {
            match destination {
                Destination::Slot => self.write_combined(combine, [to, left, right], n, granule),
                Destination::Private if n >= Ways::SHORTEST => {
                    self.combine_long(call, combine, [to, left, right], n);
                }
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
            // No peer has the lines of a passed cell, so it is written as this rank's own memory is. Shorter writes go
            // through the caches anyhow.
            if n >= Writes::SHORTEST && self.is_passed(to) {
                return match n > NEAR {
                    true => kernel::copy_of(at_least_long(n), to, from, n),
                    false => kernel::copy_to(Destination::Private, to, from, n),
                };
            }
            match self.writes.course(n) {
                Course::Through if ASKED.contains(&n) && self.rhythm.has_asked_for(to, n) => {
                    kernel::copy_in_vectors(to, from, n);
                }
                Course::Through => kernel::copy_to(Destination::Slot, to, from, n),
                Course::Around => kernel::copy_streaming(to, from, n),
                Course::Timed => self.write_timed(to, from, n),
            }
        }
    }

    /// Copies `n` bytes out of a slot, and takes its lines over.
    ///
    /// # Safety
    /// As for [`kernel::copy_taking`].
    #[inline(always)]
    unsafe fn copy_taking(&self, to: *mut u8, from: *const u8, n: usize) {
        let started = self.reads.is_timed(n).then(Instant::now);
        // SAFETY: the caller's promise.
        unsafe { kernel::copy_taking(to, from, n) };
        if let Some(started) = started {
            let ended = Instant::now();
            self.reads.note(n, ended - started, ended);
        }
    }

    /// Copies `n` bytes to memory of this rank alone.
    ///
    /// # Safety
    /// As for [`kernel::copy()`].
    #[inline(never)]
    unsafe fn copy_long(&self, call: &Entered, material: Material, to: *mut u8, from: *const u8, n: usize) {
        let times = if call.collective == Collective::Allgather { self.layout().size() } else { 1 };
        let choice = self.ways.of(call.collective, material, call.bytes * times, n, None);
        let class = at_least_long(n);
        // SAFETY: the caller's promise.
        by_turn(choice, |way| unsafe { copy_by(way, class, to, from, n) });
    }

    /// Combines `n` bytes, at least [`Ways::SHORTEST`], to memory of this rank alone.
    ///
    /// # Safety
    /// As for [`Combine::combine`].
    #[inline(never)]
    unsafe fn combine_long(&self, call: &Entered, combine: &dyn Combine, memory: [*mut u8; 3], n: usize) {
        let [to, left, right] = memory;
        // SAFETY: the caller's promise, for both.
        unsafe {
            match combine.kernel().filter(|kernel| kernel.has_streams) {
                None => combine.combine(to, left, right, n),
                Some(kernel) => {
                    let choice = self.ways.of(call.collective, Material::Operands, call.bytes, n, Some(kernel));
                    by_turn(choice, |way| combine_by(way, kernel, memory, n));
                }
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
        let [through, around] = [midway - started, ended - midway].map(|time| time.saturating_sub(clock::reading()));
        self.writes.end(timed, Times { through, around }, ended);
    }

    /// Combines `n` bytes of packed elements of `granule` bytes into a slot: one of this rank, or one that is relayed.
    /// Loops that combine store through the caches. If slots are written around them, the result goes by way of a
    /// piece of this rank's own memory. It does not if it replaces an operand, since reading the operand brings its
    /// lines to this core's cache.
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

/// Runs `run` by the way whose turn it is, and times it if that is due.
fn by_turn(choice: Choice<'_>, run: impl FnOnce(Way)) {
    match choice.turn() {
        Turn::Usual(way) => run(way),
        Turn::Timed(way) => {
            let started = Instant::now();
            run(way);
            choice.judge(started.elapsed());
        }
    }
}

/// Copies `n` bytes of a piece of class `class`, by the way `way`.
///
/// # Safety
/// As for [`kernel::copy()`].
unsafe fn copy_by(way: Way, class: SizeClass, to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match way {
            Way::One => kernel::copy_of(class, to, from, n),
            Way::Several => kernel::copy_in_streams(to, from, n),
            Way::Around => kernel::copy_around_in_streams(to, from, n),
        }
    }
}

/// Combines `n` bytes by the way `way`. Nothing goes around the caches: results are often read again at once.
///
/// # Safety
/// As for [`Combine::combine`].
unsafe fn combine_by(way: Way, kernel: Kernel, [to, left, right]: [*mut u8; 3], n: usize) {
    let streams = match way {
        Way::One => Streams::One,
        Way::Several => Streams::Several,
        Way::Around => unreachable!("no operands are combined around the caches (`Ways::of`)"),
    };
    // SAFETY: the caller's promise.
    unsafe { kernel.combine_in(streams, to, left, right, n) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_copy() {
        for way in Way::ALL {
            for (n, shift) in [(16 << 10, 0), ((16 << 10) + 1, 1), (40_007, 63), ((1 << 20) + 127, 16)] {
                let from: Vec<u8> = (0..n).map(|byte| (byte * 31 % 251) as u8).collect();
                let mut to = vec![0_u8; n + 128];
                let start = to.as_ptr().align_offset(64) + shift;
                // SAFETY: both have `n` bytes there.
                unsafe { copy_by(way, SizeClass::of(n), to.as_mut_ptr().add(start), from.as_ptr(), n) };
                assert!(to[start..start + n] == from, "{way:?}, {n} bytes");
                assert!(to[..start].iter().chain(&to[start + n..]).all(|byte| *byte == 0), "{way:?}, {n} bytes");
            }
        }
    }

    #[test]
    fn pieces_and_all_ways_combine_to_the_same() {
        use crate::kernel::reduce::kernel_at;
        use crate::kernel::{Element, Level, Op};
        let kernels = [Op::Sum, Op::Prod, Op::Maxloc].into_iter().flat_map(|op| {
            let elements = [Element::F32, Element::F64, Element::C32, Element::C64, Element::PairF64];
            elements.into_iter().flat_map(move |element| Level::available().map(move |level| (op, element, level)))
        });
        for (op, element, level) in kernels {
            let size = element.bytes();
            let Some(kernel) = kernel_at(level, op, element) else { continue };
            for n in (Ways::SHORTEST..36_000).step_by(4 * 131).map(|n: usize| n.next_multiple_of(size)) {
                // Some words are NaNs with a payload.
                let words = |sign: u32| -> Vec<u8> {
                    let one = |word: u32| if word % 5 < 2 { 0x7fc0_0000 } else { 0x3f80_0001 };
                    (0..n as u32 / 4).flat_map(|word| (sign | (one(word) + word * 7 % 1000)).to_le_bytes()).collect()
                };
                let (left, right) = (words(0), words(1 << 31));
                let mut whole = vec![0_u8; n];
                // SAFETY: all have `n` bytes, a multiple of the element.
                unsafe { kernel.combine(whole.as_mut_ptr(), left.as_ptr(), right.as_ptr(), n) };
                let check = |way: &str, run: &dyn Fn([*mut u8; 3])| {
                    let right = right.as_ptr().cast_mut();
                    let mut result = vec![0_u8; n];
                    run([result.as_mut_ptr(), left.as_ptr().cast_mut(), right]);
                    assert!(whole == result, "{op:?} of {element:?} at {level:?}, {n} bytes, {way}");
                    result.copy_from_slice(&left);
                    run([result.as_mut_ptr(), result.as_mut_ptr(), right]);
                    assert!(whole == result, "{op:?} of {element:?} at {level:?}, {n} bytes in place, {way}");
                };
                check("pieces", &|[to, left, right]| {
                    in_pieces(n, Bytes(size), |at, piece, length| {
                        assert!((SHORTEST_PIECE..=PIECE + SHORTEST_PIECE).contains(&length));
                        // SAFETY: the piece has room for its length, a multiple of the element; all others have `n`
                        // bytes.
                        unsafe {
                            kernel.combine(piece, left.add(at), right.add(at), length);
                            to.add(at).copy_from_nonoverlapping(piece, length);
                        }
                    });
                });
                for way in [Way::One, Way::Several] {
                    // SAFETY: all have `n` bytes, a multiple of the element.
                    check(&format!("{way:?}"), &|memory| unsafe { combine_by(way, kernel, memory, n) });
                }
            }
        }
    }
}
