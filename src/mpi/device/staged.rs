//! A buffer in memory of a device, as packed bytes in memory of the host.
//!
//! Only the data are read and written, block by block, never what lies between them: a kernel of the program may be at
//! work there.

use super::{Copies, Memory, memory_at};
use crate::mpi::communicator::Purpose;
use crate::mpi::view::View;
use std::ops::Range;

/// What a call does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The call reads it.
    Input,
    /// The call writes all of it.
    Output,
    /// The call reads it and writes all of it.
    InPlace,
}

impl Role {
    /// What the packed copy is for.
    pub fn purpose(self) -> Purpose {
        match self {
            Self::Input => Purpose::Send,
            Self::Output | Self::InPlace => Purpose::Recv,
        }
    }
}

/// A buffer of the program that lies, wholly or in part, in memory of a device.
pub struct Staged {
    view: View,
    role: Role,
    /// The memory in which all of it lies; `None` if each block has to be asked for.
    memory: Option<Memory>,
    /// Its packed bytes, on the host.
    packed: *mut u8,
}

impl Staged {
    /// The buffer of `view`, if any of it lies in memory of a device. `allocate` returns memory for so many packed
    /// bytes.
    pub fn new(view: &View, role: Role, allocate: impl FnOnce(usize) -> *mut u8) -> Option<Self> {
        if view.is_empty() {
            return None;
        }
        // The data of one buffer lie in one storage, unless they are given by absolute addresses (MPI-4.1 §5.1.12).
        // Programs also give such addresses relative to one of their variables.
        let Range { start, end } = view.span();
        let (first, last) = (memory_at(start), memory_at(end.wrapping_sub(1)));
        let is_one = !view.has_absolute_addresses() && first == last;
        let is_on_device = first.is_some() || last.is_some() || !is_one && has_device_block(view);
        let memory = if is_one { first } else { None };
        is_on_device.then(|| Self { view: view.clone(), role, memory, packed: allocate(view.len()) })
    }

    /// The address of its packed bytes.
    pub fn packed(&self) -> *mut u8 {
        self.packed
    }

    /// Before the call: copies what the call reads to the host. Returns the address of the packed bytes.
    pub fn fetch(&self) -> *mut u8 {
        if self.role != Role::Output {
            match self.view.whole() {
                None => self.each_block(|device, packed| (packed, device)),
                Some(whole) => {
                    let mut host = Host::new(&self.view);
                    self.each_byte(&mut host, |device, host| (host, device));
                    // SAFETY: the host's copy of all data, and room for them packed.
                    unsafe { whole.pack_at(host.base(&self.view), self.packed) };
                }
            }
        }
        self.packed
    }

    /// After the call: copies what it wrote to the device.
    pub fn store(&self) {
        if self.role != Role::Input {
            match self.view.whole() {
                None => self.each_block(|device, packed| (device, packed)),
                Some(whole) => {
                    let mut host = Host::new(&self.view);
                    // SAFETY: the packed data, and room for all of them.
                    unsafe { whole.unpack_at(self.packed, host.base(&self.view)) };
                    self.each_byte(&mut host, |device, host| (device, host));
                }
            }
        }
    }

    /// Copies all blocks, in packed order. `direction` gets a block's and its packed address, and returns target and
    /// source.
    fn each_block(&self, direction: fn(*mut u8, *mut u8) -> (*mut u8, *mut u8)) {
        let (mut copying, mut packed) = (Copying::new(self.memory), self.packed);
        self.view.each_block(&mut |block, n| {
            let (to, from) = direction(block, packed);
            // SAFETY: a block of the program's buffer, and its place among the packed bytes.
            unsafe { copying.add(block, to, from, n) };
            packed = packed.wrapping_add(n);
        });
        copying.end();
    }

    /// Copies data that only the library can pack, between the device and `host`, a copy of the memory in which they
    /// lie.
    fn each_byte(&self, host: &mut Host, direction: fn(*mut u8, *mut u8) -> (*mut u8, *mut u8)) {
        let mut copying = Copying::new(self.memory);
        let start = self.view.span().start;
        for Range { start: at, end } in host.data(&self.view) {
            let block = start.wrapping_add(at);
            let (to, from) = direction(block, host.bytes.as_mut_ptr().wrapping_add(at));
            // SAFETY: data of the program's buffer, and the same place in the copy.
            unsafe { copying.add(block, to, from, end - at) };
        }
        copying.end();
    }
}

fn has_device_block(view: &View) -> bool {
    let mut found = false;
    view.each_block(&mut |block, _| found = found || memory_at(block).is_some());
    found
}

/// Copies of blocks that lie in one memory, or each in its own.
enum Copying {
    One(Copies),
    Each,
}

impl Copying {
    fn new(memory: Option<Memory>) -> Self {
        memory.map_or(Self::Each, |memory| Self::One(Copies::begin(memory)))
    }

    /// Copies `n` bytes. `block` is the one of `to` and `from` that may lie on a device.
    ///
    /// # Safety
    /// As for [`Copies::add`].
    unsafe fn add(&mut self, block: *mut u8, to: *mut u8, from: *mut u8, n: usize) {
        // SAFETY: the caller's promise; memory that is not a device's the host can use.
        unsafe {
            match self {
                Self::One(copies) => copies.add(to, from, n),
                Self::Each => match memory_at(block) {
                    None => to.copy_from_nonoverlapping(from, n),
                    Some(memory) => {
                        let mut copies = Copies::begin(memory);
                        copies.add(to, from, n);
                        copies.end();
                    }
                },
            }
        }
    }

    fn end(self) {
        if let Self::One(copies) = self {
            copies.end();
        }
    }
}

/// A copy, on the host, of the memory in which data lie that only the library can pack.
struct Host {
    bytes: Vec<u8>,
}

impl Host {
    fn new(view: &View) -> Self {
        let Range { start, end } = view.span();
        Self { bytes: vec![0; end.addr() - start.addr()] }
    }

    /// The address in this copy that stands for the buffer's address.
    fn base(&mut self, view: &View) -> *mut u8 {
        let before = view.span().start.addr().wrapping_sub(view.address().addr());
        self.bytes.as_mut_ptr().wrapping_sub(before)
    }

    /// Where the data are: the bytes that the library writes when it unpacks. Leaves this copy as it was.
    fn data(&self, view: &View) -> Vec<Range<usize>> {
        let (ones, mut mask) = (vec![u8::MAX; view.len()], Self::new(view));
        if let Some(whole) = view.whole() {
            // SAFETY: as many packed bytes as the view has, and room for the data.
            unsafe { whole.unpack_at(ones.as_ptr(), mask.base(view)) };
        }
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (at, _) in mask.bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => ranges.push(at..at + 1),
            }
        }
        ranges
    }
}
