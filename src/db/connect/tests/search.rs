use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::certificates::{Authority, identities};
use super::peers::{Burst, Peer, error_response, relay};
use super::server::Server;
use super::{AMPLE, chain, connect_within, eventually, runtime};

const TRUST: &str = "host all all all trust\n";

fn server() -> Server {
    Server::start("", TRUST, &identities(&Authority::root("root"))[0])
}

/// A port that refuses connections, and that nobody else is given while the socket lives.
fn closed_port() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).unwrap();
    let port = { socket.local_addr() }.unwrap().as_socket().unwrap().port();
    (socket, port)
}

/// A runtime that works while nobody blocks on it.
fn with_a_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_peer_that_accepts_and_says_nothing_is_given_up_at_the_deadline() {
    let silent = Peer::silent();
    for mode in ["disable", "prefer", "require"] {
        let target = format!("host=127.0.0.1 port={} user=u sslmode={mode}", silent.port);
        let start = Instant::now();
        let limit = Duration::from_millis(300);
        let error = runtime()
            .block_on(connect_within(&target, limit))
            .unwrap_err();
        // Everything else that is bounded takes 10 s or more.
        assert!(start.elapsed() < AMPLE / 4, "{:?}", start.elapsed());
        assert!(error.is_passing());
        assert_eq!(error.sqlstate(), None);
        assert_eq!(
            chain(&error),
            format!(
                "cannot connect to 127.0.0.1:{}: no answer in time",
                silent.port
            )
        );
    }
}

#[test]
fn a_peer_that_hangs_up_is_a_passing_failure() {
    let rude = Peer::that(drop);
    for mode in ["disable", "prefer"] {
        let target = format!("host=127.0.0.1 port={} user=u sslmode={mode}", rude.port);
        let error = runtime()
            .block_on(connect_within(&target, AMPLE))
            .unwrap_err();
        assert!(error.is_passing(), "{}", chain(&error));
    }
}

#[test]
fn every_host_that_failed_is_named() {
    let (_closed, closed) = closed_port();
    let silent = Peer::silent();
    let target = format!(
        "host=127.0.0.1,localhost port={closed},{} user=u sslmode=disable",
        silent.port
    );
    let error = runtime()
        .block_on(connect_within(&target, Duration::from_secs(1)))
        .unwrap_err();
    let message = chain(&error);
    assert!(
        message.contains(&format!("127.0.0.1:{closed} (Connection refused")),
        "{message}"
    );
    assert!(
        message.ends_with(&format!("localhost:{}: no answer in time", silent.port)),
        "{message}"
    );
}

#[test]
fn a_refused_password_ends_the_search() {
    let (first, _) = Peer::that_answers(error_response("28P01", "password authentication failed"));
    let second = Peer::silent();
    let target = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=u sslmode=disable",
        first.port, second.port
    );
    let error = runtime()
        .block_on(connect_within(&target, AMPLE))
        .unwrap_err();
    assert_eq!(error.sqlstate(), Some("28P01"));
    assert!(!error.is_passing());
    assert_eq!(second.connections(), 0);
}

#[test]
fn a_way_of_asking_for_proof_that_is_ruled_out_gets_none() {
    let cleartext_request = vec![b'R', 0, 0, 0, 8, 0, 0, 0, 3];
    let (peer, heard) = Peer::that_answers(cleartext_request);
    let target = format!(
        "host=127.0.0.1 port={} user=u password=hunter2 sslmode=disable",
        peer.port
    );
    for rule in ["require_auth=scram-sha-256", "channel_binding=require"] {
        let target = format!("{target} {rule}");
        let error = runtime()
            .block_on(connect_within(&target, AMPLE))
            .unwrap_err();
        assert!(!error.is_passing(), "{}", chain(&error));
    }
    assert_eq!(heard.lock().unwrap().as_slice(), b"");
    // The peer does hear it when nothing is ruled out.
    let elsewhere = with_a_thread();
    elsewhere.spawn(async move { connect_within(&target, AMPLE).await });
    eventually("it is heard", || !heard.lock().unwrap().is_empty());
    assert_eq!(heard.lock().unwrap().as_slice(), b"p\0\0\0\x0chunter2\0");
}

