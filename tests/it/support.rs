//! What the tests stand on: real servers, a network that can fail, and runs of the program whose
//! every process is accounted for.
//!
//! | module | what it gives |
//! |---|---|
//! | [`server`] | PostgreSQL servers: one that all tests share, and private ones to break |
//! | [`database`] | a database per test, with the table, and SQL from outside |
//! | [`pooler`] | a PgBouncer that passes one connection from client to client |
//! | [`proxy`] | the way to a server, which can go silent, slow or away, and counts |
//! | [`port`] | a port that nobody else is given |
//! | [`observed`] | a server behind a proxy, for whoever counts round trips |
//! | [`host`] | a machine with `dislock` and the jobs of the recipes, to run a command line on |
//! | [`run`] | one run of `dislock`: exit code, output, processes |
//! | [`worker`] | the command under the lock, which records when it was really alive |
//! | [`wait`] | conditions with a deadline, in place of sleeps |
//! | [`processes`] | which processes are alive, by what stands in their environment |
//! | [`home`] | the directory of everything, and its removal when the tests are gone |

pub(crate) mod database;
pub(crate) mod home;
pub(crate) mod host;
pub(crate) mod observed;
pub(crate) mod pooler;
pub(crate) mod port;
pub(crate) mod processes;
pub(crate) mod proxy;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod wait;
pub(crate) mod worker;
