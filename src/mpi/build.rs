//! Building the context of a communicator: its ranks agree on shared memory, and its leaders on a way between nodes.
//!
//! All ranks are in the same collective call on the communicator, so they agree by native collectives on it: one
//! Allgather of offers, a second one where members share none of the leader's kept states, and one vote. They do
//! without the vote if all ranks are on one node, all have the context that was freed last, and its communicator's last
//! call went through it.

use super::board::{self, Board};
use super::bridge::BridgeComm;
use super::communicator::{self, Shared, Standing};
use super::device;
use super::failure::{Code, expect};
use super::job::Job;
use super::offers::{Offer, Offers, Source};
use super::pool::{NodeState, Offered};
use super::segments::{self, Blueprint, Own};
use crate::config::{Ring, lines_of};
use crate::fabric::shm::{Context, Geometry, Presences};
use crate::log::{self, Once};
use crate::mpi::handles::constants;
use crate::mpi::native::native;
use crate::topo::{Hierarchy, Layout, Levels};
use crate::tune::{Agreed, Reason};
use crate::types::{CommRank, NodeIndex, NodeRank};
use mpi_sys::{MPI_Comm, MPI_Group};
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

/// Builds the context of `comm`, or finds out why `comm` stays native. All its ranks find the same. Collective over it.
pub(super) fn build(job: &Job, comm: MPI_Comm) -> Standing {
    let shared = Builder::new(job, comm).and_then(|builder| builder.share());
    shared.map_or_else(Standing::Native, Standing::Shared)
}

/// A communicator that is about to get shared memory, as one of its ranks sees it.
struct Builder<'a> {
    job: &'a Job,
    comm: MPI_Comm,
    layout: Layout,
    me: CommRank,
    /// This rank on its node.
    node_rank: NodeRank,
    /// Per rank of the communicator.
    world_ranks: Vec<c_int>,
    geometry: Geometry,
}

/// A rank's context on its node's segment. In a box, since a context takes some KiB.
enum Basis {
    New(Box<Context>),
    /// The state that a freed communicator left, with its context renewed.
    Freed(Box<Shared>),
}

impl Basis {
    fn context(&mut self) -> &mut Context {
        match self {
            Self::New(context) => context,
            Self::Freed(shared) => shared.context_mut(),
        }
    }
}

/// When calls of the library fail here, for the line that says so.
const AGREEING: &str = "while ranks agree on a communicator's memory";

impl<'a> Builder<'a> {
    /// # Errors
    /// Why huddle does not serve `comm`. All its ranks find the same reason, without asking each other.
    fn new(job: &'a Job, comm: MPI_Comm) -> Result<Self, Reason> {
        let (mut is_inter, mut size, mut rank) = (0, 0, 0);
        // SAFETY: valid communicator and places.
        unsafe {
            native().comm_test_inter(comm, &mut is_inter);
            native().comm_size(comm, &mut size);
            native().comm_rank(comm, &mut rank);
        }
        if is_inter != 0 {
            return Err(Reason::Intercommunicator);
        }
        if size == 1 {
            return Err(Reason::SingleRank);
        }
        let world_ranks = world_ranks(job, comm, size);
        if world_ranks.iter().any(|rank| *rank < 0 || *rank as usize >= job.size) {
            return Err(Reason::OutsideCommWorld);
        }
        let labels: Vec<u32> = world_ranks.iter().map(|rank| job.labels[*rank as usize]).collect();
        let me = CommRank(rank as u32);
        let layout = Layout::new(&labels, me).with_leaders(job.config.leaders());
        if layout.largest_node() == 1 {
            return Err(Reason::OneRankPerNode);
        }
        let (node, node_rank) = layout.place(me);
        let ranks = layout.members(node).len();
        let Ring { slots, cell, round } = job.config.ring(layout.largest_node(), job.caches, job.crowding);
        let lines = lines_of(slots, job.crowding, communicator::count());
        let geometry = Geometry { ranks, slots, lines, cell, round };
        Ok(Self { job, comm, layout, me, node_rank, world_ranks, geometry })
    }

