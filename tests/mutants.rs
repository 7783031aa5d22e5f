//! x
use huddle::coll::REGISTRY;
use huddle::fabric::checked::{Change, Kind, Mutation, Program, Random};
use huddle::fabric::Line;
use huddle::types::CommRank;
use std::collections::BTreeMap;

const CHANGES: &[Change] = &[
    Change::Drop(Kind::Claim), Change::Drop(Kind::Release), Change::Drop(Kind::Publish), Change::Drop(Kind::Wait(Line::Up)),
    Change::Drop(Kind::Wait(Line::Down)), Change::Drop(Kind::CopyIn), Change::Drop(Kind::CopyOut), Change::Drop(Kind::Reduce),
    Change::Drop(Kind::Bridge), Change::Postpone(Kind::CopyIn), Change::Postpone(Kind::CopyOut), Change::Postpone(Kind::Reduce), 
    Change::Postpone(Kind::Claim),Change::Postpone(Kind::Wait(Line::Up)), Change::Postpone(Kind::Wait(Line::Down)),
    Change::ReleaseBefore(Kind::Wait(Line::Up)), Change::ReleaseBefore(Kind::Wait(Line::Down)), Change::ReleaseBefore(Kind::CopyOut), Change::ReleaseBefore(Kind::Reduce),
    Change::ClaimAtOnce, Change::OtherLine, Change::EarlierTicket, Change::MissingTicket, Change::SwapOperands, Change::ShortCopy,
    Change::PayloadForCell, Change::OthersSlot];

#[test]
fn table() {
    for change in CHANGES {
        let mut line = String::new();
        let mut faults = BTreeMap::new();
        for (row, r) in REGISTRY.iter().enumerate() {
            let (mut caught, mut affected, mut first) = (0, 0, 0);
            for seed in 1..=100 {
                let mut p = Program::random_of(seed, &[row]);
                let mut random = Random::new(seed);
                p.mutation = Some(Mutation { change: *change, rank: (!random.one_in(4)).then(|| CommRank(random.below(p.labels.len()) as u32)), period: random.pick(&[1,2,3]) });
                match p.run(seed) {
                    Ok(s) => affected += (s.mutated > 0) as u32,
                    Err(v) => { caught += 1; affected += 1; if first == 0 { first = seed; }
                        let f = format!("{:?}", v.fault); let f = f.split(&[' ', '(', '{']).next().unwrap().to_string(); *faults.entry(f).or_insert(0) += 1; }
                }
            }
            let _ = r;
            line += &format!(" {:>7}", format!("{caught}/{affected}"));
        }
        println!("{:<30}{line} {faults:?}", format!("{change:?}"));
    }
}
