//! A server that sends without end ends the run with a reason, and does not use our memory up.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::run::Dislock;

const AUTHENTICATED: &[u8] = b"R\0\0\0\x08\0\0\0\0";
const READY: &[u8] = b"Z\0\0\0\x05I";

/// More than the buffers of two sockets hold, and far less than a few seconds' data.
const BUFFERED: usize = 64 << 20;

/// Listens, answers the login with `greeting`, and sends what `next` gives for ever; counts what was
/// taken from it, on all connections.
fn serve(
    greeting: Vec<u8>,
    next: impl Fn(usize) -> Vec<u8> + Clone + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    // It ends with the tests.
    thread::spawn(move || {
        for client in listener.incoming() {
            let (greeting, next, taken) = (greeting.clone(), next.clone(), Arc::clone(&counted));
            thread::spawn(move || {
                // It goes on until the client has enough.
                let _ = flood(client.unwrap(), &greeting, next, &taken);
            });
        }
    });
    (
        format!("postgresql://me@127.0.0.1:{port}/db?sslmode=disable"),
        taken,
    )
}

fn flood(
    mut client: TcpStream,
    greeting: &[u8],
    next: impl Fn(usize) -> Vec<u8>,
    taken: &AtomicUsize,
) -> std::io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let rest = usize::try_from(u32::from_be_bytes(length)).unwrap() - length.len();
    client.read_exact(&mut vec![0; rest])?;
    client.write_all(greeting)?;
    for n in 0.. {
        let bytes = next(n);
        client.write_all(&bytes)?;
        taken.fetch_add(bytes.len(), Ordering::Relaxed);
    }
    Ok(())
}

/// A run under a lease, and a list.
#[track_caller]
fn assert_broken_off(url: &str, taken: &AtomicUsize, reason: &str) {
    let run = Dislock::lease(url, 60.0)
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "60")
        .run(["echo", "ran"]);
    let list = Dislock::new(url).run_args(["--list", "DATABASE_URL"]);
    for finished in [run, list] {
        assert_eq!((finished.code, &*finished.stdout), (1, ""), "{finished:?}");
        assert!(finished.stderr.contains(reason), "{finished:?}");
        // It will be no better another time.
        assert!(finished.took < Duration::from_secs(10), "{finished:?}");
    }
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken < BUFFERED, "{taken} bytes were taken");
}

#[test]
fn a_message_that_is_too_long_is_not_waited_for() {
    let greeting = [AUTHENTICATED, READY, b"D\x7f\xff\xff\xff"].concat();
    let (url, taken) = serve(greeting, |_| vec![b'x'; 1 << 20]);

    assert_broken_off(
        &url,
        &taken,
        "the server sent a message of 2147483647 bytes",
    );
}

#[test]
fn a_login_that_does_not_end_is_broken_off() {
    let (url, taken) = serve(AUTHENTICATED.to_vec(), |n| {
        let setting = format!("k{n}\0{}\0", "v".repeat(1000));
        let length = u32::try_from(4 + setting.len()).unwrap();
        [b"S", &length.to_be_bytes()[..], setting.as_bytes()].concat()
    });

    assert_broken_off(&url, &taken, "bytes that nobody has asked for");
}