    fn share(mut self) -> Result<Box<Shared>, Reason> {
        // 1. Ranks say which segments they have kept; a leader that has kept none makes one.
        let mut offered =
            communicator::offer(&self.members(), &self.geometry, |context| !self.is_leader() || context.is_idle());
        let board = board::current();
        let (mut offer, mut own) = self.offer(&offered, board.as_deref());
        let mut offers = self.exchange(offer);
        if self.nodes().any(|node| offers.source(self.layout.members(node)) == Source::Again) {
            if self.is_leader() && offers.source(self.own_members()) == Source::Again {
                own = self.make_segment(&mut offer);
            }
            offers = self.exchange(offer);
        }
        // 2. All ranks judge the offers alike. Then members map the segment, and leaders create their communicator.
        if let Some(reason) = self.obstacle(&offers) {
            self.give_back(offer);
            return Err(self.decline(reason));
        }
        if !self.leaders().all(|leader| offers[leader].bridge != 0) {
            // The first leader of each node has one (see `obstacle`); the others do without.
            self.layout = self.layout.clone().with_leaders(1);
            if self.leader_index().is_none() {
                self.give_back(offer);
            }
        }
        let (basis, nonce, file) = self.basis(&offers, own, &mut offered, board.as_deref());
        if file.is_some() {
            // Members map the new segment meanwhile.
            self.blueprint().make_ahead();
        }
        let bridge = self.create_bridge(&offers);
        // 3. All ranks vote.
        let lack = match (&basis, &bridge) {
            (None, _) => Some(Reason::NoSharedMemory),
            (_, Err(reason)) => Some(*reason),
            (Some(_), Ok(_)) => None,
        };
        let is_prepared = offers.are_prepared(self.own_members());
        assert!(!is_prepared || lack.is_none(), "all ranks of the node have offered that context");
        let verdict = if is_prepared { None } else { self.vote(lack) };
        drop(file);
        match (basis, bridge, verdict) {
            (Some(basis), Ok(bridge), None) => Ok(self.finish(basis, nonce, bridge, &offers)),
            (_, _, verdict) => Err(self.decline(verdict.unwrap_or(Reason::NoContext))),
        }
    }

    /// The offer of this rank, and the new segment of a leader that has kept none.
    fn offer(&self, offered: &Offered<Shared>, board: Option<&Board>) -> (Offer, Option<Own>) {
        let pooled = offered.nonces();
        let mut offer = Offer {
            pooled,
            has_unknown_devices: u64::from(device::has_unknown()),
            board: board.map_or(0, Board::nonce),
            lines: self.geometry.lines as u64,
            ..Offer::default()
        };
        let mut own = None;
        if self.is_leader() {
            if let (Some(context), false) = (offered.left_by_a_call(), self.spans_nodes()) {
                // The context is idle, and its communicator has no more calls. A member that offers it too enters no
                // call in it before it has this offer.
                context.clear();
                offer.is_prepared = 1;
            }
            let find = || Hierarchy::of(&self.levels(), &self.job.kinds, self.job.trunk);
            offer.hierarchy = offered.hierarchy().unwrap_or_else(find).to_words();
            if pooled[0] == 0 {
                own = self.make_segment(&mut offer);
            }
        }
        if self.leader_index().is_some() {
            offer.bridge = self.reserve_bridge();
        }
        (offer, own)
    }

    /// World ranks of this node's members.
    fn members(&self) -> Box<[c_int]> {
        self.own_members().iter().map(|rank| self.world_ranks[rank.index()]).collect()
    }

    /// Where the ranks of this node tell whether they have their cores, if `board` is the board of all of them.
    fn presences(&self, board: &Board, offers: &Offers) -> Option<Presences> {
        board.presences(&self.members(), self.own_members().iter().map(|rank| offers[*rank].board))
    }

