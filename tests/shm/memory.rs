//! Buffers as a program has them: with or without holes, and with bytes around them that nobody may touch.

use huddle::fabric::shm::Buffer;
use huddle::kernel::PackedBuffer;

const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xA5;
/// Data and holes take turns: bytes of each block of data, and of each hole.
const BLOCK: usize = 5;
const HOLE: usize = 3;

/// `extent` bytes between guards, with byte i of `contents` at `place(i)`.
fn guarded(contents: &[u8], extent: usize, place: impl Fn(usize) -> usize) -> Vec<u8> {
    let mut memory = vec![UNTOUCHED; extent + 2 * GUARD];
    contents.iter().enumerate().for_each(|(index, byte)| memory[GUARD + place(index)] = *byte);
    memory
}

/// A buffer.
pub struct Area {
    memory: Vec<u8>,
    length: usize,
    holes: Option<WithHoles>,
}

/// The packed view of a buffer with holes.
struct WithHoles {
    base: *mut u8,
    length: usize,
}

// SAFETY: the pointer leads into memory of the area that owns it, which one rank uses at a time.
unsafe impl Sync for WithHoles {}
// SAFETY: the pointer leads into memory of the area that owns it, which one rank uses at a time.
unsafe impl Send for WithHoles {}

fn place(packed: usize) -> usize {
    packed / BLOCK * (BLOCK + HOLE) + packed % BLOCK
}

impl Area {
    /// A buffer that holds `contents`.
    pub fn new(contents: &[u8]) -> Self {
        Self { memory: guarded(contents, contents.len(), |index| index), length: contents.len(), holes: None }
    }

    /// A buffer that holds `contents`, with holes.
    pub fn with_holes(contents: &[u8]) -> Self {
        let length = contents.len();
        let mut memory = guarded(contents, place(length), place);
        let holes = Some(WithHoles { base: memory[GUARD..].as_mut_ptr(), length });
        Self { memory, length, holes }
    }

    /// The buffer in the form that the fabric takes.
    pub fn buffer(&self) -> Buffer<'_> {
        match &self.holes {
            Some(holes) => Buffer::Packed(holes),
            None => self.part(0),
        }
    }

    /// The buffer from `offset` on; it must have no holes.
    pub fn part(&self, offset: usize) -> Buffer<'_> {
        assert!(self.holes.is_none() && offset <= self.length);
        Buffer::Contiguous(self.memory[GUARD + offset..].as_ptr().cast_mut())
    }

    /// What the buffer holds now.
    ///
    /// # Panics
    /// If anything around the buffer, or in its holes, has changed.
    pub fn contents(&self) -> Vec<u8> {
        let place = |index| GUARD + if self.holes.is_some() { place(index) } else { index };
        let mut rest = self.memory.clone();
        let contents = (0..self.length).map(|index| std::mem::replace(&mut rest[place(index)], UNTOUCHED)).collect();
        assert!(rest.iter().all(|byte| *byte == UNTOUCHED), "written outside of a buffer");
        contents
    }
}

impl PackedBuffer for WithHoles {
    unsafe fn read(&self, offset: usize, to: *mut u8, n: usize) {
        assert!(offset + n <= self.length);
        for index in 0..n {
            // SAFETY: the range is within the buffer, as checked; the caller promises room for `n` bytes at `to`.
            unsafe { to.add(index).write(self.base.add(place(offset + index)).read()) };
        }
    }

    unsafe fn write(&self, offset: usize, from: *const u8, n: usize) {
        assert!(offset + n <= self.length);
        for index in 0..n {
            // SAFETY: the range is within the buffer, as checked; the caller promises `n` bytes at `from`.
            unsafe { self.base.add(place(offset + index)).write(from.add(index).read()) };
        }
    }

    fn fills_lines(&self) -> bool {
        false
    }
}
