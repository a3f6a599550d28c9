//! The way to a server, which can fail as networks do, and which counts what passes.
//!
//! Each connection has two threads, one per direction. What is read waits until the mode lets it
//! through, so that a silent network delays the end of a connection, too, as a real one does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};

use super::wait;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Pass,
    /// Connections stay open, new ones are taken, and nothing moves.
    Silent,
    /// Nobody listens.
    Away,
    /// The proxy is gone for good.
    Closed,
}

struct State {
    mode: Mode,
    listening: bool,
    connections: Vec<Weak<TcpStream>>,
}

struct Shared {
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
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn to(host: &str, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind the proxy");
        let own_port = listener.local_addr().expect("the proxy's address").port();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                mode: Mode::Pass,
                listening: true,
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
        let target = (host.to_owned(), port);
        let acceptor = Arc::clone(&shared);
        std::thread::spawn(move || acceptor.accept(listener, &target));
        Self {
            port: own_port,
            shared,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing moves: connections stay open, and new ones are taken without an answer.
    pub(crate) fn silence(&self) {
        self.shared.set(Mode::Silent);
    }

    /// Resets every connection and refuses new ones.
    pub(crate) fn go_away(&self) {
        self.shared.set(Mode::Away);
        // The thread that accepts notices with the next connection.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let mut state = self.shared.wait_while(|state| state.listening);
        for stream in state.connections.drain(..).filter_map(|s| s.upgrade()) {
            let reset = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            let _ = setsockopt(&*stream, sockopt::Linger, &reset);
            // Wakes its readers, who close it, and sends nothing by itself.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    /// Everything passes again, what was held up first.
    pub(crate) fn heal(&self) {
        self.shared.set(Mode::Pass);
        drop(self.shared.wait_while(|state| !state.listening));
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
        self.shared.set(Mode::Closed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        for stream in self.shared.lock().connections.drain(..) {
            if let Some(stream) = stream.upgrade() {
                let _ = stream.shutdown(Shutdown::Both);
            }
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

    fn accept(self: Arc<Self>, mut listener: TcpListener, target: &(String, u16)) {
        let address = listener.local_addr().expect("the proxy's address");
        loop {
            while let Ok((client, _)) = listener.accept() {
                if matches!(self.lock().mode, Mode::Away | Mode::Closed) {
                    break;
                }
                self.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&self);
                let target = target.clone();
                std::thread::spawn(move || shared.serve(client, &target));
            }
            drop(listener);
            self.lock().listening = false;
            self.changed.notify_all();
            if self.wait_while(|state| state.mode == Mode::Away).mode == Mode::Closed {
                return;
            }
            // An outgoing connection may have been given the port meanwhile.
            listener = wait::value("the proxy's own port", wait::SOON, || {
                TcpListener::bind(address).ok()
            });
            self.lock().listening = true;
            self.changed.notify_all();
        }
    }

    fn serve(self: Arc<Self>, client: TcpStream, target: &(String, u16)) {
        if !self.wait_for_network() {
            return;
        }
        let Ok(server) = TcpStream::connect((target.0.as_str(), target.1)) else {
            return;
        };
        let streams = [client, server].map(|stream| {
            let _ = stream.set_nodelay(true);
            Arc::new(stream)
        });
        {
            let mut state = self.lock();
            if matches!(state.mode, Mode::Away | Mode::Closed) {
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