    /// This rank's context on its node's segment, the segment's nonce, and the file that must stay open until the vote.
    /// Like `finish` it is a function of its own: a context has some KiB, and the stack through which it passes is new
    /// memory in the first calls of a job.
    #[inline(never)]
    fn basis(
        &mut self,
        offers: &Offers,
        own: Option<Own>,
        offered: &mut Offered<Shared>,
        board: Option<&Board>,
    ) -> (Option<Basis>, u64, Option<File>) {
        if let Source::New(leader) = offers.source(self.own_members()) {
            self.geometry.lines = leader.lines as usize;
        }
        let (mut basis, nonce, file) = self.new_or_renewed(offers, own, offered);
        let presences = board.and_then(|board| self.presences(board, offers));
        if let (Some(basis), Some(presences)) = (&mut basis, presences) {
            basis.context().set_presences(presences);
        }
        (basis, nonce, file)
    }

    /// As `basis`, but with a context whose ranks tell in its own segment whether they have their cores.
    fn new_or_renewed(
        &self,
        offers: &Offers,
        own: Option<Own>,
        offered: &mut Offered<Shared>,
    ) -> (Option<Basis>, u64, Option<File>) {
        let new = |segment| {
            let (layout, levels) = (self.layout.clone(), self.levels());
            Basis::New(Box::new(Context::new(segment, self.geometry, self.node_rank, layout, levels)))
        };
        match (offers.source(self.own_members()), own) {
            (Source::New(offer), Some(own)) => (Some(new(own.segment)), offer.nonce, Some(own.file)),
            (Source::New(offer), None) => {
                let (process, descriptor) = (offer.process as u32, offer.descriptor as i32);
                let segment = segments::open(process, descriptor, self.geometry.length(), offer.nonce);
                (segment.map(new), offer.nonce, None)
            }
            (Source::Pooled(nonce), _) => {
                let gets_cells = |context: &Context| {
                    !has_cells_from_the_start(self.layout.nodes())
                        || context
                            .reserve_cells(self.geometry.cell)
                            .inspect_err(|error| self.report_no_memory(error))
                            .is_ok()
                };
                let renew = |mut shared: Box<Shared>| {
                    let context = shared.context_mut();
                    context.renew(self.layout.clone());
                    if !gets_cells(context) {
                        return None;
                    }
                    if self.is_leader() && !offers.are_prepared(self.own_members()) {
                        // The context was idle when it was offered, and nobody enters it before the vote.
                        context.clear();
                    }
                    Some(Basis::Freed(shared))
                };
                (offered.take(nonce).and_then(renew), nonce, None)
            }
            (Source::Again | Source::Nothing, _) => (None, 0, None),
        }
    }

    fn levels(&self) -> Levels {
        let path = |rank: &c_int| self.job.paths[*rank as usize].clone();
        let paths: Vec<Vec<u32>> = self.members().iter().map(path).collect();
        Levels::from_paths(&paths, self.node_rank)
    }

    fn is_leader(&self) -> bool {
        self.node_rank == NodeRank::LEADER
    }

    /// Which of its node's leaders this rank is.
    fn leader_index(&self) -> Option<usize> {
        self.layout.leader_index(self.layout.my_node(), self.node_rank)
    }

    /// The leaders with that index, by node.
    fn leaders_of(&self, index: usize) -> impl Iterator<Item = CommRank> {
        let leader = move |node| self.layout.members(node)[self.layout.leader(node, index).index()];
        self.nodes().map(leader)
    }

    /// All leaders.
    fn leaders(&self) -> impl Iterator<Item = CommRank> {
        (0..self.layout.leaders()).flat_map(|index| self.leaders_of(index))
    }

    fn give_back(&self, offer: Offer) {
        if offer.bridge != 0 {
            self.job.bridges.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn spans_nodes(&self) -> bool {
        self.layout.nodes() > 1
    }

    fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.layout.nodes() as u32).map(NodeIndex)
    }

    /// The ranks of this rank's node.
    fn own_members(&self) -> &[CommRank] {
        self.layout.members(self.layout.my_node())
    }

