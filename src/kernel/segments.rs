//! Layouts of noncontiguous data, and copies between them and packed memory.
//!
//! A datatype is flattened to *blocks* of adjacent bytes in the order of its typemap. Equal blocks at equal distances
//! form a *run*, so a vector of any length is one run, and a plane of a cube at most one run per row. An element of the
//! datatype is a list of runs, each with the number of packed bytes before it; a buffer is `count` elements, `extent`
//! bytes apart. Any range of packed bytes can be moved: division and binary search find the first run, then a loop over
//! runs moves the blocks of each in a tight loop.

use crate::types::LINE;
use smallvec::SmallVec;

/// A user's buffer as the sequence of its packed bytes, whatever its layout in memory.
pub trait PackedBuffer: Sync {
    /// Copies the packed bytes from `offset` on, `n` of them, to `to`.
    ///
    /// # Safety
    /// The range lies within the buffer, whose memory is readable; `to` is writable for `n` bytes and overlaps none of
    /// it.
    unsafe fn read(&self, offset: usize, to: *mut u8, n: usize);
    /// Replaces the packed bytes from `offset` on, `n` of them, by those at `from`. Padding is never written.
    ///
    /// # Safety
    /// The range lies within the buffer, whose memory is writable; `from` is readable for `n` bytes and overlaps none
    /// of it.
    unsafe fn write(&self, offset: usize, from: *const u8, n: usize);
    /// Whether nearly all bytes lie in blocks of at least a cache line.
    fn fills_lines(&self) -> bool;
}

/// `repeat` blocks of `len` bytes, `stride` bytes apart, the first at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    at: isize,
    len: usize,
    stride: isize,
    repeat: usize,
    /// Packed bytes of the element before this run.
    packed: usize,
}

/// Most datatypes have one run, which then takes no memory from the heap: some programs make datatypes for each call.
type Runs = SmallVec<[Run; 1]>;

/// The flattened layout of a datatype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    runs: Runs,
    /// Packed bytes of an element.
    size: usize,
    /// Whether nearly all bytes lie in blocks of at least a cache line.
    fills_lines: bool,
    /// Distance between elements.
    extent: isize,
    /// The distance between blocks, if all blocks of any number of elements form one run.
    stride: Option<isize>,
}

/// The layout has too many runs, or is larger than the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooComplex;

impl Segments {
    /// Packed bytes of an element.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether at most an eighth of the bytes lies in blocks shorter than a cache line. Blocks of adjacent elements
    /// count as separate.
    #[inline]
    pub fn fills_lines(&self) -> bool {
        self.fills_lines
    }

    /// Distance between elements.
    #[inline]
    pub fn extent(&self) -> isize {
        self.extent
    }

    /// How many runs an element has.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Where the data of `count` elements start and end, relative to the buffer; none if there are no data.
    pub fn bounds(&self, count: usize) -> Option<(isize, isize)> {
        let last = isize::try_from(count.checked_sub(1)?).ok()?.checked_mul(self.extent)?;
        let mut bounds: Option<(isize, isize)> = None;
        for run in &self.runs {
            let across = run.stride.wrapping_mul(run.repeat as isize - 1);
            let low = run.at + across.min(0);
            let high = run.at + across.max(0) + run.len as isize;
            bounds = Some(bounds.map_or((low, high), |bounds| (bounds.0.min(low), bounds.1.max(high))));
        }
        let (low, high) = bounds?;
        Some((low.checked_add(last.min(0))?, high.checked_add(last.max(0))?))
    }

    /// Where the data of `count` elements start, relative to the buffer, if they lie packed in memory.
    #[inline]
    pub fn contiguous_at(&self, count: usize) -> Option<isize> {
        match self.runs[..] {
            [] => Some(0),
            [run] if run.repeat == 1 && (count <= 1 || self.extent == run.len as isize) => Some(run.at),
            _ => None,
        }
    }

