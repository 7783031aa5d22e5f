//! The network between nodes: what a message takes. Two ranks of different nodes measure it in a few milliseconds of
//! MPI_Init, and it is kept.
//!
//! The asking side says what comes next, so it alone decides how often; the answering side does what it is told. Every
//! wait has an end, so if one side fails the other goes on with the assumed network.

use crate::kept;
use crate::kernel::exchange::median;
use crate::kernel::host;
use crate::model::Network;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How two ranks talk.
pub trait Wire {
    /// Sends a message, which may stay under way for ever. Returns whether it has left.
    fn send(&mut self, message: &'static [u8]) -> bool;
    /// Receives a message as long as `message`. Returns whether it came within `patience`.
    fn receive(&mut self, message: &mut [u8], patience: Duration) -> bool;
}

/// Bytes of a long message: more than what libraries send without asking the receiver.
const LONG: usize = 256 << 10;
/// A long message.
static LONG_MESSAGE: [u8; LONG] = [1; LONG];
/// Messages of a burst, which follow each other.
const BURST: u32 = 16;
/// The most measurements of each kind.
const ROUNDS: usize = 30;
/// The fewest measurements of each kind, whatever time they take.
const LEAST: usize = 3;
/// The time for all measurements of one kind.
const BUDGET: Duration = Duration::from_micros(700);
/// A round trip of this many nanoseconds or more tells more of other work on the processors than of the network, so it
/// does not count.
const SLOW: f64 = 2e6;
/// After more slow round trips than this nothing is measured.
const MOST_SLOW: usize = 20;
/// After this time the next slow round trip ends the measurement.
const LONGEST: Duration = Duration::from_millis(100);
/// How long the answering side waits for the first word: the asking side reads files before.
const FIRST: Duration = Duration::from_secs(1);
/// How long a side waits for any other message, and for one of its own to leave.
pub const PATIENCE: Duration = Duration::from_millis(200);

/// What the answering side is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Word {
    Answer = 1,
    TakeBurst,
    TakeLong,
    Leave,
}

impl Word {
    fn of(byte: u8) -> Option<Self> {
        [Self::Answer, Self::TakeBurst, Self::TakeLong, Self::Leave].into_iter().find(|word| *word as u8 == byte)
    }

    fn as_message(self) -> &'static [u8] {
        match self {
            Self::Answer => &[Self::Answer as u8],
            Self::TakeBurst => &[Self::TakeBurst as u8],
            Self::TakeLong => &[Self::TakeLong as u8],
            Self::Leave => &[Self::Leave as u8],
        }
    }
}

/// Tells the other side to leave, and measures nothing.
pub fn dismiss(wire: &mut impl Wire) {
    wire.send(Word::Leave.as_message());
}

/// Answers until the other side says that it is done, or is silent.
pub fn answer(wire: &mut impl Wire) {
    let mut long = vec![0; LONG];
    let (mut word, mut patience) = ([0], FIRST);
    while wire.receive(&mut word, patience) {
        let Some(said) = Word::of(word[0]) else { return };
        let has_come = match said {
            Word::Answer => true,
            Word::TakeBurst => (0..BURST).all(|_| wire.receive(&mut [0; 8], PATIENCE)),
            Word::TakeLong => wire.receive(&mut long, PATIENCE),
            Word::Leave => return,
        };
        if !has_come || !wire.send(said.as_message()) {
            return;
        }
        patience = PATIENCE;
    }
}

/// Measures the network, and tells the other side to leave; `None` where it does not answer, or is slow too often.
pub fn ask(wire: &mut impl Wire) -> Option<Network> {
    let network = measure(wire);
    dismiss(wire);
    network
}

fn measure(wire: &mut impl Wire) -> Option<Network> {
    let round_trip = round_trips(wire)?;
    let mut sends = Vec::with_capacity(ROUNDS);
    let burst = rounds(|| {
        let (whole, sent) = exchange(wire, Word::TakeBurst, |wire| {
            let started = Instant::now();
            (0..BURST).all(|_| wire.send(&[0; 8])).then(|| nanos(started) / f64::from(BURST))
        })?;
        sends.push(sent);
        Some(whole)
    })?;
    let moved = rounds(|| {
        exchange(wire, Word::TakeLong, |wire| wire.send(&LONG_MESSAGE).then_some(())).map(|(whole, ())| whole)
    })?;
    Some(derive(round_trip, (burst, median(&mut sends)), moved))
}

