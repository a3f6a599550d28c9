//! What the tests stand on has to hold: each piece of `support` does to a real server, connection
//! or process what it says.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::database::{Database, Row};
use crate::support::proxy::Proxy;
use crate::support::run::Run;
use crate::support::server::{Server, Stop};
use crate::support::wait::eventually;
use crate::support::{home, processes, worker};

/// How long nothing has to happen for a connection to count as silent.
const QUIET: Duration = Duration::from_millis(200);

#[test]
fn a_row_is_read_with_the_time_that_the_database_leaves_it() {
    let database = Database::new();
    database.put("key", "somebody", 60.0);

    let row = database.row("key").unwrap();

    assert_eq!(row.value, "somebody");
    assert!((50.0..=60.0).contains(&row.seconds_left), "{row:?}");
    assert_eq!(database.row("other"), None::<Row>);
}

#[test]
fn a_database_and_its_roles_are_gone_after_the_test() {
    let server = Server::start();
    let database = server.database();
    let role = database.role("LOGIN");
    let leftovers = format!(
        "SELECT datname FROM pg_database WHERE datname = '{}' \
         UNION ALL SELECT rolname FROM pg_roles WHERE rolname = '{role}'",
        database.name()
    );
    assert_eq!(server.address().sql(&leftovers).len(), 2);

    drop(database);

    assert_eq!(server.address().sql(&leftovers).len(), 0);
}

#[test]
fn a_server_keeps_its_port_and_data_over_a_crash() {
    let server = Server::start();
    let database = server.database();
    database.put("key", "somebody", 60.0);

    server.restart(Stop::Immediate);

    assert!(database.row("key").is_some());
}

#[test]
fn a_stopped_server_refuses_connections() {
    let server = Server::start();

    server.stop(Stop::Fast);

    let refused = TcpStream::connect(("127.0.0.1", server.port())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_file() {
    let server = Server::start();
    let dir = server.socket_dir().to_path_buf();
    let name = dir.to_str().unwrap().to_owned();
    assert!(!processes::mentioning(&name).is_empty());

    drop(server);

    assert!(!dir.exists());
    // It removes its last file a moment before it ends.
    eventually("no process is left", || {
        processes::mentioning(&name).is_empty()
    });
}

#[test]
fn a_standby_answers_and_does_not_write() {
    let server = Server::start();
    let database = server.database();

    server.become_standby();

    assert_eq!(database.rows(), 0);
    let error = database.session().try_sql("DELETE FROM key_value");
    assert_eq!(error.unwrap_err().code().unwrap().code(), "25006");
}

#[test]
fn frozen_backends_answer_only_after_the_thaw() {
    let server = Server::start();
    let database = server.database();
    let mut victim = database.session();
    victim.sql("SET application_name = 'victim'");

    let frozen = server.freeze("victim");
    let answered = std::thread::spawn(move || {
        victim.sql("SELECT 1");
        Instant::now()
    });
    let backends = server.backends("victim");
    eventually("the backend stands still", || {
        backends
            .iter()
            .all(|pid| processes::state(*pid) == Some('T'))
    });
    let thawed = Instant::now();
    drop(frozen);

    assert!(answered.join().unwrap() >= thawed);
}

#[test]
fn terminated_backends_lose_their_connection() {
    let server = Server::start();
    let database = server.database();
    let mut victim = database.session();
    victim.sql("SET application_name = 'victim'");

    server.terminate("victim");

    assert!(victim.try_sql("SELECT 1").is_err());
}

#[test]
fn rules_of_authentication_come_first() {
    let server = Server::start();
    let database = server.database();
    let role = database.role("LOGIN PASSWORD 'right'");

    server.authenticate(&format!("host all {role} 127.0.0.1/32 scram-sha-256"));

    let login = |password| {
        let config = database
            .url_as(&role, password)
            .parse::<tokio_postgres::Config>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let connected = runtime
            .unwrap()
            .block_on(config.unwrap().connect(tokio_postgres::NoTls));
        connected.map(drop)
    };
    eventually("the right password is asked for", || {
        login("wrong").is_err()
    });
    login("right").unwrap();
}

/// A server that sends everything back.
fn echo_server() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    port
}

fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"?")?;
    stream.read_exact(&mut [0])
}

#[test]
fn a_silent_proxy_holds_everything_back_until_it_is_healed() {
    let proxy = Proxy::to("127.0.0.1", echo_server());
    let mut old = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    ask(&mut old).unwrap();

    proxy.silence();

    let mut new = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    for stream in [&mut old, &mut new] {
        stream.set_read_timeout(Some(QUIET)).unwrap();
        let silence = ask(stream).unwrap_err();
        assert_eq!(silence.kind(), ErrorKind::WouldBlock);
        stream.set_read_timeout(None).unwrap();
    }
    proxy.heal();
    for stream in [&mut old, &mut new] {
        stream.read_exact(&mut [0]).unwrap(); // the answer that was held back
        ask(stream).unwrap();
    }
}