    /// Places and lengths of the blocks of `count` elements, in packed order; adjacent ones are not merged.
    pub fn blocks(&self, count: usize) -> impl Iterator<Item = (isize, usize)> + '_ {
        (0..count).flat_map(move |element| {
            let start = self.extent.wrapping_mul(element as isize);
            self.runs.iter().flat_map(move |run| {
                let place = move |block| run.at.wrapping_add(run.stride.wrapping_mul(block as isize));
                (0..run.repeat).map(move |block| (start.wrapping_add(place(block)), run.len))
            })
        })
    }

    /// The same layout with its elements at another distance.
    pub fn resized(&self, extent: isize) -> Self {
        Self::new(self.runs.clone(), self.size, extent)
    }

    fn new(runs: Runs, size: usize, extent: isize) -> Self {
        let stride = match runs[..] {
            [run] if run.repeat == 1 => Some(extent),
            [run] if (run.repeat as isize).checked_mul(run.stride) == Some(extent) => Some(run.stride),
            _ => None,
        };
        let short: usize = runs.iter().filter(|run| run.len < LINE).map(|run| run.len * run.repeat).sum();
        Self { runs, size, fills_lines: short <= size / 8, extent, stride }
    }

    /// Copies the packed bytes `offset .. offset + n` of the elements at `base` to `to`.
    ///
    /// # Safety
    /// The elements that hold this range are readable, `to` is writable for `n` bytes, and they do not overlap.
    #[inline]
    pub unsafe fn gather(&self, base: *const u8, offset: usize, to: *mut u8, n: usize) {
        // SAFETY: the contract of `walk` is that of this function; `Gather` only reads from the elements.
        unsafe { self.walk::<Gather>(base.cast_mut(), offset, to, n) }
    }

    /// Replaces the packed bytes `offset .. offset + n` of the elements at `base` by those at `from`.
    ///
    /// # Safety
    /// The elements that hold this range are writable, `from` is readable for `n` bytes, and they do not overlap.
    #[inline]
    pub unsafe fn scatter(&self, base: *mut u8, offset: usize, from: *const u8, n: usize) {
        // SAFETY: the contract of `walk` is that of this function; `Scatter` only reads from the packed bytes.
        unsafe { self.walk::<Scatter>(base, offset, from.cast_mut(), n) }
    }

    /// Moves the packed bytes `offset .. offset + n` between the elements at `base` and `packed`.
    ///
    /// # Safety
    /// What `M` reads is readable and what it writes is writable: in the elements that hold the range, and `n` bytes at
    /// `packed`. They do not overlap.
    unsafe fn walk<M: Move>(&self, base: *mut u8, offset: usize, packed: *mut u8, n: usize) {
        if n == 0 {
            return;
        }
        if let (Some(stride), Some(run)) = (self.stride, self.runs.first()) {
            let all = Run { stride, repeat: usize::MAX, ..*run };
            // SAFETY: all blocks are `stride` apart, so the range lies in this unlimited run as it does in the
            // elements.
            unsafe { all.transfer::<M>(base, offset, packed, n) };
            return;
        }
        let (mut element, within) = (offset / self.size, offset % self.size);
        let mut index = self.runs.partition_point(|run| run.packed <= within) - 1;
        let mut skip = within - self.runs[index].packed;
        let mut done = 0;
        loop {
            let start = base.wrapping_offset(self.extent.wrapping_mul(element as isize));
            for run in &self.runs[index..] {
                // SAFETY: the run lies in an element that holds part of the range.
                done += unsafe { run.transfer::<M>(start, skip, packed.add(done), n - done) };
                if done == n {
                    return;
                }
                skip = 0;
            }
            index = 0;
            element += 1;
        }
    }
}

impl Run {
    /// Moves up to `most` bytes of this run, from its packed byte `skip` on. Returns how many it moved.
    ///
    /// # Safety
    /// As for [`Segments::walk`], with this run at `start`, and `most` bytes at `packed`.
    #[inline(always)]
    unsafe fn transfer<M: Move>(&self, start: *mut u8, skip: usize, packed: *mut u8, most: usize) -> usize {
        let (block, within) = if skip == 0 { (0, 0) } else { (skip / self.len, skip % self.len) };
        let mut memory = start.wrapping_offset(self.at.wrapping_add(self.stride.wrapping_mul(block as isize)));
        let n = most.min(self.len.saturating_mul(self.repeat - block) - within);
        let mut done = 0;
        // SAFETY: each step stays within the blocks of this run and within `n` bytes.
        unsafe {
            if within > 0 {
                done = n.min(self.len - within);
                M::one(memory.wrapping_add(within), packed, done);
                memory = memory.wrapping_offset(self.stride);
            }
            let whole = if n - done < 2 * self.len { (n - done >= self.len) as usize } else { (n - done) / self.len };
            M::many(memory, self.stride, packed.add(done), self.len, whole);
            done += whole * self.len;
            if done < n {
                let memory = memory.wrapping_offset(self.stride.wrapping_mul(whole as isize));
                M::one(memory, packed.add(done), n - done);
            }
        }
        n
    }
}