    /// Reserves one of the communicators between nodes that this process may have. Returns its number, or zero if none
    /// is left or none is needed.
    fn reserve_bridge(&self) -> u64 {
        if !self.spans_nodes() {
            return 0;
        }
        if self.job.bridges.fetch_add(1, Ordering::Relaxed) < self.job.config.bridges {
            1 + u64::from(self.job.sequence.fetch_add(1, Ordering::Relaxed))
        } else {
            self.job.bridges.fetch_sub(1, Ordering::Relaxed);
            0
        }
    }

    /// Makes a new segment, and notes in the offer how to open it.
    fn make_segment(&self, offer: &mut Offer) -> Option<Own> {
        match self.blueprint().make() {
            Ok(own) => {
                offer.process = u64::from(std::process::id());
                offer.descriptor = own.file.as_raw_fd() as u64;
                offer.nonce = own.nonce;
                Some(own)
            }
            Err(error) => {
                self.report_no_memory(&error);
                None
            }
        }
    }

    /// The blueprint of segments for this communicator.
    fn blueprint(&self) -> Blueprint {
        let geometry = self.geometry;
        // Where ranks share cores, giving one away takes so much longer than a line that the distance of lines does not
        // matter.
        Blueprint {
            geometry,
            is_whole: has_cells_from_the_start(self.layout.nodes()),
            has_near_flags: !self.job.crowding.is_shared(),
        }
    }

    fn report_no_memory(&self, error: &io::Error) {
        let length = self.geometry.length();
        log::once(
            Once::NoMemory,
            format_args!("no shared memory for a communicator ({length} bytes): {error}; it stays native"),
        );
    }

    /// All ranks' offers, by rank. If the MPI library fails to exchange them on this rank, the job ends: the other
    /// ranks may have them, and would wait for this one.
    fn exchange(&self, offer: Offer) -> Offers {
        let c = constants();
        let mut offers = vec![Offer::default(); self.layout.size()];
        let n = size_of::<Offer>() as c_int;
        // SAFETY: buffers of one and `size` offers.
        let code = unsafe {
            let (from, to) = ((&raw const offer).cast(), offers.as_mut_ptr().cast());
            native().allgather(from, n, c.byte, to, n, c.byte, self.comm)
        };
        expect("MPI_Allgather", AGREEING, code);
        Offers::new(offers)
    }

    /// Why the offers do not suffice; `None` if they do.
    fn obstacle(&self, offers: &Offers) -> Option<Reason> {
        let lacks_memory = |node| matches!(offers.source(self.layout.members(node)), Source::Nothing | Source::Again);
        if offers.iter().any(|offer| offer.has_unknown_devices != 0) {
            Some(Reason::DevicePointer)
        } else if self.nodes().any(lacks_memory) {
            Some(Reason::NoSharedMemory)
        } else if self.spans_nodes()
            && !self.nodes().all(|node| offers.of_leader(self.layout.members(node)).bridge != 0)
        {
            Some(Reason::TooManyBridges)
        } else {
            None
        }
    }

    /// The communicator of the leaders with this rank's index; `None` if this rank is no leader or there are no other
    /// nodes.
    ///
    /// # Errors
    /// Why there is none, after a line that says more; its place among HUDDLE_BRIDGES is free again.
    fn create_bridge(&self, offers: &Offers) -> Result<Option<BridgeComm>, Reason> {
        let Some(index) = self.leader_index().filter(|_| self.spans_nodes()) else {
            return Ok(None);
        };
        let leaders: Vec<CommRank> = self.leaders_of(index).collect();
        let world_ranks: Vec<c_int> = leaders.iter().map(|rank| self.world_ranks[rank.index()]).collect();
        let bridge = BridgeComm::create(self.job, &world_ranks, offers[leaders[0]].bridge);
        bridge.map(Some).map_err(|code| {
            self.job.bridges.fetch_sub(1, Ordering::Relaxed);
            report_no_bridge(code);
            Reason::NoContext
        })
    }