/// Sends a word and what belongs to it, and awaits the answer. Returns the nanoseconds for all that, and the result of
/// `send`.
fn exchange<W: Wire, T>(wire: &mut W, word: Word, send: impl FnOnce(&mut W) -> Option<T>) -> Option<(f64, T)> {
    let started = Instant::now();
    if !wire.send(word.as_message()) {
        return None;
    }
    let sent = send(wire)?;
    let has_come = wire.receive(&mut [0], PATIENCE);
    let whole = started.elapsed();
    has_come.then_some((whole.as_nanos() as f64, sent))
}

/// The nanoseconds of a round trip; `None` where the other side does not answer, or is slow too often.
fn round_trips(wire: &mut impl Wire) -> Option<f64> {
    let (started, mut slow) = (Instant::now(), 0);
    rounds(|| {
        loop {
            let (whole, ()) = exchange(wire, Word::Answer, |_| Some(()))?;
            if whole < SLOW {
                return Some(whole);
            }
            slow += 1;
            if slow > MOST_SLOW || started.elapsed() > LONGEST {
                return None;
            }
        }
    })
}

/// The median of as many measurements as the budget permits.
fn rounds(mut measure: impl FnMut() -> Option<f64>) -> Option<f64> {
    let started = Instant::now();
    let mut times = Vec::with_capacity(ROUNDS);
    while times.len() < ROUNDS && (times.len() < LEAST || started.elapsed() < BUDGET) {
        times.push(measure()?);
    }
    Some(median(&mut times))
}

fn nanos(since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64
}

/// LogGP from the times of a round trip, of a burst and of sending each of its messages, and of a long message there
/// and a word back.
fn derive(round_trip: f64, (burst, send): (f64, f64), moved: f64) -> Network {
    let one_way = round_trip / 2.0;
    // A message arrives after L + 2 o, so the overheads of both ends can't be longer than that.
    let overhead = send.min(one_way / 2.0);
    let gap = ((burst - round_trip) / f64::from(BURST)).max(overhead);
    let per_byte = ((moved - round_trip) / LONG as f64).max(0.0);
    Network { latency: one_way - 2.0 * overhead, overhead, gap, per_byte }
}

/// Where the network is kept: by the kind of machine, the MPI library, and whether nodes are hosts.
pub struct Place {
    file: PathBuf,
    description: String,
}

impl Place {
    /// A file in `directory`; `what` tells libraries and kinds of nodes apart.
    pub fn new(directory: &Path, what: &str) -> Self {
        let description = format!("{}, {what}", host::description()).replace('\n', " ");
        Self { file: kept::file_in(directory, "network", &description), description }
    }

    /// The network that was measured before, if any.
    pub fn read(&self) -> Option<Network> {
        from_text(&kept::read(&self.file, &self.description)?)
    }

    /// Keeps the network for later jobs. A directory that can't be written is no reason to fail or to complain: the
    /// program did not ask for the file.
    pub fn write(&self, network: &Network) {
        let Network { latency, overhead, gap, per_byte } = network;
        let _ =
            kept::write(&self.file, &self.description, format!("{latency} {overhead} {gap} {per_byte}\n").as_bytes());
    }
}

/// All networks that jobs on this kind of machine have measured and kept in `directory`, each with its library and kind
/// of nodes.
pub fn all_kept(directory: &Path) -> Vec<(String, Network)> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let networks = files.filter(|file| file.file_name().as_encoded_bytes().starts_with(b"network-"));
    let mut found: Vec<_> = networks.filter_map(|file| of_this_machine(&file.path())).collect();
    found.sort_by(|left, right| left.0.cmp(&right.0));
    found
}

fn of_this_machine(file: &Path) -> Option<(String, Network)> {
    let text = kept::read_whole(file)?;
    let (description, numbers) = text.split_once('\n')?;
    let what = description.strip_prefix(host::description())?.strip_prefix(", ")?;
    Some((what.to_owned(), from_text(numbers)?))
}

