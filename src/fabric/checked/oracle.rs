//! What the ranks bring to a call and what they must find after it, computed the plain way.

use super::memory::Buffers;
use super::operator::Operator;
use super::program::Call;
use super::random::Random;
use crate::types::{Collective, CommRank};

/// The operation of a call, if it has one.
pub(super) fn operator(call: &Call) -> Option<Operator> {
    call.collective().is_reduction().then(|| Operator::new(call.plan.order, call.plan.granule))
}

/// Inputs by rank, and the result.
#[derive(Debug)]
pub(super) struct Data {
    inputs: Vec<Vec<u8>>,
    result: Vec<u8>,
}

impl Data {
    /// Random inputs for `ranks` ranks.
    pub(super) fn random(call: &Call, ranks: usize, random: &mut Random) -> Self {
        let operator = operator(call);
        let inputs: Vec<Vec<u8>> = (0..ranks)
            .map(|rank| {
                let n = input_bytes(call, rank, ranks);
                match operator {
                    Some(operator) => operator.random(random, n),
                    None => random.bytes(n),
                }
            })
            .collect();
        let root = call.plan.root.index();
        let result = match call.collective() {
            Collective::Allreduce | Collective::Reduce => {
                let operator = operator.expect("reductions have an operation");
                let combine = |left: Vec<u8>, right: &Vec<u8>| {
                    let mut result = Vec::with_capacity(left.len());
                    operator.combine(&left, right, &mut result);
                    result
                };
                inputs[1..].iter().fold(inputs[0].clone(), combine)
            }
            Collective::Bcast | Collective::Scatter => inputs[root].clone(),
            Collective::Allgather => inputs.concat(),
            Collective::Barrier => Vec::new(),
        };
        Self { inputs, result }
    }

    /// The buffers of one rank before the call.
    pub(super) fn buffers(&self, call: &Call, rank: usize) -> Buffers {
        Buffers {
            input: self.inputs[rank].clone(),
            output: output_bytes(call, rank, self.inputs.len()),
            is_bcast: call.collective() == Collective::Bcast,
            in_place: in_place(call, rank),
            scratch: call.plan.scratch.0,
        }
    }

    /// The first byte of the receive buffer that is wrong after the call.
    pub(super) fn first_wrong(&self, call: &Call, rank: usize, output: &[u8]) -> Option<usize> {
        let bytes = call.plan.bytes.0;
        let expected = match call.collective() {
            Collective::Scatter => &self.result[bytes * rank..][..bytes],
            Collective::Reduce if !is_root(call, rank) => &[],
            _ => &self.result[..],
        };
        assert_eq!(expected.len(), output.len());
        if expected == output {
            return None;
        }
        expected.iter().zip(output).position(|(expected, found)| expected != found)
    }
}

fn is_root(call: &Call, rank: usize) -> bool {
    call.plan.root == CommRank(rank as u32)
}

fn input_bytes(call: &Call, rank: usize, ranks: usize) -> usize {
    let bytes = call.plan.bytes.0;
    match call.collective() {
        Collective::Allreduce | Collective::Reduce | Collective::Allgather => bytes,
        Collective::Bcast if is_root(call, rank) => bytes,
        Collective::Scatter if is_root(call, rank) => bytes * ranks,
        Collective::Bcast | Collective::Scatter | Collective::Barrier => 0,
    }
}

fn output_bytes(call: &Call, rank: usize, ranks: usize) -> usize {
    let bytes = call.plan.bytes.0;
    match call.collective() {
        Collective::Allreduce | Collective::Bcast | Collective::Scatter => bytes,
        Collective::Allgather => bytes * ranks,
        Collective::Reduce if is_root(call, rank) => bytes,
        Collective::Reduce | Collective::Barrier => 0,
    }
}

/// Where the shorter of this rank's buffers starts in the longer one; `None` if the rank does not work in place.
pub(super) fn in_place(call: &Call, rank: usize) -> Option<usize> {
    let offset = match call.collective() {
        Collective::Allreduce => 0,
        Collective::Reduce if is_root(call, rank) => 0,
        Collective::Allgather => call.plan.bytes.0 * rank,
        Collective::Scatter if is_root(call, rank) => call.plan.bytes.0 * rank,
        _ => return None,
    };
    call.in_place[rank].then_some(offset)
}