#[test]
fn plain_text_after_the_answer_to_the_request_for_tls_is_not_believed() {
    // What somebody in the middle could send: "yes, TLS", and at once "you are in".
    let mut answer = vec![b'S'];
    answer.extend([b'R', 0, 0, 0, 8, 0, 0, 0, 0, b'Z', 0, 0, 0, 5, b'I']);
    let (peer, _) = Peer::that_answers(answer);
    let target = format!("host=127.0.0.1 port={} user=u sslmode=require", peer.port);
    let error = runtime()
        .block_on(connect_within(&target, AMPLE))
        .unwrap_err();
    assert!(
        chain(&error).contains("TLS handshake failed"),
        "{}",
        chain(&error)
    );
}

#[test]
fn an_error_in_place_of_the_answer_to_the_request_for_tls_is_not_repeated() {
    let (peer, _) = Peer::that_answers(error_response("XX000", "believe me"));
    let target = format!("host=127.0.0.1 port={} user=u", peer.port);
    let error = runtime()
        .block_on(connect_within(&target, AMPLE))
        .unwrap_err();
    assert!(!chain(&error).contains("believe me"), "{}", chain(&error));
    assert_eq!(peer.connections(), 1);
}

#[test]
fn the_search_passes_over_hosts_that_cannot_serve() {
    let server = server();
    let (starting, _) = Peer::that_answers(error_response("57P03", "starting up"));
    let silent = Peer::silent();
    let (_closed, closed) = closed_port();
    for first in [closed, starting.port, silent.port] {
        for names in ["127.0.0.1,127.0.0.1", "no-such-host.invalid,127.0.0.1"] {
            let target = format!(
                "host={names} port={first},{} user=postgres sslmode=disable",
                server.port
            );
            let connection = runtime().block_on(connect_within(&target, Duration::from_secs(8)));
            assert!(connection.is_ok(), "{}", chain(&connection.unwrap_err()));
        }
    }

    // With time to spare, the first host is given what connect_timeout says and no more.
    let target = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres sslmode=disable connect_timeout=2",
        silent.port, server.port
    );
    let start = Instant::now();
    runtime()
        .block_on(connect_within(&target, Duration::from_secs(600)))
        .unwrap();
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert!(start.elapsed() < Duration::from_secs(20));

    // In random order the server is found wherever it stands.
    let target = format!(
        "host=127.0.0.1,127.0.0.1,127.0.0.1 port={0},{1},{0} user=postgres load_balance_hosts=random",
        closed, server.port
    );
    for _ in 0..10 {
        runtime().block_on(connect_within(&target, AMPLE)).unwrap();
    }
}

#[test]
fn connecting_and_closing_say_no_more_than_they_must() {
    let server = server();
    let (peer, record) = relay(server.port);
    let runtime = runtime();
    let connected = |target: &str| {
        record.lock().unwrap().clear();
        let target = format!("host=127.0.0.1 port={} user=postgres {target}", peer.port);
        runtime.block_on(connect_within(&target, AMPLE))
    };
    let requests = || {
        let record = record.lock().unwrap();
        let is_request = |burst: &&Burst| matches!(burst, Burst::Request(_));
        record.iter().filter(is_request).count()
    };

    // Servers before 14 do not report what they are: they have to be asked.
    let asked = usize::from(server.version() < 14);
    for (target, expected) in [
        ("sslmode=disable", 1),
        ("sslmode=disable target_session_attrs=read-write", 1 + asked),
    ] {
        let connection = connected(target).unwrap();
        assert_eq!(requests(), expected, "{target}");
        runtime.block_on(connection.close());
        eventually("the goodbye", || {
            record.lock().unwrap().last() == Some(&Burst::Request(vec![b'X', 0, 0, 0, 4]))
        });
    }

    // The question, the handshake's two flights, the startup message: the curve is guessed right.
    let connection = connected("sslmode=require").unwrap();
    assert_eq!(requests(), 3);
    drop(connection);

    let before = peer.connections();
    let error = connected("dbname=nowhere").unwrap_err();
    assert_eq!(error.sqlstate(), Some("3D000"));
    assert_eq!(peer.connections() - before, 1, "tried again without TLS");

    server.set("ssl = off");
    let before = peer.connections();
    connected("sslmode=prefer").unwrap();
    assert_eq!(
        peer.connections() - before,
        1,
        "the connection still served"
    );
    assert_eq!(requests(), 2);
}