/// A direction of moving.
trait Move {
    /// Moves `len` bytes.
    ///
    /// # Safety
    /// The source is readable, the destination writable for `len` bytes; they do not overlap.
    unsafe fn one(memory: *mut u8, packed: *mut u8, len: usize);

    /// Moves `blocks` blocks of `len` bytes, `stride` apart in memory.
    ///
    /// # Safety
    /// As for `one`, for each block.
    #[inline(always)]
    unsafe fn many(memory: *mut u8, stride: isize, packed: *mut u8, len: usize, blocks: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match len {
                _ if blocks == 1 => Self::one(memory, packed, len),
                1 => Self::each(memory, stride, packed, 1, blocks),
                2 => Self::each(memory, stride, packed, 2, blocks),
                3 => Self::pairs::<2>(memory, stride, packed, len, blocks),
                4 => Self::each(memory, stride, packed, 4, blocks),
                5..8 => Self::pairs::<4>(memory, stride, packed, len, blocks),
                8 => Self::each(memory, stride, packed, 8, blocks),
                9..16 => Self::pairs::<8>(memory, stride, packed, len, blocks),
                16 => Self::each(memory, stride, packed, 16, blocks),
                17..32 => Self::pairs::<16>(memory, stride, packed, len, blocks),
                32 => Self::each(memory, stride, packed, 32, blocks),
                33..64 => Self::pairs::<32>(memory, stride, packed, len, blocks),
                64 => Self::each(memory, stride, packed, 64, blocks),
                65..=128 => Self::pairs::<64>(memory, stride, packed, len, blocks),
                _ => Self::each(memory, stride, packed, len, blocks),
            }
        }
    }

    /// Moves blocks as `many` does, one by one. Where the compiler knows a short length, this takes no call for each
    /// block.
    ///
    /// # Safety
    /// As for `many`.
    #[inline(always)]
    unsafe fn each(memory: *mut u8, stride: isize, packed: *mut u8, len: usize, blocks: usize) {
        for block in 0..blocks {
            // SAFETY: the caller's promise.
            unsafe {
                let memory = memory.wrapping_offset(stride.wrapping_mul(block as isize));
                Self::one(memory, packed.add(block * len), len);
            }
        }
    }

    /// Moves blocks as `many` does, of `N` to `2 * N` bytes each: the first `N` bytes, then the last `N`, so some are
    /// moved twice.
    ///
    /// # Safety
    /// As for `many`.
    #[inline(always)]
    unsafe fn pairs<const N: usize>(memory: *mut u8, stride: isize, packed: *mut u8, len: usize, blocks: usize) {
        debug_assert!((N..=2 * N).contains(&len));
        for block in 0..blocks {
            // SAFETY: the caller's promise.
            unsafe {
                let (memory, packed) =
                    (memory.wrapping_offset(stride.wrapping_mul(block as isize)), packed.add(block * len));
                Self::one(memory, packed, N);
                Self::one(memory.wrapping_add(len - N), packed.add(len - N), N);
            }
        }
    }
}

/// From memory to packed bytes.
struct Gather;

impl Move for Gather {
    #[inline(always)]
    unsafe fn one(memory: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { packed.copy_from_nonoverlapping(memory, len) }
    }
}

/// From packed bytes to memory.
struct Scatter;

impl Move for Scatter {
    #[inline(always)]
    unsafe fn one(memory: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { memory.copy_from_nonoverlapping(packed, len) }
    }
}

/// Puts [`Segments`] together from blocks in the order of the typemap.
#[derive(Debug)]
pub struct Builder {
    runs: Runs,
    /// The last block, which may still grow: its place and length.
    open: Option<(isize, usize)>,
    size: usize,
    /// The most runs that are allowed; it also limits the steps of building.
    most: usize,
    steps: usize,
}

impl Builder {
    /// An empty layout, which may get at most `most` runs.
    pub fn new(most: usize) -> Self {
        Self { runs: Runs::new(), open: None, size: 0, most, steps: 0 }
    }

