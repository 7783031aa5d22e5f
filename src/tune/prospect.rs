//! What the calls of a collective on a communicator can expect, before any of them is made.

use super::choose::{has_too_short_cells, mixes_order};
use super::{Agreed, Reason};
use crate::config::{Config, Pick};
use crate::types::{Bytes, Collective};

/// What [`choose`](super::choose()) decides about the calls of a collective on a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It declines all of them. Nobody looks at their arguments, so this is also the reason of calls that are empty or
    /// that MPI rejects.
    Declined(Reason),
    /// It declines some of them, for their size or their operation.
    Mixed,
    /// It declines those without data, and otherwise only calls of unusual sizes.
    Served,
}

impl Prospect {
    /// The prospect of the calls of `collective`.
    pub fn of(collective: Collective, config: &Config, agreed: &Agreed) -> Self {
        let selection = config.selection(collective);
        let is_reduction = collective.is_reduction();
        // A barrier has one size.
        let (is_native, may_be_native) = match collective {
            Collective::Barrier => (selection.pick(Bytes::ZERO) == Pick::Native, false),
            _ => (selection.is_native(), selection.may_be_native()),
        };
        if agreed.ranks <= 1 {
            Self::Declined(Reason::SingleRank)
        } else if is_native {
            Self::Declined(Reason::ForcedNative)
        } else if has_too_short_cells(collective, agreed) {
            Self::Declined(Reason::BlocksLargerThanSlot)
        } else if may_be_native || is_reduction && mixes_order(agreed) {
            Self::Mixed
        } else {
            Self::Served
        }
    }

    /// The prospects of all collectives.
    pub fn of_all(config: &Config, agreed: &Agreed) -> [Self; Collective::ALL.len()] {
        Collective::ALL.map(|collective| Self::of(collective, config, agreed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawEnvironment;
    use crate::model::Parameters;
    use crate::topo::Hierarchy;
    use crate::tune::{Choice, Map, OperatorClass, Shape, choose, early_reason};
    use crate::types::{CommRank, Epoch, OperandOrder};

    const ONE_NODE: Agreed = Agreed { cell_bytes: Bytes(1 << 10), ..Agreed::on_one_node(4, Hierarchy::flat(4, None)) };
    const AGREED: [Agreed; 5] = [
        ONE_NODE,
        Agreed { nodes: 2, largest_node: 2, ..ONE_NODE },
        Agreed { nodes: 2, largest_node: 2, is_block_placed: false, ..ONE_NODE },
        Agreed { ranks: 2000, largest_node: 2000, ..ONE_NODE },
        Agreed { ranks: 1, largest_node: 1, ..ONE_NODE },
    ];
    const SELECTIONS: [&str; 6] =
        ["auto", "native", "<=1K:native", "<=1K:native,native", "<=1K:tree,native", "<=0:native"];

    fn config(text: &str) -> Config {
        let variables = Collective::ALL.map(|collective| format!("HUDDLE_{}", collective.name().to_uppercase()));
        Config::parse(&RawEnvironment::new(variables.iter().map(|name| (name.as_str(), text)))).0
    }

    fn shapes(collective: Collective) -> Vec<Shape> {
        let is_reduction = collective.is_reduction();
        let sizes: &[usize] = if collective == Collective::Barrier { &[0] } else { &[0, 8, 1 << 10, 8 << 10, 1 << 20] };
        let operators: &[_] = match is_reduction {
            true => &[
                (8, OperatorClass::Predefined, OperandOrder::Any),
                (8, OperatorClass::Library, OperandOrder::Any),
                (8, OperatorClass::User, OperandOrder::Any),
            ],
            false => &[(1, OperatorClass::None, OperandOrder::Any)],
        };
        let of = |bytes| {
            operators.iter().map(move |&(granule, operator, order)| {
                let (bytes, granule) = (Bytes(bytes), Bytes(granule));
                Shape { collective, bytes, granule, root: CommRank(0), operator, order }
            })
        };
        sizes.iter().copied().flat_map(of).collect()
    }

    #[test]
    fn prospects_come_true() {
        for (text, agreed, collective) in SELECTIONS
            .iter()
            .flat_map(|text| AGREED.map(|agreed| (text, agreed)))
            .flat_map(|(text, agreed)| Collective::ALL.map(|collective| (*text, agreed, collective)))
        {
            let (config, map) = (config(text), Map::new(&agreed, &Parameters::default()));
            let is_declined = |shape: &Shape| {
                let choice = choose(&config, shape, &agreed, &map, Epoch(7));
                let reason = if let Choice::Decline(reason) = choice { Some(reason) } else { None };
                assert_eq!(early_reason(&config, shape, &agreed, Epoch(7)), reason);
                reason.is_some()
            };
            let shapes = shapes(collective);
            let mut with_data = shapes.iter().filter(|shape| shape.bytes > Bytes::ZERO);
            let has_data = collective != Collective::Barrier;
            match Prospect::of(collective, &config, &agreed) {
                Prospect::Declined(_) => assert!(shapes.iter().all(is_declined), "{text} {agreed:?} {collective:?}"),
                Prospect::Mixed => assert!(has_data, "{text} {agreed:?} {collective:?}"),
                Prospect::Served => assert!(!with_data.any(is_declined), "{text} {agreed:?} {collective:?}"),
            }
        }
    }

    #[test]
    fn what_is_native_for_all_sizes_is_declined_whatever_its_arguments() {
        let prospect = |text| Prospect::of(Collective::Bcast, &config(text), &ONE_NODE);
        let native = Prospect::Declined(Reason::ForcedNative);
        assert_eq!(
            SELECTIONS.map(prospect),
            [Prospect::Served, native, Prospect::Mixed, native, Prospect::Mixed, Prospect::Mixed]
        );
        let barrier = |text| Prospect::of(Collective::Barrier, &config(text), &ONE_NODE);
        assert_eq!(SELECTIONS.map(barrier), [Prospect::Served, native, native, native, Prospect::Served, native]);
    }

    #[test]
    fn a_communicator_may_have_its_own_reasons() {
        let gathering = Prospect::of(Collective::Scatter, &Config::default(), &AGREED[3]);
        assert_eq!(gathering, Prospect::Declined(Reason::BlocksLargerThanSlot));
        let reduction = |agreed| Prospect::of(Collective::Reduce, &Config::default(), agreed);
        assert_eq!([reduction(&AGREED[1]), reduction(&AGREED[2])], [Prospect::Served, Prospect::Mixed]);
    }
}