    /// The reason of some rank against the context, where this one's is `mine`; `None` if no rank has any. The same on
    /// all ranks.
    fn vote(&self, mine: Option<Reason>) -> Option<Reason> {
        /// Each rank tells the position of its reason here; the lowest one decides.
        const LACKS: [Option<Reason>; 3] = [Some(Reason::NoSharedMemory), Some(Reason::NoContext), None];
        let c = constants();
        let mine = LACKS.iter().position(|lack| *lack == mine).unwrap_or(0) as c_int;
        let mut least = 0;
        // SAFETY: buffers of one int.
        let code = unsafe {
            let (from, to) = ((&raw const mine).cast(), (&raw mut least).cast());
            native().allreduce(from, to, 1, c.int, c.min, self.comm)
        };
        expect("MPI_Allreduce", AGREEING, code);
        // Any other number is from another call of the program's: a rank is in it that left out a call because its
        // arguments were rejected.
        LACKS.get(least as usize).copied().unwrap_or(Some(Reason::NoContext))
    }

    /// Logs one line for the first communicator that all ranks agreed to leave native.
    fn decline(&self, reason: Reason) -> Reason {
        if self.me.0 == 0 {
            log::once(Once::Declined, format_args!("a communicator stays native: {}", reason.meaning()));
        }
        reason
    }

    #[inline(never)]
    fn finish(self, basis: Basis, nonce: u64, bridge: Option<BridgeComm>, offers: &Offers) -> Box<Shared> {
        let agreed = Agreed {
            ranks: self.layout.size(),
            nodes: self.layout.nodes(),
            largest_node: self.layout.largest_node(),
            is_block_placed: self.layout.is_block_placed(),
            cell_bytes: self.geometry.cell,
            slots: self.geometry.slots,
            crowding: self.job.crowding,
            leaders: self.layout.leaders(),
            fit: self.job.caches.fit(),
            hierarchy: Hierarchy::from_words(offers.of_leader(self.layout.members(NodeIndex(0))).hierarchy),
            has_single_copy: self.job.has_single_copy,
        };
        let context = match basis {
            Basis::New(context) => context,
            // The board and windows considered its segment when that was new.
            Basis::Freed(shared) => return shared.again(agreed, self.job, bridge),
        };
        let hierarchy = Hierarchy::from_words(offers.of_leader(self.own_members()).hierarchy);
        let node_state = NodeState { members: self.members(), nonce, hierarchy, context: *context };
        if self.job.waiting.is_oversubscribed {
            board::consider(&node_state);
        }
        if let (Some(own), true) = (self.job.own_traffic, node_state.members.len() == self.job.size) {
            self.job.windows.consider(&node_state.context, own);
        }
        Shared::new(node_state, agreed, self.job, bridge)
    }
}

/// Whether a communicator on so many nodes has its cells reserved when it is built, together with the vote that it
/// needs in any case. On one node its ranks agree on cells through the segment itself when a call needs them; between
/// nodes they could not.
pub(super) fn has_cells_from_the_start(nodes: usize) -> bool {
    nodes > 1
}

fn report_no_bridge(code: c_int) {
    let text = "no communicator for the steps between nodes of a communicator";
    log::once(Once::NoBridge, format_args!("{text}: MPI_Comm_create_group failed ({}); it stays native", Code(code)));
}

fn world_ranks(job: &Job, comm: MPI_Comm, size: c_int) -> Vec<c_int> {
    let ranks: Vec<c_int> = (0..size).collect();
    // They stay negative where the library rejects the question, as it may for processes outside MPI_COMM_WORLD.
    let mut world_ranks = vec![-1; size as usize];
    let mut group: MPI_Group = constants().group_null;
    // SAFETY: valid communicator, groups and places of `size` elements.
    unsafe {
        expect("MPI_Comm_group", AGREEING, native().comm_group(comm, &mut group));
        native().group_translate_ranks(group, size, ranks.as_ptr(), job.group, world_ranks.as_mut_ptr());
        native().group_free(&mut group);
    }
    world_ranks
}