    /// Adds a block of `len` bytes at `at`.
    ///
    /// # Errors
    /// If the layout becomes too complex.
    pub fn push(&mut self, at: isize, len: usize) -> Result<(), TooComplex> {
        if len == 0 {
            return Ok(());
        }
        // Blocks that merge leave few runs, yet take time, so steps are limited too.
        self.steps += 1;
        if self.steps > 16 * self.most {
            return Err(TooComplex);
        }
        let length = isize::try_from(len).map_err(|_| TooComplex)?;
        at.checked_add(length).ok_or(TooComplex)?;
        let size = self.size.checked_add(len).filter(|&size| isize::try_from(size).is_ok()).ok_or(TooComplex)?;
        match &mut self.open {
            Some((open_at, open_len)) if *open_at + *open_len as isize == at => *open_len += len,
            _ => {
                self.close()?;
                self.open = Some((at, len));
            }
        }
        self.size = size;
        Ok(())
    }

    /// Adds `repeat` copies of `layout`, `stride` bytes apart, the first at `at`.
    ///
    /// # Errors
    /// If the layout becomes too complex.
    pub fn push_all(&mut self, layout: &Segments, at: isize, stride: isize, repeat: usize) -> Result<(), TooComplex> {
        if layout.size == 0 || repeat == 0 {
            return Ok(());
        }
        let place = |copy: usize, inner: isize| {
            let outer = isize::try_from(copy).ok()?.checked_mul(stride)?.checked_add(at)?;
            outer.checked_add(inner)
        };
        match layout.runs[..] {
            [run] if run.repeat == 1 => {
                place(repeat, run.at).ok_or(TooComplex)?;
                self.push_strided(place(0, run.at).ok_or(TooComplex)?, run.len, stride, repeat)
            }
            _ => {
                for copy in 0..repeat {
                    for run in &layout.runs {
                        self.push_strided(place(copy, run.at).ok_or(TooComplex)?, run.len, run.stride, run.repeat)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds `repeat` blocks of `len` bytes, `stride` bytes apart, the first at `at`.
    fn push_strided(&mut self, at: isize, len: usize, stride: isize, repeat: usize) -> Result<(), TooComplex> {
        if isize::try_from(len) == Ok(stride) {
            return self.push(at, len.checked_mul(repeat).ok_or(TooComplex)?);
        }
        let place = |block: usize| at.checked_add(stride.checked_mul(isize::try_from(block).ok()?)?);
        if repeat < 4 {
            return (0..repeat).try_for_each(|block| self.push(place(block).ok_or(TooComplex)?, len));
        }
        // The first block may continue the block before it, and the next block may continue the last. Those between
        // form a run.
        self.push(at, len)?;
        self.close()?;
        let between = repeat - 2;
        place(repeat).ok_or(TooComplex)?;
        let bytes = between.checked_mul(len).ok_or(TooComplex)?;
        let size = self.size.checked_add(bytes).filter(|&size| isize::try_from(size).is_ok()).ok_or(TooComplex)?;
        self.append(Run { at: at + stride, len, stride, repeat: between, packed: self.size })?;
        self.size = size;
        self.push(place(repeat - 1).ok_or(TooComplex)?, len)
    }

    /// Ends the open block.
    fn close(&mut self) -> Result<(), TooComplex> {
        match self.open.take() {
            None => Ok(()),
            Some((at, len)) => self.append(Run { at, len, stride: 0, repeat: 1, packed: self.size - len }),
        }
    }

    /// Adds a run, or extends the last one where `run` continues it.
    fn append(&mut self, run: Run) -> Result<(), TooComplex> {
        if let Some(last) = self.runs.last_mut() {
            let gap = run.at.wrapping_sub(last.at);
            let is_second = last.repeat == 1 && (run.repeat == 1 || run.stride == gap);
            let is_next = last.repeat > 1
                && last.stride.checked_mul(last.repeat as isize) == Some(gap)
                && (run.repeat == 1 || run.stride == last.stride);
            if last.len == run.len && (is_second || is_next) {
                last.stride = if is_second { gap } else { last.stride };
                last.repeat += run.repeat;
                return Ok(());
            }
        }
        if self.runs.len() == self.most {
            return Err(TooComplex);
        }
        self.runs.push(run);
        Ok(())
    }

    /// The layout, with its elements `extent` bytes apart.
    ///
    /// # Errors
    /// If the layout is too complex.
    pub fn finish(mut self, extent: isize) -> Result<Segments, TooComplex> {
        self.close()?;
        Ok(Segments::new(self.runs, self.size, extent))
    }
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