#[test]
fn direct_tls_asks_no_question_and_says_which_servers_are_too_old() {
    let server = server();
    let (peer, record) = relay(server.port);
    let target = format!(
        "host=127.0.0.1 port={} user=postgres sslmode=require sslnegotiation=direct",
        peer.port
    );
    let result = runtime().block_on(connect_within(&target, AMPLE));
    let record = record.lock().unwrap().clone();
    // The handshake's own version number opens the connection.
    assert!(matches!(record.first(), Some(Burst::Request(hello)) if hello.starts_with(&[22, 3])));
    if server.version() >= 17 {
        result.unwrap();
        // Its two flights; the startup message goes with the second.
        let is_request = |burst: &&Burst| matches!(burst, Burst::Request(_));
        assert_eq!(record.iter().filter(is_request).count(), 2);
    } else {
        let error = chain(&result.unwrap_err());
        assert!(error.contains("needs PostgreSQL 17"), "{error}");
    }
}

#[test]
fn a_connection_ends_when_it_is_dropped_and_its_statement_when_it_is_cancelled() {
    let server = server();
    let sessions = |state: &str| {
        server.ask(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dropped' AND state = '{state}'"
        ))
    };
    for mode in ["disable", "require"] {
        let target = format!(
            "host=127.0.0.1 port={} user=postgres sslmode={mode} application_name=dropped",
            server.port
        );
        // On a runtime of somebody else, which goes on running.
        let runtime = with_a_thread();
        let connection = runtime.block_on(connect_within(&target, AMPLE)).unwrap();
        let start = Instant::now();
        let answer = runtime.block_on(async {
            let statement = connection
                .client()
                .execute_typed("SELECT pg_sleep(60)", &[]);
            let cancel = async {
                eventually("the statement", || sessions("active") == "1");
                connection.cancel();
            };
            tokio::join!(statement, cancel).0
        });
        assert_eq!(answer.unwrap_err().code().unwrap().code(), "57014");
        assert!(start.elapsed() < Duration::from_secs(30));

        eventually("an idle session", || sessions("idle") == "1");
        drop(connection);
        eventually("no session", || sessions("idle") == "0");
    }
}

#[test]
fn a_server_is_taken_for_what_it_is() {
    let identity = &identities(&Authority::root("root"))[0];
    let primary = Server::start("", TRUST, identity);
    let read_only = Server::start("default_transaction_read_only = on", TRUST, identity);
    let standby = Server::start_standby(TRUST, identity);
    let runtime = runtime();
    let port = |wanted: &str, servers: [&Server; 3]| {
        let ports = servers.map(|server| server.port.to_string()).join(",");
        let target = format!(
            "host=127.0.0.1,127.0.0.1,127.0.0.1 port={ports} user=postgres target_session_attrs={wanted}"
        );
        runtime.block_on(async {
            let connection = connect_within(&target, AMPLE)
                .await
                .map_err(|e| chain(&e))?;
            let client = connection.client();
            let row = client
                .query_typed_one("SELECT current_setting('port')", &[])
                .await
                .unwrap();
            Ok::<String, String>(row.get(0))
        })
    };
    let is = |server: &Server| Ok(server.port.to_string());
    for (wanted, expected) in [
        ("any", &standby),
        ("read-write", &primary),
        ("read-only", &standby),
        ("primary", &read_only),
        ("standby", &standby),
        ("prefer-standby", &standby),
    ] {
        assert_eq!(
            port(wanted, [&standby, &read_only, &primary]),
            is(expected),
            "{wanted}"
        );
    }
    assert_eq!(
        port("read-only", [&primary, &read_only, &standby]),
        is(&read_only)
    );
    assert_eq!(
        port("prefer-standby", [&primary, &read_only, &standby]),
        is(&standby)
    );
    assert_eq!(
        port("prefer-standby", [&read_only, &primary, &read_only]),
        is(&read_only)
    );
    assert_eq!(
        port("standby", [&primary; 3])
            .unwrap_err()
            .matches("not a standby")
            .count(),
        3
    );
}
