//! The way to a server, which can fail as networks do, and which counts what passes.
//!
//! Each connection has two threads, one per direction. What is read waits until the mode lets it
//! through, so that a silent network delays the end of a connection, too, as a real one does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use socket2::SockRef;

use super::port::Port;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Pass,
    /// Connections stay open, new ones are taken, and nothing moves.
    Silent,
    /// Nobody listens.
    Away,
}

struct State {
    mode: Mode,
    listener: Option<Arc<TcpListener>>,
    connections: Vec<Weak<TcpStream>>,
}

struct Shared {
    target: (String, u16),
    state: Mutex<State>,
    changed: Condvar,
    latency: AtomicU64,
    connections: AtomicUsize,
    bytes: AtomicUsize,
    round_trips: AtomicUsize,
    /// The number of the answer that is not delivered; 0 for none.
    lost_answer: AtomicUsize,
    /// The number of the answer after which nothing moves; 0 for none.
    last_answer: AtomicUsize,
}

/// A TCP proxy on a port of its own, gone when this is dropped.
pub(crate) struct Proxy {
    port: Port,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn to(host: &str, port: u16) -> Self {
        let shared = Arc::new(Shared {
            target: (host.to_owned(), port),
            state: Mutex::new(State {
                mode: Mode::Pass,
                listener: None,
                connections: Vec::new(),
            }),
            changed: Condvar::new(),
            latency: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            round_trips: AtomicUsize::new(0),
            lost_answer: AtomicUsize::new(0),
            last_answer: AtomicUsize::new(0),
        });
        let port = Port::new();
        shared.listen(&port);
        Self { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// From now on nothing moves: connections stay open, and new ones are taken without an answer.
    pub(crate) fn silence(&self) {
        self.shared.set(Mode::Silent);
    }

    /// Resets every connection and refuses new ones.
    pub(crate) fn go_away(&self) {
        for stream in self.shared.leave() {
            let _ = SockRef::from(&*stream).set_linger(Some(Duration::ZERO));
            // Wakes its readers, who close it, and sends nothing by itself.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    /// Everything passes again, what was held up first.
    pub(crate) fn heal(&self) {
        self.shared.listen(&self.port);
        self.shared.set(Mode::Pass);
    }

    /// Delays what is sent, in each direction, by this much.
    pub(crate) fn slow_down(&self, latency: Duration) {
        let micros = latency.as_micros().try_into().expect("a short time");
        self.shared.latency.store(micros, Ordering::Relaxed);
    }

    /// Ends the connection in place of delivering the answer that makes the `number`th round trip:
    /// the server has done what it was asked, and the client cannot know.
    pub(crate) fn lose_answer(&self, number: usize) {
        self.shared.lost_answer.store(number, Ordering::SeqCst);
    }

    /// Goes [silent](Self::silence) with the answer that makes the `number`th round trip: what is asked
    /// next is on its way until the network [heals](Self::heal).
    #[cfg(feature = "aio")] // the only tests that need it so far
    pub(crate) fn silence_after(&self, number: usize) {
        self.shared.last_answer.store(number, Ordering::SeqCst);
    }

    /// How many connections were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How many bytes have passed, both ways.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// How often a client spoke and the server answered: what each costs one network latency.
    /// The farewell of a connection, which has no answer, is none.
    pub(crate) fn round_trips(&self) -> usize {
        self.shared.round_trips.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for stream in self.shared.leave() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread of the proxy panicked")
    }

    fn set(&self, mode: Mode) {
        self.lock().mode = mode;
        self.changed.notify_all();
    }

    fn wait_while(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed
            .wait_while(self.lock(), |state| condition(state))
            .expect("a thread of the proxy panicked")
    }

    /// Blocks while the network is silent; whether it works then.
    fn wait_for_network(&self) -> bool {
        self.wait_while(|state| state.mode == Mode::Silent).mode == Mode::Pass
    }

    /// Listens, unless it does.
    fn listen(self: &Arc<Self>, port: &Port) {
        let listener = {
            let mut state = self.lock();
            if state.listener.is_some() {
                return;
            }
            Arc::clone(state.listener.insert(Arc::new(port.listen())))
        };
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(client));
            }
        });
    }

    /// Listens no more and lets nothing pass; the connections that there were.
    fn leave(&self) -> Vec<Arc<TcpStream>> {
        let mut state = self.lock();
        state.mode = Mode::Away;
        self.changed.notify_all();
        if let Some(listener) = state.listener.take() {
            // Closing it would not do: a child that another test is about to start has a copy of
            // every socket until it runs its program.
            let _ = SockRef::from(&*listener).shutdown(Shutdown::Both);
        }
        let connections = state.connections.drain(..);
        connections.filter_map(|stream| stream.upgrade()).collect()
    }

    fn serve(self: Arc<Self>, client: TcpStream) {
        if !self.wait_for_network() {
            return;
        }
        let Ok(server) = TcpStream::connect((self.target.0.as_str(), self.target.1)) else {
            return;
        };
        let streams = [client, server].map(|stream| {
            let _ = stream.set_nodelay(true);
            Arc::new(stream)
        });
        {
            let mut state = self.lock();
            if state.mode == Mode::Away {
                return;
            }
            state.connections.retain(|stream| stream.strong_count() > 0);
            state.connections.extend(streams.iter().map(Arc::downgrade));
        }
        let [client, server] = streams;
        let asked = Arc::new(AtomicBool::new(false));
        let requests = {
            let (shared, client, server, asked) = (
                Arc::clone(&self),
                client.clone(),
                server.clone(),
                asked.clone(),
            );
            move || {
                shared.pump(&client, &server, || {
                    asked.store(true, Ordering::SeqCst);
                    true
                });
            }
        };
        std::thread::spawn(requests);
        self.pump(&server, &client, || {
            let answers = asked.swap(false, Ordering::SeqCst);
            let number = self.round_trips.fetch_add(answers.into(), Ordering::SeqCst) + 1;
            if answers && number == self.last_answer.load(Ordering::SeqCst) {
                self.set(Mode::Silent);
            }
            !answers || number != self.lost_answer.load(Ordering::SeqCst)
        });
    }

    /// Copies one direction until it ends, or until `passes` says that this piece does not pass.
    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, passes: impl Fn() -> bool) {
        let mut buffer = vec![0; 65_536];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            if !self.wait_for_network() {
                return;
            }
            if read == 0 {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            if !passes() {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
            self.bytes.fetch_add(read, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(self.latency.load(Ordering::Relaxed)));
            if to.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
    }
}