fn from_text(text: &str) -> Option<Network> {
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    let numbers: [f64; 4] = numbers?.try_into().ok()?;
    let [latency, overhead, gap, per_byte] = numbers;
    let is_sane = numbers.iter().all(|number| number.is_finite() && (0.0..1e12).contains(number));
    is_sane.then_some(Network { latency, overhead, gap, per_byte })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// One side of a pair of pipes; it falls silent after `left` messages.
    struct Pipe {
        to: Sender<Vec<u8>>,
        from: Receiver<Vec<u8>>,
        left: usize,
    }

    impl Wire for Pipe {
        fn send(&mut self, message: &'static [u8]) -> bool {
            if self.left == 0 {
                return true;
            }
            self.left -= 1;
            self.to.send(message.to_vec()).is_ok()
        }

        fn receive(&mut self, message: &mut [u8], patience: Duration) -> bool {
            match self.from.recv_timeout(patience) {
                Ok(found) if found.len() == message.len() => {
                    message.copy_from_slice(&found);
                    true
                }
                _ => false,
            }
        }
    }

    /// A side whose messages are slow, except each `brisk`th.
    struct Slow<'a>(&'a mut Pipe, usize, usize);

    impl Wire for Slow<'_> {
        fn send(&mut self, message: &'static [u8]) -> bool {
            self.1 += 1;
            if !self.1.is_multiple_of(self.2) {
                std::thread::sleep(Duration::from_nanos(SLOW as u64));
            }
            self.0.send(message)
        }

        fn receive(&mut self, message: &mut [u8], patience: Duration) -> bool {
            self.0.receive(message, patience)
        }
    }

    /// What a side measures whose messages are slow, except each `brisk`th.
    fn measured_slowly(brisk: usize) -> Option<Network> {
        let (mut asking, mut answering) = pipes([usize::MAX; 2]);
        std::thread::scope(|scope| {
            let answers = scope.spawn(move || answer(&mut answering));
            let network = ask(&mut Slow(&mut asking, 0, brisk));
            assert!(answers.join().is_ok());
            network
        })
    }

    #[test]
    fn slow_round_trips_do_not_count_and_too_many_end_it() {
        let network = measured_slowly(2).expect("each second round trip is brisk");
        // This is one way. If a slow round trip counted, it would be half of `SLOW` or more.
        assert!(2.0 * network.overhead + network.latency < SLOW / 2.0);
        assert_eq!(measured_slowly(usize::MAX), None);
    }

    fn pipes(left: [usize; 2]) -> (Pipe, Pipe) {
        let ((one, other), (back, forth)) = (channel(), channel());
        (Pipe { to: one, from: forth, left: left[0] }, Pipe { to: back, from: other, left: left[1] })
    }

    fn measured(left: [usize; 2]) -> Option<Network> {
        let (mut asking, mut answering) = pipes(left);
        std::thread::scope(|scope| {
            scope.spawn(move || answer(&mut answering));
            ask(&mut asking)
        })
    }

    #[test]
    fn two_sides_measure() {
        // On a busy machine they may be too slow; what they measure is sane.
        if let Some(network) = measured([usize::MAX; 2]) {
            assert!(network.overhead > 0.0 && network.latency >= 0.0 && network.gap >= network.overhead);
        }
    }

    #[test]
    fn a_side_that_falls_silent_is_not_waited_for() {
        assert_eq!(measured([usize::MAX, 0]), None);
        assert_eq!(measured([usize::MAX, 4]), None);
        assert_eq!(measured([2, usize::MAX]), None);
        let (mut asking, mut answering) = pipes([usize::MAX; 2]);
        dismiss(&mut asking);
        let started = Instant::now();
        answer(&mut answering);
        assert!(started.elapsed() < FIRST);
    }

    #[test]
    fn loggp_follows_from_the_times() {
        let network = derive(4000.0, (4000.0 + 16.0 * 400.0, 250.0), 4000.0 + 0.1 * LONG as f64);
        assert_eq!(network, Network { latency: 1500.0, overhead: 250.0, gap: 400.0, per_byte: 0.1 });
        let odd = derive(400.0, (100.0, 250.0), 100.0);
        assert_eq!(odd, Network { latency: 0.0, overhead: 100.0, gap: 100.0, per_byte: 0.0 });
    }

    #[test]
    fn a_network_is_kept_and_damage_is_noticed() {
        let directory = std::env::temp_dir().join(format!("huddle-network-{}", std::process::id()));
        let place = Place::new(&directory, "some library, hosts");
        assert_eq!(place.read(), None);
        let network = Network { latency: 1500.5, overhead: 250.0, gap: 400.0, per_byte: 0.1 };
        place.write(&network);
        assert_eq!(place.read(), Some(network));
        assert_eq!(all_kept(&directory), [("some library, hosts".to_owned(), network)]);
        assert_eq!(Place::new(&directory, "another library, hosts").read(), None);
        let _ = std::fs::write(&place.file, "damage");
        assert_eq!(place.read(), None);
        let _ = std::fs::remove_dir_all(directory);
    }
}
