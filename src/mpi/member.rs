//! What the ranks of a node tell each other about their processes.

use crate::kernel;
use crate::topo::CpuMask;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process of the node.
pub(super) struct Member {
    sample: Sample,
    /// The processors on which it may run.
    pub mask: CpuMask,
}

impl Member {
    /// This process, which may run where `mask` says.
    pub fn of_this_process(mask: &CpuMask) -> Self {
        Self { sample: Sample::of_this_process(), mask: mask.clone() }
    }

    /// The wire format, with `of_mask` bytes of the mask, which may be more than it has.
    pub fn to_bytes(&self, of_mask: usize) -> Vec<u8> {
        [&self.sample.to_bytes()[..], &self.mask.to_bytes()[..of_mask]].concat()
    }

    /// Reads the wire format. Too few bytes give a process whose memory nobody can read.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (sample, mask) = bytes.split_first_chunk().unwrap_or((&[0; Sample::BYTES], &[]));
        Self { sample: Sample::from_bytes(sample), mask: CpuMask::from_bytes(mask) }
    }

    /// Whether this process can read the memory of `self`: that process is there, and the system permits it.
    pub fn is_readable(&self) -> bool {
        self.sample.is_readable()
    }
}

/// A word in the memory of a process, by which others find out whether they can read that memory.
struct Sample {
    process: u64,
    address: u64,
    value: u64,
}

impl Sample {
    /// Length of the wire format.
    const BYTES: usize = 24;

    fn of_this_process() -> Self {
        static SAMPLE: AtomicU64 = AtomicU64::new(0);
        let process = u64::from(std::process::id());
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let value = time.map_or(1, |time| time.as_nanos() as u64) ^ process << 40;
        SAMPLE.store(value, Ordering::Relaxed);
        Self { process, address: SAMPLE.as_ptr() as u64, value }
    }

    fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip([self.process, self.address, self.value]) {
            *to = word.to_ne_bytes();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [process, address, value] =
            [0, 8, 16].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default()));
        Self { process, address, value }
    }

    /// Whether this process can read the word: it is there, and the system permits it.
    fn is_readable(&self) -> bool {
        let mut found = [0; 8];
        // SAFETY: room for as many bytes.
        let is_read = unsafe { kernel::fetch(self.process as u32, self.address, found.as_mut_ptr(), found.len()) };
        is_read.is_ok() && found == self.value.to_ne_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_through_with_the_bytes_that_their_masks_take() {
        let mask: CpuMask = [0, 63, 64].into_iter().collect();
        let own = Member::of_this_process(&mask);
        for of_mask in [mask.length(), 64] {
            let bytes = own.to_bytes(of_mask);
            assert_eq!(bytes.len(), Sample::BYTES + of_mask);
            let member = Member::from_bytes(&bytes);
            assert_eq!(member.mask.iter().collect::<Vec<_>>(), [0, 63, 64]);
            assert_eq!(member.sample.to_bytes(), own.sample.to_bytes());
            assert_eq!(member.sample.process, u64::from(std::process::id()));
            assert_eq!(member.sample.address, own.sample.address);
        }
        assert!(!Member::from_bytes(&[]).is_readable());
    }
}
