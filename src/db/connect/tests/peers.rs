//! Peers that are no database: silent, rude, or in between.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Listens on a port of its own and treats every connection alike, in a thread each.
pub(super) struct Peer {
    pub(super) port: u16,
    connections: Arc<Mutex<usize>>,
}

impl Peer {
    pub(super) fn that(act: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(Mutex::new(0));
        let (act, count) = (Arc::new(act), Arc::clone(&connections));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                *count.lock().unwrap() += 1;
                let act = Arc::clone(&act);
                thread::spawn(move || act(stream));
            }
        });
        Self { port, connections }
    }

    /// Accepts, reads, and never says a word.
    pub(super) fn silent() -> Self {
        Self::that(|mut stream| {
            let _until_gone = std::io::copy(&mut stream, &mut std::io::sink());
        })
    }

    /// Answers every first message with these bytes, and keeps what else it is told.
    pub(super) fn that_answers(answer: Vec<u8>) -> (Self, Arc<Mutex<Vec<u8>>>) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ears = Arc::clone(&heard);
        let peer = Self::that(move |mut stream| {
            let mut first = [0; 1024];
            let _startup = stream.read(&mut first);
            let _ = stream.write_all(&answer);
            let mut buffer = [0; 1024];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                ears.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        (peer, heard)
    }

    pub(super) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

/// What went over a connection, one entry for each change of direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Burst {
    Request(Vec<u8>),
    Answer(Vec<u8>),
}

pub(super) type Record = Arc<Mutex<Vec<Burst>>>;

/// Stands between us and a server, and writes down who said what.
pub(super) fn relay(server: u16) -> (Peer, Record) {
    let record: Record = Arc::default();
    let shared = Arc::clone(&record);
    let peer = Peer::that(move |client| {
        let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
        let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let back = Arc::clone(&shared);
        let answers = thread::spawn(move || {
            pass(server_too, client_too, |bytes| {
                let mut record = back.lock().unwrap();
                match record.last_mut() {
                    Some(Burst::Answer(answer)) => answer.extend_from_slice(bytes),
                    _ => record.push(Burst::Answer(bytes.to_vec())),
                }
            });
        });
        pass(client, server, |bytes| {
            let mut record = shared.lock().unwrap();
            match record.last_mut() {
                Some(Burst::Request(request)) => request.extend_from_slice(bytes),
                _ => record.push(Burst::Request(bytes.to_vec())),
            }
        });
        answers.join().unwrap();
    });
    (peer, record)
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        note(&buffer[..n]);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// An error as a server sends it before it lets anybody in.
pub(super) fn error_response(sqlstate: &str, message: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0C{sqlstate}\0M{message}\0\0");
    let mut response = vec![b'E'];
    response.extend(u32::try_from(4 + fields.len()).unwrap().to_be_bytes());
    response.extend(fields.as_bytes());
    response
}