#[test]
fn a_proxy_that_goes_away_resets_and_refuses_until_it_is_healed() {
    let proxy = Proxy::to("127.0.0.1", echo_server());
    let mut old = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    ask(&mut old).unwrap();

    proxy.go_away();

    let reset = old.read(&mut [0]).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.heal();
    ask(&mut TcpStream::connect(("127.0.0.1", proxy.port())).unwrap()).unwrap();
}

#[test]
fn a_slow_proxy_delays_both_directions() {
    let proxy = Proxy::to("127.0.0.1", echo_server());
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    ask(&mut stream).unwrap();

    proxy.slow_down(QUIET);

    let start = Instant::now();
    ask(&mut stream).unwrap();
    assert!(start.elapsed() >= 2 * QUIET, "{:?}", start.elapsed());
}

#[test]
fn a_proxy_counts_connections_bytes_and_answers() {
    let proxy = Proxy::to("127.0.0.1", echo_server());
    let mut first = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let mut second = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();

    ask(&mut first).unwrap();
    ask(&mut first).unwrap();
    ask(&mut second).unwrap();

    assert_eq!(proxy.connections(), 2);
    assert_eq!(proxy.bytes(), 6);
    assert_eq!(proxy.round_trips(), 3);
}

#[test]
fn a_lost_answer_ends_its_connection_and_no_other() {
    let proxy = Proxy::to("127.0.0.1", echo_server());
    let mut first = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let mut second = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    ask(&mut first).unwrap();

    proxy.lose_answer(2);

    assert!(ask(&mut first).is_err());
    ask(&mut second).unwrap();
    assert_eq!(proxy.round_trips(), 3);
}

#[test]
fn the_farewell_of_a_connection_is_no_round_trip() {
    let database = Database::new();
    let proxy = database.proxy();
    let config: tokio_postgres::Config = database.url_via(&proxy).parse().unwrap();
    let mut config = config;
    config.ssl_mode(tokio_postgres::config::SslMode::Disable);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();

    runtime.unwrap().block_on(async {
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.simple_query("SELECT 1").await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
    });

    let logins = proxy.round_trips() - 1;
    // One on trust; SCRAM of an external server takes more.
    assert!((1..=3).contains(&logins), "{logins}");
}

fn shell(script: &str) -> Run {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(worker::command());
    command.envs([worker::variable(Duration::from_secs(60))]);
    Run::start(command)
}

#[test]
fn an_exit_code_is_what_a_shell_sees() {
    assert_eq!(shell("exit 7").finish().code, 7);
    assert_eq!(shell("kill -SEGV $$").finish().code, 139);
}

#[test]
fn output_is_kept_apart() {
    let finished = shell("echo out; echo err >&2").finish();

    assert_eq!((&*finished.stdout, &*finished.stderr), ("out\n", "err\n"));
}

#[test]
fn no_process_of_a_run_survives_its_end() {
    // A child, one in another session, and one whose parent has left: each of them a worker.
    let mut run = shell(r#""$@" & setsid "$@" & (setsid "$@" &) & trap '' TERM; "$@"; wait"#);
    run.wait_for_worker();
    eventually("four workers", || run.spans().len() == 4);
    let pids: Vec<_> = run.spans().iter().map(|span| span.pid).collect();

    run.signal(Signal::SIGTERM); // ignored
    drop(run);

    assert!(!pids.iter().any(|pid| processes::is_alive(*pid)));
}

/// The janitor is what is left of a test process that was killed.
#[test]
fn a_killed_test_process_leaves_nothing_behind() {
    const CHILD: &str = "IT_KILLED_TEST_PROCESS";
    if std::env::var_os(CHILD).is_some() {
        let server = Server::start();
        let mut run = shell(r#"setsid "$@""#);
        let worker = run.wait_for_worker();
        println!("{}\n{}", server.socket_dir().display(), worker.pid);
        std::thread::sleep(Duration::from_secs(60)); // until it is killed
    }
    let output = home::new_dir("killed").join("output");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "harness::a_killed_test_process_leaves_nothing_behind",
        ])
        .args(["--nocapture"])
        .env(CHILD, "yes")
        .stdout(std::fs::File::create(&output).unwrap())
        .spawn()
        .unwrap();
    let written = || std::fs::read_to_string(&output).unwrap();
    let line = |n: usize| {
        let text = written();
        let lines: Vec<&str> = text.lines().skip_while(|l| !l.starts_with('/')).collect();
        lines.get(n).map(|line| (*line).to_owned())
    };
    eventually("server and worker run", || {
        written().ends_with('\n') && line(1).is_some()
    });

    child.kill().unwrap();
    child.wait().unwrap();

    let server_dir = line(0).unwrap();
    let worker = nix::unistd::Pid::from_raw(line(1).unwrap().parse().unwrap());
    eventually("the worker is dead", || !processes::is_alive(worker));
    eventually("the server is gone", || {
        processes::mentioning(&server_dir).is_empty()
    });
    let home = std::path::Path::new(&server_dir).parent().unwrap();
    eventually("the directory is removed", || !home.exists());
}
