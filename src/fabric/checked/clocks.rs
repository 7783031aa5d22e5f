//! Vector clocks: which operations of which rank happened before what another rank does now.
//!
//! Component `r` of a rank's clock counts the announcements of rank `r` that it knows of, directly or through others.
//! An access is stamped with its rank's own component only, as in FastTrack (Flanagan, Freund 2009). It happened before
//! what another rank does now exactly if, in the clock of that other rank, the component of the accessing rank is at
//! least the stamp.

use crate::types::Ticket;

/// A rank's own component of its clock.
pub(super) type Stamp = u32;

/// A clock as it was when something was announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot(usize);

/// The clocks of all ranks, now and at every announcement.
#[derive(Debug)]
pub(super) struct Clocks {
    size: usize,
    now: Vec<Stamp>,
    past: Vec<Stamp>,
}

impl Clocks {
    pub(super) fn new(size: usize) -> Self {
        let mut clocks = Self { size, now: vec![0; size * size], past: Vec::new() };
        (0..size).for_each(|rank| clocks.advance(rank));
        clocks
    }

    fn advance(&mut self, rank: usize) {
        self.now[rank * self.size + rank] += 1;
    }

    /// The stamp of what `rank` does now.
    pub(super) fn stamp(&self, rank: usize) -> Stamp {
        self.now[rank * self.size + rank]
    }

    /// Whether what `other` did under `stamp` happened before what `rank` does now.
    pub(super) fn knows(&self, rank: usize, other: usize, stamp: Stamp) -> bool {
        self.now[rank * self.size + other] >= stamp
    }

    /// Announces what `rank` has done so far: returns its clock, for others to join. What `rank` does from now on is
    /// not part of it.
    pub(super) fn announce(&mut self, rank: usize) -> Snapshot {
        let snapshot = Snapshot(self.past.len());
        self.past.extend_from_slice(&self.now[rank * self.size..][..self.size]);
        self.advance(rank);
        snapshot
    }

    /// Orders all that had happened before `snapshot` before what `rank` does from now on.
    pub(super) fn join(&mut self, rank: usize, snapshot: Snapshot) {
        let known = &self.past[snapshot.0..][..self.size];
        let mine = &mut self.now[rank * self.size..][..self.size];
        mine.iter_mut().zip(known).for_each(|(mine, known)| *mine = (*mine).max(*known));
    }
}

/// The announcements through one word, oldest first: growing tickets.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Vec<(Ticket, Snapshot)>);

impl History {
    /// The ticket announced last.
    pub(super) fn latest(&self) -> Option<Ticket> {
        self.0.last().map(|(ticket, _)| *ticket)
    }

    /// Whether `ticket` or a later one was announced.
    pub(super) fn reached(&self, ticket: Ticket) -> bool {
        self.latest().is_some_and(|latest| latest >= ticket)
    }

    /// Appends; `ticket` is later than all before.
    pub(super) fn push(&mut self, ticket: Ticket, snapshot: Snapshot) {
        self.0.push((ticket, snapshot));
    }

    /// The first announcement that satisfies a wait for `ticket`: all that a waiter may rely on, however late it looks.
    pub(super) fn first_reaching(&self, ticket: Ticket) -> Option<Snapshot> {
        let at = self.0.partition_point(|(announced, _)| *announced < ticket);
        self.0.get(at).map(|(_, snapshot)| *snapshot)
    }
}
